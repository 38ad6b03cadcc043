#include "worker/torch/optimizer_record.hpp"

#include <stdexcept>

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::worker {
namespace {

std::string names_of(const std::vector<OptimizerKind>& kinds) {
  std::string names;
  for (const OptimizerKind& one : kinds)
    names += fmt::format("{}\"{}\" ({})", names.empty() ? "" : ", ", one.name, one.type);
  return names;
}

}  // namespace

void check_same_optimizers(const std::vector<OptimizerRecord>& written, const std::vector<OptimizerKind>& jobs) {
  std::vector<OptimizerKind> kinds;
  for (const OptimizerRecord& record : written) kinds.push_back({record.name, record.type});
  // One that has no name was the only one.
  if (kinds.size() == 1 && jobs.size() == 1 && kinds[0].name.empty()) kinds[0].name = jobs[0].name;
  if (kinds == jobs) return;
  throw std::runtime_error(
      fmt::format("was written by the optimizers {}, the job has {}", names_of(kinds), names_of(jobs)));
}

nlohmann::json to_json(const OptimizerRecord& record) {
  nlohmann::json json;
  json["name"] = record.name;
  json["type"] = record.type;
  json["steps"] = record.steps;
  if (!record.parameter_steps.empty()) json["parameter_steps"] = record.parameter_steps;
  json["batches"] = record.batches;
  if (record.used_rate) json["used_rate"] = *record.used_rate;
  json["schedulers"] = record.schedulers;
  json["groups"] = record.groups;
  return json;
}

OptimizerRecord optimizer_record_from(const nlohmann::json& json) {
  OptimizerRecord record;
  json.at("name").get_to(record.name);
  json.at("type").get_to(record.type);
  json.at("steps").get_to(record.steps);
  if (const nlohmann::json& steps = member(json, "parameter_steps"); !steps.is_null())
    steps.get_to(record.parameter_steps);
  json.at("batches").get_to(record.batches);
  if (const nlohmann::json& rate = member(json, "used_rate"); !rate.is_null()) record.used_rate = rate.get<double>();
  json.at("schedulers").get_to(record.schedulers);
  for (const nlohmann::json& scheduler : record.schedulers)
    (void)scheduler.at("count").get<std::int64_t>();  // There is one: ignoring its value.
  record.groups = json.at("groups");
  return record;
}

}  // namespace sgd::worker
