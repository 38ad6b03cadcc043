// An experiment: runs that own runs, in one machine with them.

#include <set>

#include <catch2/catch.hpp>

#include "common/exit_codes.hpp"
#include "experiment_bench.hpp"

namespace sgd::core {

TEST_CASE("experiment: as many trials at a time as are wanted, each with its values and folder") {
  ExperimentBench bench;
  bench.begin();
  CHECK(bench.is_at_work(0));
  CHECK(bench.is_at_work(1));
  CHECK_FALSE(bench.is_at_work(2));
  const RunDefinition& first = bench.coordinator().state().runs_.at("x.0000").definition();
  CHECK(first.parent == "x");
  CHECK(first.run_dir == "/x/trials/0000");
  CHECK(first.job.tune.is_null());
  const double lr = first.job.training->optimizer.lr;
  CHECK(lr >= 0.1);
  CHECK(lr < 1.0);
  CHECK(bench.trial(0).values.at("training.optimizer.lr") == lr);
  CHECK(bench.trial(1).values != bench.trial(0).values);
  bench.start(0);
  bench.report(0, 1, 0.5);
  bench.finish(0);
  CHECK(bench.trial(0).phase == TrialPhase::kEnded);
  CHECK(bench.is_at_work(2));
  CHECK_FALSE(bench.is_at_work(3));
}

TEST_CASE("experiment: few trials wait for room, however many it may have; limit kTrialsWaitingMax") {
  ExperimentBench bench(3);
  bench.begin({{"samples", 1000}, {"concurrent", 500}});
  const auto live = [&] { return static_cast<std::int64_t>(bench.coordinator().load_of("").live); };
  CHECK(bench.experiment().trials_.size() == 3 + kTrialsWaitingMax);
  CHECK(live() <= 1 + 3 + kTrialsWaitingMax);
  bench.start(0);
  bench.finish(0);  // One gets its place, and another one waits.
  CHECK(bench.experiment().next_ == 4 + kTrialsWaitingMax);
  CHECK(bench.experiment().trials_.size() == 3 + kTrialsWaitingMax);
  CHECK(live() <= 1 + 3 + kTrialsWaitingMax);
}

TEST_CASE("experiment: ends when all trials have, and its best one is known with its job and checkpoint") {
  ExperimentBench bench;
  bench.begin();
  for (int trial = 0; trial < 4; ++trial) {
    bench.start(trial);
    bench.report(trial, 1, trial == 2 ? 0.9 : 0.5);
    bench.save(trial, 1);
    bench.report(trial, 2, trial == 2 ? 0.8 : 0.6);
    bench.save(trial, 2);
    bench.finish(trial);
  }
  const auto outcome = bench.outcome_of("x");
  REQUIRE(outcome);
  CHECK(outcome->state == "succeeded");
  CHECK(outcome->exit_code == 0);
  CHECK(outcome->tune.at("ended") == 4);
  REQUIRE(bench.best());
  CHECK(bench.best()->at("trial") == 2);
  CHECK(bench.best()->at("value") == 0.9);
  CHECK(bench.best()->at("iteration") == 1);
  CHECK(bench.best()->at("checkpoint") == "/x/trials/0002/checkpoints/step-000000000010-gen-0001");
  const auto job = job::load_resolved(nlohmann::json(bench.best()->at("job")));
  REQUIRE(job.job);
  CHECK(job.job->training->optimizer.lr == bench.trial(2).values.at("training.optimizer.lr"));
  CHECK(bench.coordinator().load_of("").live == 0);
}

TEST_CASE("experiment: a metric may have the name of a part of its report's place") {
  ExperimentBench bench;
  bench.begin({{"samples", 1}, {"concurrent", 1}, {"stop", {{"epochs", 2}}}});
  bench.start(0);
  // Counted from 0, as the user's code does, beside the size of its batches.
  bench.report(0, 1, 0.5, "val_accuracy", {{"epoch", 0}, {"batch", 64}});
  CHECK(bench.trial(0).reports == 1);
  CHECK(bench.trial(0).iteration == 1);
  CHECK(bench.trial(0).phase == TrialPhase::kRunning);
  bench.report(0, 2, 0.6, "val_accuracy", {{"epoch", 1}, {"batch", 64}});
  CHECK(bench.trial(0).reports == 2);
  CHECK(bench.trial(0).best_iteration == 2);
  CHECK(bench.trial(0).phase == TrialPhase::kStopping);
}

TEST_CASE("experiment: one trial's crash touches no other, and is counted") {
  ExperimentBench bench;
  bench.begin();
  bench.start(0);
  bench.start(1);
  bench.exit(0, 0, 9);
  bench.clear(0);
  CHECK(bench.trial(0).outcome == tune::Outcome::kFailed);
  CHECK(bench.phase_of(1) == RunPhase::kRunning);
  for (const int trial : {1, 2, 3}) {
    if (trial > 1) bench.start(trial);
    bench.report(trial, 1, 0.5);
    bench.finish(trial);
  }
  CHECK(bench.outcome_of("x")->state == "succeeded");
  CHECK(bench.outcome_of("x")->failures == 1);
}

TEST_CASE("experiment: it has failed when all trials have, and says why the first did") {
  ExperimentBench bench;
  bench.begin({{"samples", 2}});
  for (const int trial : {0, 1}) {
    bench.start(trial);
    bench.exit(trial, 0, 11);
    bench.clear(trial);
  }
  const auto outcome = bench.outcome_of("x");
  REQUIRE(outcome);
  CHECK(outcome->state == "failed");
  CHECK(outcome->exit_code == exit_code::kFailed);
  CHECK(outcome->error.starts_with("all 2 trials have failed; trial 0: "));
}

TEST_CASE("experiment: a trial that has failed starts again as often as it may, from what it has saved") {
  ExperimentBench bench;
  bench.begin({{"samples", 1}, {"max_failures", 1}});
  bench.start(0);
  bench.report(0, 1, 0.5);
  bench.save(0, 1);
  bench.exit(0, 0, 9);
  bench.clear(0);
  CHECK(bench.events("trial_restarted").size() == 1);
  CHECK(bench.is_at_work(0));
  const RunState& again = bench.coordinator().state().runs_.at("x.0000").state();
  REQUIRE(again.definition_.past);
  CHECK(again.definition_.past->checkpoints.front() == "/x/trials/0000/checkpoints/step-000000000010-gen-0001");
  CHECK(again.generation_ > 1);
  // Whoever still has something of its former life has less than what counts.
  CHECK(bench.wanted("n", "x.0000")->keeper_from == again.generation_);
  CHECK(bench.events("run_resumed", "x.0000").size() == 1);
  bench.start(0);
  bench.report(0, 2, 0.6);
  bench.exit(0, 0, 9);
  bench.clear(0);
  CHECK(bench.trial(0).outcome == tune::Outcome::kFailed);
  CHECK(bench.trial(0).best == 0.6);
  CHECK(bench.outcome_of("x")->state == "succeeded");  // It has a result.
}

TEST_CASE("experiment: a stop ends its trials, and it goes on with them later") {
  ExperimentBench bench;
  bench.begin({{"samples", 3}});
  bench.start(0);
  bench.start(1);
  bench.report(0, 1, 0.5);
  bench.report(1, 1, 0.6);  // The best one when all have ended; the other goes on all the same.
  bench.save(0, 1);
  StopRequest stop;
  stop.why = StopRequest::Why::kSignal;
  stop.signal = 2;
  bench.tell(coordinator_event::StopRequested{"x", stop});
  CHECK_FALSE(bench.outcome_of("x"));
  for (const int trial : {0, 1}) {
    bench.exit(trial, worker_exit::kStopped);
    bench.clear(trial);
    CHECK(bench.outcome_of(bench.id(trial))->state == "interrupted");
  }
  CHECK(bench.outcome_of("x")->state == "interrupted");
  CHECK(bench.outcome_of("x")->exit_code == 130);
  CHECK_FALSE(bench.is_at_work(2));

  bench.tell(coordinator_event::ExperimentResumed{"x", 0});
  CHECK(bench.is_at_work(0));
  CHECK(bench.is_at_work(1));
  CHECK_FALSE(bench.is_at_work(2));
  CHECK(bench.coordinator().state().runs_.at("x.0000").definition().past->checkpoints.size() == 1);
  for (const int trial : {0, 1, 2}) {
    bench.start(trial);
    bench.report(trial, 2, 0.1 * trial);
    bench.finish(trial);
  }
  CHECK(bench.outcome_of("x")->state == "succeeded");
  CHECK(bench.best()->at("trial") == 1);
}

TEST_CASE("experiment: one that was stopped when nothing was left to do is done when it goes on") {
  ExperimentBench bench;
  bench.begin({{"samples", 1}});
  bench.start(0);
  bench.report(0, 1, 0.5);
  bench.exit(0);  // It was at its end.
  bench.tell(coordinator_event::StopRequested{"x", {StopRequest::Why::kSignal, 2, false, {}}});
  bench.clear(0);
  REQUIRE(bench.trial(0).outcome == tune::Outcome::kCompleted);
  REQUIRE(bench.outcome_of("x")->state == "interrupted");
  CHECK(bench.coordinator().state().experiments_.at("x").why_not_resumed(0).empty());
  bench.tell(coordinator_event::ExperimentResumed{"x", 0});
  CHECK(bench.outcome_of("x")->state == "succeeded");
  CHECK(bench.events("trial_started").size() == 1);
  CHECK_FALSE(bench.coordinator().state().experiments_.at("x").why_not_resumed(0).empty());
}

TEST_CASE("experiment: a trial whose job is refused when it is to go on has failed, and the others go on") {
  ExperimentBench bench;
  bench.begin({{"samples", 2}});
  for (const int trial : {0, 1}) bench.start(trial);
  bench.tell(coordinator_event::StopRequested{"x", {StopRequest::Why::kSignal, 2, false, {}}});
  for (const int trial : {0, 1}) {
    bench.exit(trial, worker_exit::kStopped);
    bench.clear(trial);
  }
  ExperimentState state = bench.experiment();
  REQUIRE(state.is_over_);
  state.trials_.at(0).values["training.optimizer.lr"] = "high";
  Experiment machine(std::move(state));
  CoordinatorCommands out;
  TrialOrders orders;
  machine.on_resumed(TimePoint{}, 0, out, orders);
  REQUIRE(orders.size() == 1);
  CHECK(std::get<trial_order::Start>(orders.front()).run.id == "x.0001");
  nlohmann::ordered_json ended;
  for (const CoordinatorCommand& command : out)
    if (const auto* event = std::get_if<coordinator_command::RecordEvent>(&command))
      if (event->event.at("event") == "trial_ended") ended = event->event;
  REQUIRE(ended.is_object());
  CHECK(ended.at("trial") == 0);
  CHECK(ended.at("state") == "failed");
  CHECK(ended.at("why").get<std::string>().starts_with("its job is refused: "));
  const ExperimentState after = machine.state();
  CHECK(after.at_work_ == 1);
  CHECK(after.failed_ == 1);
}

TEST_CASE("experiment: its time is that in which it was going on") {
  using namespace std::chrono_literals;
  Experiment machine(ExperimentBench::definition({{"samples", 2}}), TimePoint{1h});
  CoordinatorCommands out;
  TrialOrders orders;
  const StopRequest stop{StopRequest::Why::kCancelled, 0, true, {}};
  machine.on_stop(TimePoint{1h + 10min}, stop, out, orders);
  CHECK(machine.outcome().wall_s == 600);
  machine.on_resumed(TimePoint{48h}, 0, out, orders);
  CHECK(machine.snapshot(TimePoint{48h + 1min}).wall_s == 660);
  Experiment again(machine.state());
  again.on_stop(TimePoint{48h + 5min}, stop, out, orders);
  CHECK(again.outcome().wall_s == 900);
  CHECK(again.snapshot(TimePoint{72h}).wall_s == 900);
}

TEST_CASE("experiment: more samples are more trials, behind those that it has had") {
  ExperimentBench bench;
  bench.begin({{"samples", 1}});
  bench.start(0);
  bench.report(0, 1, 0.5);
  bench.finish(0);
  CHECK(bench.outcome_of("x")->state == "succeeded");
  const Experiment& machine = bench.coordinator().state().experiments_.at("x");
  CHECK(machine.why_not_resumed(0).starts_with("all of its 1 trials have ended"));
  CHECK(machine.why_not_resumed(1).starts_with("all of its 1 trials have ended"));
  CHECK(machine.why_not_resumed(3).empty());
  bench.tell(coordinator_event::ExperimentResumed{"x", 3});
  CHECK(bench.is_at_work(1));
  CHECK(bench.is_at_work(2));
  CHECK(bench.trial(1).values != bench.trial(0).values);
}

TEST_CASE("experiment: a metric that nobody reports is said after the first epoch, with what is") {
  ExperimentBench bench;
  bench.begin({{"samples", 2}});
  bench.start(0);
  bench.report(0, 1, 0.5, "val_loss");
  REQUIRE(bench.events("metric_missing").size() == 1);
  CHECK(bench.events("metric_missing").front().at("metric") == "val_accuracy");
  CHECK(bench.events("metric_missing").front().at("reported").dump().find("val_loss") != std::string::npos);
  bench.finish(0);
  bench.start(1);
  bench.report(1, 1, 0.5, "val_loss");
  bench.finish(1);
  CHECK(bench.events("metric_missing").size() == 1);
  CHECK(bench.outcome_of("x")->state == "failed");
  CHECK(bench.outcome_of("x")->error == "no trial has reported a finite \"val_accuracy\"");
}

TEST_CASE("experiment: asha stops what is worse, with its reason, and the trial has ended well") {
  ExperimentBench bench;
  bench.begin({{"samples", 3}, {"concurrent", 1}, {"scheduler", {{"type", "asha"}, {"reduction_factor", 3}}}});
  bench.start(0);
  bench.report(0, 1, 0.9);
  bench.finish(0);
  bench.start(1);
  bench.report(1, 1, 0.1);
  CHECK(bench.phase_of(1) == RunPhase::kStopping);
  const auto decided = bench.events("trial_decided");
  REQUIRE_FALSE(decided.empty());
  CHECK(decided.back().at("trial") == 1);
  CHECK(decided.back().at("action") == "stop");
  CHECK_FALSE(decided.back().at("why").get<std::string>().empty());
  bench.exit(1, worker_exit::kStopped);
  bench.clear(1);
  CHECK(bench.trial(1).outcome == tune::Outcome::kStopped);
  CHECK(bench.is_at_work(2));
}

TEST_CASE(
    "experiment: what was held counts up to where it leads to another pause, and the rest when it goes on again") {
  ExperimentBench bench(1);
  bench.begin(promoting());
  for (const int trial : {0, 1, 2}) {
    bench.start(trial);
    bench.report(trial, 1, trial == 0 ? 0.9 : 0.5);
    for (const int epoch : {2, 3, 4}) bench.report(trial, epoch, 0.9);
    bench.save(trial, 4);
    bench.exit(trial, worker_exit::kStopped);
    bench.clear(trial);
  }
  // The next rung of the best one is epoch 3: there it waits again, and goes on since nobody else comes to it.
  CHECK(bench.events("trial_paused").back().at("iteration") == 3);
  CHECK(bench.events("trial_report").back().at("iteration") == 4);
}

TEST_CASE("experiment: asha that promotes lets a trial wait without a rank, and go on from its checkpoint") {
  ExperimentBench bench(1);
  bench.begin(promoting());
  for (const int trial : {0, 1, 2}) {
    bench.start(trial);
    bench.report(trial, 1, trial == 1 ? 0.9 : 0.5);
    CHECK(bench.trial(trial).phase == TrialPhase::kPausing);
    bench.save(trial, 1);
    bench.exit(trial, worker_exit::kStopped);
    bench.clear(trial);
  }
  // The best of three goes on, in the next generation of its run.
  CHECK(bench.trial(1).phase == TrialPhase::kRunning);
  const auto wanted = bench.wanted("n", "x.0001");
  REQUIRE(wanted);
  CHECK(wanted->want == cluster::Want::kRun);
  CHECK(wanted->generation == 2);
  CHECK(wanted->resume_from.front() == "/x/trials/0001/checkpoints/step-000000000010-gen-0001");
  CHECK(bench.phase_of(0) == RunPhase::kWaiting);
  CHECK(bench.coordinator().snapshot({}, "x.0000")->reason.starts_with("paused: "));
}

TEST_CASE("experiment: a trial that is to go on does so when it has given its place up, and not before") {
  ExperimentBench bench;
  bench.begin({{"samples", 3},
               {"concurrent", 3},
               {"scheduler", {{"type", "asha"}, {"reduction_factor", 3}, {"mode", "promote"}}}});
  for (const int trial : {0, 1, 2}) bench.start(trial);
  for (const int trial : {0, 1, 2}) bench.report(trial, 1, trial == 0 ? 0.9 : 0.5);
  bench.exit(1, worker_exit::kStopped);
  bench.clear(1);
  CHECK(bench.trial(0).phase == TrialPhase::kPausing);  // It is the best, and its ranks are still leaving.
  CHECK(bench.experiment().at_work_ == 2);
  bench.exit(0, worker_exit::kStopped);
  bench.clear(0);
  CHECK(bench.trial(0).phase == TrialPhase::kRunning);
  CHECK(bench.experiment().at_work_ == 2);
  CHECK(bench.experiment().paused_ == 1);
}

TEST_CASE("experiment: a trial that waits after its run has ended with the experiment can be ended, too") {
  ExperimentBench bench(1);
  bench.begin(promoting());
  bench.start(0);
  bench.report(0, 1, 0.5);
  bench.exit(0, worker_exit::kStopped);
  bench.clear(0);
  bench.tell(coordinator_event::StopRequested{"x", {StopRequest::Why::kCancelled, 0, true, {}}});
  for (const int trial : {0, 1}) bench.clear(trial);
  CHECK(bench.outcome_of("x")->state == "cancelled");
  bench.tell(coordinator_event::ExperimentResumed{"x", 0});
  // The one that waits is begun again when it is to go on, and not with the experiment.
  CHECK(bench.is_at_work(1));
  CHECK(bench.trial(0).phase == TrialPhase::kPaused);
  CHECK(bench.coordinator().state().runs_.at("x.0000").finished());
  bench.tell(coordinator_event::StopRequested{"x.0000", {}});
  CHECK(bench.trial(0).phase == TrialPhase::kEnded);
  CHECK(bench.trial(0).outcome == tune::Outcome::kCancelled);
  CHECK(bench.experiment().paused_ == 0);
}

TEST_CASE("experiment: its trials that may go on are remembered as long as it is, however many ended runs are") {
  CoordinatorSettings settings;
  settings.finished_max = 1;
  ExperimentBench bench(4, settings);
  bench.begin({{"samples", 4}, {"concurrent", 3}});
  for (const int trial : {0, 1, 2}) {
    bench.start(trial);
    bench.report(trial, 1, 0.5);
    bench.save(trial, 1);
  }
  bench.tell(coordinator_event::StopRequested{"x", {}});
  for (const int trial : {0, 1, 2}) {
    bench.exit(trial, worker_exit::kStopped);
    bench.clear(trial);
  }
  CHECK(bench.coordinator().state().runs_.size() == 3);
  bench.tell(coordinator_event::ExperimentResumed{"x", 0});
  for (const int trial : {0, 1, 2})
    CHECK(bench.coordinator().state().runs_.at(bench.id(trial)).definition().past->checkpoints.size() == 1);
  bench.tell(coordinator_event::StopRequested{"x", {core::StopRequest::Why::kCancelled, 0, true, {}}});
  for (const int trial : {0, 1, 2}) bench.clear(trial);
  bench.tell(coordinator_event::RunForgotten{"x"});
  CHECK_FALSE(bench.coordinator().state().experiments_.contains("x"));
  CHECK_FALSE(bench.coordinator().state().runs_.contains("x.0000"));
}

TEST_CASE("experiment: of trials that have ended it keeps the best one, and few runs; limit finished_trials_max") {
  CoordinatorSettings settings;
  settings.finished_trials_max = 2;
  ExperimentBench bench(4, settings);
  bench.begin({{"samples", 12}, {"concurrent", 2}});
  for (const int trial : {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}) {
    bench.start(trial);
    bench.report(trial, 1, trial == 3 ? 0.9 : 0.5);
    bench.finish(trial);
    std::set<tune::TrialId> kept = {trial < 3 ? 0 : 3, trial + 1, trial + 2};
    std::set<tune::TrialId> found;
    for (const auto& [id, its] : bench.experiment().trials_) found.insert(id);
    CHECK(found == kept);
    CHECK(bench.coordinator().state().runs_.size() <= 4);
  }
  // The best one is the earliest of those that are equal, and what is said of one that has ended changes nothing.
  CHECK(bench.best()->at("trial") == 3);
  bench.tell(coordinator_event::StopRequested{"x.0002", {}});
  CHECK(bench.experiment().ended_ == 10);
  CHECK(bench.coordinator().state().experiments_.at("x").has_trial(2));
  CHECK_FALSE(bench.coordinator().state().experiments_.at("x").has_trial(12));
  for (const int trial : {10, 11}) {
    bench.start(trial);
    bench.finish(trial);
  }
  CHECK(bench.outcome_of("x")->tune.at("best").at("trial") == 3);
  CHECK(bench.outcome_of("x")->tune.at("ended") == 12);
}

TEST_CASE("experiment: pbt keeps trials that have ended, whose state others may take") {
  ExperimentBench bench(4);
  bench.begin({{"samples", 2}, {"concurrent", 2}, {"scheduler", {{"type", "pbt"}, {"interval_epochs", 1}}}});
  for (const int trial : {0, 1}) {
    bench.start(trial);
    bench.finish(trial);
  }
  CHECK(bench.experiment().trials_.size() == 2);
  CHECK(bench.coordinator().state().runs_.size() == 2);
}

TEST_CASE("experiment: a stop condition ends a trial as completed") {
  ExperimentBench bench;
  bench.begin({{"samples", 1}, {"stop", {{"val_accuracy", 0.95}}}});
  bench.start(0);
  bench.report(0, 1, 0.5);
  CHECK(bench.phase_of(0) == RunPhase::kRunning);
  bench.report(0, 2, 0.96);
  CHECK(bench.phase_of(0) == RunPhase::kStopping);
  bench.exit(0, worker_exit::kStopped);
  bench.clear(0);
  CHECK(bench.trial(0).outcome == tune::Outcome::kCompleted);
  CHECK(bench.outcome_of("x")->state == "succeeded");
}

TEST_CASE("experiment: without a limit there are as many trials as there is room for") {
  ExperimentBench bench(3);
  nlohmann::json tune = {{"samples", 6}};
  RunDefinition run = ExperimentBench::definition(tune);
  run.base->given["tune"].erase("concurrent");
  bench.tell(coordinator_event::Submitted{run});
  for (const int trial : {0, 1, 2}) CHECK(bench.phase_of(trial) == RunPhase::kStarting);
  CHECK(bench.phase_of(3) == RunPhase::kPlacing);  // One waits for what comes free.
  CHECK_FALSE(bench.is_at_work(4));
}

TEST_CASE("experiment: trials that find no room end it as not placed, and say why") {
  ExperimentBench bench(0);
  bench.begin({{"samples", 2}});
  bench.wait(std::chrono::minutes(5));
  CHECK(bench.coordinator().state().experiments_.at("x").finished());
  const RunOutcome& outcome = bench.coordinator().state().experiments_.at("x").outcome();
  CHECK(outcome.state == "not_placed");
  CHECK(outcome.exit_code == exit_code::kNotPlaced);
  CHECK(outcome.error.find("could not be placed within") != std::string::npos);
}

}  // namespace sgd::core
