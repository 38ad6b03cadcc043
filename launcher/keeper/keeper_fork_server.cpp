// The fork server of a keeper: its answers, its deadlines, its death.

#include <cerrno>
#include <csignal>
#include <utility>

#include "common/json/lenient.hpp"
#include "launcher/keeper/keeper.hpp"
#include "launcher/keeper/limits.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"

namespace sgd::keeper {

/// One that was held ready serves the run for which it has looked, and no other.
bool Keeper::is_prepared_for(const StartForkServer& message) {
  const auto prepared = std::exchange(prepared_for_, std::nullopt);
  if (!prepared || !fork_server_ || clearing_) return false;
  if (encode(ToKeeper(*prepared)) == encode(ToKeeper(message))) return true;
  fork_server_->kill();
  fork_server_.reset();  // Its end is that of a child which nobody knows.
  return false;
}

void Keeper::handle(const StartForkServer& message, TimePoint now) {
  needs_fork_server_ = member(message.job, "backend") == "sgd";
  told_of_exec_ = false;
  if (is_prepared_for(message)) {
    ForkServerReady ready;
    ready.pid = fork_server_->pid();
    return agent_.send(ready);
  }
  if (fork_server_ || clearing_) {
    agent_.send(ForkServerFailed{-1, 0, fork_server_ ? "a fork server runs already" : "the run is being cleared"});
    return;
  }
  fork_server_ready_ = false;
  fork_server_failed_ = false;
  fork_server_signal_ = 0;
  fork_server_killed_for_.clear();
  fork_link_closed_at_.reset();
  auto started = ForkServerProcess::start(message, now);
  if (!started) {
    agent_.send(ForkServerFailed{-1, 0, "fork server: " + started.error().message});
    return;
  }
  fork_server_ = std::move(started).value();
}

void Keeper::read_fork_server(TimePoint now) {
  std::vector<ForkServerProcess::Reply> replies;
  const Status status = fork_server_->receive(replies);
  for (ForkServerProcess::Reply& reply : replies) {
    std::visit([&](const auto& message) { take(message, std::move(reply.pidfd), now); }, reply.message);
  }
  if (!status) kill_fork_server(status.error().message);
  if (fork_server_->socket() < 0 && !fork_link_closed_at_) fork_link_closed_at_ = now;
  reap();
}

void Keeper::take(const fork_server::Prepared& message, process::UniqueFd, TimePoint now) {
  if (fork_server_ready_) return;
  fork_server_ready_ = true;
  ForkServerReady ready;
  ready.pid = fork_server_->pid();
  ready.start_s = to_seconds(now - fork_server_->started_at());
  ready.threads = message.threads;
  ready.can_fork = message.threads == 1 && message.reason.empty();
  ready.reason = message.reason;
  agent_.send(ready);
}

void Keeper::take(const fork_server::PrepareFailed& message, process::UniqueFd, TimePoint) {
  fail_fork_server(message.exit_code, 0, message.message);
}

void Keeper::take(const fork_server::Forked& message, process::UniqueFd pidfd, TimePoint) {
  if (!pidfd) {
    // Its number is safe: while the fork is unanswered no unknown child is reaped.
    auto opened = process::pidfd_open(message.pid);
    if (opened) pidfd = std::move(opened).value();
  }
  const auto found = find(message.generation, message.rank);
  if (found == ranks_.end() || found->second.state != RankProcess::State::kForking) {
    if (pidfd) (void)process::pidfd_send_signal(pidfd.get(), SIGKILL);  // Ignoring: a rank that nobody asked for.
    return;
  }
  RankProcess& rank = found->second;
  if (!pidfd) {
    ranks_.erase(found);
    fail_spawn(message.generation, message.rank, Error{"the fork server gave a process that does not exist", ESRCH});
    return;
  }
  rank.pid = message.pid;
  rank.pidfd = std::move(pidfd);
  rank.state = RankProcess::State::kRunning;
  agent_.send(Spawned{rank.generation, rank.rank, rank.pid});
  process::be_killed_first(rank.pid);
  if (clearing_) clearing_->next_pass = {};
}

void Keeper::take(const fork_server::ForkFailed& message, process::UniqueFd, TimePoint) {
  const auto found = find(message.generation, message.rank);
  if (found == ranks_.end() || found->second.state != RankProcess::State::kForking) return;
  ranks_.erase(found);
  fail_spawn(message.generation, message.rank, Error{message.message, message.error});
}

void Keeper::fail_fork_server(int exit_code, int signal, const std::string& message) {
  if (fork_server_failed_) return;
  fork_server_failed_ = true;
  // With Close its end was asked for.
  if (clearing_ && clearing_->close) return;
  agent_.send(ForkServerFailed{exit_code, signal, message});
}

void Keeper::kill_fork_server(const std::string& reason) {
  if (fork_server_killed_for_.empty()) fork_server_killed_for_ = reason;
  fork_server_->kill();
}

void Keeper::fork_server_ended() {
  auto status = process::wait_exit(fork_server_->pidfd());
  fork_held_until_.reset();
  if (status.ok() && !status.value()) {  // As with a rank.
    fork_held_until_ = process::monotonic_now() + kHeldPause;
    return;
  }
  // Answers that it gave before it died are still in the socket.
  std::vector<ForkServerProcess::Reply> replies;
  (void)fork_server_->receive(replies);  // Ignoring: it is dead, whatever it said.
  const TimePoint now = process::monotonic_now();
  for (ForkServerProcess::Reply& reply : replies) {
    std::visit([&](const auto& message) { take(message, std::move(reply.pidfd), now); }, reply.message);
  }
  const process::ExitStatus ended = status.ok() ? *status.value() : process::ExitStatus{};
  fork_server_signal_ = ended.signal;
  std::string what = "fork server ended with " + process::describe(ended);
  if (!fork_server_killed_for_.empty()) what = "fork server killed: " + fork_server_killed_for_;
  if (!fork_server_failed_) fail_fork_server(ended.exit_code, ended.signal, fork_server_->explain(what));
  fork_server_.reset();
  fork_server_ready_ = false;
  for (auto at = ranks_.begin(); at != ranks_.end();) {
    if (at->second.state != RankProcess::State::kForking) {
      ++at;
      continue;
    }
    fail_fork(at->second.generation, at->second.rank, what);
    at = ranks_.erase(at);
  }
  if (!clearing_) return;
  clearing_->next_pass = {};
  clearing_->killer.spare_nobody();  // Its number may be somebody else's from now on.
}

void Keeper::check_fork_deadlines(TimePoint now) {
  if (!fork_server_ || !fork_server_killed_for_.empty()) return;
  if (!fork_server_ready_ && !fork_server_failed_ && now >= fork_server_->started_at() + kPrepareLimit) {
    kill_fork_server("it was not ready after " + format_duration(kPrepareLimit));
  }
  if (fork_link_closed_at_ && now >= *fork_link_closed_at_ + kLinkClosedLimit) {
    kill_fork_server("it closed its link and did not end");
  }
  for (const auto& [slot, rank] : ranks_) {
    if (rank.state != RankProcess::State::kForking || now < rank.fork_deadline) continue;
    kill_fork_server("it did not answer the fork of rank " + std::to_string(rank.rank) + " within " +
                     format_duration(kForkLimit));
    return;
  }
}

}  // namespace sgd::keeper
