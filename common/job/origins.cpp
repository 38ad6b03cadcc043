#include "common/job/origins.hpp"

#include <fmt/format.h>

#include "common/job/cross_checks.hpp"
#include "common/json/schema.hpp"

namespace sgd::job {
namespace {

/// Adds what is in `value`; `given` is its counterpart before the defaults, null where there was none.
void add(const std::string& path, const nlohmann::json& value, const nlohmann::json* given, const LoadResult& loaded,
         std::vector<Setting>& out) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, member] : value.items()) {
      const bool is_given = given != nullptr && given->is_object() && given->contains(key);
      add(path.empty() ? key : json::joined(path, key), member, is_given ? &given->at(key) : nullptr, loaded, out);
    }
    return;
  }
  Setting setting{path, value, "default"};
  if (given != nullptr) {
    const SourceLocation location = find_location(loaded.given.source_map, loaded.source, path);
    setting.origin = location.value.line > 0 && location.source == loaded.source
                         ? fmt::format("{}:{}", location.source, location.value.line)
                         : location.source;
  }
  out.push_back(std::move(setting));
}

}  // namespace

std::vector<Setting> settings(const LoadResult& loaded) {
  std::vector<Setting> out;
  add("", loaded.job->resolved, &loaded.given.value, loaded, out);
  return out;
}

}  // namespace sgd::job
