// What a user can do wrong in a job file, and the words that come back.

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "common/job/read_file.hpp"
#include "job_support.hpp"

namespace sgd {
namespace {

using Lines = std::vector<std::string>;

struct Bad {
  std::string text;
  Lines lines;
};

void check_all(const std::vector<Bad>& rows) {
  for (const Bad& row : rows) {
    INFO(row.text);
    const test::Loaded loaded = test::load_text(row.text);
    CHECK(loaded.lines == row.lines);
    CHECK_FALSE(loaded.result.job.has_value());
  }
}

}  // namespace

TEST_CASE("job: all errors of a file appear at once") {
  const char* text = R"({
  "name": "x y",
  "num_workrs": 2, "num_workers": 1.5,
  "max_retries": 3,
  "recovery": {"max_failures": -1, "backoff": {"first": "1 s"}},
  "checkpoint": {"every": {"steps": 0}, "keep": {"latest": 0}},
  "heartbeat": {"interval": "5s", "timeout": "5s"},
  "placement": {"a": 1},
  "training": {
    "lr": 0.1, "epochs": "five", "batch_size": 0, "seed": 1, "seed": 2,
    "model": {"type": "cn"}, "loss": "mes",
    "dataset": {"type": "idx"},
    "optimizer": {"type": "adam", "momentum": 0.9, "betas": [0.9, 1]},
    "backend": "nccl", "gradient_clip": {"norm": 1, "value": 2}
  },
  "command": []
}
)";
  CHECK(
      test::load_text(text, {"training.shuffel=false"}).lines ==
      Lines{
          R"(job.json:2:11: error: "name" must be letters, digits, '.', '_' and '-', beginning with a letter or digit, got "x y")",
          R"(job.json:3:3: error: unknown key "num_workrs"; did you mean "num_workers"?)",
          R"(job.json:3:35: error: "num_workers" must be an integer, got 1.5)",
          R"(job.json:4:3: error: unknown key "max_retries"; use "recovery.max_failures")",
          R"(job.json:5:32: error: "recovery.max_failures" must not be negative; use "unlimited" for no limit)",
          R"(job.json:5:57: error: "recovery.backoff.first" must be a duration such as "500ms", "10s" or "5m", got "1 s")",
          R"(job.json:6:37: error: "checkpoint.every.steps" must be at least 1, got 0)",
          R"(job.json:6:60: error: "checkpoint.keep.latest" must be at least 1, got 0)",
          R"(job.json:7:46: error: "heartbeat.timeout" must be longer than "heartbeat.interval" ("5s"), got "5s")",
          R"(job.json:8:17: error: unknown key "a" in "placement")",
          R"(job.json:10:5: error: unknown key "lr" in "training"; "lr" belongs in "training.optimizer")",
          R"(job.json:10:26: error: "training.epochs" must be an integer, got "five")",
          R"(job.json:10:48: error: "training.batch_size" must be at least 1, got 0)",
          R"(job.json:10:62: error: duplicate key "seed"; first in line 10)",
          R"(job.json:11:23: error: "training.model.type" must be "cnn", "fcn", "lenet", "linear", "mlp", "resnet18", "resnet34", "resnet50", "torchscript" or "transformer", got "cn"; did you mean "cnn"?)",
          R"(job.json:11:38: error: "training.loss" must be "cross_entropy", "nll", "mse", "l1", "smooth_l1", "huber" or "bce_with_logits", got "mes"; did you mean "mse"?)",
          R"(job.json:12:16: error: missing key "path" in "training.dataset")",
          R"(job.json:13:35: error: unknown key "momentum" in "training.optimizer" of type "adam"; type "rmsprop" or "sgd" has it)",
          R"(job.json:13:67: error: "training.optimizer.betas[1]" must be below 1, got 1)",
          R"(job.json:14:16: error: "training.backend" "nccl" is not supported: "auto" takes NCCL where gradients lie on GPUs)",
          R"(job.json:14:41: error: "training.gradient_clip" must have either "norm" or "value")",
          R"(job.json:16:3: error: "training" and "command" exclude each other: remove one)",
          R"(job.json:16:14: error: "command" must have at least 1 items, got 0)",
          R"(--set training.shuffel: error: unknown key "shuffel" in "training"; did you mean "shuffle"?)",
      });
}

