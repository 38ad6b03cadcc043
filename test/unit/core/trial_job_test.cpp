// From an experiment's job and a trial's values to the trial's own job.

#include "launcher/core/trial_job.hpp"

#include <catch2/catch.hpp>

namespace sgd::core {
namespace {

using Json = nlohmann::json;

/// What trial 0 of it runs, with `values`.
job::JobSpec job_with(Json job, tune::Values values, const std::string& origin = {}) {
  const job::LoadResult loaded = trial_job({std::move(job), "/"}, {}, {0, std::move(values)}, origin);
  for (const Diagnostic& item : loaded.diagnostics.items) UNSCOPED_INFO(item.text());
  REQUIRE(loaded.job);
  return *loaded.job;
}

}  // namespace

TEST_CASE("trial's job: names of parameters in words of the command and of the environment") {
  const job::JobSpec job =
      job_with({{"command", {"run", "--lr={lr}", "{other}"}}, {"env", {{"RATE", "{lr}"}}}}, {{"lr", 0.5}});
  CHECK(job.command == std::vector<std::string>{"run", "--lr=0.5", "{other}"});
  CHECK(job.resolved->at("env") == Json{{"RATE", "0.5"}, {"SGD_PARAM_LR", "0.5"}});
}

TEST_CASE("trial's job: commands and environments that are tried have them, too") {
  const job::JobSpec job = job_with({{"command", {"none"}}, {"env", {{"A", "none"}}}},
                                    {{"lr", 0.5}, {"command", {"run", "{lr}"}}, {"env", {{"A", "{lr}"}, {"B", "b"}}}});
  CHECK(job.command == std::vector<std::string>{"run", "0.5"});
  const Json& environment = job.resolved->at("env");
  CHECK(environment.at("A") == "0.5");
  CHECK(environment.at("B") == "b");
  CHECK(environment.at("SGD_PARAM_LR") == "0.5");
  const job::JobSpec one = job_with({{"command", {"run"}}, {"env", {{"A", "none"}}}}, {{"lr", 2}, {"env.A", "{lr}"}});
  CHECK(one.resolved->at("env").at("A") == "2");
  CHECK(one.resolved->at("env").at("SGD_PARAM_ENV_A") == "{lr}");
}

TEST_CASE("trial's job: a command goes on from a checkpoint, as training does") {
  CHECK(job_with({{"command", {"run"}}}, Json::object(), "/taken/step-000000000010-gen-0001").resume_from ==
        "/taken/step-000000000010-gen-0001");
}

}  // namespace sgd::core
