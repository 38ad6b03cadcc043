#include "launcher/core/queue.hpp"

#include <functional>
#include <stdexcept>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/core/quota.hpp"
#include "launcher/core/resources.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using core::NodeCapacity;
using core::QueueState;
using core::WaitingRun;

namespace {

NodeCapacity node(int slots, int free) {
  NodeCapacity capacity;
  capacity.total.slots = slots;
  capacity.free.slots = free;
  return capacity;
}

WaitingRun run(const RunId& id, int submission, int workers, int priority = 0) {
  WaitingRun waiting;
  waiting.run = id;
  waiting.priority = priority;
  waiting.submission = submission;
  waiting.demand.num_workers = workers;
  waiting.demand.least = workers;
  return waiting;
}

const core::QueueTurn& turn_of(const core::QueuePlan& plan, const RunId& id) {
  for (const core::QueueTurn& turn : plan.turns)
    if (turn.run == id) return turn;
  throw std::runtime_error("no turn of " + id);
}

/// Those that start, in the order of the queue.
std::string starts(const core::QueuePlan& plan) {
  std::string text;
  for (const core::QueueTurn& turn : plan.turns)
    if (turn.placement.world_size > 0) text += (text.empty() ? "" : " ") + turn.run;
  return text;
}

}  // namespace

TEST_CASE("queue: who starts with four slots, in which order") {
  WaitingRun admitted = run("admitted", 9, 2);
  admitted.is_admitted = true;
  WaitingRun elastic = run("elastic", 1, 8);
  elastic.demand.least = 1;
  struct Row {
    const char* what;
    std::vector<WaitingRun> waiting;
    const char* expected;
  };
  const Row rows[] = {
      {"in the order of submission, not of names", {run("b", 1, 2), run("a", 2, 2), run("c", 3, 2)}, "b a"},
      {"the higher priority first", {run("a", 1, 4), run("b", 2, 4, 1)}, "b"},
      {"a lower one waits its turn", {run("a", 1, 4), run("b", 2, 4, -1)}, "a"},
      {"what does not fit is passed", {run("a", 1, 5), run("b", 2, 6), run("c", 3, 4)}, "c"},
      {"equal in all: by name", {run("b", 1, 4), run("a", 1, 4)}, "a"},
      {"who has run before goes on first", {run("a", 1, 4, 100), admitted, run("b", 2, 2)}, "admitted b"},
      {"an elastic one takes all that is free", {elastic, run("b", 2, 1)}, "elastic"},
      {"nobody", {}, ""},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    QueueState state;
    state.nodes["n1"] = node(4, 4);
    state.waiting = row.waiting;
    CHECK(starts(core::serve_queue(state)) == row.expected);
  }
}

TEST_CASE("queue: owners take turns, whoever submits how much") {
  QueueState state;
  state.nodes["n1"] = node(6, 6);
  const auto of = [](const std::string& owner, WaitingRun run) {
    run.owner = owner;
    return run;
  };
  for (int index = 1; index <= 9; ++index)
    state.waiting.push_back(of("alice", run(fmt::format("a{}", index), index, 1)));
  state.waiting.push_back(of("bob", run("b1", 10, 1)));
  state.waiting.push_back(of("bob", run("b2", 11, 1)));
  state.waiting.push_back(of("carol", run("c1", 12, 2)));
  CHECK(starts(core::serve_queue(state)) == "a1 b1 c1 a2 b2");
  SECTION("what an owner's runs at work hold counts") {
    state.holdings["old"] = {{}, {{"n1", 4}}, "bob"};
    CHECK(starts(core::serve_queue(state)) == "a1 c1 a2 a3 a4");
  }
  SECTION("a priority counts more") {
    state.waiting[8].priority = 1;
    CHECK(starts(core::serve_queue(state)) == "a9 a1 b1 c1 a2");
  }
  SECTION("who has run before goes on first") {
    state.waiting[8].is_admitted = true;
    CHECK(starts(core::serve_queue(state)) == "a9 a1 b1 c1 a2");
  }
}

