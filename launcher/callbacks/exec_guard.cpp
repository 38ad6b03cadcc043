#include "launcher/callbacks/exec_guard.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "common/base/time.hpp"
#include "common/json/json_file.hpp"
#include "common/json/lenient.hpp"
#include "launcher/callbacks/after_save_guard.hpp"
#include "launcher/callbacks/exec_stream.hpp"
#include "launcher/callbacks/guard_process.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"

namespace sgd::callbacks {
namespace {

/// Files are looked at again without a nudge: one may be lost when the socket is full.
constexpr Duration kLookAgain = std::chrono::milliseconds(500);
/// For a guard of the run's life before.
constexpr Duration kLockLimit = std::chrono::seconds(10);
constexpr Duration kDefaultTimeout = std::chrono::seconds(30);
/// Told in full, though the launcher has no more room for it than for a line.
constexpr std::size_t kToldBytesMax = 4096;

class ExecGuard {
 public:
  /// `front`: of the names of its files, in the run's folder.
  ExecGuard(GuardFiles files, std::string front, nlohmann::json callback, std::string run_id)
      : files_(std::move(files)),
        front_(std::move(front)),
        callback_(std::move(callback)),
        run_id_(std::move(run_id)),
        stream_(files_.run_dir, callback_, files_.run_dir + "/" + front_ + ".given"),
        timeout_(parse_duration(read_or(callback_, "timeout", "")).value_or(kDefaultTimeout)) {
    for (const nlohmann::json& word : member(callback_, "command"))
      if (word.is_string()) command_.push_back(word.get<std::string>());
  }

  void run();

 private:
  [[nodiscard]] bool start();
  [[nodiscard]] bool lock();
  [[nodiscard]] std::string header() const;
  void serve();
  void read_launcher();
  [[nodiscard]] bool write_lines();
  void wait_a_while(bool is_full);
  [[nodiscard]] bool has_ended();
  void take_back();
  void drop(const std::string& why);
  void wait_for_launcher();
  void tell_left();
  void notify(const std::string& text) const;
  [[nodiscard]] std::string log() const { return files_.shown + "/" + front_ + ".log"; }

