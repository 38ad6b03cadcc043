#pragma once
// While this lives no file of this process can grow beyond some bytes: a disk that is full.

#include <sys/resource.h>

#include <csignal>

#include <catch2/catch.hpp>

namespace sgd::test {

class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes = 4096) {
    (void)std::signal(SIGXFSZ, SIG_IGN);
    REQUIRE(::getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit small{bytes, before_.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_FSIZE, &small) == 0);
  }
  ~FullDisk() { (void)::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

}  // namespace sgd::test
