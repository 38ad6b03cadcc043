#include "launcher/cli/ray_results.hpp"

#include <array>
#include <ctime>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/cli/trial_table.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

/// What tells our reports apart, and has a name of Ray's instead.
bool is_ours(const std::string& key) {
  return key.starts_with('_') || key == "phase" || key == "generation";
}

bool belongs_to(const Json& line, const Json& before) {
  return read_or(line, "phase", "") == "validate" && read_or(before, "phase", "") == "train" &&
         read_or(line, "epoch", std::int64_t{-1}) == read_or(before, "epoch", std::int64_t{-2});
}

std::string tag_of(const RayTrial& trial) {
  std::string tag = fmt::to_string(trial.number);
  char between = '_';
  for (const auto& [name, value] : trial.parameters.items()) {
    tag += fmt::format("{}{}={}", between, name, shown_value(value));
    between = ',';
  }
  return tag;
}

/// In local time, as Ray's.
std::string date_of(std::int64_t timestamp) {
  const auto seconds = static_cast<std::time_t>(timestamp);
  std::tm parts{};
  ::localtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d_%H-%M-%S", &parts)};
}

}  // namespace

std::string ray_name(std::int64_t trial) {
  return fmt::format("trial_{:04}", trial);
}

std::vector<Json> ray_results(const RayTrial& trial, const std::vector<Json>& lines) {
  std::vector<Json> results;
  const Json* before = nullptr;
  double total_s = 0;
  for (const Json& line : lines) {
    if (line.contains("batch")) continue;
    const bool goes_on = before != nullptr && belongs_to(line, *before);
    if (!goes_on) results.emplace_back(Json::object());
    Json& result = results.back();
    for (const auto& [key, value] : line.items())
      if (!is_ours(key)) result[key] = value;
    const double took_s = read_or(line, "_time_this_iter_s", 0.0);
    total_s += took_s;
    const auto timestamp = static_cast<std::int64_t>(read_or(line, "_timestamp", 0.0));
    result["training_iteration"] = results.size();
    result["trial_id"] = ray_name(trial.number);
    result["timestamp"] = timestamp;
    result["date"] = date_of(timestamp);
    result["time_this_iter_s"] = (goes_on ? read_or(result, "time_this_iter_s", 0.0) : 0.0) + took_s;
    result["time_total_s"] = total_s;
    result["done"] = false;
    result["experiment_tag"] = tag_of(trial);
    result["config"] = trial.parameters;
    before = &line;
  }
  if (!results.empty()) results.back()["done"] = trial.is_over;
  return results;
}

}  // namespace sgd::cli
