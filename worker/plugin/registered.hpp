#pragma once
// What this process knows by name beside the built-in types: what plug-ins, and the program itself, have registered.
// One table a process, since libraries register while they are loaded, before anybody could hand them another.

#include <map>
#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"
#include "sgd/registry.hpp"
#include "worker/plugin/registered_names.hpp"

namespace sgd::worker {

struct RegisteredTypes {
  std::map<std::string, OperatorFactory> operators;
  std::map<std::string, ModelFactory> models;
  std::map<std::string, TrainingFunction> functions;
  std::map<std::string, sgd::DatasetFactory> datasets;
  std::map<std::string, IterableFactory> streams;  ///< Data sets, too: a job names either by "dataset".
  std::map<std::string, LossFactory> losses;
  /// {"operator": {NAME: PROPERTIES}, "model": {...}}, as job::Registered.
  nlohmann::json properties = {{"operator", nlohmann::json::object()},
                               {"model", nlohmann::json::object()},
                               {"function", nlohmann::json::object()},
                               {"dataset", nlohmann::json::object()},
                               {"loss", nlohmann::json::object()}};
  std::vector<std::string> faults;  ///< What was registered wrongly, in words.
};

[[nodiscard]] RegisteredTypes& registered_types();

}  // namespace sgd::worker
