#pragma once
// An experiment under test, with a node whose ranks say what a test wants.

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "coordinator_bench.hpp"

namespace sgd::core {

/// "tune" of three samples, one at a time, of which the best one of each rung (epochs 1, 3, 9) goes on.
inline nlohmann::json promoting() {
  return {{"samples", 3},
          {"concurrent", 1},
          {"scheduler", {{"type", "asha"}, {"reduction_factor", 3}, {"mode", "promote"}}}};
}

class ExperimentBench : public CoordinatorBench {
 public:
  using Json = nlohmann::json;

  explicit ExperimentBench(int slots = 4, CoordinatorSettings settings = {}) : CoordinatorBench(settings) {
    node("n", slots);
  }

  /// A training job of one worker, 9 epochs; `tune` over "lr" from 0.1 to 1, val_accuracy, more is better.
  [[nodiscard]] static RunDefinition definition(Json tune) {
    Json whole = {{"parameters", {{"training.optimizer.lr", {{"uniform", {0.1, 1.0}}}}}},
                  {"metric", "val_accuracy"},
                  {"mode", "max"},
                  {"samples", 4},
                  {"concurrent", 2}};
    whole.update(tune);
    const Json job = {{"name", "search"},
                      {"num_workers", 1},
                      {"recovery", {{"max_failures", 0}}},
                      {"training",
                       {{"epochs", 9},
                        {"batch_size", 16},
                        {"model", {{"type", "linear"}}},
                        {"loss", "mse"},
                        {"dataset", {{"type", "linear"}}},
                        {"optimizer", {{"type", "sgd"}}}}},
                      {"tune", std::move(whole)}};
    RunDefinition run;
    run.id = "x";
    run.run_dir = "/x";
    run.base = TrialBase{job, "/"};
    auto loaded = job::load_given(job, "/", {});
    for (const Diagnostic& item : loaded.diagnostics.items) UNSCOPED_INFO(item.text());
    REQUIRE(loaded.job);
    run.job = *loaded.job;
    return run;
  }
  /// Of a command, whose reports are counted by its experiment.
  [[nodiscard]] static RunDefinition command_definition(Json tune) {
    RunDefinition run = definition(std::move(tune));
    nlohmann::json& given = run.base->given;
    given.erase("training");
    given["command"] = nlohmann::json::array({"train"});
    given["tune"]["parameters"] = {{"lr", {{"uniform", {0.1, 1.0}}}}};
    const job::LoadResult loaded = job::load_given(given, "/", {});
    REQUIRE(loaded.job);
    run.job = *loaded.job;
    return run;
  }
  void begin(Json tune = Json::object()) { tell(coordinator_event::Submitted{definition(std::move(tune))}); }

  /// Before each event.
  std::function<void(const CoordinatorEvent& event)> before;

  /// Commands of all events pile up here.
  void tell(const CoordinatorEvent& event) {
    if (before) before(event);
    on(event);
    all_.insert(all_.end(), commands().begin(), commands().end());
  }
  /// So much later, with one tick.
  void later(Duration duration) {
    wait_late(duration);
    all_.insert(all_.end(), commands().begin(), commands().end());
  }
  void say(int trial, cluster::FactBody body) {
    const RunId run = id(trial);
    const RunState& state = coordinator().state().runs_.at(run).state();
    const bool is_cleared = std::holds_alternative<cluster::Cleared>(body);
    cluster::Fact fact{1,
                       ++sequence_,
                       run,
                       is_cleared ? state.desired_generation_ : state.generation_,
                       std::move(body),
                       is_cleared ? state.desired_uid_ : state.generation_uid_};
    tell(coordinator_event::FromAgent{"n", std::move(fact)});
  }
  void start(int trial) {
    say(trial, cluster::WorkerStarted{0, 100 + trial});
    link::Ready ready;
    ready.source = "fresh";
    say(trial, cluster::WorkerReady{0, ready});
    say(trial, cluster::WorkerFirstStep{0, 1});
  }
  /// `own`: what a user's code reports beside it.
  void report(int trial, int epoch, double value, const char* metric = "val_accuracy", const Json& own = {}) {
    link::Report report;
    report.key = {epoch, "validate", 0, 0};
    report.metrics = {{metric, value}, {"epoch", epoch}};
    if (own.is_object()) report.metrics.update(own);
    report.step = epoch * 10;
    say(trial, cluster::Report{0, report});
  }
  void save(int trial, int epoch) {
    link::CheckpointSaved saved;
    saved.path = path_of(trial, epoch);
    saved.step = epoch * 10;
    saved.epoch = epoch;
    say(trial, cluster::CheckpointSaved{saved});
  }
  [[nodiscard]] std::string path_of(int trial, int epoch) const {
    const Generation generation = coordinator().state().runs_.at(id(trial)).state().generation_;
    return fmt::format("checkpoints/step-{:012}-gen-{:04}", epoch * 10, generation);
  }
  void exit(int trial, int exit_code = 0, int signal = 0) {
    cluster::WorkerExited exited;
    exited.rank = 0;
    exited.exit_code = signal != 0 ? -1 : exit_code;
    exited.signal = signal;
    say(trial, exited);
  }
  void clear(int trial) { say(trial, cluster::Cleared{}); }
  void finish(int trial) {
    exit(trial);
    clear(trial);
  }

