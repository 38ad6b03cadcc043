#pragma once
// What ranks say, as our console shows it: RankLines between what comes and what is written, and the timer of what it
// holds back.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "common/job/spec.hpp"
#include "launcher/cli/console.hpp"
#include "launcher/cli/rank_lines.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/net/timer.hpp"

namespace sgd::cli {

class RankConsole {
 public:
  /// `io` and `console` must outlive it.
  RankConsole(boost::asio::io_context& io, Console& console, LineStyle style, std::function<int(Rank)> local_rank);

  /// Whole lines, or with `head.is_open` the line that a rank is writing. `on_written`: they are, or are given up.
  void add(const keeper::OutputHead& head, std::string_view bytes, const std::function<void()>& on_written);
  /// Whatever waits.
  void flush() { flush(true); }
  void stop() { timer_.cancel(); }

 private:
  void flush(bool all);
  void print(std::vector<RankText> texts, const std::function<void()>& on_written);
  void arm_timer();

  Console& console_;
  RankLines lines_;
  net::Timer timer_;
  bool has_bars_ = false;
};

/// A text of the job's "process".
[[nodiscard]] std::string text_of_process(const job::JobSpec& job, const char* key, const std::string& otherwise);
/// As the options and the job's "process" say.
[[nodiscard]] LineStyle line_style(const RunOptions& options, const job::JobSpec& job, const Console& console);

}  // namespace sgd::cli
