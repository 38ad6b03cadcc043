#pragma once
// From an experiment's job and a trial's values to the trial's own job, which gives the same alone: the values stand at
// their paths, or in the words and the environment of its command, and nothing of the experiment is left. Pure.

#include <string>

#include "common/job/load.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/tune/experiment_spec.hpp"

namespace sgd::core {

/// Its job, or all that is wrong with it. `origin`: the checkpoint with which it begins; empty: anew.
[[nodiscard]] job::LoadResult trial_job(const TrialBase& base, const tune::ExperimentSpec& spec,
                                        const tune::Trial& trial, const std::string& origin = {});

/// As it stands in a word of a command: a string without quotes, anything else as JSON.
[[nodiscard]] std::string word_of(const nlohmann::json& value);

}  // namespace sgd::core
