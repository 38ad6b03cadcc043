// What a run left behind, and how its folder is opened again.

#include "launcher/storage/run_history.hpp"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <catch2/catch.hpp>

#include "common/checkpoint/crc32c.hpp"
#include "launcher/storage/ahead_checkpoints.hpp"
#include "launcher/storage/checkpoint_list.hpp"
#include "launcher/storage/resume_fit.hpp"
#include "launcher/storage/run_directory.hpp"

using namespace sgd;
namespace fs = std::filesystem;

namespace {

const char* const kMetrics =
    "{\"phase\":\"train\",\"epoch\":1.0,\"step\":32,\"generation\":1,\"train_loss\":0.5}\n"
    "{\"phase\":\"validate\",\"epoch\":1,\"step\":32,\"generation\":1}\n"
    "{\"phase\":\"train\",\"epoch\":2.0,\"step\":64,\"generation\":2,\"train_loss\":0.4}\n";
const char* const kEvents =
    "{\"time\":1.000000,\"event\":\"run_started\",\"run\":\"r-1\"}\n"
    "{\"time\":2.000000,\"event\":\"failure\",\"generation\":1}\n"
    "{\"time\":3.000000,\"event\":\"worker_started\",\"generation\":2}\n";

/// A run's folder that goes with this.
class RunFolder {
 public:
  RunFolder() {
    char name[] = "/tmp/sgd-run-history-XXXXXX";
    path_ = ::mkdtemp(name);
    write("job.json", "{\"name\": \"j\"}");
    write("events.jsonl", kEvents);
    write("metrics.jsonl", kMetrics);
  }
  ~RunFolder() { fs::remove_all(path_); }

  [[nodiscard]] const std::string& path() const { return path_; }
  void write(const std::string& name, const std::string& text) const {
    fs::create_directories(fs::path(path_ + "/" + name).parent_path());
    std::ofstream(path_ + "/" + name, std::ios::binary) << text;
  }
  [[nodiscard]] std::string read(const std::string& name) const {
    std::ostringstream text;
    text << std::ifstream(path_ + "/" + name, std::ios::binary).rdbuf();
    return text.str();
  }
  /// Returns its path relative to the run.
  std::string checkpoint(std::int64_t step, int epoch, Generation generation) const {
    const std::string name = "checkpoints/" + checkpoint::directory_name(step, generation);
    const std::string weights = "weights of " + name;
    const auto crc = checkpoint::crc32c(0, std::as_bytes(std::span(weights.data(), weights.size())));
    write(name + "/model.safetensors", weights);
    write(name + "/manifest.json",
          checkpoint::encode({step, epoch, generation, 2, {{"model.safetensors", weights.size(), crc}}}));
    return name;
  }
  [[nodiscard]] storage::RunHistory history() const {
    auto history = storage::read_history(path_);
    REQUIRE(history.ok());
    return history.value();
  }

 private:
  std::string path_;
};

}  // namespace

TEST_CASE("history: the time that a run has taken begins with it, and a clock that is set back takes nothing away") {
  const RunFolder folder;
  folder.write("events.jsonl",
               "{\"time\":1700000000.0,\"event\":\"run_begun_from\"}\n"
               "{\"time\":1700000001.0,\"event\":\"run_started\",\"run\":\"r-1\"}\n"
               "{\"time\":1700000011.0,\"event\":\"worker_started\",\"generation\":1}\n"
               "{\"time\":1699996411.0,\"event\":\"failure\",\"generation\":1}\n"
               "{\"time\":1699996416.0,\"event\":\"worker_started\",\"generation\":2}\n"
               "{\"time\":1699999000.0,\"event\":\"run_resumed\",\"run\":\"r-1\"}\n"
               "{\"time\":1699999002.0,\"event\":\"worker_started\",\"generation\":3}\n");
  CHECK(folder.history().past.wall_s == Approx(17));
}

