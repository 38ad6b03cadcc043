// Written limits of texts from outside, each one below it and one above it.

#include <string>

#include <catch2/catch.hpp>

#include "common/checkpoint/manifest.hpp"
#include "common/job/load.hpp"
#include "common/json/suggest.hpp"
#include "common/messages/transfer.hpp"
#include "test/unit/common/job_support.hpp"

using namespace sgd;

TEST_CASE("manifest: depth and size are bounded before anything is built") {
  const std::string good = checkpoint::encode({100, 1, 1, 2, {{"model.safetensors", 4, 1}}});
  const std::string longest = good + std::string(checkpoint::kManifestBytesMax - good.size(), ' ');
  CHECK(checkpoint::parse_manifest(longest).ok());
  CHECK(checkpoint::parse_manifest(longest + " ").error().message == "the manifest is larger than 1 MiB");
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  const auto refused = checkpoint::parse_manifest(R"({"format": )" + deep + "}");
  REQUIRE_FALSE(refused.ok());
  CHECK_THAT(refused.error().message, Catch::StartsWith("bad manifest: ") && Catch::Contains("deep"));
}

TEST_CASE("transfer: names of files have a length and a depth") {
  const std::string longest(transfer::kPartBytesMax, 'x');
  CHECK(transfer::is_part(longest));
  CHECK_FALSE(transfer::is_part(longest + "x"));
  CHECK(transfer::check_file("logs/gen-0001/" + longest).ok());
  CHECK_FALSE(transfer::check_file("logs/gen-0001/x/" + longest).ok());  // Four parts.
  const std::string shown = transfer::check_file("logs/" + std::string(100'000, 'x')).error().message;
  CHECK(shown.size() < 200);
}

TEST_CASE("job: a name that is made of a program's is cut") {
  const auto loaded = job::load_command_job({std::string(1000, 'x')}, {});
  REQUIRE(loaded.job);
  CHECK(loaded.job->name == std::string(40, 'x'));
}

TEST_CASE("suggestions: a long word is nobody's misspelling") {
  CHECK(json::nearest("epocs", {"epochs"}) == "epochs");
  const std::string longest(64, 'x');
  CHECK(json::nearest(longest.substr(1), {longest}) == longest);
  CHECK_FALSE(json::nearest(longest, {longest + "y"}));
  CHECK_FALSE(json::nearest(longest + "y", {longest}));
  CHECK_FALSE(json::nearest(std::string(1'000'000, 'x'), {longest}));
}