TEST_CASE("queue: what is not taken from an owner, and why") {
  struct Row {
    core::OwnerLoad load;
    int priority;
    bool is_admin;
    const char* expected;
  };
  core::OwnerQuota quota;
  quota.live_max = 5;
  quota.queued_max = 2;
  quota.live_of_all_max = 50;
  quota.bytes_max = std::int64_t{1} << 30;
  const Row rows[] = {
      {{}, 0, false, ""},
      {{4, 1, 49}, -100, false, ""},
      {{}, 1, false, "\"priority\" 1 is for admins: runs of alice may have -100 to 0"},
      {{}, -101, false, "\"priority\" -101 is for admins: runs of alice may have -100 to 0"},
      {{4, 2, 9},
       0,
       false,
       "2 runs of alice wait in the queue, and 2 may: submit again when some have started, or stop some"},
      {{5, 0, 9}, 0, false, "5 runs of alice are live, and 5 may be: submit again when some have ended"},
      {{0, 0, 0, std::int64_t{1} << 30},
       0,
       false,
       "the runs of alice take 1GiB of 1GiB: sgd-launch runs list shows them, sgd-launch runs remove makes room"},
      {{49, 49, 49}, 1'000'000, true, ""},
      {{1, 1, 50}, 0, true, "50 runs are live, and the coordinator takes no more: try again when some have ended"},
  };
  for (const Row& row : rows)
    CHECK(core::why_not_taken("alice", row.priority, row.is_admin, row.load, quota) == row.expected);
  // No limit is named: then the share of the disk is one.
  quota.bytes_max = 0;
  CHECK(core::why_not_taken("alice", 0, false, {0, 0, 0, 5, 6}, quota).empty());
  CHECK(core::why_not_taken("alice", 0, false, {0, 0, 0, 5, 0}, quota).empty());
  CHECK(core::why_not_taken("alice", 0, false, {0, 0, 0, 6, 6}, quota) ==
        "the runs of alice take 6B of 6B: sgd-launch runs list shows them, sgd-launch runs remove makes room");
}

TEST_CASE("queue: what a waiting run says that it waits for") {
  QueueState state;
  state.nodes["n1"] = node(4, 2);
  state.nodes["n2"] = node(4, 4);
  state.nodes["n2"].out = "drained";
  state.nodes["n3"] = node(2, 0);
  state.waiting = {run("a", 1, 9), run("b", 2, 4)};
  core::QueuePlan plan = core::serve_queue(state);
  CHECK(turn_of(plan, "a").reason ==
        "1st in the queue: 9 slots wanted, 2 free on 3 nodes (n2 drained); more nodes are needed: these have room for "
        "6 in all");
  CHECK(turn_of(plan, "b").reason == "2nd in the queue: 4 slots wanted, 2 free on 3 nodes (n2 drained)");
  CHECK_FALSE(turn_of(plan, "a").fits_idle);
  CHECK(turn_of(plan, "b").fits_idle);
  state.waiting = {run("b", 2, 4)};
  CHECK(turn_of(core::serve_queue(state), "b").reason == "4 slots wanted, 2 free on 3 nodes (n2 drained)");
  state.waiting = {run("c", 2, 3)};
  state.waiting[0].demand.per_worker = {2, 1, std::int64_t{4} << 30};
  state.nodes["n1"].counts_cpus = true;
  CHECK(turn_of(core::serve_queue(state), "c").reason ==
        "3 workers of 2 cpus, 1 gpu, 4GiB wanted, room for 0 on 3 nodes (n1 0 of 0 cpus free, 2 wanted, n2 "
        "drained, n3 0 of 2 slots free)");
  for (int submission = 1; submission <= 12; ++submission) state.waiting.push_back(run("r", submission, 9));
  plan = core::serve_queue(state);
  CHECK(plan.turns[10].reason.starts_with("11th in the queue"));
  CHECK(plan.turns[12].reason.starts_with("13th in the queue"));
}

