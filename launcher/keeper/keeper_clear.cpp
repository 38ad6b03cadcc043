// Clear and Close of a keeper: everything below it is killed and reaped, pipes are read empty,
// every rank's end is reported, and only then is Cleared said.
//
//   begin --> Close, and all ranks have ended well? wait kLeftTime for what they have left, then name it on stderr
//         --> unanswered forks? wait (the fork server is killed after kClearPatience)
//         --> kill pass, reap, again until a pass finds nobody and nobody died meanwhile
//         --> ranks all reported --> Cleared [--> exit, with Close]

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <fstream>

#include "launcher/keeper/keeper.hpp"
#include "launcher/keeper/limits.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"

namespace sgd::keeper {
namespace {

constexpr std::size_t kNamedMax = 8;

/// A process may call itself anything.
std::string name_of(pid_t pid) {
  std::string name;
  std::getline(std::ifstream("/proc/" + std::to_string(pid) + "/comm"), name);
  for (char& c : name)
    if (c < ' ' || c > '~') c = '?';
  return name;
}

std::string words_of(const std::vector<process::ProcessEntry>& left) {
  const bool is_one = left.size() == 1;
  std::string text = std::to_string(left.size()) + (is_one ? " process" : " processes") +
                     " that workers had left behind " + (is_one ? "was" : "were") + " ended: ";
  const std::size_t named = std::min(left.size(), kNamedMax);
  for (std::size_t at = 0; at < named; ++at)
    text += (at == 0 ? "" : ", ") + name_of(left[at].pid) + " (pid " + std::to_string(left[at].pid) + ")";
  if (named < left.size()) text += ", and " + std::to_string(left.size() - named) + " more";
  return text;
}

/// To whoever reads our standard error; one that takes nothing now must not hold us up.
void warn(const std::string& text) {
  pollfd entry{STDERR_FILENO, POLLOUT, 0};
  if (::poll(&entry, 1, 0) == 1) (void)std::fprintf(stderr, "sgd-launch: warning: %s\n", text.c_str());
}

}  // namespace

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
  if (!clearing_->close && has_ended_well_ && ranks_.empty()) clearing_->left_until = now + kLeftTime;
  clearing_->close = true;
  clearing_->killer.spare_nobody();
}

/// But the fork server and what that has started.
std::vector<process::ProcessEntry> Keeper::left_behind() const {
  std::vector<process::ProcessEntry> left;
  std::set<pid_t> spared;
  if (fork_server_) spared.insert(fork_server_->pid());
  for (const process::ProcessEntry& entry : process::descendants(::getpid())) {
    if (spared.contains(entry.parent)) spared.insert(entry.pid);
    if (!spared.contains(entry.pid) && !entry.zombie) left.push_back(entry);
  }
  return left;
}

/// Helpers whose pipe has closed need a moment. What is still there was meant to stay, which it may not: its user would
/// look for it in vain.
bool Keeper::has_waited_for_left(TimePoint now) {
  reap();
  const std::vector<process::ProcessEntry> left = left_behind();
  if (!left.empty() && now < *clearing_->left_until) return false;
  clearing_->left_until.reset();
  if (!left.empty()) warn(words_of(left));
  return true;
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
  if (clearing_->left_until && !has_waited_for_left(now)) return;
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
