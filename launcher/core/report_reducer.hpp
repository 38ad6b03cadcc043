#pragma once
// Many ranks' reports become one line of metrics. A line is made when all ranks of the live
// generation have sent the same key, by RaySGD's rules: num_samples is summed, every other
// number is the mean over ranks that ignores NaN (by samples, where ranks differ in them), and null where that is not
// finite, as with an infinite number of some rank; anything else is rank 0's value, and the keys are those of rank 0's
// report (of another's, too, where rank 0 had no sample). A number on which all ranks agree stays as it is, to the bit.
// (samples_per_s, which RaySGD has not, is a rate of the whole group and summed too.) A key not greater than the last
// one written was re-executed after a restart: counted and dropped.
//
// Ranks must send the same keys in the same order; a difference is an error that names them.

#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "common/messages/link.hpp"
#include "launcher/core/only_state.hpp"
#include "launcher/core/report_mismatch.hpp"
#include "launcher/core/straggler.hpp"

namespace sgd::core {

struct ReducedReport {
  link::ReportKey key;
  nlohmann::ordered_json metrics;        ///< RaySGD's keys in RaySGD's order, then others by name.
  std::vector<nlohmann::json> per_rank;  ///< What each rank has reported; null for what is not finite.
  std::vector<KeyMismatch> mismatches;
  std::optional<Straggler> straggler;
};

/// Orders keys by epoch, phase ("train" before anything else), batch and sequence.
[[nodiscard]] bool less(const link::ReportKey& left, const link::ReportKey& right);

/// "epoch 2 train batch 0".
[[nodiscard]] std::string words(const link::ReportKey& key);

/// One rank's metrics with RaySGD's keys in RaySGD's order, then others by name.
[[nodiscard]] nlohmann::ordered_json in_order(const nlohmann::json& metrics);

/// The reduction itself. `per_rank` in rank order, at least one.
[[nodiscard]] nlohmann::ordered_json reduce_metrics(const std::vector<nlohmann::json>& per_rank);

/// Ranks that have not reported equally often, in words about the one that has reported more.
struct UnequalReports {
  Rank rank = 0;
  std::string message;
};

struct ReducerState {
  struct Pending {
    link::ReportKey key;
    nlohmann::json metrics;
    std::size_t bytes = 0;  ///< About what it takes.
  };
  std::vector<std::deque<Pending>> pending_;  ///< By rank.
  std::size_t pending_bytes_ = 0;             ///< Of all of them.
  std::optional<link::ReportKey> written_;
  std::int64_t dropped_ = 0;
};

class ReportReducer : private ReducerState {
 public:
  using State = ReducerState;
  /// Reports of one rank that wait for the other ranks'.
  static constexpr std::size_t kPendingMax = 4096;
  /// And those of all ranks together: so much, or so much for each of them.
  static constexpr std::size_t kPendingBytesMax = 16 << 20;
  static constexpr std::size_t kPendingBytesOfOne = 16 << 10;

  ReportReducer() = default;
  explicit ReportReducer(State state) : State(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *this; }

  /// A new generation: pending reports of the old one are dropped, the last key written stays.
  void reset(int world_size);
  /// The last key that an earlier life of the run has written.
  void set_written(const link::ReportKey& key) { written_ = key; }
  /// What is reported next is no repetition, whatever its key.
  void forget_written() { written_.reset(); }

  /// The line once every rank has reported `key`; nothing before, or for a re-executed report.
  [[nodiscard]] Result<std::optional<ReducedReport>> add(Rank rank, const link::ReportKey& key,
                                                         const nlohmann::json& metrics);
  /// The newest key that `rank` has reported and that is no line yet: another rank has not reported it.
  [[nodiscard]] std::optional<link::ReportKey> newest_pending(Rank rank) const;
  [[nodiscard]] bool has_pending() const;
  /// Once no rank reports any more: one that has reported what another has not; nothing where all have reported
  /// equally often.
  [[nodiscard]] std::optional<UnequalReports> unequal() const;
  /// Whether the line of `key` is written.
  [[nodiscard]] bool is_written(const link::ReportKey& key) const { return written_ && !less(*written_, key); }
  [[nodiscard]] std::int64_t dropped() const { return dropped_; }

 private:
  [[nodiscard]] std::size_t pending_bytes_max() const;
};
static_assert(has_only_state<ReportReducer>());

}  // namespace sgd::core