  GuardFiles files_;
  std::string front_;
  nlohmann::json callback_;
  std::string run_id_;
  ExecStream stream_;
  Duration timeout_;
  std::vector<std::string> command_;
  process::UniqueFd input_;   ///< The program's, while there may be more.
  process::UniqueFd unread_;  ///< Its other end, which tells what it has not read.
  process::UniqueFd pidfd_;
  std::string header_;               ///< Still to be given.
  std::size_t written_ = 0;          ///< Of the line at the front.
  TimePoint progress_at_{};          ///< It took something, or there was nothing to take.
  bool is_run_over_ = false;         ///< No more will be written.
  bool is_orphan_ = false;           ///< The launcher is gone.
  std::optional<TimePoint> end_by_;  ///< Its input is closed.
  bool is_dropped_ = false;
};

void ExecGuard::notify(const std::string& text) const {
  const std::string whole = fmt::format("callback exec ({}): {}", command_.empty() ? "" : command_.front(), text);
  // Ignoring: a launcher that is gone hears nothing.
  (void)::send(process::kControlFd, whole.data(), std::min(whole.size(), kToldBytesMax), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void ExecGuard::run() {
  if (start()) serve();
  if (is_dropped_) wait_for_launcher();
}

/// What the program's guard of the run's life before has not given yet is its own to give.
bool ExecGuard::lock() {
  const TimePoint until = process::monotonic_now() + kLockLimit;
  for (;;) {
    const Status opened = stream_.open();
    if (opened) return true;
    if (opened.error().code != EWOULDBLOCK || process::monotonic_now() >= until) {
      drop(opened.error().message);
      return false;
    }
    read_launcher();
    (void)::poll(nullptr, 0, 50);
  }
}

std::string ExecGuard::header() const {
  const Report job = json::read_ordered_file(files_.run_dir + "/job.json");
  const Report line = {{"type", "run"},
                       {"run", run_id_},
                       {"name", read_or(job, "name", "")},
                       {"run_dir", files_.shown},
                       {"job", job.is_object() ? job : Report()}};
  return dump_text(line) + "\n";
}

bool ExecGuard::start() {
  if (!lock()) return false;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    drop("cannot make a pipe");
    return false;
  }
  unread_.reset(ends[0]);
  input_.reset(ends[1]);
  const std::string log_path = files_.run_dir + "/" + front_ + ".log";
  const process::UniqueFd log_file(
      ::open(log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0644));
  if (!log_file || !process::set_nonblocking(input_.get())) {
    drop("cannot write " + log());
    return false;
  }
  process::SpawnOptions options;
  options.argv = command_;
  options.env["SGD_RUN_DIR"] = files_.shown;
  options.input_fd = unread_.get();
  options.output_fd = log_file.get();
  auto child = process::spawn(options);
  if (!child) {
    drop(child.error().message);
    return false;
  }
  pidfd_ = std::move(child.value().pidfd);
  header_ = header();
  progress_at_ = process::monotonic_now();
  return true;
}

void ExecGuard::serve() {
  for (;;) {
    read_launcher();
    if (has_ended()) return;
    const bool is_full = input_ && write_lines();
    if (is_dropped_) return;
    const TimePoint now = process::monotonic_now();
    const Duration patience = is_orphan_ ? std::min(timeout_, kOrphanLimit) : timeout_;
    if (is_full && now - progress_at_ >= patience)
      return drop(fmt::format("has read nothing for {}, and is ended", format_duration(patience)));
    if (!is_full && is_run_over_ && input_) {
      input_.reset();
      end_by_ = now + patience;
    }
    if (end_by_ && now >= *end_by_)
      return drop(fmt::format("is not done {} after the run, and is ended", format_duration(patience)));
    wait_a_while(is_full);
  }
}

/// Nudges, the run's end, or the launcher's.
void ExecGuard::read_launcher() {
  std::array<char, 64> bytes{};
  while (!is_orphan_) {
    const ssize_t count = ::recv(process::kControlFd, bytes.data(), bytes.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (count <= 0) {
      is_orphan_ = is_run_over_ = true;
      if (end_by_) end_by_ = std::min(*end_by_, process::monotonic_now() + kOrphanLimit);
      return;
    }
    is_run_over_ = is_run_over_ || std::find(bytes.begin(), bytes.begin() + count, 'e') != bytes.begin() + count;
  }
}

/// Whether the program has not room for what is there.
bool ExecGuard::write_lines() {
  for (;;) {
    if (header_.empty()) {
      if (const Status read = stream_.read(); !read) {
        drop(read.error().message);
        return false;
      }
    }
    const std::string* line = header_.empty() ? stream_.front() : &header_;
    if (line == nullptr) {
      progress_at_ = process::monotonic_now();
      return false;
    }
    const ssize_t count = ::write(input_.get(), line->data() + written_, line->size() - written_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count < 0) {
      drop(system_error("cannot be written to").message);
      return false;
    }
    progress_at_ = process::monotonic_now();
    written_ += static_cast<std::size_t>(count);
    if (written_ < line->size()) continue;
    written_ = 0;
    if (!header_.empty()) {
      header_.clear();
    } else if (const Status given = stream_.given(); !given) {
      drop(given.error().message);
      return false;
    }
  }
}

void ExecGuard::wait_a_while(bool is_full) {
  std::array<pollfd, 3> polled = {{{is_orphan_ ? -1 : process::kControlFd, POLLIN, 0},
                                   {pidfd_.get(), POLLIN, 0},
                                   {is_full ? input_.get() : -1, POLLOUT, 0}}};
  const TimePoint now = process::monotonic_now();
  const TimePoint until = end_by_ ? std::min(*end_by_, now + kLookAgain) : now + kLookAgain;
  (void)::poll(polled.data(), polled.size(), process::poll_timeout_ms(now, until));
}

/// Said where it is not as it should be.
bool ExecGuard::has_ended() {
  const auto status = process::wait_exit(pidfd_.get());
  if (status && !status.value()) return false;
  pidfd_.reset();
  take_back();
  const bool was_done = is_run_over_ && header_.empty() && stream_.left() == 0;
  const bool is_good = status && status.value()->signal == 0 && status.value()->exit_code == 0;
  const std::string how = status ? process::describe(*status.value()) : status.error().message;
  (void)process::kill_descendants({}, kKillLimit);  // Ignoring: what does not die now is the kernel's.
  if (was_done && is_good) return true;
  if (was_done) {
    notify(fmt::format("{} after it had read everything; what it wrote is in {}", how, log()));
    return true;
  }
  drop(fmt::format("{} before {}; what it wrote is in {}", how,
                   is_run_over_ ? "it had read everything" : "the run's end", log()));
  return true;
}

/// What is still in the pipe of a program that is gone was not given to it.
void ExecGuard::take_back() {
  int bytes = 0;
  if (!unread_ || ::ioctl(unread_.get(), FIONREAD, &bytes) != 0) bytes = 0;
  unread_.reset();
  const auto unread = static_cast<std::size_t>(bytes);
  if (unread <= written_) return;
  const Status taken = stream_.take_back(unread - written_);
  (void)taken;  // Ignoring: a disk that does not take this loses the next life these lines, and has been told of.
}

/// The run goes on without it.
void ExecGuard::drop(const std::string& why) {
  if (std::exchange(is_dropped_, true)) return;
  input_.reset();
  notify(why + (is_run_over_ ? "" : "; the run goes on without it"));
  (void)process::kill_descendants({}, kKillLimit);  // Ignoring: what does not die now is the kernel's.
  pidfd_.reset();
  take_back();
}

/// How much the program has missed is known at the run's end.
void ExecGuard::wait_for_launcher() {
  while (!is_run_over_) {
    pollfd polled = {process::kControlFd, POLLIN, 0};
    (void)::poll(&polled, 1, -1);
    read_launcher();
  }
  tell_left();
}

void ExecGuard::tell_left() {
  const std::int64_t left = stream_.left();
  if (left > 0) notify(fmt::format("{} of {} lines were not given to it", left, left + stream_.given_lines()));
}

}  // namespace

int exec_guard_main(const std::vector<std::string>& words) {
  const bool is_after_save = words.size() == 6 && words[1] == kAfterSave;
  if ((words.size() != 3 && !is_after_save) || !is_started_by_launcher()) {
    (void)std::fputs("sgd-launch callback: this verb is started by sgd-launch itself\n", stderr);
    return 2;
  }
  if (is_after_save) return after_save_guard(words);
  const auto files = enter_guard(words[0]);
  if (!files) {
    const std::string text = "callback exec: cannot begin in " + words[0];
    (void)::send(process::kControlFd, text.data(), text.size(), MSG_NOSIGNAL);
    return 0;
  }
  const nlohmann::json job = json::read_file(files->run_dir + "/job.json");
  const nlohmann::json& callbacks = member(job, "callbacks");
  const std::size_t index = std::strtoul(words[1].c_str(), nullptr, 10);
  const bool is_known = callbacks.is_array() && index < callbacks.size();
  ExecGuard(*files, "callbacks/exec-" + words[1], is_known ? callbacks[index] : nlohmann::json::object(), words[2])
      .run();
  return 0;
}

}  // namespace sgd::callbacks
