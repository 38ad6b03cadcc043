#pragma once
// Writes every byte of a span to a descriptor, whatever the kernel takes at a time.

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <span>
#include <string>

#include "common/base/result.hpp"

namespace sgd::worker {

/// `subject` names the file in the error.
inline Status write_all(int fd, std::span<const std::byte> bytes, const std::string& subject) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return system_error(subject);
    bytes = bytes.subspan(static_cast<std::size_t>(written));
  }
  return {};
}

}  // namespace sgd::worker
