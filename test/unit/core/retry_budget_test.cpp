#include "launcher/core/retry_budget.hpp"

#include <algorithm>

#include <catch2/catch.hpp>

#include "common/exit_codes.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using core::EndedGeneration;
using core::Failure;
using core::FailureKind;
using core::RetryBudget;

namespace {

constexpr bool kTrained = true;
constexpr bool kFailedStart = false;

job::JobSpec job_with(std::int64_t max_failures, bool is_training = true) {
  job::JobSpec job;
  job.recovery.max_failures = max_failures;
  if (is_training) job.training.emplace();
  return job;
}

Failure failure(FailureKind kind, int number = 9, Rank rank = 1) {
  Failure made;
  made.kind = kind;
  made.rank = rank;
  if (kind == FailureKind::kSignal) made.signal = number;
  if (kind == FailureKind::kExitCode) made.exit_code = number;
  return made;
}

EndedGeneration ended(bool was_started, bool is_first = false, std::int64_t step = 0) {
  return {was_started, is_first, step};
}

}  // namespace

TEST_CASE("max_failures N allows N restarts, and what it does not count") {
  struct Row {
    std::int64_t max_failures;
    FailureKind kind;
    int restarts;  // Of five failures.
    int exit_code;
  };
  const Row rows[] = {
      {0, FailureKind::kSignal, 0, exit_code::kFailed},
      {1, FailureKind::kSignal, 1, exit_code::kExhausted},
      {3, FailureKind::kHeartbeatLost, 3, exit_code::kExhausted},
      {3, FailureKind::kStalled, 3, exit_code::kExhausted},
      {3, FailureKind::kPeerLost, 3, exit_code::kExhausted},
      {job::kUnlimited, FailureKind::kSignal, 5, 0},
      {0, FailureKind::kNodeLost, 5, 0},
  };
  for (const Row& row : rows) {
    RetryBudget budget(job_with(row.max_failures));
    int restarts = 0;
    int exit_code = 0;
    for (int count = 0; count < 5 && exit_code == 0; ++count) {
      const auto verdict = budget.on_failure(failure(row.kind), ended(kTrained, count == 0, count));
      restarts += verdict.restart ? 1 : 0;
      exit_code = verdict.exit_code;
      CHECK(verdict.delay == 0s);
    }
    CAPTURE(row.max_failures, name(row.kind));
    CHECK(restarts == row.restarts);
    CHECK(exit_code == row.exit_code);
  }
}

TEST_CASE("training counts failures since the last finished epoch, a command over the run") {
  for (const bool is_training : {true, false}) {
    RetryBudget budget(job_with(1, is_training));
    CHECK(budget.on_failure(failure(FailureKind::kSignal), ended(kTrained)).restart);
    budget.on_epoch_finished();
    CHECK(budget.on_failure(failure(FailureKind::kSignal), ended(kTrained)).restart == is_training);
  }
}

TEST_CASE("a final cause ends the run whatever is left") {
  RetryBudget budget(job_with(job::kUnlimited));
  Failure user = failure(FailureKind::kExitCode, worker_exit::kUserError);
  user.is_final = true;
  CHECK(budget.on_failure(user, ended(kTrained)).exit_code == exit_code::kFailed);
  CHECK(budget.on_failure(user, ended(kFailedStart)).exit_code == exit_code::kFailed);
  Failure refused = failure(FailureKind::kExitCode, worker_exit::kConfiguration, -1);
  refused.is_final = true;
  refused.subject = "fork server";
  CHECK(budget.on_failure(refused, ended(kFailedStart, true)).exit_code == exit_code::kUsage);
}

TEST_CASE("a first start that fails by an exit code is final, by anything else it is repeated") {
  const auto first = [](FailureKind kind) {
    return RetryBudget(job_with(0)).on_failure(failure(kind, 9), ended(kFailedStart, true));
  };
  CHECK(first(FailureKind::kExitCode).why == "worker start-up failed");
  CHECK(first(FailureKind::kExitCode).exit_code == exit_code::kFailed);
  for (const FailureKind kind : {FailureKind::kSignal, FailureKind::kNodeLost, FailureKind::kHeartbeatLost})
    CHECK(first(kind).restart);
}

