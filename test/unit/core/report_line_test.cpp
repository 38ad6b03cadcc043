// What a line of metrics shows of ranks' reports, and RaySGD's acceptance cases on it, each under its name.

#include "launcher/core/report_line.hpp"

#include <catch2/catch.hpp>

#include "common/messages/keeper.hpp"
#include "coordinator_bench.hpp"

namespace sgd::core {
namespace {

using Json = nlohmann::json;
using Workers = job::ReportRules::Workers;

ReducedReport two_ranks() {
  ReportReducer reducer;
  reducer.reset(2);
  const link::ReportKey key{1, "train", 0, 0};
  (void)reducer.add(0, key, Json{{"epoch", 1}, {"num_samples", 3}, {"train_loss", 1.0}, {"note", "zero"}});
  auto line = reducer.add(1, key, Json{{"epoch", 1}, {"num_samples", 3}, {"train_loss", 2.0}, {"note", "one"}});
  REQUIRE(line.value().has_value());
  return *line.value();
}

std::string chosen(Workers workers, std::vector<int> ranks = {}) {
  return chosen_values(two_ranks(), {workers, std::move(ranks), false}).dump();
}

/// A run of two ranks on one node whose lines and events are kept.
struct ReportBench : CoordinatorBench {
  explicit ReportBench(job::ReportRules rules = {}, std::vector<std::string> command = {}) {
    cluster::NodeState state;
    state.node = "a";
    state.incarnation = 1;
    state.slots = 2;
    state.is_new_link = true;
    state.address = "10.0.0.7";
    from("a", state);
    RunDefinition run;
    run.id = "run";
    run.run_dir = "/run";
    run.job.num_workers = 2;
    run.job.report = std::move(rules);
    if (command.empty()) run.job.training.emplace();
    run.job.resolved =
        nlohmann::json{{command.empty() ? "training" : "command", command.empty() ? Json::object() : Json(command)}};
    run.job.command = std::move(command);
    on(coordinator_event::Submitted{std::move(run)});
    for (Rank rank = 0; rank < 2; ++rank) say(cluster::WorkerStarted{rank, 100 + rank});
    for (Rank rank = 0; rank < 2; ++rank) say(cluster::WorkerReady{rank, {}});
    for (Rank rank = 0; rank < 2; ++rank) say(cluster::WorkerFirstStep{rank, 1});
  }
  void say(cluster::FactBody body) {
    fact("a", "run", ++sequence, std::move(body));
    keep();
  }
  void report(Rank rank, int epoch, Json metrics, const char* phase = "train") {
    say(cluster::Report{rank, link::Report{{epoch, phase, 0, 0}, 10, std::move(metrics)}});
  }
  void exit(Rank rank, const std::string& last_object = {}) {
    cluster::WorkerExited exited;
    exited.last_object = last_object;
    exited.rank = rank;
    exited.pid = 100 + rank;
    exited.exit_code = 0;
    say(exited);
  }
  void keep() {
    for (const auto& command : commands()) {
      if (const auto* line = std::get_if<coordinator_command::RecordMetrics>(&command)) lines.push_back(line->metrics);
      if (const auto* event = std::get_if<coordinator_command::RecordEvent>(&command)) events.push_back(event->event);
    }
  }
  [[nodiscard]] std::vector<nlohmann::ordered_json> events_named(const char* name) const {
    std::vector<nlohmann::ordered_json> found;
    for (const auto& event : events)
      if (event.at("event") == name) found.push_back(event);
    return found;
  }
  std::int64_t sequence = 0;
  std::vector<nlohmann::ordered_json> lines;
  std::vector<nlohmann::ordered_json> events;
};

}  // namespace

TEST_CASE("line: reduced values, rank 0's, all workers', a list of workers, or some of them") {
  const std::string reduced = R"("epoch":1.0,"num_samples":6,"train_loss":1.5,"note":"zero")";
  const std::string zero = R"({"epoch":1,"num_samples":3,"train_loss":1.0,"note":"zero"})";
  const std::string one = R"({"epoch":1,"num_samples":3,"train_loss":2.0,"note":"one"})";
  CHECK(chosen(Workers::kReduced) == "{" + reduced + "}");
  CHECK(chosen(Workers::kRank0) == zero);
  CHECK(chosen(Workers::kAll) == "{" + reduced + R"(,"workers":[)" + zero + "," + one + "]}");
  CHECK(chosen(Workers::kList) == R"({"workers":[)" + zero + "," + one + "]}");
  CHECK(chosen(Workers::kSome, {1, 0}) == "{" + reduced + R"(,"workers":[)" + one + "," + zero + "]}");
  // A rank that the run has no more, after it has become smaller.
  CHECK(chosen(Workers::kSome, {5, 1}) == "{" + reduced + R"(,"workers":[)" + one + "]}");
}

TEST_CASE("test_reduce_result: without reduction a list of the workers' dictionaries in rank order") {
  ReportBench bench({Workers::kList, {}, false});
  bench.report(1, 1, {{"epoch", 1}, {"batch_count", 2}, {"num_samples", 50}, {"train_loss", 2.0}});
  bench.report(0, 1, {{"epoch", 1}, {"batch_count", 2}, {"num_samples", 50}, {"train_loss", 1.0}});
  REQUIRE(bench.lines.size() == 1);
  const auto& line = bench.lines[0];
  CHECK(line.at("epoch") == 1);
  CHECK_FALSE(line.contains("train_loss"));
  REQUIRE(line.at("workers").size() == 2);
  for (std::size_t rank = 0; rank < 2; ++rank) {
    const auto& worker = line.at("workers")[rank];
    CHECK(worker.at("num_samples") == 50);
    CHECK(worker.at("train_loss") == 1.0 + static_cast<double>(rank));
    CHECK(worker.at("_training_iteration") == 1);
    CHECK(worker.contains("_time_this_iter_s"));
  }
}

TEST_CASE("test_reduce_result: with reduction num_samples is summed, and the rest is one value") {
  ReportBench bench;
  for (Rank rank = 0; rank < 2; ++rank)
    bench.report(rank, 1, {{"epoch", 1}, {"batch_count", 2}, {"num_samples", 50}, {"train_loss", 1.0 + rank}});
  REQUIRE(bench.lines.size() == 1);
  CHECK(bench.lines[0].at("num_samples") == 100);
  CHECK(bench.lines[0].at("batch_count") == 2.0);
  CHECK(bench.lines[0].at("train_loss") == 1.5);
  CHECK_FALSE(bench.lines[0].contains("workers"));
}

TEST_CASE("printed: what is no number in JSON is null, and what cannot be read is said") {
  struct Row {
    std::string line;
    const char* values;
    const char* fault;
  };
  const Row rows[] = {
      {R"({"loss": 0.5})", R"({"loss":0.5})", ""},
      {R"(  {"loss": NaN, "a": [Infinity, -Infinity, 1]})", R"({"a":[null,null,1],"loss":null})", ""},
      {R"({"NaN": "Infinity \" NaN", "b": "\\"})", R"({"NaN":"Infinity \" NaN","b":"\\"})", ""},
      {R"({"loss": nan})", "null", "it is no JSON object of one line"},
      {"{'loss': 1}", "null", "it is no JSON object of one line"},
      {"{", "null", "it is no JSON object of one line"},
      {"{}", "null", "it has no values"},
      {R"({"loss": ")" + std::string(keeper::kLastObjectBytesMax, 'x') + "\"}", "null", "it is longer than 8 KiB"},
      {R"({"a": )" + std::string(100, '[') + std::string(100, ']') + "}", "null", "it is no JSON object of one line"},
  };
  for (const Row& row : rows) {
    INFO(row.line);
    const PrintedValues printed = printed_values(row.line);
    CHECK(printed.values.dump() == row.values);
    CHECK(printed.fault == row.fault);
  }
}

