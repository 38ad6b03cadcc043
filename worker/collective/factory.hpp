#pragma once
// Chooses and forms the collective of a generation: none for one rank, shared memory inside a
// host, Gloo between hosts, both composed where a host has several ranks; and NCCL beside them where gradients lie on
// GPUs. Every rank of the
// generation calls make_collective() with the same world; who is on which host is agreed by one
// exchange, so all ranks choose alike.

#include <cstddef>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/time.hpp"
#include "worker/collective/collective.hpp"

namespace sgd::worker {

/// Gives one value under a key and returns every rank's value, in rank order. It may throw; it blocks until
/// all ranks of the generation have given theirs. Values are printable text.
using Exchange = std::function<std::vector<std::string>(const std::string& key, const std::string& value)>;

class DeviceGradients;

/// A collective that cannot exist here: module missing, backend against the placement, what NCCL refuses. A
/// configuration error.
class CollectiveSetupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct CollectiveSetup {
  int rank = 0;  ///< In the generation.
  int world_size = 1;
  int local_rank = 0;  ///< On this node.
  int local_world_size = 1;
  int node_rank = 0;
  int node_count = 1;
  Generation generation = 0;       ///< Stamped into the shared region.
  int region_fd = -1;              ///< The node's memfd; needed where local_world_size > 1. Stays the caller's.
  std::size_t gradient_count = 0;  ///< Floats of gradients().
  std::string backend = "auto";    ///< "auto", "shm" or "gloo".
  /// Where gradients lie on a device; null: the host's memory. They are summed by NCCL with "auto", and else, or where
  /// there is one rank, without it. Outlives the collective.
  DeviceGradients* device = nullptr;
  std::string bind_address = "127.0.0.1";             ///< Address of this node that the other nodes reach.
  Duration stall_timeout = std::chrono::minutes(10);  ///< The longest wait for a peer.
  bool exclusive_cores = false;  ///< Every rank of this node has a core of its own: waiting may spin.
  Exchange exchange;             ///< Needed where world_size > 1.
};

/// Throws CollectiveSetupError, CollectiveError when a peer did not come, or what `exchange` throws.
[[nodiscard]] std::unique_ptr<Collective> make_collective(const CollectiveSetup& setup);

}  // namespace sgd::worker
