#include "launcher/core/core_allocation.hpp"

#include <set>

#include <catch2/catch.hpp>

#include "launcher/core/cpu_share.hpp"

using namespace sgd;
using core::CoreAllocation;
using core::RankShare;

namespace {

const std::vector<int> kEight{0, 1, 2, 3, 4, 5, 6, 7};

std::vector<std::vector<int>> cores(const std::vector<RankShare>& shares) {
  std::vector<std::vector<int>> lists;
  for (const RankShare& share : shares) lists.push_back(share.cores);
  return lists;
}

}  // namespace

TEST_CASE("a node of one run divides all its cores, as cpu_share does") {
  for (const int ranks : {1, 2, 3, 8, 9}) {
    for (const int cpus : {1, 2, 8}) {
      CAPTURE(ranks, cpus);
      CoreAllocation allocation(kEight, {}, false);
      const std::vector<RankShare> shares = allocation.allocate("run", ranks, {cpus, 0}, ranks);
      for (int rank = 0; rank < ranks; ++rank)
        CHECK(shares[static_cast<std::size_t>(rank)].cores == core::cpu_share(kEight, rank, ranks, cpus).cores);
    }
  }
}

TEST_CASE("runs that share a node have cores of their own") {
  CoreAllocation allocation(kEight, {}, true);
  using Lists = std::vector<std::vector<int>>;
  CHECK(cores(allocation.allocate("a", 2, {1, 0}, 8)) == Lists{{0}, {1}});
  CHECK(cores(allocation.allocate("b", 2, {2, 0}, 8)) == Lists{{2, 3}, {4, 5}});
  CHECK(cores(allocation.allocate("c", 1, {2, 0}, 8)) == Lists{{6, 7}});
  CHECK(cores(allocation.allocate("d", 1, {1, 0}, 8)) == Lists{{}});  // None is left: unbound.
  allocation.release("b");
  CHECK(cores(allocation.allocate("d", 1, {3, 0}, 8)) == Lists{{2, 3, 4}});
  CHECK(cores(allocation.allocate("a", 3, {1, 0}, 8)) == Lists{{0}, {1}, {5}});  // Again: what it had is free for it.
  CHECK(cores(allocation.allocate("e", 2, {1, 0}, 8)) == Lists{{}, {}});
}

TEST_CASE("with fewer slots than cores each slot has its part of them") {
  CoreAllocation allocation(kEight, {}, true);
  using Lists = std::vector<std::vector<int>>;
  CHECK(cores(allocation.allocate("a", 1, {1, 0}, 2)) == Lists{{0, 1, 2, 3}});
  CHECK(cores(allocation.allocate("b", 1, {1, 0}, 2)) == Lists{{4, 5, 6, 7}});
  allocation.release("a");
  CHECK(cores(allocation.allocate("c", 2, {2, 0}, 2)) ==
        Lists{{0, 1}, {2, 3}});  // Less than a slot's part, and enough.
}

TEST_CASE("GPUs are dealt out, and shared only where they do not suffice") {
  CoreAllocation allocation({}, {"0", "1", "2", "3"}, true);
  const auto gpus = [&](const RunId& run, int ranks, int each) {
    std::vector<core::GpuNames> lists;
    for (const RankShare& share : allocation.allocate(run, ranks, {1, each}, 4)) lists.push_back(share.gpus);
    return lists;
  };
  using Lists = std::vector<core::GpuNames>;
  CHECK(gpus("a", 2, 1) == Lists{{"0"}, {"1"}});
  CHECK(gpus("none", 1, 0) == Lists{{}});
  CHECK(gpus("b", 1, 2) == Lists{{"2", "3"}});
  CHECK(gpus("c", 1, 1) == Lists{{"0"}});
  CHECK(gpus("d", 1, 1) == Lists{{"1"}});
  allocation.release("b");
  CHECK(gpus("e", 1, 1) == Lists{{"2"}});
  CHECK(gpus("f", 1, 9).front().size() == 4);
}

