#include "common/job/overrides.hpp"

#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/job/job_schema.hpp"
#include "common/json/words.hpp"

namespace sgd::job {
namespace {

/// `typed` as a value of the schema's type: 1e3 is a number for epochs and a string for a name.
std::optional<nlohmann::json> typed_value(const Overrides::Set& set, const nlohmann::json& job,
                                          Diagnostics& diagnostics) {
  const bool string_wanted = job_schema().wants_string(set.path, job);
  const bool in_quotes = set.value.size() >= 2 && set.value.front() == '"';
  if (string_wanted && !in_quotes) return set.value;
  Diagnostics found;
  std::optional<json::Document> document = json::read(set.value, set.source, found);
  if (document && !found.has_errors()) return std::move(document->value);
  // What begins like a container was meant as JSON: its error helps more than "got a string".
  if (!set.value.empty() && (set.value.front() == '{' || set.value.front() == '[')) {
    for (const Diagnostic& item : found.items) {
      const std::string at = item.column > 0 ? fmt::format(" (character {})", item.column) : "";
      diagnostics.error(set.source, 0, 0, item.message + at);
    }
    return std::nullopt;
  }
  return set.value;
}

void apply(const Overrides::Set& set, json::Document& document, Diagnostics& diagnostics) {
  std::optional<nlohmann::json> value = typed_value(set, document.value, diagnostics);
  if (!value) return;
  nlohmann::json* here = &document.value;
  json::SourceMap* place = &document.source_map;
  std::string path;
  for (const std::string& segment : json::split_path(set.path)) {
    if (segment.empty()) {
      diagnostics.error(set.source, 0, 0, "the path must be keys with dots between them, such as training.epochs");
      return;
    }
    if (!here->is_object()) {
      diagnostics.error(set.source, 0, 0, fmt::format("{} is not an object", json::quote(path)));
      return;
    }
    path = json::joined(path, segment);
    if (!here->contains(segment)) {
      // A key on the way: what it is without the override, so that only the named value changes.
      nlohmann::json initial = job_schema().default_at(path, document.value);
      (*here)[segment] = initial.is_null() ? nlohmann::json::object() : std::move(initial);
      place->members[segment].source = set.source;
    }
    here = &(*here)[segment];
    place = &place->members[segment];
  }
  *here = std::move(*value);
  *place = json::SourceMap{};
  place->source = set.source;
}

}  // namespace

void apply_overrides(const Overrides& overrides, json::Document& document, Diagnostics& diagnostics) {
  if (!document.value.is_object()) return;  // The schema says so.
  for (const Overrides::Set& set : overrides.sets) apply(set, document, diagnostics);
}

}  // namespace sgd::job
