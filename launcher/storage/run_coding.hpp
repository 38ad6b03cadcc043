#pragma once
// The parts of the coordinator's events as JSON: what defines a run, why it is to stop,
// what is wanted of a node, and what is known of it.

#include <initializer_list>
#include <string>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "common/messages/codec.hpp"
#include "launcher/core/coordinator_io.hpp"

namespace sgd::storage {

/// The value under `key`, which must be there.
template <class T>
[[nodiscard]] Status read_key(const nlohmann::json& object, const char* key, T& out) {
  const auto value = object.find(key);
  if (value == object.end()) return Error{std::string("\"") + key + "\" is missing"};
  return codec::read(*value, key, out);
}

[[nodiscard]] Status first_error(std::initializer_list<Status> statuses);

[[nodiscard]] nlohmann::json to_json(const core::RunDefinition& run);
[[nodiscard]] Result<core::RunDefinition> run_definition_of(const nlohmann::json& json);
[[nodiscard]] nlohmann::json to_json(const core::StopRequest& request);
[[nodiscard]] Status read_stop_request(const nlohmann::json& json, core::StopRequest& out);
[[nodiscard]] nlohmann::json to_json(const core::NodeOrder& order);
[[nodiscard]] Status read_node_order(const nlohmann::json& json, core::NodeOrder& out);
[[nodiscard]] nlohmann::json to_json(const core::KnownNode& node);
[[nodiscard]] Status read_known_node(const nlohmann::json& json, core::KnownNode& out);
[[nodiscard]] nlohmann::json to_json(const core::KnownCondition& condition);
[[nodiscard]] Status read_known_condition(const nlohmann::json& json, core::KnownCondition& out);

}  // namespace sgd::storage
