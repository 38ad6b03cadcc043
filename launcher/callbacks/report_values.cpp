#include "launcher/callbacks/report_values.hpp"

#include <algorithm>
#include <cstdint>

namespace sgd::callbacks {
namespace {

constexpr const char* kWorkers = "workers";

void flatten(const Report& values, const std::string& front, std::vector<std::pair<std::string, const Report*>>& out) {
  for (const auto& [key, value] : values.items()) {
    if (value.is_object()) {
      flatten(value, front + key + "/", out);
    } else {
      out.emplace_back(front + key, &value);
    }
  }
}

bool wants_place(const nlohmann::json& workers, std::size_t place) {
  if (workers.is_array())
    return std::any_of(workers.begin(), workers.end(), [place](const nlohmann::json& one) { return one == place; });
  return workers.is_string() || workers == place;
}

/// The workers that `report` lists; null: it lists none.
const Report* listed_workers(const Report& report) {
  const auto given = report.find(kWorkers);
  const bool has_workers = given != report.end() && given->is_array() && !given->empty() &&
                           std::all_of(given->begin(), given->end(), [](const Report& one) { return one.is_object(); });
  return has_workers ? &*given : nullptr;
}

}  // namespace

std::vector<std::pair<std::string, const Report*>> flat_values(const Report& report) {
  std::vector<std::pair<std::string, const Report*>> out;
  if (report.is_object()) flatten(report, "", out);
  return out;
}

/// One pass: after a mismatch the last * takes one letter more.
bool matches_pattern(std::string_view name, std::string_view pattern) {
  std::size_t at = 0;
  std::size_t in = 0;
  std::size_t star = std::string_view::npos;
  std::size_t after_star = 0;
  while (at < name.size()) {
    if (in < pattern.size() && pattern[in] == '*') {
      star = in++;
      after_star = at;
    } else if (in < pattern.size() && pattern[in] == name[at]) {
      ++in;
      ++at;
    } else if (star != std::string_view::npos) {
      in = star + 1;
      at = ++after_star;
    } else {
      return false;
    }
  }
  while (in < pattern.size() && pattern[in] == '*') ++in;
  return in == pattern.size();
}

bool is_mark(std::string_view name) {
  return name.starts_with('_') || name == "phase" || name == "epoch" || name == "step";
}

NameFilter::NameFilter(const nlohmann::json& callback) {
  if (!callback.contains("metrics")) return;
  for (const nlohmann::json& name : callback["metrics"])
    if (name.is_string()) patterns_.push_back(name.get<std::string>());
}

bool NameFilter::takes(const std::string& path) const {
  return patterns_.empty() || std::any_of(patterns_.begin(), patterns_.end(), [&path](const std::string& pattern) {
           return matches_pattern(path, pattern);
         });
}

Report NameFilter::taken(const Report& values, const std::string& front) const {
  Report out = Report::object();
  for (const auto& [key, value] : values.items()) {
    if (value.is_object()) {
      Report inner = taken(value, front + key + "/");
      if (!inner.empty()) out[key] = std::move(inner);
    } else if (takes(front + key) || (front.empty() && is_mark(key))) {
      out[key] = value;
    }
  }
  return out;
}

Report NameFilter::of(const Report& report) const {
  return patterns_.empty() || !report.is_object() ? report : taken(report, "");
}

Report worker_results(const Report& report, const nlohmann::json& workers) {
  const Report* listed = listed_workers(report);
  Report results = Report::array();
  if (listed == nullptr) {
    results.push_back(report);
    return results;
  }
  Report common = report;
  common.erase(kWorkers);
  for (std::size_t place = 0; place < listed->size(); ++place) {
    if (!wants_place(workers, place)) continue;
    Report result = common;
    result.update((*listed)[place]);
    results.push_back(std::move(result));
  }
  return results;
}

Report single_result(const Report& report) {
  const Report* listed = listed_workers(report);
  if (listed == nullptr) return report;
  Report result = report;
  result.erase(kWorkers);
  for (const auto& [key, value] : listed->front().items())
    if (!result.contains(key)) result[key] = value;
  return result;
}

}  // namespace sgd::callbacks
