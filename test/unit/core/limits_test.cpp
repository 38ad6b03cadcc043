// Written limits of what a coordinator remembers of nodes' names.

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "test/unit/core/coordinator_bench.hpp"

using namespace sgd;
using Bench = core::CoordinatorBench;
using Kind = core::NodeOrder::Kind;

TEST_CASE("orders for one more name than can be remembered are refused in words; limit kStandingsMax") {
  Bench bench;
  bench.node("new", 1);
  core::coordinator_event::NodesKnown known;
  for (std::size_t number = 0; number < core::Coordinator::kStandingsMax; ++number)
    known.standings.push_back({fmt::format("n{}", number), true, std::nullopt, {}, std::nullopt});
  bench.on(known);
  CHECK(bench.coordinator().why_not("new", {Kind::kDrain, -1}) ==
        "65536 names of nodes have orders or lost links already: `nodes remove` those that are gone");
  CHECK(bench.coordinator().why_not("n7", {Kind::kUndrain, -1}).empty());  // What has a place keeps it.
  bench.order("n7", Kind::kRemove);
  CHECK(bench.coordinator().why_not("new", {Kind::kDrain, -1}).empty());
}
