#include "test/unit/core/coordinator_bench.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using Bench = core::CoordinatorBench;
using core::RunPhase;

namespace {

cluster::NodeState holding(const NodeId& node, Generation generation) {
  cluster::NodeState state;
  state.node = node;
  state.incarnation = 1;
  state.slots = 1;
  state.is_new_link = true;
  state.runs = {{"run", generation, 0, 0}};
  return state;
}

cluster::WorkerExited killed() {
  cluster::WorkerExited exited;
  exited.pid = 100;
  exited.signal = 9;
  return exited;
}

cluster::WorkerExited ended_by_agent(Rank rank) {
  cluster::WorkerExited exited = killed();
  exited.rank = rank;
  exited.caused_by_agent = true;
  return exited;
}

}  // namespace

TEST_CASE("a rank that its agent has ended unasked is no success, whatever the others did") {
  Bench bench;
  bench.node("a", 2);
  bench.submit("run", 2);
  for (const Rank rank : {0, 1}) bench.fact("a", "run", rank + 1, cluster::WorkerStarted{rank, 100});
  cluster::WorkerExited done;
  done.exit_code = 0;
  bench.fact("a", "run", 3, done);
  bench.fact("a", "run", 4, ended_by_agent(1));
  CHECK(bench.phase("run") == RunPhase::kRecovering);
  CHECK(bench.wanted("a", "run")->want == cluster::Want::kClear);
  CHECK(bench.coordinator().snapshot({}, "run")->reason.find("ended by its own agent") != std::string::npos);
}

TEST_CASE("a node that claims a generation far ahead is not followed there; limit kAheadMax") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.submit("run", 1);
  const Generation far = 1 + core::RunMachine::kAheadMax;
  bench.from("a", holding("a", far + 1));
  CHECK(bench.phase("run") == RunPhase::kStarting);
  CHECK(bench.coordinator().state().runs_.at("run").state().desired_generation_ == 1);
  bench.from("a", holding("a", far));
  CHECK(bench.phase("run") == RunPhase::kRecovering);
  CHECK(bench.wanted("a", "run")->generation == far + 1);
}

TEST_CASE("the store has lost its end: a generation that a node holds is ended, and the next one is newer") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.submit("run", 1);
  REQUIRE(bench.wanted("a", "run")->generation == 1);
  SECTION("while it is wanted") {
    bench.from("a", holding("a", 4));
    CHECK(bench.phase("run") == RunPhase::kRecovering);
  }
  SECTION("while it is being stopped") {
    bench.on(core::coordinator_event::StopRequested{"run", {core::StopRequest::Why::kCancelled, 0, false, {}}});
    bench.from("a", holding("a", 4));
    CHECK(bench.phase("run") == RunPhase::kClearing);
    CHECK(bench.wanted("a", "run")->generation == 4);
    bench.fact("a", "run", 1, cluster::Cleared{1}, 4);
    CHECK(bench.phase("run") == RunPhase::kFinished);
    return;
  }
  SECTION("while it is being cleared") {
    bench.fact("a", "run", 1, killed());
    REQUIRE(bench.phase("run") == RunPhase::kRecovering);
    bench.from("a", holding("a", 4));
  }
  CHECK(bench.wanted("a", "run")->want == cluster::Want::kClear);
  CHECK(bench.wanted("a", "run")->generation == 5);
  std::int64_t next = bench.facts().of(core::FactVerdict::kTaken) + 1;
  bench.fact("a", "run", next++, cluster::Cleared{1}, 2);  // An answer to an order of before.
  CHECK(bench.phase("run") == RunPhase::kRecovering);
  bench.fact("a", "run", next, cluster::Cleared{1}, 5);
  CHECK(bench.wanted("a", "run")->want == cluster::Want::kRun);
  CHECK(bench.wanted("a", "run")->generation == 5);
}

TEST_CASE("the store has lost its end: a number that is given a second time is not that of the first") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.submit("run", 1);
  REQUIRE(bench.wanted("a", "run")->generation == 1);
  const GenerationUid other = bench.wanted("a", "run")->uid - 1;
  SECTION("what was said in the first one is nothing to it") {
    cluster::WorkerExited done;
    done.exit_code = 0;
    bench.from("a", cluster::Fact{1, 1, "run", 1, done, other});
    CHECK(bench.facts().of(core::FactVerdict::kOtherGeneration) == 1);
    CHECK(bench.phase("run") == RunPhase::kStarting);
    bench.from("a", cluster::ExchangeAsk{"run", 1, "key", other});
    CHECK(bench.phase("run") == RunPhase::kStarting);
    return;
  }
  cluster::NodeState state = holding("a", 1);
  Generation next = 2;
  SECTION("ranks of the first one are ended") {
    state.runs = {{"run", 1, 1, 1, other}};
    bench.from("a", state);
  }
  SECTION("ranks of the first one are ended, where the second is still to be given") {
    bench.fact("a", "run", 1, killed());
    REQUIRE(bench.wanted("a", "run")->generation == 2);
    state.runs = {{"run", 2, 1, 1, other}};
    bench.from("a", state);
    next = 3;
  }
  CHECK(bench.phase("run") == RunPhase::kRecovering);
  CHECK(bench.wanted("a", "run")->want == cluster::Want::kClear);
  CHECK(bench.wanted("a", "run")->generation == next);
}

TEST_CASE("a node that nobody has told of its ranks yet has none to wait for, when it is back") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.node("b", 1);
  core::RunDefinition run;
  run.id = "run";
  run.run_dir = "/run";
  run.job.num_workers = 2;
  run.job.command = {"true"};
  run.job.resolved = nlohmann::json{{"command", {"true"}}};
  bench.on(core::coordinator_event::Submitted{std::move(run)});
  REQUIRE_FALSE(bench.wanted("b", "run"));  // A port is being looked for, on a.
  REQUIRE(bench.row("b").used == 1);
  bench.on(core::coordinator_event::NodeSilent{"b", 5});
  bench.from("b", cluster::Beat{});
  CHECK(bench.row("b").used == 0);
}

