#pragma once
// The collective of several hosts with several ranks each: shared memory inside a host, Gloo
// between the hosts' leaders.
//
//   all_reduce: host's buffers summed into the leader's -> leaders sum over TCP -> leader's copied to the
//   host
//
// A leader whose part between hosts fails aborts its host's ranks, so nobody waits for it. A mismatch is
// found inside a host before anything goes between hosts, or there by the leaders; each leader tells the other side.

#include <memory>

#include "worker/collective/collective.hpp"
#include "worker/collective/gloo_collective.hpp"
#include "worker/collective/placement.hpp"
#include "worker/collective/shm_collective.hpp"

namespace sgd::worker {

class ComposedCollective final : public Collective {
 public:
  /// `local` is null on a host with one rank; `between` (size: hosts, rank: this host) is null except on
  /// leaders.
  ComposedCollective(int rank, Placement placement, std::unique_ptr<ShmCollective> local,
                     std::unique_ptr<GlooCollective> between);

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int world_size() const override { return static_cast<int>(placement_.ranks.size()); }
  [[nodiscard]] std::span<float> gradients() override { return local_ ? local_->gradients() : between_->gradients(); }
  using Collective::all_reduce;
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) override;
  using Collective::agree;
  [[nodiscard]] std::uint32_t agree(std::uint32_t control_word, const Call& call) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes) override;
  void barrier() override;
  void abort() noexcept override;

 private:
  /// Does `action` with this host's ranks; the other hosts learn of their mismatch.
  template <class Action>
  auto inside_host(Action action);
  /// Does `action` with the other hosts' leaders; a failure releases this host's ranks.
  template <class Action>
  auto between_hosts(Action action);
  void tell_host(const std::string& text) noexcept;
  [[nodiscard]] std::string gather_at_leader(const std::string& bytes);

  int rank_;
  Placement placement_;
  std::unique_ptr<ShmCollective> local_;
  std::unique_ptr<GlooCollective> between_;
};

}  // namespace sgd::worker
