#include <fmt/format.h>

#include "test/unit/core/coordinator_bench.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using Bench = core::CoordinatorBench;
using core::RunPhase;

TEST_CASE("finished runs are forgotten on order, or when there are too many, the oldest first") {
  core::CoordinatorSettings settings;
  settings.finished_max = 2;
  Bench bench(settings);
  const auto end = [&](const RunId& run) {
    bench.on(core::coordinator_event::StopRequested{run, {core::StopRequest::Why::kCancelled, 0, true, {}}});
  };
  for (const char* run : {"c", "a", "b"}) bench.submit(run, 1);
  bench.on(core::coordinator_event::RunForgotten{"a"});  // It has not finished.
  CHECK(bench.coordinator().runs() == std::vector<RunId>{"c", "a", "b"});
  end("a");
  end("c");
  CHECK(bench.coordinator().runs().size() == 3);
  end("b");
  CHECK(bench.coordinator().runs() == std::vector<RunId>{"c", "b"});
  bench.on(core::coordinator_event::RunForgotten{"b"});
  CHECK(bench.coordinator().runs() == std::vector<RunId>{"c"});
  bench.submit("b", 1);  // The name is free again.
  CHECK(bench.phase("b") == RunPhase::kPlacing);
}

TEST_CASE("the placement time-out does not run while only other runs are in the way") {
  Bench bench;
  bench.node("a", 2);
  bench.submit("first", 2);
  bench.submit("second", 2);
  bench.wait(1h);
  CHECK(bench.phase("second") == RunPhase::kPlacing);
  bench.node("a", 1, 1, false);  // Now even the idle node is too small.
  bench.wait(99s);
  CHECK(bench.phase("second") == RunPhase::kPlacing);
  bench.wait(1s);
  CHECK(bench.phase("second") == RunPhase::kFinished);
}

TEST_CASE("slots are taken back from the least important run first") {
  Bench bench;
  bench.node("a", 4);
  bench.submit("low", 2, -1);
  bench.submit("late", 2);
  bench.node("a", 2, 1, false);
  CHECK(bench.phase("low") == RunPhase::kRecovering);
  CHECK(bench.phase("late") == RunPhase::kStarting);
}

TEST_CASE("a run that has finished keeps nothing of what its ranks have put aside") {
  Bench bench;
  bench.node("n", 2);
  bench.submit("a", 2);
  const auto state = [&]() -> const core::RunState& { return bench.coordinator().state().runs_.at("a").state(); };
  bench.fact("n", "a", 1, cluster::Report{0, {{1, "train", 0, 0}, 1, {{"text", std::string(1000, 'x')}}}});
  bench.fact("n", "a", 2, cluster::ExchangePut{0, "key", std::string(1000, 'x')});
  REQUIRE(state().reducer_.has_pending());
  REQUIRE(state().exchange_.waiting() != "");
  bench.on(core::coordinator_event::StopRequested{"a", {core::StopRequest::Why::kCancelled, 0, true, {}}});
  bench.fact("n", "a", 3, cluster::Cleared{});
  REQUIRE(bench.phase("a") == RunPhase::kFinished);
  CHECK_FALSE(state().reducer_.has_pending());
  CHECK(state().exchange_.waiting() == "");
}

TEST_CASE("checkpoints that wait for another rank's reports are no more than may be; limit kHeldMax") {
  Bench bench;
  bench.node("n", 2);
  bench.submit("a", 2);
  const auto held = [&]() -> const auto& {
    return bench.coordinator().state().runs_.at("a").state().held_checkpoints_;
  };
  std::int64_t sequence = 0;
  bench.fact("n", "a", ++sequence, cluster::Report{0, {{1, "train", 0, 0}, 1, {{"x", 1}}}});
  const auto save = [&](std::int64_t step) {
    const std::string path = fmt::format("checkpoints/step-{:012}-gen-0001", step);
    bench.fact("n", "a", ++sequence, cluster::CheckpointSaved{{path, step, 1, 100}});
  };
  constexpr std::int64_t kMost = core::RunMachine::kHeldMax;
  for (std::int64_t step = 1; step <= kMost + 10; ++step) save(step);
  CHECK(held().size() == core::RunMachine::kHeldMax);
  CHECK(held().front().checkpoint.step == 11);
  bench.fact("n", "a", ++sequence, cluster::Report{1, {{1, "train", 0, 0}, 1, {{"x", 1}}}});
  CHECK(held().empty());
  CHECK(bench.coordinator().state().runs_.at("a").state().steps_told_ == kMost + 10);
}

