#pragma once
// A file descriptor with one owner, closed when the owner goes. Does not know what the
// descriptor is; -1 means "none".

#include <memory>
#include <utility>

namespace sgd::process {

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(other.release());
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  /// Gives the descriptor away without closing it.
  [[nodiscard]] int release() { return std::exchange(fd_, -1); }
  /// Closes the descriptor and keeps `fd` instead.
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// One that several hold, for as long as one of them does.
using SharedFd = std::shared_ptr<const UniqueFd>;

/// Switches O_NONBLOCK on, which the whole open file description shares.
[[nodiscard]] bool set_nonblocking(int fd);

}  // namespace sgd::process
