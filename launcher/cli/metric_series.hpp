#pragma once
// A run's metrics as curves: what metrics.jsonl has, by name and over what a person chooses. Pure.

#include <cstddef>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"

namespace sgd::cli {

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< Finite, in the order of the reports.
  std::size_t left_out = 0;                       ///< Between them: no plot could show these beside their neighbours.
};

class MetricSeries {
 public:
  /// What curves are drawn over.
  static constexpr const char* kOver[] = {"step", "epoch", "iteration", "time"};

  /// Of one curve. Of more, those that are neither ends nor extremes of their neighbours are left out.
  static constexpr std::size_t kPointsMax = 1 << 16;

  /// `over`: one of kOver; "time" is seconds since the first report.
  explicit MetricSeries(std::string over) : over_(std::move(over)) {}

  /// A line of metrics.jsonl.
  void add(const nlohmann::ordered_json& report);

  /// The names that select() knows: of a metric that several phases report, each phase's, as "train/num_samples".
  [[nodiscard]] std::vector<std::string> names() const;
  /// The curves of these metrics, of several phases if one of them has been named without; none: those of losses and
  /// accuracies, or where there are none all that the ranks have measured. Errors name the metrics that are known.
  [[nodiscard]] Result<std::vector<Series>> select(const std::vector<std::string>& wanted) const;

 private:
  using Phases = std::map<std::string, Series>;  ///< Without names.
  void append(const std::string& name, const Phases& phases, std::vector<Series>& out) const;

  std::string over_;
  std::vector<std::string> order_;  ///< Of names, as they came up.
  std::map<std::string, Phases> metrics_;
  double begin_s_ = -1;  ///< Of the first report.
  std::int64_t reports_ = 0;
};

}  // namespace sgd::cli