TEST_CASE("printed: the last line of a command counts or is refused, and no other one does") {
  for (const bool is_readable : {true, false}) {
    job::ReportRules rules;
    rules.last_line = true;
    ReportBench bench(rules, {"train.py"});
    bench.exit(0, is_readable ? R"({"loss": NaN})" : "{oh}");
    CHECK(bench.lines.size() == (is_readable ? 1U : 0U));
    if (is_readable) CHECK(bench.lines[0].at("loss").is_null());
    const auto refused = bench.events_named("last_line_refused");
    REQUIRE(refused.size() == (is_readable ? 0U : 1U));
    if (!is_readable) CHECK(refused[0].at("why") == "it is no JSON object of one line");
  }
}

TEST_CASE("detailed: the keys of a detailed line, of rank 0 and of each worker, in the place of a worker's own") {
  ReportBench bench({Workers::kAll, {}, true});
  bench.wait(std::chrono::seconds(2));
  for (Rank rank = 0; rank < 2; ++rank) bench.report(rank, 1, {{"train_loss", 1.0}, {"_pid", -5}});
  REQUIRE(bench.lines.size() == 1);
  const auto& line = bench.lines[0];
  CHECK(line.at("_hostname") == "a");
  CHECK(line.at("_node_ip") == "10.0.0.7");
  CHECK(line.at("_pid") == 100);
  CHECK(line.at("_time_total_s") == 2.0);
  CHECK(line.at("workers")[1].at("_pid") == 101);
  CHECK(line.at("workers")[1].at("_time_total_s") == 2.0);
}

