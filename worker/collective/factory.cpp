#include "worker/collective/factory.hpp"

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "worker/collective/composed_collective.hpp"
#include "worker/collective/device_collective.hpp"
#include "worker/collective/gloo_collective.hpp"
#include "worker/collective/nccl_api.hpp"
#include "worker/collective/placement.hpp"
#include "worker/collective/shm_collective.hpp"
#include "worker/collective/solo_collective.hpp"

namespace sgd::worker {
namespace {

std::vector<std::string> exchanged(const CollectiveSetup& setup, const std::string& key, const std::string& value) {
  std::vector<std::string> values = setup.exchange(key, value);
  if (values.size() != static_cast<std::size_t>(setup.world_size)) {
    throw CollectiveError(
        fmt::format("the exchange of {} gave {} values for {} ranks", key, values.size(), setup.world_size));
  }
  return values;
}

std::unique_ptr<ShmCollective> make_local(const CollectiveSetup& setup) {
  return std::make_unique<ShmCollective>(setup.region_fd, setup.generation, setup.local_rank, setup.local_world_size,
                                         setup.gradient_count, setup.exclusive_cores ? Waiting::kSpin : Waiting::kSleep,
                                         setup.stall_timeout);
}

// Every rank in one Gloo group.
std::unique_ptr<Collective> make_gloo(const CollectiveSetup& setup) {
  auto gloo = std::make_unique<GlooCollective>(setup.rank, setup.world_size, setup.gradient_count, setup.bind_address,
                                               setup.stall_timeout);
  gloo->connect(exchanged(setup, "gloo", gloo->address()));
  return gloo;
}

// The hosts' leaders in a Gloo group; all ranks take part in the exchange, leaders alone have an address.
std::unique_ptr<Collective> make_composed(const CollectiveSetup& setup, const Placement& placement) {
  std::unique_ptr<ShmCollective> local;
  if (setup.local_world_size > 1) local = make_local(setup);
  std::unique_ptr<GlooCollective> between;
  if (setup.local_rank == 0) {
    const int host = placement.ranks[static_cast<std::size_t>(setup.rank)].host;
    between = std::make_unique<GlooCollective>(host, placement.hosts(), local ? 0 : setup.gradient_count,
                                               setup.bind_address, setup.stall_timeout);
  }
  const std::vector<std::string> values = exchanged(setup, "gloo", between ? between->address() : "");
  if (between) {
    std::vector<std::string> addresses;
    for (int host = 0; host < placement.hosts(); ++host) {
      addresses.push_back(values[static_cast<std::size_t>(placement.rank_at(host, 0))]);
    }
    between->connect(addresses);
  }
  return std::make_unique<ComposedCollective>(setup.rank, placement, std::move(local), std::move(between));
}

void check_setup(const CollectiveSetup& setup) {
  SGD_ASSERT(setup.rank >= 0 && setup.rank < setup.world_size);
  SGD_ASSERT(setup.local_rank >= 0 && setup.local_rank < setup.local_world_size);
  SGD_ASSERT(setup.exchange);
  if (setup.backend != "auto" && setup.backend != "shm" && setup.backend != "gloo") {
    throw CollectiveSetupError("unknown backend '" + setup.backend + "': auto, shm or gloo");
  }
  if (setup.backend == "shm" && setup.node_count > 1) {
    throw CollectiveSetupError(
        fmt::format("backend shm joins the ranks of one node, and this group has {} nodes: "
                    "use auto",
                    setup.node_count));
  }
}

/// Where NCCL moves the gradients, what is beside has none.
constexpr std::size_t kControlGradients = 16;

std::unique_ptr<Collective> make_on_device(const CollectiveSetup& setup) {
  const bool is_nccl = setup.world_size > 1 && setup.backend == "auto";
  CollectiveSetup beside = setup;
  beside.device = nullptr;
  if (is_nccl || setup.world_size == 1) beside.gradient_count = kControlGradients;
  if (!is_nccl)
    return std::make_unique<DeviceCollective>(make_collective(beside), *setup.device, nullptr, setup.stall_timeout);
  // Before anything is exchanged: whoever has no library ends at once, and waits for nobody.
  const NcclApi& api = load_nccl();
  std::unique_ptr<Collective> control = make_collective(beside);
  auto group = std::make_unique<NcclGroup>(api, setup.rank, setup.world_size, setup.device->entrance());
  auto collective =
      std::make_unique<DeviceCollective>(std::move(control), *setup.device, std::move(group), setup.stall_timeout);
  const std::vector<std::string> ids = exchanged(setup, "nccl", setup.rank == 0 ? NcclGroup::make_id(api) : "");
  collective->connect(ids.front());
  return collective;
}

}  // namespace

std::unique_ptr<Collective> make_collective(const CollectiveSetup& setup) {
  if (setup.device != nullptr) return make_on_device(setup);
  if (setup.world_size == 1) return std::make_unique<SoloCollective>(setup.gradient_count);
  check_setup(setup);
  if (setup.backend == "gloo") return make_gloo(setup);
  if (setup.local_world_size > 1 && setup.region_fd < 0) {
    throw CollectiveSetupError("no shared region was given to this rank");
  }
  // Whoever has all values of this exchange knows that the region of its host is ready.
  if (setup.local_rank == 0 && setup.local_world_size > 1) {
    ShmRegion::prepare(setup.region_fd, setup.generation, setup.local_world_size, setup.gradient_count);
  }
  const Placement placement =
      read_placement(exchanged(setup, "shm", placement_value(setup.node_rank, setup.local_rank)));
  const RankPlace own = placement.ranks[static_cast<std::size_t>(setup.rank)];
  if (own.local_rank != setup.local_rank ||
      placement.host_sizes[static_cast<std::size_t>(own.host)] != setup.local_world_size) {
    throw CollectiveSetupError(fmt::format("rank {} was told {} ranks on its node, and {} are there", setup.rank,
                                           setup.local_world_size,
                                           placement.host_sizes[static_cast<std::size_t>(own.host)]));
  }
  if (placement.hosts() == 1) return make_local(setup);
  return make_composed(setup, placement);
}

}  // namespace sgd::worker
