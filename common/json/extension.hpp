#pragma once
// What a plug-in says of the settings of something that it registers: the properties of a JSON object in a subset of
// what json/schema.hpp reads. It comes from a file of the user's, so it is looked at before a schema takes it.

#include <string>

#include "common/json/nlohmann.hpp"

namespace sgd::json {

/// Why `properties` cannot stand in a schema: keys to objects with type or enum, and title, description, examples,
/// default, minimum, maximum, exclusiveMinimum, exclusiveMaximum, minLength, maxLength, minItems, maxItems, items,
/// x-path; defaults must fit. Empty: they can.
[[nodiscard]] std::string fault_of_properties(const nlohmann::json& properties);

/// The object {"type": name, ...properties} as a variant of a oneOf. `properties` must be without fault.
[[nodiscard]] nlohmann::json variant_of(const std::string& name, const nlohmann::json& properties);

}  // namespace sgd::json
