#pragma once
// Trials that have ended and of which everything is written: some hundred bytes of each, since an experiment may have a
// hundred thousand. What is the same in all of their rows is their experiment's, and their summaries are in their
// folders.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/json/nlohmann.hpp"
#include "launcher/storage/stored_run.hpp"

namespace sgd::coordinator {

/// As text of a run's row: without what may be large.
[[nodiscard]] std::string row_summary(nlohmann::ordered_json summary);
/// The run that `run` is a trial of by its id; empty: it is none.
[[nodiscard]] RunId experiment_of(const RunId& run);

class EndedTrials {
 public:
  EndedTrials() = default;
  // A copy's briefs would point into the words of the original.
  EndedTrials(const EndedTrials&) = delete;
  EndedTrials& operator=(const EndedTrials&) = delete;

  /// False: its row says what does not follow from that of its experiment, and has to stay.
  [[nodiscard]] bool add(const storage::StoredRun& trial, const storage::StoredRun& experiment);
  /// Without its summary. Nothing: it is none of these.
  [[nodiscard]] std::optional<storage::StoredRun> row(const RunId& trial, const storage::StoredRun& experiment) const;
  /// In the order of their numbers.
  [[nodiscard]] std::vector<RunId> of(const RunId& experiment) const;
  /// Of one of these; nothing happens to others. The log was cut: so many more of its lines are no longer made of it.
  void add_lines(const RunId& trial, const storage::LineCounts& lines);
  /// False: it is none of these.
  bool remove(const RunId& trial);

 private:
  struct Brief {
    const std::string* state = nullptr;  ///< Of states_.
    double submitted_s = 0;
    double finished_s = 0;
    double wall_s = 0;
    storage::LineCounts lines_before;
    int exit_code = 0;
    int num_workers = 0;
  };
  [[nodiscard]] const Brief* find(const RunId& trial) const;

  std::map<RunId, std::map<std::int64_t, Brief>> trials_;  ///< By experiment and number.
  std::set<std::string> states_;                           ///< Few words, again and again.
};

}  // namespace sgd::coordinator
