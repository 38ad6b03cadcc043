#pragma once
// Files of JSON lines, as a run leaves them: whoever was killed may have left half a line.

#include <fstream>
#include <string>
#include <utility>

#include "common/json/shallow.hpp"

namespace sgd::cli {

/// Calls `take` with each line that is a JSON object, in their order. False: the file cannot be opened.
template <class Take>
bool each_object(const std::string& path, Take take) {
  std::ifstream file(path);
  if (!file) return false;
  for (std::string line; std::getline(file, line);) {
    auto object = parse_shallow<nlohmann::ordered_json>(line);
    if (object.is_object()) take(std::move(object));
  }
  return true;
}

}  // namespace sgd::cli
