#pragma once
// An experiment, typed: `tune` of a job file. Its keys, types, ranges and defaults are those of
// configs/job.schema.json, which job/load.hpp has checked; what a schema cannot say is checked here, all of it at once.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "common/job/load.hpp"
#include "launcher/tune/metric.hpp"
#include "launcher/tune/parameters.hpp"
#include "launcher/tune/trial_list.hpp"

namespace sgd::tune {

/// What "stop.epochs" and "max_epochs" can say at most.
inline constexpr std::int64_t kEpochsLast = 1'000'000'000;

/// When a trial has reached what it is for.
struct StopBound {
  std::string metric;
  bool is_least = false;  ///< The metric is to be at least `bound`, else at most.
  double bound = 0;
};

struct SchedulerSpec {
  std::string type = "fifo";              ///< "fifo", "asha", "hyperband", "median" or "pbt".
  std::int64_t max_epochs = 0;            ///< asha, hyperband: what one trial may have at most.
  std::int64_t grace_epochs = 1;          ///< asha: where the first rung is.
  std::int64_t reduction_factor = 4;      ///< asha: one of so many goes on; hyperband: default 3.
  int brackets = 1;                       ///< asha, stopping rule only: halvings that begin later and later.
  bool promotes = false;                  ///< asha: `"mode": "promote"`: wait at a rung, go on from the checkpoint.
  int startup_trials = 5;                 ///< median: trials that have to be complete first.
  std::int64_t warmup_epochs = 0;         ///< median: nothing is stopped up to here.
  std::int64_t interval_epochs = 1;       ///< median, pbt: epochs between two decisions.
  int least_trials = 1;                   ///< median: reports at an epoch that make a median.
  std::int64_t burn_in_epochs = 0;        ///< pbt: nothing is copied up to here.
  double quantile = 0.25;                 ///< pbt: the best and the worst part of the population.
  double resample_probability = 0.25;     ///< pbt: of each parameter, to be drawn anew.
  std::vector<double> factors{0.8, 1.2};  ///< pbt: else it is multiplied by one of these.
  std::vector<std::string> mutates;       ///< pbt: the parameters that are changed; empty: all but grids.
};

struct SearchSpec {
  enum class Kind { kRandom, kGrid, kExec };
  Kind kind = Kind::kRandom;
  std::vector<std::string> command;            ///< kExec: a program that speaks search_protocol.hpp.
  Duration timeout = std::chrono::minutes(1);  ///< kExec: of an answer.
};

struct ExperimentSpec {
  Parameters parameters;
  std::uint64_t samples = 1;  ///< Of each grid point; of kExec: trials in all.
  std::uint64_t seed = 0;
  std::string metric;
  Mode mode = Mode::kMin;
  int concurrent = 0;            ///< Trials that run at the same time; 0: as many as there is room for.
  std::vector<StopBound> stop;   ///< One that holds ends the trial.
  std::int64_t stop_epochs = 0;  ///< Epochs, or reports of a command, of one trial; 0: no bound.
  SchedulerSpec scheduler;
  SearchSpec search;
  std::int64_t max_failures = 0;  ///< Of a trial, after each of which it starts again from its checkpoint.

  /// How many trials there are to be.
  [[nodiscard]] std::uint64_t trials() const;
  /// The list of them; not of kExec, whose trials a program makes.
  [[nodiscard]] TrialList list() const;
};

/// Of a job that job/load.hpp has read and that has a "tune". Nothing when that or `diagnostics` has errors, or gets
/// new ones; what the schema has said is not said again, so that a user reads all of it at once. `registered` as in
/// job/load.hpp.
[[nodiscard]] std::optional<ExperimentSpec> parse_experiment(const job::LoadResult& loaded, Diagnostics& diagnostics,
                                                             const job::Registered& registered = {});

/// The words for a bound that is reached: `val_accuracy 0.981 is at least 0.98`, or "": none is. `metrics`: a report's
/// line.
[[nodiscard]] std::string bound_reached(const ExperimentSpec& spec, std::int64_t iteration,
                                        const nlohmann::json& metrics);

}  // namespace sgd::tune
