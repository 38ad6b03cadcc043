#pragma once
// An experiment as a table, made of its events alone, so that what is shown is the same while it runs, when it has
// ended, here and on a cluster. Which trials wait for a place is in no event: who shows it asks their runs. Pure.
//
//   trial  state      lr        epoch  val_accuracy
//   * 7    completed  0.0213    5      0.9312 (best of epoch 4: 0.9320)

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/json/nlohmann.hpp"

namespace sgd::cli {

class TrialTable {
 public:
  using Json = nlohmann::ordered_json;
  struct Trial {
    std::string state = "running";
    Json parameters;
    Json next;                 ///< Those that it has when it has copied another trial; null: it is not about to.
    bool has_no_copy = false;  ///< There was nothing to copy, the last time.
    Json former;               ///< Those of its best value, where it has copied since; null: they are `parameters`.
    /// Of its best value, which is what it is shown with.
    [[nodiscard]] const Json& best_parameters() const { return former.is_null() ? parameters : former; }
    std::int64_t iteration = 0;
    std::optional<double> value;  ///< The newest.
    std::optional<double> best;
    std::int64_t best_iteration = 0;
    std::string why;
    double wall_s = 0;
  };

  TrialTable() = default;
  /// For who shows at most `rows` at a time, as long as the experiment goes on: of trials that have ended the best ones
  /// are kept, and those that may go on with it; the others are only counted.
  explicit TrialTable(std::size_t rows) : kept_(rows) {}

  /// A line of the experiment's events.jsonl; those of other kinds are nothing to it.
  void add(const Json& event);

  /// The first trial at work of which it is not known that it has a place.
  [[nodiscard]] std::optional<std::int64_t> first_unplaced() const;
  /// Of that one: it waits for a place, and those that were started later wait behind it; or it has one.
  void note_place(std::int64_t trial, bool waits);
  /// Some trial waits for a place, and nobody else is at work.
  [[nodiscard]] bool all_wait() const;

  /// That are kept.
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
  [[nodiscard]] std::int64_t owed() const { return wanted_ - static_cast<std::int64_t>(begun()); }
  /// An experiment with this state at its end has something left to do: it was ended from outside, or its search
  /// program failed.
  [[nodiscard]] bool may_go_on(const std::string& state) const;

 private:
  using Rank = std::pair<double, std::int64_t>;  ///< The best is first; of two that are equal the earlier trial.
  [[nodiscard]] std::size_t begun() const { return trials_.size() + dropped_; }
  [[nodiscard]] Rank rank_of(std::int64_t number) const;
  void drop_worst();
  void take(const std::string& what, std::int64_t number, const Json& event);
  [[nodiscard]] bool is_better(double left, double right) const;
  [[nodiscard]] std::vector<std::int64_t> shown(std::size_t rows) const;
  [[nodiscard]] std::string short_name(const std::string& parameter) const;
  [[nodiscard]] std::string values_of(const Trial& trial) const;
  static void note_copy(Trial& trial, const Json& event);
  void note(std::int64_t number, const Trial& trial);
  void note_unplaced(const std::string& what, std::int64_t number);
  [[nodiscard]] bool waits(std::int64_t number) const { return waits_ && unplaced_.contains(number); }
  [[nodiscard]] std::string shown_state(std::int64_t number) const;

  std::map<std::int64_t, Trial> trials_;
  std::string metric_;
  bool is_highest_ = false;
  std::int64_t planned_ = 0;
  std::int64_t wanted_ = 0;  ///< Of a search program, all in all.
  std::int64_t ended_ = 0;
  std::int64_t failed_ = 0;
  bool has_failed_search_ = false;
  std::optional<std::int64_t> best_;  ///< By what has been reported so far.
  std::optional<std::size_t> kept_;   ///< Nothing: all trials.
  std::set<Rank> ranked_;             ///< Of trials_: those that have ended for good.
  std::size_t dropped_ = 0;           ///< Trials that have been in trials_.
  std::set<std::int64_t> unplaced_;   ///< At work, and not known to have a place.
  bool waits_ = false;                ///< The first of them is known to have none.
};

/// Of a trial.
[[nodiscard]] bool is_over(const std::string& state);

/// "0.0213", "1e-05", "adam": as people would type it.
[[nodiscard]] std::string shown_value(const nlohmann::ordered_json& value);

}  // namespace sgd::cli
