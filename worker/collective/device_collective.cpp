#include "worker/collective/device_collective.hpp"

#include <poll.h>
#include <sched.h>

#include <chrono>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::worker {
namespace {

/// How long a wait gives up its core only; then it sleeps between two looks.
constexpr Duration kEager = std::chrono::milliseconds(2);

}  // namespace

DeviceCollective::DeviceCollective(std::unique_ptr<Collective> control, DeviceGradients& gradients,
                                   std::unique_ptr<NcclGroup> group, Duration stall_timeout)
    : control_(std::move(control)), gradients_(gradients), group_(std::move(group)), stall_timeout_(stall_timeout) {}

DeviceCollective::~DeviceCollective() = default;

template <class Done>
void DeviceCollective::wait(Done done, const char* what) {
  const TimePoint began = std::chrono::steady_clock::now();
  for (;;) {
    if (aborted_.load(std::memory_order_relaxed)) throw CollectiveError("aborted");
    if (done()) return;
    const Duration waited = std::chrono::steady_clock::now() - began;
    if (waited > stall_timeout_)
      throw CollectiveError(
          fmt::format("NCCL: {} for {}: a rank is not there, or its GPUs cannot reach each other: NCCL_DEBUG=INFO "
                      "tells more, and NCCL_SOCKET_IFNAME names the network",
                      what, format_duration(stall_timeout_)));
    if (waited < kEager)
      ::sched_yield();
    else
      (void)::poll(nullptr, 0, 1);  // Ignoring: a signal wakes it sooner.
  }
}

/// NCCL tells of a device that has failed as of an error among others: then this throws what it really is.
template <class Action>
auto DeviceCollective::or_fault(Action action) {
  try {
    return action();
  } catch (const CollectiveError&) {
    if (!aborted_.load(std::memory_order_relaxed)) gradients_.check();
    throw;
  }
}

void DeviceCollective::connect(const std::string& id) {
  SGD_ASSERT(group_ != nullptr);
  or_fault([&] {
    group_->begin(id);
    wait([this] { return group_->is_ready(); }, fmt::format("the {} ranks are not connected", world_size()).c_str());
  });
}

std::uint32_t DeviceCollective::all_reduce(std::uint32_t control_word, std::size_t offset, std::size_t count) {
  const std::span<float> values = gradients_.values();
  SGD_ASSERT(offset <= values.size() && count <= values.size() - offset);
  if (!group_) return reduce_on_host(control_word, offset, count);
  const std::uint32_t agreed = control_->agree(control_word, {Operation::kAllReduce, offset, count});
  return or_fault([&] {
    group_->all_reduce(values.data() + offset, count, gradients_.stream());
    wait([this] { return group_->is_ready(); }, "a sum has not started");
    gradients_.look(offset, count);
    std::optional<bool> finite;
    const auto is_seen = [&] { return group_->is_ready() && (finite = gradients_.seen()).has_value(); };
    wait(is_seen, "a sum has not come");
    return agreed | (*finite ? 0 : control::kInfinite);
  });
}

std::uint32_t DeviceCollective::reduce_on_host(std::uint32_t control_word, std::size_t offset, std::size_t count) {
  if (world_size() == 1) {
    const std::uint32_t agreed = control_->agree(control_word, {Operation::kAllReduce, offset, count});
    gradients_.look(offset, count);
    std::optional<bool> finite;
    wait([&] { return (finite = gradients_.seen()).has_value(); }, "the device has not come to an end");
    return agreed | (*finite ? 0 : control::kInfinite);
  }
  const std::span<float> sums = control_->gradients().subspan(offset, count);
  gradients_.fetch(offset, sums);
  const std::uint32_t agreed = control_->all_reduce(control_word, offset, count);
  gradients_.put(offset, sums);
  return agreed;
}

void DeviceCollective::abort() noexcept {
  aborted_.store(true);
  control_->abort();
  if (group_) group_->abort();
}

}  // namespace sgd::worker
