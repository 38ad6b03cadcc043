#include "worker/torch/worker_job.hpp"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "common/job/load.hpp"
#include "common/json/lenient.hpp"
#include "worker/plugin/load_plugins.hpp"
#include "worker/plugin/registered.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {
namespace {

job::JobSpec job_of(job::LoadResult loaded) {
  if (loaded.job) return std::move(*loaded.job);
  std::string errors;
  for (const Diagnostic& item : loaded.diagnostics.items)
    if (!item.warning) errors += (errors.empty() ? "" : "; ") + item.message;
  throw ConfigurationError("this worker cannot read the job: " + errors);
}

}  // namespace

job::JobSpec read_worker_job(const nlohmann::json& resolved) {
  // With plug-ins that are not loaded yet their types are unknown, and pass.
  const nlohmann::json own = has_registered() ? registered_properties() : nlohmann::json();
  job::JobSpec job = job_of(job::load_resolved(resolved, resolved.contains("plugins") ? nlohmann::json() : own));
  if (!job.training) throw ConfigurationError("the job has no \"training\"");
  if (job.plugins.empty()) return job;
  if (Status loaded = load_plugins(job.plugins); !loaded) throw ConfigurationError(loaded.error().message);
  return job_of(job::load_resolved(resolved, registered_properties()));
}

nlohmann::json data_settings(const job::Training& training) {
  return {{"dataset", training.dataset}, {"datasets", training.datasets}};
}

bool is_built_in(const job::Training& training) {
  return training.training_operator.is_null() && training.function.is_null() &&
         !registered_types().models.contains(read_or(training.model, "type", "")) &&
         !has_registered_dataset(read_or(training.dataset, "type", "")) &&
         std::none_of(training.datasets.begin(), training.datasets.end(),
                      [](const auto& one) { return has_registered_dataset(read_or(one.second, "type", "")); }) &&
         !registered_types().losses.contains(read_or(training.loss, "type", ""));
}

const TrainingFunction* find_function(const job::Training& training) {
  if (training.function.is_null()) return nullptr;
  const std::string type = training.function.at("type");
  const auto found = registered_types().functions.find(type);
  if (found == registered_types().functions.end()) throw ConfigurationError("unknown function \"" + type + "\"");
  return &found->second;
}

std::unique_ptr<TrainingOperator> make_operator(const job::Training& training) {
  if (training.training_operator.is_null()) return std::make_unique<TrainingOperator>();
  const std::string type = training.training_operator.at("type");
  const auto found = registered_types().operators.find(type);
  if (found == registered_types().operators.end()) throw ConfigurationError("unknown operator \"" + type + "\"");
  std::unique_ptr<TrainingOperator> made = found->second();
  if (!made) throw std::logic_error("the operator \"" + type + "\": its factory has made nothing");
  return made;
}

}  // namespace sgd::worker
