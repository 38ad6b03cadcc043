#include "worker/collective/shm_collective.hpp"

#include <catch2/catch.hpp>

#include <unistd.h>

#include <csignal>
#include <functional>
#include <new>
#include <thread>

#include "test/unit/worker/collective_checks.hpp"
#include "test/unit/worker/rank_processes.hpp"

namespace sgd::worker {
namespace {

using namespace std::chrono_literals;
using testing::expect;
using testing::RankContext;

constexpr Generation kGeneration = 7;

void check_no_errors(const std::vector<std::string>& errors) {
  for (const std::string& error : errors) CHECK(error == "");
}

// `region` was prepared before the ranks were forked.
ShmCollective join(const testing::Memory& region, const RankContext& context, std::size_t count, Waiting waiting,
                   Duration stall_timeout = testing::kNoStall) {
  return ShmCollective(region.fd(), kGeneration, context.rank, context.size, count, waiting, stall_timeout);
}

TEST_CASE("shm: every operation gives the expected values") {
  const int size = GENERATE(1, 2, 3, 4);
  const Waiting waiting = GENERATE(Waiting::kSpin, Waiting::kSleep);
  const std::size_t count = GENERATE(std::size_t{0}, std::size_t{1}, std::size_t{17}, std::size_t{10'007});
  if (waiting == Waiting::kSpin && size > 2 && count > 1) return;  // Spinning without cores: once is enough.
  const testing::Memory region;
  ShmRegion::prepare(region.fd(), kGeneration, size, count);
  CAPTURE(size, count);
  check_no_errors(testing::run_ranks({size, {}, 60s}, [&](const RankContext& context) {
    ShmCollective collective = join(region, context, count, waiting);
    testing::check_collective(collective);
    testing::check_bit_equal(collective);
  }));
}

TEST_CASE("shm: sums are made in rank order") {
  const testing::Memory region;
  ShmRegion::prepare(region.fd(), kGeneration, 3, 40);
  check_no_errors(testing::run_ranks({3, {}, 60s}, [&](const RankContext& context) {
    ShmCollective collective = join(region, context, 40, Waiting::kSleep);
    const float values[] = {1e8f, -1e8f, 1.0f};  // In any other order the 1 would be lost.
    for (float& gradient : collective.gradients()) gradient = values[context.rank];
    expect(collective.all_reduce(0) == 0, "control word");
    for (const float gradient : collective.gradients()) expect(gradient == 1.0f, "sum " + std::to_string(gradient));
  }));
}

TEST_CASE("shm: a region serves one generation after the other, also of other sizes") {
  const testing::Memory region;
  for (const auto& [generation, size, count] :
       {std::tuple<Generation, int, std::size_t>{1, 3, 5000}, {2, 2, 5000}, {3, 2, 90'000}, {4, 4, 8}}) {
    ShmRegion::prepare(region.fd(), generation, size, count);
    CHECK_THROWS_WITH(ShmCollective(region.fd(), generation + 1, 0, size, count, Waiting::kSleep, 1s),
                      Catch::Contains("the shared region is prepared for generation"));
    check_no_errors(testing::run_ranks({size, {}, 60s}, [&, g = generation, n = count](const RankContext& context) {
      ShmCollective collective(region.fd(), g, context.rank, context.size, n, Waiting::kSleep, 30s);
      testing::check_collective(collective);
    }));
  }
}

TEST_CASE("shm: pages that cannot be had are an error, not a signal at the first write") {
  const testing::Memory memory;
  constexpr std::size_t kCount = 100'000;
  ShmRegion::prepare(memory.fd(), kGeneration, 2, kCount);
  ShmRegion region(memory.fd(), kGeneration, 2, kCount);
  region.populate(0);
  region.populate(1);
  // The same as where the system has no memory left: behind the file's end there is none.
  REQUIRE(::ftruncate(memory.fd(), static_cast<off_t>(ShmRegion::bytes(2, kCount) / 2)) == 0);
  CHECK_THROWS_AS(region.populate(1), std::bad_alloc);
}

TEST_CASE("shm: an abort from another thread releases a rank that waits, spinning or asleep") {
  const Waiting waiting = GENERATE(Waiting::kSpin, Waiting::kSleep);
  const bool once_asleep = GENERATE(false, true);  // Else at once: before the wait, or while it spins.
  const testing::Memory region;
  ShmRegion::prepare(region.fd(), kGeneration, 2, 100);
  const auto errors = testing::run_ranks({2, {1}, 60s}, [&](const RankContext& context) {
    ShmCollective collective = join(region, context, 100, waiting);
    if (context.rank == 1) ::raise(SIGSTOP);  // A peer that is frozen, not dead.
    TimePoint aborted_at;
    const pid_t waiting_thread = ::gettid();
    std::thread other([&] {
      if (once_asleep) testing::wait_until_asleep(waiting_thread);
      aborted_at = std::chrono::steady_clock::now();
      collective.abort();
    });
    std::string message;
    try {
      (void)collective.all_reduce(0);
    } catch (const CollectiveError& error) {
      message = error.what();
    }
    const auto released_at = std::chrono::steady_clock::now();
    other.join();
    expect(message.find("aborted") != std::string::npos, "message '" + message + "'");
    expect(released_at - aborted_at < testing::kNoStall / 3, "the release took too long");
    try {
      collective.barrier();
    } catch (const CollectiveError&) {
      return;
    }
    expect(false, "a call after the abort went through");
  });
  CHECK(errors[0] == "");
}

TEST_CASE("shm: one rank's abort releases all") {
  const testing::Memory region;
  ShmRegion::prepare(region.fd(), kGeneration, 4, 100);
  check_no_errors(testing::run_ranks({4, {}, 60s}, [&](const RankContext& context) {
    ShmCollective collective = join(region, context, 100, Waiting::kSleep);
    if (context.rank == 2) {
      collective.abort();
      return;
    }
    try {
      collective.barrier();
    } catch (const CollectiveError&) {
      return;
    }
    expect(false, "the barrier went through without rank 2");
  }));
}

TEST_CASE("shm: a wait ends at the stall time-out and names the missing rank") {
  const Waiting waiting = GENERATE(Waiting::kSpin, Waiting::kSleep);
  const testing::Memory region;
  ShmRegion::prepare(region.fd(), kGeneration, 3, 100);
  const auto errors = testing::run_ranks({3, {1}, 60s}, [&](const RankContext& context) {
    ShmCollective collective = join(region, context, 100, waiting, 2s);
    collective.barrier();
    if (context.rank == 1) ::raise(SIGSTOP);
    (void)collective.all_reduce(0);
  });
  for (const int rank : {0, 2}) {
    CHECK(errors[static_cast<std::size_t>(rank)] == "rank " + std::to_string(rank) + ": all_reduce of local rank " +
                                                        std::to_string(rank) + " waited 2 s for local rank 1");
  }
}

using Act = std::function<void(Collective&)>;
const Act kReduce = [](Collective& c) { (void)c.all_reduce(0); };

void check_mismatch(const Act& common, const Act& other, const std::string& words) {
  const testing::Memory region;
  ShmRegion::prepare(region.fd(), kGeneration, 3, 100);
  check_no_errors(testing::run_ranks({3, {}, 60s}, [&](const RankContext& context) {
    ShmCollective collective = join(region, context, 100, Waiting::kSleep);
    const std::string text = testing::mismatch_of(collective, context.rank == 1 ? other : common);
    expect(text == "the ranks came to different collectives: " + words +
                       ". Every rank must do the same number of batches and updates, in the same order",
           text);
  }));
}

TEST_CASE("shm: a rank that has left the loop is found by every rank, and nobody gets its numbers") {
  const std::string reduce = "rank 0, 2 to all_reduce (average of gradients), ";
  check_mismatch(
      kReduce, [](Collective& c) { (void)c.agree(control::kStop); },
      reduce + "rank 1 to agree (end of a batch or of the loop)");
  check_mismatch(
      kReduce, [](Collective& c) { c.barrier(); }, reduce + "rank 1 to barrier");
  check_mismatch(
      kReduce, [](Collective& c) { (void)c.all_gather("mine"); }, reduce + "rank 1 to all_gather");
  check_mismatch(
      kReduce, [](Collective& c) { c.broadcast({}, 0); }, reduce + "rank 1 to broadcast");
}

TEST_CASE("shm: another part of the gradients, another root or size are found, too") {
  const Act part = [](Collective& c) { (void)c.all_reduce(0, 0, 50); };
  check_mismatch(
      part, [](Collective& c) { (void)c.all_reduce(0, 50, 50); },
      "rank 0, 2 to all_reduce (average of 50 gradients from 0), rank 1 to all_reduce (average of 50 gradients "
      "from 50)");
  const auto broadcast = [](std::size_t bytes, int root) {
    return [bytes, root](Collective& c) {
      std::vector<std::byte> data(bytes);
      c.broadcast(data, root);
    };
  };
  check_mismatch(broadcast(5, 0), broadcast(5, 2),
                 "rank 0, 2 to broadcast (5 bytes from rank 0), rank 1 to broadcast (5 bytes from rank 2)");
  check_mismatch(broadcast(5, 0), broadcast(300'000, 0),
                 "rank 0, 2 to broadcast (5 bytes from rank 0), rank 1 to broadcast (300000 bytes from rank 0)");
}

TEST_CASE("shm: a mismatch is the error also of a rank that was aborted meanwhile") {
  const testing::Memory region;
  ShmRegion::prepare(region.fd(), kGeneration, 2, 100);
  check_no_errors(testing::run_ranks({2, {}, 60s}, [&](const RankContext& context) {
    ShmCollective collective = join(region, context, 100, Waiting::kSleep);
    const std::string text = testing::mismatch_of(collective, [&](Collective& c) {
      if (context.rank == 0) return kReduce(c);
      try {
        (void)c.agree(0);
      } catch (const CollectiveMismatch&) {
        c.abort();  // As the launcher does when the first rank has ended.
        throw;
      }
    });
    expect(text.find("rank 0 to all_reduce") != std::string::npos, text);
  }));
}

TEST_CASE("shm: some ranks with one call and the rest with another are never taken for the same") {
  std::vector<Call> calls;
  for (const Operation operation : {Operation::kAllReduce, Operation::kAgree, Operation::kBroadcast,
                                    Operation::kAllGather, Operation::kBarrier, Operation::kTell}) {
    for (const std::uint64_t first : {0, 1, 16, 1 << 20}) {
      for (const std::uint64_t second : {0, 1, 16, 1 << 20}) calls.push_back({operation, first, second});
    }
  }
  constexpr std::uint64_t kMask = (std::uint64_t{1} << kFingerprintBits) - 1;
  std::size_t confused = 0;
  for (const Call& one : calls) {
    for (const Call& other : calls) {
      // The last of a group of whom some came for `other`.
      for (std::uint64_t some = 1; some <= kLocalRanksMax; some *= 2) {
        const bool seems_same = (some * (fingerprint(one) - fingerprint(other)) & kMask) == 0;
        if (seems_same != (one == other)) ++confused;
      }
    }
  }
  CHECK(confused == 0);
}

}  // namespace
}  // namespace sgd::worker
