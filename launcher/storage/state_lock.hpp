#pragma once
// One daemon of a kind for one state folder: a lock that a killed process has let go of, with the owner's pid for
// people.

#include <string>

#include "common/base/result.hpp"

namespace sgd::storage {

class StateLock {
 public:
  /// Creates the folder, for its owner only, if it is missing. The error names the process that holds the lock.
  [[nodiscard]] static Result<StateLock> take(const std::string& folder, const std::string& daemon = "coordinator");
  StateLock(StateLock&& other) noexcept : fd_(other.fd_) { other.fd_ = -1; }
  StateLock& operator=(StateLock&&) = delete;
  ~StateLock();

 private:
  explicit StateLock(int fd) : fd_(fd) {}
  int fd_;
};

}  // namespace sgd::storage
