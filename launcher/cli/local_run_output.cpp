// What ranks of a run on this machine write and read, and the signals that are passed on to them.

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include <fmt/format.h>

#include "launcher/cli/local_run.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/core/process_rules.hpp"

namespace sgd::cli {

/// Ranks are placed in order, node by node.
int LocalRun::local_rank(Rank rank) const {
  if (nodes_.size() <= 1) return rank;
  const auto shot = coordinator_.snapshot(place_.id);
  int local = 0;
  NodeId node;
  for (const core::RankSnapshot& one : shot ? shot->ranks : std::vector<core::RankSnapshot>()) {
    local = one.node == node ? local + 1 : 0;
    node = one.node;
    if (one.rank == rank) return local;
  }
  return rank;
}

/// Whoever has been put into the background does not take from the terminal what is typed for others.
process::UniqueFd LocalRun::input_for_ranks() const {
  if (job_.training || text_of_process(job_, "terminal", "none") == "none") return {};
  const pid_t foreground = ::tcgetpgrp(STDIN_FILENO);
  if (foreground > 0 && foreground != ::getpgrp()) return {};
  return process::UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
}

void LocalRun::on_output(std::size_t node, const agent::Output& output) {
  ranks_.add(output.head, output.bytes(), [this, node, run = output.run, size = output.bytes().size()] {
    nodes_[node].agent->acknowledge_output(run, size);
  });
}

void LocalRun::pass_signal(int signal) {
  if (outcome_) return;
  const bool is_size = signal == SIGWINCH;  // Of our terminal: for those of ranks.
  if (is_size && job_.training) return;
  if (!is_size && (job_.training || !core::passes_signal(job_.resolved, signal)))
    return console_.narrate(fmt::format("sgd-launch: signal {} is not passed on", core::signal_words(signal)));
  for (LocalNode& node : nodes_) node.agent->pass_signal(place_.id, signal);
}

}  // namespace sgd::cli
