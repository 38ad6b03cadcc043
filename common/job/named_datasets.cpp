#include "common/job/named_datasets.hpp"

#include <algorithm>
#include <array>

#include "common/json/lenient.hpp"

namespace sgd::job {
namespace {

constexpr std::array kTypesOfTwoParts = {"cifar", "csv", "image_folder", "image_masks", "npy", "tokens"};

bool has_parts(const nlohmann::json& dataset) {
  const std::string type = read_or(dataset, "type", "");
  return std::find(kTypesOfTwoParts.begin(), kTypesOfTwoParts.end(), type) != kTypesOfTwoParts.end();
}

}  // namespace

const char* part_used(const std::string& name) {
  return name == kTrainSet ? "train" : "validation";
}

bool lacks_both_parts(const nlohmann::json& dataset) {
  return has_parts(dataset) && !dataset.contains("train") && !dataset.contains("validation");
}

bool lacks_validation(const nlohmann::json& training) {
  const nlohmann::json& several = member(training, "datasets");
  if (several.is_object()) return !several.contains(kValidationSet);
  const nlohmann::json& alone = member(training, "dataset");
  return has_parts(alone) && !alone.contains("validation");
}

nlohmann::json with_both_parts(nlohmann::json dataset) {
  if (!has_parts(dataset) || lacks_both_parts(dataset)) return dataset;
  if (!dataset.contains("train")) dataset["train"] = dataset["validation"];
  if (!dataset.contains("validation")) dataset["validation"] = dataset["train"];
  return dataset;
}

}  // namespace sgd::job
