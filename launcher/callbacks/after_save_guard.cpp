#include "launcher/callbacks/after_save_guard.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

#include "common/base/time.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/callbacks/guard_process.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::callbacks {
namespace {

/// Of a job.json that cannot be read.
constexpr Duration kLimitUnknown = std::chrono::minutes(10);
constexpr const char* kLog = "callbacks/after-save.log";

std::string report_of(const char* state, const std::string& message) {
  nlohmann::json report = {{"state", state}};
  if (!message.empty()) report["message"] = message;
  return dump_text(report);
}

process::SpawnOptions options_of(const GuardFiles& files, const nlohmann::json& rule,
                                 const std::vector<std::string>& words) {
  process::SpawnOptions options;
  for (const nlohmann::json& word : member(rule, "command"))
    if (word.is_string()) options.argv.push_back(word.get<std::string>());
  options.env = {{"SGD_RUN_DIR", files.shown},
                 {"SGD_RUN", words[2]},
                 {"SGD_CHECKPOINT", files.shown + "/" + words[3]},
                 {"SGD_STEP", words[4]},
                 {"SGD_EPOCH", words[5]}};
  return options;
}

/// The launcher's end of the socket is closed; what it says is nothing to this program.
bool is_launcher_gone() {
  std::array<char, 64> bytes{};
  for (;;) {
    const ssize_t count = ::recv(process::kControlFd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count > 0 || (count < 0 && errno == EINTR)) continue;
    return count == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
  }
}

/// How the program has ended, which it does in `timeout`.
std::string wait_for(const process::Child& child, Duration timeout, const std::string& log) {
  TimePoint until = process::monotonic_now() + timeout;
  bool is_orphan = false;
  for (;;) {
    const auto status = process::wait_exit(child.pidfd.get());
    if (!status) return failed_report(status.error().message);
    if (status.value()) {
      const process::ExitStatus& ended = *status.value();
      if (ended.signal == 0 && ended.exit_code == 0) return report_of("done", "");
      return failed_report(fmt::format("{}; what it wrote is in {}", process::describe(ended), log));
    }
    const TimePoint now = process::monotonic_now();
    if (!is_orphan && is_launcher_gone()) {
      is_orphan = true;
      until = std::min(until, now + kOrphanLimit);
    }
    if (now >= until)
      return report_of("timed_out", fmt::format("is not done in {}, and is ended; what it wrote is in {}",
                                                format_duration(timeout), log));
    std::array<pollfd, 2> polled = {
        {{is_orphan ? -1 : process::kControlFd, POLLIN, 0}, {child.pidfd.get(), POLLIN, 0}}};
    (void)::poll(polled.data(), polled.size(), process::poll_timeout_ms(now, until));  // Ignoring: all is looked at.
  }
}

std::string run_program(const GuardFiles& files, const std::vector<std::string>& words) {
  const nlohmann::json job = json::read_file(files.run_dir + "/job.json");
  const nlohmann::json& rule = member(member(job, "checkpoint"), "after_save");
  const std::string log_path = files.run_dir + "/" + kLog;
  const process::UniqueFd log(::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!log) return failed_report(system_error(fmt::format("cannot write {}/{}", files.shown, kLog)).message);
  process::SpawnOptions options = options_of(files, rule, words);
  options.output_fd = log.get();
  const auto child = process::spawn(options);
  if (!child) return failed_report(child.error().message);
  const Duration timeout = parse_duration(read_or(rule, "timeout", "")).value_or(kLimitUnknown);
  std::string report = wait_for(child.value(), timeout, fmt::format("{}/{}", files.shown, kLog));
  (void)process::kill_descendants({}, kKillLimit);  // Ignoring: what does not die now is the kernel's.
  return report;
}

}  // namespace

std::string failed_report(const std::string& message) {
  return report_of("failed", message);
}

int after_save_guard(const std::vector<std::string>& words) {
  const auto files = enter_guard(words[0]);
  const std::string report =
      files ? run_program(*files, words) : failed_report("its guard cannot begin in " + words[0]);
  // Ignoring: a launcher that is gone hears nothing.
  (void)::send(process::kControlFd, report.data(), report.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  return 0;
}

}  // namespace sgd::callbacks