TEST_CASE("ranks that have GPUs see those of the run, so that each one's own stands at its local rank") {
  using core::Visibility;
  struct Row {
    std::string what;
    core::GpuNames node;
    int ranks;
    int each;
    Visibility visibility;
    std::vector<core::GpuNames> seen;
  };
  const core::GpuNames four{"4", "5", "GPU-a", "GPU-b"};
  for (const Row& row : {
           Row{"torchrun's convention",
               four,
               3,
               1,
               Visibility::kAuto,
               {{"4", "5", "GPU-a"}, {"4", "5", "GPU-a"}, {"4", "5", "GPU-a"}}},
           Row{"its own, by request", four, 2, 1, Visibility::kOwn, {{"4"}, {"5"}}},
           Row{"several each: cuda:LOCAL_RANK would be another's",
               four,
               2,
               2,
               Visibility::kAuto,
               {{"4", "5"}, {"GPU-a", "GPU-b"}}},
           Row{"several each, all by request", four, 2, 2, Visibility::kNode, {four, four}},
           Row{"parts of a device: CUDA sees one in a process",
               {"MIG-a", "MIG-b"},
               2,
               1,
               Visibility::kNode,
               {{"MIG-a"}, {"MIG-b"}}},
           Row{"too few: none stands twice in a list", {"4"}, 2, 1, Visibility::kNode, {{"4"}, {"4"}}},
           Row{"one rank", four, 1, 1, Visibility::kAuto, {{"4"}}},
           Row{"none", four, 1, 0, Visibility::kAuto, {{}}},
       }) {
    CAPTURE(row.what);
    CoreAllocation allocation({}, row.node, false);
    std::vector<core::GpuNames> seen;
    for (const RankShare& share : allocation.allocate("run", row.ranks, {1, row.each, row.visibility}, 4))
      seen.push_back(share.visible.value());
    CHECK(seen == row.seen);
  }
}

TEST_CASE("a rank's GPUs stand in the node's order, also when those in front of them were taken last") {
  CoreAllocation allocation({}, {"0", "1", "2"}, true);
  (void)allocation.allocate("a", 1, {1, 1}, 3);
  (void)allocation.allocate("b", 2, {1, 1}, 3);
  allocation.release("a");
  CHECK(allocation.allocate("c", 1, {1, 1}, 3).front().gpus == core::GpuNames{"0"});
  allocation.release("b");
  CHECK(allocation.allocate("d", 2, {1, 1}, 3).front().visible == core::GpuNames{"1", "2"});
}

TEST_CASE("who asks for no GPUs sees those that nobody has, and who asks for 0 none") {
  const auto seen = [](CoreAllocation& allocation, const RunId& run, std::optional<int> each) {
    return allocation.allocate(run, 1, {1, each}, 4).front().visible;
  };
  using Seen = std::optional<core::GpuNames>;
  CoreAllocation cluster({}, {"4", "5", "6"}, true);
  CHECK(seen(cluster, "all", {}) == Seen{{"4", "5", "6"}});
  CHECK(seen(cluster, "one", 1) == Seen{{"4"}});  // What others only see is free.
  CHECK(seen(cluster, "rest", {}) == Seen{{"5", "6"}});
  CHECK(seen(cluster, "none", 0) == Seen{core::GpuNames{}});
  cluster.release("one");
  CHECK(seen(cluster, "rest", {}) == Seen{{"4", "5", "6"}});
  CoreAllocation no_gpus({}, {}, true);
  CHECK(seen(no_gpus, "any", {}) == Seen{});
  CoreAllocation launcher({}, {}, false);
  CHECK(seen(launcher, "any", {}) == Seen{});
  CHECK(seen(launcher, "none", 0) == Seen{core::GpuNames{}});
}

TEST_CASE("a run does not get a GPU that it does without, and others take that one first") {
  CoreAllocation allocation({}, {"0", "1", "2"}, true);
  const auto gpus = [&](const RunId& run, int ranks) {
    core::GpuNames all;
    for (const RankShare& share : allocation.allocate(run, ranks, {1, 1}, 4))
      all.insert(all.end(), share.gpus.begin(), share.gpus.end());
    return all;
  };
  allocation.leave_out("a", {"1"});
  CHECK(gpus("a", 2) == core::GpuNames{"0", "2"});
  CHECK(gpus("a", 3) == core::GpuNames{"0", "2", "0"});  // Too few are left: shared, and never that one.
  allocation.release("a");
  CHECK(gpus("b", 1) == core::GpuNames{"1"});
  CHECK(gpus("a", 2) == core::GpuNames{"0", "2"});
  allocation.release("a");
  allocation.leave_out("a", {});
  CHECK(gpus("c", 1) == core::GpuNames{"0"});
  allocation.leave_out("d", {"0", "1", "2"});
  CHECK(gpus("d", 1).empty());
}
