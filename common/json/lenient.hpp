#pragma once
// Reading JSON that another version, or nobody in his right mind, may have written: files of a run, answers of another
// process. Nothing here throws: a value that is missing or of a wrong type is left alone.

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

#include "common/json/nlohmann.hpp"

namespace sgd {

/// In place of a JSON library's exception, whose text is for programmers: "bad request: ...".
inline constexpr const char* kWrongShape = "a key is missing, or a value has a wrong type";

/// Sets `value` to json[key] when that is there and of its type; a number that `value` cannot hold is not. `json` is
/// anything.
template <class Json, class Value>
void read_if_fits(const Json& json, const char* key, Value& value) {
  const auto place = json.find(key);
  if (place == json.end()) return;
  if constexpr (std::is_same_v<Value, bool>) {
    if (place->is_boolean()) value = place->template get<bool>();
  } else if constexpr (std::is_integral_v<Value>) {
    if (place->is_number_unsigned()) {
      const auto number = place->template get<std::uint64_t>();
      if (std::in_range<Value>(number)) value = static_cast<Value>(number);
    } else if (place->is_number_integer()) {
      const auto number = place->template get<std::int64_t>();
      if (std::in_range<Value>(number)) value = static_cast<Value>(number);
    } else if (place->is_number_float()) {  // 1.0 is a number of epochs, too.
      const double number = place->template get<double>();
      constexpr double kEnd = 9007199254740992.0;  // What a double counts to without a gap.
      if (number > -kEnd && number < kEnd && std::in_range<Value>(static_cast<std::int64_t>(number)))
        value = static_cast<Value>(number);
    }
  } else if constexpr (std::is_floating_point_v<Value>) {
    if (place->is_number()) value = place->template get<Value>();
  } else {
    static_assert(std::is_same_v<Value, std::string>);
    if (place->is_string()) value = place->template get<std::string>();
  }
}

/// json[key] when it is there and of the type of `otherwise`, else that.
template <class Json, class Value>
[[nodiscard]] Value read_or(const Json& json, const char* key, Value otherwise) {
  read_if_fits(json, key, otherwise);
  return otherwise;
}

template <class Json>
[[nodiscard]] std::string read_or(const Json& json, const char* key, const char* otherwise) {
  return read_or(json, key, std::string(otherwise));
}

/// json[key]; null when `json` is no object or has none.
template <class Json>
[[nodiscard]] const Json& member(const Json& json, const char* key) {
  static const Json kNone;
  const auto place = json.find(key);
  return place == json.end() ? kNone : *place;
}

/// Its text; bytes that are no UTF-8, as a name on a command line may have, are replaced.
template <class Json>
[[nodiscard]] std::string dump_text(const Json& json, int indent = -1) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace sgd