TEST_CASE("history: counts and the last key come from the lines") {
  const RunFolder run;
  const storage::RunHistory history = run.history();
  CHECK(history.id == "r-1");
  CHECK(history.past.generation == 2);
  CHECK(history.past.failures == 1);
  CHECK(history.past.reports == 3);
  CHECK(history.past.epochs == 1);
  CHECK(history.past.steps == 64);
  REQUIRE(history.past.written.has_value());
  CHECK(history.past.written->epoch == 2);
  CHECK(history.past.written->phase == "train");
  CHECK(history.past.metrics.at("train").at("step") == 64);
  CHECK(history.past.metrics.at("validate").at("step") == 32);
  CHECK(history.past.checkpoints.empty());
  CHECK(history.newest.step == 0);
}

TEST_CASE("history: a run that was stopped in the queue has taken no time") {
  const RunFolder run;
  run.write("events.jsonl", "{\"time\":1795788330.8,\"event\":\"run_finished\",\"state\":\"cancelled\"}\n");
  CHECK(run.history().past.wall_s == 0);
}

TEST_CASE("history: a success counts until the run is resumed") {
  const RunFolder run;
  const std::string finished = "{\"event\":\"run_finished\",\"state\":\"succeeded\"}\n";
  const std::string resumed = "{\"event\":\"run_resumed\"}\n";
  CHECK_FALSE(run.history().succeeded);
  run.write("events.jsonl", kEvents + finished);
  CHECK(run.history().succeeded);
  run.write("events.jsonl", kEvents + finished + resumed);
  CHECK_FALSE(run.history().succeeded);
}

TEST_CASE("history: the last generation is the highest of lines, logs and checkpoints") {
  const RunFolder run;
  fs::create_directories(run.path() + "/logs/gen-0005");
  fs::create_directories(run.path() + "/logs/gen-none");
  CHECK(run.history().past.generation == 5);
  (void)run.checkpoint(10, 0, 7);
  CHECK(run.history().past.generation == 7);
}

TEST_CASE("history: an empty folder has no past") {
  const RunFolder run;
  run.write("events.jsonl", "");
  fs::remove(run.path() + "/metrics.jsonl");
  const storage::RunHistory history = run.history();
  CHECK(history.id == fs::path(run.path()).filename().string());
  CHECK(history.past.generation == 0);
  CHECK_FALSE(history.past.written.has_value());
}

TEST_CASE("history: whole checkpoints newest first, damaged ones by name and reason") {
  const RunFolder run;
  const std::string old = run.checkpoint(32, 1, 1);
  const std::string newer = run.checkpoint(40, 1, 2);
  const std::string damaged = run.checkpoint(64, 1, 2);
  run.write(damaged + "/model.safetensors", "other");
  run.write("checkpoints/.step-tmp/model.safetensors", "");
  const storage::RunHistory history = run.history();
  CHECK(history.past.checkpoints == std::vector<std::string>{run.path() + "/" + newer, run.path() + "/" + old});
  CHECK(history.newest.step == 40);
  REQUIRE(history.damaged.size() == 1);
  CHECK(history.damaged[0].path == damaged);
  CHECK(history.damaged[0].reason.starts_with("model.safetensors has 5 bytes"));
}

TEST_CASE("history: a checkpoint of an epoch without a line is not gone on from, unless there is no other") {
  const RunFolder run;
  const std::string covered = run.checkpoint(32, 1, 1);
  const std::string ahead = run.checkpoint(96, 2, 2);
  storage::RunHistory history = run.history();
  CHECK(history.ahead == std::vector<std::string>{ahead});
  CHECK(history.past.checkpoints == std::vector<std::string>{run.path() + "/" + covered});
  CHECK(history.newest.step == 32);
  fs::remove_all(run.path() + "/" + covered);
  history = run.history();
  CHECK(history.ahead.empty());
  CHECK(history.newest.step == 96);
}

TEST_CASE("history: a command's epochs are its own, and none of its checkpoints is ahead of a line") {
  const RunFolder run;
  run.write("job.json", R"({"command": ["python3", "train.py"]})");
  const std::string newest = run.checkpoint(96, 7, 2);
  (void)run.checkpoint(32, 1, 1);
  const storage::RunHistory history = run.history();
  CHECK(history.ahead.empty());
  CHECK(history.past.checkpoints.front() == run.path() + "/" + newest);
}

