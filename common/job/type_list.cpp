#include "common/job/type_list.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "common/json/words.hpp"

namespace sgd::job {
namespace {

using Json = nlohmann::json;

/// Where the schema has the types of a kind.
const std::map<std::string, const char*>& places_of_kinds() {
  static const std::map<std::string, const char*> places = {
      {"models", "model"}, {"datasets", "dataset"}, {"optimizers", "optimizer"}, {"schedulers", "scheduler"},
      {"losses", "loss"},  {"metrics", "metrics"},  {"operators", "operator"},   {"functions", "function"}};
  return places;
}

std::string range_of(const Json& node) {
  std::string text;
  const auto bound = [&](const char* key, const char* word) {
    if (node.contains(key)) text += fmt::format(" {} {}", word, node[key].dump());
  };
  bound("minimum", "from");
  bound("exclusiveMinimum", "above");
  bound("maximum", "to");
  bound("exclusiveMaximum", "below");
  return text;
}

std::string values_of(const json::Schema& schema, const Json& unresolved) {
  const Json& node = schema.resolve(unresolved);
  if (node.contains("x-expected")) return node["x-expected"].get<std::string>();
  if (node.contains("enum") || node.contains("const")) {
    std::vector<std::string> quoted;
    for (const Json& word : node.contains("enum") ? node["enum"] : Json::array({node["const"]}))
      quoted.push_back(json::shown(word));
    return json::alternatives(quoted);
  }
  if (node.contains("oneOf")) {
    std::vector<std::string> words;
    for (const Json& variant : node["oneOf"]) {
      std::string text = values_of(schema, variant);
      if (std::find(words.begin(), words.end(), text) == words.end()) words.push_back(std::move(text));
    }
    return json::alternatives(words);
  }
  const std::string type = read_or(node, "type", "");
  if (type == "array") return "list of " + values_of(schema, node.at("items"));
  if (type == "string" && read_or(node, "x-path", false)) return "path";
  return type + range_of(node);
}

/// Of `key` as its object has it, else as what it refers to does.
Json said_of(const json::Schema& schema, const Json& unresolved, const char* word) {
  if (unresolved.contains(word)) return unresolved[word];
  const Json& node = schema.resolve(unresolved);
  return node.contains(word) ? node[word] : Json();
}

std::string text_of(const Json& value) {
  return value.is_string() ? value.get<std::string>() : std::string();
}

ListedType listed_type(const json::Schema& schema, const std::string& name, const Json& variant) {
  ListedType type{name, text_of(said_of(schema, variant, "description")), {}};
  const Json required = variant.value("required", Json::array());
  for (const auto& [key, node] : variant["properties"].items()) {
    if (key == "type" || schema.resolve(node).contains("x-not-supported-yet")) continue;
    ListedKey listed{key, values_of(schema, node), said_of(schema, node, "default"), false,
                     text_of(said_of(schema, node, "description"))};
    listed.is_required = std::find(required.begin(), required.end(), key) != required.end();
    type.keys.push_back(std::move(listed));
  }
  return type;
}

/// Types below `unresolved`: objects with a const "type" in any oneOf or list, and words of an enum.
void collect(const json::Schema& schema, const Json& unresolved, std::map<std::string, ListedType>& found) {
  const Json& node = schema.resolve(unresolved);
  if (node.contains("oneOf")) {
    for (const Json& variant : node["oneOf"]) collect(schema, variant, found);
  } else if (node.contains("enum")) {
    for (const Json& word : node["enum"])
      found.try_emplace(word.get<std::string>(), ListedType{word.get<std::string>(), {}, {}});
  } else if (node.contains("items")) {
    collect(schema, node["items"], found);
  } else if (const Json name = node.value("/properties/type/const"_json_pointer, Json()); name.is_string()) {
    found.insert_or_assign(name.get<std::string>(), listed_type(schema, name.get<std::string>(), node));
  }
}

std::string fallback_text(const ListedKey& key) {
  if (key.is_required) return "required";
  return key.fallback.is_null() ? "-" : dump_text(key.fallback);
}

}  // namespace

std::vector<std::string> listed_kinds() {
  std::vector<std::string> kinds;
  for (const auto& [kind, place] : places_of_kinds()) kinds.push_back(kind);
  return kinds;
}

std::optional<std::vector<ListedType>> list_types(const json::Schema& schema, const std::string& kind) {
  const auto place = places_of_kinds().find(kind);
  if (place == places_of_kinds().end()) return std::nullopt;
  std::map<std::string, ListedType> found;
  collect(schema, schema.root().at("properties").at("training").at("properties").at(place->second), found);
  std::vector<ListedType> types;
  for (auto& [name, type] : found) types.push_back(std::move(type));
  return types;
}

std::string as_text(const std::vector<ListedType>& types) {
  std::size_t names = 0;
  std::size_t values = 0;
  std::size_t fallbacks = 0;
  for (const ListedType& type : types) {
    for (const ListedKey& key : type.keys) {
      names = std::max(names, key.name.size());
      values = std::max(values, key.values.size());
      fallbacks = std::max(fallbacks, fallback_text(key).size());
    }
  }
  std::string text;
  for (const ListedType& type : types) {
    text += type.description.empty() ? type.name + "\n" : fmt::format("{}: {}\n", type.name, type.description);
    for (const ListedKey& key : type.keys)
      text += fmt::format("  {:<{}}  {:<{}}  {:<{}}  {}\n", key.name, names, key.values, values, fallback_text(key),
                          fallbacks, key.description);
  }
  return text;
}

nlohmann::ordered_json as_json(const std::vector<ListedType>& types) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const ListedType& type : types) {
    nlohmann::ordered_json keys = nlohmann::ordered_json::array();
    for (const ListedKey& key : type.keys) {
      nlohmann::ordered_json one = {{"name", key.name}, {"values", key.values}};
      if (!key.fallback.is_null()) one["default"] = key.fallback;
      one["required"] = key.is_required;
      one["description"] = key.description;
      keys.push_back(std::move(one));
    }
    list.push_back({{"name", type.name}, {"description", type.description}, {"keys", std::move(keys)}});
  }
  return list;
}

}  // namespace sgd::job
