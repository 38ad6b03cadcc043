// A run's folder on a disk that fails.

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>

#include <catch2/catch.hpp>

#include "launcher/storage/beneath.hpp"
#include "launcher/storage/run_files.hpp"
#include "test/unit/common/temporary_folder.hpp"

namespace sgd::storage {
namespace {

/// From here on the names in a folder cannot be read in this process.
bool lose_the_names() {
  sock_filter steps[] = {{BPF_LD | BPF_W | BPF_ABS, 0, 0, offsetof(seccomp_data, nr)},
                         {BPF_JMP | BPF_JEQ | BPF_K, 0, 1, SYS_getdents64},
                         {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ERRNO | EIO},
                         {BPF_RET | BPF_K, 0, 0, SECCOMP_RET_ALLOW}};
  sock_fprog program{static_cast<unsigned short>(std::size(steps)), steps};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// What `ask` says in a process of its own, whose disk fails.
std::string said_by_a_failing_disk(const test::TemporaryFolder& folder, const std::function<std::string()>& ask) {
  const std::string path = folder.path("said");
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    if (!lose_the_names()) ::_exit(1);
    std::ofstream(path) << ask();
    ::_exit(0);
  }
  int status = -1;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(status == 0);
  std::ifstream said(path);
  return {std::istreambuf_iterator<char>(said), {}};
}

}  // namespace

TEST_CASE("a folder whose names the disk does not give is not taken for an empty one") {
  const test::TemporaryFolder folder;
  folder.write("logs/rank-0000.log", "x");
  const auto beneath = Beneath::open(folder.path());
  REQUIRE(beneath.ok());
  const auto list = [&] {
    const auto entries = beneath.value().list("logs", 10);
    return entries ? "all of it" : entries.error().message;
  };
  CHECK(list() == "all of it");
  CHECK(said_by_a_failing_disk(folder, list) == "cannot list " + folder.path("logs") + ": Input/output error");
}

TEST_CASE("what a run has is not known while the disk does not give it, and what its owner has closed is left out") {
  const test::TemporaryFolder folder;
  folder.write("logs/rank-0000.log", "x");
  folder.write("errors", "a file in the place of a folder");
  const auto files = RunFiles::open(folder.path(), {});
  REQUIRE(files.ok());
  const auto unread = [&] { return files.value()->inventory().unread; };
  CHECK(unread().empty());
  CHECK(files.value()->inventory().logs.size() == 1);
  CHECK(said_by_a_failing_disk(folder, unread) == "cannot list " + folder.path("logs") + ": Input/output error");
}

}  // namespace sgd::storage