TEST_CASE("reopen: what a run does not go on from is kept until it has passed that") {
  const RunFolder run;
  const auto is_there = [&](const std::string& name) { return fs::exists(run.path() + "/" + name); };
  (void)run.checkpoint(32, 1, 1);
  const std::string near = run.checkpoint(96, 2, 1);
  const std::string far = run.checkpoint(128, 3, 1);
  const auto listed = storage::describe_checkpoints(run.path(), checkpoint::Proof::kSizes).value();
  CHECK(listed.at("checkpoints").at(0).at("is_ahead") == true);
  CHECK(listed.at("checkpoints").at(2).at("is_ahead") == false);
  const std::string near_aside = "checkpoints/ahead/" + fs::path(near).filename().string();
  const std::string far_aside = "checkpoints/ahead/" + fs::path(far).filename().string();
  const auto again = [&](std::int64_t step) {
    auto directory = storage::RunDirectory::reopen({"r-1", run.path()}, {{"name", "j"}}, run.history());
    REQUIRE(directory.ok());
    directory.value()->keep_checkpoints({run.checkpoint(step, 1, 3)});
  };
  again(64);
  CHECK_FALSE(is_there(near));
  CHECK(is_there(near_aside + "/manifest.json"));
  CHECK(is_there(far_aside + "/manifest.json"));
  CHECK(storage::run_of_checkpoint(run.path() + "/" + far_aside) == run.path());
  CHECK(storage::run_of_checkpoint(run.path() + "/" + far) == run.path());
  again(96);
  CHECK_FALSE(is_there(near_aside));
  CHECK(is_there(far_aside));
  again(130);
  CHECK_FALSE(is_there("checkpoints/ahead"));
}

TEST_CASE("create: a run that cannot begin leaves no folder") {
  const RunFolder around;
  const std::string folder = around.path() + "/new";
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit none{0, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &none) == 0);  // As a full disk: files are made, and nothing gets into them.
  const bool is_made = storage::RunDirectory::create({"new", folder}, {{"name", "j"}}).ok();
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  (void)std::signal(SIGXFSZ, handler);
  CHECK_FALSE(is_made);
  CHECK_FALSE(fs::exists(folder));
}

TEST_CASE("history: scores are those of the job that the run goes on with") {
  const RunFolder run;
  (void)run.checkpoint(32, 1, 1);
  (void)run.checkpoint(64, 1, 2);
  storage::RunHistory history = run.history();
  job::JobSpec job;
  REQUIRE(storage::add_scores(job, run.path(), history).ok());
  CHECK(history.past.scores.empty());
  job.checkpoint.best = {"train_loss", false, 1};
  REQUIRE(storage::add_scores(job, run.path(), history).ok());
  CHECK(history.past.scores == core::Scores{{32, 0.5}, {64, 0.4}});
}

TEST_CASE("history: scores of tens of thousands of checkpoints, and the newest others") {
  constexpr std::int64_t kMany = 20'000;  // By the square of it this takes minutes.
  const RunFolder run;
  std::string lines;
  std::vector<std::string> checkpoints;
  for (std::int64_t step = 1; step <= 2 * kMany; ++step) {
    lines += "{\"step\":" + std::to_string(step) + ",\"val_loss\":" + std::to_string(step) + "}\n";
    if (step <= kMany) checkpoints.push_back("checkpoints/" + checkpoint::directory_name(step, 1));
  }
  lines += "{\"step\":" + std::to_string(kMany + 1) + ",\"val_loss\":0.5}\n";  // Once more, after a restart.
  run.write("metrics.jsonl", lines);
  const auto scores = storage::read_scores(run.path(), {"val_loss", false, 1}, checkpoints);
  REQUIRE(scores.ok());
  CHECK(scores.value().size() == static_cast<std::size_t>(kMany) + core::kScoresMax);
  CHECK(scores.value().at(1) == 1);
  CHECK(scores.value().at(kMany) == static_cast<double>(kMany));
  CHECK(scores.value().at(kMany + 1) == 0.5);
  CHECK(scores.value().at(2 * kMany) == static_cast<double>(2 * kMany));
}

