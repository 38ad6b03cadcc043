#pragma once
// The collective between hosts, over TCP by the Gloo module; one rank per host, or several that
// do not share memory. Every operation begins with a header: each rank tells all others what it came
// for, with its control word. Gradients go out with the header, so that a step costs no hop for it.
// Waits end by Gloo's own time-out, which is the stall time-out.

#include <atomic>
#include <utility>

#include "worker/collective/call.hpp"
#include "worker/collective/collective.hpp"
#include "worker/collective/factory.hpp"
#include "worker/collective/gloo_module/abi.hpp"
#include "worker/core/aligned_floats.hpp"

namespace sgd::worker {

class GlooCollective final : public Collective {
 public:
  /// Opens this rank's ends of the connections; the others need address() for connect(). `gradient_count`
  /// may be 0 when only sum() is used.
  GlooCollective(int rank, int size, std::size_t gradient_count, const std::string& bind_address,
                 Duration stall_timeout);
  ~GlooCollective() override;

  [[nodiscard]] std::string address() const;
  /// `addresses` has every rank's, in rank order.
  void connect(const std::vector<std::string>& addresses);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return size_; }
  [[nodiscard]] std::span<float> gradients() override { return gradients_.span(); }
  using Collective::all_reduce;
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) override;
  using Collective::agree;
  [[nodiscard]] std::uint32_t agree(std::uint32_t control_word, const Call& call) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes) override;
  void barrier() override;
  void abort() noexcept override;

  /// all_reduce() of `values`, which are the gradients from `offset` of a buffer that lies elsewhere.
  [[nodiscard]] std::uint32_t sum(std::uint32_t control_word, std::size_t offset, std::span<float> values);

  /// The ranks that each rank of this group stands for in a CollectiveMismatch; without it each for itself.
  void name_ranks(std::vector<std::vector<int>> names) { names_ = std::move(names); }
  /// In place of the collective that the other ranks call: they all throw CollectiveMismatch with this text.
  void tell_mismatch(const std::string& text) noexcept;

 private:
  [[nodiscard]] SgdGlooHeader header_for(const Call& call, std::uint32_t control_word = 0) const;
  /// The OR of the control words of headers_; throws CollectiveMismatch.
  std::uint32_t agreed() const;
  std::uint32_t exchange_headers(const SgdGlooHeader& own);
  void check(int code, const SgdGlooError& error, const char* operation) const;
  void check_not_aborted(Operation operation) const;

  const SgdGlooApi& api_;
  int rank_;
  int size_;
  AlignedFloats gradients_;
  std::vector<SgdGlooHeader> headers_;   // Of the last exchange, by rank.
  std::vector<std::vector<int>> names_;  // By rank.
  SgdGlooGroup* group_ = nullptr;
  std::atomic<bool> aborted_{false};
};

}  // namespace sgd::worker
