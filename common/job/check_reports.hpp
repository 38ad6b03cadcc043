#pragma once
// Conditions between keys about what is measured and reported that a schema cannot say. Pure.

#include <cstdint>
#include <string>
#include <vector>

#include "common/job/model_size.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::job {

/// Workers whose reports a line of metrics lists.
inline constexpr std::int64_t kListedWorkersMax = 256;

/// Of "training.metrics", with its defaults: two of one name, one that does not fit what is learnt, a top_k of more
/// outputs than there are, a confusion matrix of too many. `dataset` and `model`: null where nothing can be said of
/// them.
[[nodiscard]] std::vector<Misfit> metric_misfits(const nlohmann::json& metrics, const nlohmann::json& dataset,
                                                 const nlohmann::json& model);

/// What is wrong with the "ignore_index" of a loss or a metric, at `path`; empty: nothing. Targets of masks without a
/// class have PyTorch's number for it, whatever the files have.
[[nodiscard]] std::string misfit_of_ignored(const std::string& path, const nlohmann::json& settings,
                                            const nlohmann::json& dataset);

/// Of "report", with its defaults.
[[nodiscard]] std::vector<Misfit> report_misfits(const nlohmann::json& report, std::int64_t num_workers);

}  // namespace sgd::job
