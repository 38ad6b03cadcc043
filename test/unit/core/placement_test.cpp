#include "launcher/core/placement.hpp"

#include <catch2/catch.hpp>

#include "launcher/core/cpu_share.hpp"

using namespace sgd;

TEST_CASE("ranks are dense, in node order, and never more than wanted or free") {
  struct Row {
    core::WorkersByNode slots;
    int wanted, least, expected;
  };
  const Row rows[] = {
      {{{"a", 2}}, 2, 2, 2},           {{{"a", 1}}, 2, 2, 0},           {{{"a", 1}}, 2, 1, 1}, {{{"a", 4}}, 2, 1, 2},
      {{{"a", 1}, {"b", 3}}, 3, 3, 3}, {{{"a", 0}, {"b", 2}}, 2, 2, 2}, {{}, 1, 1, 0},         {{{"a", 0}}, 1, 1, 0},
  };
  for (const Row& row : rows) {
    const core::Placement placement = core::place(row.slots, row.wanted, row.least);
    CHECK(placement.world_size == row.expected);
    Rank next = 0;
    for (const core::NodePlace& node : placement.nodes) {
      CHECK_FALSE(node.ranks.empty());
      CHECK(static_cast<int>(node.ranks.size()) <= row.slots.at(node.node));
      for (const Rank rank : node.ranks) CHECK(rank == next++);
    }
    CHECK(next == row.expected);
  }
  CHECK(core::place({{"a", 1}}, 2, 2).reason == "2 slots wanted, 1 available");
}

TEST_CASE("a new placement keeps the order of the nodes and their numbers of ranks as far as slots allow") {
  struct Row {
    const char* what;
    core::WorkersByNode slots;
    int wanted;
    std::vector<core::NodePlace> expected;
  };
  const core::Placement before{3, {{"b", {0, 1}}, {"a", {2}}}, 3, ""};
  const Row rows[] = {
      {"nothing changed", {{"a", 1}, {"b", 2}}, 3, {{"b", {0, 1}}, {"a", {2}}}},
      {"more room elsewhere", {{"a", 4}, {"b", 4}, {"c", 4}}, 3, {{"b", {0, 1}}, {"a", {2}}}},
      {"a slot lost on the first", {{"a", 1}, {"b", 1}}, 3, {{"b", {0}}, {"a", {1}}}},
      {"a slot lost, room on the other", {{"a", 2}, {"b", 1}}, 3, {{"b", {0}}, {"a", {1, 2}}}},
      {"the first node is gone", {{"a", 1}, {"c", 2}}, 3, {{"a", {0}}, {"c", {1, 2}}}},
      {"a node without room", {{"a", 1}, {"b", 0}}, 3, {{"a", {0}}}},
      {"grown", {{"a", 1}, {"b", 2}, {"c", 1}}, 4, {{"b", {0, 1}}, {"a", {2}}, {"c", {3}}}},
      {"all are new", {{"c", 1}, {"d", 1}}, 3, {{"c", {0}}, {"d", {1}}}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const core::Placement now = core::place(row.slots, row.wanted, 1, before);
    REQUIRE(now.nodes.size() == row.expected.size());
    for (std::size_t index = 0; index < now.nodes.size(); ++index) {
      CHECK(now.nodes[index].node == row.expected[index].node);
      CHECK(now.nodes[index].ranks == row.expected[index].ranks);
    }
  }
}

TEST_CASE("pack uses the fewest nodes, the fullest that fit; spread divides evenly; both in the same way each time") {
  using Strategy = job::PlacementRules::Strategy;
  struct Row {
    const char* what;
    core::WorkersByNode rooms;
    int wanted;
    Strategy strategy;
    core::Placement before;
    std::map<NodeId, std::size_t> expected;
  };
  const core::Placement uneven{3, {{"b", {0, 1}}, {"a", {2}}}, 3, ""};
  const Row rows[] = {
      {"the one that just fits", {{"a", 4}, {"b", 2}, {"c", 3}}, 2, Strategy::kPack, {}, {{"b", 2}}},
      {"the largest first, then what just fits",
       {{"a", 1}, {"b", 4}, {"c", 2}, {"d", 3}},
       6,
       Strategy::kPack,
       {},
       {{"b", 4}, {"c", 2}}},
      {"of equal ones the first", {{"a", 2}, {"b", 2}, {"c", 2}}, 3, Strategy::kPack, {}, {{"a", 2}, {"b", 1}}},
      {"of equal largest ones the first", {{"b", 3}, {"a", 3}, {"c", 1}}, 5, Strategy::kPack, {}, {{"a", 3}, {"b", 2}}},
      {"on nodes that it has, before others",
       {{"a", 1}, {"b", 4}, {"c", 1}},
       4,
       Strategy::kPack,
       uneven,
       {{"a", 1}, {"b", 3}}},
      {"a lost one is replaced by one that fits",
       {{"a", 1}, {"c", 4}, {"d", 2}},
       3,
       Strategy::kPack,
       uneven,
       {{"a", 1}, {"d", 2}}},
      {"evenly", {{"a", 4}, {"b", 4}, {"c", 4}}, 6, Strategy::kSpread, {}, {{"a", 2}, {"b", 2}, {"c", 2}}},
      {"evenly as far as room allows",
       {{"a", 1}, {"b", 4}, {"c", 4}},
       6,
       Strategy::kSpread,
       {},
       {{"a", 1}, {"b", 3}, {"c", 2}}},
      {"nothing moves at the same size",
       {{"a", 4}, {"b", 4}, {"c", 4}},
       3,
       Strategy::kSpread,
       uneven,
       {{"a", 1}, {"b", 2}}},
      {"a lost part goes where the fewest are",
       {{"a", 4}, {"c", 4}},
       3,
       Strategy::kSpread,
       uneven,
       {{"a", 2}, {"c", 1}}},
      {"even again at another size", {{"a", 4}, {"b", 4}}, 2, Strategy::kSpread, uneven, {{"a", 1}, {"b", 1}}},
  };
  for (const Row& row : rows) {
    CAPTURE(row.what);
    const core::Placement placement = core::place(row.rooms, row.wanted, 1, row.before, row.strategy);
    std::map<NodeId, std::size_t> counts;
    for (const core::NodePlace& place : placement.nodes) counts[place.node] = place.ranks.size();
    CHECK(counts == row.expected);
    CHECK(placement.world_size == row.wanted);
  }
}

TEST_CASE("each local rank has its own share of the cores, or nobody is bound") {
  CHECK(core::cpu_share({0, 1}, 0, 2, 1).cores == std::vector<int>{0});
  CHECK(core::cpu_share({0, 1}, 1, 2, 1).cores == std::vector<int>{1});
  CHECK(core::cpu_share({4, 5, 6, 7, 8}, 1, 2, 2).cores == std::vector<int>{6, 7});
  CHECK(core::cpu_share({0, 1}, 0, 1, 1).cores == std::vector<int>{0, 1});
  CHECK_FALSE(core::cpu_share({0, 1}, 0, 3, 1).exclusive);
  CHECK(core::cpu_share({0, 1}, 2, 3, 1).cores.empty());
  CHECK(core::cpu_share({0, 1}, 0, 2, 2).cores.empty());
}