TEST_CASE("job: not a job") {
  check_all({
      {"", {"job.json: error: the file is empty"}},
      {"not json", {"job.json:1:1: error: not JSON: invalid literal"}},
      {R"({"training": {"epochs": 5)", {"job.json:1:26: error: not JSON: the file ends too early (truncated?)"}},
      {"[]", {"job.json:1:1: error: the job must be an object, got an array"}},
      {"{}", {R"(job.json:1:1: error: missing key "training" or "command")"}},
      {std::string(100000, '['), {"job.json:1:65: error: nested deeper than 64 levels"}},
      {R"({"command": ["true"], "training": 5})",
       {R"(job.json:1:2: error: "training" and "command" exclude each other: remove one)",
        R"(job.json:1:35: error: "training" must be an object, got 5)"}},
  });
}

TEST_CASE("job: numbers of workers") {
  const auto line = [](const std::string& workers) {
    return test::load_text(R"({"command": ["true"], "num_workers": )" + workers + "}").lines;
  };
  CHECK(line("1").empty());
  CHECK(line("65536").empty());
  CHECK(line("0") == Lines{R"(job.json:1:38: error: "num_workers" must be at least 1, got 0)"});
  CHECK(line("-2") == Lines{R"(job.json:1:38: error: "num_workers" must be at least 1, got -2)"});
  CHECK(line("1000000") == Lines{R"(job.json:1:38: error: "num_workers" must be at most 65536, got 1000000)"});
  CHECK(line("99999999999999999999") ==
        Lines{R"(job.json:1:38: error: "num_workers" must be at most 65536, got 1e+20)"});
  CHECK(line("-99999999999999999999") ==
        Lines{R"(job.json:1:38: error: "num_workers" must be at least 1, got -1e+20)"});
  CHECK(line("1.5") == Lines{R"(job.json:1:38: error: "num_workers" must be an integer, got 1.5)"});
  CHECK(line("\"2\"") == Lines{R"(job.json:1:38: error: "num_workers" must be an integer, got "2")"});
  CHECK(line("null") == Lines{R"(job.json:1:38: error: "num_workers" must be an integer, got null)"});
  CHECK(line("true") == Lines{R"(job.json:1:38: error: "num_workers" must be an integer, got true)"});
  CHECK(test::load_text(R"({"command": ["true"], "num_workers": 2, "min_workers": 3})").lines ==
        Lines{R"(job.json:1:56: error: "min_workers" must be at most "num_workers" (2), got 3)"});
}

TEST_CASE("job: batch sizes") {
  const auto load = [](const std::string& batch) {
    return test::load_text(
        R"({"num_workers": 2, "training": {"loss": "mse", "model": {"type": "linear"}, "dataset": {"type": "linear"})" +
        batch + "}}");
  };
  CHECK(load(R"(, "batch_size": 2)").lines.empty());
  CHECK(load(R"(, "batch_size_per_worker": 1)").lines.empty());
  CHECK(
      load(R"(, "batch_size": 1)").lines ==
      Lines{
          R"(job.json:1:122: error: "training.batch_size" must be at least "num_workers" (2), one sample for each worker; got 1)"});
  CHECK(load(R"(, "batch_size": 4, "batch_size_per_worker": 2)").lines ==
        Lines{R"(job.json:1:125: error: "batch_size" and "batch_size_per_worker" exclude each other: remove one)"});
  CHECK(
      load("").lines ==
      Lines{
          R"(job.json:1:32: error: missing key "batch_size" (of all workers) or "batch_size_per_worker" in "training")"});
  const test::Loaded uneven = load(R"(, "batch_size": 21)");
  CHECK(uneven.lines == Lines{"job.json:1:122: warning: Changing batch size from 21 to 20 to evenly "
                              "distribute batches across 2 workers."});
  REQUIRE(uneven.result.job.has_value());
  CHECK(uneven.result.job->training->batch_size == 21);  // A resize divides the job's own value again.
  CHECK(job::batch_size_per_rank(*uneven.result.job->training, 2) == 10);
  CHECK(job::batch_size_per_rank(*uneven.result.job->training, 1) == 21);
}

