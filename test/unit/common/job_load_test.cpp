// From good job files, overrides and resolved jobs to typed values.

#include <catch2/catch.hpp>

#include "common/job/cluster_checks.hpp"
#include "job_support.hpp"

namespace sgd {
namespace {

using Lines = std::vector<std::string>;
using namespace std::chrono_literals;

/// What a resolved job turns into is itself.
void check_resolved(const job::JobSpec& spec) {
  const job::LoadResult again = job::load_resolved(spec.resolved);
  CHECK(test::lines_of(again.diagnostics, "\n").size() <= 1);  // The batch-size warning at most.
  REQUIRE(again.job.has_value());
  CHECK(again.job->resolved == spec.resolved);
}

}  // namespace

TEST_CASE("job: every file in configs/ is good") {
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SGD_SOURCE_DIR "/configs")) {
    const std::string name = entry.path().filename().string();
    if (entry.path().extension() != ".json" || name == "job.schema.json") continue;
    INFO(name);
    ++files;
    const job::LoadResult loaded = job::load_job_file(entry.path().string(), {});
    CHECK(test::lines_of(loaded.diagnostics, "\n").empty());
    REQUIRE(loaded.job.has_value());
    check_resolved(*loaded.job);
  }
  CHECK(files >= 2);
}

TEST_CASE("job: the main job, typed") {
  const job::LoadResult loaded = job::load_job_file(SGD_SOURCE_DIR "/configs/fashion_mnist.json", {});
  REQUIRE(loaded.job.has_value());
  const job::JobSpec& job = *loaded.job;
  CHECK(job.name == "fashion-mnist-cnn");
  CHECK(job.num_workers == 2);
  CHECK(job.min_workers == 1);
  CHECK(job.per_worker.cpus == 1);
  CHECK(job.recovery.max_failures == 3);
  CHECK(job.recovery.backoff.first == Duration(1s));
  CHECK(job.recovery.backoff.attempts == 10);
  CHECK(job.recovery.cooldown == Duration(10s));
  CHECK(job.recovery.exclude_after == 2);
  CHECK(job.heartbeat.interval == Duration(500ms));
  CHECK(job.heartbeat.stall_timeout == Duration(10min));
  CHECK(job.stop.grace == Duration(30s));
  CHECK(job.checkpoint.every == job::CheckpointPolicy::Every::kEpoch);
  CHECK(job.checkpoint.keep == 3);
  CHECK(job.fork_server);
  CHECK(job.placement_timeout == Duration(100s));
  CHECK_FALSE(job.elastic_start);
  CHECK(job.command.empty());
  REQUIRE(job.training.has_value());
  const job::Training& training = *job.training;
  CHECK(training.seed == 1);
  CHECK(training.epochs == 5);
  CHECK(training.batch_size == 128);
  CHECK(training.shuffle);
  CHECK(
      training.model ==
      nlohmann::json({{"type", "cnn"}, {"channels", {32, 64}}, {"hidden", 128}, {"outputs", 10}, {"init", "default"}}));
  CHECK(training.dataset == nlohmann::json({{"type", "idx"}, {"path", "/usr/share/datasets/fashion-mnist"}}));
  CHECK(training.optimizer.type == "sgd");
  CHECK(training.optimizer.lr == 0.05);
  CHECK(training.optimizer.momentum == 0.9);
  REQUIRE(training.scheduler.has_value());
  CHECK(training.scheduler->frequency == "epoch");
  CHECK(training.scheduler->chain ==
        std::vector<nlohmann::json>{{{"type", "step"}, {"step_size", 2}, {"gamma", 0.5}, {"frequency", "epoch"}}});
  CHECK(job.locations.at("training.dataset.path").line == 12);
}

TEST_CASE("job: defaults by kind") {
  const test::Loaded training = test::load_text(test::training_job());
  REQUIRE(training.result.job.has_value());
  CHECK(training.result.job->recovery.max_failures == 3);
  CHECK(training.result.job->name == "job");  // The file's name.
  CHECK_FALSE(training.result.job->training->scheduler.has_value());
  CHECK(training.result.job->training->model ==
        nlohmann::json({{"type", "linear"}, {"inputs", 1}, {"outputs", 1}, {"init", "default"}}));
  check_resolved(*training.result.job);
  const test::Loaded command = test::load_text(R"({"command": ["python3", "train.py"]})");
  REQUIRE(command.result.job.has_value());
  CHECK(command.result.job->recovery.max_failures == 0);
  check_resolved(*command.result.job);
  const test::Loaded unlimited = test::load_text(R"({"command": ["true"], "recovery": {"max_failures": "unlimited"}})");
  REQUIRE(unlimited.result.job.has_value());
  CHECK(unlimited.result.job->recovery.max_failures == job::kUnlimited);
  check_resolved(*unlimited.result.job);
}

