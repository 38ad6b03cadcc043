// "tune" of a job file: what is read of it, and the words for all that is wrong.

#include <catch2/catch.hpp>

#include "launcher/tune/make_scheduler.hpp"
#include "test/unit/common/job_support.hpp"

namespace sgd::tune {
namespace {

using Lines = std::vector<std::string>;

struct Parsed {
  std::optional<ExperimentSpec> spec;
  Lines lines;
};

/// `tune` stands in the second line of the job.
Parsed parse(const std::string& job, const std::string& tune) {
  const sgd::test::TemporaryFolder folder;
  const std::string text = job.substr(0, job.size() - 1) + ",\n\"tune\": " + tune + "}";
  job::LoadResult loaded = job::load_job_file(folder.write("job.json", text), {});
  Diagnostics all = loaded.diagnostics;
  Parsed parsed{parse_experiment(loaded, all), {}};
  parsed.lines = sgd::test::lines_of(all, folder.path(""));
  CHECK(parsed.spec.has_value() == parsed.lines.empty());
  return parsed;
}

Parsed of_training(const std::string& tune) {
  return parse(sgd::test::training_job(), tune);
}

/// A whole "tune" with these keys.
std::string tune(const std::string& keys,
                 const std::string& parameters = R"("training.optimizer.lr": {"uniform": [0, 1]})") {
  return R"({"metric": "val_loss", "mode": "min", "parameters": {)" + parameters + "}" + (keys.empty() ? "" : ", ") +
         keys + "}";
}

Lines lines_of_parameter(const std::string& domain) {
  return of_training("{\"metric\": \"m\", \"mode\": \"max\", \"parameters\": {\n\"training.optimizer.lr\": " + domain +
                     "}}")
      .lines;
}

}  // namespace

TEST_CASE("experiment: everything that it can say") {
  const Parsed parsed = of_training(R"({
    "parameters": {"training.optimizer.lr": {"loguniform": [1e-4, 1e-1]}, "training.batch_size": {"grid": [8, 16]}},
    "samples": 12, "seed": 3, "metric": "val_accuracy", "mode": "max", "concurrent": 4,
    "stop": {"val_accuracy": 0.98, "epochs": 100, "val_loss": {"at_most": 0.1}, "time": {"at_least": 5}},
    "scheduler": {"type": "asha", "grace_epochs": 2, "mode": "promote"},
    "search": {"type": "random"}, "max_failures": 2})");
  REQUIRE(parsed.lines == Lines{});
  const ExperimentSpec& spec = *parsed.spec;
  CHECK(spec.parameters.domains.size() == 2);
  CHECK(spec.samples == 12);
  CHECK(spec.trials() == 24);
  CHECK(spec.seed == 3);
  CHECK(spec.metric == "val_accuracy");
  CHECK(spec.mode == Mode::kMax);
  CHECK(spec.concurrent == 4);
  CHECK(spec.max_failures == 2);
  CHECK(spec.stop_epochs == 100);
  CHECK(spec.scheduler.promotes);
  CHECK(spec.scheduler.max_epochs == 100);
  CHECK(spec.scheduler.grace_epochs == 2);
  CHECK(bound_reached(spec, 5, {{"val_accuracy", 0.97}, {"val_loss", 0.2}, {"time", 4}}).empty());
  CHECK(bound_reached(spec, 5, {{"val_accuracy", 0.98}}) == "val_accuracy 0.98 is at least 0.98");
  CHECK(bound_reached(spec, 5, {{"val_loss", 0.05}}) == "val_loss 0.05 is at most 0.1");
  CHECK(bound_reached(spec, 5, {{"val_accuracy", nullptr}, {"val_loss", "x"}}).empty());
  CHECK(bound_reached(spec, 100, {}) == "epoch 100 is the last (\"tune.stop.epochs\")");
}

