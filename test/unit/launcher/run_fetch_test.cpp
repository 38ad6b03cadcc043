// What comes here of a run is of that run alone: what is here of another one is neither taken for it nor mixed with it.

#include "launcher/cli/run_fetch.hpp"

#include <filesystem>
#include <span>

#include <catch2/catch.hpp>

#include "common/checkpoint/crc32c.hpp"
#include "common/checkpoint/manifest.hpp"
#include "common/exit_codes.hpp"
#include "common/json/json_file.hpp"
#include "test/unit/common/temporary_folder.hpp"

using namespace sgd;
namespace fs = std::filesystem;

namespace {

constexpr const char* kFetched = "checkpoints/step-000000000064-gen-0001";

/// A run on this machine with that checkpoint, and with lines and a log.
cli::NamedRun put_run(const test::TemporaryFolder& folder, const std::string& name, const std::string& weights) {
  const auto crc = checkpoint::crc32c(0, std::as_bytes(std::span(weights.data(), weights.size())));
  const std::string place = name + "/" + kFetched;
  folder.write(place + "/model.safetensors", weights);
  folder.write(place + "/manifest.json",
               checkpoint::encode({64, 1, 1, 1, {{"model.safetensors", weights.size(), crc}}}));
  folder.write(name + "/metrics.jsonl", "{\"of\":\"" + name + "\"}\n");
  folder.write(name + "/logs/gen-0001/rank-0000.log", name + "\n");
  cli::NamedRun run;
  run.directory = folder.path(name);
  return run;
}

std::string why_not_fetched(const Result<std::string>& fetched) {
  return fetched ? "" : fetched.error().message;
}

}  // namespace

TEST_CASE("run fetch: another run's checkpoint of the same name is not taken for it, nor a damaged one") {
  const test::TemporaryFolder folder;
  const cli::NamedRun one = put_run(folder, "one", "weights");
  const cli::NamedRun other = put_run(folder, "other", "WEIGHTS");
  const std::string here = folder.path("out/step-000000000064-gen-0001");
  const auto fetch = [&folder](const cli::NamedRun& run) {
    return cli::fetch_checkpoint(run, kFetched, folder.path("out"));
  };
  REQUIRE(fetch(one).ok());
  CHECK(fetch(one).value() == here);  // It is here.
  CHECK(why_not_fetched(fetch(other)) == here + " is there already, of another run: name another folder, or remove it");
  CHECK(fetch(other).error().code == exit_code::kFailed);
  CHECK(json::text_of_file(here + "/model.safetensors").value() == "weights");
  folder.write("out/step-000000000064-gen-0001/model.safetensors", "wEIGHTS");
  CHECK_THAT(why_not_fetched(fetch(one)), Catch::Contains(here + " is there already, and not whole: ") &&
                                              Catch::Contains("remove it, and the same command fetches it again"));
  fs::remove_all(here);
  REQUIRE(fetch(other).ok());
  CHECK(json::text_of_file(here + "/model.safetensors").value() == "WEIGHTS");
}

TEST_CASE("run fetch: what an interruption has left of another run's checkpoint is not finished as this one's") {
  const test::TemporaryFolder folder;
  const cli::NamedRun one = put_run(folder, "one", "weights");
  const cli::NamedRun other = put_run(folder, "other", "WEIGHTS");
  const std::string here = folder.path("out/step-000000000064-gen-0001");
  fs::create_directories(folder.path("out"));
  fs::copy(one.directory + "/" + kFetched, here + ".part", fs::copy_options::recursive);
  folder.write("out/step-000000000064-gen-0001.part/more", "of one");
  REQUIRE(cli::fetch_checkpoint(other, kFetched, folder.path("out")).ok());
  CHECK(json::text_of_file(here + "/model.safetensors").value() == "WEIGHTS");
  CHECK_FALSE(fs::exists(here + "/more"));
}

TEST_CASE("run fetch: a folder has files of one run") {
  const test::TemporaryFolder folder;
  const cli::NamedRun one = put_run(folder, "one", "weights");
  const cli::NamedRun other = put_run(folder, "other", "WEIGHTS");
  const std::string out = folder.path("out");
  const auto save = [&out](const cli::NamedRun& run, const char* name) { return cli::save_files(run, {}, name, out); };
  CHECK(save(one, "metrics.jsonl") == 0);
  CHECK(save(one, "logs") == 0);
  CHECK(save(one, "logs") == 0);
  CHECK(save(other, "logs") == exit_code::kFailed);
  CHECK(save(other, "metrics.jsonl") == exit_code::kFailed);
  CHECK(json::text_of_file(out + "/metrics.jsonl").value() == "{\"of\":\"one\"}\n");
  CHECK(json::text_of_file(out + "/logs/gen-0001/rank-0000.log").value() == "one\n");
  // Nobody knows whose they are.
  fs::remove(out + "/run.json");
  CHECK(save(one, "logs") == exit_code::kFailed);
  fs::remove_all(out);
  CHECK(save(other, "logs") == 0);
  CHECK(json::text_of_file(out + "/logs/gen-0001/rank-0000.log").value() == "other\n");
}
