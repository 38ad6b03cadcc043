// A rank inside a collective says so, and stops saying so however the call ends.
#include "worker/collective/watched_collective.hpp"

#include <array>
#include <functional>

#include <catch2/catch.hpp>

namespace sgd::worker {
namespace {

/// Each call notes what the heartbeat would say meanwhile.
class Probe final : public Collective {
 public:
  Probe(Progress& progress, std::vector<bool>& seen) : progress_(progress), seen_(seen) {}

  [[nodiscard]] int rank() const override { return 3; }
  [[nodiscard]] int world_size() const override { return 4; }
  [[nodiscard]] std::span<float> gradients() override { return gradients_; }
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t word, std::size_t offset, std::size_t count) override {
    return note(word + static_cast<std::uint32_t>(10 * offset + 100 * count));
  }
  using Collective::agree;
  [[nodiscard]] std::uint32_t agree(std::uint32_t word, const Call&) override { return note(word); }
  void broadcast(std::span<std::byte>, int root) override { (void)note(static_cast<std::uint32_t>(root)); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes) override {
    (void)note(0);
    return {bytes};
  }
  void barrier() override {
    (void)note(0);
    throw CollectiveError("a peer is gone");
  }
  void abort() noexcept override { (void)note(0); }

 private:
  std::uint32_t note(std::uint32_t word) noexcept {
    seen_.push_back(progress_.waiting);
    return word + 1;
  }
  Progress& progress_;
  std::vector<bool>& seen_;
  std::array<float, 2> gradients_{};
};

}  // namespace

TEST_CASE("a watched collective passes everything on and tells that it waits") {
  Progress progress;
  std::vector<bool> seen;
  WatchedCollective watched(std::make_unique<Probe>(progress, seen), progress);
  CHECK(watched.rank() == 3);
  CHECK(watched.world_size() == 4);
  CHECK(watched.gradients().size() == 2);
  const std::vector<std::function<void()>> calls = {[&] { CHECK(watched.all_reduce(1) == 202); },
                                                    [&] { CHECK(watched.all_reduce(1, 1, 1) == 112); },
                                                    [&] { CHECK(watched.agree(7) == 8); },
                                                    [&] { watched.broadcast({}, 1); },
                                                    [&] { CHECK(watched.all_gather("a").front() == "a"); },
                                                    [&] { CHECK_THROWS_AS(watched.barrier(), CollectiveError); }};
  for (const auto& call : calls) {
    call();
    CHECK_FALSE(progress.waiting);
  }
  CHECK(seen == std::vector<bool>(calls.size(), true));
  watched.abort();  // By the link thread: the training thread's state stays.
  CHECK_FALSE(seen.back());
}

}  // namespace sgd::worker
