// What is said of a run that waits for its first place.

#include <catch2/catch.hpp>

#include "launcher/cli/wait_teller.hpp"

namespace sgd::cli {
namespace {

core::RunSnapshot waiting(double wall_s, const char* reason) {
  core::RunSnapshot shot;
  shot.wall_s = wall_s;
  shot.reason = reason;
  return shot;
}

}  // namespace

TEST_CASE("wait teller: each reason once, after a second, and at most one in five") {
  WaitTeller teller;
  CHECK(teller.line(waiting(0.9, "no slots")).empty());
  CHECK(teller.line(waiting(1.0, "")).empty());
  CHECK(teller.line(waiting(1.1, "no slots")) == "waiting: no slots");
  CHECK(teller.line(waiting(9.0, "no slots")).empty());
  CHECK(teller.line(waiting(9.1, "no nodes")) == "waiting: no nodes");
  CHECK(teller.line(waiting(14.0, "no slots")).empty());
  CHECK(teller.line(waiting(14.2, "no slots")) == "waiting: no slots");
}

TEST_CASE("wait teller: a run that has a place waits for nothing") {
  WaitTeller teller;
  core::RunSnapshot shot = waiting(3, "rank 1 is missing");
  shot.phase = core::RunPhase::kStarting;
  CHECK(teller.line(shot).empty());
}

}  // namespace sgd::cli
