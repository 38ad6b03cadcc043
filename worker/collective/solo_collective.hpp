#pragma once
// The collective of a single rank: nothing moves. An abort is kept, as everywhere.

#include <atomic>

#include "common/base/assert.hpp"
#include "worker/collective/collective.hpp"
#include "worker/collective/sum.hpp"
#include "worker/core/aligned_floats.hpp"

namespace sgd::worker {

class SoloCollective final : public Collective {
 public:
  explicit SoloCollective(std::size_t gradient_count) : gradients_(gradient_count) {}

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return 1; }
  [[nodiscard]] std::span<float> gradients() override { return gradients_.span(); }
  using Collective::all_reduce;
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) override {
    check();
    SGD_ASSERT(offset <= gradients_.size() && count <= gradients_.size() - offset);
    return control_word | (all_finite(gradients_.span().subspan(offset, count)) ? 0 : control::kInfinite);
  }
  using Collective::agree;
  [[nodiscard]] std::uint32_t agree(std::uint32_t control_word, const Call&) override {
    check();
    return control_word;
  }
  void broadcast(std::span<std::byte>, int) override { check(); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes) override {
    check();
    return {bytes};
  }
  void barrier() override { check(); }
  void abort() noexcept override { aborted_.store(true); }

 private:
  void check() const {
    if (aborted_.load(std::memory_order_relaxed)) throw CollectiveError("aborted");
  }

  AlignedFloats gradients_;
  std::atomic<bool> aborted_{false};
};

}  // namespace sgd::worker