TEST_CASE(
    "a start of a command that came as far as to execute a rank counts as a failure, a lost node still as a start") {
  const EndedGeneration in_part{kFailedStart, false, 0, 0s, true};
  const EndedGeneration first{kFailedStart, true, 0, 0s, true};
  RetryBudget none(job_with(0, false));
  CHECK(none.on_failure(failure(FailureKind::kNodeLost), in_part).restart);
  CHECK(none.attempts() == 1);
  CHECK(none.on_failure(failure(FailureKind::kSignal, 9, -1), in_part).why == "no restart is allowed (max_failures 0)");
  RetryBudget one(job_with(1, false));
  CHECK(one.on_failure(failure(FailureKind::kExitCode, -1), in_part).restart);
  CHECK(one.attempts() == 0);
  CHECK(one.on_late_start().exit_code == exit_code::kExhausted);
  CHECK(RetryBudget(job_with(1, false)).on_failure(failure(FailureKind::kExitCode, 3), first).restart);
  CHECK(RetryBudget(job_with(1, false)).on_failure(failure(FailureKind::kExitCode, -1), first).why ==
        "worker start-up failed");
}

TEST_CASE("failed starts use attempts: the first is repeated at once, then the delays double") {
  job::JobSpec job = job_with(0);
  job.recovery.backoff.attempts = 4;
  RetryBudget budget(job);
  for (const Duration delay : {Duration(0s), Duration(1s), Duration(2s), Duration(4s)}) {
    const auto verdict = budget.on_failure(failure(FailureKind::kExitCode, 70), ended(kFailedStart));
    CHECK(verdict.restart);
    CHECK(verdict.delay == delay);
  }
  CHECK(budget.attempts() == 4);
  const auto last = budget.on_failure(failure(FailureKind::kExitCode, 70), ended(kFailedStart));
  CHECK(last.exit_code == exit_code::kExhausted);
  CHECK(last.why == "start failed after 4 attempts");
  budget.on_first_step();
  CHECK(budget.attempts() == 0);
  CHECK(budget.on_failure(failure(FailureKind::kExitCode, 70), ended(kFailedStart)).delay == 0s);
}

TEST_CASE("waits for slots take attempts from the same store, with delays of their own") {
  job::JobSpec job = job_with(3);
  job.recovery.backoff = {500ms, 3, 4};
  RetryBudget budget(job);
  CHECK(budget.on_no_capacity() == Duration(500ms));
  CHECK(budget.on_failure(failure(FailureKind::kSignal), ended(kFailedStart)).delay == 0s);
  CHECK(budget.on_no_capacity() == Duration(1500ms));
  CHECK(budget.on_no_capacity() == Duration(4500ms));
  CHECK_FALSE(budget.on_no_capacity().has_value());
  budget.on_first_step();
  CHECK(budget.on_no_capacity() == Duration(500ms));
}

TEST_CASE("a delay has a limit, however many attempts are allowed") {
  job::JobSpec job = job_with(3);
  job.recovery.backoff.attempts = 2000;
  RetryBudget budget(job);
  std::optional<Duration> delay;
  for (int count = 0; count < 1999; ++count) delay = budget.on_no_capacity();
  CHECK(delay == RetryBudget::kDelayMax);
}

