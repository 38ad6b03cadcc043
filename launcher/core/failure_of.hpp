#pragma once
// Facts that say something went wrong, as Failures: who is to blame, of which kind, and whether
// it would go wrong again the same way. When it happened is added by the caller.

#include <string>

#include "common/messages/cluster.hpp"
#include "launcher/core/failure.hpp"

namespace sgd::core {

/// An exit that is a failure. In training the code says whose fault it was (common/exit_codes.hpp); in a command every
/// code but 0 is alike.
[[nodiscard]] Failure failure_of(const NodeId& node, const cluster::WorkerExited& exited, bool is_training);
/// What a rank has said that has not ended.
[[nodiscard]] Failure failure_of(const NodeId& node, const OtherError& other);
[[nodiscard]] Failure failure_of(const NodeId& node, const cluster::SpawnFailed& refused);
[[nodiscard]] Failure failure_of(Rank rank, const NodeId& node, const cluster::PortRefused& refused);
[[nodiscard]] Failure failure_of(const NodeId& node, const cluster::ForkServerFailed& failed);
/// What ends a keeper and its agent has ended the node, though an agent may be back there by now.
[[nodiscard]] Failure failure_of(const NodeId& node, const cluster::KeeperLost& lost);
[[nodiscard]] Failure failure_of(const NodeId& node, const cluster::WorkerSilent& silent);
/// A node that nobody hears any more.
[[nodiscard]] Failure node_failure(const NodeId& node, const std::string& reason, double silent_s);
/// A rank that was wanted, and that its own agent has ended.
[[nodiscard]] Failure unwanted_end(Rank rank, const NodeId& node, int pid);
/// A rank whose process `node` has not started within `time`, nor said why.
[[nodiscard]] Failure not_started(Rank rank, const NodeId& node, Duration time);
/// A rank that broke the rules of exchange or report.
[[nodiscard]] Failure protocol_failure(Rank rank, const NodeId& node, const std::string& message);

}  // namespace sgd::core
