// Trees of real processes, pidfds, names of signals, cores.

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <set>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/process/cgroup_leaf.hpp"
#include "launcher/process/cpu_set.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"

using namespace sgd;
using namespace sgd::process;
using keeper_test::TemporaryDir;
using namespace std::chrono_literals;

namespace {

Child shell(const std::string& script) {
  SpawnOptions options;
  options.argv = {"sh", "-c", script};
  auto child = spawn(options);
  REQUIRE(child.ok());
  return std::move(child).value();
}

std::set<pid_t> pids_of(const std::vector<ProcessEntry>& entries) {
  std::set<pid_t> pids;
  for (const ProcessEntry& entry : entries) pids.insert(entry.pid);
  return pids;
}

}  // namespace

TEST_CASE("both ways of finding descendants see the same tree", "[process]") {
  TemporaryDir dir;
  const Child child = shell("sleep 1000 & (sleep 1000 & sleep 1000) & echo up > " + dir.file("up") + "; wait");
  (void)keeper_test::wait_file(dir.file("up"), 20s);
  std::vector<ProcessEntry> scanned;
  for (int i = 0; i < 2000 && scanned.size() < 3; ++i) {  // The subshell may still be starting.
    scanned = descendants(child.pid, TreeSource::kScan);
    (void)::poll(nullptr, 0, 1);
  }
  CHECK(scanned.size() == 3);
  CHECK(scanned.front().parent == child.pid);
  CHECK(scanned.front().group == child.pid);
  if (::access(("/proc/self/task/" + std::to_string(::getpid()) + "/children").c_str(), R_OK) == 0) {
    CHECK(pids_of(descendants(child.pid, TreeSource::kChildren)) == pids_of(scanned));
  }
  REQUIRE(become_subreaper().ok());
  const auto killed = kill_descendants({}, 10s);
  REQUIRE(killed.ok());
  CHECK(killed.value() == 4);
  CHECK(descendants(::getpid()).empty());
}

TEST_CASE("killing spares whom it is told to, and reaches what left the group", "[process]") {
  TemporaryDir dir;
  REQUIRE(become_subreaper().ok());
  const Child spared = shell("exec sleep 1000");
  const Child doomed = shell("(setsid sh -c 'echo up > " + dir.file("up") + "; sleep 1000; true' &); exec sleep 1000");
  (void)keeper_test::wait_file(dir.file("up"), 20s);
  const auto killed = kill_descendants({spared.pid}, 10s);
  REQUIRE(killed.ok());
  CHECK(killed.value() >= 2);
  const auto left = descendants(::getpid());
  REQUIRE(left.size() == 1);
  CHECK(left[0].pid == spared.pid);
  CHECK_FALSE(left[0].zombie);
  CHECK(kill_descendants({}, 10s).value() == 1);
}

TEST_CASE("killing spares whole trees, and kills what other trees have left behind", "[process]") {
  TemporaryDir dir;
  REQUIRE(become_subreaper().ok());
  const Child spared = shell("sh -c 'echo up > " + dir.file("below") + "; sleep 1000; true'; true");
  const Child root =
      shell("(setsid sh -c 'echo up > " + dir.file("up") + "; exec env -i sleep 1000' &); exec sleep 1000");
  (void)keeper_test::wait_file(dir.file("below"), 20s);
  (void)keeper_test::wait_file(dir.file("up"), 20s);
  REQUIRE(pidfd_send_signal(root.pidfd.get(), SIGKILL).ok());
  CHECK(is_below(spared.pid, ::getpid()));
  CHECK_FALSE(is_below(::getpid(), spared.pid));
  REQUIRE(kill_descendants({spared.pid}, 10s, TreeKiller::Spares::kTrees).ok());
  const auto left = descendants(::getpid());
  CHECK(left.size() >= 2);  // The one that is spared, and what it has started.
  for (const ProcessEntry& entry : left) CHECK((entry.pid == spared.pid || is_below(entry.pid, spared.pid)));
  CHECK(kill_descendants({}, 10s).ok());
}

