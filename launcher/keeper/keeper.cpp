#include "launcher/keeper/keeper.hpp"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <string>
#include <utility>

#include "launcher/keeper/limits.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"

namespace sgd::keeper {
namespace {
/// Wakes up at least this often; deadlines come earlier.
constexpr Duration kIdleWait = std::chrono::minutes(10);

bool has_process_below_us(pid_t group) {
  const std::vector<process::ProcessEntry> all = process::descendants(::getpid());
  return std::any_of(all.begin(), all.end(), [group](const auto& entry) { return entry.group == group; });
}

}  // namespace

int Keeper::run() {
  if (agent_listener_) alone_since_ = process::monotonic_now();
  while (!exit_code_) {
    const TimePoint before = process::monotonic_now();
    watch_all(before);
    const int ready = ::poll(polled_.data(), polled_.size(), timeout_ms(before));
    SGD_ASSERT(ready >= 0 || errno == EINTR);
    const TimePoint now = process::monotonic_now();
    agent_.window().update(now);
    // In the order of watch_all(): orders and exits before output, so that a flood delays neither.
    for (std::size_t i = 0; ready > 0 && i < polled_.size(); ++i) {
      if (polled_[i].revents != 0) dispatch(watched_[i], now);
    }
    if (agent_.lost() && lost_agent_.empty()) lost_agent_ = "the agent does not read its link";
    if (agent_listener_ && !waits_for_agent(now)) return leave_without_agent();
    if (!lost_agent_.empty()) return leave_without_agent();
    reap();
    empty_pipes_of_ended();
    if (agent_.window().state() != ConsoleWindow::State::kStalled) {
      for (auto& [slot, rank] : ranks_) rank.output.report_console_drops(agent_);
    }
    show_open_lines(now);
    pass_input();
    check_fork_deadlines(now);
    advance_clearing(now);
    agent_.acknowledge();
    check_last_words(now);
  }
  return *exit_code_;
}

void Keeper::watch(int fd, short events, Source source, Slot slot, Stream stream) {
  polled_.push_back({fd, events, 0});
  watched_.push_back({source, slot, stream});
}

void Keeper::watch_all(TimePoint now) {
  polled_.clear();
  watched_.clear();
  if (agent_.is_attached())
    watch(agent_.fd(), static_cast<short>(POLLIN | (agent_.wants_write() ? POLLOUT : 0)), Source::kAgent);
  if (accept_paused_until_ && now >= *accept_paused_until_) accept_paused_until_.reset();
  if (agent_listener_ && !accept_paused_until_) watch(agent_listener_->listener.get(), POLLIN, Source::kAgentListener);
  watch(child_signals_.get(), POLLIN, Source::kChildSignals);
  if (fork_server_) {
    if (fork_server_->socket() >= 0) {
      const bool writes = fork_server_->wants_write();
      watch(fork_server_->socket(), static_cast<short>(POLLIN | (writes ? POLLOUT : 0)), Source::kForkSocket);
    }
    const bool is_held = fork_held_until_ && now < *fork_held_until_;
    if (!is_held) watch(fork_server_->pidfd(), POLLIN, Source::kForkExit);
  }
  if (!input_ended_ && input_.empty() && find_reader() != ranks_.end()) watch(STDIN_FILENO, POLLIN, Source::kInput);
  const bool holding = agent_.window().state() == ConsoleWindow::State::kHolding;
  for (const auto& [slot, rank] : ranks_) {
    const bool is_held = rank.held_until && now < *rank.held_until;
    if (rank.state == RankProcess::State::kRunning && !is_held)
      watch(rank.pidfd.get(), POLLIN, Source::kRankExit, slot);
  }
  for (const auto& [slot, rank] : ranks_) {
    const bool live = rank.state != RankProcess::State::kEnded;
    if (!live || holding) continue;
    for (const Stream stream : kStreams)
      if (const int fd = rank.output.readable_fd(now, stream); fd >= 0) watch(fd, POLLIN, Source::kPipe, slot, stream);
  }
}

int Keeper::timeout_ms(TimePoint now) const {
  TimePoint deadline = now + kIdleWait;
  // The window's own deadline changes what watch_all() asks for.
  if (const auto stall = agent_.window().deadline()) deadline = std::min(deadline, *stall);
  if (clearing_) deadline = std::min(deadline, clearing_->next_pass);
  if (!input_.empty()) deadline = std::min(deadline, now + kInputPause);
  if (accept_paused_until_) deadline = std::min(deadline, *accept_paused_until_);
  if (alone_since_) deadline = std::min(deadline, *alone_since_ + agent_listener_->wait);
  if (last_words_since_) deadline = std::min(deadline, *last_words_since_ + kLastWordsLimit);
  if (fork_held_until_ && *fork_held_until_ > now) deadline = std::min(deadline, *fork_held_until_);
  // One that was killed may take long to end, as where a disk holds it: nothing more is due of it.
  const bool has_to_answer = fork_server_ && fork_server_killed_for_.empty();
  if (has_to_answer && !fork_server_ready_ && !fork_server_failed_)
    deadline = std::min(deadline, fork_server_->started_at() + kPrepareLimit);
  if (has_to_answer && fork_link_closed_at_) deadline = std::min(deadline, *fork_link_closed_at_ + kLinkClosedLimit);
  for (const auto& [slot, rank] : ranks_) {
    if (has_to_answer && rank.state == RankProcess::State::kForking) deadline = std::min(deadline, rank.fork_deadline);
    if (rank.held_until && *rank.held_until > now) deadline = std::min(deadline, *rank.held_until);
    if (rank.state == RankProcess::State::kLeft) deadline = std::min(deadline, now + kGroupPause);
    if (const auto unused = rank.output.unused_until(); unused && *unused > now) deadline = std::min(deadline, *unused);
    const auto open_line = rank.output.next_open_line();
    if (open_line && agent_.window().state() == ConsoleWindow::State::kOpen) deadline = std::min(deadline, *open_line);
  }
  return process::poll_timeout_ms(now, deadline);
}

void Keeper::dispatch(const Watch& watch, TimePoint now) {
  switch (watch.source) {
    case Source::kAgent:
      agent_.flush();
      read_agent(now);
      return;
    case Source::kAgentListener:
      accept_agent(now);
      return;
    case Source::kChildSignals: {
      char buffer[1024];
      while (::read(child_signals_.get(), buffer, sizeof buffer) > 0) {
      }
      if (clearing_) clearing_->next_pass = now;
      return;
    }
    case Source::kForkSocket:
      if (!fork_server_) return;
      fork_server_->flush();
      read_fork_server(now);
      return;
    case Source::kForkExit:
      if (fork_server_) fork_server_ended();
      return;
    case Source::kRankExit:
      if (const auto found = ranks_.find(watch.slot); found != ranks_.end()) collect_exit(found->second);
      return;
    case Source::kInput:
      read_input();
      return;
    case Source::kPipe:
      read_pipe(watch.slot, watch.stream, now);
      return;
  }
}

void Keeper::read_agent(TimePoint now) {
  if (!agent_.is_attached()) return;
  std::vector<ToKeeper> messages;
  const Status status = agent_.receive(messages);
  for (const ToKeeper& message : messages) {
    std::visit([&](const auto& body) { handle(body, now); }, message);
  }
  if (!status) lost_agent_ = status.error().message;
}

void Keeper::handle(const Signal& message, TimePoint) {
  const auto found = find(message.generation, message.rank);
  if (found == ranks_.end()) return;
  RankProcess& rank = found->second;
  const bool is_left = rank.state == RankProcess::State::kLeft;
  if (rank.state != RankProcess::State::kRunning && !is_left) return;
  // Its number is its own until it is reaped here, and its group's for as long as a process of ours has it.
  const bool has_group = is_left ? has_process_below_us(rank.pid) : ::getpgid(rank.pid) == rank.pid;
  // Ignoring, here and below: it may be ending right now.
  if (message.is_for_group && has_group) {
    // What a shell has put into the background ignores SIGINT without meaning to: nobody waits for its end.
    rank.ends_with_group |= message.signal == SIGTERM;
    (void)::kill(-rank.pid, message.signal);
  } else if (!is_left) {
    (void)process::pidfd_send_signal(rank.pidfd.get(), message.signal);
  }
}

void Keeper::handle(const SignalAll& message, TimePoint) {
  for (auto& [slot, rank] : ranks_) {
    if (rank.state != RankProcess::State::kRunning) continue;
    if (message.signal == SIGWINCH)
      rank.output.resize_terminal();
    else
      (void)process::pidfd_send_signal(rank.pidfd.get(), message.signal);
  }
}

void Keeper::handle(const Clear& message, TimePoint now) {
  begin_clearing(message.generation, false, now);
}

void Keeper::handle(const Close&, TimePoint now) {
  begin_clearing(std::nullopt, true, now);
}

void Keeper::handle(const OutputAck& message, TimePoint now) {
  agent_.output_taken(now, message.bytes);
}

int Keeper::leave_without_agent() {
  const auto killed = process::kill_descendants({}, kOrphanKillLimit);
  for (auto& [slot, rank] : ranks_) {
    for (const Stream stream : kStreams) {
      std::size_t left = rank.output.waiting(stream);
      while (left > 0) {
        const std::size_t count = rank.output.read_once(stream, process::monotonic_now(), buffer_, nullptr, left);
        if (count == 0) break;
        left -= count;
      }
    }
    rank.output.finish(nullptr);
  }
  // Last, because a terminal that does not take text would hold us up.
  if (!killed) {
    (void)std::fprintf(stderr, "sgd-launch keeper: %s; %s\n", lost_agent_.c_str(), killed.error().message.c_str());
  }
  return 1;
}

}  // namespace sgd::keeper