TEST_CASE("experiment: what it does not say is as the schema says") {
  for (const char* type : {"fifo", "asha", "hyperband", "median", "pbt"}) {
    INFO(type);
    const Parsed parsed = of_training(
        tune(R"("samples": 2, "stop": {"epochs": 100}, "scheduler": {"type": ")" + std::string(type) + "\"}"));
    REQUIRE(parsed.lines == Lines{});
    SchedulerSpec expected;
    expected.type = type;
    const SchedulerSpec& got = parsed.spec->scheduler;
    CHECK(got.grace_epochs == expected.grace_epochs);
    CHECK(got.reduction_factor == (expected.type == "hyperband" ? 3 : 4));
    CHECK(got.brackets == expected.brackets);
    CHECK(got.promotes == expected.promotes);
    CHECK(got.startup_trials == expected.startup_trials);
    CHECK(got.warmup_epochs == expected.warmup_epochs);
    CHECK(got.interval_epochs == expected.interval_epochs);
    CHECK(got.least_trials == expected.least_trials);
    CHECK(got.burn_in_epochs == expected.burn_in_epochs);
    CHECK(got.quantile == expected.quantile);
    CHECK(got.resample_probability == expected.resample_probability);
    CHECK(got.factors == expected.factors);
    CHECK(make_scheduler(*parsed.spec) != nullptr);
  }
  const Parsed parsed = of_training(tune(""));
  REQUIRE(parsed.lines == Lines{});
  CHECK(parsed.spec->scheduler.type == "fifo");
  CHECK(parsed.spec->samples == 1);
  CHECK(parsed.spec->seed == 0);
  CHECK(parsed.spec->concurrent == 0);
  CHECK(parsed.spec->max_failures == 0);
  CHECK(parsed.spec->search.kind == SearchSpec::Kind::kRandom);
  CHECK(bound_reached(*parsed.spec, 1'000'000, {{"val_loss", 0}}).empty());
  const Parsed exec = of_training(tune(R"("search": {"type": "exec", "command": ["a", "b"]}, "samples": 7)"));
  REQUIRE(exec.lines == Lines{});
  CHECK(exec.spec->search.command == Lines{"a", "b"});
  CHECK(exec.spec->search.timeout == std::chrono::minutes(1));
  CHECK(exec.spec->trials() == 7);
}

TEST_CASE("experiment: a resolved job means the same again") {
  const job::LoadResult loaded = job::load_resolved(
      {{"command", {"true"}},
       {"tune", {{"parameters", {{"lr", {{"uniform", {0, 1}}}}}}, {"metric", "m"}, {"mode", "max"}}}});
  REQUIRE(loaded.job.has_value());
  CHECK(loaded.job->tune.at("scheduler") == nlohmann::json{{"type", "fifo"}});
  const job::LoadResult again = job::load_resolved(loaded.job->resolved);
  REQUIRE(again.job.has_value());
  CHECK(again.job->resolved == loaded.job->resolved);
  Diagnostics diagnostics;
  CHECK(parse_experiment(again, diagnostics).has_value());
  const job::LoadResult none = job::load_resolved({{"command", {"true"}}});
  CHECK(none.job->tune.is_null());
  CHECK_FALSE(parse_experiment(none, diagnostics).has_value());
  CHECK_FALSE(diagnostics.has_errors());
}

TEST_CASE("experiment: domains that make no sense, each at its place") {
  struct Row {
    const char* domain;
    const char* line;
  };
  const std::string at = R"("tune.parameters.training.optimizer.lr)";
  const Row rows[] = {
      {R"({"grid": []})", R"(3:35: error: @.grid" must have at least 1 items, got 0)"},
      {R"({"grid": [0.1, 0.2, 0.1]})", R"(3:35: error: @.grid" must list each value once, got 0.1 twice)"},
      {R"({"uniform": [1, 1]})",
       R"(3:38: error: @.uniform" must have its low end below its high end, got 1.0 and 1.0)"},
      {R"({"uniform": [1]})", R"(3:38: error: @.uniform" must have exactly 2 items, got 1)"},
      {R"({"uniform": [0, "1"]})", R"(3:42: error: @.uniform[1]" must be a number, got "1")"},
      {R"({"loguniform": [0, 1]})", R"(3:41: error: @.loguniform" must have a low end above 0, got 0.0)"},
      {R"({"quniform": [0, 1, 0]})", R"(3:39: error: @.quniform" must have a step above 0, got 0.0)"},
      {R"({"quniform": [0, 1, 0.3]})",
       R"(3:39: error: @.quniform" must have ends that are multiples of its step 0.3, got 1.0)"},
      {R"({"randint": [0.5, 1]})", R"(3:39: error: @.randint[0]" must be an integer, got 0.5)"},
      {R"({"normal": [0, 0]})", R"(3:37: error: @.normal" must have a deviation above 0, got 0.0)"},
      {R"({"loguniforn": [1, 2]})", R"(3:27: error: unknown key "loguniforn" in @"; did you mean "loguniform"?)"},
      {R"({})",
       R"(3:26: error: @" must have exactly one key, which names its domain ("grid", "choice", "uniform", "loguniform", "quniform", "qloguniform", "randint", "qrandint" or "normal"), got 0)"},
      {R"(0.1)", R"(3:26: error: @" must be an object, got 0.1)"},
      {R"({"uniform": [-1, 1]})",
       R"(3:26: error: parameter "training.optimizer.lr": "training.optimizer.lr" must be at least 0, got -1.0)"},
      {R"({"choice": [0.1, "x"]})",
       R"(3:26: error: parameter "training.optimizer.lr": "training.optimizer.lr" must be a number, got "x")"},
  };
  for (const Row& row : rows) {
    INFO(row.domain);
    std::string expected = std::string("job.json:") + row.line;
    if (const auto mark = expected.find('@'); mark != std::string::npos) expected.replace(mark, 1, at);
    CHECK(lines_of_parameter(row.domain) == Lines{expected});
  }
}