TEST_CASE("job: what is kept of checkpoints, as a number and as an object") {
  const auto policy = [](const std::string& keep) {
    const test::Loaded loaded = test::load_text(test::training_job(R"("checkpoint": {"keep": )" + keep + "}"));
    REQUIRE(loaded.result.job.has_value());
    check_resolved(*loaded.result.job);
    return loaded.result.job->checkpoint;
  };
  CHECK(policy("7").keep == 7);
  CHECK_FALSE(policy("7").best.has_value());
  CHECK(policy("{}").keep == 3);
  const job::CheckpointPolicy best = policy(R"({"latest": 2, "best": {"metric": "accuracy", "mode": "max"}})");
  CHECK(best.keep == 2);
  REQUIRE(best.best.has_value());
  CHECK(best.best->metric == "accuracy");
  CHECK(best.best->is_highest);
  CHECK(best.best->count == 1);
  CHECK_FALSE(policy(R"({"best": {"metric": "a", "mode": "min", "n": 4}})").best->is_highest);
}

TEST_CASE("job: a place to begin is a path from the job's folder, or a word that may be a run's name") {
  const auto place = [](const std::string& value) {
    const test::Loaded loaded = test::load_text(test::training_job("\"resume_from\": \"" + value + "\""));
    REQUIRE(loaded.result.job.has_value());
    check_resolved(*loaded.result.job);
    CHECK(loaded.result.job->resolved->at("resume_from") == loaded.result.job->resume_from);
    const std::string& found = loaded.result.job->resume_from;
    return found.starts_with(loaded.result.folder) ? "." + found.substr(loaded.result.folder.size()) : found;
  };
  CHECK(place("a-run") == "a-run");
  CHECK(place("./a-run") == "./a-run");
  CHECK(place("runs/../a/") == "./a");
  CHECK(place("/x/y") == "/x/y");
}

TEST_CASE("job: a command after each save, with its time") {
  const auto rule = [](const std::string& text) {
    const test::Loaded loaded = test::load_text(test::training_job(R"("checkpoint": {"after_save": )" + text + "}"));
    REQUIRE(loaded.result.job.has_value());
    check_resolved(*loaded.result.job);
    return *loaded.result.job->checkpoint.after_save;
  };
  CHECK(rule(R"(["a", "b"])").command == std::vector<std::string>{"a", "b"});
  CHECK(rule(R"(["a", "b"])").timeout == Duration(10min));
  CHECK(rule(R"({"command": ["a"], "timeout": "5s"})").timeout == Duration(5s));
}

TEST_CASE("job: what names folders and programs of this machine is not for a cluster") {
  const auto said = [](const std::string& top) {
    test::Loaded loaded = test::load_text(test::training_job("\n" + top));
    REQUIRE(loaded.lines.empty());
    job::check_for_cluster(loaded.result);
    return loaded.result.diagnostics.items.empty() ? "" : loaded.result.diagnostics.items.front().text();
  };
  CHECK(said(R"("resume_from": "a-run")").empty());
  CHECK_THAT(said(R"("resume_from": "./a")"),
             Catch::Contains(":2:16: error: \"resume_from\" is a path, which is for a run on this machine"));
  CHECK_THAT(said(R"("checkpoint": {"after_save": ["a"]})"),
             Catch::Contains(":2:30: error: \"checkpoint.after_save\" is for a run on this machine"));
}

TEST_CASE("job: optimizers have their own defaults") {
  const auto optimizer = [](const char* text) {
    const test::Loaded loaded = test::load_text(test::training_job("", R"("optimizer": )" + std::string(text)));
    REQUIRE(loaded.result.job.has_value());
    check_resolved(*loaded.result.job);
    return loaded.result.job->training->optimizer;
  };
  CHECK(optimizer(R"({"type": "sgd"})").lr == 0.01);
  CHECK(optimizer(R"({"type": "adam"})").lr == 0.001);
  CHECK(optimizer(R"({"type": "adam"})").weight_decay == 0);
  CHECK(optimizer(R"({"type": "adamw"})").weight_decay == 0.01);
  const job::Optimizer adam = optimizer(R"({"type": "adam", "betas": [0.5, 0.99], "eps": 1e-6})");
  CHECK(adam.beta1 == 0.5);
  CHECK(adam.beta2 == 0.99);
  CHECK(adam.eps == 1e-6);
  CHECK(optimizer(R"({"type": "sgd", "nesterov": true, "momentum": 0.9})").nesterov);
  CHECK(test::load_text(test::training_job("", "\n\"optimizer\": {\"type\": \"sgd\", \"nesterov\": true}")).lines ==
        Lines{R"(job.json:2:42: error: "training.optimizer.nesterov" needs momentum above 0 and dampening 0)"});
}

