#pragma once
// A disk that fails: one system call ends with EIO, in a process of its own.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include <catch2/catch.hpp>

#include "temporary_folder.hpp"

namespace sgd::test {

/// From here on, in this process.
inline bool fail_call(long number) {
  sock_filter steps[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
                         {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, static_cast<__u32>(number)},
                         {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EIO},
                         {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  sock_fprog program{static_cast<unsigned short>(std::size(steps)), steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// What `ask` says while the call fails.
inline std::string said_when_failing(long number, const std::function<std::string()>& ask) {
  const TemporaryFolder folder;
  const std::string path = folder.path("said");
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!fail_call(number)) ::_exit(1);
    std::ofstream(path) << ask();
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  std::ifstream said(path);
  return {std::istreambuf_iterator<char>(said), {}};
}

}  // namespace sgd::test
