#include "common/json/diagnostics.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace sgd {

std::string Diagnostic::text() const {
  std::string place = source;
  if (line > 0) place += fmt::format(":{}", line);
  if (line > 0 && column > 0) place += fmt::format(":{}", column);
  return fmt::format("{}: {}: {}", place, warning ? "warning" : "error", message);
}

void Diagnostics::error(std::string source, int line, int column, std::string message) {
  items.push_back({std::move(source), line, column, std::move(message), false});
}

void Diagnostics::warn(std::string source, int line, int column, std::string message) {
  items.push_back({std::move(source), line, column, std::move(message), true});
}

bool Diagnostics::has_errors() const {
  return std::any_of(items.begin(), items.end(), [](const Diagnostic& item) { return !item.warning; });
}

}  // namespace sgd
