// Ranks of a keeper: how they start, how their ends are seen, and their pipes.

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "launcher/keeper/keeper.hpp"
#include "launcher/keeper/limits.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::keeper {

void Keeper::handle(const Spawn& message, TimePoint now) {
  const Generation generation = message.generation;
  if (clearing_) {
    fail_spawn(generation, message.rank, Error{"the run is being cleared", EBUSY});
    return;
  }
  if (find(generation, message.rank) != ranks_.end()) {
    fail_spawn(generation, message.rank, Error{"this rank runs already", EEXIST});
    return;
  }
  auto output = RankOutput::open(generation, message.rank, message.log_path);
  if (!output) {
    fail_spawn(generation, message.rank, output.error());
    return;
  }
  RankProcess rank;
  rank.generation = generation;
  rank.rank = message.rank;
  rank.output = std::move(output).value();
  if (message.fork_server) {
    spawn_by_fork(message, std::move(rank), now);
  } else {
    spawn_by_exec(message, std::move(rank));
  }
}

void Keeper::spawn_by_exec(const Spawn& message, RankProcess rank) {
  const process::UniqueFd write_end = rank.output.take_write_end();
  process::SpawnOptions options;
  options.argv = message.argv;
  options.env = message.env;
  options.workdir = message.workdir;
  options.cpus = message.cpus;
  options.output_fd = write_end.get();
  auto child = process::spawn(options);
  if (!child) {
    fail_spawn(message.generation, message.rank, child.error());
    return;
  }
  rank.pid = child.value().pid;
  rank.pidfd = std::move(child.value().pidfd);
  agent_.send(Spawned{message.generation, message.rank, rank.pid});
  process::be_killed_first(rank.pid);
  ranks_.emplace(next_slot_++, std::move(rank));
}

void Keeper::spawn_by_fork(const Spawn& message, RankProcess rank, TimePoint now) {
  if (!fork_server_ || !fork_server_ready_ || fork_server_failed_) {
    fail_spawn(message.generation, message.rank, Error{"the fork server is not ready", ECHILD});
    return;
  }
  fork_server::Fork fork;
  fork.generation = message.generation;
  fork.rank = message.rank;
  fork.keeper_pid = ::getpid();
  fork.env = message.env;
  fork.cpus = message.cpus;
  fork.threads = message.threads;
  const Status requested = fork_server_->request_fork(fork, rank.output.take_write_end());
  if (!requested) {
    fail_spawn(message.generation, message.rank, requested.error());
    return;
  }
  rank.state = RankProcess::State::kForking;
  rank.fork_deadline = now + kForkLimit;
  ranks_.emplace(next_slot_++, std::move(rank));
}

void Keeper::fail_spawn(Generation generation, Rank rank, const Error& error) {
  agent_.send(SpawnFailed{generation, rank, error.code, error.message});
}

Keeper::Ranks::iterator Keeper::find(Generation generation, Rank rank) {
  return std::find_if(ranks_.begin(), ranks_.end(), [&](const auto& entry) {
    return entry.second.generation == generation && entry.second.rank == rank;
  });
}

bool Keeper::fork_pending() const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [](const auto& entry) { return entry.second.state == RankProcess::State::kForking; });
}

void Keeper::collect_exit(RankProcess& rank) {
  if (rank.state != RankProcess::State::kRunning) return;
  auto status = process::wait_exit(rank.pidfd.get());
  if (status.ok() && !status.value()) return;  // It still runs.
  // A process that is not our child has ended all the same, with a status that nobody can tell.
  if (status.ok()) rank.status = *status.value();
  rank.state = RankProcess::State::kEnded;
  rank.sequence = ++exits_seen_;
  rank.ended_at = process::monotonic_now();
  rank.pidfd.reset();
  // What it wrote is in the pipe by now. A grandchild may go on writing, so neither EOF nor an empty pipe is
  // awaited.
  rank.left_in_pipe = rank.output.waiting();
}

void Keeper::reap() {
  while (const pid_t pid = process::peek_ended_child()) {
    if (fork_server_ && fork_server_->pid() == pid) {
      fork_server_ended();
      continue;
    }
    const auto found = std::find_if(ranks_.begin(), ranks_.end(), [&](const auto& entry) {
      return entry.second.pid == pid && entry.second.state == RankProcess::State::kRunning;
    });
    if (found != ranks_.end()) {
      collect_exit(found->second);
      if (found->second.state == RankProcess::State::kRunning) return;  // Its pidfd is another process's.
    } else if (fork_pending()) {
      return;
    } else {
      process::reap_child(pid);
    }
  }
}

void Keeper::read_pipe(Slot slot) {
  const auto found = ranks_.find(slot);
  if (found == ranks_.end() || found->second.state == RankProcess::State::kEnded) return;
  // An earlier pipe of this round may have filled the window.
  if (agent_.window().state() != ConsoleWindow::State::kStalled &&
      agent_.window().unacknowledged() + static_cast<std::int64_t>(kConsoleRoom) > kOutputWindowBytes) {
    return;
  }
  (void)found->second.output.read_once(buffer_, &agent_,
                                       kReadBytes);  // Ignoring: poll says when there is more.
}

void Keeper::empty_pipes_of_ended() {
  std::map<std::int64_t, Slot> ended;  // In the order of their ends, which is the order of the reports.
  for (const auto& [slot, rank] : ranks_) {
    if (rank.state == RankProcess::State::kEnded) ended.emplace(rank.sequence, slot);
  }
  for (const auto& [sequence, slot] : ended) {
    RankProcess& rank = ranks_.at(slot);
    while (rank.left_in_pipe > 0 && agent_.window().may_overdraw()) {
      const std::size_t count = rank.output.read_once(buffer_, &agent_, rank.left_in_pipe);
      rank.left_in_pipe = count == 0 ? 0 : rank.left_in_pipe - count;
    }
    if (rank.left_in_pipe > 0) return;
    rank.output.finish(&agent_);
    report_exit(rank);
    ranks_.erase(slot);
  }
}

void Keeper::report_exit(const RankProcess& rank) {
  Exited exited;
  exited.generation = rank.generation;
  exited.rank = rank.rank;
  exited.pid = rank.pid;
  exited.exit_code = rank.status.exit_code;
  exited.signal = rank.status.signal;
  exited.core_dumped = rank.status.core_dumped;
  exited.sequence = rank.sequence;
  exited.detected_s = to_seconds(rank.ended_at.time_since_epoch());
  exited.tail = rank.output.tail();
  if (rank.status.signal == SIGKILL && out_of_memory_.take_one()) exited.reason = out_of_memory_.words();
  agent_.send(exited);
}

}  // namespace sgd::keeper
