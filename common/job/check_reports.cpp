#include "common/job/check_reports.hpp"

#include <map>
#include <string>

#include <fmt/format.h>

#include "common/job/data_facts.hpp"
#include "common/job/metric_key.hpp"
#include "common/json/lenient.hpp"
#include "common/json/words.hpp"

namespace sgd::job {
namespace {

/// Empty: it fits.
std::string misfit_of_kind(const std::string& path, const std::string& type, const nlohmann::json& dataset) {
  if (!is_built_in_dataset(dataset) || measures_classes(type) == learns_classes(dataset)) return {};
  const bool are_numbers = !learns_classes(dataset);
  return fmt::format("{} {} measures {}, and the targets of the data set {} are {}: use {}", json::quote(path),
                     json::quote(type), are_numbers ? "classes" : "numbers", json::quote(read_or(dataset, "type", "")),
                     are_numbers ? "numbers" : "classes",
                     are_numbers ? "\"mae\", \"mse\" or \"r2\"" : "\"accuracy\" or another metric of classes");
}

std::string misfit_of_k(const std::string& path, const nlohmann::json& settings, const nlohmann::json& model) {
  const std::int64_t outputs = read_or(model, "outputs", std::int64_t{0});
  const std::int64_t k = read_or(settings, "k", std::int64_t{0});
  if (read_or(settings, "type", "") != "top_k" || outputs == 0 || k <= outputs) return {};
  return fmt::format("{} must have a \"k\" of at most {}, the model's outputs, got {}", json::quote(path), outputs, k);
}

/// The worker would find the same at the first batch.
std::string misfit_of_classes(const std::string& path, const nlohmann::json& settings, const nlohmann::json& model) {
  const std::int64_t classes = model_outputs(model);
  if (read_or(settings, "type", "") != "confusion_matrix" || classes <= kConfusionClassesMax) return {};
  return fmt::format(
      "{} \"confusion_matrix\" counts in a table of the model's {} classes by as many, at most {} can be: leave the "
      "metric out",
      json::quote(path), classes, kConfusionClassesMax);
}

}  // namespace

std::string misfit_of_ignored(const std::string& path, const nlohmann::json& settings, const nlohmann::json& dataset) {
  constexpr std::int64_t kNoClass = -100;  // As PyTorch's losses ignore it by default.
  const std::int64_t ignored = read_or(settings, "ignore_index", kNoClass);
  if (read_or(dataset, "type", "") != "image_masks" || ignored == kNoClass) return {};
  return fmt::format(
      "{} must be {} with the data set \"image_masks\", which gives that to pixels of \"training.dataset.ignore\": "
      "remove it; got {}",
      json::quote(path), kNoClass, ignored);
}

std::vector<Misfit> metric_misfits(const nlohmann::json& metrics, const nlohmann::json& dataset,
                                   const nlohmann::json& model) {
  std::vector<Misfit> found;
  std::map<std::string, std::size_t> first_of;
  for (std::size_t at = 0; at < metrics.size(); ++at) {
    const nlohmann::json& one = metrics[at];
    const std::string path = fmt::format("training.metrics[{}]", at);
    const std::string key = metric_key(one);
    const auto [first, is_new] = first_of.try_emplace(key, at);
    std::string message;
    if (!is_new)
      message = fmt::format("{} has the name of \"training.metrics[{}]\" in reports, {}: remove one", json::quote(path),
                            first->second, json::quote(key));
    if (message.empty()) message = misfit_of_kind(path, read_or(one, "type", ""), dataset);
    if (message.empty()) message = misfit_of_k(path, one, model);
    if (message.empty()) message = misfit_of_classes(path, one, model);
    if (message.empty()) message = misfit_of_ignored(path + ".ignore_index", one, dataset);
    if (!message.empty()) found.push_back({path, std::move(message)});
  }
  return found;
}

std::vector<Misfit> report_misfits(const nlohmann::json& report, std::int64_t num_workers) {
  const nlohmann::json& workers = member(report, "workers");
  const std::string path = "report.workers";
  if (workers.is_string() && (workers == "all" || workers == "list") && num_workers > kListedWorkersMax)
    return {{path, fmt::format("{} must be \"reduced\", \"rank0\" or a list of ranks with more than {} workers, got {}",
                               json::quote(path), kListedWorkersMax, json::shown(workers))}};
  std::vector<Misfit> found;
  std::map<std::int64_t, std::size_t> seen;
  for (std::size_t at = 0; workers.is_array() && at < workers.size(); ++at) {
    const auto rank = workers[at].get<std::int64_t>();
    const std::string place = fmt::format("report.workers[{}]", at);
    if (rank >= num_workers)
      found.push_back(
          {place, fmt::format("{} must be below \"num_workers\" ({}), got {}", json::quote(place), num_workers, rank)});
    else if (!seen.try_emplace(rank, at).second)
      found.push_back({place, fmt::format("{} names rank {} again: remove one", json::quote(place), rank)});
  }
  return found;
}

}  // namespace sgd::job
