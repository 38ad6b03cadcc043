#include "common/messages/codec.hpp"

#include <cmath>
#include <limits>

#include "common/json/shallow.hpp"

namespace sgd::codec {
namespace {

/// As Python's json prints them.
constexpr const char* kInfinity = "Infinity";
constexpr const char* kMinusInfinity = "-Infinity";

}  // namespace

Result<Json> parse_object(std::string_view text, int depth_max) {
  if (bracket_depth(text) > depth_max) {
    return Error{"message is nested deeper than " + std::to_string(depth_max) + " levels"};
  }
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (parsed.is_discarded()) return Error{"message is not JSON"};
  if (!parsed.is_object()) return Error{std::string("message must be an object, got ") + json::type_in_words(parsed)};
  return parsed;
}

std::string print(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void nulls_to_nan(Json& object) {
  for (auto& value : object) {
    if (value.is_null()) value = std::numeric_limits<double>::quiet_NaN();
  }
}

void infinities_to_text(Json& object) {
  for (auto& value : object) {
    if (!value.is_number_float() || !std::isinf(value.get<double>())) continue;
    value = value.get<double>() > 0 ? kInfinity : kMinusInfinity;
  }
}

void infinity_texts_to_null(Json& object) {
  for (auto& value : object) {
    if (infinity_of(value)) value = nullptr;
  }
}

std::optional<double> infinity_of(const Json& value) {
  if (!value.is_string()) return std::nullopt;
  if (value == kInfinity) return std::numeric_limits<double>::infinity();
  if (value == kMinusInfinity) return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

}  // namespace sgd::codec
