// Which checkpoints stay, with Ray's cases on it, each under its name.

#include "launcher/core/kept_checkpoints.hpp"

#include <limits>

#include <catch2/catch.hpp>

#include "common/checkpoint/manifest.hpp"
#include "coordinator_bench.hpp"

namespace sgd::core {
namespace {

using Paths = std::vector<std::string>;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

job::CheckpointPolicy keeping(int latest, int best, bool is_highest = false) {
  job::CheckpointPolicy policy;
  policy.keep = latest;
  if (best > 0) policy.best = {"val_loss", is_highest, best};
  return policy;
}

/// What stays of checkpoints "0", "1", ... with these scores, and after "|" the best of them.
std::string kept_of(const std::vector<std::optional<double>>& scores, const job::CheckpointPolicy& policy) {
  std::vector<ScoredCheckpoint> all;
  for (const auto& score : scores) all.push_back({std::to_string(all.size()), score});
  const KeptCheckpoints kept = kept_checkpoints(all, policy);
  std::string text;
  for (const std::string& path : kept.paths) text += path;
  text += "|";
  for (const ScoredCheckpoint& one : kept.best) text += one.path;
  return text;
}

job::JobSpec trained() {
  job::JobSpec job;
  job.training.emplace();
  return job;
}

/// A run of one rank that keeps its best checkpoint and one more.
struct KeepingBench : CoordinatorBench {
  KeepingBench() : KeepingBench(std::nullopt) {}
  explicit KeepingBench(std::optional<RunPast> past, job::JobSpec job = trained()) {
    node("a", 1);
    RunDefinition run;
    run.id = "run";
    run.run_dir = "/run";
    run.job = std::move(job);
    run.job.checkpoint = keeping(1, 1);
    run.job.resolved = nlohmann::json{{"training", nlohmann::json::object()}};
    generation = past ? past->generation + 1 : 1;
    run.past = std::move(past);
    on(coordinator_event::Submitted{std::move(run)});
    say(cluster::WorkerStarted{0, 100});
    say(cluster::WorkerReady{0, {}});
    say(cluster::WorkerFirstStep{0, 1});
  }
  void say(cluster::FactBody body) {
    fact("a", "run", ++sequence, std::move(body), generation);
    for (const auto& command : commands()) {
      if (const auto* keep = std::get_if<coordinator_command::KeepCheckpoints>(&command)) told = keep->paths;
      const auto* event = std::get_if<coordinator_command::RecordEvent>(&command);
      if (event != nullptr && event->event.at("event") == "metric_missing") ++warnings;
    }
  }
  void report(int epoch, std::int64_t step, nlohmann::json metrics) {
    say(cluster::Report{0, link::Report{{epoch, "validate", 0, 0}, step, std::move(metrics)}});
  }
  void save(std::int64_t step) {
    link::CheckpointSaved saved;
    saved.path = path(step);
    saved.step = step;
    say(cluster::CheckpointSaved{saved});
  }
  [[nodiscard]] std::string path(std::int64_t step) const {
    return "checkpoints/" + checkpoint::directory_name(step, generation);
  }
  [[nodiscard]] const RunState& state() const { return coordinator().state().runs_.at("run").state(); }
  Generation generation = 1;
  std::int64_t sequence = 0;
  Paths told;
  int warnings = 0;
};

}  // namespace

TEST_CASE("test_keep_checkpoints_by_score: those with the best scores stay, beside the newest") {
  CHECK(kept_of({3, 1, 4, 2, 5}, keeping(1, 2)) == "134|13");
  CHECK(kept_of({3, 1, 4, 2, 5}, keeping(1, 2, true)) == "24|42");
  CHECK(kept_of({3, 1, 4, 2, 5}, keeping(2, 1)) == "134|1");
  CHECK(kept_of({3, 1}, keeping(1, 7)) == "01|10");
  CHECK(kept_of({}, keeping(1, 1)) == "|");
}

TEST_CASE("test_keep_checkpoints_by_score: of equal ones the newer is the better") {
  CHECK(kept_of({1, 1, 1, 2}, keeping(1, 1)) == "23|2");
  CHECK(kept_of({1, 1, 1, 2}, keeping(1, 2)) == "123|21");
  CHECK(kept_of({2, 2, 1}, keeping(1, 1, true)) == "12|1");
}

TEST_CASE("test_keep_checkpoints_by_score: none, NaN and infinity never win") {
  for (const bool is_highest : {false, true}) {
    CHECK(kept_of({{}, 2, {}, kNan, 3}, keeping(1, 3, is_highest)) == (is_highest ? "14|41" : "14|14"));
    CHECK(kept_of({-kInfinity, kInfinity, kNan, 1, {}}, keeping(1, 5, is_highest)) == "34|3");
    CHECK(kept_of({kNan, {}, kNan}, keeping(1, 2, is_highest)) == "2|");
  }
}

TEST_CASE("test_keep_checkpoints_by_score: an epoch that is not validated misses no metric") {
  job::JobSpec job;
  job.training.emplace().epochs = 5;
  job.training->validate_every = 2;
  KeepingBench bench(std::nullopt, job);
  bench.report(1, 10, nlohmann::json::object());
  CHECK(bench.warnings == 0);
  bench.report(2, 20, {{"val_los", 0.5}});
  CHECK(bench.warnings == 1);
  for (const int epoch : {3, 4, 5}) bench.report(epoch, 10 * epoch, nlohmann::json::object());
  CHECK(bench.warnings == 1);
}

TEST_CASE("test_keep_latest_checkpoint: the newest stays, whatever its score") {
  CHECK(kept_of({1, 2, 3}, keeping(1, 1)) == "02|0");
  CHECK(kept_of({1, 2, kNan}, keeping(1, 1)) == "02|0");
  CHECK(kept_of({1, 2, 3, 4}, keeping(3, 0)) == "123|");
  CHECK(kept_of({1, 2}, keeping(0, 0)) == "1|");
}

TEST_CASE("best checkpoints: a checkpoint has the value of the line at its step, whichever comes first") {
  KeepingBench bench;
  bench.report(1, 10, {{"val_loss", 0.5}});
  bench.save(10);
  CHECK(bench.told == Paths{bench.path(10)});
  bench.save(20);
  CHECK(bench.told == Paths{bench.path(10), bench.path(20)});
  bench.report(2, 20, {{"val_loss", 0.25}});
  CHECK(bench.told == Paths{bench.path(20)});
  bench.report(3, 30, {{"val_loss", 0.75}});
  bench.save(30);
  CHECK(bench.told == Paths{bench.path(20), bench.path(30)});
  // Between two reports: its weights have not been looked at.
  bench.save(35);
  CHECK(bench.told == Paths{bench.path(20), bench.path(35)});
  CHECK(bench.state().outcome_.best_checkpoints ==
        nlohmann::json{{{"path", bench.path(20)}, {"metric", "val_loss"}, {"value", 0.25}}});
}

TEST_CASE("best checkpoints: one that is damaged is not the best any more") {
  KeepingBench bench;
  bench.report(1, 10, {{"val_loss", 0.5}});
  bench.save(10);
  bench.save(20);
  bench.say(cluster::CheckpointRejected{{"/run/" + bench.path(10), "damaged"}});
  CHECK(bench.state().checkpoints_ == Paths{bench.path(20)});
  CHECK(bench.state().outcome_.best_checkpoints.is_null());
  CHECK(bench.state().outcome_.checkpoint == bench.path(20));
  bench.say(cluster::CheckpointRejected{{"/run/" + bench.path(20), "damaged"}});
  CHECK(bench.state().outcome_.checkpoint.empty());
}

TEST_CASE("best checkpoints: a run that goes on knows those of before") {
  RunPast past;
  past.generation = 1;
  past.checkpoints = {"/run/checkpoints/" + checkpoint::directory_name(20, 1),
                      "/run/checkpoints/" + checkpoint::directory_name(10, 1)};
  past.scores = {{10, 0.5}, {20, 0.75}};
  KeepingBench bench(past);
  CHECK(bench.state().outcome_.best_checkpoints.at(0).at("path") == "checkpoints/" + checkpoint::directory_name(10, 1));
  bench.report(3, 30, {{"val_loss", 0.625}});
  bench.save(30);
  CHECK(bench.told == Paths{past.checkpoints[1].substr(std::string("/run/").size()), bench.path(30)});
}

TEST_CASE("best checkpoints: a metric that no report has is told once") {
  KeepingBench bench;
  bench.report(1, 10, {{"loss", 0.5}});
  CHECK(bench.warnings == 1);
  bench.report(2, 20, {{"loss", 0.5}});
  CHECK(bench.warnings == 1);
}

TEST_CASE("best checkpoints: scores have a limit, beyond those of the checkpoints that are there") {
  Scores scores;
  const job::KeepBest best{"val_loss", false, 1};
  const std::string old = "checkpoints/" + checkpoint::directory_name(1, 1);
  constexpr auto kSteps = static_cast<std::int64_t>(2 * kScoresMax);
  for (std::int64_t step = 1; step <= kSteps; ++step)
    (void)note_score({{"step", step}, {"val_loss", 1.0}}, best, {old}, scores);
  CHECK(scores.size() == kScoresMax);
  CHECK(scores.contains(1));
  CHECK_FALSE(scores.contains(2));
  CHECK(scores.contains(kSteps));
}

}  // namespace sgd::core
