#include "launcher/core/failure.hpp"

#include <cstring>

#include <fmt/format.h>

namespace sgd::core {

const char* name(FailureKind kind) {
  switch (kind) {
    case FailureKind::kExitCode: return "exit_code";
    case FailureKind::kSignal: return "signal";
    case FailureKind::kHeartbeatLost: return "heartbeat_lost";
    case FailureKind::kNodeLost: return "node_lost";
    case FailureKind::kStalled: return "stalled";
    case FailureKind::kPeerLost: return "peer_lost";
  }
  return "unknown";
}

std::string signal_words(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  if (abbreviation == nullptr) return fmt::format("{}", signal);
  return fmt::format("{} (SIG{})", signal, abbreviation);
}

std::string words(const Failure& failure) {
  std::string text;
  switch (failure.kind) {
    case FailureKind::kExitCode:
      text = failure.exit_code >= 0 ? fmt::format("exit code {}, {}", failure.exit_code, failure.subject)
                                    : fmt::format("could not start {}", failure.subject);
      break;
    case FailureKind::kSignal: text = fmt::format("signal {}, {}", signal_words(failure.signal), failure.subject); break;
    case FailureKind::kHeartbeatLost: text = fmt::format("heartbeat lost, {}", failure.subject); break;
    case FailureKind::kNodeLost: text = fmt::format("node lost, {}", failure.subject); break;
    case FailureKind::kStalled: text = fmt::format("stalled, {}", failure.subject); break;
    case FailureKind::kPeerLost: text = fmt::format("peer lost, {}", failure.subject); break;
  }
  if (failure.core_dumped) text += ", core dumped";
  if (!failure.message.empty()) text += ": " + failure.message;
  return text;
}

void CauseFinder::add(const Failure& failure) {
  if (!cause_) {
    cause_ = failure;
    return;
  }
  const bool replaces_secondary = cause_->kind == FailureKind::kPeerLost && failure.kind != FailureKind::kPeerLost;
  const bool outranks = cause_->kind == FailureKind::kExitCode && failure.kind == FailureKind::kSignal &&
                        failure.at - cause_->at <= kSignalOutranks && !cause_->is_final;
  if (replaces_secondary || outranks) cause_ = failure;
}

bool CauseFinder::decided(TimePoint now) const {
  if (!cause_) return false;
  return cause_->kind != FailureKind::kPeerLost || now - cause_->at >= kPrimaryWait;
}

std::optional<TimePoint> CauseFinder::next_wakeup() const {
  if (!cause_ || cause_->kind != FailureKind::kPeerLost) return std::nullopt;
  return cause_->at + kPrimaryWait;
}

void CauseFinder::reset() { cause_.reset(); }

}  // namespace sgd::core
