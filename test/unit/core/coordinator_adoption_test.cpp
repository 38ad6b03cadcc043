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
