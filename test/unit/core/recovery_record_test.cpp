#include "launcher/core/recovery_record.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
using namespace std::chrono_literals;
using core::Failure;
using core::FailureKind;
using core::RecoveryRecord;

namespace {

Failure killed(double notice_s) {
  Failure failure;
  failure.kind = FailureKind::kSignal;
  failure.signal = 9;
  failure.subject = "rank 1";
  failure.notice_s = notice_s;
  return failure;
}

link::Ready ready(double restore_s, std::int64_t redone) {
  link::Ready made;
  made.step = 10;
  made.source = "memory";
  made.restore_s = restore_s;
  made.redone = redone;
  return made;
}

double sum_of_phases(const nlohmann::ordered_json& event) {
  double sum = 0;
  for (const char* phase : {"notice_s", "clear_s", "wait_s", "start_s", "restore_s", "first_step_s"})
    sum += event.at(phase).get<double>();
  return sum;
}

TimePoint at(Duration duration) {
  return TimePoint(duration);
}

}  // namespace

TEST_CASE("phases of a recovery add up to its total") {
  RecoveryRecord record;
  record.begin(at(1s), killed(0.5));
  CHECK(record.pending());
  record.cleared(at(1100ms));
  record.started(at(3100ms));
  record.ready(at(3300ms), ready(0.05, 2));
  record.ready(at(3400ms), ready(0.1, 4));
  const auto event = record.finish(at(3500ms), 2, 2, true);
  CHECK_FALSE(record.pending());
  CHECK(event["from"] == "signal 9 (SIGKILL)");
  CHECK(event["subject"] == "rank 1");
  CHECK(event["notice_s"] == Approx(0.5));
  CHECK(event["clear_s"] == Approx(0.1));
  CHECK(event["wait_s"] == Approx(2.0));
  CHECK(event["start_s"] == Approx(0.2));
  CHECK(event["restore_s"] == Approx(0.1));
  CHECK(event["first_step_s"] == Approx(0.1));
  CHECK(event["total_s"] == Approx(3.0));
  CHECK(sum_of_phases(event) == Approx(event["total_s"].get<double>()));
  CHECK(event["redone"] == 4);
  CHECK(event["bit_exact"] == true);
}

TEST_CASE("a rank that measures a longer restore than its start took does not make a phase negative") {
  RecoveryRecord record;
  record.begin(at(0s), killed(0));
  record.cleared(at(0s));
  record.started(at(0s));
  record.ready(at(100ms), ready(0.4, -1));
  const auto event = record.finish(at(200ms), 2, 1, false);
  CHECK(event["start_s"] == Approx(0.0));
  CHECK(event["restore_s"] == Approx(0.1));
  CHECK(sum_of_phases(event) == Approx(0.2));
  CHECK_FALSE(event.contains("redone"));
}

TEST_CASE("a restart that fails on its way is one recovery, with the later cause and the first clock") {
  RecoveryRecord record;
  record.begin(at(1s), killed(0.5));
  record.cleared(at(2s));
  record.started(at(2s));
  record.ready(at(3s), ready(0.9, 7));
  Failure second = killed(9);
  second.kind = FailureKind::kExitCode;
  second.exit_code = 70;
  record.begin(at(4s), second);
  record.cleared(at(5s));
  record.started(at(6s));
  record.ready(at(7s), ready(0.25, 3));
  const auto event = record.finish(at(8s), 3, 2, true);
  CHECK(event["from"] == "exit code 70");
  CHECK(event["notice_s"] == Approx(0.5));
  CHECK(event["total_s"] == Approx(7.5));
  CHECK(sum_of_phases(event) == Approx(7.5));
  CHECK(event["clear_s"] == Approx(2.0));
  CHECK(event["wait_s"] == Approx(1.0));
  CHECK(event["start_s"] == Approx(2.75));
  CHECK(event["restore_s"] == Approx(0.25));
  CHECK(event["first_step_s"] == Approx(1.0));
  CHECK(event["redone"] == 3);
}

TEST_CASE("a change of size without a failure is no recovery, and leaves nothing for the next one") {
  RecoveryRecord record;
  record.cleared(at(1s));
  record.started(at(2s));
  record.ready(at(3s), ready(0.5, 9));
  CHECK_FALSE(record.pending());
  record.begin(at(10s), killed(0));
  record.cleared(at(10s));
  record.started(at(10s));
  record.ready(at(11s), ready(0.1, -1));
  const auto event = record.finish(at(11s), 3, 2, true);
  CHECK(event["total_s"] == Approx(1.0));
  CHECK(event["restore_s"] == Approx(0.1));
  CHECK_FALSE(event.contains("redone"));
}
