#include "common/job/check_validation.hpp"

#include <cstddef>

#include <fmt/format.h>

#include "common/job/named_datasets.hpp"
#include "common/job/sound.hpp"
#include "common/json/lenient.hpp"
#include "common/json/words.hpp"

namespace sgd::job {

void check_validation(const nlohmann::json& job, const std::vector<std::string>& rejected, const json::SourceMap& root,
                      const std::string& source, Diagnostics& diagnostics) {
  const Sound sound(job, rejected);
  const nlohmann::json* training = sound.at("training");
  // A function validates by itself, if at all.
  if (training == nullptr || training->contains("function") || !lacks_validation(*training)) return;
  const std::string data = training->contains("datasets") ? "training.datasets" : "training.dataset";
  if (sound.is_touched(data)) return;
  Reporter report(root, source, diagnostics);
  const auto refuse = [&](const std::string& path) {
    report.error_at_value(path,
                          fmt::format("{} needs validation, and {} has no \"validation\": add it, or leave this out",
                                      json::quote(path), json::quote(data)));
  };
  const nlohmann::json* early_stop = sound.at("training.early_stop");
  if (early_stop != nullptr && !early_stop->is_null()) refuse("training.early_stop");
  const nlohmann::json* only = sound.at("training.validate_only");
  if (only != nullptr && *only == true) refuse("training.validate_only");
  const nlohmann::json* scheduler = sound.at("training.scheduler.type");
  if (scheduler != nullptr && *scheduler == "reduce_on_plateau") refuse("training.scheduler.type");
  const nlohmann::json* metrics = sound.is_touched("training.metrics") ? nullptr : sound.at("training.metrics");
  if (metrics == nullptr || !metrics->is_array()) return;
  for (std::size_t i = 0; i < metrics->size(); ++i)
    if (read_or((*metrics)[i], "on", "validation") == "validation") refuse(fmt::format("training.metrics[{}]", i));
}

}  // namespace sgd::job
