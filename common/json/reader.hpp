#pragma once
// The strict JSON reader: text to a value and the place of every key and value in it.
// Comments (`//` and `/* */`) are allowed; duplicate keys, deep nesting, NUL bytes, invalid UTF-8
// and anything after the value are errors with their line and column. No schema here.
//
// Nesting is bounded while reading, so everything behind the reader may recurse.

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "common/json/diagnostics.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::json {

inline constexpr int kDepthMax = 64;

struct Position {
  int line = 0;    ///< From 1; 0: unknown.
  int column = 0;  ///< From 1, in bytes.
};

/// Where a value stands, and the places of what is in it.
struct SourceMap {
  std::string source;                                     ///< Empty: that of the value around it.
  Position key;                                           ///< Of the key before it; none in arrays and at the root.
  Position value;                                         ///< Of its first character.
  std::map<std::string, SourceMap, std::less<>> members;  ///< Of an object.
  std::vector<SourceMap> items;                           ///< Of an array.
};

struct Document {
  nlohmann::json value;
  SourceMap source_map;
};

/// Errors go to `diagnostics`, under `source`. Nothing when the text is no JSON; with duplicate keys, which
/// are errors too, the last one's value, so that the rest can be checked.
[[nodiscard]] std::optional<Document> read(std::string_view text, const std::string& source, Diagnostics& diagnostics);

}  // namespace sgd::json
