// A run's folder on a disk that fails.

#include "launcher/storage/run_files.hpp"

#include <catch2/catch.hpp>

#include "launcher/storage/beneath.hpp"
#include "test/unit/common/failing_call.hpp"

namespace sgd::storage {

TEST_CASE("a folder whose names the disk does not give is not taken for an empty one") {
  const test::TemporaryFolder folder;
  folder.write("logs/rank-0000.log", "x");
  const auto beneath = Beneath::open(folder.path());
  REQUIRE(beneath.ok());
  const auto list = [&]() -> std::string {
    const auto entries = beneath.value().list("logs", 10);
    return entries ? "all of it" : entries.error().message;
  };
  CHECK(list() == "all of it");
  CHECK(test::said_when_failing(SYS_getdents64, list) == "cannot list " + folder.path("logs") + ": Input/output error");
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
  CHECK(test::said_when_failing(SYS_getdents64, unread) ==
        "cannot list " + folder.path("logs") + ": Input/output error");
}

}  // namespace sgd::storage
