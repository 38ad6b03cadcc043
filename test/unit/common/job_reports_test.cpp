// What a job measures and reports: "training.metrics", "training.profile", "training.info" and "report".

#include <catch2/catch.hpp>

#include "common/job/check_reports.hpp"
#include "common/job/metric_key.hpp"
#include "job_support.hpp"

namespace sgd {
namespace {

using Errors = std::vector<std::string>;

/// A job that learns classes, whose second line is `key` with this value.
test::Loaded load_of_classes(const std::string& metrics, const std::string& model = R"({"type": "mlp", "inputs": 1})") {
  return test::load_text(R"({"training": {"batch_size": 8, "model": )" + model +
                         R"(, "dataset": {"type": "synthetic"},)" + "\n\"metrics\": " + metrics + "}}");
}

test::Loaded load_report(const std::string& workers, int num_workers = 4) {
  return test::load_text(R"({"command": ["true"], "num_workers": )" + std::to_string(num_workers) +
                         ",\n\"report\": {\"workers\": " + workers + "}}");
}

job::ReportRules report_of(const std::string& workers) {
  const test::Loaded loaded = load_report(workers);
  CHECK(loaded.lines == Errors{});
  REQUIRE(loaded.result.job.has_value());
  const job::LoadResult again = job::load_resolved(loaded.result.job->resolved);
  REQUIRE(again.job.has_value());
  CHECK(again.job->resolved == loaded.result.job->resolved);
  return loaded.result.job->report;
}

}  // namespace

TEST_CASE("job: metrics by name and with settings are the same, with their defaults") {
  const test::Loaded loaded = load_of_classes(R"(["accuracy", {"type": "top_k", "k": 3, "on": "both"}, "f_beta"])");
  CHECK(loaded.lines == Errors{});
  REQUIRE(loaded.result.job.has_value());
  const std::vector<nlohmann::json>& metrics = loaded.result.job->training->metrics;
  REQUIRE(metrics.size() == 3);
  CHECK(metrics[0] == nlohmann::json{{"type", "accuracy"}, {"ignore_index", -100}, {"on", "validation"}});
  CHECK(metrics[1] == nlohmann::json{{"type", "top_k"}, {"k", 3}, {"ignore_index", -100}, {"on", "both"}});
  CHECK(metrics[2] ==
        nlohmann::json{
            {"type", "f_beta"}, {"beta", 1}, {"average", "macro"}, {"ignore_index", -100}, {"on", "validation"}});
  const job::LoadResult again = job::load_resolved(loaded.result.job->resolved);
  REQUIRE(again.job.has_value());
  CHECK(again.job->resolved == loaded.result.job->resolved);
  CHECK(load_of_classes(R"(["accuracy"])").result.job->training->profile == false);
}

TEST_CASE("job: names of metrics in reports") {
  const auto key = [](const char* text) { return job::metric_key(nlohmann::json::parse(text)); };
  CHECK(key(R"({"type": "accuracy"})") == "accuracy");
  CHECK(key(R"({"type": "top_k"})") == "top_5");
  CHECK(key(R"({"type": "f_beta"})") == "f1");
  CHECK(key(R"({"type": "f_beta", "beta": 0.5, "average": "micro"})") == "f0.5_micro");
  CHECK(key(R"({"type": "recall", "average": "per_class"})") == "recall_per_class");
}

TEST_CASE("job: metrics that are none, or do not fit, are said at their places") {
  const std::string names =
      R"("accuracy", "top_k", "precision", "recall", "f_beta", "confusion_matrix", "perplexity", "mae", "mse" or "r2")";
  const struct {
    const char* metrics;
    std::string error;
  } rows[] = {
      {R"(["acuracy"])",
       R"(2:13: error: "training.metrics[0]" must be )" + names + R"(, got "acuracy"; did you mean "accuracy"?)"},
      {R"([{"type": "topk"}])",
       R"(2:22: error: "training.metrics[0].type" must be )" + names + R"(, got "topk"; did you mean "top_k"?)"},
      {R"([{"type": "top_k", "kk": 3}])", R"(2:31: error: unknown key "kk" in "training.metrics[0]" of type "top_k")"},
      {R"([{"type": "top_k", "k": 0}])", R"(2:36: error: "training.metrics[0].k" must be at least 1, got 0)"},
      {R"([3])",
       R"(2:13: error: "training.metrics[0]" must be the name of a metric, or an object such as {"type": "top_k", "k": 5}, got 3)"},
      {R"([])", R"(2:12: error: "training.metrics" must have at least 1 items, got 0)"},
      {R"(["accuracy", "accuracy"])",
       R"(2:25: error: "training.metrics[1]" has the name of "training.metrics[0]" in reports, "accuracy": remove one)"},
      {R"(["r2"])",
       R"(2:13: error: "training.metrics[0]" "r2" measures numbers, and the targets of the data set "synthetic" are classes: use "accuracy" or another metric of classes)"},
      {R"([{"type": "top_k", "k": 11}])",
       R"(2:13: error: "training.metrics[0]" must have a "k" of at most 10, the model's outputs, got 11)"},
  };
  for (const auto& row : rows) {
    INFO(row.metrics);
    CHECK(load_of_classes(row.metrics).lines == Errors{"job.json:" + row.error});
  }
  CHECK(
      test::load_text(test::training_job("", "\n\"metrics\": [\"mae\", \"accuracy\"]")).lines ==
      Errors{
          R"(job.json:2:20: error: "training.metrics[1]" "accuracy" measures classes, and the targets of the data set "linear" are numbers: use "mae", "mse" or "r2")"});
}

TEST_CASE("job: a confusion matrix of more classes than its table can have is refused") {
  const std::string metric = R"([{"type": "confusion_matrix", "matrix": false}])";
  CHECK(load_of_classes(metric, R"({"type": "mlp", "inputs": 1, "outputs": 4096})").lines == Errors{});
  CHECK(
      load_of_classes(metric, R"({"type": "mlp", "inputs": 1, "outputs": 4097})").lines ==
      Errors{
          R"(job.json:2:13: error: "training.metrics[0]" "confusion_matrix" counts in a table of the model's 4097 classes by as many, at most 4096 can be: leave the metric out)"});
  const nlohmann::json language_model = {{"type", "transformer"}, {"task", "language_model"}, {"vocabulary", 50257}};
  const auto misfits = job::metric_misfits(nlohmann::json::parse(metric), nullptr, language_model);
  REQUIRE(misfits.size() == 1);
  CHECK(misfits.front().path == "training.metrics[0]");
  CHECK_THAT(misfits.front().message, Catch::Contains("the model's 50257 classes"));
}

TEST_CASE("job: information for the operator is a free object") {
  const auto loaded =
      test::load_text(test::training_job("", R"("info": {"num_epochs": 3, "own": [1]}, "profile": true)"));
  REQUIRE(loaded.result.job.has_value());
  CHECK(loaded.result.job->training->info == nlohmann::json{{"num_epochs", 3}, {"own", {1}}});
  CHECK(loaded.result.job->training->profile);
  CHECK(test::load_text(test::training_job("", "\n\"info\": 3")).lines ==
        Errors{R"(job.json:2:9: error: "training.info" must be an object, got 3)"});
  CHECK(test::load_text(test::training_job("", "\n\"profile\": 1")).lines ==
        Errors{R"(job.json:2:12: error: "training.profile" must be true or false, got 1)"});
}

TEST_CASE("job: which workers a line of metrics shows") {
  using Workers = job::ReportRules::Workers;
  CHECK(report_of(R"("reduced")").workers == Workers::kReduced);
  CHECK(report_of(R"("rank0")").workers == Workers::kRank0);
  CHECK(report_of(R"("all")").workers == Workers::kAll);
  CHECK(report_of(R"("list")").workers == Workers::kList);
  const job::ReportRules some = report_of("[3, 0]");
  CHECK(some.workers == Workers::kSome);
  CHECK(some.ranks == std::vector<int>{3, 0});
  CHECK_FALSE(some.detailed);
  CHECK(test::load_text(R"({"command": ["true"], "report": {"detailed": true}})").result.job->report.detailed);
  const struct {
    const char* workers;
    const char* error;
  } rows[] = {
      {R"("al")",
       R"(2:23: error: "report.workers" must be "reduced", "rank0", "all" or "list", got "al"; did you mean "all"?)"},
      {"7", R"(2:23: error: "report.workers" must be "reduced", "rank0", "all", "list" or a list of ranks, got 7)"},
      {"[]", R"(2:23: error: "report.workers" must have at least 1 items, got 0)"},
      {"[-1]", R"(2:24: error: "report.workers[0]" must be at least 0, got -1)"},
      {"[0, 4]", R"(2:27: error: "report.workers[1]" must be below "num_workers" (4), got 4)"},
      {"[1, 1]", R"(2:27: error: "report.workers[1]" names rank 1 again: remove one)"},
  };
  for (const auto& row : rows) {
    INFO(row.workers);
    CHECK(load_report(row.workers).lines == Errors{std::string("job.json:") + row.error});
  }
  CHECK(load_report(R"("all")", 256).lines == Errors{});
  // kListedWorkersMax
  CHECK(
      load_report(R"("all")", 257).lines ==
      Errors{
          R"(job.json:2:23: error: "report.workers" must be "reduced", "rank0" or a list of ranks with more than 256 workers, got "all")"});
}

TEST_CASE("job: RaySGD's names of these keys lead to ours") {
  CHECK(test::load_text(R"({"command": ["true"], "reduce_results": false})").lines ==
        Errors{R"(job.json:1:23: error: unknown key "reduce_results"; use "report.workers")"});
  CHECK(test::load_text(R"({"command": ["true"], "workers_to_log": 0})").lines ==
        Errors{R"(job.json:1:23: error: unknown key "workers_to_log"; use "report.workers")"});
}

}  // namespace sgd