TEST_CASE("job: unknown types have suggestions") {
  const auto line = [](const std::string& training) {
    const test::Loaded loaded = test::load_text(R"({"training": {"batch_size": 8, )" + training + "}}");
    return loaded.lines;
  };
  CHECK(
      line(R"("model": {"type": "mpl"}, "dataset": {"type": "idx", "path": "/d"})") ==
      Lines{
          R"(job.json:1:50: error: "training.model.type" must be "cnn", "fcn", "lenet", "linear", "mlp", "resnet18", "resnet34", "resnet50", "torchscript" or "transformer", got "mpl"; did you mean "mlp"?)"});
  CHECK(
      line(R"("model": {"type": "cnn"}, "dataset": {"type": "idxx", "path": "/d"})") ==
      Lines{
          R"(job.json:1:78: error: "training.dataset.type" must be "cifar", "csv", "idx", "image_folder", "image_masks", "linear", "npy", "synthetic" or "tokens", got "idxx"; did you mean "idx"?)"});
  CHECK(
      line(R"("model": "cnn", "dataset": {"path": "/d"})") ==
      Lines{
          R"(job.json:1:41: error: "training.model" must be an object such as {"type": "cnn"}, got "cnn")",
          R"(job.json:1:59: error: missing key "type" in "training.dataset": "cifar", "csv", "idx", "image_folder", "image_masks", "linear", "npy", "synthetic" or "tokens")"});
  CHECK(
      line(R"("model": {"type": "cnn"}, "dataset": {"type": "idx", "path": "/d"}, "optimizer": {"type": "sdg"})") ==
      Lines{
          R"(job.json:1:122: error: "training.optimizer.type" must be "adagrad", "adam", "adamw", "rmsprop" or "sgd", got "sdg"; did you mean "sgd"?)"});
  CHECK(
      line(R"("model": {"type": 5}, "dataset": {"type": "idx", "path": ""})") ==
      Lines{
          R"(job.json:1:50: error: "training.model.type" must be "cnn", "fcn", "lenet", "linear", "mlp", "resnet18", "resnet34", "resnet50", "torchscript" or "transformer", got 5)",
          R"(job.json:1:89: error: "training.dataset.path" must not be empty)"});
  CHECK(
      line(R"("dataset": {"type": "linear"}, "model": {"type": "linear"})") ==
      Lines{
          R"(job.json:1:14: error: "training.loss" must be "mse", "l1", "smooth_l1", "huber" or "bce_with_logits" with the data set "linear", whose targets are numbers; got "cross_entropy")"});
}

TEST_CASE("job: keys of other tools and of other places") {
  struct Row {
    const char* top;
    const char* advice;
  };
  for (const Row& row : std::vector<Row>{
           {"max_restarts", R"(; use "recovery.max_failures")"},
           {"num_replicas", R"(; use "num_workers")"},
           {"nproc_per_node", R"(; use "num_workers")"},
           {"use_gpu", R"(; use "training.device")"},
           {"*batch_size", R"(; use "training.batch_size")"},
           {"placement_group_timeout_s", R"(; use "placement_timeout")"},
           {"join_timeout", R"(; use "placement_timeout")"},
           {"placement_timeot", R"(; did you mean "placement_timeout"?)"},
           {"scheduler_step_freq", R"(; use "training.scheduler.frequency")"},
           {"batch_size", R"(; "batch_size" belongs in "training")"},
           {"grace", R"(; "grace" belongs in "stop")"},
           {"betas", R"(; "betas" belongs in "training.optimizer")"},
           {"chekpoint", R"(; did you mean "checkpoint"?)"},
           {"type", ""},
           {"quite_unknown", ""},
           {"a\\nb\\u001b[31m", ""},
       }) {
    INFO(row.top);
    const test::Loaded loaded = test::load_text(R"({"command": ["true"], ")" + std::string(row.top) + R"(": 1})");
    const std::string shown = std::string(row.top) == "a\\nb\\u001b[31m" ? R"(a\nb\u001b[31m)" : row.top;
    CHECK(loaded.lines == Lines{"job.json:1:23: error: unknown key \"" + shown + "\"" + row.advice});
  }
  CHECK(test::load_text(test::training_job("", R"("num_workers": 2)"))
            .lines.front()
            .find(R"("num_workers" belongs at the top level)") != std::string::npos);
}

