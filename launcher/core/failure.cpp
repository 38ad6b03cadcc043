#include "launcher/core/failure.hpp"

#include <cstring>

#include <fmt/format.h>

namespace sgd::core {

const char* name(FailureKind kind) {
  switch (kind) {
    case FailureKind::kExitCode:
      return "exit_code";
    case FailureKind::kSignal:
      return "signal";
    case FailureKind::kHeartbeatLost:
      return "heartbeat_lost";
    case FailureKind::kNodeLost:
      return "node_lost";
    case FailureKind::kStalled:
      return "stalled";
    case FailureKind::kPeerLost:
      return "peer_lost";
  }
  return "unknown";
}

std::string signal_words(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  if (abbreviation == nullptr) return fmt::format("{}", signal);
  return fmt::format("{} (SIG{})", signal, abbreviation);
}

std::string what(const Failure& failure) {
  switch (failure.kind) {
    case FailureKind::kExitCode:
      return failure.exit_code >= 0 ? fmt::format("exit code {}", failure.exit_code) : "could not start";
    case FailureKind::kSignal:
      return fmt::format("signal {}", signal_words(failure.signal));
    case FailureKind::kHeartbeatLost:
      return "heartbeat lost";
    case FailureKind::kNodeLost:
      return "node lost";
    case FailureKind::kStalled:
      return "stalled";
    case FailureKind::kPeerLost:
      return "peer lost";
  }
  return "unknown";
}

std::string words(const Failure& failure) {
  const bool unborn = failure.kind == FailureKind::kExitCode && failure.exit_code < 0;
  std::string text = fmt::format("{}{} {}", what(failure), unborn ? "" : ",", failure.subject);
  if (failure.core_dumped) text += ", core dumped";
  if (!failure.message.empty()) text += ": " + failure.message;
  return text;
}

void CauseFinder::add(const Failure& failure) {
  if (!cause_) {
    cause_ = failure;
    return;
  }
  const bool replaces_secondary = cause_->is_secondary() && !failure.is_secondary();
  const bool outranks = cause_->kind == FailureKind::kExitCode && failure.kind == FailureKind::kSignal &&
                        failure.at - cause_->at <= kSignalOutranks && !cause_->is_final;
  if (replaces_secondary || outranks) cause_ = failure;
}

bool CauseFinder::decided(TimePoint now) const {
  if (!cause_) return false;
  return now - cause_->at >= patience();
}

/// How long a better explanation may take to arrive.
Duration CauseFinder::patience() const {
  if (cause_->is_secondary()) return kPrimaryWait;
  return cause_->may_follow ? kSignalOutranks : Duration{0};
}

std::optional<TimePoint> CauseFinder::next_wakeup() const {
  if (!cause_ || patience() == Duration{0}) return std::nullopt;
  return cause_->at + patience();
}

void CauseFinder::reset() {
  cause_.reset();
}

}  // namespace sgd::core
