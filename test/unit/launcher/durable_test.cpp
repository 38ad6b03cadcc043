// What is promised has reached the disk: where it cannot, the promise is not made.

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <span>

#include <catch2/catch.hpp>

#include "common/checkpoint/crc32c.hpp"
#include "launcher/shipping/run_tree.hpp"
#include "launcher/storage/retention.hpp"
#include "launcher/storage/run_origin.hpp"
#include "launcher/storage/run_succession.hpp"
#include "test/unit/common/failing_call.hpp"

using namespace sgd;
namespace fs = std::filesystem;

namespace {

constexpr const char* kSaid = "all of it is there";

/// What is said of `done` where nothing can be brought to the disk.
std::string without_a_sync(const std::function<Status()>& done) {
  return test::said_when_failing(SYS_fsync, [&done]() -> std::string {
    const Status status = done();
    return status ? kSaid : status.error().message;
  });
}

std::string cannot_sync(const std::string& path) {
  return "cannot sync " + path + ": Input/output error";
}

/// With nothing in it but its state.
std::string put_checkpoint(const test::TemporaryFolder& folder, const std::string& path) {
  const std::string state = R"({"position": {"epoch": 1, "phase": "train", "consumed": 5}, "made_by": {"cpus": 2}})";
  const auto crc = checkpoint::crc32c(0, std::as_bytes(std::span(state.data(), state.size())));
  folder.write(path + "/state.json", state);
  folder.write(path + "/manifest.json", checkpoint::encode({12, 2, 1, 1, {{"state.json", state.size(), crc}}}));
  return folder.path(path);
}

}  // namespace

TEST_CASE("durable: a pin") {
  const test::TemporaryFolder folder;
  CHECK(without_a_sync([&] { return storage::set_pinned(folder.path(), true); }) == cannot_sync(folder.path()));
  CHECK(storage::set_pinned(folder.path(), true).ok());
}

TEST_CASE("durable: the files that a run has brought, and those of the run that it goes on from") {
  const test::TemporaryFolder folder;
  const auto opened = shipping::FileStore::open(folder.path("store"), {});
  REQUIRE(opened.ok());
  const auto add = [&](const std::string& bytes) {
    const std::string hash = shipping::sha256_of(bytes);
    REQUIRE(opened.value()->append(hash, 0, bytes).error.empty());
    REQUIRE(opened.value()->prove(hash).ok());
    return hash;
  };
  const std::string set = add(encode(shipping::FileSet{{{"/job/train.py", 1, add("x")}}}));
  for (const char* run : {"lost", "kept", "copy", "again"}) fs::create_directory(folder.path(run));
  const auto keep = [&](const char* run) { return shipping::keep_with_run(*opened.value(), set, folder.path(run)); };
  CHECK(without_a_sync([&] { return keep("lost"); }) == cannot_sync(folder.path("lost/files")));
  CHECK(keep("kept").ok());
  const auto copy = [&](const char* run) { return shipping::keep_with_run_as(folder.path("kept"), folder.path(run)); };
  CHECK(without_a_sync([&] { return copy("copy"); }) == cannot_sync(folder.path("copy/files")));
  CHECK(copy("again").ok());
}

TEST_CASE("durable: the history of a run that goes on as another one") {
  const test::TemporaryFolder folder;
  folder.write("run/events.jsonl", "{}\n");
  const auto copy = [&](const char* name) { return storage::copy_run(folder.path("run"), folder.path(name)); };
  CHECK(without_a_sync([&] { return copy("lost"); }) == cannot_sync(folder.path("lost/events.jsonl")));
  CHECK(copy("kept").ok());
}

TEST_CASE("durable: the checkpoint that a run begins from, and the job of one that goes on") {
  const test::TemporaryFolder folder;
  const std::string from = put_checkpoint(folder, "other/checkpoints/" + checkpoint::directory_name(12, 1));
  const auto origin = storage::read_origin(from);
  REQUIRE(origin.ok());
  auto lost = storage::RunDirectory::create({"lost", folder.path("lost")}, {{"name", "j"}});
  auto kept = storage::RunDirectory::create({"kept", folder.path("kept")}, {{"name", "j"}});
  REQUIRE(lost.ok());
  REQUIRE(kept.ok());
  const auto begin = [&origin](storage::RunDirectory& directory) -> Status {
    const auto past = storage::begin_from(origin.value(), directory);
    return past ? Status() : Status(past.error());
  };
  CHECK_THAT(without_a_sync([&] { return begin(*lost.value()); }),
             Catch::EndsWith("part/manifest.json: Input/output error"));
  CHECK(begin(*kept.value()).ok());
  const auto change = [&kept] { return kept.value()->change_job({{"name", "other"}}); };
  CHECK_THAT(without_a_sync(change), Catch::EndsWith("job.json.tmp: Input/output error"));
  CHECK(change().ok());
}