TEST_CASE("queue: a run is passed only so long, counted from when it could have started") {
  const TimePoint begin{};
  QueueState state;
  state.backfill_limit = 10min;
  state.now = begin + 1h;
  state.nodes["n1"] = node(4, 2);
  state.holdings["passer"] = {{}, {{"n1", 2}}};
  state.waiting = {run("wide", 1, 4), run("small", 2, 1)};

  // What holds the other slots has not passed it: waiting for that is no starvation.
  core::QueuePlan plan = core::serve_queue(state);
  CHECK(starts(plan) == "small");
  CHECK_FALSE(turn_of(plan, "wide").startable_since.has_value());

  state.waiting[0].passed_by = {"passer", "ended long ago"};
  plan = core::serve_queue(state);
  CHECK(starts(plan) == "small");
  CHECK(turn_of(plan, "wide").startable_since == state.now);

  state.waiting[0].startable_since = state.now - 10min;
  CHECK(starts(core::serve_queue(state)) == "small");
  state.waiting[0].startable_since = state.now - 10min - 1ns;
  plan = core::serve_queue(state);
  CHECK(starts(plan).empty());
  CHECK(turn_of(plan, "wide").is_overdue);
  CHECK(turn_of(plan, "small").reason ==
        "2nd in the queue: 1 slot wanted, 0 free on 1 node; what is free is kept for wide");

  SECTION("a node that it may not use is nobody's loss") {
    state.nodes["n2"] = node(1, 1);
    state.waiting[0].demand.rules.exclude = {"n2"};
    plan = core::serve_queue(state);
    CHECK(starts(plan) == "small");
    CHECK(turn_of(plan, "small").placement.nodes.front().node == "n2");
  }
  SECTION("one that would not fit even idle nodes holds nobody up") {
    state.waiting[0].demand.least = state.waiting[0].demand.num_workers = 5;
    CHECK(starts(core::serve_queue(state)) == "small");
  }
  SECTION("it starts as soon as there is room") {
    state.nodes["n1"] = node(4, 4);
    CHECK(starts(core::serve_queue(state)) == "wide");
  }
}

TEST_CASE("queue: a passer that starts again in the same moment has passed it still") {
  QueueState state;
  state.backfill_limit = 10min;
  state.now = TimePoint{} + 1h;
  state.nodes["n1"] = node(2, 2);
  state.waiting = {run("wide", 2, 2), run("passer", 1, 1)};
  state.waiting[0].passed_by = {"passer"};
  state.waiting[1].is_admitted = true;
  state.holdings["passer"] = {};
  const core::QueuePlan plan = core::serve_queue(state);
  CHECK(starts(plan) == "passer");
  CHECK(turn_of(plan, "wide").startable_since == state.now);
}

TEST_CASE("queue: growth takes nothing that a waiting run may use") {
  QueueState state;
  state.nodes["n1"] = node(4, 1);
  state.nodes["n2"] = node(2, 1);
  core::GrowingRun growing{"small", 0, 5, {}, 1};
  growing.demand.num_workers = 4;
  state.growing = {growing};
  CHECK(core::serve_queue(state).growth.at("small") == 2);
  state.waiting = {run("wide", 9, 5, -100)};
  CHECK(core::serve_queue(state).growth.at("small") == 0);
  state.waiting[0].demand.rules.exclude = {"n2"};
  state.waiting[0].demand.least = 4;
  CHECK(core::serve_queue(state).growth.at("small") == 1);
  state.waiting[0].demand.least = 7;  // It would not fit: no reason to keep anything.
  CHECK(core::serve_queue(state).growth.at("small") == 2);

  state.waiting.clear();
  core::GrowingRun first = growing;
  first.run = "first";
  first.submission = 1;
  state.growing.push_back(first);
  CHECK(core::serve_queue(state).growth.at("first") == 2);  // Not promised twice.
  CHECK(core::serve_queue(state).growth.at("small") == 0);
  state.growing = {growing};
  state.growing[0].demand.rules.max_per_node = 1;
  state.holdings["small"] = {{}, {{"n1", 1}}};
  CHECK(core::serve_queue(state).growth.at("small") == 1);
}

TEST_CASE("queue: a run does not leave a node that would not have it again for less room elsewhere") {
  QueueState state;
  state.nodes["n1"] = node(2, 0);
  state.nodes["n1"].out = "drained";
  state.nodes["n2"] = node(2, 0);
  state.nodes["n3"] = node(4, 1);
  core::GrowingRun growing{"command", 0, 1, {}, 4};
  growing.demand.num_workers = 6;
  state.growing = {growing};
  state.holdings["command"].workers = {{"n1", 2}, {"n2", 2}};
  CHECK(core::serve_queue(state).growth.at("command") == 0);
  state.nodes["n3"] = node(4, 2);
  CHECK(core::serve_queue(state).growth.at("command") == 0);
  state.nodes["n3"] = node(4, 4);
  CHECK(core::serve_queue(state).growth.at("command") == 2);
  state.nodes["n1"].out.clear();
  CHECK(core::serve_queue(state).growth.at("command") == 2);
  state.nodes.erase("n1");
  state.nodes["n3"] = node(4, 3);
  CHECK(core::serve_queue(state).growth.at("command") == 1);
}

