// With many nodes what is free is offered now and then, not after each of the events that a failed switch brings.

#include <fmt/format.h>

#include "test/unit/core/coordinator_bench.hpp"

using namespace sgd;
using namespace sgd::core;

namespace {

CoordinatorSettings seldom(std::optional<Duration> node_timeout = std::nullopt) {
  CoordinatorSettings settings{node_timeout};
  settings.offered_at_once = 2;
  settings.offer_gap = 1ms;
  return settings;
}

}  // namespace

TEST_CASE("offers: up to so many nodes at once, with more after the gap") {
  CoordinatorBench bench(seldom());
  bench.node("a", 1);
  bench.submit("run", 4);
  bench.node("b", 1);  // An offer, in vain: two nodes are few.
  bench.node("c", 1);
  CHECK(bench.phase("run") == RunPhase::kPlacing);
  bench.node("d", 1);
  CHECK(bench.phase("run") == RunPhase::kPlacing);  // Its four nodes are here: 4 ms after the last offer.
  bench.wait(3ms);
  CHECK(bench.phase("run") == RunPhase::kPlacing);
  bench.wait(1ms);
  CHECK(bench.phase("run") == RunPhase::kStarting);
}

TEST_CASE("offers: nobody waits for one after a quiet time") {
  CoordinatorBench bench(seldom());
  for (const char* node : {"a", "b", "c", "d"}) bench.node(node, 1);
  bench.wait(1s);
  bench.submit("run", 4);
  CHECK(bench.phase("run") == RunPhase::kStarting);
}

TEST_CASE("offers: runs that come one after the other have one together") {
  CoordinatorBench bench(seldom());
  for (const char* node : {"a", "b", "c"}) bench.node(node, 1);
  for (const char* run : {"first", "second", "third"}) bench.submit(run, 1);
  CHECK(bench.phase("first") == RunPhase::kStarting);
  CHECK(bench.phase("second") == RunPhase::kPlacing);
  bench.wait(3ms);
  CHECK(bench.phase("second") == RunPhase::kStarting);
  CHECK(bench.phase("third") == RunPhase::kStarting);
}

TEST_CASE("offers: a machine that is made of the state makes the one that was put off") {
  CoordinatorBench bench(seldom());
  for (const char* node : {"a", "b", "c"}) bench.node(node, 1);
  bench.submit("first", 1);
  bench.submit("second", 1);
  Coordinator again(seldom(), bench.coordinator().state());
  const auto at = again.next_wakeup();
  REQUIRE(at);
  CHECK(*at == bench.coordinator().next_wakeup());
  CoordinatorCommands commands;
  again.on(*at, coordinator_event::Tick{}, commands);
  CHECK(again.snapshot(*at, "second")->phase == RunPhase::kStarting);
}
