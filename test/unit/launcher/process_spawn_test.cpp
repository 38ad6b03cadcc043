// Plain spawns: what the child gets, and the words when exec fails.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/cpu_set.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"
#include "launcher/process/unix_socket.hpp"

using namespace sgd;
using namespace sgd::process;
using keeper_test::read_file;
using keeper_test::TemporaryDir;
using namespace std::chrono_literals;

namespace {

ExitStatus wait_for(const Child& child) {
  pollfd entry{child.pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 20000) == 1);
  auto status = wait_exit(child.pidfd.get());
  REQUIRE(status.ok());
  REQUIRE(status.value().has_value());
  return *status.value();
}

/// Runs a shell with its output in a file, and returns the output.
std::string run(SpawnOptions options, const std::string& script, const TemporaryDir& dir) {
  UniqueFd out(::open(dir.file("out").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  options.argv = {"sh", "-c", script};
  options.output_fd = out.get();
  auto child = spawn(options);
  REQUIRE(child.ok());
  CHECK(wait_for(child.value()).exit_code == 0);
  return read_file(dir.file("out"));
}

}  // namespace

TEST_CASE("a spawned program gets its descriptors, cores, folder and environment only", "[process]") {
  TemporaryDir dir;
  const UniqueFd listener = std::move(listen_unix(dir.file("socket"))).value();
  const int inheritable = ::dup(listener.get());  // No close-on-exec: some library's careless descriptor.
  UniqueFd keeps(inheritable);
  auto ends = std::move(socket_pair(SOCK_SEQPACKET)).value();
  SpawnOptions options;
  options.control_fd = ends.second.get();
  options.workdir = "/usr";
  options.env = {{"SGD_TEST", "a=b c"}};
  options.cpus = {allowed_cores().back()};
  const std::string text = run(options,
                               "ls /proc/$$/fd; readlink /proc/$$/fd/0; pwd; echo \"$SGD_TEST\";"
                               "grep Cpus_allowed_list /proc/$$/status; test -n \"$HOME$PATH\" && echo kept",
                               dir);
  CHECK(text == "0\n1\n2\n3\n/dev/null\n/usr\na=b c\nCpus_allowed_list:\t" + std::to_string(allowed_cores().back()) +
                    "\nkept\n");
}

TEST_CASE("without a control socket descriptor 3 is closed", "[process]") {
  TemporaryDir dir;
  CHECK(run({}, "ls /proc/$$/fd", dir) == "0\n1\n2\n");
}

TEST_CASE("signals are back to default in the child, and untouched in the parent", "[process]") {
  TemporaryDir dir;
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGUSR1);
  REQUIRE(::pthread_sigmask(SIG_BLOCK, &blocked, &before) == 0);
  const auto old = ::signal(SIGHUP, SIG_IGN);
  const std::string text = run({}, "exec grep -E 'Sig(Blk|Ign)' /proc/self/status", dir);
  ::signal(SIGHUP, old);
  sigset_t after;
  REQUIRE(::pthread_sigmask(SIG_SETMASK, &before, &after) == 0);
  CHECK(text == "SigBlk:\t0000000000000000\nSigIgn:\t0000000000000000\n");
  CHECK(sigismember(&after, SIGUSR1) == 1);
  CHECK(sigismember(&after, SIGUSR2) == 0);
}

TEST_CASE("groups: own, own session, ours", "[process]") {
  TemporaryDir dir;
  SpawnOptions options;
  const std::string script = "cut -d' ' -f5,6 /proc/$$/stat; echo $$";
  auto fields = [&] {
    std::istringstream text(run(options, script, dir));
    int group = 0;
    int session = 0;
    int pid = 0;
    text >> group >> session >> pid;
    return std::array<int, 3>{group, session, pid};
  };
  auto [group, session, pid] = fields();
  CHECK(group == pid);
  CHECK(session == ::getsid(0));
  options.group = ChildGroup::kOwnSession;
  auto [group2, session2, pid2] = fields();
  CHECK(group2 == pid2);
  CHECK(session2 == pid2);
  options.group = ChildGroup::kSame;
  CHECK(fields()[0] == ::getpgrp());
}