TEST_CASE("job: keys that are not built yet are refused by name") {
  for (const char* key : {"run_dir", "profiler"}) {
    const test::Loaded loaded = test::load_text(R"({"command": ["true"], ")" + std::string(key) + R"(": {"a": [1]}})");
    CHECK(loaded.lines == Lines{"job.json:1:23: error: \"" + std::string(key) + "\" is not supported yet"});
  }
  CHECK(test::load_text(test::training_job("", "\n\"device\": \"gpu\"")).lines ==
        Lines{R"(job.json:2:11: error: "training.device" "gpu" is not supported: use "cuda")"});
  for (const char* key : {"config"}) {
    INFO(key);
    const test::Loaded loaded = test::load_text(test::training_job("", "\n\"" + std::string(key) + "\": 1"));
    CHECK(loaded.lines == Lines{"job.json:2:1: error: \"training." + std::string(key) + "\" is not supported yet"});
  }
  CHECK(test::load_text(R"({"command": ["true"], "per_worker": {"gpus": 1}})").lines.empty());
  CHECK(test::load_text(test::training_job(R"("per_worker": {"gpus": 1})")).lines.empty());
}

TEST_CASE("job: workers that compute on GPUs have one each") {
  const auto load = [](const char* top, const char* device) {
    return test::load_text(test::training_job(top, "\n\"device\": \"" + std::string(device) + "\""));
  };
  const test::Loaded loaded = load("", "cuda");
  REQUIRE(loaded.lines.empty());
  CHECK(loaded.result.job->per_worker.gpus == 1);
  CHECK(loaded.result.job->resolved->at("per_worker").at("gpus") == 1);
  CHECK(load(R"("per_worker": {"gpus": 2})", "cuda").result.job->per_worker.gpus == 2);
  CHECK_FALSE(load("", "auto").result.job->resolved->at("per_worker").contains("gpus"));
  CHECK(
      load(R"("per_worker": {"gpus": 1})", "cpu").lines ==
      Lines{R"(job.json:1:25: error: "per_worker.gpus" gives workers GPUs, and "training.device" is "cpu", which uses )"
            R"(none: leave it out, or set the device to "cuda")"});
  CHECK(
      load(R"("per_worker": {"gpus": 0})", "cuda").lines ==
      Lines{R"(job.json:1:25: error: "per_worker.gpus" is 0, and "training.device" is "cuda", which needs one: leave )"
            R"(it out, or give 1)"});
}

TEST_CASE("job: accumulation and what happens on NaN") {
  const auto lines = [](const std::string& key) { return test::load_text(test::training_job("", "\n" + key)).lines; };
  CHECK(lines(R"("gradient_accumulation": 4, "on_nan": "skip")").empty());
  CHECK(lines(R"("gradient_accumulation": 0)") ==
        Lines{R"(job.json:2:26: error: "training.gradient_accumulation" must be at least 1, got 0)"});
  CHECK(lines(R"("on_nan": "rollback")").empty());
  CHECK_THAT(lines(R"("on_nan": "skpi")").at(0), Catch::Contains("did you mean \"skip\"?"));
}

TEST_CASE("job: placement, memory and priority") {
  const auto line = [](const std::string& top) {
    return test::load_text("{\"command\": [\"true\"],\n" + top + "}").lines;
  };
  CHECK(line(R"("placement": {"strategy": "spread", "labels": {"gpu": "h100"}, "exclude": ["n3"], "max_per_node": 1})")
            .empty());
  CHECK(
      line(R"("placement": {"strategy": "sprad"})") ==
      Lines{
          R"(job.json:2:27: error: "placement.strategy" must be "pack" or "spread", got "sprad"; did you mean "spread"?)"});
  CHECK(line(R"("placement": {"labels": {"gpu": 1}})") ==
        Lines{R"(job.json:2:33: error: "placement.labels.gpu" must be a string, got 1)"});
  CHECK(line(R"("placement": {"labels": ["gpu"]})") ==
        Lines{R"(job.json:2:25: error: "placement.labels" must be an object, got an array)"});
  CHECK(line(R"("placement": {"exclude": "n3"})") ==
        Lines{R"(job.json:2:26: error: "placement.exclude" must be an array, got "n3")"});
  CHECK(line(R"("placement": {"max_per_node": 0})") ==
        Lines{R"(job.json:2:31: error: "placement.max_per_node" must be at least 1, got 0)"});
  CHECK(line(R"("placement": {"max_per_nodes": 1})") ==
        Lines{R"(job.json:2:15: error: unknown key "max_per_nodes" in "placement"; did you mean "max_per_node"?)"});
  CHECK(line(R"("placement": {"labels": {}, "labels": {}})") ==
        Lines{R"(job.json:2:29: error: duplicate key "labels"; first in line 2)"});
  CHECK(line(R"("strategy": "pack")") ==
        Lines{R"(job.json:2:1: error: unknown key "strategy"; "strategy" belongs in "placement")"});
  CHECK(line(R"("placement_strategy": "PACK")") ==
        Lines{R"(job.json:2:1: error: unknown key "placement_strategy"; use "placement.strategy")"});
  CHECK(line(R"("priority": -5)").empty());
  CHECK(line(R"("priority": 1.5)") == Lines{R"(job.json:2:13: error: "priority" must be an integer, got 1.5)"});
  CHECK(line(R"("priority": 1000001)") ==
        Lines{R"(job.json:2:13: error: "priority" must be at most 1000000, got 1000001)"});
  CHECK(line(R"("per_worker": {"memory": "1.5GB"})").empty());
  CHECK(line(R"("per_worker": {"memory": "4 GiB"})") ==
        Lines{R"(job.json:2:26: error: "per_worker.memory" must be a size such as "512MiB" or "4GiB", got "4 GiB")"});
  CHECK(line(R"("per_worker": {"memory": "0B"})") ==
        Lines{R"(job.json:2:26: error: "per_worker.memory" must be above 0, got "0B")"});
  CHECK(line(R"("per_worker": {"memory": "9000000000TiB"})") ==
        Lines{R"(job.json:2:26: error: "per_worker.memory" must be at most 8 EiB, got "9000000000TiB")"});
}

