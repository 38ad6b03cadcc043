#pragma once
// What a checkpoint's position means: a place in the middle of an epoch is a count of samples in an order that seed,
// shuffling and data set make. Under another order some samples would be used twice and others never. Pure.
//
// `made_by` is an object of state.json: {"training": the resolved key of the job, "cpus": threads of a rank,
// "samples": {"train": n, "validation": n}}; what is missing in one of two is not compared.

#include <cstdint>
#include <string>

#include "common/json/nlohmann.hpp"

namespace sgd::checkpoint {

struct PlaceInEpoch {
  int epoch = 1;
  std::string phase = "train";     ///< Or "validate".
  std::int64_t consumed = 0;       ///< Leading entries of the phase's order.
  std::int64_t pass_consumed = 0;  ///< In "validate": those of training's, where a pass goes on in the next epoch.
};

/// Of state.json; a place that is not there is the first epoch's beginning.
[[nodiscard]] PlaceInEpoch place_of(const nlohmann::json& state);

/// Why a state at `place`, made by `before`, cannot go on under `after`, and what to do; empty: it can.
[[nodiscard]] std::string order_conflict(const PlaceInEpoch& place, const nlohmann::json& before,
                                         const nlohmann::json& after);

/// At equal world size and ranks per node both make the same steps, bit for bit.
[[nodiscard]] bool is_same_arithmetic(const nlohmann::json& before, const nlohmann::json& after);

}  // namespace sgd::checkpoint
