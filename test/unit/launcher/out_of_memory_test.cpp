// Whether a SIGKILL came from the kernel for want of memory. Row 3 of the list of failure modes.

#include "launcher/process/out_of_memory.hpp"

#include <unistd.h>

#include <filesystem>

#include <catch2/catch.hpp>

#include "launcher/process/memory_cgroup.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
using process::OutOfMemoryKills;

TEST_CASE("out of memory: version 2 of cgroups") {
  const test::TemporaryFolder folder;
  folder.write("proc/self/cgroup", "0::/job\n");
  folder.write("cgroup/job/memory.events", "low 0\nhigh 3\nmax 9\noom 2\noom_kill 5\n");
  folder.write("cgroup/job/memory.max", "536870912\n");
  OutOfMemoryKills kills(folder.path("proc"), folder.path("cgroup"));
  CHECK_FALSE(kills.take_one());
  folder.write("cgroup/job/memory.events", "oom 3\noom_kill 7\n");
  CHECK(kills.take_one());
  CHECK(kills.take_one());
  CHECK_FALSE(kills.take_one());
  CHECK_THAT(kills.words(), Catch::StartsWith("out of memory: the kernel killed it at the limit of 512 MiB"));
}

TEST_CASE("out of memory: a group that counts no memory is below one that does") {
  const test::TemporaryFolder folder;
  folder.write("proc/self/cgroup", "0::/agent.service/sgd-1-2-3\n");
  folder.write("cgroup/agent.service/sgd-1-2-3/cgroup.procs", "1\n");
  folder.write("cgroup/agent.service/memory.events", "oom 2\noom_kill 5\n");
  folder.write("cgroup/agent.service/memory.max", "536870912\n");
  OutOfMemoryKills kills(folder.path("proc"), folder.path("cgroup"));
  folder.write("cgroup/agent.service/memory.events", "oom 3\noom_kill 6\n");
  CHECK(kills.take_one());
  CHECK_THAT(kills.words(), Catch::StartsWith("out of memory: the kernel killed it at the limit of 512 MiB"));
}

TEST_CASE("out of memory: a group that we may not look into is as none") {
  const test::TemporaryFolder folder;
  folder.write("proc/self/cgroup", "0::/agent.service/sgd-1-2-3\n");
  folder.write("cgroup/agent.service/sgd-1-2-3/memory.events", "oom_kill 1\n");
  folder.write("cgroup/agent.service/memory.events", "oom_kill 5\n");
  folder.write("cgroup/agent.service/memory.max", "536870912\n");
  std::filesystem::permissions(folder.path(""), std::filesystem::perms(0755));
  std::filesystem::permissions(folder.path("cgroup/agent.service/sgd-1-2-3"), std::filesystem::perms::none);
  constexpr uid_t kNobody = 65534;
  const bool is_root = ::geteuid() == 0;
  if (is_root) REQUIRE(::seteuid(kNobody) == 0);
  const auto group = process::find_memory_cgroup(folder.path("proc"), folder.path("cgroup"));
  if (is_root) REQUIRE(::seteuid(0) == 0);
  std::filesystem::permissions(folder.path("cgroup/agent.service/sgd-1-2-3"), std::filesystem::perms::owner_all);
  REQUIRE(group);
  CHECK(group->counter == folder.path("cgroup/agent.service/memory.events"));
}

TEST_CASE("out of memory: version 1 of cgroups, below the path that a container sees") {
  const test::TemporaryFolder folder;
  folder.write("proc/self/cgroup", "5:cpu,cpuacct:/\n4:memory:/of/the/host\n0::/\n");
  folder.write("cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 0\n");
  folder.write("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  OutOfMemoryKills kills(folder.path("proc"), folder.path("cgroup"));
  folder.write("cgroup/memory/memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n");
  CHECK(kills.take_one());
  CHECK(kills.words() ==
        "out of memory: the kernel killed it (" + folder.path("cgroup/memory/memory.oom_control") + ")");
}

TEST_CASE("out of memory: without cgroups the machine's counter") {
  const test::TemporaryFolder folder;
  folder.write("proc/vmstat", "pgfault 12\noom_kill 3\n");
  OutOfMemoryKills kills(folder.path("proc"), folder.path("none"));
  CHECK_FALSE(kills.take_one());
  folder.write("proc/vmstat", "pgfault 13\noom_kill 4\n");
  CHECK(kills.take_one());
  CHECK_THAT(kills.words(), Catch::StartsWith("probably out of memory: ") && Catch::Contains("proc/vmstat"));
}

TEST_CASE("out of memory: kills before there was a process to be meant are nobody's") {
  const test::TemporaryFolder folder;
  folder.write("proc/vmstat", "oom_kill 3\n");
  OutOfMemoryKills kills(folder.path("proc"), folder.path("none"));
  folder.write("proc/vmstat", "oom_kill 5\n");
  kills.forget();
  CHECK_FALSE(kills.take_one());
  folder.write("proc/vmstat", "oom_kill 6\n");
  CHECK(kills.take_one());
  CHECK_FALSE(kills.take_one());
}
