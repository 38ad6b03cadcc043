#pragma once
// Which failures of a run are followed by a restart, after which delay, and when it is enough.
//
// Two budgets. Failures: a generation whose ranks had all made their first step, and one of a command of which any
// rank was executed; training counts them since the last finished epoch, a command over the whole run; nodes that are
// lost, or cannot begin with the run, are not counted. Attempts: waits for slots, and generations that never came to
// their first step; a first step gives all attempts back, also when it is heard of a generation that is being cleared,
// unless that one has failed.

#include <optional>
#include <string>
#include <utility>

#include "common/base/time.hpp"
#include "common/job/spec.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/core/only_state.hpp"

namespace sgd::core {

/// What ended, for the judgement.
struct EndedGeneration {
  bool was_started = false;  ///< All ranks had made their first step (a command: were executed).
  bool is_first = false;     ///< The run's first one, but for those that a node could not begin with.
  std::int64_t step = 0;     ///< Highest step known.
  Duration lived{0};         ///< Of a command: since its ranks were executed.
  bool has_run = false;      ///< A command of which some rank was executed: what it has done may not be done twice.
};

struct RetryVerdict {
  bool restart = false;
  Duration delay{0};  ///< Before the restart.
  std::string why;    ///< Without restart: the reason in words, behind the cause.
  int exit_code = 0;  ///< Without restart.
};

struct RetryState {
  job::Backoff backoff_;
  std::int64_t max_failures_ = 0;
  std::int64_t failures_ = 0;  ///< Since the last finished epoch.
  bool is_training_ = false;
  int attempts_ = 0;         ///< Since the last first step.
  int waits_ = 0;            ///< Of them: for slots.
  int failed_starts_ = 0;    ///< Of them: generations,
  int refusals_ = 0;         ///< and of these: such as a node could not begin with.
  int repeats_ = 0;          ///< How often nodes were asked again since then that could not begin with it.
  bool asks_again_ = false;  ///< The next start may be such a one.
  Rank crashed_rank_ = -1;
  int crashes_ = 0;  ///< Of that rank, without a step beyond this one:
  std::int64_t crashed_step_ = -1;
  int quick_crashes_ = 0;  ///< Of a command: in a row, each within kQuick of its start.
  std::string error_;      ///< Of a command: what the last failure said of itself; empty: nothing, or other words.
  int errors_ = 0;         ///< So often in a row, at this step and after about this time:
  std::int64_t error_step_ = 0;
  Duration error_lived_{0};
};

class RetryBudget : private RetryState {
 public:
  using State = RetryState;
  /// The longest delay, however many attempts a job allows.
  static constexpr Duration kDelayMax = std::chrono::hours(1);
  /// So many crashes of one rank at one step are an error of the program, whatever max_failures says.
  static constexpr int kCrashesInPlace = 3;
  /// A command that crashes so soon after its start is not started again at once a second time.
  static constexpr Duration kQuick = std::chrono::seconds(10);
  /// What so many nodes cannot begin with no other one can: a file or an account that the job names is missing.
  static constexpr int kRefusalsMax = 3;
  /// The first delay before nodes are asked again that could not begin with it; the next is twice as long.
  static constexpr Duration kAskAgain = std::chrono::minutes(1);
  /// Two lives are equally long when they differ by no more than this, or by a tenth.
  static constexpr Duration kSameTime = std::chrono::seconds(1);

  RetryBudget() = default;
  explicit RetryBudget(const job::JobSpec& job);
  explicit RetryBudget(State state) : State(std::move(state)) {}
  [[nodiscard]] const State& state() const { return *this; }

  [[nodiscard]] RetryVerdict on_failure(const Failure& cause, const EndedGeneration& ended);
  /// A start was judged as failed, and a rank of it is heard of that was executed.
  [[nodiscard]] RetryVerdict on_late_start() { return count_failure(); }
  /// Too few slots: how long to wait for more; nothing when the attempts are used up.
  [[nodiscard]] std::optional<Duration> on_no_capacity();
  /// Nodes that could not begin with it may have been mended: one start that they refuse uses no attempt.
  void on_ask_again();
  /// Until they are asked again: longer each time.
  [[nodiscard]] Duration ask_again_delay() const;
  void on_first_step();
  void on_epoch_finished();
  /// A GPU is left out: a rank that fails again does so on another one.
  void on_other_gpu();

  [[nodiscard]] int attempts() const { return attempts_; }
  /// Of a command: crashes in a row, each soon after its start.
  [[nodiscard]] int quick_crashes() const { return quick_crashes_; }
  /// Starts in a row that a node could not begin with.
  [[nodiscard]] int refusals() const { return refusals_; }
  [[nodiscard]] int attempts_max() const { return backoff_.attempts; }

 private:
  [[nodiscard]] RetryVerdict count_failure();
  [[nodiscard]] RetryVerdict on_failed_start(const Failure& cause, const EndedGeneration& ended);
  [[nodiscard]] bool crashes_in_place(const Failure& cause, std::int64_t step);
  [[nodiscard]] bool repeats_itself(const Failure& cause, const EndedGeneration& ended);
  [[nodiscard]] Duration delay_of_crash(const Failure& cause, const EndedGeneration& ended);
  [[nodiscard]] Duration delay(int times) const;
};
static_assert(has_only_state<RetryBudget>());

}  // namespace sgd::core
