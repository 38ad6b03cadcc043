#include "launcher/core/failure_of.hpp"

#include <cerrno>
#include <csignal>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "launcher/core/peer_loss.hpp"

namespace sgd::core {
namespace {

Failure of_rank(Rank rank, const NodeId& node) {
  Failure failure;
  failure.rank = rank;
  failure.subject = fmt::format("rank {}", rank);
  failure.node = node;
  return failure;
}

Failure of_helper(const char* subject, const NodeId& node, int exit_code, int signal, const std::string& message) {
  Failure failure;
  failure.kind = signal != 0 ? FailureKind::kSignal : FailureKind::kExitCode;
  failure.subject = subject;
  failure.node = node;
  failure.exit_code = exit_code;
  failure.signal = signal;
  failure.message = message;
  return failure;
}

/// A program that cannot be executed will not be executable in a second; a lack of memory or processes may pass.
bool fails_for_ever(int error) {
  return error == ENOENT || error == EACCES || error == ENOEXEC || error == ENOTDIR || error == EPERM ||
         error == ELOOP || error == ENAMETOOLONG || error == E2BIG || error == EISDIR;
}

}  // namespace

Failure failure_of(const NodeId& node, const cluster::WorkerExited& exited, bool is_training) {
  Failure failure = of_rank(exited.rank, node);
  failure.kind = exited.signal != 0 ? FailureKind::kSignal : FailureKind::kExitCode;
  if (is_training && exited.exit_code == worker_exit::kPeerLost) failure.kind = FailureKind::kPeerLost;
  failure.pid = exited.pid;
  failure.exit_code = exited.exit_code;
  failure.signal = exited.signal;
  failure.core_dumped = exited.core_dumped;
  failure.is_final =
      is_training && (exited.exit_code == worker_exit::kUserError || exited.exit_code == worker_exit::kConfiguration);
  failure.message = exited.message;
  failure.tail = exited.tail;
  failure.error = exited.error;
  if (!is_training) {
    const bool is_own = exited.signal == 0 || exited.signal == SIGABRT;
    failure.follows_peer =
        is_own && (failure.error.empty() ? tells_peer_loss(failure.tail) : is_peer_loss(failure.error));
    failure.is_final = exited.signal == 0 && is_beyond_restart(failure.error, exited.exit_code);
    failure.follows_peer = failure.follows_peer && exited.gpu.empty();
  }
  if (failure.kind != FailureKind::kPeerLost) failure.gpu = exited.gpu;
  failure.notice_s = exited.notice_s;
  return failure;
}

Failure failure_of(const NodeId& node, const OtherError& other) {
  Failure failure = of_rank(other.rank, node);
  failure.kind = FailureKind::kRaised;
  failure.error = other.error;
  failure.gpu = other.gpu;
  failure.follows_peer = failure.gpu.empty() && is_peer_loss(failure.error);
  return failure;  // Not final: what it has printed may be caught, since it goes on.
}

Failure failure_of(const NodeId& node, const cluster::SpawnFailed& refused) {
  Failure failure = of_rank(refused.rank, node);
  failure.is_final = fails_for_ever(refused.error);
  failure.message = refused.message;
  return failure;
}

Failure failure_of(Rank rank, const NodeId& node, const cluster::PortRefused& refused) {
  Failure failure = of_rank(rank, node);
  failure.message = refused.message;
  return failure;
}

Failure failure_of(const NodeId& node, const cluster::ForkServerFailed& failed) {
  Failure failure = of_helper("fork server", node, failed.exit_code, failed.signal, failed.message);
  failure.is_final = failed.exit_code == worker_exit::kConfiguration;
  return failure;
}

Failure failure_of(const NodeId& node, const cluster::KeeperLost& lost) {
  if (lost.with_agent) return node_failure(node, "its agent and the run's keeper had both ended", 0);
  if (lost.never_started) {
    Failure refused = node_failure(node, lost.message, 0);
    refused.kind = FailureKind::kNodeRefused;
    return refused;
  }
  return of_helper("keeper", node, -1, lost.signal, lost.message);
}

Failure failure_of(const NodeId& node, const cluster::WorkerSilent& silent) {
  Failure failure = of_rank(silent.rank, node);
  failure.kind = silent.stalled ? FailureKind::kStalled : FailureKind::kHeartbeatLost;
  failure.pid = silent.pid;
  failure.was_waiting = silent.waiting;
  failure.message = silent.message;
  failure.notice_s = silent.silent_s;
  return failure;
}

Failure node_failure(const NodeId& node, const std::string& reason, double silent_s) {
  Failure failure;
  failure.kind = FailureKind::kNodeLost;
  failure.subject = "node " + node;
  failure.node = node;
  failure.message = reason;
  failure.notice_s = silent_s;
  return failure;
}

Failure unwanted_end(Rank rank, const NodeId& node, int pid) {
  Failure failure = of_rank(rank, node);
  failure.kind = FailureKind::kSignal;
  failure.pid = pid;
  failure.signal = SIGKILL;
  failure.message = "ended by its own agent, and nobody here had asked for that";
  return failure;
}

Failure not_started(Rank rank, const NodeId& node, Duration time) {
  Failure failure = of_rank(rank, node);
  failure.kind = FailureKind::kStalled;
  failure.message =
      fmt::format("{} was told to start it {} ago, and has said nothing of it", node, format_duration(time));
  failure.notice_s = to_seconds(time);
  return failure;
}

Failure protocol_failure(Rank rank, const NodeId& node, const std::string& message) {
  Failure failure = of_rank(rank, node);
  failure.exit_code = worker_exit::kUserError;
  failure.is_final = true;
  failure.message = message;
  return failure;
}

}  // namespace sgd::core