TEST_CASE("what logs lack is told of some ranks, and not again and again; limits kDroppersMax, kDropsMax") {
  Bench bench;
  constexpr int kRanks = core::RunMachine::kDroppersMax + 6;
  bench.node("n", kRanks);
  bench.submit("a", kRanks);
  std::int64_t sequence = 0;
  int told = 0;
  const auto drop = [&](Rank rank, std::int64_t bytes) {
    bench.fact("n", "a", ++sequence, cluster::OutputDropped{rank, 1, bytes, "full"});
    told += bench.events();
  };
  for (int count = 0; count < 5; ++count) drop(0, 10);
  CHECK(told == core::RunMachine::kDropsMax);
  for (Rank rank = 1; rank < kRanks; ++rank) drop(rank, 10);
  CHECK(told == core::RunMachine::kDropsMax + static_cast<int>(core::RunMachine::kDroppersMax) - 1);
  drop(1, -1);
  drop(kRanks, 10);
  CHECK(told == core::RunMachine::kDropsMax + static_cast<int>(core::RunMachine::kDroppersMax) - 1);
  CHECK(bench.phase("a") == RunPhase::kStarting);  // Nothing is done about it.
}

TEST_CASE("of a run that has finished little is kept, and all of it was told") {
  Bench bench;
  bench.node("n", 2);
  bench.submit("waiting", 50);
  bench.submit("a", 2);
  const auto state = [&](const RunId& run) -> const core::RunState& {
    return bench.coordinator().state().runs_.at(run).state();
  };
  REQUIRE(bench.coordinator().state().tickets_.at("waiting").passed_by.contains("a"));
  for (const Rank rank : {0, 1}) {
    bench.fact("n", "a", 2 * rank + 1, cluster::Report{rank, {{1, "train", 0, 0}, 1, {{"x", std::string(9000, 'x')}}}});
    bench.fact("n", "a", 2 * rank + 2, cluster::ResultMade{rank, std::string(9000, 'r')});
  }
  bench.on(core::coordinator_event::StopRequested{"a", {core::StopRequest::Why::kCancelled, 0, true, {}}});
  bench.fact("n", "a", 5, cluster::Cleared{});
  REQUIRE(bench.outcome());
  CHECK(bench.outcome()->results.at(1).get<std::string>().size() == 9000);
  CHECK(bench.outcome()->metrics.at("train").size() > 1);
  const core::RunState& kept = state("a");
  CHECK(kept.definition_.job.resolved->is_null());
  CHECK(kept.nodes_.empty());
  CHECK(kept.ranks_.empty());
  CHECK(kept.outcome_.results.is_null());
  CHECK(kept.outcome_.metrics.is_null());
  CHECK(kept.outcome_.state == "cancelled");
  CHECK(bench.has_had_rank("a", "n"));
  bench.on(core::coordinator_event::StopRequested{"waiting", {core::StopRequest::Why::kCancelled, 0, true, {}}});
  CHECK(bench.coordinator().state().tickets_.at("waiting").passed_by.empty());
  // What is late is answered.
  cluster::WorkerExited late;
  late.pid = 7;
  late.exit_code = 0;
  bench.fact("n", "a", 6, late);
  CHECK(bench.acknowledged() == 6);
  cluster::NodeState back;
  back.node = "n";
  back.incarnation = 1;
  back.slots = 2;
  back.is_new_link = true;
  back.acknowledged = 6;
  back.runs.push_back({"a", 1, 2});
  bench.from("n", back);
  REQUIRE(bench.wanted("n", "a"));
  CHECK(bench.wanted("n", "a")->want == cluster::Want::kGone);
}

TEST_CASE("a later stop may give another grace, and one without leaves it") {
  Bench bench;
  bench.node("n", 1);
  bench.submit("a", 1);
  const auto stop = [&](std::optional<Duration> grace) {
    bench.on(core::coordinator_event::StopRequested{"a", {core::StopRequest::Why::kCancelled, 0, false, grace}});
    return bench.wanted("n", "a");
  };
  stop(10min);
  CHECK(bench.phase("a") == RunPhase::kStopping);
  CHECK_FALSE(stop(std::nullopt));
  const auto sooner = stop(5s);
  REQUIRE(sooner);
  CHECK(sooner->want == cluster::Want::kStop);
  CHECK(sooner->stop_grace_s == 5);
  CHECK_FALSE(stop(5s));
}

