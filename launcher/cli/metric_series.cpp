#include "launcher/cli/metric_series.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/json/lenient.hpp"
#include "common/json/suggest.hpp"
#include "launcher/callbacks/report_values.hpp"

namespace sgd::cli {
namespace {

/// What says where a report stands, not what was measured.
bool is_bookkeeping(const std::string& name) {
  static constexpr std::array kNames = {"epoch",       "step",       "batch",       "sequence",
                                        "batch_count", "generation", "num_samples", "world_size"};
  return name.starts_with('_') || std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

/// `value` is a number.
double number_of(const nlohmann::ordered_json& value) {
  if (const auto* real = value.get_ptr<const nlohmann::ordered_json::number_float_t*>()) return *real;
  if (const auto* positive = value.get_ptr<const nlohmann::ordered_json::number_unsigned_t*>())
    return static_cast<double>(*positive);
  return static_cast<double>(value.get_ref<const nlohmann::ordered_json::number_integer_t&>());
}

/// Of neighbours the first, the last and the extremes stay, in their order.
void thin(Series& curve) {
  constexpr std::size_t kNeighbours = 16;
  const auto below = [](const auto& one, const auto& other) { return one.second < other.second; };
  const std::size_t before = curve.points.size();
  std::size_t kept = 0;
  for (std::size_t begin = 0; begin < before; begin += kNeighbours) {
    const auto first = curve.points.begin() + static_cast<std::ptrdiff_t>(begin);
    const auto end = curve.points.begin() + static_cast<std::ptrdiff_t>(std::min(begin + kNeighbours, before));
    const auto [leftmost, rightmost] = std::minmax_element(first, end);
    const auto [least, greatest] = std::minmax_element(first, end, below);
    std::array stay = {first, leftmost, rightmost, least, greatest, end - 1};
    std::sort(stay.begin(), stay.end());
    const auto stay_end = std::unique(stay.begin(), stay.end());
    for (auto place = stay.begin(); place != stay_end; ++place) curve.points[kept++] = **place;
  }
  curve.left_out += before - kept;
  curve.points.resize(kept);
}

bool is_shown_first(const std::string& name) {
  return !name.starts_with("last_") &&
         (name.find("loss") != std::string::npos || name.find("accuracy") != std::string::npos);
}

}  // namespace

void MetricSeries::add(const nlohmann::ordered_json& report) {
  ++reports_;
  const double time_s = read_or(report, "_timestamp", 0.0);
  if (begin_s_ < 0) begin_s_ = time_s;
  double x = static_cast<double>(reports_);
  if (over_ == "iteration") read_if_fits(report, "_training_iteration", x);
  if (over_ == "time") x = time_s - begin_s_;
  if (over_ == "step" || over_ == "epoch") read_if_fits(report, over_.c_str(), x);
  const std::string phase = read_or(report, "phase", "");
  const callbacks::Report result = callbacks::single_result(report);
  for (const auto& [name, value] : callbacks::flat_values(result)) {
    if (!value->is_number()) continue;
    const double y = number_of(*value);
    if (!std::isfinite(y)) continue;
    const auto [place, is_new] = metrics_.try_emplace(name);
    if (is_new) order_.push_back(name);
    Series& curve = place->second[phase];
    curve.points.emplace_back(x, y);
    if (curve.points.size() > kPointsMax) thin(curve);
  }
}

std::vector<std::string> MetricSeries::names() const {
  std::vector<std::string> names;
  for (const std::string& name : order_) {
    if (name.starts_with('_')) continue;
    const Phases& phases = metrics_.at(name);
    if (phases.size() == 1) names.push_back(name);
    for (const auto& [phase, curve] : phases)
      if (phases.size() > 1) names.push_back(phase + "/" + name);
  }
  return names;
}

void MetricSeries::append(const std::string& name, const Phases& phases, std::vector<Series>& out) const {
  for (const auto& [phase, curve] : phases)
    out.push_back({phases.size() > 1 ? phase + "/" + name : name, curve.points, curve.left_out});
}

namespace {

/// One that is misspelt, or cut short; else all are named.
std::string unknown_metric(const std::string& name, const std::vector<std::string>& known) {
  std::optional<std::string> near = json::nearest(name, known);
  const auto longer = std::find_if(known.begin(), known.end(),
                                   [&](const std::string& one) { return !name.empty() && one.starts_with(name); });
  if (!near && longer != known.end()) near = *longer;
  return near ? fmt::format("no metric \"{}\"; did you mean \"{}\"?", name, *near)
              : fmt::format("no metric \"{}\": known are {}", name, fmt::join(known, ", "));
}

}  // namespace

Result<std::vector<Series>> MetricSeries::select(const std::vector<std::string>& wanted) const {
  std::vector<Series> out;
  for (const std::string& name : wanted) {
    const auto metric = metrics_.find(name);
    const std::size_t slash = name.find('/');
    const std::string phase = name.substr(0, slash);
    const auto of_phase = slash == std::string::npos ? metrics_.end() : metrics_.find(name.substr(slash + 1));
    if (metric != metrics_.end()) {
      append(name, metric->second, out);
    } else if (of_phase != metrics_.end() && of_phase->second.contains(phase)) {
      const Series& curve = of_phase->second.at(phase);
      out.push_back({name, curve.points, curve.left_out});
    } else {
      return Error{unknown_metric(name, names())};
    }
  }
  if (!wanted.empty()) return out;
  for (const bool only_first : {true, false}) {
    for (const std::string& name : order_)
      if (!is_bookkeeping(name) && (!only_first || is_shown_first(name))) append(name, metrics_.at(name), out);
    if (!out.empty()) break;
  }
  return out;
}

}  // namespace sgd::cli
