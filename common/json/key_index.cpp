#include "common/json/key_index.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "common/json/schema.hpp"
#include "common/json/suggest.hpp"
#include "common/json/words.hpp"

namespace sgd::json {
namespace {

/// More occurrences than this are no advice: "type" is everywhere.
constexpr std::size_t kHomesMax = 2;

const nlohmann::json& target(const nlohmann::json& root, const nlohmann::json& node) {
  const auto reference = node.find("$ref");
  if (reference == node.end()) return node;
  return root.at(nlohmann::json::json_pointer(reference->get<std::string>().substr(1)));
}

}  // namespace

KeyIndex::KeyIndex(const nlohmann::json& root) {
  add(root, root, "", "");
  if (root.contains("x-aliases")) root["x-aliases"].get_to(aliases_);
}

void KeyIndex::add(const nlohmann::json& root, const nlohmann::json& node, const std::string& path,
                   const std::string& type) {
  const nlohmann::json& object = target(root, node);
  for (const auto& variant : object.value("oneOf", nlohmann::json::array())) {
    const nlohmann::json constant =
        target(root, variant).value("/properties/type/const"_json_pointer, nlohmann::json(""));
    add(root, variant, path, constant.get<std::string>());
  }
  if (!object.contains("properties")) return;
  for (const auto& [key, child] : object["properties"].items()) {
    occurrences_[key].push_back({path, type});
    add(root, child, joined(path, key), "");
  }
}

std::string KeyIndex::advice(const std::string& key, const std::string& path, const std::string& type,
                             const std::vector<std::string>& known) const {
  std::set<std::string> elsewhere;
  std::vector<std::string> other_types;
  const auto occurrences = occurrences_.find(key);
  if (occurrences != occurrences_.end()) {
    for (const Occurrence& occurrence : occurrences->second) {
      if (occurrence.path != path) elsewhere.insert(occurrence.path);
      if (occurrence.path == path && !type.empty()) other_types.push_back(quote(occurrence.type));
    }
  }
  if (!other_types.empty()) return fmt::format("; type {} has it", alternatives(other_types));
  const auto alias = aliases_.find(key);
  if (alias != aliases_.end()) return fmt::format("; use {}", quote(alias->second));
  if (!elsewhere.empty() && elsewhere.size() <= kHomesMax) {
    std::vector<std::string> places;
    for (const std::string& place : elsewhere) places.push_back(place.empty() ? "the top level" : quote(place));
    return fmt::format("; {} belongs {} {}", quote(key), elsewhere.contains("") ? "at" : "in", alternatives(places));
  }
  const auto near = nearest(key, known);
  if (near) return fmt::format("; did you mean {}?", quote(*near));
  return "";
}

}  // namespace sgd::json
