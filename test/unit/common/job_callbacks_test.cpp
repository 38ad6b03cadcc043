// A job's "callbacks": what is refused, what comes out, what a cluster takes.
#include <catch2/catch.hpp>

#include "common/job/cluster_checks.hpp"
#include "test/unit/common/job_support.hpp"

namespace sgd {
namespace {

using CallbackLines = std::vector<std::string>;

test::Loaded load_callbacks(const std::string& list) {
  return test::load_text("{\"command\": [\"true\"],\n\"callbacks\": " + list + "}");
}

CallbackLines errors_of(const std::string& list) {
  return load_callbacks(list).lines;
}

CallbackLines cluster_errors(const std::string& list) {
  test::Loaded loaded = load_callbacks(list);
  REQUIRE(loaded.lines.empty());
  job::check_for_cluster(loaded.result);
  CHECK(loaded.result.job.has_value() == !loaded.result.diagnostics.has_errors());
  CallbackLines lines;
  for (const Diagnostic& item : loaded.result.diagnostics.items)
    lines.push_back(std::to_string(item.line) + ":" + std::to_string(item.column) + ": " + item.message);
  return lines;
}

}  // namespace

TEST_CASE("callbacks: defaults are filled in and folders become absolute") {
  const test::Loaded loaded = load_callbacks(
      R"([{"type": "json"}, {"type": "csv", "folder": "out"}, {"type": "tensorboard"}, {"type": "console"},
          {"type": "exec", "command": ["cat"], "metrics": ["*_loss"]}])");
  REQUIRE(loaded.lines.empty());
  const std::vector<nlohmann::json>& callbacks = loaded.result.job->callbacks;
  REQUIRE(callbacks.size() == 5);
  CHECK(callbacks[0] == nlohmann::json::parse(R"({"type": "json", "file": "results.json", "workers": 0})"));
  CHECK(callbacks[1]["file"] == "progress.csv");
  CHECK(callbacks[1]["folder"].get<std::string>().front() == '/');
  CHECK(callbacks[2] == nlohmann::json::parse(R"({"type": "tensorboard", "prefix": "{phase}/", "step": "iteration"})"));
  CHECK(callbacks[3] == nlohmann::json::parse(R"({"type": "console", "format": "line"})"));
  CHECK(callbacks[4] ==
        nlohmann::json::parse(
            R"({"type": "exec", "command": ["cat"], "events": true, "timeout": "30s", "metrics": ["*_loss"]})"));
  CHECK(test::load_text(R"({"command": ["true"]})").result.job->callbacks.empty());
  CHECK(errors_of("[]").empty());
}

TEST_CASE("callbacks: the resolved job is read again as it is") {
  const test::Loaded loaded =
      load_callbacks(R"([{"type": "json", "workers": "all"}, {"type": "exec", "command": ["cat"]}])");
  REQUIRE(loaded.lines.empty());
  const job::LoadResult again = job::load_resolved(loaded.result.job->resolved);
  REQUIRE(again.job);
  CHECK(again.job->callbacks == loaded.result.job->callbacks);
}

