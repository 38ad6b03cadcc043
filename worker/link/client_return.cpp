// LinkClient where the agent comes back: the closed link, the new one, and what is sent again over it.

#include <unistd.h>

#include <cstdio>

#include "common/exit_codes.hpp"
#include "worker/link/client.hpp"

namespace sgd::worker {

link::Hello LinkClient::hello() const {
  link::Hello hello;
  hello.token = token_;
  hello.pid = static_cast<int>(::getpid());
  hello.version = SGD_VERSION;
  hello.returns = returns();
  hello.received = received_;
  return hello;
}

bool LinkClient::is_all_taken() const {
  return outbox_.empty() && link_ == Link::kOpen && sent_.kept().empty();
}

/// With mutex_ held. A part of a line that the agent has not read died with it.
void LinkClient::lose() {
  if (link_ == Link::kOpen) away_since_ = std::chrono::steady_clock::now();
  link_ = Link::kAway;
  socket_.reset();
  outbox_.clear();
  input_.clear();
  received_descriptors_.clear();
}

/// An agent that lets nobody finish his greeting is none.
void LinkClient::connect_again() {
  const bool is_away = socket_.get() < 0;
  Result<UniqueFd> socket = is_away ? connect_unix(path_, Duration::zero()) : Result<UniqueFd>(Error{});
  const std::lock_guard lock(mutex_);
  if (link_ != Link::kOpen && std::chrono::steady_clock::now() - away_since_ >= agent_wait_ && !finishing_) {
    std::fprintf(stderr, "sgd-worker: no agent for %s\n", format_duration(agent_wait_).c_str());
    _exit(worker_exit::kEnvironment);
  }
  if (!socket) return;
  socket_ = std::move(socket).value();
  link_ = Link::kGreeting;
  told_received_ = received_;
  outbox_ = link::encode(link::FromWorker(hello()));
  write_outbox();
}

/// The agent says how much it has: the first word of one that is back, and then whenever it has taken something.
void LinkClient::note(const link::Received& received) {
  if (const Status known = sent_.acknowledge(received.count); !known) {
    std::fprintf(stderr, "sgd-worker: the agent is another one: %s\n", known.error().message.c_str());
    _exit(worker_exit::kEnvironment);
  }
  if (link_ != Link::kGreeting) return;
  link_ = Link::kOpen;
  for (const std::string& line : sent_.kept()) outbox_ += line;
  write_outbox();
}

void LinkClient::acknowledge() {
  const std::lock_guard lock(mutex_);
  if (!returns() || link_ != Link::kOpen || told_received_ == received_) return;
  told_received_ = received_;
  outbox_ += link::encode(link::FromWorker(link::Received{received_}));
  write_outbox();
}

}  // namespace sgd::worker