  [[nodiscard]] static RunId id(int trial) { return fmt::format("x.{:04}", trial); }
  [[nodiscard]] RunPhase phase_of(int trial) const { return phase(id(trial)); }
  [[nodiscard]] bool is_at_work(int trial) const {
    const auto run = coordinator().state().runs_.find(id(trial));
    return run != coordinator().state().runs_.end() && !run->second.finished();
  }
  [[nodiscard]] const ExperimentState& experiment() const {
    state_ = coordinator().state().experiments_.at("x").state();
    return state_;
  }
  [[nodiscard]] TrialRecord trial(int number) const {
    const auto known = experiment().trials_.find(number);
    return known == state_.trials_.end() ? told_of(number) : known->second;
  }
  /// Of the experiment, by name.
  [[nodiscard]] std::vector<nlohmann::ordered_json> events(const std::string& name, const RunId& run = "x") const {
    std::vector<nlohmann::ordered_json> found;
    for (const CoordinatorCommand& command : all_) {
      const auto* event = std::get_if<coordinator_command::RecordEvent>(&command);
      if (event != nullptr && event->run == run && event->event.at("event") == name) found.push_back(event->event);
    }
    return found;
  }
  [[nodiscard]] std::optional<RunOutcome> outcome_of(const RunId& run) const {
    std::optional<RunOutcome> found;
    for (const CoordinatorCommand& command : all_)
      if (const auto* finished = std::get_if<coordinator_command::FinishRun>(&command))
        if (finished->run == run) found = finished->outcome;
    return found;
  }
  [[nodiscard]] std::optional<nlohmann::ordered_json> best() const {
    std::optional<nlohmann::ordered_json> found;
    for (const CoordinatorCommand& command : all_)
      if (const auto* best = std::get_if<coordinator_command::RecordBest>(&command)) found = best->best;
    return found;
  }
  [[nodiscard]] const CoordinatorCommands& all() const { return all_; }

 private:
  /// Of a trial that has ended, and of which the experiment keeps nothing.
  [[nodiscard]] TrialRecord told_of(int number) const {
    TrialRecord told;
    for (const nlohmann::ordered_json& event : events("trial_started"))
      if (event.at("trial") == number) told.values = tune::Values::parse(event.at("parameters").dump());
    for (const nlohmann::ordered_json& event : events("trial_ended")) {
      if (event.at("trial") != number) continue;
      told.phase = TrialPhase::kEnded;
      for (const auto outcome :
           {tune::Outcome::kCompleted, tune::Outcome::kStopped, tune::Outcome::kFailed, tune::Outcome::kCancelled})
        if (event.at("state") == tune::word_of(outcome)) told.outcome = outcome;
      told.iteration = event.at("iteration");
      if (!event.at("value").is_null()) told.value = event.at("value").get<double>();
      if (!event.at("best").is_null()) told.best = event.at("best").get<double>();
      told.best_iteration = event.at("best_iteration");
    }
    REQUIRE(told.phase == TrialPhase::kEnded);
    return told;
  }

  std::int64_t sequence_ = 0;
  CoordinatorCommands all_;
  mutable ExperimentState state_;
};

}  // namespace sgd::core
