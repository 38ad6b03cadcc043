#include "common/job/job_schema.hpp"

#include <utility>

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "common/json/extension.hpp"

namespace sgd::job {

const json::Schema& job_schema() {
  // Never destroyed: the end of every process would wait for it.
  static const json::Schema& schema = *new json::Schema(nlohmann::json::parse(kSchemaText));
  return schema;
}

namespace {

/// A loss is a name or an object.
nlohmann::json& node_of(nlohmann::json& training, const std::string& kind) {
  return kind == "loss" ? training[kind]["oneOf"][1] : training[kind];
}

}  // namespace

const nlohmann::json& types_of(const json::Schema& schema, const std::string& kind) {
  const nlohmann::json& node = schema.root().at("properties").at("training").at("properties").at(kind);
  return (kind == "loss" ? node.at("oneOf").at(1) : node).at("oneOf");
}

json::Schema job_schema_with(const nlohmann::json& registered) {
  nlohmann::json root = job_schema().root();
  nlohmann::json& training = root["properties"]["training"]["properties"];
  for (const auto& [kind, types] : registered.items()) {
    if (!training.contains(kind)) continue;
    nlohmann::json& node = node_of(training, kind);
    for (const auto& [name, properties] : types.items()) {
      nlohmann::json all = properties;
      // What every model may begin with, where its own settings have no other meaning for the key.
      if (kind == "model") {
        for (const char* key : {"init", "weights"})
          if (!all.contains(key)) all[key] = {{"$ref", fmt::format("#/definitions/{}", key)}};
      }
      node["oneOf"].push_back(json::variant_of(name, all));
      if (kind == "dataset") training["datasets"]["additionalProperties"]["oneOf"].push_back(node["oneOf"].back());
    }
  }
  for (const char* kind : {"model", "operator", "function", "dataset", "loss"}) node_of(training, kind).erase("x-open");
  training["datasets"]["additionalProperties"].erase("x-open");
  return json::Schema(std::move(root));
}

}  // namespace sgd::job