TEST_CASE("checkpoints: the list has the value of each, and says which is kept as the best") {
  const RunFolder run;
  const std::string first = run.checkpoint(32, 1, 1);
  (void)run.checkpoint(48, 1, 1);
  (void)run.checkpoint(64, 1, 2);
  const auto list = [&] { return storage::describe_checkpoints(run.path(), checkpoint::Proof::kChecksums).value(); };
  CHECK_FALSE(list().contains("metric"));
  run.write("job.json",
            R"({"checkpoint": {"keep": {"latest": 1, "best": {"metric": "train_loss", "mode": "max", "n": 1}}}})");
  CHECK(list().at("metric") == "train_loss");
  const auto of = [&](const char* key) {
    std::string text;
    const auto listed = list();
    for (const auto& one : listed.at("checkpoints")) text += one.at(key).dump() + " ";
    return text;
  };
  CHECK(of("value") == "0.4 null 0.5 ");
  CHECK(of("is_best") == "false false true ");
  run.write(first + "/model.safetensors", "other");
  CHECK(of("is_best") == "true false false ");
}

TEST_CASE("reopen: torn ends are cut off, every whole line stays") {
  for (const std::string& torn : {std::string("{\"phase\":\"tr"), std::string("{\"phase\":\"train\"}"),
                                  std::string(10, '\0'), std::string("\0\0\n", 3), std::string("not json\nmore\n")}) {
    INFO(torn);
    const RunFolder run;
    run.write("metrics.jsonl", kMetrics + torn);
    const storage::RunHistory history = run.history();
    CHECK(history.past.reports == 3);
    CHECK(history.metrics_end.bytes - history.metrics_end.whole_bytes == torn.size());
    auto again = storage::RunDirectory::reopen({"r-1", run.path()}, {{"name", "j"}}, history);
    REQUIRE(again.ok());
    REQUIRE(again.value()->append_event({{"event", "run_resumed"}}).ok());
    CHECK(run.read("metrics.jsonl") == kMetrics);
    CHECK(run.read("events.jsonl").starts_with(std::string(kEvents) + "{\"time\":"));
  }
}

TEST_CASE("reopen: job.json is written only when it differs, the old summary goes, a dead socket is replaced") {
  const RunFolder run;
  run.write("summary.json", "{}");
  fs::create_symlink("/nowhere/control.sock", run.path() + "/control.sock");
  {
    auto again = storage::RunDirectory::reopen({"r-1", run.path()}, {{"name", "j"}}, run.history());
    REQUIRE(again.ok());
    CHECK(run.read("job.json") == "{\"name\": \"j\"}");
    CHECK_FALSE(fs::exists(run.path() + "/summary.json"));
    CHECK(again.value()->link_control_socket("/tmp/other.sock").ok());
    CHECK(fs::read_symlink(run.path() + "/control.sock") == "/tmp/other.sock");
  }
  REQUIRE(storage::RunDirectory::reopen({"r-1", run.path()}, {{"name", "k"}}, run.history()).ok());
  CHECK(nlohmann::json::parse(run.read("job.json")).at("name") == "k");
}

TEST_CASE("reopen: a job that workers can never go on with is taken back, one that they have gone on with stays") {
  const RunFolder run;
  (void)run.checkpoint(32, 1, 1);
  const nlohmann::json changed = {{"name", "k"}, {"training", {{"epochs", 9}}}};
  core::RunOutcome refused;
  refused.state = "failed";
  refused.cause.emplace();
  const auto end = [&](const char* event, bool is_final) {
    auto again = storage::RunDirectory::reopen({"r-1", run.path()}, changed, run.history());
    REQUIRE(again.ok());
    REQUIRE(again.value()->append_event({{"event", event}}).ok());
    refused.cause->is_final = is_final;
    REQUIRE(again.value()->write_summary(refused).ok());
    return nlohmann::json::parse(run.read("job.json")).at("name");
  };
  CHECK(end("worker_started", false) == "k");  // Another start may do.
  CHECK(end("worker_started", true) == "j");   // The life between has changed nothing of that.
  CHECK(run.read("job.json") == "{\"name\": \"j\"}");
  CHECK(end("restored", true) == "k");
  CHECK(end("worker_started", true) == "k");
  CHECK_FALSE(fs::exists(run.path() + "/job.former.json"));
}

