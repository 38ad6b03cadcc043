#pragma once
// What is looked at before an experiment is created: its job, its "tune", and the job of each of its trials.

#include <optional>

#include "launcher/cli/run_options.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/tune/experiment_spec.hpp"

namespace sgd::cli {

/// An experiment that may be submitted, without its id and folder.
struct CheckedExperiment {
  core::RunDefinition run;
  tune::ExperimentSpec spec;
};

enum class ExperimentPlace { kHere, kCluster };

/// Nothing: `diagnostics` has all that is wrong, which begins with what was wrong with the options.
[[nodiscard]] std::optional<CheckedExperiment> check_experiment(const RunOptions& options, ExperimentPlace place,
                                                                Diagnostics& diagnostics);

}  // namespace sgd::cli
