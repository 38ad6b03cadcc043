// What ranks of a run on this machine write and read, and the signals that are passed on to them.

#include <fcntl.h>
#include <unistd.h>

#include <csignal>

#include <fmt/format.h>

#include "launcher/cli/local_run.hpp"
#include "launcher/cli/member_name.hpp"
#include "launcher/core/failure.hpp"
#include "launcher/core/process_rules.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::cli {
namespace {

std::string text_of(const nlohmann::json& job, const char* key, std::string otherwise) {
  const auto process = job.find("process");
  return process == job.end() ? otherwise : process->value(key, otherwise);
}

}  // namespace

LineStyle LocalRun::line_style() const {
  LineStyle style;
  style.prefix = options_.show_prefix ? text_of(job_.resolved, "prefix", "${rank}: ") : "";
  style.role = text_of(job_.resolved, "role", "default");
  style.hostname = host_name();
  style.has_time = options_.has_time;
  style.is_json = options_.is_json;
  // Bare lines are somebody's data: each is there as often as it was written.
  style.ranks = options_.folds && options_.show_prefix && !job_.training ? job_.num_workers : 1;
  style.out_is_terminal = console_.is_terminal(keeper::Stream::kOut);
  style.err_is_terminal = console_.is_terminal(keeper::Stream::kErr);
  style.has_live_region = console_.style().is_terminal;
  return style;
}

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
  if (job_.training || text_of(job_.resolved, "terminal", "none") == "none") return {};
  const pid_t foreground = ::tcgetpgrp(STDIN_FILENO);
  if (foreground > 0 && foreground != ::getpgrp()) return {};
  return process::UniqueFd(::fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3));
}

void LocalRun::on_output(std::size_t node, agent::Output output) {
  const TimePoint now = process::monotonic_now();
  const double unix_s = process::unix_seconds();
  std::vector<RankText> texts;
  if (output.head.is_open)
    lines_.add_open(now, unix_s, output.head, output.bytes(), texts);
  else
    lines_.add(now, unix_s, output.head, output.bytes(), texts);
  print(std::move(texts), [this, node, run = output.run, size = output.bytes().size()] {
    nodes_[node].agent->acknowledge_output(run, size);
  });
  arm_lines_timer();
}

void LocalRun::print(std::vector<RankText> texts, const std::function<void()>& on_written) {
  const std::vector<std::string> bars = lines_.bars();
  if (has_bars_ || !bars.empty()) console_.bars(bars);
  has_bars_ = !bars.empty();
  if (texts.empty() && on_written) on_written();
  for (std::size_t at = 0; at < texts.size(); ++at) {
    const bool is_last = at + 1 == texts.size();
    console_.output(texts[at].stream, std::move(texts[at].text), is_last ? on_written : std::function<void()>());
  }
}

void LocalRun::flush_lines(bool all) {
  std::vector<RankText> texts;
  lines_.flush(process::monotonic_now(), all, texts);
  print(std::move(texts), {});
  arm_lines_timer();
}

void LocalRun::arm_lines_timer() {
  const auto due = lines_.next_flush();
  if (!due) return;
  lines_timer_.expires_at(*due);
  lines_timer_.async_wait([this](const boost::system::error_code& error) {
    if (!error) flush_lines(false);
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
