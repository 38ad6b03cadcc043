#pragma once
// What a job file can name: models, data sets, optimizers and so on with their keys, as the schema has them, of
// plug-ins too where the schema has been extended by them. Pure; for `sgd-worker --list`.

#include <optional>
#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"
#include "common/json/schema.hpp"

namespace sgd::job {

struct ListedKey {
  std::string name;
  std::string values;       ///< In words: "integer from 1", "\"a\" or \"b\"".
  nlohmann::json fallback;  ///< What holds without the key; null: nothing.
  bool is_required = false;
  std::string description;
};

struct ListedType {
  std::string name;
  std::string description;
  std::vector<ListedKey> keys;
};

/// "models", "datasets", ...: what can be listed.
[[nodiscard]] std::vector<std::string> listed_kinds();

/// The types of one kind, by name; nothing for an unknown kind.
[[nodiscard]] std::optional<std::vector<ListedType>> list_types(const json::Schema& schema, const std::string& kind);

/// Aligned columns: a line for each type, and one for each of its keys below it.
[[nodiscard]] std::string as_text(const std::vector<ListedType>& types);
/// [{"name", "description", "keys": [{"name", "values", "default", "required", "description"}]}]; without "default"
/// where there is none.
[[nodiscard]] nlohmann::ordered_json as_json(const std::vector<ListedType>& types);

}  // namespace sgd::job
