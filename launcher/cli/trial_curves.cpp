#include "launcher/cli/trial_curves.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "launcher/cli/trial_table.hpp"

namespace sgd::cli {
namespace {

using Json = nlohmann::ordered_json;

/// Positive values that differ by so much are drawn over their logarithm.
constexpr double kLogarithmFrom = 50;

/// Values so many times as far from the best one as the median is stand at the edge: a trial that has diverged would
/// press all others into one line.
constexpr double kFarFromMedian = 20;

/// Values that are no numbers are named below a panel, where there are no more than a line holds.
constexpr std::size_t kNamesBelow = 12;

/// Dots stand away from the frame, by so much of what lies between the outermost.
constexpr double kMargin = 0.04;

Range with_margin(const Range& range) {
  const double margin = kMargin * (range.greatest - range.least);
  return {range.least - margin, range.greatest + margin};
}

/// Where the values of one parameter stand, and what is said below.
struct Axis {
  std::vector<std::string> names;             ///< Of values that are no numbers, in the order in which they came up.
  std::map<std::string, std::size_t> places;  ///< In `names`.
  bool is_logarithmic = false;
  Range range;
  std::string left;
  std::string right;
};

/// Not empty; their order changes.
double median_of(std::vector<double>& values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

bool is_number(const Json& value) {
  return value.is_number();
}

double number_in(const Json& value) {
  return read_or(Json{{"is", value}}, "is", 0.0);
}

Axis axis_of(const std::vector<Json>& values) {
  Axis axis;
  if (!std::all_of(values.begin(), values.end(), is_number)) {
    for (const Json& value : values)
      if (const std::string name = shown_value(value); axis.places.try_emplace(name, axis.names.size()).second)
        axis.names.push_back(name);
    axis.range = range_between(0, static_cast<double>(axis.names.size()) - 1);
    if (axis.names.size() > 1) axis.right = axis.names.back();
    axis.left = axis.names.front();
    return axis;
  }
  std::vector<double> numbers;
  for (const Json& value : values) numbers.push_back(number_in(value));
  const auto [least, greatest] = std::minmax_element(numbers.begin(), numbers.end());
  axis.is_logarithmic = *least > 0 && *greatest >= kLogarithmFrom * *least;
  axis.range =
      axis.is_logarithmic ? range_between(std::log10(*least), std::log10(*greatest)) : range_between(*least, *greatest);
  axis.left = shown_number(*least);
  if (*greatest > *least) axis.right = shown_number(*greatest);
  return axis;
}

double place_of(const Json& value, const Axis& axis) {
  if (axis.names.empty()) return axis.is_logarithmic ? std::log10(number_in(value)) : number_in(value);
  return static_cast<double>(axis.places.at(shown_value(value)));
}

std::string words_below(const std::string& name, const Axis& axis) {
  if (axis.is_logarithmic) return name + " (logarithmic)";
  if (axis.names.size() <= 2) return name;
  if (axis.names.size() > kNamesBelow) return fmt::format("{} ({} values)", name, axis.names.size());
  return fmt::format("{} ({})", name, fmt::join(axis.names, " "));
}

}  // namespace

void TrialCurves::add(const Json& event) {
  const std::string what = read_or(event, "event", "");
  if (what == "experiment_started") {
    metric_ = read_or(event, "metric", "");
    is_highest_ = read_or(event, "mode", "") == "max";
  }
  const std::int64_t number = read_or(event, "trial", std::int64_t{-1});
  if (number < 0) return;
  if (what == "trial_started") {
    trials_[number].parameters = member(event, "parameters");
  } else if (what == "trial_decided") {
    if (const Json& values = member(event, "values"); values.is_object()) trials_[number].next = values;
  } else if (what == "trial_cloned") {
    const bool has_taken = !member(event, "checkpoint").is_null();
    if (Json values = std::exchange(trials_[number].next, nullptr); has_taken && !values.is_null())
      trials_[number].parameters = std::move(values);
  } else if (what == "trial_report" && member(event, "value").is_number()) {
    const double value = read_or(event, "value", 0.0);
    Trial& trial = trials_[number];
    trial.points.emplace_back(read_or(event, "iteration", 0.0), value);
    if (!trial.best || is_better(value, *trial.best)) {
      trial.best = value;
      trial.best_parameters = trial.parameters;
    }
    const double best = best_ ? *trials_.at(*best_).best : 0;
    if (!best_ || is_better(*trial.best, best) || (*trial.best == best && number < *best_)) best_ = number;
  }
}

std::vector<Panel> TrialCurves::panels() const {
  if (!best_) return {};
  std::vector<Panel> panels = {curves()};
  for (const auto& [name, value] : trials_.at(*best_).best_parameters.items()) panels.push_back(over_parameter(name));
  return panels;
}

/// Not empty. Where half of them are the best one, as of a metric that no trial can exceed, the others are compared
/// with it.
Range TrialCurves::shown_values(std::vector<double> values) const {
  const auto [least, greatest] = std::minmax_element(values.begin(), values.end());
  const Range all{*least, *greatest};
  double median = median_of(values);
  if (const double best = is_highest_ ? all.greatest : all.least; median == best && all.least < all.greatest) {
    values.erase(std::remove(values.begin(), values.end(), best), values.end());
    median = median_of(values);
  }
  if (is_highest_)
    return range_between(std::max(all.least, all.greatest - kFarFromMedian * (all.greatest - median)), all.greatest);
  return range_between(all.least, std::min(all.greatest, all.least + kFarFromMedian * (median - all.least)));
}

Panel TrialCurves::curves() const {
  Panel panel;
  std::vector<double> values;
  double last = 1;
  for (const auto& [number, trial] : trials_) {
    if (trial.points.empty()) continue;
    if (number == *best_) panel.marked = panel.curves.size();
    panel.curves.push_back({fmt::to_string(number), trial.points});
    for (const auto& [iteration, value] : trial.points) {
      values.push_back(value);
      last = std::max(last, iteration);
    }
  }
  panel.title = fmt::format("{} of {} trial{}: best {} (trial {})", metric_, panel.curves.size(),
                            panel.curves.size() == 1 ? "" : "s", shown_number(*trials_.at(*best_).best), *best_);
  panel.x = range_between(1, last);
  panel.y = shown_values(std::move(values));
  panel.left = "1";
  panel.over = "report";
  if (last > 1) panel.right = shown_place(last);
  return panel;
}

/// A trial may lack it: conditions between parameters are the job's.
Panel TrialCurves::over_parameter(const std::string& name) const {
  Panel panel;
  panel.is_joined = false;
  std::vector<Json> values;
  std::vector<double> bests;
  for (const auto& [number, trial] : trials_) {
    if (!trial.best || !trial.best_parameters.contains(name)) continue;
    values.push_back(trial.best_parameters.at(name));
    bests.push_back(*trial.best);
  }
  const Axis axis = axis_of(values);
  for (const auto& [number, trial] : trials_) {
    if (!trial.best || !trial.best_parameters.contains(name)) continue;
    if (number == *best_) panel.marked = panel.curves.size();
    panel.curves.push_back({fmt::to_string(number), {{place_of(trial.best_parameters.at(name), axis), *trial.best}}});
  }
  panel.title =
      fmt::format("{} over {}: best at {}", metric_, name, shown_value(trials_.at(*best_).best_parameters.at(name)));
  panel.x = with_margin(axis.range);
  panel.y = with_margin(shown_values(std::move(bests)));
  panel.left = axis.left;
  panel.over = words_below(name, axis);
  panel.right = axis.right;
  return panel;
}

}  // namespace sgd::cli
