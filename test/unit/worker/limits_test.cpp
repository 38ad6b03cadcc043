// Written limits of what ranks of one host share.

#include "worker/collective/limits.hpp"

#include <catch2/catch.hpp>

#include "test/unit/worker/rank_processes.hpp"
#include "worker/collective/shm_region.hpp"

namespace sgd::worker {
namespace {

TEST_CASE("limits: more ranks than can share a host's memory is an error with the way out; limit kLocalRanksMax") {
  const testing::Memory region;
  CHECK_NOTHROW(ShmRegion::prepare(region.fd(), 1, kLocalRanksMax, 0));
  CHECK_THROWS_WITH(ShmRegion::prepare(region.fd(), 2, kLocalRanksMax + 1, 0),
                    Catch::StartsWith("1025 ranks of one run on one host, and at most 1024 can share its memory"));
}

TEST_CASE("limits: a message of more than a gigabyte is refused before memory is taken; limit kGatherBytesMax") {
  CHECK_NOTHROW(check_gather_bytes(kGatherBytesMax));
  CHECK_THROWS_WITH(check_gather_bytes(kGatherBytesMax + 1),
                    "all_gather: a message of 1073741825 bytes is over the limit of 1073741824");
}

}  // namespace
}  // namespace sgd::worker