TEST_CASE("three crashes of one rank at one step are an error of the program") {
  struct Crash {
    FailureKind kind;
    int number;
    Rank rank;
    std::int64_t step;
  };
  struct Row {
    const char* what;
    std::vector<Crash> crashes;
    bool ends;
  };
  const auto kSignal = FailureKind::kSignal;
  const Row rows[] = {
      {"in place", {{kSignal, 11, 1, 5}, {kSignal, 11, 1, 5}, {kSignal, 6, 1, 5}}, true},
      {"an exit code, too", {{FailureKind::kExitCode, 3, 1, 5}, {kSignal, 11, 1, 5}, {kSignal, 11, 1, 5}}, true},
      {"gets on", {{kSignal, 11, 1, 5}, {kSignal, 11, 1, 6}, {kSignal, 11, 1, 7}}, false},
      {"another rank between", {{kSignal, 11, 1, 5}, {kSignal, 11, 0, 5}, {kSignal, 11, 1, 5}}, false},
      {"killed from outside", {{kSignal, 9, 1, 5}, {kSignal, 9, 1, 5}, {kSignal, 9, 1, 5}}, false},
      {"frozen",
       {{FailureKind::kHeartbeatLost, 0, 1, 5},
        {FailureKind::kHeartbeatLost, 0, 1, 5},
        {FailureKind::kHeartbeatLost, 0, 1, 5}},
       false},
  };
  for (const Row& row : rows) {
    RetryBudget budget(job_with(job::kUnlimited));
    bool has_ended = false;
    for (const Crash& crash : row.crashes)
      has_ended =
          !budget.on_failure(failure(crash.kind, crash.number, crash.rank), ended(kTrained, false, crash.step)).restart;
    CAPTURE(row.what);
    CHECK(has_ended == row.ends);
  }
  RetryBudget command(job_with(job::kUnlimited, false));
  for (int count = 0; count < 5; ++count) CHECK(command.on_failure(failure(kSignal, 11), ended(kTrained)).restart);
}

TEST_CASE("a command that fails with the same error at the same place three times is not started again") {
  Failure same = failure(FailureKind::kExitCode, 1);
  same.error = {"ValueError", "bad sample", {}, 0};
  struct Row {
    const char* what;
    std::int64_t step[3];
    Duration lived[3];
    bool ends;
  };
  const Row rows[] = {
      {"at the same step", {5, 5, 5}, {1min, 2min, 3min}, true},
      {"further on", {5, 6, 7}, {1min, 1min, 1min}, false},
      {"after the same time", {0, 0, 0}, {60s, 61s, 62s}, true},
      {"at other times", {0, 0, 0}, {1min, 2min, 4min}, false},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    RetryBudget budget(job_with(job::kUnlimited, false));
    bool goes_on = true;
    for (int life = 0; life < 3; ++life) {
      EndedGeneration end = ended(kTrained, life == 0, row.step[life]);
      end.lived = row.lived[life];
      goes_on = budget.on_failure(same, end).restart;
      if (life < 2) CHECK(goes_on);
    }
    CHECK(goes_on != row.ends);
  }
}

TEST_CASE("a command that crashes soon after each start is started more and more slowly") {
  RetryBudget budget(job_with(job::kUnlimited, false));
  const auto delay = [&budget](Duration lived, FailureKind kind) {
    EndedGeneration end = ended(kTrained);
    end.lived = lived;
    return budget.on_failure(failure(kind, 9), end).delay;
  };
  CHECK(delay(1s, FailureKind::kExitCode) == 0s);
  CHECK(delay(2s, FailureKind::kExitCode) == 1s);
  CHECK(delay(3s, FailureKind::kExitCode) == 2s);
  CHECK(delay(1min, FailureKind::kExitCode) == 0s);
  CHECK(delay(1s, FailureKind::kExitCode) == 0s);
  CHECK(delay(1s, FailureKind::kSignal) == 0s);  // Killed by others: that says nothing of the program.
}

TEST_CASE("nodes that are asked again use no attempt, and are asked less and less often") {
  RetryBudget budget(job_with(0));
  const bool first = true;
  CHECK(budget.on_failure(failure(FailureKind::kNodeRefused), ended(kFailedStart, first)).restart);
  Duration delay = RetryBudget::kAskAgain;
  for (int time = 0; time < 20; ++time) {
    CHECK(budget.ask_again_delay() == std::min(delay, RetryBudget::kDelayMax));
    if (delay < RetryBudget::kDelayMax) delay *= 2;
    budget.on_ask_again();
    const auto again = budget.on_failure(failure(FailureKind::kNodeRefused), ended(kFailedStart, first));
    CHECK((again.restart && again.delay == 0s && budget.attempts() == 1));
  }
  // Others that refuse it for the first time count as before.
  CHECK(budget.on_failure(failure(FailureKind::kNodeRefused), ended(kFailedStart, first)).restart);
  CHECK_FALSE(budget.on_failure(failure(FailureKind::kNodeRefused), ended(kFailedStart, first)).restart);
}
