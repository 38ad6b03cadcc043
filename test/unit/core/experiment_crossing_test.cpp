// Reports that cross an order to stop or to pause, and trials that take another one's state.

#include <catch2/catch.hpp>

#include "common/exit_codes.hpp"
#include "experiment_bench.hpp"

namespace sgd::core {
namespace {

using Paths = std::vector<std::string>;

/// Population based training of two trials, of which 0 is the better one.
class PairBench : public ExperimentBench {
 public:
  explicit PairBench(CoordinatorSettings settings = {}, int interval = 1) : ExperimentBench(4, settings) {
    begin({{"samples", 2}, {"scheduler", {{"type", "pbt"}, {"quantile", 0.5}, {"interval_epochs", interval}}}});
    for (const int trial : {0, 1}) start(trial);
  }
  /// Both save and report an epoch, after which 1 is to take the state of 0.
  void compare(int epoch) {
    for (const int trial : {0, 1}) save(trial, epoch);
    report(0, epoch, 0.9);
    report(1, epoch, 0.1);
  }
  /// Its rank has saved and ended.
  void leave(int trial) {
    exit(trial, worker_exit::kStopped);
    clear(trial);
  }
  /// What was to be copied so far: where from, and where to.
  [[nodiscard]] Paths copied_from() const { return copied(&coordinator_command::TakeCheckpoint::from); }
  [[nodiscard]] Paths copied_to() const { return copied(&coordinator_command::TakeCheckpoint::to); }

