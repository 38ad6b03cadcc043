// Which GPU is a rank's, and what it is told where there are fewer than it should see.
#include "worker/torch/device_index.hpp"

#include <catch2/catch.hpp>

#include <cstdlib>

#include "worker/collective/collective.hpp"
#include "worker/torch/errors.hpp"

namespace sgd::worker {

TEST_CASE("device index: in the order of the node's ranks, the only one, or the first of one's own") {
  CHECK(device_index("0,1,2,3", 4, 2, 1) == 2);
  CHECK(device_index("GPU-8f5c", 1, 3, 1) == 0);
  CHECK(device_index(nullptr, 4, 3, 1) == 3);
  CHECK(device_index("4,5", 2, 1, 2) == 0);
  CHECK(device_index("MIG-1,MIG-2", 1, 0, 1) == 0);
}

TEST_CASE("device index: a GPU that has gone is missed, and shared with nobody") {
  using Catch::Contains;
  CHECK_THROWS_AS(device_index("0,99", 1, 1, 1), EnvironmentError);
  CHECK_THROWS_WITH(device_index("0,99", 1, 1, 1), Contains("1 of the 2 GPUs") && Contains("\"0,99\""));
  CHECK_THROWS_AS(device_index("0", 0, 0, 1), EnvironmentError);  // Another node may have one.
  CHECK_THROWS_AS(device_index(nullptr, 0, 0, 1), ConfigurationError);
  CHECK_THROWS_AS(device_index("", 0, 0, 1), ConfigurationError);
  CHECK_THROWS_AS(device_index("-1", 0, 0, 1), ConfigurationError);
}

TEST_CASE("device index: of GPUs that have gone a rank tells its own, and leaves another's to its rank") {
  using Catch::Contains;
  const char* uuids = "GPU-00000001-0000-0000-0000-000000000000,GPU-00000007-0000-0000-0000-000000000000";
  const auto index = [](const char* visible, int seen, int local_rank, int each = 1) {
    return device_index(visible, seen, local_rank, each, "", FAKE_NVML);
  };
  ::setenv("FAKE_NVML_LOST", "1", 1);
  CHECK_THROWS_AS(index("0,1,2", 1, 1), EnvironmentError);
  CHECK_THROWS_WITH(index("0,1,2", 1, 1), Contains("device 1, this worker's: GPU is lost"));
  CHECK_THROWS_AS(index("0,1,2", 1, 0), CollectiveError);
  CHECK_THROWS_WITH(index("0,1,2", 1, 2), Contains("device 1 has gone") && !Contains("GPU is lost"));
  CHECK_THROWS_AS(index("0,1", 1, 0, 2), EnvironmentError);  // Both are its own: nobody else tells of it.
  CHECK_THROWS_WITH(index("0,1", 1, 0, 2), Contains("device 1 has gone") && !Contains("GPU is lost"));
  CHECK_THROWS_WITH(index("1,0", 0, 0, 2), Contains("device 1, this worker's: GPU is lost"));
  CHECK_THROWS_WITH(index(uuids, 0, 0), Contains("device GPU-00000001-0000-0000-0000-000000000000, this worker's"));
  CHECK_THROWS_WITH(index(uuids, 0, 1), Contains("device GPU-00000007-0000-0000-0000-000000000000, this worker's"));
  CHECK(index("0,1,2", 3, 1) == 1);  // CUDA sees it: NVML is not asked.
  ::unsetenv("FAKE_NVML_LOST");
  CHECK_THROWS_WITH(index("0,9", 1, 1), Contains("nvidia-smi and the kernel's log tell which one has gone"));
  CHECK_THROWS_AS(index("GPU-0000", 0, 0), EnvironmentError);  // The beginning of a UUID is none that NVML knows.
  CHECK_THROWS_WITH(index("GPU-0000", 0, 0), !Contains("GPU is lost"));
}

TEST_CASE("device index: a driver that does not fit is final, and CUDA's words are told") {
  using Catch::Contains;
  const auto told = [](const char* visible, const char* reason) {
    return device_index(visible, 0, 0, 1, reason, "/no/such/library.so");
  };
  const char* old = "The NVIDIA driver on your system is too old (found version 11040).";
  CHECK_THROWS_AS(told("0", old), ConfigurationError);
  CHECK_THROWS_WITH(told("0", old), Contains("too old (found version 11040)") && Contains("nvidia-smi"));
  CHECK_THROWS_AS(told("0", "Found no NVIDIA driver on your system."), ConfigurationError);
  CHECK_THROWS_AS(told("0", "Error 802: system not yet initialized"), EnvironmentError);
  CHECK_THROWS_WITH(told("0", "Error 802: system not yet initialized"), Contains("Error 802"));
  CHECK_THROWS_WITH(told(nullptr, "No CUDA GPUs are available"), Contains("sees none (No CUDA GPUs are available)"));
}

TEST_CASE("device index: the word of a rank's device") {
  CHECK(device_word("4, 5,6", 1, 1) == "5");
  CHECK(device_word("4,5", 1, 2) == "4");
  CHECK(device_word("MIG-a,MIG-b", 1, 1) == "MIG-a");
  CHECK(device_word("", 0, 1).empty());
  CHECK(device_word(nullptr, 0, 1).empty());
}

}  // namespace sgd::worker
