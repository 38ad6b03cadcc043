#include "launcher/core/failure.hpp"

#include <csignal>
#include <cstring>

#include <fmt/format.h>

#include "launcher/core/peer_loss.hpp"

namespace sgd::core {

namespace {

/// By which a process ends itself, or is ended with those that it belongs to.
bool is_own_end(int signal) {
  return signal == SIGABRT || signal == SIGTERM || signal == SIGPIPE || signal == SIGINT;
}

}  // namespace

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
    case FailureKind::kRaised:
      return "raised";
    case FailureKind::kNodeRefused:
      return "node_refused";
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
    case FailureKind::kRaised:
      return "had not ended";
    case FailureKind::kNodeRefused:
      return "could not start";
  }
  return "unknown";
}

std::string words(const Failure& failure) {
  const bool is_told = failure.kind == FailureKind::kExitCode || failure.kind == FailureKind::kRaised;
  if (is_told && !failure.error.empty()) {
    const std::string more = failure.message.empty() ? "" : "; " + failure.message;
    return fmt::format("{}: {} ({}){}", failure.subject, words(failure.error), what(failure), more);
  }
  const bool unborn = failure.kind == FailureKind::kExitCode && failure.exit_code < 0;
  const char* joint = failure.kind == FailureKind::kNodeRefused ? " on" : unborn ? "" : ",";
  std::string text = fmt::format("{}{} {}", what(failure), joint, failure.subject);
  if (failure.core_dumped) text += ", core dumped";
  if (!failure.error.empty()) text += ": " + words(failure.error);
  if (!failure.message.empty()) text += (failure.error.empty() ? ": " : "; ") + failure.message;
  return text;
}

void CauseFinder::add(const Failure& failure) {
  if (!cause_) {
    cause_ = failure;
    return;
  }
  if (is_outranked_by(failure)) cause_ = failure;
}

bool CauseFinder::is_outranked_by(const Failure& failure) const {
  if (failure.is_secondary()) return false;
  if (cause_->is_secondary()) return true;
  const bool is_near = failure.at - cause_->at <= kSignalOutranks;
  if (cause_->is_final || cause_->kind != FailureKind::kExitCode || !is_near) return false;
  if (failure.gpu.empty() != cause_->gpu.empty()) return cause_->gpu.empty();
  if (failure.kind == FailureKind::kSignal) return cause_->error.empty() || !is_own_end(failure.signal);
  const bool are_told = !cause_->error.empty() && !failure.error.empty();
  return failure.kind == FailureKind::kExitCode && are_told && failure.error.at_s < cause_->error.at_s;
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