 private:
  [[nodiscard]] Paths copied(std::string coordinator_command::TakeCheckpoint::*path) const {
    Paths paths;
    for (const CoordinatorCommand& command : all())
      if (const auto* take = std::get_if<coordinator_command::TakeCheckpoint>(&command)) paths.push_back(take->*path);
    return paths;
  }
};

/// One trial at a time, each of which may fail once; 0 has reported an epoch and is to pause.
class PausingBench : public ExperimentBench {
 public:
  PausingBench() : ExperimentBench(1) {
    nlohmann::json tune = promoting();
    tune["max_failures"] = 1;
    begin(tune);
    start(0);
    report(0, 1, 0.9);
  }
  void crash() {
    exit(0, 0, 9);
    clear(0);
  }
};

}  // namespace

TEST_CASE("experiment: what a trial reports after its end was decided does not count") {
  ExperimentBench bench;
  bench.begin({{"samples", 3}, {"concurrent", 1}, {"scheduler", {{"type", "asha"}, {"reduction_factor", 3}}}});
  bench.start(0);
  bench.report(0, 1, 0.9);
  bench.finish(0);
  bench.start(1);
  bench.report(1, 1, 0.1);
  REQUIRE(bench.trial(1).phase == TrialPhase::kStopping);
  bench.report(1, 2, 0.95);  // On its way when it was decided.
  CHECK(bench.events("trial_report").size() == 2);
  bench.exit(1, worker_exit::kStopped);
  bench.clear(1);
  CHECK(bench.trial(1).value == 0.1);
  CHECK(bench.trial(1).best == 0.1);
  CHECK(bench.trial(1).iteration == 1);
  CHECK(bench.best()->at("trial") == 0);
}

TEST_CASE("experiment: what a trial reports after it was to pause counts when it goes on") {
  ExperimentBench bench(1);
  bench.begin(promoting());
  const auto begin = [&](int trial, double value) {
    bench.start(trial);
    bench.report(trial, 1, value);
    REQUIRE(bench.trial(trial).phase == TrialPhase::kPausing);
    bench.save(trial, 1);
  };
  const auto leave = [&](int trial) {
    bench.exit(trial, worker_exit::kStopped);
    bench.clear(trial);
  };
  begin(0, 0.9);
  for (const int epoch : {2, 3}) bench.report(0, epoch, 0.9 + 0.01 * epoch);  // 3 is its next rung.
  bench.save(0, 3);
  CHECK(bench.trial(0).iteration == 1);
  leave(0);
  begin(1, 0.5);
  bench.report(1, 2, 0.99);
  leave(1);
  begin(2, 0.4);
  CHECK(bench.best() == std::nullopt);
  leave(2);
  // The best of three is chosen by what all had at the first rung. It goes on, and is at the second one already.
  const auto decided = bench.events("trial_decided");
  REQUIRE_FALSE(decided.empty());
  CHECK(decided.back().at("action") == "resume");
  CHECK(decided.back().at("trial") == 0);
  CHECK(bench.events("trial_report").back().at("iteration") == 3);
  CHECK(bench.trial(0).iteration == 3);
  CHECK(bench.trial(0).best == 0.93);
  CHECK(bench.trial(0).held.empty());
  CHECK(bench.trial(1).iteration == 1);
}

TEST_CASE("experiment: what is decided of trials while they are being stopped counts when it goes on") {
  ExperimentBench bench(1);
  bench.begin(promoting());
  for (const int trial : {0, 1, 2}) {
    bench.start(trial);
    bench.report(trial, 1, 0.9 - 0.1 * trial);
    bench.save(trial, 1);
    bench.exit(trial, worker_exit::kStopped);
    bench.clear(trial);
  }
  bench.start(0);  // The best of the three goes on.
  bench.exit(0);   // It is at its end, and with it nobody is left whom the others could wait for.
  bench.tell(coordinator_event::StopRequested{"x", {StopRequest::Why::kSignal, 2, false, {}}});
  bench.clear(0);
  REQUIRE(bench.trial(0).outcome == tune::Outcome::kCompleted);
  for (const int trial : {1, 2}) bench.clear(trial);
  REQUIRE(bench.outcome_of("x"));
  REQUIRE(bench.outcome_of("x")->state == "interrupted");
  bench.tell(coordinator_event::ExperimentResumed{"x", 0});
  CHECK(bench.outcome_of("x")->state == "succeeded");
  CHECK(bench.events("trial_resumed").empty());
}

TEST_CASE("experiment: what a trial reports after it was to take another one's state does not count") {
  PairBench bench;
  bench.compare(1);
  REQUIRE_FALSE(bench.trial(1).taken.empty());
  bench.report(1, 2, 0.99);
  bench.leave(1);
  CHECK(bench.trial(1).best == 0.1);
  bench.start(1);
  bench.report(1, 2, 0.95);
  CHECK(bench.trial(1).best == 0.95);
}

TEST_CASE("experiment: a rank that crashes after its trial was to pause is a failure that the trial may have") {
  PausingBench bench;
  REQUIRE(bench.trial(0).phase == TrialPhase::kPausing);
  bench.save(0, 1);
  bench.crash();
  CHECK(bench.trial(0).failures == 1);
  CHECK(bench.trial(0).phase == TrialPhase::kPaused);
  for (const int trial : {1, 2}) {
    bench.start(trial);
    bench.report(trial, 1, 0.5);
    bench.save(trial, 1);
    bench.exit(trial, worker_exit::kStopped);
    bench.clear(trial);
  }
  CHECK(bench.trial(0).phase == TrialPhase::kRunning);
  REQUIRE(bench.is_at_work(0));
  CHECK(bench.coordinator().state().runs_.at("x.0000").definition().past->checkpoints.size() == 1);
  bench.start(0);
  bench.report(0, 3, 0.95);
  CHECK(bench.trial(0).iteration == 3);
}

TEST_CASE("experiment: a trial that waits after a crash ends as it is asked to") {
  PausingBench bench;
  bench.crash();
  REQUIRE(bench.trial(0).phase == TrialPhase::kPaused);
  bench.tell(coordinator_event::StopRequested{"x", {StopRequest::Why::kCancelled, 0, true, {}}});
  bench.clear(1);
  CHECK(bench.trial(0).outcome == tune::Outcome::kCancelled);
  CHECK(bench.outcome_of("x")->state == "cancelled");
  CHECK(bench.experiment().failed_ == 0);
}

TEST_CASE("experiment: what was held does not count behind the line that ends its trial") {
  ExperimentBench bench(1);
  nlohmann::json tune = promoting();
  tune["stop"] = {{"val_accuracy", 0.95}};
  bench.begin(tune);
  for (const int trial : {0, 1, 2}) {
    bench.start(trial);
    bench.report(trial, 1, trial == 0 ? 0.9 : 0.5);
    bench.report(trial, 2, 0.96);
    bench.report(trial, 3, 0.99);
    bench.save(trial, 3);
    bench.exit(trial, worker_exit::kStopped);
    bench.clear(trial);
  }
  CHECK(bench.trial(0).outcome == tune::Outcome::kCompleted);
  CHECK(bench.trial(0).iteration == 2);
  CHECK(bench.trial(0).best == 0.96);
  CHECK(bench.trial(0).held.empty());
}

TEST_CASE("experiment: one that is stopped while a trial takes another one's state goes on with that state") {
  PairBench bench;
  bench.compare(1);
  REQUIRE_FALSE(bench.trial(1).taken.empty());
  const std::string taken = bench.trial(1).taken;
  bench.tell(coordinator_event::StopRequested{"x", {StopRequest::Why::kSignal, 2, false, {}}});
  for (const int trial : {0, 1}) bench.leave(trial);
  REQUIRE(bench.outcome_of("x")->state == "interrupted");
  bench.tell(coordinator_event::ExperimentResumed{"x", 0});
  CHECK(bench.trial(1).phase == TrialPhase::kRunning);
  const auto wanted = bench.wanted("n", "x.0001");
  REQUIRE(wanted);
  CHECK(wanted->resume_from == std::vector<std::string>{taken});
  bench.start(1);
  bench.report(1, 2, 0.95);
  CHECK(bench.trial(1).best == 0.95);
}

TEST_CASE("experiment: a clone does not go on from what a keeper has in memory of the trial itself") {
  PairBench bench;
  bench.compare(1);
  bench.leave(1);
  const auto wanted = bench.wanted("n", "x.0001");
  REQUIRE(wanted);
  CHECK(wanted->generation == 2);
  CHECK(wanted->keeper_from == 2);
}

TEST_CASE("experiment: of a trial that is to pause, a limited number of reports is kept; limit kHeldMax") {
  ExperimentBench bench(1);
  bench.begin(promoting());
  bench.start(0);
  for (int epoch = 1; epoch <= static_cast<int>(kHeldMax) + 10; ++epoch) bench.report(0, epoch, 0.5);
  CHECK(bench.trial(0).held.size() == kHeldMax);
}

TEST_CASE("experiment: pbt copies what its donor would go on from, which may be what that one has taken itself") {
  PairBench bench;
  bench.compare(1);
  const std::string saved = "/step-000000000010-gen-0001";
  const std::string taken = "/x/trials/0001/taken/0001" + saved;
  REQUIRE(bench.copied_from() == Paths{"/x/trials/0000/checkpoints" + saved});
  REQUIRE(bench.copied_to() == Paths{taken});
  bench.leave(1);
  CHECK(bench.coordinator().snapshot({}, bench.id(1))->checkpoint ==
        taken.substr(std::string("/x/trials/0001/").size()));
  bench.start(1);
  bench.report(1, 2, 0.95);  // It has saved nothing since.
  bench.report(0, 2, 0.1);
  bench.later(CoordinatorSettings{}.copy_limit);
  REQUIRE(bench.copied_from().size() == 2);
  CHECK(bench.copied_from().back() == taken);
}

TEST_CASE("experiment: pbt copies the state that was compared, however far its donor has come since") {
  PairBench bench({}, 4);
  const auto path = [&bench](int epoch) { return bench.path_of(0, epoch); };
  const auto kept = [&bench] { return bench.coordinator().state().runs_.at("x.0000").state().checkpoints_; };
  for (const int epoch : {4, 5}) bench.save(0, epoch);
  bench.report(0, 4, 0.9);
  bench.report(0, 5, 0.95);  // The best one, and nothing is compared.
  for (const int epoch : {6, 7, 8, 9}) bench.save(0, epoch);
  CHECK(kept() == Paths{path(4), path(5), path(7), path(8), path(9)});
  bench.report(1, 4, 0.1);
  CHECK(bench.copied_from() == Paths{"/x/trials/0000/" + path(4)});
  // The next comparison is of another state, and the one before need not stay.
  bench.report(0, 8, 0.96);
  bench.save(0, 10);
  CHECK(kept() == Paths{path(8), path(9), path(10)});
}

TEST_CASE(
    "experiment: pbt where files travel copies the state that was compared when it has come, whatever came later") {
  CoordinatorSettings settings;
  settings.files_travel = true;
  PairBench bench(settings);
  const auto come = [&bench](int epoch) {
    bench.tell(coordinator_event::CheckpointStored{bench.id(0), bench.path_of(0, epoch)});
  };
  bench.save(0, 1);
  bench.report(0, 1, 0.9);
  come(1);
  for (const int epoch : {2, 3, 4, 5, 6}) {
    bench.save(0, epoch);
    come(epoch);
  }
  bench.report(1, 1, 0.1);
  CHECK(bench.copied_from() == Paths{"/x/trials/0000/" + bench.path_of(0, 1)});
}

TEST_CASE("experiment: pbt where files travel does not copy what has not come, though its donor goes on from it") {
  CoordinatorSettings settings;
  settings.files_travel = true;
  ExperimentBench bench(4, settings);
  bench.begin({{"samples", 2},
               {"max_failures", 1},
               {"scheduler", {{"type", "pbt"}, {"quantile", 0.5}, {"interval_epochs", 1}}}});
  for (const int trial : {0, 1}) bench.start(trial);
  bench.save(0, 1);
  bench.report(0, 1, 0.9);
  bench.exit(0, 0, 9);
  bench.clear(0);
  REQUIRE(bench.trial(0).failures == 1);
  REQUIRE(bench.is_at_work(0));
  bench.report(1, 1, 0.1);
  bench.later(settings.copy_limit);
  const auto cloned = bench.events("trial_cloned");
  REQUIRE(cloned.size() == 1);
  CHECK(cloned.front().at("checkpoint").is_null());
}

namespace {

/// Of trial 0, whose ranks have left.
void check_that_its_end_is_another_wish(PausingBench& bench) {
  const auto uid = [&bench] { return bench.coordinator().state().runs_.at("x.0000").desired_uid(); };
  const GenerationUid paused = uid();
  bench.tell(coordinator_event::StopRequested{"x.0000", {}});
  CHECK(uid() > paused);
  const auto wanted = bench.wanted("n", "x.0000");
  REQUIRE(wanted);
  CHECK(wanted->want == cluster::Want::kGone);
  CHECK(wanted->uid == uid());
  bench.clear(0);
  CHECK(bench.trial(0).phase == TrialPhase::kEnded);
}

}  // namespace

TEST_CASE("experiment: the end of a trial that waits is another wish than its pause, which its node has answered") {
  PausingBench bench;
  bench.exit(0, worker_exit::kStopped);
  bench.clear(0);
  REQUIRE(bench.trial(0).phase == TrialPhase::kPaused);
  check_that_its_end_is_another_wish(bench);
}

TEST_CASE("experiment: the end of a trial is another wish than its pause, which some of its nodes may have answered") {
  PausingBench bench;
  bench.exit(0, worker_exit::kStopped);
  REQUIRE(bench.phase_of(0) == RunPhase::kRecovering);
  check_that_its_end_is_another_wish(bench);
}

TEST_CASE("experiment: a trial that goes on and ends in the event of its pause is told its end by another wish") {
  ExperimentBench bench(1);
  bench.begin(
      {{"samples", 1},
       {"concurrent", 1},
       {"scheduler",
        {{"type", "asha"}, {"mode", "promote"}, {"grace_epochs", 1}, {"reduction_factor", 2}, {"max_epochs", 2}}}});
  bench.start(0);
  bench.report(0, 1, 0.9);
  bench.report(0, 2, 0.95);  // Its last one, which has crossed the order to pause.
  bench.exit(0, worker_exit::kStopped);
  const auto uid = [&bench] { return bench.coordinator().state().runs_.at("x.0000").desired_uid(); };
  const GenerationUid paused = uid();
  bench.clear(0);
  REQUIRE(bench.phase_of(0) == RunPhase::kClearing);
  CHECK(uid() > paused);
  bench.clear(0);
  CHECK(bench.trial(0).phase == TrialPhase::kEnded);
}

TEST_CASE("experiment: where files travel the best value's checkpoint is put aside when it has come") {
  for (const bool has_come : {true, false}) {
    CoordinatorSettings settings;
    settings.files_travel = true;
    PairBench bench(settings, 2);
    const auto come = [&bench](int trial, int epoch) {
      bench.tell(coordinator_event::CheckpointStored{bench.id(trial), bench.path_of(trial, epoch)});
    };
    for (const int epoch : {1, 2, 3}) bench.save(1, epoch);
    bench.report(1, 1, 0.99);
    if (has_come) come(1, 1);
    come(1, 3);
    bench.save(0, 2);
    come(0, 2);
    bench.report(0, 2, 0.9);
    bench.report(1, 2, 0.1);
    CHECK(bench.copied_to().size() == (has_come ? 2U : 1U));
    bench.leave(1);
    bench.start(1);
    bench.finish(1);
    CHECK(bench.best()->at("checkpoint").is_null() == !has_come);
  }
}

TEST_CASE("experiment: the best value's checkpoint, values and job are those of its time, whatever it takes later") {
  PairBench bench({}, 2);
  bench.save(1, 1);
  bench.report(1, 1, 0.99);
  for (const int epoch : {1, 2}) bench.save(0, epoch);
  bench.save(1, 2);
  bench.report(0, 2, 0.9);
  const auto values = bench.trial(1).values;
  bench.report(1, 2, 0.1);
  const std::string put_aside = "/x/trials/0001/best/0001/step-000000000010-gen-0001";
  REQUIRE(bench.copied_to().size() == 2);
  CHECK(bench.copied_from().back() == "/x/trials/0001/checkpoints/step-000000000010-gen-0001");
  CHECK(bench.copied_to().back() == put_aside);
  bench.leave(1);
  bench.start(1);
  CHECK(bench.trial(1).values != values);
  bench.report(1, 3, 0.5);
  bench.save(1, 3);
  bench.finish(1);
  REQUIRE(bench.best());
  CHECK(bench.best()->at("trial") == 1);
  CHECK(bench.best()->at("value") == 0.99);
  CHECK(bench.best()->at("checkpoint") == put_aside);
  CHECK(bench.best()->at("parameters") == nlohmann::ordered_json(values));
  CHECK_FALSE(bench.best()->at("job").contains("resume_from"));
  bench.finish(0);
  CHECK(bench.outcome_of("x")->checkpoint == put_aside);
}

TEST_CASE("experiment: reports of a command that finds nothing to copy go on being counted where they were") {
  ExperimentBench bench;
  bench.tell(coordinator_event::Submitted{ExperimentBench::command_definition(
      {{"samples", 2}, {"scheduler", {{"type", "pbt"}, {"quantile", 0.5}, {"interval_epochs", 1}}}})});
  for (const int trial : {0, 1}) bench.start(trial);
  for (const int round : {1, 2, 3}) bench.report(1, round, 0.1);
  bench.report(0, 1, 0.9);
  bench.report(1, 4, 0.1);
  bench.later(CoordinatorSettings{}.copy_limit);
  const auto cloned = bench.events("trial_cloned");
  REQUIRE(cloned.size() == 1);
  CHECK(cloned.front().at("checkpoint").is_null());
  CHECK(bench.trial(1).reports == 4);
}

TEST_CASE("experiment: pbt where files travel copies the newest that has come to the coordinator, or nothing") {
  CoordinatorSettings settings;
  settings.files_travel = true;
  PairBench bench(settings);
  bench.compare(1);
  bench.later(settings.copy_limit);
  CHECK(bench.copied_from().empty());
  CHECK(bench.events("trial_cloned").back().at("checkpoint").is_null());
  bench.leave(1);
  bench.start(1);
  bench.tell(coordinator_event::CheckpointStored{bench.id(0), bench.path_of(0, 1)});
  bench.compare(2);
  bench.later(settings.copy_limit);
  CHECK(bench.copied_from() == Paths{"/x/trials/0000/" + bench.path_of(0, 1)});
  bench.leave(1);
  bench.start(1);
  // The copy is on the coordinator's disk from its beginning on.
  CHECK(bench.coordinator().state().runs_.at(bench.id(1)).newest_checkpoint() ==
        "/x/trials/0001/taken/0002/step-000000000010-gen-0001");
}

}  // namespace sgd::core
