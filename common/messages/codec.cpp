#include "common/messages/codec.hpp"

#include "common/json/shallow.hpp"

namespace sgd::codec {

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

}  // namespace sgd::codec
