#include "launcher/cli/rank_console.hpp"

#include <cstdlib>
#include <utility>

#include "launcher/cli/member_name.hpp"
#include "launcher/cli/terminal_plot.hpp"
#include "launcher/process/clock.hpp"

namespace sgd::cli {

RankConsole::RankConsole(boost::asio::io_context& io, Console& console, LineStyle style,
                         std::function<int(Rank)> local_rank)
    : console_(console), lines_(std::move(style), std::move(local_rank)), timer_(io) {}

void RankConsole::add(const keeper::OutputHead& head, std::string_view bytes, const std::function<void()>& on_written) {
  const TimePoint now = process::monotonic_now();
  const double unix_s = process::unix_seconds();
  std::vector<RankText> texts;
  if (head.is_open)
    lines_.add_open(now, unix_s, head, bytes, texts);
  else
    lines_.add(now, unix_s, head, bytes, texts);
  print(std::move(texts), on_written);
  arm_timer();
}

void RankConsole::print(std::vector<RankText> texts, const std::function<void()>& on_written) {
  const std::vector<std::string> bars = lines_.bars();
  if (has_bars_ || !bars.empty()) console_.bars(bars);
  has_bars_ = !bars.empty();
  if (texts.empty() && on_written) on_written();
  for (std::size_t at = 0; at < texts.size(); ++at) {
    const bool is_last = at + 1 == texts.size();
    console_.output(texts[at].stream, std::move(texts[at].text), is_last ? on_written : std::function<void()>());
  }
}

void RankConsole::flush(bool all) {
  std::vector<RankText> texts;
  lines_.flush(process::monotonic_now(), all, texts);
  print(std::move(texts), {});
  arm_timer();
}

void RankConsole::arm_timer() {
  const auto due = lines_.next_flush();
  if (!due) return;
  timer_.at(*due, [this] { flush(false); });
}

std::string text_of_process(const job::JobSpec& job, const char* key, const std::string& otherwise) {
  const auto process = job.resolved->find("process");
  return process == job.resolved->end() ? otherwise : process->value(key, otherwise);
}

LineStyle line_style(const RunOptions& options, const job::JobSpec& job, const Console& console) {
  LineStyle style;
  style.prefix = options.show_prefix ? text_of_process(job, "prefix", "${rank}: ") : "";
  style.role = text_of_process(job, "role", "default");
  style.hostname = host_name();
  style.has_time = options.has_time;
  style.is_json = options.is_json;
  // Bare lines are somebody's data: each is there as often as it was written.
  style.ranks = options.folds && !style.prefix.empty() && !job.training ? job.num_workers : 1;
  style.out_is_terminal = console.is_terminal(keeper::Stream::kOut);
  style.err_is_terminal = console.is_terminal(keeper::Stream::kErr);
  style.has_live_region = console.style().is_terminal;
  style.is_utf8 = speaks_utf8(std::getenv("LC_ALL"), std::getenv("LC_CTYPE"), std::getenv("LANG"));
  return style;
}

}  // namespace sgd::cli
