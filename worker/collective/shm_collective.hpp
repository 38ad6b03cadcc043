#pragma once
// The collective of ranks on one host: their gradient buffers lie in shared memory, so an
// all-reduce copies nothing. Each rank adds its slice of all buffers, in rank order, and writes
// the sum back into all of them, between two barriers. Other messages go through small staging
// areas, in pieces.
//
// It does not watch processes: a rank that dies is found by the launcher, which aborts the rest.

#include <string_view>
#include <utility>
#include <vector>

#include "worker/collective/collective.hpp"
#include "worker/collective/shm_barrier.hpp"
#include "worker/collective/shm_region.hpp"

namespace sgd::worker {

class ShmCollective final : public Collective {
 public:
  /// Maps `fd`, which ShmRegion::prepare() was called for. `rank` counts on this host.
  ShmCollective(int fd, Generation generation, int rank, int size, std::size_t gradient_count, Waiting waiting,
                Duration stall_timeout);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return size_; }
  [[nodiscard]] std::span<float> gradients() override { return {buffers_[own()], gradient_count_}; }
  using Collective::all_reduce;
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) override;
  using Collective::agree;
  [[nodiscard]] std::uint32_t agree(std::uint32_t control_word, const Call& call) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes) override;
  void barrier() override;
  void abort() noexcept override { barrier_.abort(); }

  // The two halves of an all-reduce whose middle is done between hosts by the leader, rank 0.

  /// That part of the leader's buffer becomes the sum of all; returns the OR of the control words.
  [[nodiscard]] std::uint32_t reduce_to_leader(std::uint32_t control_word, std::size_t offset, std::size_t count);
  /// That part of every buffer becomes the leader's; returns the OR of the control words.
  [[nodiscard]] std::uint32_t share_from_leader(std::uint32_t control_word, std::size_t offset, std::size_t count);

  /// What the ranks are called in a CollectiveMismatch; without it as they count here.
  void name_ranks(std::vector<int> names) { barrier_.name_ranks(std::move(names)); }
  /// In place of the collective that the other ranks call: they all throw CollectiveMismatch with this text.
  void tell_mismatch(std::string_view text);

 private:
  struct Slice {
    std::size_t begin, end;
  };
  [[nodiscard]] std::size_t own() const { return static_cast<std::size_t>(rank_); }
  [[nodiscard]] Call reduction_of(std::size_t offset, std::size_t count) const;
  [[nodiscard]] Slice own_slice(std::size_t offset, std::size_t count) const;

  ShmRegion region_;
  ShmBarrier barrier_;
  int rank_;
  int size_;
  std::size_t gradient_count_;
  std::vector<float*> buffers_;  // Of every rank.
};

}  // namespace sgd::worker
