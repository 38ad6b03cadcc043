#pragma once
// Where each key of a schema has its place, and what other tools call it: the memory behind
// advice on unknown keys. Built from the schema where a document has such a key; holds no second list of keys.

#include <map>
#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"

namespace sgd::json {

class KeyIndex {
 public:
  explicit KeyIndex(const nlohmann::json& root);

  /// What to do about `key`, unknown in the object at `path` of variant `type` (or ""), whose keys are
  /// `known`: "; did you mean ...", or "".
  [[nodiscard]] std::string advice(const std::string& key, const std::string& path, const std::string& type,
                                   const std::vector<std::string>& known) const;

 private:
  struct Occurrence {
    std::string path;  ///< Of the object that has the key; "" for the root.
    std::string type;  ///< Of the variant that has it, or "".
  };
  void add(const nlohmann::json& root, const nlohmann::json& node, const std::string& path, const std::string& type);

  std::map<std::string, std::vector<Occurrence>> occurrences_;
  std::map<std::string, std::string> aliases_;
};

}  // namespace sgd::json