TEST_CASE("queue: a run that goes on grows only when nobody waits for the room") {
  QueueState state;
  state.nodes["n1"] = node(4, 4);
  WaitingRun back = run("back", 1, 4);
  back.is_admitted = true;
  back.demand.least = 1;
  back.before = core::Placement{2, {{"n1", {0, 1}}}, 2, ""};
  state.waiting = {back};
  CHECK(turn_of(core::serve_queue(state), "back").placement.world_size == 4);
  state.waiting.push_back(run("new", 2, 2));
  core::QueuePlan plan = core::serve_queue(state);
  CHECK(turn_of(plan, "back").placement.world_size == 2);
  CHECK(turn_of(plan, "new").placement.world_size == 2);
  state.waiting[1].demand.least = 5;
  CHECK(turn_of(core::serve_queue(state), "back").placement.world_size == 4);
}

TEST_CASE("queue: a run that leaves for room gets what was promised, whoever else waits") {
  QueueState state;
  state.nodes["n1"] = node(4, 0);
  state.nodes["n2"] = node(1, 1);
  core::GrowingRun growing{"small", 0, 1, {}, 4};
  growing.demand.num_workers = 5;
  state.growing = {growing};
  state.waiting = {run("wide", 9, 4)};
  state.waiting[0].demand.rules.exclude = {"n2"};
  REQUIRE(core::serve_queue(state).growth.at("small") == 1);

  state.growing.clear();
  state.nodes["n1"] = node(4, 4);
  WaitingRun back = run("small", 1, 5);
  back.is_admitted = true;
  back.demand.least = 1;
  back.before = core::Placement{4, {{"n1", {0, 1, 2, 3}}}, 4, ""};
  state.waiting.push_back(back);
  CHECK(turn_of(core::serve_queue(state), "small").placement.world_size == 5);
}

namespace {

struct ResourceRow {
  const char* what;
  std::function<void(NodeCapacity&, core::Demand&)> change;
  int room;
  const char* why;
};

void check(const std::vector<ResourceRow>& rows) {
  NodeCapacity whole;
  whole.total = whole.free = {8, 8, 2, std::int64_t{16} << 30};
  whole.labels = {{"gpu", "a100"}};
  for (const ResourceRow& row : rows) {
    CAPTURE(row.what);
    NodeCapacity capacity = whole;
    core::Demand demand;
    row.change(capacity, demand);
    CHECK(core::room("n", capacity, demand) == row.room);
    CHECK(core::why_no_room("n", capacity, demand) == row.why);
  }
}

constexpr std::int64_t kGiB = std::int64_t{1} << 30;

}  // namespace

TEST_CASE("resources: how many workers have room in what is free") {
  using Node = NodeCapacity;
  using Demand = core::Demand;
  check({
      {"slots", [](Node&, Demand&) {}, 8, ""},
      {"cores that do not count", [](Node&, Demand& demand) { demand.per_worker.cpus = 99; }, 8, ""},
      {"cores",
       [](Node& node, Demand& demand) {
         node.counts_cpus = true;
         demand.per_worker.cpus = 3;
       },
       2, ""},
      {"no cores",
       [](Node& node, Demand& demand) {
         node.counts_cpus = true;
         node.free.cpus = 1;
         demand.per_worker.cpus = 3;
       },
       0, "1 of 8 cpus free, 3 wanted"},
      {"gpus", [](Node&, Demand& demand) { demand.per_worker.gpus = 1; }, 2, ""},
      {"no gpus", [](Node&, Demand& demand) { demand.per_worker.gpus = 4; }, 0, "2 of 2 gpus free, 4 wanted"},
      {"gpus but for one that is left out",
       [](Node&, Demand& demand) {
         demand.per_worker.gpus = 1;
         demand.left_out["n"] = {1, 1};
       },
       1, ""},
      {"gpus, of which another run holds the one that is left out",
       [](Node& node, Demand& demand) {
         demand.per_worker.gpus = node.free.gpus = 1;
         demand.left_out["n"] = {1, 0};
       },
       1, ""},
      {"no gpus but what is left out",
       [](Node& node, Demand& demand) {
         demand.per_worker.gpus = node.free.gpus = 1;
         demand.left_out["n"] = {1, 1};
       },
       0, "0 of 2 gpus free besides 1 left out, 1 wanted"},
      {"memory", [](Node&, Demand& demand) { demand.per_worker.memory_bytes = 5 * kGiB; }, 3, ""},
      {"no memory", [](Node&, Demand& demand) { demand.per_worker.memory_bytes = 17 * kGiB; }, 0,
       "16GiB of 16GiB memory free, 17GiB wanted"},
      {"memory that is not known",
       [](Node& node, Demand& demand) {
         node.total.memory_bytes = node.free.memory_bytes = 0;
         demand.per_worker.memory_bytes = 1;
       },
       8, ""},
  });
}

