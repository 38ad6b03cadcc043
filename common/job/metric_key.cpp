#include "common/job/metric_key.hpp"

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::job {

std::string metric_key(const nlohmann::json& settings) {
  const std::string type = read_or(settings, "type", "");
  if (type == "top_k") return fmt::format("top_{}", read_or(settings, "k", 5));
  std::string name = type;
  if (type == "f_beta") name = fmt::format("f{:g}", read_or(settings, "beta", 1.0));
  const std::string average = read_or(settings, "average", "macro");
  return average == "macro" ? name : name + "_" + average;
}

bool measures_classes(const std::string& type) {
  return type != "mae" && type != "mse" && type != "r2";
}

}  // namespace sgd::job
