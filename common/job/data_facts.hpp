#pragma once
// What a job's data set is, as far as its section says it (pure), and as far as names, sizes and headers of its files
// do. Nothing reads the data itself: that is the worker's, before it trains (worker/data).

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/job/model_size.hpp"

namespace sgd::job {

/// Numbers of a synthetic sample or an image: the widest layer of a built-in model takes no more.
inline constexpr std::int64_t kSampleNumbersMax = 1 << 24;

/// Else a plug-in registers it, and this program knows nothing of its samples.
[[nodiscard]] bool is_built_in_dataset(const nlohmann::json& dataset);

/// What is learnt: classes, as cross_entropy takes them, or numbers, as mse does.
[[nodiscard]] bool learns_classes(const nlohmann::json& dataset);

/// Sizes of a sample where the section alone says them.
[[nodiscard]] std::optional<SampleSizes> told_sizes(const nlohmann::json& dataset);

/// The first condition between keys of "training.dataset" that does not hold, or between it and the model.
[[nodiscard]] std::optional<Misfit> dataset_misfit(const nlohmann::json& dataset, const nlohmann::json& model);

/// One split of a data set.
struct SplitFacts {
  std::optional<SampleSizes> sample;
  std::int64_t samples = 0;          ///< 0: only reading tells, as for CSV.
  std::int64_t target_numbers = 1;   ///< Where numbers are learnt.
  std::vector<std::string> classes;  ///< Where folders name them.
  std::vector<std::string> columns;  ///< Of CSV files whose headers alone say what the features are: their order.
};
/// `split`: "train" or "validation". Errors name the file. `columns`: of the split that is trained on; others have the
/// same.
[[nodiscard]] Result<SplitFacts> look_at_split(const nlohmann::json& dataset, const std::string& split,
                                               const std::vector<std::string>& columns = {});

}  // namespace sgd::job