TEST_CASE("job: overrides have the schema's types") {
  const auto load = [](const std::vector<std::string>& sets) {
    const job::LoadResult loaded =
        job::load_job_file(SGD_SOURCE_DIR "/configs/fashion_mnist.json", test::overrides(sets));
    REQUIRE(loaded.job.has_value());
    check_resolved(*loaded.job);
    return *loaded.job;
  };
  CHECK(load({"name=1e3"}).name == "1e3");
  CHECK(load({"name=\"quoted\""}).name == "quoted");
  CHECK(load({"training.optimizer.lr=1e-3"}).training->optimizer.lr == 1e-3);
  CHECK(load({"training.epochs=7", "training.epochs=8"}).training->epochs == 8);
  CHECK(load({"stop.grace=5m"}).stop.grace == Duration(5min));
  CHECK(load({"placement_timeout=1m"}).placement_timeout == Duration(1min));
  CHECK(load({"start=elastic"}).elastic_start);
  CHECK(load({"recovery.max_failures=unlimited"}).recovery.max_failures == job::kUnlimited);
  CHECK(load({"recovery.max_failures=5"}).recovery.max_failures == 5);
  CHECK(load({"checkpoint.every={\"steps\": 10}"}).checkpoint.steps == 10);
  CHECK(load({"checkpoint.every=never"}).checkpoint.every == job::CheckpointPolicy::Every::kNever);
  CHECK(load({"training.model={\"type\":\"mlp\"}"}).training->model["hidden"] == nlohmann::json({256, 128}));
  CHECK(load({"training.model={\"type\":\"mlp\"}", "training.model.hidden=[32]"}).training->model["hidden"] ==
        nlohmann::json({32}));
  CHECK(load({"training.shuffle=false"}).training->shuffle == false);
  CHECK(load({"training.model.init=zeros"}).training->model["init"] == "zeros");
  CHECK(load({"per_worker.cpus=2"}).per_worker.cpus == 2);
  CHECK(load({"per_worker.memory=4GiB"}).per_worker.memory_bytes == std::int64_t{4} << 30);
  CHECK(load({}).per_worker.memory_bytes == 0);
  CHECK(load({}).placement.strategy == job::PlacementRules::Strategy::kPack);
  CHECK(load({"placement.strategy=spread"}).placement.strategy == job::PlacementRules::Strategy::kSpread);
  CHECK(load({"placement.labels.gpu=h100", "placement.labels.zone=2"}).placement.labels ==
        std::map<std::string, std::string>{{"gpu", "h100"}, {"zone", "2"}});
  CHECK(load({"placement.exclude=[\"n3\"]"}).placement.exclude == std::vector<std::string>{"n3"});
  CHECK(load({"placement.max_per_node=2"}).placement.max_per_node == 2);
  CHECK(load({"priority=7"}).priority == 7);
}

TEST_CASE("job: an override creates what is not in the file") {
  const test::Loaded loaded =
      test::load_text(test::training_job(), {"training.optimizer.lr=0.5", "recovery.backoff.first=2s"});
  CHECK(loaded.lines.empty());
  REQUIRE(loaded.result.job.has_value());
  CHECK(loaded.result.job->training->optimizer.type == "sgd");
  CHECK(loaded.result.job->training->optimizer.lr == 0.5);
  CHECK(loaded.result.job->recovery.backoff.first == Duration(2s));
}