TEST_CASE("experiment: paths that the job file has no place for") {
  const auto lines = [](const std::string& path) {
    return of_training("{\"metric\": \"m\", \"mode\": \"max\", \"parameters\": {\n\"" + path +
                       "\": {\"choice\": [1]}}}")
        .lines;
  };
  CHECK(
      lines("training.optimizer.lrr") ==
      Lines{
          R"(job.json:3:27: error: parameter "training.optimizer.lrr": unknown key "lrr" in "training.optimizer" of type "sgd"; did you mean "lr"?)"});
  CHECK(lines("lr").size() == 1);
  CHECK_THAT(lines("lr").front(), Catch::Contains("unknown key \"lr\""));
  CHECK_THAT(lines("training..lr").front(), Catch::Contains("keys with dots between them"));
  CHECK_THAT(lines("tune.samples").front(), Catch::Contains("is no parameter"));
  CHECK_THAT(lines("name").front(), Catch::Contains("is no parameter"));
  // Looked at once, when the experiment is submitted; "checkpoint" would bring its "after_save" along.
  for (const char* path : {"callbacks", "checkpoint", "checkpoint.after_save.command", "resume_from", "priority"})
    CHECK_THAT(lines(path).front(), Catch::Contains("is no parameter: all trials have the same"));
  CHECK(lines("training.seed").empty());
  // A command has names of its own.
  const std::string of_command =
      R"({"metric": "m", "mode": "max", "parameters": {"lr": {"choice": [1]}, "a b": {"choice": [1]}}})";
  CHECK(parse(R"({"command": ["true"]})", of_command).lines.size() == 1);
}

TEST_CASE("experiment: all errors at once, each at its place") {
  CHECK(
      of_training(R"({"parameters": {}, "samples": 0, "metrik": "m",
"scheduler": {"type": "ashaa"}, "stop": {"epochs": 0, "val_loss": 1}, "concurrent": 0})")
          .lines ==
      Lines{
          R"(job.json:2:9: error: missing key "metric" in "tune")",
          R"(job.json:2:9: error: missing key "mode" in "tune")",
          R"(job.json:2:39: error: "tune.samples" must be at least 1, got 0)",
          R"(job.json:2:42: error: unknown key "metrik" in "tune"; did you mean "metric"?)",
          R"(job.json:3:23: error: "tune.scheduler.type" must be "asha", "fifo", "hyperband", "median" or "pbt", got "ashaa"; did you mean "asha"?)",
          R"(job.json:3:85: error: "tune.concurrent" must be at least 1, got 0)",
          R"(job.json:2:24: error: "tune.parameters" must have at least one parameter)",
          R"(job.json:3:52: error: "tune.stop.epochs" must be an integer from 1 to 1000000000, got 0)"});
}

