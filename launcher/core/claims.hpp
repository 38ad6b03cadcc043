#pragma once
// What a rank or a node says of checkpoints, ports and itself, held against what can be: names lead nowhere else, a
// checkpoint is of the generation that speaks, and what a node has can be added up with what others have. Whether a
// checkpoint is whole is proven where its files are read.

#include <cstdint>
#include <map>
#include <string>

#include "common/base/ids.hpp"
#include "common/messages/cluster.hpp"

namespace sgd::core {

// Of what one node may say that it has.
inline constexpr int kNodeUnitsMax = 1 << 16;  ///< Slots, cores, GPUs, and ranks that are there.
inline constexpr std::int64_t kNodeMemoryMax = std::int64_t{1} << 50;
inline constexpr std::size_t kNodeRunsMax = 4096;
inline constexpr std::size_t kNodeTextMax = 255;  ///< Bytes of its address, its version, a label's name or value.
inline constexpr std::size_t kNodeLabelsMax = 64;
inline constexpr std::size_t kRankGpusMax = 64;  ///< As many as a job may ask for.
inline constexpr std::size_t kGpuNameMax = 128;  ///< Bytes: of NVML's UUIDs, 96.

/// Why `saved` cannot be a checkpoint of `generation`, in words; empty: it can.
[[nodiscard]] std::string why_not(const link::CheckpointSaved& saved, Generation generation);
/// Why `rejected` names no checkpoint; its path is absolute.
[[nodiscard]] std::string why_not(const link::CheckpointRejected& rejected);
/// Of what a node says of itself.
[[nodiscard]] std::string why_not(const cluster::NodeState& state);
/// Of labels alone, as whoever starts an agent gives them.
[[nodiscard]] std::string why_not(const std::map<std::string, std::string>& labels);
/// Of a fact of a node: empty for one that claims nothing of that kind.
[[nodiscard]] std::string why_not(const cluster::Fact& fact);

}  // namespace sgd::core
