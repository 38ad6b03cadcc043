#include "launcher/process/daemon_log.hpp"

#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>
#include <cstdlib>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <cmath>
#include <ctime>
#include <utility>

#include <fmt/format.h>

#include "common/json/nlohmann.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/own_terminal.hpp"

namespace sgd::process {
namespace {

constexpr const char* kOtherKeys = "other";

/// syslog's numbers, as sd-daemon(3) has them.
int priority(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return 3;
    case LogLevel::kWarning:
      return 4;
    case LogLevel::kInfo:
      return 6;
    case LogLevel::kDebug:
      return 7;
  }
  return 6;
}

double system_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string utc(double unix_time) {
  const double whole = std::floor(unix_time);
  const auto seconds = static_cast<std::time_t>(whole);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:06}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     static_cast<int>((unix_time - whole) * 1e6));
}

/// Control characters would end the line, begin a new one with a level of its own, or steer a terminal.
std::string escaped(std::string_view message) {
  std::string line;
  for (const char c : message) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      line += "\\n";
    else if (byte < 0x20 || byte == 0x7f)
      line += fmt::format("\\x{:02x}", byte);
    else
      line += c;
  }
  return line;
}

}  // namespace

const char* name(LogLevel level) {
  switch (level) {
    case LogLevel::kError:
      return "error";
    case LogLevel::kWarning:
      return "warning";
    case LogLevel::kInfo:
      return "info";
    case LogLevel::kDebug:
      return "debug";
  }
  return "info";
}

std::optional<LogFormat> log_format(std::string_view word, std::string_view journal_stream, int fd) {
  if (word == "text") return LogFormat::kText;
  if (word == "json") return LogFormat::kJson;
  if (word != "auto") return std::nullopt;
  struct stat info {};
  const bool is_journal = ::fstat(fd, &info) == 0 && journal_stream == fmt::format("{}:{}", info.st_dev, info.st_ino);
  return is_journal ? LogFormat::kJournal : LogFormat::kText;
}

DaemonLog::DaemonLog(Settings settings) : settings_(std::move(settings)), terminal_(own_end_of_terminal(settings_.fd)) {
  if (!settings_.monotonic) settings_.monotonic = monotonic_now;
  if (!settings_.unix_time) settings_.unix_time = system_time;
}

DaemonLog::~DaemonLog() {
  for (const auto& [key, window] : windows_) end_window(key, window);
}

void DaemonLog::write(LogLevel level, std::string_view key, std::string_view message) {
  if (level > settings_.threshold) return;
  log_repeats();
  auto found = windows_.find(key);
  if (found == windows_.end()) {
    const std::string own = windows_.size() < kKeysMax ? std::string(key) : kOtherKeys;
    found = windows_.try_emplace(own, Window{settings_.monotonic(), level, 0, 0}).first;
    next_end_ = std::min(next_end_, found->second.begin + settings_.window);
  }
  Window& window = found->second;
  if (window.written == settings_.burst) {
    ++window.held_back;
    window.level = std::min(window.level, level);
    return;
  }
  ++window.written;
  put(level, key, message);
}

void DaemonLog::log_repeats() {
  const TimePoint now = settings_.monotonic();
  if (now < next_end_) return;
  next_end_ = TimePoint::max();
  for (auto item = windows_.begin(); item != windows_.end();) {
    const TimePoint end = item->second.begin + settings_.window;
    if (end <= now) {
      end_window(item->first, item->second);
      item = windows_.erase(item);
    } else {
      next_end_ = std::min(next_end_, end);
      ++item;
    }
  }
}

void DaemonLog::end_window(const std::string& key, const Window& window) {
  if (window.held_back == 0) return;
  put(window.level, key,
      fmt::format("{}: {} more within {}, not shown", key, window.held_back, format_duration(settings_.window)));
}

/// What is lost while nobody reads the log is counted, and the count said when somebody does.
void DaemonLog::put(LogLevel level, std::string_view key, std::string_view message) {
  if (lost_ > 0) {
    const std::string lost = lost_ == 1 ? "1 message is" : fmt::format("{} messages are", lost_);
    const bool is_said = take(line_of(LogLevel::kWarning, "log", lost + " lost: nobody has read this log"));
    lost_ = is_said ? 0 : lost_ + 1;
    if (!is_said) return;
  }
  if (!take(line_of(level, key, message))) lost_ = 1;
}

std::string DaemonLog::line_of(LogLevel level, std::string_view key, std::string_view message) const {
  std::string shown(message.substr(0, kMessageBytesMax));
  if (shown.size() < message.size()) shown += fmt::format(" [{} bytes more]", message.size() - shown.size());
  std::string line;
  switch (settings_.format) {
    case LogFormat::kText:
      line = fmt::format("{} {}: {}", utc(settings_.unix_time()), name(level), escaped(shown));
      break;
    case LogFormat::kJournal:
      line = fmt::format("<{}>{}", priority(level), escaped(shown));
      break;
    case LogFormat::kJson: {
      const double micros = std::round(settings_.unix_time() * 1e6) / 1e6;
      const nlohmann::ordered_json fields = {
          {"time", micros}, {"level", name(level)}, {"key", key}, {"message", shown}};
      line = fields.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
      break;
    }
  }
  return line + '\n';
}

/// False: nobody reads the log, or its disk is full, and the daemon goes on. The descriptor may be one that waits, as a
/// shell gives it: it is asked first, and given no more than a pipe with room takes at once.
bool DaemonLog::take(std::string line) {
  if (is_torn_) line.insert(0, 1, '\n');
  const int fd = terminal_ ? terminal_.get() : settings_.fd;
  for (std::string_view rest = line; !rest.empty();) {
    pollfd out{fd, POLLOUT, 0};
    const bool has_room = ::poll(&out, 1, 0) == 1 && (out.revents & POLLOUT) != 0;
    const ssize_t count = has_room ? ::write(fd, rest.data(), std::min<std::size_t>(rest.size(), PIPE_BUF)) : -1;
    if (has_room && count < 0 && errno == EINTR) continue;
    if (count < 0) {
      is_torn_ = is_torn_ || rest.size() < line.size();
      return false;
    }
    rest.remove_prefix(static_cast<std::size_t>(count));
  }
  is_torn_ = false;
  return true;
}

DaemonLog::Settings stderr_log(std::string_view format) {
  const char* journal = std::getenv("JOURNAL_STREAM");
  DaemonLog::Settings settings;
  settings.format = log_format(format, journal == nullptr ? "" : journal, settings.fd).value_or(settings.format);
  return settings;
}

}  // namespace sgd::process