TEST_CASE("line: what it is known by is its own, and the time that a worker has measured is the worker's") {
  ReportBench bench({Workers::kAll, {}, false});
  bench.wait(std::chrono::seconds(2));
  const Json given = {{"phase", "warm-up"}, {"epoch", 7}, {"step", 70}, {"world_size", 9}, {"_time_this_iter_s", 0.5}};
  for (Rank rank = 0; rank < 2; ++rank) bench.report(rank, 1, given);
  for (Rank rank = 0; rank < 2; ++rank) bench.report(rank, 2, {{"loss", 1.0}});
  REQUIRE(bench.lines.size() == 2);
  const auto& line = bench.lines[0];
  CHECK(line.at("phase") == "train");
  CHECK(line.at("epoch") == 1);
  CHECK(line.at("step") != 70);
  CHECK(line.at("world_size") == 2);
  CHECK(line.at("_time_this_iter_s") == 0.5);
  CHECK(line.at("workers")[1].at("_time_this_iter_s") == 0.5);
  CHECK(bench.lines[1].at("_time_this_iter_s") == 0.0);
}

TEST_CASE("detailed: without it lines have the basic keys alone") {
  ReportBench bench({Workers::kAll, {}, false});
  for (Rank rank = 0; rank < 2; ++rank) bench.report(rank, 1, {{"train_loss", 1.0}});
  REQUIRE(bench.lines.size() == 1);
  for (const char* key : {"_date", "_hostname", "_node_ip", "_pid", "_time_total_s"}) {
    INFO(key);
    CHECK_FALSE(bench.lines[0].contains(key));
    CHECK_FALSE(bench.lines[0].at("workers")[0].contains(key));
  }
}

TEST_CASE("test_mismatch_report: a rank that reports twice where the other does once fails the run, and is named") {
  ReportBench bench;
  bench.report(0, 1, {{"train_loss", 1.0}});
  bench.report(1, 1, {{"train_loss", 1.0}});
  bench.report(1, 2, {{"train_loss", 1.0}});
  bench.exit(0);
  bench.exit(1);
  const auto failures = bench.events_named("failure");
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].at("rank") == 1);
  CHECK(failures[0].at("restart") == false);
  CHECK(failures[0].at("message") ==
        "exit code 1, rank 1: it has reported epoch 2 train batch 0, and rank 0 has not: all ranks must report equally "
        "often");
}

TEST_CASE("test_mismatch_report: ranks in different epochs are named") {
  ReportBench bench;
  bench.report(0, 1, {{"train_loss", 1.0}});
  bench.report(1, 2, {{"train_loss", 1.0}});
  const auto failures = bench.events_named("failure");
  REQUIRE(failures.size() == 1);
  CHECK(failures[0].at("restart") == false);
  CHECK(failures[0].at("message") ==
        "exit code 1, rank 1: ranks report different keys: rank 0 epoch 1 train batch 0, rank 1 epoch 2 train batch 0");
}

TEST_CASE("test_fast_slow: a slow worker with equal counts is fine") {
  ReportBench bench;
  for (int epoch = 1; epoch <= 3; ++epoch) bench.report(0, epoch, {{"train_loss", 1.0}});
  CHECK(bench.lines.empty());
  bench.wait(std::chrono::seconds(5));
  for (int epoch = 1; epoch <= 3; ++epoch) bench.report(1, epoch, {{"train_loss", 3.0}});
  REQUIRE(bench.lines.size() == 3);
  bench.exit(0);
  bench.exit(1);
  CHECK(bench.events_named("failure").empty());
}

TEST_CASE("report mismatch: a key that a rank lacks is told once, with the ranks; nothing fails") {
  ReportBench bench;
  for (int epoch = 1; epoch <= 2; ++epoch) {
    bench.report(0, epoch, {{"num_samples", 5}, {"train_loss", 1.0}, {"score", 4.0}});
    bench.report(1, epoch, {{"num_samples", 5}, {"train_loss", 1.0}, {"extra", 4.0}});
  }
  REQUIRE(bench.lines.size() == 2);
  CHECK(bench.lines[1].at("score") == 4.0);
  const auto told = bench.events_named("report_mismatch");
  REQUIRE(told.size() == 2);
  CHECK(told[0].dump() ==
        R"({"event":"report_mismatch","generation":1,"epoch":1,"phase":"train","key":"extra","ranks":[0]})");
  CHECK(told[1].at("key") == "score");
  CHECK(told[1].at("ranks") == nlohmann::ordered_json{1});
  CHECK(bench.events_named("failure").empty());
}

TEST_CASE("report mismatch: a rank without a sample is not asked for anything") {
  const std::vector<Json> reports = {{{"num_samples", 5}, {"val_loss", 1.0}}, {{"num_samples", 0}}};
  CHECK(find_mismatches(reports).empty());
  CHECK(find_mismatches({Json::object(), {{"val_loss", 1.0}}}).size() == 1);
  CHECK(find_mismatches({{{"val_loss", 1.0}}, Json::object()}).at(0).without == std::vector<Rank>{1});
}

TEST_CASE("reduction: a number on which all ranks agree stays as it is, whatever they weigh") {
  const double exact = 0.1;
  const auto reduced = reduce_metrics({{{"num_samples", 3}, {"val_accuracy", exact}},
                                       {{"num_samples", 5}, {"val_accuracy", exact}},
                                       {{"num_samples", 7}, {"val_accuracy", exact}}});
  CHECK(reduced.at("val_accuracy").get<double>() == exact);
}

}  // namespace sgd::core
