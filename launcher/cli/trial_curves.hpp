#pragma once
// An experiment's metric as panels: over the epochs of its trials, and over each parameter. Made of its events alone.
// Pure.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/json/nlohmann.hpp"
#include "launcher/cli/panel.hpp"

namespace sgd::cli {

class TrialCurves {
 public:
  using Json = nlohmann::ordered_json;

  /// A line of the experiment's events.jsonl; those of other kinds are nothing to it.
  void add(const Json& event);

  /// The curves of all trials, then a panel for each parameter: a dot for each trial, its best value over the value
  /// that it has. The best trial stands out. Empty: no trial has reported a number.
  [[nodiscard]] std::vector<Panel> panels() const;

 private:
  struct Trial {
    Json parameters;
    Json next;                                      ///< When it has taken another trial's state.
    Json best_parameters;                           ///< When it had its best value: it may take another trial's.
    std::vector<std::pair<double, double>> points;  ///< (iteration, value), finite.
    std::optional<double> best;
  };
  [[nodiscard]] bool is_better(double left, double right) const { return is_highest_ ? left > right : left < right; }
  [[nodiscard]] Range shown_values(std::vector<double> values) const;
  [[nodiscard]] Panel curves() const;
  [[nodiscard]] Panel over_parameter(const std::string& name) const;

  std::map<std::int64_t, Trial> trials_;
  std::string metric_;
  bool is_highest_ = false;
  std::optional<std::int64_t> best_;
};

}  // namespace sgd::cli
