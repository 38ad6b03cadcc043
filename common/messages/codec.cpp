#include "common/messages/codec.hpp"

#include <algorithm>

namespace sgd::codec {
namespace {

/// Deepest nesting of brackets outside strings, without recursion and before anything is built.
int bracket_depth(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      deepest = std::max(deepest, ++depth);
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return deepest;
}

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

}  // namespace sgd::codec
