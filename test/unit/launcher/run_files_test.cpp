// A run's folder: on a disk that fails, with holes, and within its owner's room.

#include "launcher/storage/run_files.hpp"

#include <sys/stat.h>

#include <filesystem>

#include <catch2/catch.hpp>

#include "launcher/storage/beneath.hpp"
#include "launcher/storage/retention.hpp"
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

TEST_CASE("a hole of a log takes no room here, and counts as what it stands for") {
  const test::TemporaryFolder folder;
  const auto files = RunFiles::open(folder.path(), {});
  REQUIRE(files.ok());
  // Behind the begin of a block, whole blocks, and a part of one at the end.
  const std::string pieces[] = {"begin", std::string(1 << 20, '\0'), "middle", std::string(100, '\0'),
                                std::string((1 << 20) + 77, '\0')};
  std::string all;
  for (const std::string& piece : pieces) {
    const Held held = files.value()->append("logs/a.log", all.size(), piece);
    all += piece;
    CHECK(held.error.empty());
    CHECK(held.bytes == all.size());
    CHECK(held.added == piece.size());
  }
  const Result<std::string> read = files.value()->read("logs/a.log", 0, all.size() + 1);
  REQUIRE(read.ok());
  CHECK(read.value() == all);
  struct stat facts {};
  REQUIRE(::stat(folder.path("logs/a.log").c_str(), &facts) == 0);
  CHECK(facts.st_blocks * 512 < 64 << 10);
  CHECK(bytes_below(folder.path("logs")) >= static_cast<std::int64_t>(all.size()));
}

TEST_CASE("a log has a limit of its own, and a checkpoint has not") {
  const test::TemporaryFolder folder;
  const auto files = RunFiles::open(folder.path(), Quota{.log_bytes = 1000});
  REQUIRE(files.ok());
  const std::string bytes(1001, 'x');
  const Held held = files.value()->append("logs/a.log", 0, bytes);
  CHECK(held.is_too_much);
  CHECK(held.error == "logs/a.log is larger than 1000 bytes");
  CHECK(files.value()->append("checkpoints/step-000000000100-gen-0001/model.bin", 0, bytes).error.empty());
}

namespace {

/// Runs of one owner, who may have 100,000 bytes.
struct OwnersRuns {
  std::shared_ptr<RunFiles> open(const std::string& run, bool is_limited = true) const {
    std::filesystem::create_directories(folder.path(run));
    auto files = RunFiles::open(folder.path(run), {}, {room, folder.path(run), is_limited});
    REQUIRE(files.ok());
    return files.value();
  }

  test::TemporaryFolder folder;
  std::shared_ptr<OwnerRoom> room = std::make_shared<OwnerRoom>("eva", 100'000);
};

}  // namespace

TEST_CASE("an owner's runs share its room, and are refused as they grow") {
  const OwnersRuns at;
  const auto one = at.open("one");
  const auto two = at.open("two");
  CHECK(one->append("logs/a.log", 0, std::string(60'000, 'x')).error.empty());
  const Held held = two->append("logs/a.log", 0, std::string(50'000, '\0'));
  CHECK(held.is_too_much);
  CHECK_THAT(held.error,
             Catch::StartsWith("the runs of eva take ") &&
                 Catch::EndsWith("of 97.66KiB: sgd-launch runs list shows them, sgd-launch runs remove makes room"));
  CHECK(two->held("logs/a.log").bytes == 0);
  // An admin's run is counted, and not bound.
  CHECK(at.open("three", false)->append("logs/a.log", 0, std::string(200'000, 'x')).error.empty());
  CHECK(at.room->bytes() >= 260'000);
  at.room->remove(at.folder.path("one"));
  at.room->remove(at.folder.path("three"));
  CHECK(two->append("logs/a.log", 0, std::string(50'000, 'x')).error.empty());
}

TEST_CASE("before an owner is refused, it is looked at what has gone meanwhile") {
  const OwnersRuns at;
  const auto one = at.open("one");
  CHECK(one->append("checkpoints/step-000000000100-gen-0001/model.bin", 0, std::string(60'000, 'x')).error.empty());
  std::filesystem::remove_all(at.folder.path("one") + "/checkpoints");
  CHECK(at.room->bytes() == 60'000);
  CHECK(at.open("two")->append("logs/a.log", 0, std::string(60'000, 'x')).error.empty());
  CHECK(at.room->bytes() < 100'000);
}

TEST_CASE("without a limit an owner has half of what would be free, and a tenth of the disk in any case") {
  CHECK(share_of_disk({1000, 900}, 0) == 450);
  CHECK(share_of_disk({1000, 300}, 100) == 200);
  CHECK(share_of_disk({1000, 0}, 10) == 100);
  CHECK(disk_room("/").size > 0);
  CHECK(disk_room("/nowhere").free == DiskRoom{}.free);
}

}  // namespace sgd::storage