TEST_CASE("resources: nodes that are held, out, or not for this run") {
  using Node = NodeCapacity;
  using Demand = core::Demand;
  check({
      {"at most", [](Node&, Demand& demand) { demand.rules.max_per_node = 3; }, 3, ""},
      {"held",
       [](Node& node, Demand&) {
         core::take(node.free, {1, 0, 0}, 8);
       },
       0, "0 of 8 slots free"},
      {"more held than there is",
       [](Node& node, Demand&) {
         core::take(node.free, {1, 0, 0}, 9);
       },
       0, "0 of 8 slots free"},
      {"nothing offered", [](Node& node, Demand&) { node.total.slots = node.free.slots = 0; }, 0, "offers no slots"},
      {"out", [](Node& node, Demand&) { node.out = "drained"; }, 0, "drained"},
      {"excluded",
       [](Node&, Demand& demand) {
         demand.rules.exclude = {"x", "n"};
       },
       0, "excluded"},
      {"label", [](Node&, Demand& demand) { demand.rules.labels["gpu"] = "a100"; }, 8, ""},
      {"another label", [](Node&, Demand& demand) { demand.rules.labels["gpu"] = "h100"; }, 0,
       "label gpu is a100, h100 wanted"},
      {"no label", [](Node&, Demand& demand) { demand.rules.labels["zone"] = "b"; }, 0, "no label zone, b wanted"},
  });
}

TEST_CASE("plan: each node says what it would have, or why nothing") {
  QueueState state;
  state.nodes["n1"] = node(4, 0);
  state.nodes["n2"] = node(4, 4);
  state.nodes["n2"].labels["gpu"] = "a100";
  state.nodes["n3"] = node(4, 4);
  state.nodes["n4"] = node(2, 2);
  state.nodes["n4"].out = "drained";
  state.nodes["n5"] = node(2, 2);
  WaitingRun candidate = run("new", 7, 2);
  candidate.demand.rules.labels["gpu"] = "h100";
  candidate.demand.rules.exclude = {"n3"};
  for (const char* labelled : {"n1", "n3", "n4", "n5"}) state.nodes[labelled].labels["gpu"] = "h100";
  core::Explanation explanation = core::explain(state, candidate);
  REQUIRE(explanation.nodes.size() == 5);
  CHECK(explanation.nodes[0].why_not == "0 of 4 slots free");
  CHECK(explanation.nodes[1].why_not == "label gpu is a100, h100 wanted");
  CHECK(explanation.nodes[2].why_not == "excluded");
  CHECK(explanation.nodes[3].why_not == "drained");
  CHECK(explanation.nodes[4].why_not.empty());
  CHECK(explanation.nodes[4].ranks == std::vector<Rank>{0, 1});
  nlohmann::ordered_json json = core::to_json(explanation);
  CHECK(json["starts_now"] == true);
  CHECK(json["reason"] == "2 of 2 workers placed");

  state.waiting = {run("before", 1, 2, 1)};  // It takes n5 first: n2, n3 are fuller fits for nobody else.
  state.waiting[0].demand.rules.labels["gpu"] = "h100";
  state.waiting[0].demand.rules.exclude = {"n3"};
  explanation = core::explain(state, candidate);
  CHECK(explanation.nodes[4].why_not == "0 of 2 slots free");
  json = core::to_json(explanation);
  CHECK(json["starts_now"] == false);
  CHECK(json["position"] == 1);
  CHECK(json["fits_idle"] == true);
  CHECK(json["nodes"][4]["node"] == "n5");
}