TEST_CASE("a run's snapshot has the GPU of each rank whose driver tells of it") {
  Bench bench;
  bench.node("n", 2);
  bench.submit("a", 2);
  link::Heartbeat beat;
  beat.gpu = {87, 512.5, 61};
  bench.from("n", cluster::Progress{"a", 1, 0, beat});
  beat.gpu = {1};  // Nothing that a worker of ours says.
  bench.from("n", cluster::Progress{"a", 1, 1, beat});
  const auto json = core::to_json(bench.coordinator().snapshot({}, "a").value());
  const nlohmann::ordered_json expected = {{"busy_percent", 87.0}, {"memory_mib", 512.5}, {"celsius", 61.0}};
  CHECK(json.at("ranks").at(0).at("gpu") == expected);
  CHECK_FALSE(json.at("ranks").at(1).contains("gpu"));
}

TEST_CASE("all nodes of a start are told one job, not a copy each") {
  Bench bench;
  for (const char* node : {"a", "b", "c"}) bench.node(node, 1);
  bench.submit("run", 3);
  const auto first = bench.wanted("a", "run");
  REQUIRE(first);
  CHECK(first->job->contains("training"));
  CHECK(first->node_rank == 0);
  for (const char* node : {"b", "c"}) {
    const auto other = bench.wanted(node, "run");
    REQUIRE(other);
    CHECK(&*other->job == &*first->job);
    CHECK(other->ranks.size() == 1);
    CHECK(other->node_rank != first->node_rank);
  }
}

TEST_CASE("a state of an older version, which did not count who is ready, goes on when the last rank is") {
  Bench bench;
  bench.node("n", 2);
  bench.submit("run", 2);
  bench.fact("n", "run", 1, cluster::WorkerStarted{0, 100});
  bench.fact("n", "run", 2, cluster::WorkerStarted{1, 101});
  bench.fact("n", "run", 3, cluster::WorkerReady{0, {}});
  bench.fact("n", "run", 4, cluster::WorkerFirstStep{0, 1});
  core::CoordinatorState state = bench.coordinator().state();
  core::RunState run = state.runs_.at("run").state();
  run.ranks_ready_ = run.ranks_stepped_ = 0;
  state.runs_.at("run") = core::RunMachine(run);
  core::Coordinator again({}, std::move(state));
  const auto tell = [&](std::int64_t sequence, cluster::FactBody body) {
    core::CoordinatorCommands out;
    again.on(TimePoint{1h},
             core::coordinator_event::FromAgent{
                 "n", cluster::Fact{1, sequence, "run", 1, std::move(body), run.generation_uid_}},
             out);
  };
  tell(5, cluster::WorkerReady{1, {}});
  CHECK(again.snapshot(TimePoint{1h}, "run")->phase == core::RunPhase::kRunning);
  CHECK_FALSE(again.state().runs_.at("run").state().was_started_);
  tell(6, cluster::WorkerFirstStep{1, 1});
  CHECK(again.state().runs_.at("run").state().was_started_);
}

TEST_CASE("a report that a lost keeper has taken along: nobody goes on from memory that may be ahead of it") {
  Bench bench;
  bench.node("a", 1);
  bench.node("b", 1);
  bench.submit("run", 2, 0, 3);
  std::map<NodeId, std::int64_t> told;
  const auto say = [&](const NodeId& node, cluster::FactBody body, Generation generation = 1) {
    bench.fact(node, "run", ++told[node], std::move(body), generation);
  };
  for (const Rank rank : {0, 1}) {
    say(rank == 0 ? "a" : "b", cluster::WorkerStarted{rank, 100 + rank});
    say(rank == 0 ? "a" : "b", cluster::WorkerReady{rank, {}});
    say(rank == 0 ? "a" : "b", cluster::WorkerFirstStep{rank, 1});
  }
  const bool is_pending = GENERATE(true, false);
  if (is_pending) {
    link::Report report;
    report.key = {1, "train", 0, 0};
    say("a", cluster::Report{0, report});
  }
  say("b", cluster::KeeperLost{9, "gone"});
  say("b", cluster::Cleared{}, 2);
  say("a", cluster::Cleared{1}, 2);
  const auto wanted = bench.wanted("a", "run");
  REQUIRE(wanted);
  CHECK(wanted->generation == 2);
  CHECK(wanted->keeper_from == (is_pending ? 2 : 0));
}
