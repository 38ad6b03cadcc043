#pragma once
// The collective between hosts, over TCP by the Gloo module; one rank per host, or several that
// do not share memory. Control bits travel as floats behind the gradients, so that a step is one
// all-reduce. Waits end by Gloo's own time-out, which is the stall time-out.

#include <atomic>

#include "worker/collective/collective.hpp"
#include "worker/collective/factory.hpp"
#include "worker/collective/gloo_module/abi.hpp"
#include "worker/core/aligned_floats.hpp"

namespace sgd::worker {

class GlooCollective final : public Collective {
 public:
  /// Opens this rank's ends of the connections; the others need address() for connect(). `gradient_count`
  /// may be 0 when only sum_with_control() is used.
  GlooCollective(int rank, int size, std::size_t gradient_count, const std::string& bind_address,
                 Duration stall_timeout);
  ~GlooCollective() override;

  [[nodiscard]] std::string address() const;
  /// `addresses` has every rank's, in rank order.
  void connect(const std::vector<std::string>& addresses);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return size_; }
  [[nodiscard]] std::span<float> gradients() override { return gradients_.span().first(gradient_count_); }
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t control_word) override;
  [[nodiscard]] std::uint32_t agree(std::uint32_t control_word) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes) override;
  void barrier() override;
  void abort() noexcept override;

  /// Sums `values` over all ranks, except that its last kControlFloats carry and return the control word.
  [[nodiscard]] std::uint32_t sum_with_control(std::span<float> values, std::uint32_t control_word);

 private:
  void check(int code, const SgdGlooError& error, const char* operation) const;
  void check_not_aborted(const char* operation) const;

  const SgdGlooApi& api_;
  int rank_;
  int size_;
  std::size_t gradient_count_;
  AlignedFloats gradients_;  // With kControlFloats behind them.
  SgdGlooGroup* group_ = nullptr;
  std::atomic<bool> aborted_{false};
};

}  // namespace sgd::worker
