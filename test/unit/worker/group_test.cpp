// Groups as the factory forms them: shared memory, Gloo, and both, with ranks of this machine
// declared to be on several hosts.
#include <catch2/catch.hpp>

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "test/unit/worker/collective_checks.hpp"
#include "test/unit/worker/rank_processes.hpp"
#include "worker/collective/factory.hpp"
#include "worker/collective/gloo_loader.hpp"
#include "worker/collective/placement.hpp"

namespace sgd::worker {
namespace {

using namespace std::chrono_literals;
using testing::expect;
using testing::Memory;
using testing::RankContext;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kWithGloo = false;  // Sanitizers refuse RTLD_DEEPBIND, so those builds have no module.
#else
constexpr bool kWithGloo = true;
#endif

// Ranks per host; the ranks of a host are neighbours, or dealt out in turn.
struct Layout {
  std::vector<int> host_sizes;
  bool interleaved = false;

  [[nodiscard]] int size() const {
    int sum = 0;
    for (const int host : host_sizes) sum += host;
    return sum;
  }
};

struct RankPosition {
  int node, local_rank;
};

std::vector<RankPosition> positions(const Layout& layout) {
  std::vector<RankPosition> result;
  const auto hosts = static_cast<int>(layout.host_sizes.size());
  if (!layout.interleaved) {
    for (int host = 0; host < hosts; ++host) {
      for (int l = 0; l < layout.host_sizes[static_cast<std::size_t>(host)]; ++l) result.push_back({host, l});
    }
    return result;
  }
  for (int l = 0; static_cast<int>(result.size()) < layout.size(); ++l) {
    for (int host = 0; host < hosts; ++host) {
      if (l < layout.host_sizes[static_cast<std::size_t>(host)]) result.push_back({host, l});
    }
  }
  return result;
}

CollectiveSetup setup_of(const Layout& layout, const RankContext& context, const std::vector<Memory>& regions) {
  const RankPosition position = positions(layout)[static_cast<std::size_t>(context.rank)];
  CollectiveSetup setup;
  setup.rank = context.rank;
  setup.world_size = context.size;
  setup.local_rank = position.local_rank;
  setup.local_world_size = layout.host_sizes[static_cast<std::size_t>(position.node)];
  setup.node_rank = position.node;
  setup.node_count = static_cast<int>(layout.host_sizes.size());
  setup.generation = 3;
  setup.region_fd = regions[static_cast<std::size_t>(position.node)].fd();
  setup.gradient_count = 12'345;
  setup.stall_timeout = testing::kNoStall;
  setup.exchange = context.exchange;
  return setup;
}

void check_group(const Layout& layout, const std::string& backend = "auto") {
  const std::vector<Memory> regions(layout.host_sizes.size());
  const auto errors = testing::run_ranks({layout.size(), {}, 60s}, [&](const RankContext& context) {
    CollectiveSetup setup = setup_of(layout, context, regions);
    setup.backend = backend;
    const auto collective = make_collective(setup);
    expect(collective->rank() == context.rank && collective->world_size() == context.size, "rank or size");
    expect(collective->gradients().size() == setup.gradient_count, "length of the gradients");
    testing::check_collective(*collective);
    testing::check_bit_equal(*collective);
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("group: one rank needs nobody") {
  check_group({{1}});
}

TEST_CASE("group: one host shares memory") {
  check_group({{2}});
  check_group({{3}});
  check_group({{2}}, "shm");
}

TEST_CASE("group: Gloo alone") {
  if (!kWithGloo) return;
  check_group({{2}}, "gloo");
  check_group({{3}}, "gloo");
  check_group({{1, 1}});
  check_group({{1, 1, 1, 1}});
}

TEST_CASE("group: shared memory inside hosts and Gloo between them") {
  if (!kWithGloo) return;
  check_group({{2, 2}});
  check_group({{2, 2}, true});
  check_group({{1, 2}});
  check_group({{2, 1}});
  check_group({{1, 3}, true});
  check_group({{2, 1, 1}});
}

TEST_CASE("group: abort releases every rank while one is frozen") {
  if (!kWithGloo) return;
  const Layout layout = GENERATE(Layout{{1, 1, 1}}, Layout{{2, 2}}, Layout{{1, 2}});
  const std::vector<Memory> regions(layout.host_sizes.size());
  const int frozen = layout.size() - 1;
  const auto errors = testing::run_ranks({layout.size(), {frozen}, 60s}, [&](const RankContext& context) {
    const auto collective = make_collective(setup_of(layout, context, regions));
    for (int i = 0; i < 5; ++i) (void)collective->all_reduce(0);
    (void)context.exchange("warm", "yes");  // Ignoring the values: nobody aborts before all are here.
    if (context.rank == frozen) ::raise(SIGSTOP);
    TimePoint aborted_at;
    const pid_t waiting_thread = ::gettid();
    std::thread other([&] {
      testing::wait_until_asleep(waiting_thread);
      aborted_at = std::chrono::steady_clock::now();
      collective->abort();
    });
    bool released = false;
    TimePoint released_at;
    try {
      for (;;) (void)collective->all_reduce(0);
    } catch (const CollectiveError&) {
      released = true;
      released_at = std::chrono::steady_clock::now();
    }
    other.join();
    expect(released && released_at - aborted_at < testing::kNoStall / 3, "the release took too long");
  });
  for (int rank = 0; rank < frozen; ++rank) CHECK(errors[static_cast<std::size_t>(rank)] == "");
}

TEST_CASE("group: a rank killed on another host fails every rank, or the stall time-out does") {
  if (!kWithGloo) return;
  const Layout layout{{2, 1}};
  const std::vector<Memory> regions(layout.host_sizes.size());
  const auto errors = testing::run_ranks({3, {}, 60s}, [&](const RankContext& context) {
    const auto collective = make_collective(setup_of(layout, context, regions));
    collective->barrier();
    if (context.rank == 2) ::raise(SIGKILL);
    (void)collective->all_reduce(0);
  });
  CHECK_THAT(errors[0], Catch::Contains("all_reduce between hosts failed on host 0 of 2"));
  CHECK_THAT(errors[1], Catch::Contains("aborted"));
  CHECK(errors[2] == "rank 2 ended without a word");
}

// The ranks of `odd` do something else than the others.
void check_mismatch(const Layout& layout, const std::set<int>& odd, const std::string& backend,
                    const std::function<void(Collective&)>& other, const std::vector<std::string>& words) {
  const std::vector<Memory> regions(layout.host_sizes.size());
  const auto errors = testing::run_ranks({layout.size(), {}, 60s}, [&](const RankContext& context) {
    CollectiveSetup setup = setup_of(layout, context, regions);
    setup.backend = backend;
    const auto collective = make_collective(setup);
    const bool is_odd = odd.count(context.rank) != 0;
    const std::string text = testing::mismatch_of(
        *collective, is_odd ? other : [](Collective& c) { (void)c.all_reduce(0); });
    for (const std::string& word : words)
      expect(text.find(word) != std::string::npos, "'" + text + "' without " + word);
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("group: ranks that call different collectives are named on every rank of every host") {
  if (!kWithGloo) return;
  const auto agree = [](Collective& c) { (void)c.agree(0); };
  const std::string left = " to agree (end of a batch or of the loop)";
  check_mismatch({{3}}, {2}, "gloo", agree, {"rank 0, 1 to all_reduce", "rank 2" + left});
  check_mismatch({{1, 1}}, {0}, "auto", agree, {"rank 1 to all_reduce", "rank 0" + left});
  // Alone on its host, it is found between the hosts, and a whole host, too.
  check_mismatch({{2, 1}}, {2}, "auto", agree, {"rank 0, 1 to all_reduce", "rank 2" + left});
  check_mismatch({{2, 2}}, {0, 1}, "auto", agree, {"rank 2, 3 to all_reduce", "rank 0, 1" + left});
  check_mismatch({{2, 2}, true}, {1, 3}, "auto", agree, {"rank 0, 2 to all_reduce", "rank 1, 3" + left});
  // Beside others of its host, it is found there, and the other hosts are told.
  check_mismatch({{2, 2}}, {1}, "auto", agree, {"rank 0 to all_reduce", "rank 1" + left});
  check_mismatch({{1, 2}}, {2}, "auto", agree, {"rank 1 to all_reduce", "rank 2" + left});
}

TEST_CASE("group: every collective and every part is told from the others, also between hosts") {
  if (!kWithGloo) return;
  const auto gather = [](Collective& c) { (void)c.all_gather("words"); };
  const auto wait = [](Collective& c) { c.barrier(); };
  const auto give = [](Collective& c) { c.broadcast({}, 0); };
  const auto part = [](Collective& c) { (void)c.all_reduce(0, 345, 12'000); };
  for (const Layout& layout : {Layout{{1, 1}}, Layout{{2, 2}}, Layout{{1, 2}}}) {
    const int last = layout.size() - 1;
    check_mismatch(layout, {last}, "auto", gather, {" to all_gather", " to all_reduce"});
    check_mismatch(layout, {last}, "auto", wait, {" to barrier", " to all_reduce"});
    check_mismatch(layout, {0}, "auto", give, {" to broadcast", " to all_reduce"});
    check_mismatch(layout, {0}, "auto", part, {"12000 gradients from 345", "12345 gradients from 0"});
  }
}

TEST_CASE("group: buffers of several pieces have the bits of small ones") {
  if (!kWithGloo) return;
  const Layout layout{{1, 1, 1}};
  const std::vector<Memory> regions(3);
  const auto errors = testing::run_ranks({3, {}, 60s}, [&](const RankContext& context) {
    CollectiveSetup setup = setup_of(layout, context, regions);
    setup.gradient_count = (std::size_t{5} << 20) + 77;  // Longer than what travels at once.
    const auto collective = make_collective(setup);
    const std::span<float> gradients = collective->gradients();
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const float values[] = {1e8f, -1e8f, static_cast<float>(i % 1000)};  // In any other order less would be left.
      gradients[i] = values[context.rank];
    }
    expect(collective->all_reduce(0) == 0, "control word");
    for (std::size_t i = 0; i < gradients.size(); ++i)
      if (gradients[i] != static_cast<float>(i % 1000)) expect(false, "sum at " + std::to_string(i));
  });
  for (const std::string& error : errors) CHECK(error == "");
}

TEST_CASE("group: the address of a rank is short, however many hosts there are") {
  if (!kWithGloo) return;
  // In a process of its own: the module stays where it was loaded.
  const auto errors = testing::run_ranks({1, {}, 60s}, [](const RankContext&) {
    const SgdGlooApi& gloo = load_gloo();
    SgdGlooError error{};
    SgdGlooGroup* const group = gloo.create(200, 512, "127.0.0.1", 1000, &error);
    expect(group != nullptr, "a group is made");
    const std::string address = gloo.address(group);
    expect(address.size() < 512 * 8, "a value of an exchange takes 48 KiB");
    const std::string cut = address.substr(0, address.size() / 4);
    const std::vector<const char*> few(512, cut.c_str());
    expect(gloo.connect(group, few.data(), &error) != 0, "too few addresses are refused");
    expect(std::string(error.text) == "a peer gave too few addresses", "and said");
    const std::vector<const char*> none(512, "zz");
    expect(gloo.connect(group, none.data(), &error) != 0, "what is no address is refused");
    expect(std::string(error.text) == "a peer's address is not hexadecimal", "and said");
    gloo.destroy(group);
  });
  for (const std::string& error : errors) CHECK(error.empty());
}

TEST_CASE("group: Gloo's waits end at the stall time-out") {
  if (!kWithGloo) return;
  const Layout layout{{1, 1}};
  const std::vector<Memory> regions(2);
  const auto errors = testing::run_ranks({2, {1}, 60s}, [&](const RankContext& context) {
    CollectiveSetup setup = setup_of(layout, context, regions);
    setup.stall_timeout = 300ms;
    const auto collective = make_collective(setup);
    collective->barrier();
    if (context.rank == 1) ::raise(SIGSTOP);
    (void)collective->all_reduce(0);
  });
  CHECK_THAT(errors[0], Catch::Contains("all_reduce between hosts failed"));
}

TEST_CASE("group: what cannot be formed is said with the fix") {
  const std::vector<Memory> regions(2);
  const Exchange nobody = [](const std::string&, const std::string&) { return std::vector<std::string>(); };
  CollectiveSetup setup = setup_of({{1, 1}}, {0, 2, nobody}, regions);
  setup.backend = "shm";
  CHECK_THROWS_WITH(make_collective(setup), Catch::Contains("backend shm") && Catch::Contains("2 nodes"));
  setup.backend = "mpi";
  CHECK_THROWS_WITH(make_collective(setup), Catch::Contains("unknown backend 'mpi'"));
  setup = setup_of({{2}}, {0, 2, nobody}, regions);
  setup.region_fd = -1;
  CHECK_THROWS_WITH(make_collective(setup), Catch::Contains("no shared region"));

  const auto errors = testing::run_ranks({1, {}, 60s}, [&](const RankContext&) {
    ::setenv("SGD_MODULE_DIR", "/nowhere", 1);
    (void)load_gloo();
  });
  CHECK_THAT(errors[0], Catch::Contains("/nowhere/sgd-gloo.so") && Catch::Contains("install libgloo-dev"));
}

TEST_CASE("group: placements that do not fit are refused") {
  CHECK(read_placement({"5:0", "2:0", "5:1"}).hosts() == 2);
  CHECK(read_placement({"5:0", "2:0", "5:1"}).ranks[2].host == 1);
  CHECK(read_placement({"5:0", "2:0", "5:1"}).rank_at(1, 1) == 2);
  CHECK_THROWS_WITH(read_placement({"0:0", "0:0"}), Catch::Contains("two ranks are local rank 0 of node 0"));
  CHECK_THROWS_WITH(read_placement({"0:0", "0:2"}), Catch::Contains("one of them is local rank 2"));
  CHECK_THROWS_WITH(read_placement({"0:0", "0"}), Catch::Contains("rank 1 gave the placement '0'"));
}

}  // namespace
}  // namespace sgd::worker