TEST_CASE("job: where a run begins, and what is run after a save") {
  const auto lines = [](const std::string& top) { return test::load_text(test::training_job("\n" + top)).lines; };
  CHECK(lines(R"("resume_from": "runs/a")").empty());
  CHECK(lines(R"("resume_from": "")") == Lines{R"(job.json:2:16: error: "resume_from" must not be empty)"});
  CHECK(lines(R"("resume_from": {"run": 1})") ==
        Lines{R"(job.json:2:16: error: "resume_from" must be a string, got an object)"});
  CHECK(test::load_text("{\"command\": [\"true\"],\n\"resume_from\": \"a\"}").lines.empty());
  const auto after = [&](const std::string& rule) { return lines(R"("checkpoint": {"after_save": )" + rule + "}"); };
  CHECK(after(R"(["a", "b"])").empty());
  CHECK(after(R"({"command": ["a"], "timeout": "1m"})").empty());
  CHECK(
      after(R"("a b")") ==
      Lines{
          R"(job.json:2:30: error: "checkpoint.after_save" must be a list of strings, or an object with "command" and "timeout", got "a b")"});
  CHECK(after("[]") == Lines{R"(job.json:2:30: error: "checkpoint.after_save" must have at least 1 items, got 0)"});
  CHECK(after("[1]") == Lines{R"(job.json:2:31: error: "checkpoint.after_save[0]" must be a string, got 1)"});
  CHECK(after(R"({"timeout": "1m"})") ==
        Lines{R"(job.json:2:30: error: missing key "command" in "checkpoint.after_save")"});
  CHECK(after(R"({"command": ["a"], "timeout": "0s"})") ==
        Lines{R"(job.json:2:60: error: "checkpoint.after_save.timeout" must be above 0, got "0s")"});
  CHECK(after(R"({"comand": ["a"]})") ==
        Lines{R"(job.json:2:31: error: unknown key "comand" in "checkpoint.after_save"; did you mean "command"?)"});
}

TEST_CASE("job: the best checkpoints that are kept") {
  const auto lines = [](const std::string& keep, const std::string& more = "") {
    return test::load_text(test::training_job("\n\"checkpoint\": {\"keep\": " + keep + more + "}")).lines;
  };
  const std::string best = R"({"best": {"metric": "val_loss", "mode": "min"}})";
  CHECK(lines(best).empty());
  CHECK(lines(R"({"latest": 2})").empty());
  CHECK(lines(R"({"best": {"metric": "val_loss"}})") ==
        Lines{R"(job.json:2:33: error: missing key "mode" in "checkpoint.keep.best")"});
  CHECK(lines(R"({"best": {"metric": "val_loss", "mode": "lowest", "n": 0}})") ==
        Lines{R"(job.json:2:64: error: "checkpoint.keep.best.mode" must be "min" or "max", got "lowest")",
              R"(job.json:2:79: error: "checkpoint.keep.best.n" must be at least 1, got 0)"});
  CHECK(lines(R"({"best": {"metrik": "a", "metric": "", "mode": "max"}})") ==
        Lines{R"(job.json:2:34: error: unknown key "metrik" in "checkpoint.keep.best"; did you mean "metric"?)",
              R"(job.json:2:59: error: "checkpoint.keep.best.metric" must not be empty)"});
  CHECK_THAT(lines(best, "},\n\"report\": {\"workers\": \"list\"").at(0),
             Catch::StartsWith("job.json:2:33: error: \"checkpoint.keep.best\" needs values of all workers"));
  CHECK_THAT(lines(best, R"(, "every": {"steps": 5})").at(0),
             Catch::Contains("warning") && Catch::Contains("reports come at the end of an epoch"));
  CHECK_THAT(test::load_text(test::training_job("\n\"checkpoint_score_attribute\": 1")).lines.at(0),
             Catch::Contains("use \"checkpoint.keep.best.metric\""));
}

