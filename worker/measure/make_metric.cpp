#include <stdexcept>

#include "sgd/metrics.hpp"

namespace sgd {
namespace {

IgnoreIndex ignore_index_in(const nlohmann::json& settings) {
  const auto found = settings.find("ignore_index");
  if (found == settings.end() || found->is_null()) return std::nullopt;
  return found->get<std::int64_t>();
}

Average average_in(const nlohmann::json& settings) {
  const std::string average = settings.value("average", "macro");
  if (average == "macro") return Average::kMacro;
  if (average == "micro") return Average::kMicro;
  if (average == "per_class") return Average::kPerClass;
  throw std::invalid_argument("the average \"" + average + "\" is none of \"macro\", \"micro\" and \"per_class\"");
}

std::unique_ptr<Metric> made_of(const std::string& type, const nlohmann::json& settings) {
  const IgnoreIndex ignore_index = ignore_index_in(settings);
  if (type == "accuracy") return std::make_unique<Accuracy>(ignore_index);
  if (type == "top_k") return std::make_unique<TopK>(settings.value("k", std::int64_t{5}), ignore_index);
  if (type == "precision") return std::make_unique<Precision>(average_in(settings), ignore_index);
  if (type == "recall") return std::make_unique<Recall>(average_in(settings), ignore_index);
  if (type == "f_beta") return std::make_unique<FBeta>(settings.value("beta", 1.0), average_in(settings), ignore_index);
  if (type == "confusion_matrix")
    return std::make_unique<ConfusionMatrix>(settings.value("matrix", true), ignore_index);
  if (type == "perplexity") return std::make_unique<Perplexity>(ignore_index);
  if (type == "mae") return std::make_unique<MeanError>(MeanError::Kind::kAbsolute);
  if (type == "mse") return std::make_unique<MeanError>(MeanError::Kind::kSquared);
  if (type == "r2") return std::make_unique<R2>();
  throw std::invalid_argument("unknown metric \"" + type + "\"");
}

}  // namespace

std::unique_ptr<Metric> make_metric(const nlohmann::json& settings) {
  try {
    return made_of(settings.at("type").get<std::string>(), settings);
  } catch (const nlohmann::json::exception&) {
    throw std::invalid_argument("the settings of a metric have no \"type\", or a value of a wrong kind: " +
                                settings.dump());
  }
}

}  // namespace sgd
