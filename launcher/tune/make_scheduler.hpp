#pragma once
// The scheduler that an experiment wants, new or as it was.

#include <memory>

#include "common/base/result.hpp"
#include "launcher/tune/experiment_spec.hpp"
#include "launcher/tune/scheduler.hpp"

namespace sgd::tune {

[[nodiscard]] std::unique_ptr<Scheduler> make_scheduler(const ExperimentSpec& spec);
/// One that goes on where `state` was taken of a scheduler of the same spec.
[[nodiscard]] Result<std::unique_ptr<Scheduler>> restore_scheduler(const ExperimentSpec& spec,
                                                                   const nlohmann::json& state);

}  // namespace sgd::tune
