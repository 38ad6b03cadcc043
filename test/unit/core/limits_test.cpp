// Written limits of what a coordinator remembers of nodes, and sums of what they say.

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/core/claims.hpp"
#include "launcher/core/placement.hpp"
#include "launcher/core/resources.hpp"
#include "test/unit/core/coordinator_bench.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using Bench = core::CoordinatorBench;
using Kind = core::NodeOrder::Kind;

namespace {

/// The first message over a link of node n, which has four slots and holds nothing.
cluster::NodeState node_state() {
  cluster::NodeState state;
  state.node = "n";
  state.incarnation = 1;
  state.slots = 4;
  state.is_new_link = true;
  return state;
}

}  // namespace

TEST_CASE("orders for one more name than can be remembered are refused in words; limit kConditionsMax") {
  Bench bench;
  bench.node("new", 1);
  core::coordinator_event::NodesKnown known;
  for (std::size_t number = 0; number < core::Coordinator::kConditionsMax; ++number)
    known.conditions.push_back({fmt::format("n{}", number), true, std::nullopt, {}, std::nullopt});
  bench.on(known);
  CHECK(bench.coordinator().why_not("new", {Kind::kDrain, -1}) ==
        "65536 names of nodes have orders or lost links already: `nodes remove` those that are gone");
  CHECK(bench.coordinator().why_not("n7", {Kind::kUndrain, -1}).empty());  // What has a place keeps it.
  bench.order("n7", Kind::kRemove);
  CHECK(bench.coordinator().why_not("new", {Kind::kDrain, -1}).empty());
}

TEST_CASE("runs that nobody knows and a node says that it holds are forgotten when it does not say so any more") {
  Bench bench;
  cluster::NodeState state = node_state();
  const auto leftovers = [&] { return bench.coordinator().state().nodes_.at("n").leftovers.size(); };
  for (int time = 0; time < 3; ++time) {  // Over one link, other names each time.
    state.runs = {{fmt::format("run-{}-a", time), 1, 1, 1}, {fmt::format("run-{}-b", time), 1, 1, 1}};
    bench.from("n", state);
    CHECK(leftovers() == 2);
    state.is_new_link = false;
  }
  state.runs.clear();
  bench.from("n", state);
  CHECK(leftovers() == 0);
}

TEST_CASE("of a run on a lost node as many ranks are counted as may be there of any generation") {
  Bench bench;
  cluster::NodeState state = node_state();
  bench.from("n", state);
  bench.submit("run", 9);  // It waits for room.
  const auto counted = [&] { return bench.coordinator().state().nodes_.at("n").leftovers.at("run").workers; };
  state.runs = {{"run", 1, 3, 1}};
  bench.from("n", state);
  CHECK(counted() == 3);
  // Over one link, an order may be on its way to it.
  state.is_new_link = false;
  state.runs = {{"run", 1, 1, 1}};
  bench.from("n", state);
  CHECK(counted() == 3);
  state.is_new_link = true;
  bench.from("n", state);
  CHECK(counted() == 1);
}

TEST_CASE("of a run that nobody knows, an answer to an older order does not free its slots") {
  Bench bench;
  cluster::NodeState state = node_state();
  state.runs = {{"run", 4, 2, 2, 9}};
  bench.from("n", state);
  CHECK(bench.row("n").used == 2);
  bench.from("n", cluster::Fact{1, 1, "run", 4, cluster::Cleared{}, 5});
  CHECK(bench.row("n").used == 2);
  bench.from("n", cluster::Fact{1, 2, "run", 4, cluster::Cleared{}, 0});  // It is what was asked for now.
  CHECK(bench.row("n").used == 0);
}

TEST_CASE("of a run that goes on elsewhere, the end on a node is the answer to what it was told when it was given up") {
  Bench bench;
  bench.node("b", 1);
  bench.submit("run", 1, 0, 3);
  bench.node("n", 0);
  const auto uid_said = [&bench](int slots) {
    cluster::NodeState state = node_state();
    state.slots = slots;
    state.is_new_link = false;
    state.runs = {{"run", 1, 2, 2, 7}};
    bench.from("n", state);
    return bench.coordinator().state().nodes_.at("n").leftovers.at("run").uid;
  };
  const GenerationUid first = uid_said(2);
  bench.fact("b", "run", 1, cluster::WorkerStarted{0, 100});
  bench.fact("b", "run", 2, cluster::WorkerReady{0, {}});
  bench.fact("b", "run", 3, cluster::WorkerFirstStep{0, 1});
  cluster::WorkerExited exited;
  exited.signal = 9;
  bench.fact("b", "run", 4, exited);
  REQUIRE(bench.uid_of("run", true) != first);  // Its ranks elsewhere are to end.
  CHECK(uid_said(4) == first);
}

TEST_CASE("what a node may hold of runs is remembered up to a number; limit kNodeRunsMax") {
  core::CoordinatorState state;
  auto& before = state.nodes_["n"];
  before.incarnation = 1;
  before.state.node = "n";
  for (std::size_t number = 0; number < core::kNodeRunsMax; ++number)
    before.leftovers[fmt::format("run-{:04}", number)] = {{}, 1, 5, 7};
  core::Coordinator coordinator({}, std::move(state));
  cluster::NodeState said;
  said.node = "n";
  said.incarnation = 1;
  said.runs = {{"run-of-late", 1, 1, 1}};
  core::CoordinatorCommands out;
  coordinator.on(TimePoint{1h}, core::coordinator_event::FromAgent{"n", said}, out);
  const auto& leftovers = coordinator.state().nodes_.at("n").leftovers;
  CHECK(leftovers.size() == core::kNodeRunsMax);
  CHECK(leftovers.contains("run-of-late"));
  CHECK_FALSE(leftovers.contains("run-0000"));
}

TEST_CASE("a node is not ordered to have more slots than it may have") {
  Bench bench;
  bench.node("n", 1);
  CHECK(bench.coordinator().why_not("n", {Kind::kSetSlots, core::kNodeUnitsMax}).empty());
  CHECK(bench.coordinator().why_not("n", {Kind::kSetSlots, core::kNodeUnitsMax + 1}) ==
        "65537 slots; a node may have 65536");
}

TEST_CASE("a node that says it has more than can be counted changes nothing of what others have") {
  core::WorkersByNode rooms;
  for (const char* node : {"a", "b", "c"}) rooms[node] = INT32_MAX;
  CHECK(core::place(rooms, 4, 4, {}, job::PlacementRules::Strategy::kPack).world_size == 4);
  core::Resources free{4, 4, 0, 1 << 30};
  job::PerWorker each;
  each.cpus = 4096;
  each.memory_bytes = INT64_MAX;
  for (int time = 0; time < 3; ++time) core::take(free, each, INT32_MAX);
  CHECK(free.slots < 0);
  CHECK(free.cpus < 0);
  CHECK(free.memory_bytes < 0);
}