TEST_CASE("experiment: conditions between its keys") {
  struct Row {
    std::string keys;
    const char* words;
  };
  const Row rows[] = {
      {R"("stop": {"time": 5})", "\"tune.stop.time\" must say in which direction"},
      {R"("stop": {"time": {}})", "\"tune.stop.time\" must have either \"at_least\" or \"at_most\""},
      {R"("search": {"type": "grid"})", "is a uniform, whose values cannot be counted"},
      {R"("search": {"type": "optuna"})", "\"optuna\" is not supported: use \"exec\" with scripts/optuna_search.py"},
      {R"("search": {"type": "exec"})", "missing key \"command\" in \"tune.search\""},
      {R"("search": {"type": "exec", "command": ["a"], "timeout": "0s"})", "\"tune.search.timeout\" must be above 0"},
      {R"("scheduler": {"type": "asha", "max_epochs": 4, "grace_epochs": 5})",
       "must be at most the most epochs of a trial (4), got 5"},
      {R"("scheduler": {"type": "asha", "max_epochs": 16, "brackets": 4})",
       "must be at most 3, the rungs from 1 to 16 epochs"},
      {R"("scheduler": {"type": "asha", "max_epochs": 16, "brackets": 2, "mode": "promote"})",
       "must be 1 with the mode"},
      {R"("scheduler": {"type": "pbt"})", "must be at least 2 with the scheduler \"pbt\""},
      {R"("samples": 4, "scheduler": {"type": "pbt", "mutates": ["x"]})", "names \"x\", which is not in"},
      {R"("scheduler": {"type": "pbt"}, "search": {"type": "exec", "command": ["a"]}, "samples": 3)",
       "exclude each other"},
      {R"("scheduler": {"type": "ASHAScheduler"})", "\"ASHAScheduler\" is called \"asha\" here"},
      {R"("scheduler": {"type": "asha", "max_t": 5})", "use \"tune.scheduler.max_epochs\""},
  };
  for (const Row& row : rows) {
    INFO(row.keys);
    const Parsed parsed = of_training(tune(row.keys));
    REQUIRE(parsed.lines.size() == 1);
    CHECK_THAT(parsed.lines.front(), Catch::Contains(row.words));
  }
  CHECK_THAT(of_training(tune(R"("samples": 2, "scheduler": {"type": "pbt"})", R"("training.seed": {"grid": [1, 2]})"))
                 .lines.at(0),
             Catch::Contains("has nothing to change"));
  const std::string without =
      R"({"training": {"batch_size": 8, "loss": "mse", "model": {"type": "linear"}, "dataset": {"type": "linear"}}, "checkpoint": {"every": "never"}})";
  CHECK_THAT(parse(without, tune(R"("scheduler": {"type": "hyperband", "max_epochs": 9})")).lines.at(0),
             Catch::Contains("the scheduler \"hyperband\" goes on from checkpoints"));
  const std::string own = R"("lr": {"uniform": [0, 1]})";
  CHECK_THAT(parse(R"({"command": ["true"]})", tune(R"("scheduler": {"type": "hyperband"})", own)).lines.at(0),
             Catch::Contains("missing key \"max_epochs\""));
  CHECK(parse(R"({"command": ["true"]})", tune(R"("scheduler": {"type": "hyperband"}, "stop": {"epochs": 9})", own))
            .lines.empty());
}

TEST_CASE("experiment: two parameters that a command would find in one variable") {
  const std::string two = R"("a_b": {"uniform": [0, 1]}, "A_b": {"uniform": [0, 1]})";
  const Lines lines = parse(R"({"command": ["true"]})", tune("", two)).lines;
  REQUIRE(lines.size() == 1);
  CHECK_THAT(lines.front(),
             Catch::Contains(R"(parameters "A_b" and "a_b" would both be SGD_PARAM_A_B: rename one of them)"));
  const std::string path = R"("env.a": {"choice": ["x", "y"]}, "env_a": {"uniform": [0, 1]})";
  CHECK_THAT(parse(R"({"command": ["true"], "env": {"a": "x"}})", tune("", path)).lines.at(0),
             Catch::Contains("would both be SGD_PARAM_ENV_A"));
}

TEST_CASE("experiment: limits of trials and parameters") {
  std::string grids;
  for (const char* key : {"seed", "epochs", "batch_size"}) {
    grids += std::string(grids.empty() ? "" : ", ") + "\"training." + key + "\": {\"grid\": [";
    for (int i = 8; i < 1008; ++i) grids += (i > 8 ? "," : "") + std::to_string(i);
    grids += "]}";
  }
  CHECK_THAT(
      of_training(tune(R"("samples": 2)", grids)).lines.at(0),
      Catch::Contains("the grids make 2000000000 trials: 1000 (training.batch_size) x 1000 (training.epochs) x 1000 "
                      "(training.seed) x 2 (samples); at most 100000"));
  static_assert(kTrialsMax == 100'000);
  CHECK(of_training(tune(R"("samples": 100000)")).lines.empty());
  CHECK_THAT(of_training(tune(R"("samples": 100001)")).lines.at(0), Catch::Contains("at most 100000"));
  CHECK_THAT(of_training(tune(R"("samples": 50001)", R"("training.seed": {"grid": [1, 2]})")).lines.at(0),
             Catch::Contains("the grids make 100002 trials"));
  std::string own;
  for (std::size_t i = 0; i <= kParametersMax; ++i)
    own += std::string(i > 0 ? ", " : "") + "\"p" + std::to_string(i) + "\": {\"uniform\": [0, 1]}";
  CHECK_THAT(parse(R"({"command": ["true"]})", tune("", own)).lines.at(0),
             Catch::Contains("\"tune.parameters\" must have at most 256 members, got 257"));
  std::string listed = "\"training.seed\": {\"choice\": [";
  for (std::size_t i = 0; i <= kListedValuesMax; ++i) listed += (i > 0 ? "," : "") + std::to_string(i);
  CHECK_THAT(of_training(tune("", listed + "]}")).lines.at(0),
             Catch::Contains("must have at most 10000 items, got 10001"));
}

}  // namespace sgd::tune
