// What a node offers: memory by the smaller limit, GPUs by the variable that names them, else by NVML.

#include "launcher/process/node_resources.hpp"

#include <cstdlib>

#include <catch2/catch.hpp>

#include "launcher/process/cpu_quota.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;

TEST_CASE("node resources: memory is the machine's, or less where the cgroup has a limit") {
  const test::TemporaryFolder folder;
  const auto memory = [&] { return process::memory_bytes(folder.path("proc"), folder.path("cgroup")); };
  CHECK(memory() == 0);
  folder.write("proc/meminfo", "MemTotal:       2048 kB\nMemFree: 1 kB\n");
  CHECK(memory() == 2048 * 1024);
  folder.write("proc/self/cgroup", "0::/job\n");
  folder.write("cgroup/job/memory.events", "oom_kill 0\n");
  folder.write("cgroup/job/memory.max", "max\n");
  CHECK(memory() == 2048 * 1024);
  folder.write("cgroup/job/memory.max", "1048576\n");
  CHECK(memory() == 1024 * 1024);
  folder.write("cgroup/job/memory.max", "4294967296\n");
  CHECK(memory() == 2048 * 1024);
}

TEST_CASE("node resources: a quota of the cores is the least of all groups around us") {
  const test::TemporaryFolder folder;
  const auto quota = [&] { return process::cpu_quota(folder.path("proc"), folder.path("cgroup")); };
  CHECK_FALSE(quota());
  folder.write("proc/self/cgroup", "0::/pod/box\n");
  folder.write("cgroup/pod/box/cpu.max", "max 100000\n");
  CHECK_FALSE(quota());
  folder.write("cgroup/pod/cpu.max", "50000 100000\n");
  CHECK(quota() == 0.5);
  folder.write("cgroup/pod/box/cpu.max", "20000 80000\n");
  CHECK(quota() == 0.25);
  folder.write("proc/self/cgroup", "9:cpu,cpuacct:/pod\n8:cpuset:/\n0::/pod\n");
  folder.write("cgroup/cpu/pod/cpu.cfs_quota_us", "250000\n");
  folder.write("cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  CHECK(quota() == 2.5);
  folder.write("cgroup/cpu/pod/cpu.cfs_quota_us", "-1\n");
  CHECK(quota() == 0.5);
  folder.write("proc/self/cgroup", "0::/of/the/host\n");
  folder.write("cgroup/cpu.max", "300000 100000\n");
  CHECK(quota() == 3.0);
}

TEST_CASE("node resources: of a quota whole CPUs count, and one at least") {
  CHECK(process::cpus_within(std::nullopt, 8) == 8);
  CHECK(process::cpus_within(16.0, 8) == 8);
  CHECK(process::cpus_within(2.5, 8) == 2);
  CHECK(process::cpus_within(0.5, 8) == 1);
}

TEST_CASE("node resources: GPUs are those that are named, else those that NVML counts") {
  using Names = std::vector<std::string>;
  CHECK(process::gpus("") == Names{});
  CHECK(process::gpus("-1") == Names{});
  CHECK(process::gpus("NoDevFiles") == Names{});
  CHECK(process::gpus("2, 0,2,GPU-8f,7") == Names{"2", "0", "GPU-8f", "7"});
  CHECK(process::gpus("1,-1,2") == Names{"1"});  // CUDA sees none behind a word that names none.
  CHECK(process::gpus("MIG-1a,MIG-2b") == Names{"MIG-1a", "MIG-2b"});
  CHECK(process::gpus(nullptr, "/no/such/library.so").empty());
  CHECK(process::gpus(nullptr, FAKE_NVML) == Names{"0", "1", "2"});
}

TEST_CASE("node resources: parts of a divided GPU stand in its place") {
  ::setenv("FAKE_NVML_GPUS", "2", 1);
  ::setenv("FAKE_NVML_MIG", "1", 1);
  CHECK(process::gpus(nullptr, FAKE_NVML) == std::vector<std::string>{"0", "MIG-00000007-0000", "MIG-00000010-0000"});
  ::unsetenv("FAKE_NVML_GPUS");
  ::unsetenv("FAKE_NVML_MIG");
}

TEST_CASE("node resources: a GPU that CUDA will not see is none, and numbers are then not told") {
  const std::string first = "GPU-00000000-0000-0000-0000-000000000000";
  const std::string last = "GPU-00000002-0000-0000-0000-000000000000";
  ::setenv("FAKE_NVML_REFUSED", "1", 1);
  CHECK(process::gpus(nullptr, FAKE_NVML) == std::vector<std::string>{first, last});
  ::unsetenv("FAKE_NVML_REFUSED");
  ::setenv("FAKE_NVML_MIG", "1", 1);
  ::setenv("FAKE_NVML_PARTS", "0", 1);
  CHECK(process::gpus(nullptr, FAKE_NVML) == std::vector<std::string>{first, last});
  ::unsetenv("FAKE_NVML_MIG");
  ::unsetenv("FAKE_NVML_PARTS");
  CHECK(process::gpus(nullptr, FAKE_NVML) == std::vector<std::string>{"0", "1", "2"});
}

TEST_CASE("node resources: numbers count along the bus where nobody else has named the GPUs") {
  CHECK(process::are_gpus_by_bus(nullptr, nullptr));
  CHECK_FALSE(process::are_gpus_by_bus("0,1", nullptr));
  CHECK_FALSE(process::are_gpus_by_bus(nullptr, "FASTEST_FIRST"));
}