TEST_CASE("job: errors of overrides stand under their own names") {
  const auto lines = [](const std::vector<std::string>& sets) {
    return test::load_text("{\"num_workers\": 2, \"command\": [\"true\"]}", sets).lines;
  };
  CHECK(lines({"num_workers=0"}) == Lines{R"(--set num_workers: error: "num_workers" must be at least 1, got 0)"});
  CHECK(lines({"num_workers="}) == Lines{R"(--set num_workers: error: "num_workers" must be an integer, got "")"});
  CHECK(lines({"num_workers=two"}) ==
        Lines{R"(--set num_workers: error: "num_workers" must be an integer, got "two")"});
  CHECK(lines({"num_workers.x=1"}) == Lines{R"(--set num_workers.x: error: "num_workers" is not an object)"});
  CHECK(lines({"stop..grace=1s"}) ==
        Lines{"--set stop..grace: error: the path must be keys with dots between them, such as training.epochs"});
  CHECK(lines({"=1"}) == Lines{"--set : error: the path must be keys with dots between them, such as training.epochs"});
  CHECK(lines({"stop={\"grace\": \"1s\""}) ==
        Lines{"--set stop: error: not JSON: the file ends too early (truncated?) (character 15)"});
  CHECK(lines({"stop={\"grace\": \"1\", \"a\": 1}"}) ==
        Lines{R"(--set stop: error: unknown key "a" in "stop")",
              R"(--set stop: error: "stop.grace" must be a duration such as "500ms", "10s" or "5m", got "1")"});
  CHECK(lines({"name=\xff"}) == Lines{"--set name: error: \"name\" must be UTF-8, got \"\xef\xbf\xbd\""});
  CHECK(lines({"min_workers=3"}) ==
        Lines{R"(--set min_workers: error: "min_workers" must be at most "num_workers" (2), got 3)"});
}

TEST_CASE("job: relative paths start at the job file") {
  const test::TemporaryFolder folder;
  const std::string text =
      R"({"training": {"batch_size": 8, "model": {"type": "cnn"}, "dataset": {"type": "idx", "path": "PATH"}}})";
  const auto path_of = [&](const std::string& path) {
    std::string job = text;
    job.replace(job.find("PATH"), 4, path);
    const job::LoadResult loaded = job::load_job_file(folder.write("sub/job.json", job), {});
    REQUIRE(loaded.job.has_value());
    check_resolved(*loaded.job);
    return loaded.job->training->dataset["path"].get<std::string>();
  };
  CHECK(path_of("data") == folder.path("sub/data"));
  CHECK(path_of("../data/") == folder.path("data"));
  CHECK(path_of("./a/../b") == folder.path("sub/b"));
  CHECK(path_of("/abs/x") == "/abs/x");
  CHECK(path_of(".") == folder.path("sub"));
}

TEST_CASE("job: a run's own job is read again, with paths from where overrides are typed") {
  const test::TemporaryFolder folder;
  const char* const kJob =
      R"({"training": {"batch_size": 8, "model": {"type": "cnn"}, "dataset": {"type": "idx", "path": "p"}}})";
  const job::LoadResult first = job::load_job_file(folder.write("a/first.json", kJob), {});
  REQUIRE(first.job.has_value());
  const std::string file = folder.write("run/job.json", first.job->resolved->dump());
  CHECK(job::load_run_job(file, {}).job->resolved == first.job->resolved);
  const auto changed = job::load_run_job(file, test::overrides({"training.dataset.path=data", "training.epochs=9"}));
  REQUIRE(changed.job.has_value());
  CHECK(changed.job->name == first.job->name);
  CHECK(changed.job->training->epochs == 9);
  CHECK(changed.job->training->dataset["path"] == (std::filesystem::current_path() / "data").string());
  CHECK_FALSE(job::load_run_job(folder.path("run/none.json"), {}).job.has_value());
}

TEST_CASE("job: commands from the command line") {
  job::LoadResult loaded =
      job::load_command_job({"/usr/bin/my prog.py", "--set", "a b"}, test::overrides({"num_workers=4"}));
  REQUIRE(loaded.job.has_value());
  CHECK(loaded.job->command == std::vector<std::string>{"/usr/bin/my prog.py", "--set", "a b"});
  CHECK(loaded.job->name == "my-prog.py");
  CHECK(loaded.job->num_workers == 4);
  CHECK_FALSE(loaded.job->training.has_value());
  check_resolved(*loaded.job);
  CHECK(job::load_command_job({"***"}, {}).job->name == "job");
  CHECK(test::lines_of(job::load_command_job({}, {}).diagnostics, "\n") ==
        Lines{R"(command line: error: "command" must have at least 1 items, got 0)"});
  CHECK(test::lines_of(job::load_command_job({"echo", "\xff"}, {}).diagnostics, "\n") ==
        Lines{"command line: error: \"command[1]\" must be UTF-8, got \"\xef\xbf\xbd\""});
  CHECK(test::lines_of(job::load_command_job({"true"}, test::overrides({"training={}"})).diagnostics, "\n").size() >=
        1);
}

TEST_CASE("job: comments and $schema") {
  const test::Loaded loaded =
      test::load_text("// A job.\n{\"$schema\": \"job.schema.json\", \"command\": [\"true\"] // Nothing.\n}");
  CHECK(loaded.lines.empty());
  REQUIRE(loaded.result.job.has_value());
  CHECK_FALSE(loaded.result.job->resolved->contains("$schema"));
}

}  // namespace sgd
