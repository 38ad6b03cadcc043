#pragma once
// The collective of ranks whose gradients lie on devices. Control words, small messages and the comparison of calls go
// through a collective of the host; only the sum of the gradients is the devices' business:
//
//   all_reduce: agree on the host ─► NCCL sums on the devices ─► each device looks whether its sums are finite
//
// NCCL gives every rank the same bits, in an order of its own that is the same in every run of the same ranks on the
// same machine; it is not rank order where there are more than two. Without NCCL (one rank; a job that names another
// backend) the sums are made in memory of the host, in rank order.
//
// A wait looks at the abort flag, at errors of peers and at the stall time-out. An error of the device is DeviceFault.

#include <atomic>
#include <memory>

#include "common/base/time.hpp"
#include "worker/collective/collective.hpp"
#include "worker/collective/device_gradients.hpp"
#include "worker/collective/nccl_group.hpp"

namespace sgd::worker {

class DeviceCollective final : public Collective {
 public:
  /// `gradients` outlives this object. `group` is null where the host makes the sums: then `control` has as many
  /// gradients.
  DeviceCollective(std::unique_ptr<Collective> control, DeviceGradients& gradients, std::unique_ptr<NcclGroup> group,
                   Duration stall_timeout);
  ~DeviceCollective() override;

  /// Connects the group, and waits for it; `id` is what NcclGroup::make_id() has given rank 0. Throws CollectiveError
  /// when it is not connected within the stall time-out, and as NcclGroup::begin() does.
  void connect(const std::string& id);

  [[nodiscard]] int rank() const override { return control_->rank(); }
  [[nodiscard]] int world_size() const override { return control_->world_size(); }
  /// Addresses of the device.
  [[nodiscard]] std::span<float> gradients() override { return gradients_.values(); }
  using Collective::all_reduce;
  [[nodiscard]] std::uint32_t all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) override;
  using Collective::agree;
  [[nodiscard]] std::uint32_t agree(std::uint32_t control_word, const Call& call) override {
    return control_->agree(control_word, call);
  }
  void broadcast(std::span<std::byte> bytes, int root) override { control_->broadcast(bytes, root); }
  [[nodiscard]] std::vector<std::string> all_gather(const std::string& bytes) override {
    return control_->all_gather(bytes);
  }
  void barrier() override { control_->barrier(); }
  void abort() noexcept override;

 private:
  template <class Done>
  void wait(Done done, const char* what);
  template <class Action>
  auto or_fault(Action action);
  [[nodiscard]] std::uint32_t reduce_on_host(std::uint32_t control_word, std::size_t offset, std::size_t count);

  std::unique_ptr<Collective> control_;
  DeviceGradients& gradients_;
  std::unique_ptr<NcclGroup> group_;
  Duration stall_timeout_;
  std::atomic<bool> aborted_{false};
};

}  // namespace sgd::worker
