#include "common/json/extension.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "common/json/schema.hpp"

namespace sgd::json {
namespace {

using nlohmann::json;

constexpr const char* kTypes[] = {"object", "array", "string", "boolean", "integer", "number"};

bool is_type(const json& value) {
  return value.is_string() && std::find(std::begin(kTypes), std::end(kTypes), value) != std::end(kTypes);
}

bool is_list_of_strings(const json& value) {
  return value.is_array() && !value.empty() &&
         std::all_of(value.begin(), value.end(), [](const json& one) { return one.is_string(); });
}

bool is_any(const json&) {
  return true;
}

/// What may be said of a key, and what is a right value of it.
const std::map<std::string, bool (*)(const json&)>& known_words() {
  const auto is_text = [](const json& value) { return value.is_string(); };
  const auto is_number = [](const json& value) { return value.is_number(); };
  const auto is_size = [](const json& value) { return value.is_number_unsigned(); };
  const auto is_flag = [](const json& value) { return value.is_boolean(); };
  static const std::map<std::string, bool (*)(const json&)> known = {{"type", is_type},
                                                                     {"enum", is_list_of_strings},
                                                                     {"items", is_any},
                                                                     {"default", is_any},
                                                                     {"examples", is_any},
                                                                     {"title", is_text},
                                                                     {"description", is_text},
                                                                     {"minimum", is_number},
                                                                     {"maximum", is_number},
                                                                     {"minLength", is_size},
                                                                     {"exclusiveMinimum", is_number},
                                                                     {"exclusiveMaximum", is_number},
                                                                     {"maxLength", is_size},
                                                                     {"minItems", is_size},
                                                                     {"maxItems", is_size},
                                                                     {"x-path", is_flag}};
  return known;
}

std::string fault_of(const std::string& key, const json& node) {
  if (!node.is_object()) return fmt::format("what it says of \"{}\" is no JSON object", key);
  for (const auto& [word, value] : node.items()) {
    const auto found = known_words().find(word);
    if (found == known_words().end()) return fmt::format("\"{}\" of \"{}\" is not known here", word, key);
    if (!found->second(value)) return fmt::format("\"{}\" of \"{}\" cannot be {}", word, key, value.dump());
  }
  const std::string type = node.value("type", std::string());
  if (type.empty() == !node.contains("enum"))
    return fmt::format("\"{}\" has neither \"type\" nor \"enum\", or both", key);
  if (node.contains("items") != (type == "array"))
    return fmt::format("\"items\" of \"{}\": exactly arrays have them", key);
  if (node.value("x-path", false) && type != "string") return fmt::format("\"x-path\" of \"{}\" is for strings", key);
  return node.contains("items") ? fault_of(key + "[]", node["items"]) : std::string();
}

}  // namespace

std::string fault_of_properties(const json& properties) {
  if (!properties.is_object()) return "it is no JSON object of keys and what they may be";
  Document defaults;
  defaults.value = json::object();
  for (const auto& [key, node] : properties.items()) {
    if (key.empty() || key == "type" || key.find_first_of(".[") != std::string::npos)
      return fmt::format("no key may be called \"{}\"", key);
    if (std::string fault = fault_of(key, node); !fault.empty()) return fault;
    if (node.contains("default")) defaults.value[key] = node["default"];
  }
  const Schema schema({{"type", "object"}, {"properties", properties}});
  Diagnostics wrong;
  (void)schema.check(defaults, "", wrong);
  return wrong.has_errors() ? "a default does not fit: " + wrong.items.front().message : std::string();
}

json variant_of(const std::string& name, const json& properties) {
  json all = properties;
  all["type"] = {{"const", name}};
  return {{"type", "object"}, {"additionalProperties", false}, {"required", {"type"}}, {"properties", std::move(all)}};
}

}  // namespace sgd::json
