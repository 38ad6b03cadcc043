#include "launcher/core/failure.hpp"

#include <catch2/catch.hpp>

#include "launcher/core/peer_loss.hpp"

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

TEST_CASE("a GPU that has failed outranks an exit code near it, and no signal outranks that") {
  Failure broken = failure(FailureKind::kExitCode, 1, 10ms);
  broken.gpu = "GPU-a";
  CauseFinder later;
  later.add(failure(FailureKind::kExitCode, 0, 0ms));
  later.add(broken);
  CHECK(later.cause()->rank == 1);
  later.add(failure(FailureKind::kSignal, 2, 20ms));
  CHECK(later.cause()->rank == 1);
  CauseFinder much_later;
  much_later.add(failure(FailureKind::kExitCode, 0, -191ms));
  much_later.add(broken);
  CHECK(much_later.cause()->rank == 0);
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

namespace {

Failure raised(Rank rank, Duration at, const char* type, const char* message, double at_s) {
  Failure made = failure(FailureKind::kExitCode, rank, at);
  made.exit_code = 1;
  made.error = {type, message, {}, at_s};
  made.follows_peer = core::is_peer_loss(made.error);
  return made;
}

}  // namespace

TEST_CASE("which of two failures of a command is the cause") {
  const Failure lost = raised(0, 0ms, "RuntimeError", "Connection closed by peer [127.0.0.1]:1", 1);
  const Failure nan = raised(1, 100ms, "ValueError", "loss is NaN", 2);
  const auto at = [](Failure failure, Duration when) {
    failure.at = TimePoint(when);
    return failure;
  };
  Failure living = at(nan, 0ms);
  living.kind = FailureKind::kRaised;
  Failure aborted = failure(FailureKind::kSignal, 2, 100ms);
  aborted.signal = 6;
  const Failure killed = failure(FailureKind::kSignal, 2, 100ms);
  const Failure plain = failure(FailureKind::kExitCode, 2, 0ms);
  struct Row {
    const char* what;
    Failure first;
    Failure second;
    Rank cause;
  };
  const Row rows[] = {
      {"a peer's loss, then its cause", lost, at(nan, 900ms), 1},
      {"a peer's loss, and what one said that goes on", lost, living, 1},
      {"of two told errors the earlier one", at(nan, 0ms), raised(2, 50ms, "KeyError", "'a'", 1.5), 2},
      {"though it came later", at(nan, 0ms), raised(2, 50ms, "KeyError", "'a'", 2.5), 1},
      {"much later it may be anything", at(nan, 0ms), raised(2, 500ms, "KeyError", "'a'", 1.5), 1},
      {"a told error, and one that ends itself", at(nan, 0ms), aborted, 1},
      {"a told error, and one that was killed", at(nan, 0ms), killed, 2},
      {"an exit code, and a signal", plain, at(aborted, 100ms), 2},
      {"a killed one, then a peer's loss", at(killed, 0ms), at(lost, 10ms), 2},
      {"two losses", lost, raised(2, 10ms, "BrokenPipeError", "[Errno 32]", 0.5), 0},
  };
  for (const Row& row : rows) {
    INFO(row.what);
    CauseFinder finder;
    finder.add(row.first);
    finder.add(row.second);
    CHECK(finder.cause()->rank == row.cause);
  }
}

TEST_CASE("errors in words, and which are a peer's loss or beyond a restart") {
  Failure nan = raised(1, 0ms, "ValueError", "loss is NaN", 2);
  CHECK(core::words(nan) == "rank 1: ValueError: loss is NaN (exit code 1)");
  nan.message = "rank 0 had ended";
  CHECK(core::words(nan) == "rank 1: ValueError: loss is NaN (exit code 1); rank 0 had ended");
  nan.kind = FailureKind::kRaised;
  CHECK(core::words(nan) == "rank 1: ValueError: loss is NaN (had not ended); rank 0 had ended");
  Failure fault = failure(FailureKind::kSignal, 1, 0ms);
  fault.error = {"Fatal Python error", "Segmentation fault", {}, 0};
  CHECK(core::words(fault) == "signal 9 (SIGKILL), rank 1: Fatal Python error: Segmentation fault");
  struct Row {
    RankError error;
    bool peer_loss;
    bool beyond_restart;
    int exit_code = 1;
  };
  const Row rows[] = {
      {{"RuntimeError", "[..] Connection closed by peer [::1]:5", {}, 0}, true, false},
      {{"torch.distributed.DistBackendError", "NCCL error: ncclRemoteError: A call failed", {}, 0}, true, false},
      {{"RuntimeError", "[..] Timed out waiting 1800000ms for recv operation to complete", {}, 0}, true, false},
      {{"BrokenPipeError", "[Errno 32] x", {}, 0}, true, false},
      {{"ValueError", "loss is NaN", {}, 0}, false, false},
      {{"SyntaxError", "invalid syntax", {}, 0}, false, true},
      {{"ModuleNotFoundError", "No module named 'x'", {}, 0}, false, true},
      {{"ModuleNotFoundError", "No module named 'x'", {}, 0}, false, false, 3},
      {{"ModuleNotFoundError", "No module named 'x'", {}, 0}, false, false, -1},
      {{"ImportError", "sys.meta_path is None", {}, 0, true}, false, false},
      {{"FileNotFoundError", "can't open file 'x.py': [Errno 2]", {}, 0}, false, true, 2},
      {{"FileNotFoundError", "can't open file 'x.py': [Errno 2]", {}, 0}, false, false, 1},
      {{"FileNotFoundError", "[Errno 2] No such file or directory: 'data'", {}, 0}, false, false},
  };
  for (const Row& row : rows) {
    INFO(core::words(row.error));
    CHECK(core::is_peer_loss(row.error) == row.peer_loss);
    CHECK(core::is_beyond_restart(row.error, row.exit_code) == row.beyond_restart);
  }
  CHECK(core::tells_peer_loss({"1", "what(): Connection reset by peer", "3"}));
  CHECK_FALSE(core::tells_peer_loss({"Connection reset by peer", "1", "2", "3", "4", "5"}));
}
