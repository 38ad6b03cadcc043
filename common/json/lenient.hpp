#pragma once
// Reading JSON that another version may have written: a value that is missing or of a wrong type is left alone.

#include <string>
#include <type_traits>

#include "common/json/nlohmann.hpp"

namespace sgd {

/// Sets `value` to json[key] when that is there and of its type. `json` is an object.
template <class Json, class Value>
void read_if_fits(const Json& json, const char* key, Value& value) {
  const auto place = json.find(key);
  if (place == json.end()) return;
  if constexpr (std::is_same_v<Value, bool>) {
    if (place->is_boolean()) value = place->template get<bool>();
  } else if constexpr (std::is_arithmetic_v<Value>) {
    if (place->is_number()) value = place->template get<Value>();
  } else {
    static_assert(std::is_same_v<Value, std::string>);
    if (place->is_string()) value = place->template get<std::string>();
  }
}

}  // namespace sgd
