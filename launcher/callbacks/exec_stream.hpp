#pragma once
// What a program is given of a run, in order, and how much of it: the lines of metrics.jsonl and of events.jsonl that
// it has not had, each numbered. How many it was given stands in a file of the run's folder, so that a program that is
// started anew, in a later life of the run, goes on behind them. Blocks.

#include <cstdint>
#include <deque>
#include <string>

#include "common/base/result.hpp"
#include "launcher/callbacks/line_source.hpp"
#include "launcher/callbacks/report_values.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::callbacks {

class ExecStream {
 public:
  /// Lines read ahead: as much of the run as waits in memory.
  static constexpr std::size_t kAheadLines = 256;
  /// As much may be on the way to a program: more than a pipe holds.
  static constexpr std::size_t kOnTheWayBytes = 1 << 20;

  /// `callback`: the job's. `place`: the file that keeps how many were given.
  ExecStream(const std::string& run_dir, const nlohmann::json& callback, std::string place);

  /// Waits for nobody else's: code EWOULDBLOCK while a former guard still has it.
  [[nodiscard]] Status open();
  /// Reads what is there, up to kAheadLines lines.
  [[nodiscard]] Status read();
  /// The line that is to be given next, with its newline; null: none is there.
  [[nodiscard]] const std::string* front() const { return lines_.empty() ? nullptr : &lines_.front().text; }
  /// front() was given, all of it.
  [[nodiscard]] Status given();
  /// The last `bytes` of what was given have not arrived: the lines that they belong to count as not given. None is
  /// given any more afterwards.
  [[nodiscard]] Status take_back(std::size_t bytes);
  /// Lines that are there and were not given. None is read any more afterwards.
  [[nodiscard]] std::int64_t left();
  [[nodiscard]] std::int64_t given_lines() const { return reports_given_ + events_given_; }

 private:
  struct Line {
    bool is_event = false;
    std::string text;
  };
  struct Given {
    bool is_event = false;
    std::size_t bytes = 0;
  };
  [[nodiscard]] Status take(LineSource& source, bool is_event);
  [[nodiscard]] Status save() const;

  NameFilter filter_;
  bool has_events_;
  LineSource reports_;
  LineSource events_;
  std::string place_;
  process::UniqueFd file_;
  std::int64_t reports_given_ = 0;
  std::int64_t events_given_ = 0;
  std::deque<Line> lines_;
  std::deque<Given> on_the_way_;  ///< The newest that were given.
  std::size_t on_the_way_bytes_ = 0;
  std::int64_t counted_ = 0;  ///< By left(), and not read.
};

}  // namespace sgd::callbacks