TEST_CASE("exec failures come back as errno and words, and leave no zombie", "[process]") {
  TemporaryDir dir;
  const auto write = [&](const char* name, const std::string& text, mode_t mode) {
    std::ofstream(dir.file(name), std::ios::binary) << text;
    ::chmod(dir.file(name).c_str(), mode);
    return dir.file(name);
  };
  std::string foreign(4096, '\0');
  std::ifstream("/proc/self/exe", std::ios::binary).read(foreign.data(), 4096);
  foreign[18] = '\xf3';  // e_machine: RISC-V.
  foreign[19] = '\0';
  const struct {
    std::string program;
    int code;
    const char* words;
  } cases[] = {
      {dir.file("nothing"), ENOENT, "is missing"},
      {"sgd-no-such-program", ENOENT, "program sgd-no-such-program is missing: not found in PATH"},
      {write("plain", "text\n", 0600), EACCES, "is not executable"},
      {"/usr", EACCES, "is a folder"},
      {write("foreign", foreign, 0700), ENOEXEC, "another architecture"},
      {write("noshebang", "echo hi\n", 0700), ENOEXEC, "no #! line"},
      {write("empty", "", 0700), ENOEXEC, "is empty"},
      {write("script", "#!/no/such/interpreter -x\n", 0700), ENOENT, "interpreter /no/such/interpreter"},
  };
  for (const auto& entry : cases) {
    SpawnOptions options;
    options.argv = {entry.program};
    const auto child = spawn(options);
    REQUIRE_FALSE(child.ok());
    INFO(child.error().message);
    CHECK(child.error().code == entry.code);
    CHECK_THAT(child.error().message, Catch::Contains(entry.words));
  }
  SpawnOptions options;
  options.argv = {"true"};
  options.workdir = dir.file("nowhere");
  CHECK_THAT(spawn(options).error().message, Catch::StartsWith("working directory " + dir.file("nowhere")));
  options.workdir.clear();
  options.cpus = {100000};
  CHECK_THAT(spawn(options).error().message, Catch::Contains("cores"));
  CHECK(peek_ended_child() == 0);
}

TEST_CASE("PATH decides between programs, and a refused one is named", "[process]") {
  TemporaryDir dir;
  std::ofstream(dir.file("tool")) << "#!/bin/sh\n";
  CHECK_THAT(find_program("tool", "/nowhere:" + dir.file("")).error().message, Catch::Contains("not executable"));
  ::chmod(dir.file("tool").c_str(), 0700);
  CHECK(find_program("tool", "/nowhere:" + dir.file("x/..") + ":/usr/bin").ok() == false);
  CHECK(find_program("tool", "/nowhere:" + dir.file(".") + ":/usr/bin").value() == dir.file(".") + "/tool");
  CHECK(find_program("./tool", "/usr/bin").value() == "./tool");
  CHECK_FALSE(find_program("", "/usr/bin").ok());
}

TEST_CASE("a child dies with us unless told otherwise, and survives being forgotten", "[process]") {
  TemporaryDir dir;
  for (const bool dies : {true, false}) {
    int pids[2];
    REQUIRE(::pipe2(pids, O_CLOEXEC) == 0);
    const pid_t parent = ::fork();
    if (parent == 0) {
      SpawnOptions options;
      options.argv = {"sleep", "1000"};
      options.dies_with_us = dies;
      auto child = spawn(options);
      const pid_t pid = child.ok() ? child.value().pid : -1;
      (void)!::write(pids[1], &pid, sizeof pid);
      ::raise(SIGKILL);
    }
    pid_t child = -1;
    REQUIRE(::read(pids[0], &child, sizeof child) == sizeof child);
    ::close(pids[0]);
    ::close(pids[1]);
    REQUIRE(child > 0);
    CHECK(keeper_test::wait_gone(child, dies ? 5s : 100ms) == dies);
    ::kill(child, SIGKILL);
    CHECK(keeper_test::wait_gone(child, 5s));
    while (const pid_t ended = peek_ended_child()) reap_child(ended);
  }
}

TEST_CASE("a program that cannot be watched for want of descriptors is not left running", "[process]") {
  const std::size_t children = descendants(::getpid()).size();
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &before) == 0);
  const int lowest_free = UniqueFd(::dup(STDERR_FILENO)).get();
  SpawnOptions options;
  options.argv = {"true"};
  bool has_started = false;
  for (rlim_t room = 0; room < 32 && !has_started; ++room) {
    const rlimit tight{static_cast<rlim_t>(lowest_free) + room, before.rlim_max};
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &tight) == 0);
    auto child = spawn(options);
    REQUIRE(::setrlimit(RLIMIT_NOFILE, &before) == 0);
    has_started = child.ok();
    if (has_started)
      CHECK(wait_for(child.value()).exit_code == 0);
    else
      CHECK_THAT(child.error().message, Catch::Contains("Too many open files"));
    CHECK(descendants(::getpid()).size() == children);
    CHECK(UniqueFd(::dup(STDERR_FILENO)).get() == lowest_free);  // Nor is a descriptor.
  }
  CHECK(has_started);
}
