#pragma once
// Which checkpoints of a run have come to the coordinator's disk, where nodes have disks of their own. What a node has
// saved and not yet sent is lost with it: the newest one that has come counts beside those that the job keeps, until a
// newer one has come. Pure.
//
// What comes is told by the connection of files, what was saved by the agent's: one may be ahead of the other. Only
// what has come and was accepted counts.

#include <cstddef>
#include <string>
#include <vector>

namespace sgd::core {

/// Those that are remembered, in place of the oldest: as many as a node can save and send while the coordinator does
/// not hear its agent.
inline constexpr std::size_t kArrivalsMax = 256;

struct Arrival {
  std::string path;
  bool is_accepted = false;
  bool is_stored = false;
};
/// In the order of acceptance, then those that are not accepted, in that of their coming; none before the newest that
/// counts.
using Arrivals = std::vector<Arrival>;

void note_accepted(const std::string& path, Arrivals& arrivals);
void note_stored(const std::string& path, Arrivals& arrivals);
/// It is of no use, wherever it is.
void note_rejected(const std::string& path, Arrivals& arrivals);
[[nodiscard]] bool is_stored(const std::string& path, const Arrivals& arrivals);
/// Empty: none counts.
[[nodiscard]] std::string newest_stored(const Arrivals& arrivals);
/// `kept`, the newest last, and at its place the newest that has come, where nothing newer in `kept` has.
[[nodiscard]] std::vector<std::string> with_newest_stored(std::vector<std::string> kept, const Arrivals& arrivals);

}  // namespace sgd::core
