#pragma once
// The log of a daemon: one line per message on stderr, with time and level; with journald's level prefix and
// without time where stderr is the journal; or a JSON object per line. What comes from a peer is escaped, so
// that a message is always one line, and cut at kMessageBytesMax.
//
// A limit per key keeps a hostile peer from filling a disk: after `burst` messages of one key within `window`
// the rest of that window is counted only, and the count is said when the window is over. Keys are fixed
// words of this program. A log that nobody reads holds no daemon up: its messages are lost, and counted.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "common/base/time.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {

enum class LogLevel {
  kError,    ///< Someone must act.
  kWarning,  ///< Ignored, and said so.
  kInfo,     ///< Transitions.
  kDebug,    ///< Frames.
};
[[nodiscard]] const char* name(LogLevel level);

enum class LogFormat {
  kText,     ///< "2026-11-21T10:15:00.123456Z warning: ..."
  kJournal,  ///< "<4>..."
  kJson,     ///< {"time":1763720100.123456,"level":"warning","key":"...","message":"..."}
};
/// From --log-format: "text", "json", or "auto", which is the journal's where `fd` is the stream that
/// JOURNAL_STREAM
/// (`journal_stream`, empty when it is not set) names, else text. Nothing for another word.
[[nodiscard]] std::optional<LogFormat> log_format(std::string_view word, std::string_view journal_stream, int fd);

class DaemonLog {
 public:
  static constexpr std::size_t kMessageBytesMax = 4 << 10;
  static constexpr std::size_t kKeysMax = 256;  ///< More share one.

  struct Settings {
    int fd = 2;
    LogFormat format = LogFormat::kText;
    LogLevel threshold = LogLevel::kInfo;
    int burst = 20;
    Duration window = std::chrono::seconds(30);
    std::function<TimePoint()> monotonic;  ///< Empty: the process's clock.
    std::function<double()> unix_time;     ///< Seconds since 1970; empty: the system's clock.
  };

  explicit DaemonLog(Settings settings);
  ~DaemonLog();

  void write(LogLevel level, std::string_view key, std::string_view message);
  /// Says the counts of windows that are over; write() does, too. For a timer, so that a count is said when
  /// nothing follows it.
  void log_repeats();

 private:
  struct Window {
    TimePoint begin;
    LogLevel level = LogLevel::kInfo;
    int written = 0;
    std::int64_t held_back = 0;
  };
  void end_window(const std::string& key, const Window& window);
  void put(LogLevel level, std::string_view key, std::string_view message);
  [[nodiscard]] std::string line_of(LogLevel level, std::string_view key, std::string_view message) const;
  [[nodiscard]] bool take(std::string line);

  Settings settings_;
  UniqueFd terminal_;  ///< Of our own, where the log is one.
  std::map<std::string, Window, std::less<>> windows_;
  TimePoint next_end_ = TimePoint::max();
  std::int64_t lost_ = 0;
  bool is_torn_ = false;  ///< The end of the last line was not taken.
};

/// On stderr, in the format that --log-format names.
[[nodiscard]] DaemonLog::Settings stderr_log(std::string_view format);

}  // namespace sgd::process
