#pragma once
// A trial's reports as Ray Tune's results: a line of result.json for each iteration, with Ray's names. Pure.
// Names: Ray 2.x, python/ray/air/constants.py and python/ray/tune/result.py.

#include <cstdint>
#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"

namespace sgd::cli {

struct RayTrial {
  std::int64_t number = 0;
  nlohmann::ordered_json parameters;
  bool is_over = false;
};

/// The folder of a trial, and its trial_id: "trial_0007".
[[nodiscard]] std::string ray_name(std::int64_t trial);

/// `lines`: of the trial's metrics.jsonl. What an epoch's training and its validation report is one result; lines
/// within an epoch are none.
[[nodiscard]] std::vector<nlohmann::ordered_json> ray_results(const RayTrial& trial,
                                                              const std::vector<nlohmann::ordered_json>& lines);

}  // namespace sgd::cli
