#include "common/json/schema.hpp"

#include <algorithm>
#include <utility>

#include "common/base/assert.hpp"

namespace sgd::json {
namespace {

using nlohmann::json;

/// The const of a variant's "type", or null.
const json* type_constant(const json& variant) {
  const json::json_pointer pointer("/properties/type/const");
  return variant.contains(pointer) ? &variant.at(pointer) : nullptr;
}

/// Could `value` be meant as this variant, which is no oneOf? Ranges are judged later, so that they get their own
/// error.
bool fits(const json& variant, const json& value) {
  if (variant.contains("const")) return variant["const"] == value;
  if (value.is_string() && variant.value("x-any-string", false)) return true;
  if (variant.contains("enum") && !variant.contains("type")) {
    return std::find(variant["enum"].begin(), variant["enum"].end(), value) != variant["enum"].end();
  }
  if (!has_type(value, variant.at("type").get<std::string>())) return false;
  for (const auto& key : variant.value("required", json::array())) {
    if (!value.contains(key.get<std::string>())) return false;
  }
  return true;
}

}  // namespace

std::string joined(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

std::vector<std::string> split_path(std::string_view path) {
  std::vector<std::string> segments;
  for (std::size_t begin = 0; begin <= path.size();) {
    const std::size_t end = std::min(path.find('.', begin), path.size());
    segments.emplace_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return segments;
}

bool has_type(const json& value, const std::string& type) {
  if (type == "object") return value.is_object();
  if (type == "array") return value.is_array();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "integer") return value.is_number_integer();
  SGD_ASSERT(type == "number");
  return value.is_number();
}

Schema::Schema(json root) : root_(std::move(root)) {}

const json& Schema::resolve(const json& node) const {
  const auto reference = node.find("$ref");
  if (reference == node.end()) return node;
  return root_.at(json::json_pointer(reference->get<std::string>().substr(1)));
}

bool Schema::discriminated(const json& one_of) const {
  return std::all_of(one_of.begin(), one_of.end(),
                     [&](const json& variant) { return type_constant(resolve(variant)) != nullptr; });
}

const json* Schema::variant_for(const json& one_of, const json& value) const {
  const bool by_type = discriminated(one_of);
  for (const json& variant : one_of) {
    const json& node = resolve(variant);
    if (by_type) {
      if (value.is_object() && value.contains("type") && value["type"] == *type_constant(node)) return &node;
    } else if (node.contains("oneOf")) {
      const json& inner = node["oneOf"];
      // Of those with a "type" which one is asked later, so that a wrong type gets its own error.
      if (discriminated(inner) ? value.is_object() : variant_for(inner, value) != nullptr) return &node;
    } else if (fits(node, value)) {
      return &node;
    }
  }
  return nullptr;
}

void Schema::complete(json& value, const std::function<std::string(const std::string&)>& absolute) const {
  complete_node(value, root_, absolute);
}

void Schema::complete_node(json& value, const json& unresolved,
                           const std::function<std::string(const std::string&)>& absolute) const {
  const json& node = resolve(unresolved);
  if (node.contains("oneOf")) {
    const json* variant = variant_for(node["oneOf"], value);
    if (variant != nullptr) complete_node(value, *variant, absolute);
    return;
  }
  if (node.value("x-path", false)) value = absolute(value.get<std::string>());
  if (value.is_array() && node.contains("items")) {
    for (json& item : value) complete_node(item, node["items"], absolute);
  }
  if (!value.is_object()) return;
  if (const auto values = node.find("additionalProperties");
      !node.contains("properties") && values != node.end() && values->is_object()) {
    for (auto& [key, item] : value.items()) complete_node(item, *values, absolute);
  }
  if (!node.contains("properties")) return;
  for (const auto& [key, child] : node["properties"].items()) {
    if (!value.contains(key)) {
      const json& described = child.contains("default") ? child : resolve(child);
      if (!described.contains("default")) continue;
      value[key] = described["default"];
    }
    complete_node(value[key], child, absolute);
  }
}

void Schema::open(const json& unresolved, const json* value, std::vector<const json*>& out) const {
  const json& node = resolve(unresolved);
  if (!node.contains("oneOf")) {
    out.push_back(&node);
  } else if (const json* variant = value == nullptr ? nullptr : variant_for(node["oneOf"], *value)) {
    open(*variant, value, out);
  } else {
    for (const json& one : node["oneOf"]) open(one, value, out);
  }
}

std::vector<const json*> Schema::nodes_at(std::string_view path, const json& value) const {
  std::vector<const json*> nodes{&root_};
  const json* here = &value;
  for (const std::string& segment : split_path(path)) {
    std::vector<const json*> objects;
    for (const json* node : nodes) open(*node, here, objects);
    nodes.clear();
    for (const json* object : objects) {
      const auto properties = object->find("properties");
      const auto values = object->find("additionalProperties");
      if (properties == object->end() && values != object->end() && values->is_object()) nodes.push_back(&*values);
      if (properties == object->end()) continue;
      const auto child = properties->find(segment);
      if (child != properties->end()) nodes.push_back(&*child);
    }
    here = here != nullptr && here->is_object() && here->contains(segment) ? &(*here)[segment] : nullptr;
  }
  return nodes;
}

bool Schema::wants_string(std::string_view path, const json& value) const {
  const std::vector<const json*> nodes = nodes_at(path, value);
  const auto only_string = [&](const json* unresolved) {
    const json& node = resolve(*unresolved);
    if (node.contains("const")) return node["const"].is_string();
    if (node.contains("enum")) return node["enum"].front().is_string();
    return node.value("type", "") == "string";
  };
  return !nodes.empty() && std::all_of(nodes.begin(), nodes.end(), only_string);
}

json Schema::default_at(std::string_view path, const json& value) const {
  for (const json* unresolved : nodes_at(path, value)) {
    const json& node = unresolved->contains("default") ? *unresolved : resolve(*unresolved);
    if (node.contains("default")) return node["default"];
  }
  return nullptr;
}

}  // namespace sgd::json
