// What a node offers: memory by the smaller limit, GPUs by the variable that names them, else by NVML.

#include "launcher/process/node_resources.hpp"

#include <catch2/catch.hpp>

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

TEST_CASE("node resources: GPUs are those that are named, else those that NVML counts") {
  CHECK(process::gpus("") == std::vector<int>{});
  CHECK(process::gpus("2,0,2,x,-1,GPU-8f,7") == std::vector<int>{2, 0, 7});
  CHECK(process::gpus(nullptr, "/no/such/library.so").empty());
  CHECK(process::gpus(nullptr, FAKE_NVML) == std::vector<int>{0, 1, 2});
}