TEST_CASE("job: values of durations, checkpoints and failures") {
  const auto line = [](const std::string& top) {
    return test::load_text("{\"command\": [\"true\"],\n" + top + "}").lines;
  };
  CHECK(line(R"("checkpoint": {"every": {"steps": 100}, "keep": 1})").empty());
  CHECK(line(R"("checkpoint": {"every": {"seconds": 0.5}})").empty());
  CHECK(line(R"("checkpoint": {"every": "never"})").empty());
  CHECK(
      line(R"("checkpoint": {"every": "step"})") ==
      Lines{
          R"(job.json:2:25: error: "checkpoint.every" must be "epoch", "never", {"steps": N} or {"seconds": N}, got "step")"});
  CHECK(line(R"("checkpoint": {"every": {"seconds": 0}})") ==
        Lines{R"(job.json:2:37: error: "checkpoint.every.seconds" must be above 0, got 0)"});
  CHECK(line(R"("checkpoint": {"every": {"steps": 1, "seconds": 1}})") ==
        Lines{R"(job.json:2:38: error: unknown key "seconds" in "checkpoint.every")"});
  CHECK(line(R"("checkpoint": {"keep": 0})") ==
        Lines{R"(job.json:2:24: error: "checkpoint.keep" must be at least 1, got 0)"});
  CHECK(
      line(R"("checkpoint": {"keep": "all"})") ==
      Lines{
          R"(job.json:2:24: error: "checkpoint.keep" must be an integer from 1, or an object with "latest" and "best", got "all")"});
  CHECK(line(R"("recovery": {"max_failures": "unlimited"})").empty());
  CHECK(
      line(R"("recovery": {"max_failures": "none"})") ==
      Lines{R"(job.json:2:30: error: "recovery.max_failures" must be an integer from 0, or "unlimited", got "none")"});
  CHECK(line(R"("stop": {"grace": 30})") == Lines{R"(job.json:2:19: error: "stop.grace" must be a string, got 30)"});
  CHECK(line(R"("stop": {"grace": "30"})") ==
        Lines{R"(job.json:2:19: error: "stop.grace" must be a duration such as "500ms", "10s" or "5m", got "30")"});
  CHECK(line(R"("stop": {"grace": "99999999h"})") ==
        Lines{R"(job.json:2:19: error: "stop.grace" must be at most ten years, got "99999999h")"});
  CHECK(line(R"("heartbeat": {"interval": "0s"})") ==
        Lines{R"(job.json:2:27: error: "heartbeat.interval" must be above 0, got "0s")"});
  CHECK(line(R"("placement_timeout": "5m", "start": "elastic")").empty());
  CHECK(line(R"("placement_timeout": "0s")") ==
        Lines{R"(job.json:2:22: error: "placement_timeout" must be above 0, got "0s")"});
  CHECK(line(R"("placement_timeout": 100)") ==
        Lines{R"(job.json:2:22: error: "placement_timeout" must be a string, got 100)"});
  CHECK(line(R"("start": "elastc")") ==
        Lines{R"(job.json:2:10: error: "start" must be "strict" or "elastic", got "elastc"; did you mean "elastic"?)"});
  CHECK(line(R"("stop": {"grace": ")" + std::string(100000, '1') + R"("})") ==
        Lines{R"(job.json:2:19: error: "stop.grace" must have at most 32 bytes, got 100000)"});
  CHECK(line(R"("name": "a\u0000b")") == Lines{R"(job.json:2:9: error: "name" must not contain a NUL character)"});
}