TEST_CASE("a control group has all that was started in it, and kills them", "[process]") {
  const mode_t umask_before = ::umask(0077);  // As an agent that systemd has started.
  const auto leaf = CgroupLeaf::make("sgd-unit-" + std::to_string(::getpid()));
  ::umask(umask_before);
  if (!leaf) {
    WARN("skipped: no control groups can be made here");
    return;
  }
  struct stat info {};
  REQUIRE(::stat(leaf->path().c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0755);  // Keepers of other accounts read their limits in it.
  TemporaryDir dir;
  SpawnOptions options;
  options.cgroup = leaf->path();
  options.argv = {"sh", "-c",
                  "(setsid sh -c 'echo up > " + dir.file("up") + "; exec env -i sleep 1000' &); exec sleep 1000"};
  const auto child = spawn(options);
  REQUIRE(child.ok());
  (void)keeper_test::wait_file(dir.file("up"), 20s);
  REQUIRE(CgroupLeaf::all("sgd-unit-").size() >= 1);
  leaf->remove();  // Not while somebody is in it.
  REQUIRE(CgroupLeaf::find("sgd-unit-" + std::to_string(::getpid())));
  CHECK(leaf->kill(10s).ok());
  pollfd entry{child.value().pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 20000) == 1);
  CHECK(wait_exit(child.value().pidfd.get()).value()->signal == SIGKILL);
  leaf->remove();
  CHECK_FALSE(CgroupLeaf::find("sgd-unit-" + std::to_string(::getpid())));
  CHECK(leaf->kill(10s).ok());
  CHECK(kill_descendants({}, 10s).ok());  // Whoever was orphaned has come to us, and is to be reaped.
}

TEST_CASE("an entry is read for any name, and not for a process that is gone: no other one is signalled",
          "[process][51]") {
  TemporaryDir dir;
  const auto own = read_process(::getpid());
  REQUIRE(own);
  CHECK(own->parent == ::getppid());
  CHECK(own->group == ::getpgrp());
  CHECK(own->start_ticks > 0);
  CHECK_FALSE(own->zombie);
  const Child child = shell("exit 0");
  pollfd entry{child.pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&entry, 1, 20000) == 1);
  REQUIRE(read_process(child.pid));
  CHECK(read_process(child.pid)->zombie);
  CHECK(peek_ended_child() == child.pid);
  CHECK(wait_exit(child.pidfd.get()).value()->exit_code == 0);
  CHECK_FALSE(read_process(child.pid));
  CHECK(wait_exit(child.pidfd.get()).error().code == ECHILD);
  CHECK(pidfd_send_signal(child.pidfd.get(), SIGTERM).error().code == ESRCH);
  CHECK(peek_ended_child() == 0);
}

TEST_CASE("exit statuses in words", "[process]") {
  CHECK(describe({3, 0, false}) == "exit code 3");
  CHECK(describe({-1, SIGKILL, false}) == "signal 9 (SIGKILL)");
  CHECK(describe({-1, SIGSEGV, true}) == "signal 11 (SIGSEGV), core dumped");
  CHECK(describe({-1, 0, false}) == "exit status unknown");
  CHECK(signal_words(SIGSEGV) == "segmentation fault");
  CHECK(signal_number("TERM") == SIGTERM);
  CHECK(signal_number("SIGTERM") == SIGTERM);
  CHECK_FALSE(signal_number("SIGNONE"));
  CHECK(signal_name(SIGRTMIN + 2) == "SIGRTMIN+2");
  std::set<std::string> names;
  for (int signal = 1; signal < 32; ++signal) {
    CHECK(signal_number(signal_name(signal)) == signal);
    CHECK(names.insert(signal_name(signal)).second);
  }
}

TEST_CASE("allowed cores are those of this process", "[process]") {
  const auto cores = allowed_cores();
  CHECK(std::is_sorted(cores.begin(), cores.end()));
  CHECK(static_cast<int>(cores.size()) <= ::sysconf(_SC_NPROCESSORS_CONF));
  cpu_set_t set;
  CPU_ZERO(&set);
  REQUIRE(::sched_getaffinity(0, sizeof set, &set) == 0);
  CHECK(static_cast<int>(cores.size()) == CPU_COUNT(&set));
  const CpuMask mask(std::vector<int>{0, 65});
  CHECK(mask.bytes() == 16);
  CHECK(CPU_ISSET_S(65, mask.bytes(), mask.data()));
  CHECK(CPU_COUNT_S(mask.bytes(), mask.data()) == 2);
  CHECK(CpuMask().empty());
}
