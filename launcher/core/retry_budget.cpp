#include "launcher/core/retry_budget.hpp"

#include <algorithm>
#include <cmath>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/core/peer_loss.hpp"

namespace sgd::core {
namespace {

RetryVerdict end(int exit_code, std::string why) {
  return {false, Duration{0}, std::move(why), exit_code};
}

/// Signals that a program brings upon itself.
bool is_crash(const Failure& cause) {
  if (cause.kind == FailureKind::kExitCode) return cause.rank >= 0;
  if (cause.kind != FailureKind::kSignal) return false;
  return cause.signal == SIGSEGV || cause.signal == SIGABRT || cause.signal == SIGFPE || cause.signal == SIGILL ||
         cause.signal == SIGBUS;
}

/// Of a start that came as far as to execute a rank. One that cannot be made in the first place is none, whoever was
/// faster.
bool counts_in_part(const Failure& cause, const EndedGeneration& ended) {
  const bool is_refused = ended.is_first && cause.kind == FailureKind::kExitCode && cause.exit_code < 0;
  return ended.has_run && !cause.is_of_node() && !is_refused;
}

/// For people: milliseconds are enough.
Duration rounded(Duration time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time);
}

Duration grown(Duration first, double factor, int times) {
  const double seconds = to_seconds(first) * std::pow(factor, times);
  return seconds >= to_seconds(RetryBudget::kDelayMax) ? RetryBudget::kDelayMax : from_seconds(seconds);
}

}  // namespace

RetryBudget::RetryBudget(const job::JobSpec& job) {
  backoff_ = job.recovery.backoff;
  max_failures_ = job.recovery.max_failures;
  is_training_ = job.training.has_value();
}

RetryVerdict RetryBudget::on_failure(const Failure& cause, const EndedGeneration& ended) {
  if (cause.is_final) {
    const bool refused = cause.subject == "fork server" && cause.exit_code == worker_exit::kConfiguration;
    return end(refused ? exit_code::kUsage : exit_code::kFailed, "");
  }
  if (!ended.was_started && !counts_in_part(cause, ended)) return on_failed_start(cause, ended);
  if (cause.is_of_node()) return {true, Duration{0}, "", 0};
  if (const RetryVerdict counted = count_failure(); !counted.restart) return counted;
  if (crashes_in_place(cause, ended.step))
    return end(exit_code::kExhausted, fmt::format("rank {} has failed {} times without getting beyond step {}",
                                                  cause.rank, crashes_, crashed_step_));
  if (repeats_itself(cause, ended))
    return end(
        exit_code::kExhausted,
        fmt::format("the same error has come {} times in a row, each time {}: a restart does not fix it", errors_,
                    error_step_ > 0 ? fmt::format("at step {}", error_step_)
                                    : "after " + format_duration(rounded(error_lived_))));
  return {true, delay_of_crash(cause, ended), "", 0};
}

RetryVerdict RetryBudget::count_failure() {
  ++failures_;
  if (max_failures_ == 0) return end(exit_code::kFailed, "no restart is allowed (max_failures 0)");
  if (max_failures_ != job::kUnlimited && failures_ > max_failures_)
    return end(exit_code::kExhausted, fmt::format("restarts used up: {} failures{}, max_failures {}", failures_,
                                                  is_training_ ? " since the last finished epoch" : "", max_failures_));
  return {true, Duration{0}, "", 0};
}

RetryVerdict RetryBudget::on_failed_start(const Failure& cause, const EndedGeneration& ended) {
  const bool is_refusal = cause.kind == FailureKind::kNodeRefused;
  if (is_refusal) ++refusals_;
  if (std::exchange(asks_again_, false) && is_refusal) return {true, Duration{0}, "", 0};
  const bool is_refused = is_refusal && refusals_ - repeats_ >= kRefusalsMax;
  if (ended.is_first && (cause.kind == FailureKind::kExitCode || is_refused))
    return end(exit_code::kFailed, "worker start-up failed");
  if (attempts_ >= backoff_.attempts)
    return end(exit_code::kExhausted, fmt::format("start failed after {} attempts", attempts_));
  ++attempts_;
  ++failed_starts_;
  return {true, failed_starts_ == 1 ? Duration{0} : delay(failed_starts_ - 2), "", 0};
}

std::optional<Duration> RetryBudget::on_no_capacity() {
  if (attempts_ >= backoff_.attempts) return std::nullopt;
  ++attempts_;
  return delay(waits_++);
}

void RetryBudget::on_ask_again() {
  asks_again_ = true;
  ++repeats_;
}

Duration RetryBudget::ask_again_delay() const {
  return grown(kAskAgain, 2, repeats_);
}

void RetryBudget::on_first_step() {
  attempts_ = 0;
  waits_ = 0;
  failed_starts_ = 0;
  refusals_ = 0;
  repeats_ = 0;
  asks_again_ = false;
}

void RetryBudget::on_epoch_finished() {
  if (is_training_) failures_ = 0;
}

void RetryBudget::on_other_gpu() {
  crashed_rank_ = -1;
  crashes_ = errors_ = quick_crashes_ = 0;
  error_.clear();
}

/// What comes of the data or of the program comes at the same place, and what comes of the world seldom does.
bool RetryBudget::repeats_itself(const Failure& cause, const EndedGeneration& ended) {
  if (is_training_) return false;
  const std::string error = cause.is_secondary() ? "" : words(cause.error);
  const Duration apart = ended.lived > error_lived_ ? ended.lived - error_lived_ : error_lived_ - ended.lived;
  const bool is_same_time = apart <= std::max(kSameTime, error_lived_ / 10);
  const bool is_same =
      !error.empty() && error == error_ && ended.step == error_step_ && (ended.step > 0 || is_same_time);
  errors_ = is_same ? errors_ + 1 : 1;
  error_ = error;
  error_step_ = ended.step;
  error_lived_ = ended.lived;
  return !error.empty() && errors_ >= kCrashesInPlace;
}

Duration RetryBudget::delay_of_crash(const Failure& cause, const EndedGeneration& ended) {
  if (is_training_) return Duration{0};
  const bool is_quick = (is_crash(cause) || cause.kind == FailureKind::kRaised) && ended.lived < kQuick;
  quick_crashes_ = is_quick ? quick_crashes_ + 1 : 0;
  return quick_crashes_ < 2 ? Duration{0} : delay(quick_crashes_ - 2);
}

bool RetryBudget::crashes_in_place(const Failure& cause, std::int64_t step) {
  const bool same = is_training_ && is_crash(cause) && cause.rank == crashed_rank_ && step <= crashed_step_;
  crashes_ = same ? crashes_ + 1 : 1;
  crashed_rank_ = is_crash(cause) ? cause.rank : -1;
  crashed_step_ = std::max(same ? crashed_step_ : 0, step);
  return is_training_ && crashes_ >= kCrashesInPlace;
}

Duration RetryBudget::delay(int times) const {
  return grown(backoff_.first, backoff_.factor, times);
}

}  // namespace sgd::core
