#pragma once
// An experiment as a table, made of its events alone, so that what is shown is the same while it runs, when it has
// ended, here and on a cluster. Pure.
//
//   trial  state      lr        epoch  val_accuracy
//   * 7    completed  0.0213    5      0.9312 (best of epoch 4: 0.9320)

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"

namespace sgd::cli {

class TrialTable {
 public:
  using Json = nlohmann::ordered_json;
  struct Trial {
    std::string state = "running";
    Json parameters;
    std::int64_t iteration = 0;
    std::optional<double> value;  ///< The newest.
    std::optional<double> best;
    std::int64_t best_iteration = 0;
    std::string why;
    double wall_s = 0;
  };

  /// A line of the experiment's events.jsonl; those of other kinds are nothing to it.
  void add(const Json& event);

  [[nodiscard]] const std::map<std::int64_t, Trial>& trials() const { return trials_; }
  [[nodiscard]] std::optional<std::int64_t> best() const { return best_; }
  [[nodiscard]] const std::string& metric() const { return metric_; }
  /// At most `rows` trials: those at work first, then the best. What is left out is said.
  [[nodiscard]] std::vector<std::string> lines(std::size_t rows) const;
  /// "12/50 trials, 4 at work, 1 failed  best val_accuracy 0.9312 (trial 7)".
  [[nodiscard]] std::string progress() const;
  /// What an event says of one trial, for people; empty: nothing worth a line.
  [[nodiscard]] std::string narrate(const Json& event) const;
  [[nodiscard]] Json to_json() const;
  /// How many trials a search program was asked for, and has not given.
  [[nodiscard]] std::int64_t owed() const { return wanted_ - static_cast<std::int64_t>(trials_.size()); }
  /// An experiment with this state at its end has something left to do: it was ended from outside, or its search
  /// program failed.
  [[nodiscard]] bool may_go_on(const std::string& state) const;

 private:
  [[nodiscard]] bool is_better(double left, double right) const;
  [[nodiscard]] std::vector<std::int64_t> shown(std::size_t rows) const;
  [[nodiscard]] std::string short_name(const std::string& parameter) const;
  [[nodiscard]] std::string values_of(const Trial& trial) const;
  void note(std::int64_t number, const Trial& trial);

  std::map<std::int64_t, Trial> trials_;
  std::string metric_;
  bool is_highest_ = false;
  std::int64_t planned_ = 0;
  std::int64_t wanted_ = 0;  ///< Of a search program, all in all.
  std::int64_t ended_ = 0;
  std::int64_t failed_ = 0;
  bool has_failed_search_ = false;
  std::optional<std::int64_t> best_;  ///< By what has been reported so far.
};

/// Of a trial.
[[nodiscard]] bool is_over(const std::string& state);

/// "0.0213", "1e-05", "adam": as people would type it.
[[nodiscard]] std::string shown_value(const nlohmann::ordered_json& value);

}  // namespace sgd::cli
