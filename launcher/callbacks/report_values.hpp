#pragma once
// A report as other tools see it: values by their paths, and those that a callback asks for. Knows no key but those
// that tell one report from another; what ranks report is theirs.

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "common/json/nlohmann.hpp"

namespace sgd::callbacks {

using Report = nlohmann::ordered_json;

/// A report's values that are no objects, by their paths: {"a": {"b": 1}} has "a/b". They point into `report`.
[[nodiscard]] std::vector<std::pair<std::string, const Report*>> flat_values(const Report& report);

/// Whether `name` is what `pattern` says, in which * stands for any letters, also none.
[[nodiscard]] bool matches_pattern(std::string_view name, std::string_view pattern);

/// What tells one report from another: phase, epoch, step, and names that begin with _.
[[nodiscard]] bool is_mark(std::string_view name);

/// Of a callback's "metrics".
class NameFilter {
 public:
  /// `callback`: the job's; without "metrics" everything is taken.
  explicit NameFilter(const nlohmann::json& callback);

  [[nodiscard]] bool takes(const std::string& path) const;
  /// What of `report` is taken, and its marks.
  [[nodiscard]] Report of(const Report& report) const;

 private:
  [[nodiscard]] Report taken(const Report& values, const std::string& front) const;

  std::vector<std::string> patterns_;  ///< Empty: all.
};

/// The results in `report`, RaySGD's list of dicts: of a report with the "workers" of the run, those that `workers`
/// names (a place in that list, several, "all"), each with what the workers have in common; else the report itself.
[[nodiscard]] Report worker_results(const Report& report, const nlohmann::json& workers);

/// One value of each metric: of a report with the "workers" of the run the one that they have in common, else the first
/// worker's.
[[nodiscard]] Report single_result(const Report& report);

}  // namespace sgd::callbacks
