// Jobs that are a command: what its processes may be told.

#include <catch2/catch.hpp>

#include "test/unit/common/job_support.hpp"

namespace sgd {
namespace {

using Lines = std::vector<std::string>;

Lines lines_of(const std::string& keys) {
  return test::load_text("{\"command\": [\"true\"],\n" + keys + "}").lines;
}

TEST_CASE("job: a command has the settings of its processes, with defaults") {
  const test::Loaded loaded = test::load_text(R"({"command": ["true"], "process": {"role": "trainer"}})");
  REQUIRE(loaded.result.job);
  const nlohmann::json& process = loaded.result.job->resolved->at("process");
  CHECK(process.at("role") == "trainer");
  CHECK(process.at("preload") == "auto");
  CHECK(process.at("cpu_bind") == "auto");
  CHECK(process.at("shutdown_timeout") == "2s");
  CHECK(process.at("tee") == "0");
  CHECK_FALSE(process.contains("rendezvous_id"));
  CHECK(test::load_text(R"({"command": ["true"]})").result.job->resolved->contains("process"));
  CHECK_FALSE(test::load_text(test::training_job()).result.job->resolved->contains("process"));
}

TEST_CASE("job: what the processes of a command cannot be told") {
  CHECK(lines_of(R"("process": {"preload": ["torch", "torch.distributed"]})").empty());
  CHECK_THAT(lines_of(R"("process": {"preload": "torch"})").at(0), Catch::Contains("\"process.preload\""));
  CHECK_THAT(lines_of(R"("process": {"tee": "4"})").at(0), Catch::Contains("pairs of local rank"));
  CHECK(lines_of(R"("process": {"tee": "0:3,12:1"})").empty());
  CHECK_THAT(lines_of(R"("process": {"signals": ["SIGKILL"]})").at(0), Catch::Contains("SIGKILL"));
  CHECK_THAT(test::load_text(test::training_job(R"("process": {})")).lines.at(0),
             Catch::Contains("\"process\" is for \"command\""));
}

TEST_CASE("job: a command's run is named after what it is about") {
  const auto name_of = [](const std::vector<std::string>& command) {
    const job::LoadResult loaded = job::load_command_job(command, {});
    REQUIRE(loaded.job);
    return loaded.job->name;
  };
  CHECK(name_of({"/bin/true"}) == "true");
  CHECK(name_of({"python3", "-u", "models/train.py", "--lr", "0.1"}) == "train");
  CHECK(name_of({"/usr/bin/python3.11", "-X", "dev", "-W", "error", "-m", "pkg.train"}) == "pkg.train");
  CHECK(name_of({"python3", "-c", "print(1)"}) == "python3");
  CHECK(name_of({"python3"}) == "python3");
}

TEST_CASE("job: variables of workers") {
  CHECK(lines_of(R"("env": {"OMP_NUM_THREADS": "4"})").empty());
  CHECK_THAT(lines_of(R"("env": {"A": 1})").at(0), Catch::Contains("\"env.A\""));
  CHECK_THAT(lines_of(R"("env": {"A=B": "1"})").at(0), Catch::Contains("no name of a variable"));
  CHECK_THAT(lines_of(R"("env": {"RANK": "1"})").at(0), Catch::Contains("set by the launcher"));
  CHECK_THAT(lines_of(R"("env": {"NODE_RANK": "1"})").at(0), Catch::Contains("set by the launcher"));
  CHECK_THAT(lines_of(R"("env": {"SGD_TOKEN": "1"})").at(0), Catch::Contains("set by the launcher"));
}

}  // namespace
}  // namespace sgd
