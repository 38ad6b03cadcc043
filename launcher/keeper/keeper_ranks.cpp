// Ranks of a keeper: how they start, how their ends are seen, and their pipes.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <utility>

#include "launcher/keeper/error_file.hpp"
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
  auto output = RankOutput::open(message);
  if (!output) {
    fail_spawn(generation, message.rank, output.error());
    return;
  }
  if (ranks_.empty()) out_of_memory_.forget();
  RankProcess rank;
  rank.generation = generation;
  rank.rank = message.rank;
  rank.output = std::move(output).value();
  rank.error_file = message.error_file;
  rank.has_typed_input = message.has_input && message.has_terminal;
  if (message.fork_server) {
    spawn_by_fork(message, std::move(rank), now);
  } else {
    spawn_by_exec(message, std::move(rank));
  }
}

void Keeper::spawn_by_exec(const Spawn& message, RankProcess rank) {
  const std::vector<process::UniqueFd> write_ends = rank.output.take_write_ends();
  process::UniqueFd input;
  // Closed: then it has none either. In front of a terminal of its own stands what is typed there.
  const int from = message.has_terminal ? write_ends.front().get() : STDIN_FILENO;
  if (message.has_input) input.reset(::fcntl(from, F_DUPFD_CLOEXEC, 3));
  process::SpawnOptions options;
  options.argv = message.argv;
  set_environment(message.environment, options);
  options.workdir = message.workdir;
  options.cpus = message.cpus;
  options.input_fd = input.get();
  options.output_fd = write_ends.front().get();
  options.error_fd = write_ends.back().get();
  options.has_terminal = message.has_terminal;
  auto child = process::spawn(options);
  if (!child) {
    fail_spawn(message.generation, message.rank, child.error());
    return;
  }
  rank.pid = child.value().pid;
  rank.pidfd = std::move(child.value().pidfd);
  agent_.send(Spawned{message.generation, message.rank, rank.pid});
  process::be_killed_first(rank.pid);
  if (rank.has_typed_input && input_ended_) input_ = kEndOfInput;
  ranks_.emplace(next_slot_++, std::move(rank));
}

void Keeper::spawn_by_fork(const Spawn& message, RankProcess rank, TimePoint now) {
  if (!fork_server_ || !fork_server_ready_ || fork_server_failed_) {
    fail_fork(message.generation, message.rank, "the fork server is not ready");
    return;
  }
  fork_server::Fork fork;
  fork.generation = message.generation;
  fork.rank = message.rank;
  fork.keeper_pid = ::getpid();
  fork.env = message.environment.set;
  fork.cpus = message.cpus;
  fork.threads = message.threads;
  fork.argv = message.argv;
  if (!ForkServerProcess::takes(fork)) return spawn_too_long(message, std::move(rank));
  std::vector<process::UniqueFd> streams = rank.output.take_write_ends();
  if (message.has_input) {
    process::UniqueFd input(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));  // Closed: then it has none either.
    if (input) streams.push_back(std::move(input));
  }
  const Status requested = fork_server_->request_fork(fork, std::move(streams));
  // With its link closed it is about to end, which tells why.
  if (!requested && requested.error().code != EPIPE) {
    fail_spawn(message.generation, message.rank, requested.error());
    return;
  }
  rank.state = RankProcess::State::kForking;
  rank.fork_deadline = now + kForkLimit;
  ranks_.emplace(next_slot_++, std::move(rank));
}

/// Said once of a fork server: each of its ranks has about the same arguments and environment.
void Keeper::spawn_too_long(const Spawn& message, RankProcess rank) {
  const std::string reason = "their arguments and environment are longer than the " +
                             std::to_string(kForkMessageBytesMax >> 10) + " KiB that a fork server takes";
  if (needs_fork_server_) {
    const std::string fix = ": pass what is long in a file, or start with --preload none";
    return fail_spawn(message.generation, message.rank, Error{reason + fix, EMSGSIZE});
  }
  if (!std::exchange(told_of_exec_, true)) {
    ForkServerReady ready;
    ready.pid = fork_server_->pid();
    ready.can_fork = false;
    ready.reason = reason;
    agent_.send(ready);
  }
  spawn_by_exec(message, std::move(rank));
}

void Keeper::fail_spawn(Generation generation, Rank rank, const Error& error) {
  agent_.send(SpawnFailed{generation, rank, error.code, error.message});
}

void Keeper::fail_fork(Generation generation, Rank rank, const std::string& what) {
  agent_.send(SpawnFailed{generation, rank, ECHILD, what, fork_server_signal_});
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
  if (status.ok() && !status.value()) {  // It still runs, or a debugger has been told of its end, and we are not yet.
    rank.held_until = process::monotonic_now() + kHeldPause;
    return;
  }
  // A process that is not our child has ended all the same, with a status that nobody can tell.
  if (status.ok()) rank.status = *status.value();
  rank.ended_at = process::monotonic_now();
  rank.pidfd.reset();
  rank.state = RankProcess::State::kLeft;
  if (!rank.ends_with_group) end_rank(rank);
}

