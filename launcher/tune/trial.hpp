#pragma once
// What a trial is: its number and the values that it has in place of the job's. No state, no run.

#include <cstdint>

#include "common/json/nlohmann.hpp"

namespace sgd::tune {

/// Dense, from 0, in the order in which trials are made; never given again.
using TrialId = std::int64_t;

/// An object: dotted path of the job file, or a command's own name, to value: {"training.optimizer.lr": 0.01}.
using Values = nlohmann::json;

struct Trial {
  TrialId id = 0;
  Values values;
};

}  // namespace sgd::tune
