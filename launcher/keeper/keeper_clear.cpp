// Clear and Close of a keeper: everything below it is killed and reaped, pipes are read empty,
// every rank's end is reported, and only then is Cleared said.
//
//   begin --> unanswered forks? wait (the fork server is killed after kClearPatience)
//         --> kill pass, reap, again until a pass finds nobody and nobody died meanwhile
//         --> ranks all reported --> Cleared [--> exit, with Close]

#include <poll.h>

#include <csignal>
#include <cstdio>

#include "launcher/keeper/keeper.hpp"
#include "launcher/keeper/limits.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"

namespace sgd::keeper {

void Keeper::begin_clearing(std::optional<Generation> generation, bool close, TimePoint now) {
  if (!clearing_) {
    clearing_.emplace();
    clearing_->started_at = now;
    std::set<pid_t> spared;
    if (fork_server_ && !close) spared.insert(fork_server_->pid());
    clearing_->killer = process::TreeKiller(spared);
  }
  if (generation) clearing_->generations.push_back(*generation);
  clearing_->next_pass = now;
  if (!close) return;
  clearing_->close = true;
  clearing_->killer.spare_nobody();
}

bool Keeper::all_processes_gone() {
  for (;;) {
    reap();
    if (clearing_->killer.pass() > 0) return false;
    // Somebody died while the pass looked, and may have left a child behind that it did not see.
    if (process::peek_ended_child() == 0) return true;
  }
}

void Keeper::advance_clearing(TimePoint now) {
  if (!clearing_ || now < clearing_->next_pass) return;
  clearing_->next_pass = now + kPassInterval;
  const bool impatient = now - clearing_->started_at >= kClearPatience;
  if (impatient && fork_server_ && !clearing_->forced) {
    clearing_->forced = true;
    kill_fork_server("it held up the clearing of its ranks");
    clearing_->killer.spare_nobody();
  }
  if (fork_pending() && !clearing_->close) {
    // A pass now would kill the process between the fork server and the rank, and the answer with it.
    for (const auto& [slot, rank] : ranks_) {
      if (rank.state == RankProcess::State::kRunning) clearing_->killer.kill(rank.pid);
    }
    return;
  }
  const bool nobody = all_processes_gone();
  empty_pipes_of_ended();
  if (nobody && ranks_.empty()) {
    finish_clearing(now);
    return;
  }
  if (now - clearing_->started_at < kClearLimit || nobody) return;
  const auto& left = clearing_->killer.left();
  (void)std::fprintf(stderr, "sgd-launch keeper: process %d does not die of SIGKILL; giving up after %s\n",
                     left.empty() ? -1 : left.front().pid, format_duration(kClearLimit).c_str());
  exit_code_ = 1;
}

void Keeper::finish_clearing(TimePoint now) {
  const int killed = clearing_->killer.killed();
  for (const Generation generation : clearing_->generations) agent_.send(Cleared{generation, killed});
  const bool close = clearing_->close;
  clearing_.reset();
  if (!close) return;
  agent_.send(Cleared{0, killed});
  if (agent_listener_) {
    last_words_since_ = now;
    return;
  }
  exit_code_ = 0;
  const TimePoint deadline = now + kLastWordsLimit;
  while (agent_.wants_write() && !agent_.lost()) {
    pollfd entry{agent_.fd(), POLLOUT, 0};
    const int ready = ::poll(&entry, 1, process::poll_timeout_ms(process::monotonic_now(), deadline));
    if (ready == 0) return;
    agent_.flush();
  }
}

}  // namespace sgd::keeper
