#pragma once
// What a rank or a node says of checkpoints and ports, held against what can be: names lead nowhere else, and a
// checkpoint is of the generation that speaks. Whether it is whole is proven where its files are read.

#include <string>

#include "common/base/ids.hpp"
#include "common/messages/cluster.hpp"

namespace sgd::core {

/// Why `saved` cannot be a checkpoint of `generation`, in words; empty: it can.
[[nodiscard]] std::string why_not(const link::CheckpointSaved& saved, Generation generation);
/// Why `rejected` names no checkpoint; its path is absolute.
[[nodiscard]] std::string why_not(const link::CheckpointRejected& rejected);
/// Of a fact of a node: empty for one that claims nothing of that kind.
[[nodiscard]] std::string why_not(const cluster::Fact& fact);

}  // namespace sgd::core