TEST_CASE("slots of ranks that were given up are free when the answer is to an order that knew of them") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.wait(1s);
  bench.submit("run", 1);
  bench.fact("a", "run", 1, cluster::WorkerStarted{0, 100});
  bench.on(core::coordinator_event::NodeSilent{"a", 5});
  std::optional<cluster::DesiredRun> gone;
  SECTION("it goes on over the same link with a word that costs nothing") {
    bench.from("a", cluster::Beat{});
    gone = bench.wanted("a", "run");
  }
  SECTION("it goes on over the same link with its state, told before it had heard of its ranks") {
    bench.node("a", 1, 1, false);
    gone = bench.wanted("a", "run");
  }
  SECTION("it connects anew, and holds them") {
    cluster::NodeState state = holding("a", 1);
    state.runs.front().workers = 1;
    bench.from("a", state);
    gone = bench.wanted("a", "run");
  }
  REQUIRE(gone);
  CHECK(gone->want == cluster::Want::kGone);
  CHECK(bench.row("a").used == 1);
  const auto cleared = [&](std::int64_t sequence, Generation generation, GenerationUid uid) {
    bench.from("a", cluster::Fact{1, sequence, "run", generation, cluster::Cleared{1}, uid});
  };
  cleared(2, gone->generation - 1, gone->uid);
  CHECK(bench.row("a").used == 1);
  cleared(3, gone->generation, gone->uid - 1);
  CHECK(bench.row("a").used == 1);
  CHECK_FALSE(bench.wanted("a", "run"));
  cleared(4, gone->generation, gone->uid);
  for (int second = 0; second < 20 && bench.phase("run") != RunPhase::kStarting; ++second) {
    bench.wait(1s);
    bench.from("a", cluster::Beat{});
  }
  CHECK(bench.phase("run") == RunPhase::kStarting);
}

TEST_CASE("who never had ranks of a run ends none of it by what it claims to hold, and no number is used twice") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.submit("run", 1);
  bench.from("b", holding("b", 3));
  CHECK(bench.phase("run") == RunPhase::kStarting);
  CHECK(bench.wanted("b", "run")->want == cluster::Want::kGone);
  bench.from("c", holding("c", 1'000'000'000));
  bench.fact("a", "run", 1, killed());
  CHECK(bench.wanted("a", "run")->generation == 4);
}

TEST_CASE("a start that an agent says nothing of is tried again, and not when everybody stood still") {
  Bench bench;
  bench.node("a", 2);
  bench.submit("run", 2);
  bench.fact("a", "run", 1, cluster::WorkerStarted{0, 100});
  bench.wait(9min);
  CHECK(bench.phase("run") == RunPhase::kStarting);
  SECTION("it is due") {
    bench.wait(1min);
    CHECK(bench.phase("run") == RunPhase::kRecovering);
    const std::string reason = bench.coordinator().snapshot({}, "run")->reason;
    CHECK(reason.find("rank 1") != std::string::npos);
    CHECK(reason.find("a was told to start it 10m ago") != std::string::npos);
  }
  SECTION("this process stood still") {
    bench.wait_late(2min);
    CHECK(bench.phase("run") == RunPhase::kStarting);
    bench.wait(10min);
    CHECK(bench.phase("run") == RunPhase::kRecovering);
  }
  SECTION("all are started") {
    bench.fact("a", "run", 2, cluster::WorkerStarted{1, 101});
    bench.wait(1h);
    CHECK(bench.phase("run") == RunPhase::kStarting);  // From here on its agent watches.
  }
}

TEST_CASE("a run does not wait for a node that an operator has removed") {
  Bench bench(5s);
  bench.node("a", 1);
  bench.submit("run", 1);
  bench.fact("a", "run", 1, killed());
  bench.order("a", core::NodeOrder::Kind::kDrain);
  bench.fact("a", "run", 2, cluster::Cleared{1}, 2);
  REQUIRE(bench.phase("run") == RunPhase::kWaiting);
  bench.on(core::coordinator_event::AgentClosed{"a"});
  bench.order("a", core::NodeOrder::Kind::kRemove);
  CHECK_FALSE(bench.knows("a"));
  bench.on(core::coordinator_event::StopRequested{"run", {core::StopRequest::Why::kCancelled, 0, false, {}}});
  CHECK(bench.phase("run") == RunPhase::kFinished);
}

TEST_CASE("results are those of the last generation") {
  Bench bench;
  bench.node("a", 2);
  bench.submit("run", 2);
  for (const Rank rank : {0, 1}) bench.fact("a", "run", rank + 1, cluster::ResultMade{rank, "old"});
  bench.fact("a", "run", 3, killed());
  bench.fact("a", "run", 4, cluster::Cleared{1}, 2);
  REQUIRE(bench.wanted("a", "run")->generation == 2);
  bench.fact("a", "run", 5, cluster::ResultMade{1, "new"}, 2);
  for (const Rank rank : {0, 1}) {
    cluster::WorkerExited done;
    done.rank = rank;
    done.exit_code = 0;
    bench.fact("a", "run", 6 + rank, done, 2);
  }
  bench.fact("a", "run", 8, cluster::Cleared{}, 2);
  REQUIRE(bench.outcome().has_value());
  CHECK(bench.outcome()->state == "succeeded");
  CHECK(bench.outcome()->results == nlohmann::json::parse(R"([null, "new"])"));
}
