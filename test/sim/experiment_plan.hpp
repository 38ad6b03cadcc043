#pragma once
// What one seed says of experiments: their jobs, and what their trials are like. Drawn by a chance of their own, so
// that all other seeds stay what they are.

#include "test/sim/plan.hpp"

namespace sgd::sim {

/// Some plans get one, in the place of what does not go with it.
void draw_experiments(Plan& plan);

/// What `run` says of an epoch in a generation. Some values are equal, and some are no numbers.
[[nodiscard]] double score_of(const RunId& run, int epoch, Generation generation);

[[nodiscard]] std::string describe(const ExperimentPlan& plan);

}  // namespace sgd::sim