TEST_CASE("callbacks: bad values are told with their places") {
  CHECK(errors_of(R"({"type": "json"})") ==
        CallbackLines{R"(job.json:2:14: error: "callbacks" must be an array, got an object)"});
  CHECK(
      errors_of(R"([{"type": "jsn"}])") ==
      CallbackLines{
          R"(job.json:2:24: error: "callbacks[0].type" must be "console", "csv", "exec", "json" or "tensorboard", got "jsn"; did you mean "json"?)"});
  CHECK(errors_of(R"([{"type": "TBXLoggerCallback"}])") ==
        CallbackLines{R"(job.json:2:24: error: "callbacks[0].type" "TBXLoggerCallback" is called "tensorboard" here)"});
  CHECK(errors_of(R"([{"type": "exec"}])") ==
        CallbackLines{R"(job.json:2:15: error: missing key "command" in "callbacks[0]")"});
  CHECK(errors_of(R"([{"type": "exec", "command": []}])") ==
        CallbackLines{R"(job.json:2:43: error: "callbacks[0].command" must have at least 1 items, got 0)"});
  CHECK(errors_of(R"([{"type": "exec", "command": ["a"], "timeout": "0s"}])") ==
        CallbackLines{R"(job.json:2:61: error: "callbacks[0].timeout" must be above 0, got "0s")"});
  CHECK(errors_of(R"([{"type": "json", "workers": []}])").size() == 1);
  CHECK(errors_of(R"([{"type": "json", "workers": -1}])") ==
        CallbackLines{R"(job.json:2:43: error: "callbacks[0].workers" must be at least 0, got -1)"});
  CHECK(errors_of(R"([{"type": "json", "workers": "some"}])").size() == 1);
  CHECK(
      errors_of(R"([{"type": "json", "file": "../up.json"}])") ==
      CallbackLines{
          R"(job.json:2:40: error: "callbacks[0].file" must be a file's name of letters, digits, '.', '_' and '-', without a folder, got "../up.json")"});
  CHECK(errors_of(R"([{"type": "csv", "files": "x"}])").size() == 1);
  CHECK(errors_of(R"([{"type": "tensorboard", "step": "epochs"}])").size() == 1);
  CHECK(errors_of(R"([{"type": "csv", "metrics": "loss"}])").size() == 1);
}

TEST_CASE("callbacks: nothing writes over files of the run or of another callback") {
  CHECK(
      errors_of(R"([{"type": "json", "file": "summary.json"}])") ==
      CallbackLines{
          R"(job.json:2:40: error: "callbacks[0].file" "summary.json" is a file of the run itself: choose another name)"});
  for (const char* file : {"nodes.jsonl", "pinned", "metrics.jsonl", "results.csv"}) {
    INFO(file);
    CHECK(errors_of(R"([{"type": "json", "file": ")" + std::string(file) + "\"}]") ==
          CallbackLines{"job.json:2:40: error: \"callbacks[0].file\" \"" + std::string(file) +
                        "\" must end in \".json\" in the run's folder, where other files are the run's own"});
  }
  CHECK(errors_of(R"([{"type": "csv", "file": "checkpoints"}])").size() == 1);
  CHECK(errors_of(R"([{"type": "json", "file": "summary.json", "folder": "/elsewhere"}])").empty());
  CHECK(
      errors_of(R"([{"type": "json"}, {"type": "json", "workers": "all"}])") ==
      CallbackLines{
          R"(job.json:2:33: error: "callbacks[1].file" is where callbacks[0] writes, too: give one of them another file)"});
  CHECK(errors_of(R"([{"type": "json"}, {"type": "json", "file": "all.json", "workers": "all"}])").empty());
  CHECK(errors_of(R"([{"type": "tensorboard"}, {"type": "tensorboard"}])").size() == 1);
  CHECK(errors_of(R"([{"type": "tensorboard"}, {"type": "tensorboard", "folder": "/tb"}])").empty());
}

TEST_CASE("callbacks: a cluster starts no program and writes to no folder that a job names") {
  CHECK(cluster_errors(R"([{"type": "json"}, {"type": "csv"}, {"type": "tensorboard"}, {"type": "console"}])").empty());
  CHECK(
      cluster_errors(R"([{"type": "exec", "command": ["cat"]}, {"type": "csv", "folder": "/tmp"}])") ==
      CallbackLines{
          R"(2:24: "callbacks[0].type" "exec" is for a run on this machine: a coordinator starts no program of a job. Leave it out, and where you are: sgd-launch metrics -f RUN | PROGRAM)",
          R"(2:79: "callbacks[1].folder" is for a run on this machine: a coordinator writes into the run's own folder alone. Leave it out)"});
}

}  // namespace sgd