void Keeper::end_rank(RankProcess& rank) {
  rank.state = RankProcess::State::kEnded;
  rank.sequence = ++exits_seen_;
  // What it wrote is in the pipe by now. A grandchild may go on writing, so neither EOF nor an empty pipe is
  // awaited.
  for (const Stream stream : kStreams)
    rank.left_in_pipes[static_cast<std::size_t>(stream)] = rank.output.waiting(stream);
}

/// A shell dies of SIGTERM before what it waits for, which may have something to save. What is in a group comes back to
/// us when its parents end, so that its end is heard. Whoever clears has waited long enough.
void Keeper::end_ranks_left() {
  for (auto& [slot, rank] : ranks_) {
    if (rank.state != RankProcess::State::kLeft) continue;
    const bool is_empty = ::kill(-rank.pid, 0) != 0 && errno == ESRCH;
    if (clearing_ || is_empty) end_rank(rank);
  }
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

void Keeper::read_pipe(Slot slot, Stream stream, TimePoint now) {
  const auto found = ranks_.find(slot);
  if (found == ranks_.end() || found->second.state == RankProcess::State::kEnded) return;
  // An earlier pipe of this round may have filled the window.
  if (agent_.window().state() != ConsoleWindow::State::kStalled &&
      agent_.window().unacknowledged() + static_cast<std::int64_t>(kConsoleRoom) > kOutputWindowBytes) {
    return;
  }
  (void)found->second.output.read_once(stream, now, buffer_, &agent_,
                                       kReadBytes);  // Ignoring: poll says when there is more.
}

/// False: the console has no room for what is left.
bool Keeper::empty_pipes(RankProcess& rank) {
  for (const Stream stream : kStreams) {
    std::size_t& left = rank.left_in_pipes[static_cast<std::size_t>(stream)];
    while (left > 0 && agent_.window().may_overdraw()) {
      const std::size_t count = rank.output.read_once(stream, process::monotonic_now(), buffer_, &agent_, left);
      left = count == 0 ? 0 : left - count;
    }
    if (left > 0) return false;
  }
  return true;
}

void Keeper::show_open_lines(TimePoint now) {
  if (agent_.window().state() != ConsoleWindow::State::kOpen) return;
  for (auto& [slot, rank] : ranks_) rank.output.show_open_lines(now, agent_);
}

/// The record that it has left, else what it has printed.
RankError Keeper::error_of(const RankProcess& rank) {
  RankError printed = rank.output.traceback();
  RankError recorded = read_error_file(rank.error_file);
  if (recorded.empty()) return printed;
  if (recorded.frames.empty() && printed.type == recorded.type) recorded.frames = std::move(printed.frames);
  return recorded;
}

void Keeper::empty_pipes_of_ended() {
  end_ranks_left();
  std::map<std::int64_t, Slot> ended;  // In the order of their ends, which is the order of the reports.
  for (const auto& [slot, rank] : ranks_) {
    if (rank.state == RankProcess::State::kEnded) ended.emplace(rank.sequence, slot);
  }
  for (const auto& [sequence, slot] : ended) {
    RankProcess& rank = ranks_.at(slot);
    if (!empty_pipes(rank)) return;
    rank.output.finish(&agent_);
    report_exit(rank);
    ranks_.erase(slot);
  }
}

/// What ranks that go on had written when the first one of their generation failed may be in pipes that nobody has come
/// to yet, and may be its cause.
void Keeper::read_others(Generation generation) {
  if (generation <= heard_) return;
  heard_ = generation;
  for (const auto& [slot, other] : ranks_)
    if (other.generation == generation)
      for (const Stream stream : kStreams) read_pipe(slot, stream, process::monotonic_now());
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
  const bool has_failed = rank.status.exit_code != 0;
  const bool is_first = std::exchange(ended_, rank.generation) != rank.generation;
  has_ended_well_ = (is_first || has_ended_well_) && !has_failed;
  if (rank.rank == 0 && !has_failed) exited.last_object = rank.output.last_object();
  if (has_failed) {
    exited.error = error_of(rank);
    read_others(rank.generation);
    exited.others = errors_of_living(rank.generation);
  }
  agent_.send(exited);
}

std::vector<OtherError> Keeper::errors_of_living(Generation generation) const {
  std::vector<OtherError> errors;
  for (const auto& [slot, rank] : ranks_) {
    const bool goes_on = rank.generation == generation && rank.state == RankProcess::State::kRunning;
    if (!goes_on || errors.size() == kOthersMax) continue;
    if (RankError error = error_of(rank); !error.empty()) errors.push_back({rank.rank, std::move(error)});
  }
  return errors;
}

/// A rank of another node has failed.
void Keeper::handle(const AskErrors& message, TimePoint) {
  read_others(message.generation);
  agent_.send(ErrorsSaid{message.generation, errors_of_living(message.generation)});
}

}  // namespace sgd::keeper
