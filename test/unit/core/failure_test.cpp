#include "launcher/core/failure.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
using namespace std::chrono_literals;
using core::CauseFinder;
using core::Failure;
using core::FailureKind;

namespace {

Failure failure(FailureKind kind, Rank rank, Duration at) {
  Failure made;
  made.kind = kind;
  made.rank = rank;
  made.subject = "rank " + std::to_string(rank);
  made.at = TimePoint(at);
  if (kind == FailureKind::kSignal) made.signal = 9;
  if (kind == FailureKind::kExitCode) made.exit_code = 3;
  return made;
}

}  // namespace

TEST_CASE("the first primary failure is the cause") {
  CauseFinder finder;
  finder.add(failure(FailureKind::kSignal, 1, 0ms));
  finder.add(failure(FailureKind::kExitCode, 0, 1ms));
  finder.add(failure(FailureKind::kSignal, 2, 1ms));
  CHECK(finder.cause()->rank == 1);
  CHECK(finder.decided(TimePoint(0ms)));
}

TEST_CASE("a signal outranks an exit code for 200 ms") {
  for (const auto& [delay, expected] : {std::pair{200ms, 1}, std::pair{201ms, 0}}) {
    CauseFinder finder;
    finder.add(failure(FailureKind::kExitCode, 0, 0ms));
    finder.add(failure(FailureKind::kSignal, 1, delay));
    CHECK(finder.cause()->rank == expected);
  }
}

TEST_CASE("a final error of the user is never outranked") {
  CauseFinder finder;
  Failure user = failure(FailureKind::kExitCode, 0, 0ms);
  user.is_final = true;
  finder.add(user);
  finder.add(failure(FailureKind::kSignal, 1, 10ms));
  CHECK(finder.cause()->rank == 0);
}

TEST_CASE("a secondary failure waits a second for its cause and is replaced by it") {
  CauseFinder finder;
  finder.add(failure(FailureKind::kPeerLost, 0, 0ms));
  CHECK_FALSE(finder.decided(TimePoint(999ms)));
  CHECK(finder.next_wakeup() == TimePoint(1s));
  CHECK(finder.decided(TimePoint(1s)));
  finder.add(failure(FailureKind::kPeerLost, 2, 100ms));
  CHECK(finder.cause()->rank == 0);
  finder.add(failure(FailureKind::kExitCode, 1, 500ms));
  CHECK(finder.cause()->rank == 1);
  CHECK(finder.decided(TimePoint(500ms)));
  CHECK_FALSE(finder.next_wakeup().has_value());
}

TEST_CASE("failures in words") {
  Failure killed = failure(FailureKind::kSignal, 1, 0ms);
  CHECK(core::words(killed) == "signal 9 (SIGKILL), rank 1");
  killed.signal = 11;
  killed.core_dumped = true;
  CHECK(core::words(killed) == "signal 11 (SIGSEGV), rank 1, core dumped");
  Failure user = failure(FailureKind::kExitCode, 0, 0ms);
  user.message = "label 200 of sample 17 is outside 0..9";
  CHECK(core::words(user) == "exit code 3, rank 0: label 200 of sample 17 is outside 0..9");
  user.exit_code = -1;
  user.message = "cannot run prog";
  CHECK(core::words(user) == "could not start rank 0: cannot run prog");
}

TEST_CASE("a rank that waits for another one is secondary, also against one that stands still alone") {
  CauseFinder finder;
  Failure waits = failure(FailureKind::kStalled, 0, 0ms);
  waits.was_waiting = true;
  finder.add(waits);
  CHECK(finder.next_wakeup() == TimePoint(CauseFinder::kPrimaryWait));
  finder.add(failure(FailureKind::kStalled, 1, 100ms));
  CHECK(finder.cause()->rank == 1);
  CHECK(finder.decided(TimePoint(100ms)));
}

TEST_CASE("an exit code of a group may be a consequence: a signal has 200 ms to arrive") {
  CauseFinder finder;
  Failure follows = failure(FailureKind::kExitCode, 0, 0ms);
  follows.may_follow = true;
  finder.add(follows);
  CHECK_FALSE(finder.decided(TimePoint(199ms)));
  CHECK(finder.next_wakeup() == TimePoint(200ms));
  CHECK(finder.decided(TimePoint(200ms)));
  finder.add(failure(FailureKind::kSignal, 1, 150ms));
  CHECK(finder.cause()->rank == 1);
  CHECK(finder.decided(TimePoint(150ms)));
}

TEST_CASE("no failure, no cause; a reset forgets") {
  CauseFinder finder;
  CHECK_FALSE(finder.decided(TimePoint(1h)));
  CHECK_FALSE(finder.next_wakeup().has_value());
  finder.add(failure(FailureKind::kSignal, 1, 0ms));
  finder.reset();
  CHECK_FALSE(finder.cause().has_value());
}
