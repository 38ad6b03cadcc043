// Where a run begins that goes on from another one's state.

#include "launcher/storage/run_origin.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>

#include "common/checkpoint/crc32c.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
namespace fs = std::filesystem;

namespace {

/// A checkpoint of 12 steps in `folder`; returns its path.
std::string put_checkpoint(const test::TemporaryFolder& folder, const std::string& path, Generation generation = 3) {
  const std::string weights = "weights";
  const auto crc = checkpoint::crc32c(0, std::as_bytes(std::span(weights.data(), weights.size())));
  const std::string state = R"({"position": {"epoch": 3, "phase": "train", "consumed": 5}, "made_by": {"cpus": 2}})";
  const auto state_crc = checkpoint::crc32c(0, std::as_bytes(std::span(state.data(), state.size())));
  folder.write(path + "/model.safetensors", weights);
  folder.write(path + "/state.json", state);
  folder.write(
      path + "/manifest.json",
      checkpoint::encode({12,
                          2,
                          generation,
                          2,
                          {{"model.safetensors", weights.size(), crc}, {"state.json", state.size(), state_crc}}}));
  return folder.path(path);
}

std::string content_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

}  // namespace

TEST_CASE("origin: a checkpoint under any name, and the newest whole one of a run") {
  const test::TemporaryFolder folder;
  const std::string moved = put_checkpoint(folder, "moved");
  const auto origin = storage::read_origin(moved + "/");
  REQUIRE(origin.ok());
  CHECK(origin.value().checkpoint == moved);
  CHECK(origin.value().history.newest.step == 12);
  CHECK(origin.value().history.place.consumed == 5);
  CHECK(origin.value().history.made_by.at("cpus") == 2);
  const std::string older = put_checkpoint(folder, "run/checkpoints/" + checkpoint::directory_name(12, 3));
  const std::string newer = put_checkpoint(folder, "run/checkpoints/" + checkpoint::directory_name(12, 4), 4);
  CHECK(storage::read_origin(folder.path("run")).value().checkpoint == newer);
  folder.write("run/checkpoints/" + checkpoint::directory_name(12, 4) + "/model.safetensors", "Weights");
  const auto before = storage::read_origin(folder.path("run"));
  REQUIRE(before.ok());
  CHECK(before.value().checkpoint == older);
  REQUIRE(before.value().history.damaged.size() == 1);
  CHECK(before.value().history.damaged[0].path == newer);
}

TEST_CASE("origin: what is none is said") {
  const test::TemporaryFolder folder;
  const auto said = [&](const std::string& path) {
    const auto origin = storage::read_origin(folder.path(path));
    REQUIRE_FALSE(origin.ok());
    return origin.error().message;
  };
  CHECK_THAT(said("none"), Catch::EndsWith("/none does not exist"));
  folder.write("file", "");
  CHECK_THAT(said("file"), Catch::EndsWith("/file is not a folder"));
  folder.write("other/readme", "");
  CHECK_THAT(said("other"), Catch::Contains("is neither a checkpoint nor a run"));
  folder.write("young/checkpoints/readme", "");
  CHECK_THAT(said("young"), Catch::EndsWith("/young has no checkpoint"));
  (void)put_checkpoint(folder, "torn");
  folder.write("torn/model.safetensors", "w");
  CHECK_THAT(said("torn"), Catch::Contains("model.safetensors has 1 bytes, its manifest says 7"));
  fs::remove(folder.path("torn/manifest.json"));
  CHECK_THAT(said("torn"), Catch::Contains("neither"));
}

TEST_CASE("origin: a new run has it as the checkpoint of generation 0, and the other one stays as it is") {
  const test::TemporaryFolder folder;
  const std::string from = put_checkpoint(folder, "other/checkpoints/" + checkpoint::directory_name(12, 3));
  const std::string manifest = content_of(from + "/manifest.json");
  auto directory = storage::RunDirectory::create({"r", folder.path("r")}, {{"name", "j"}});
  REQUIRE(directory.ok());
  const auto origin = storage::read_origin(from);
  REQUIRE(origin.ok());
  const auto past = storage::begin_from(origin.value(), *directory.value());
  REQUIRE(past.ok());
  CHECK(past.value().generation == 0);
  CHECK(past.value().epochs == 2);
  const std::string own = folder.path("r/checkpoints/" + checkpoint::directory_name(12, 0));
  CHECK(past.value().checkpoints == std::vector<std::string>{own});
  CHECK(checkpoint::verify(own, checkpoint::Proof::kChecksums).value().generation == 0);
  CHECK(fs::hard_link_count(own + "/model.safetensors") == 2);
  CHECK(content_of(from + "/manifest.json") == manifest);
  directory.value().reset();
  // What a launcher that is killed now leaves: the epochs before are no gap.
  folder.write("r/checkpoints/" + checkpoint::directory_name(20, 1) + "/manifest.json",
               checkpoint::encode({20, 2, 1, 1, {}}));
  folder.write("r/checkpoints/" + checkpoint::directory_name(30, 1) + "/manifest.json",
               checkpoint::encode({30, 3, 1, 1, {}}));
  const auto history = storage::read_history(folder.path("r"));
  REQUIRE(history.ok());
  CHECK(history.value().past.epochs == 2);
  CHECK(history.value().newest.step == 20);
  CHECK(history.value().ahead.size() == 1);
}

TEST_CASE("origin: what a link leads to is not taken") {
  const test::TemporaryFolder folder;
  const std::string from = put_checkpoint(folder, "other");
  fs::rename(from + "/model.safetensors", folder.path("elsewhere"));
  fs::create_symlink(folder.path("elsewhere"), from + "/model.safetensors");
  auto directory = storage::RunDirectory::create({"r", folder.path("r")}, {{"name", "j"}});
  REQUIRE(directory.ok());
  const auto origin = storage::read_origin(from);
  REQUIRE(origin.ok());
  const auto past = storage::begin_from(origin.value(), *directory.value());
  REQUIRE_FALSE(past.ok());
  CHECK_THAT(past.error().message, Catch::EndsWith("model.safetensors is not a regular file"));
}

TEST_CASE("origin: a checkpoint that was taken of another run is none of the run's own, though it has the same name") {
  const test::TemporaryFolder folder;
  const std::string name = checkpoint::directory_name(12, 1);
  const std::string run = folder.path("run");
  for (const char* place : {"checkpoints/", "taken/0001/", "taken/0002/", "best/0002/"}) {
    const std::string path = put_checkpoint(folder, "run/" + (place + name), 1);
    CHECK(storage::place_of_checkpoint(run, storage::name_of_checkpoint(run, path)) == path);
  }
  CHECK(storage::name_of_checkpoint(run, run + "/checkpoints/" + name) == name);
  CHECK(storage::name_of_checkpoint(run, run + "/taken/0001/" + name) == "taken.0001." + name);
  CHECK(storage::name_of_checkpoint(run, "/elsewhere/" + name).empty());
  for (const char* none : {"nothing", "taken.0001.nothing", "taken..", "taken.../.", "logs.0001."}) {
    CHECK(storage::place_of_checkpoint(run, none + name).empty());
    CHECK_FALSE(storage::is_checkpoint_name(none + name));
  }
  for (const char* front : {"", "taken.0007.", "best.0001."}) CHECK(storage::is_checkpoint_name(front + name));
  // By its name alone it is found where no other one has it.
  fs::remove_all(run + "/checkpoints");
  fs::remove_all(run + "/taken/0002");
  CHECK(storage::place_of_checkpoint(run, name) == run + "/taken/0001/" + name);
}
