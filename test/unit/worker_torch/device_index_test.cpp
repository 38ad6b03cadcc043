// Which GPU is a rank's, and what it is told where there are fewer than it should see.
#include "worker/torch/device_index.hpp"

#include <catch2/catch.hpp>

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

}  // namespace sgd::worker
