#pragma once
// The trials of an experiment as rows of one table, for programs that are not ours: a column has one meaning. Pure.

#include <vector>

#include "common/json/nlohmann.hpp"
#include "launcher/cli/trial_table.hpp"

namespace sgd::cli {

/// One of each trial, with the parameters of its best value. Those of a command have any names: one that is a column's
/// of ours, or the metric's, is called "config/NAME", as in Ray Tune's tables; such a metric, "metric/NAME".
[[nodiscard]] std::vector<nlohmann::ordered_json> trial_rows(const TrialTable& table);

}  // namespace sgd::cli
