#pragma once
// One sgd-launch that this program has started. It holds the other end of a pipe, so it ends when this program does,
// however that ends; and it is ended, and reaped, with this object. Nothing of the program is changed for it: no signal
// handler, no thread, no descriptor that others would inherit.

#include <sys/types.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sgd::client {

using Milliseconds = std::chrono::milliseconds;

struct LaunchSettings {
  std::string program;
  std::vector<std::string> arguments;
  std::string input;   ///< Its standard input.
  std::string output;  ///< The file that gets all that it prints.
  std::string folder;  ///< Where it works; empty: where this program does.
};

/// A descriptor of ours, closed with the object.
class OwnedFd {
 public:
  OwnedFd() = default;
  explicit OwnedFd(int fd) : fd_(fd) {}
  OwnedFd(OwnedFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnedFd& operator=(OwnedFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~OwnedFd();
  [[nodiscard]] int get() const { return fd_; }

 private:
  int fd_ = -1;
};

class LauncherProcess {
 public:
  /// Throws LauncherLost where it cannot be started.
  explicit LauncherProcess(const LaunchSettings& settings);
  /// Kills it where it still runs.
  ~LauncherProcess();
  LauncherProcess(const LauncherProcess&) = delete;
  LauncherProcess& operator=(const LauncherProcess&) = delete;

  /// Whether it has ended, within `limit`.
  [[nodiscard]] bool has_ended(Milliseconds limit);
  /// After that: its exit code, or minus the signal that has ended it. Nothing: somebody else in this program has taken
  /// it.
  [[nodiscard]] std::optional<int> code() const { return code_; }
  void send(int signal) const;
  /// With a checkpoint, or at once; killed after `limit`.
  void end(bool at_once, Milliseconds limit);

 private:
  void reap();

  pid_t pid_ = -1;
  OwnedFd pidfd_;
  OwnedFd lifeline_;  // Closed with us.
  bool has_ended_ = false;
  std::optional<int> code_;
};

}  // namespace sgd::client
