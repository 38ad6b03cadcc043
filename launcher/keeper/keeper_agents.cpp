// A keeper whose agents come and go: their listener, the time without one, and what the last of them must still hear.
//
//   alone --connects, Attach--> attached --link closed--> alone --AgentListener::wait--> everything ends
//                                  '--AgentEnds--> everything ends

#include <unistd.h>

#include "launcher/keeper/keeper.hpp"
#include "launcher/keeper/limits.hpp"
#include "launcher/process/accept_loop.hpp"
#include "launcher/process/unix_socket.hpp"

namespace sgd::keeper {

/// The newest counts: an agent that connects holds the lock of its state folder, so the one before is dead.
void Keeper::accept_agent(TimePoint now) {
  auto socket = process::accept_one(agent_listener_->listener.get());
  if (!socket) {
    if (process::is_shortage(socket.error().code)) accept_paused_until_ = now + kAcceptPause;
    return;
  }
  const auto peer = process::peer_credentials(socket.value().get());
  if (!peer || (peer.value().uid != ::getuid() && peer.value().uid != 0)) return;
  agent_.attach(std::move(socket).value());
  lost_agent_.clear();
}

void Keeper::handle(const Attach& message, TimePoint) {
  if (!agent_listener_) return;
  Started started;
  started.pid = ::getpid();
  const Status resumed = agent_.resume(message, started, agent_listener_->descriptors);
  if (!resumed) lost_agent_ = resumed.error().message;
  if (resumed) alone_since_.reset();
}

void Keeper::handle(const AgentEnds&, TimePoint) {
  agents_end_ = true;
  lost_agent_ = "the agent ends";
}

/// False: everything is to end, for lost_agent_.
bool Keeper::waits_for_agent(TimePoint now) {
  if (agents_end_) return false;
  if (agent_.keeps_too_much()) {
    lost_agent_ = "too much has happened without an agent";
    return false;
  }
  if (!lost_agent_.empty()) {
    agent_.disconnect();
    lost_agent_.clear();
    if (!alone_since_) alone_since_ = now;
  }
  if (!alone_since_ || now < *alone_since_ + agent_listener_->wait) return true;
  lost_agent_ = "no agent for " + format_duration(agent_listener_->wait);
  return false;
}

/// Closed, a keeper stays until an agent has all that it told, so that none of it dies with an agent.
void Keeper::check_last_words(TimePoint now) {
  if (!last_words_since_) return;
  if (alone_since_) last_words_since_ = now;
  if (!agent_.has_unacknowledged() || now >= *last_words_since_ + kLastWordsLimit) exit_code_ = 0;
}

}  // namespace sgd::keeper