TEST_CASE("job: files that cannot be read") {
  const test::TemporaryFolder folder;
  const auto line = [&](const std::string& path) {
    const job::LoadResult result = job::load_job_file(path, {});
    CHECK_FALSE(result.job.has_value());
    return test::lines_of(result.diagnostics, folder.path(""));
  };
  CHECK(line(folder.path("absent.json")) == Lines{"absent.json: error: cannot open: No such file or directory"});
  folder.write("train.json", "{}");
  CHECK(line(folder.path("tarin.json")) ==
        Lines{"tarin.json: error: cannot open: No such file or directory; did you mean train.json?"});
  CHECK(line("/") == Lines{"/: error: is a directory; name a job file"});
  const std::string big = folder.write("big.json", "");
  std::filesystem::resize_file(big, 100 << 20);
  CHECK(line(big) == Lines{"big.json: error: the job file is larger than 1024 KiB"});
  CHECK(line("/dev/zero") ==
        Lines{"/dev/zero: error: is a device, not a file; to read a job from a pipe: sgd-launch - < FILE"});
  const std::string locked = folder.write("locked.json", "{}");
  std::filesystem::permissions(locked, std::filesystem::perms::none);
  if (!std::ifstream(locked)) {  // Root reads anything.
    CHECK(line(locked) == Lines{"locked.json: error: cannot open: Permission denied"});
  }
}

TEST_CASE("job: what was meant by a file that is missing, in a folder of up to 1000") {
  const test::TemporaryFolder folder;
  folder.write("tran.py", "");
  folder.write("tran.json", "");
  CHECK(job::did_you_mean_file(folder.path("trian.py")) == "; did you mean " + folder.path("tran.py") + "?");
  CHECK(job::did_you_mean_file(folder.path("tran.py")).empty());  // It is there.
  CHECK(job::did_you_mean_file(folder.path("trian")).empty());
  CHECK(job::did_you_mean_file(folder.path("none/trian.py")).empty());
  for (int number = 0; number < 998; ++number) folder.write(fmt::format("{}", number), "");
  CHECK_FALSE(job::did_you_mean_file(folder.path("trian.py")).empty());
  folder.write("one-more", "");
  CHECK(job::did_you_mean_file(folder.path("trian.py")).empty());
}

TEST_CASE("job: a training that does not fit the worker link, and a command that does not fit a frame, are refused") {
  const auto list_of = [](int count) {
    std::string words;
    for (int i = 0; i < count; ++i) words += ", \"" + std::string(100, 'x') + "\"";
    return words;
  };
  const auto with = [&](int arguments) {
    return test::load_text(R"({"command": ["true")" + list_of(arguments) + "]}");
  };
  CHECK(with(2500).lines.empty());
  const test::Loaded loaded = with(2600);
  REQUIRE(loaded.lines.size() == 1);
  CHECK(loaded.lines[0].find("the command has 267808 bytes with its arguments; at most 262144: pass what is long in a "
                             "file that the program reads") != std::string::npos);
  const auto wide = [](int variables) {
    std::string environment = R"("A": "")";
    for (int i = 0; i < variables; ++i) environment += fmt::format(R"(, "A{}": "{}")", i, std::string(2500, 'x'));
    return test::load_text(R"({"command": ["true"], "env": {)" + environment + "}}");
  };
  CHECK(wide(80).lines.empty());
  REQUIRE(wide(110).lines.size() == 1);
  CHECK(wide(110).lines[0].find("bytes with its \"env\"; at most 262144") != std::string::npos);
  std::string hosts = R"("a")";
  for (int i = 0; i < 500; ++i) hosts += fmt::format(R"(, "{}{}")", std::string(100, 'n'), i);
  const test::Loaded far = test::load_text(R"({"command": ["true"], "placement": {"exclude": [)" + hosts + "]}}");
  REQUIRE(far.lines.size() == 1);
  CHECK(far.lines[0].find("bytes with its defaults, without its command; at most 49152") != std::string::npos);
}

TEST_CASE("job: a path that JSON cannot carry is refused, and not another one in its place") {
  const test::TemporaryFolder folder;
  const std::string file = folder.write("\xff/job.json", test::training_job(R"("plugins": ["here.so"])"));
  const job::LoadResult loaded = job::load_job_file(file, {});
  CHECK_FALSE(loaded.job);
  std::string said;
  for (const Diagnostic& item : loaded.diagnostics.items) said += item.text() + "\n";
  CHECK_THAT(said, Catch::Contains("its name is not UTF-8"));
}

}  // namespace sgd
