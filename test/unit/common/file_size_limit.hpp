#pragma once
// Files of this process get no longer than so many bytes while it lives: a disk that is full, as those see it who
// write.

#include <sys/resource.h>

#include <csignal>

#include "common/base/assert.hpp"

namespace sgd::test {

class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) {
    (void)std::signal(SIGXFSZ, SIG_IGN);
    SGD_ASSERT(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit small{bytes, before_.rlim_max};
    SGD_ASSERT(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  }
  ~FileSizeLimit() { SGD_ASSERT(::setrlimit(RLIMIT_FSIZE, &before_) == 0); }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;

 private:
  rlimit before_{};
};

}  // namespace sgd::test