TEST_CASE("fit: state of another optimizer or kind of model is none of the job's, unless a plug-in makes it") {
  storage::RunHistory history;
  history.past.checkpoints = {"/r/checkpoints/c"};
  nlohmann::json training = {{"model", {{"type", "cnn"}}}, {"optimizer", {{"type", "sgd"}}}};
  history.made_by = {{"training", training}};
  history.optimizers = {{{"name", "optimizer"}, {"type", "sgd"}}};
  const auto fit = [&](const nlohmann::json& changed) {
    job::JobSpec job;
    job.training.emplace();
    job.training->epochs = 5;
    job.training->model = changed.at("model");
    job.resolved.edit()["training"] = changed;
    return storage::fit_to_job(job, history);
  };
  CHECK(fit(training).empty());
  nlohmann::json other = training;
  other["optimizer"]["type"] = "adam";
  CHECK(fit(other).starts_with("training.optimizer.type was sgd and is adam: "));
  other["operator"] = {{"type", "gan"}};
  CHECK(fit(other).empty());
  other = training;
  other["model"]["type"] = "mlp";
  CHECK(fit(other).starts_with("training.model.type was cnn and is mlp: "));
  other["model"]["type"] = "of_a_plugin";
  CHECK(fit(other).empty());
}

TEST_CASE("reopen: two launchers never share a folder, and lines that came since are never cut") {
  const RunFolder run;
  const storage::RunHistory history = run.history();
  {
    const auto first = storage::RunDirectory::reopen({"r-1", run.path()}, {{"name", "j"}}, history);
    REQUIRE(first.ok());
    const auto second = storage::RunDirectory::reopen({"r-1", run.path()}, {{"name", "k"}}, history);
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().message.find("in use by another sgd-launch") != std::string::npos);
    CHECK(run.read("job.json") == "{\"name\": \"j\"}");
  }
  run.write("events.jsonl", std::string(kEvents) + "{}\n");
  const auto late = storage::RunDirectory::reopen({"r-1", run.path()}, {{"name", "j"}}, history);
  REQUIRE_FALSE(late.ok());
  CHECK(late.error().message.find("has changed meanwhile") != std::string::npos);
}

TEST_CASE("nothing left: all epochs are trained and kept") {
  job::JobSpec job;
  storage::RunHistory history;
  CHECK(storage::why_nothing_to_train(job, history).empty());  // A command.
  job.training.emplace();
  job.training->epochs = 5;
  history.past.epochs = 5;
  CHECK(storage::why_nothing_to_train(job, history).empty());  // Its last weights are not on disk.
  history.past.checkpoints = {"/r/checkpoints/c"};
  history.newest.epoch = 4;
  CHECK(storage::why_nothing_to_train(job, history).empty());
  history.newest.epoch = 5;
  CHECK(storage::why_nothing_to_train(job, history).empty());  // Its end is not recorded.
  history.succeeded = true;
  CHECK(storage::why_nothing_to_train(job, history) ==
        "nothing to train: all 5 epochs are trained; --set training.epochs=8 trains more");
  job.training->epochs = 3;
  CHECK(storage::why_nothing_to_train(job, history) ==
        "nothing to train: 5 epochs are trained, the job wants 3; --set training.epochs=8 trains more");
  history.past.checkpoints.clear();
  job.checkpoint.every = job::CheckpointPolicy::Every::kNever;
  CHECK_FALSE(storage::why_nothing_to_train(job, history).empty());
}
