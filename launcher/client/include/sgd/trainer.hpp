#pragma once
// Training from within a program: RaySGD's calls under RaySGD's names.
//
//   sgd::Trainer trainer("job.json");
//   trainer.start();
//   for (int epoch = 0; epoch < 5; ++epoch) std::cout << trainer.train() << trainer.validate() << "\n";
//   trainer.save("best");
//   trainer.shutdown();
//
// Each call that trains starts `sgd-launch` and waits for it: failures of workers are recovered from as on the command
// line, and between two calls no process is left. When this program ends, however it ends, the launcher notices, has a
// checkpoint saved and ends with all that it has started, here or on a cluster (TrainerOptions::address). A program may
// have any number of trainers, each used by one thread at a time. Links no LibTorch; the weights as a module are in
// <sgd/trainer_model.hpp>.

#include <chrono>
#include <cstddef>
#include <filesystem>
#include <iterator>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

namespace sgd {

/// What goes wrong; what() has all of the launcher's words.
class TrainerError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// The trainer is not started, or shut down already.
class TrainerInactive : public TrainerError {
 public:
  using TrainerError::TrainerError;
};

/// The job, or what it names, is wrong: nothing was started.
class JobError : public TrainerError {
 public:
  using TrainerError::TrainerError;
};

/// A run that has ended without success.
class RunError : public TrainerError {
 public:
  RunError(const std::string& words, int exit_code, nlohmann::json summary)
      : TrainerError(words), exit_code_(exit_code), summary_(std::move(summary)) {}
  /// As sgd-launch has it.
  [[nodiscard]] int exit_code() const { return exit_code_; }
  /// summary.json of the run; null: there is none.
  [[nodiscard]] const nlohmann::json& summary() const { return summary_; }

 private:
  int exit_code_;
  nlohmann::json summary_;
};

/// By a worker's error, or because restarts or room for workers are used up.
class TrainingFailed : public RunError {
 public:
  using RunError::RunError;
};

/// Somebody has asked it to stop: sgd-launch stop, a signal, a time-out.
class TrainingStopped : public RunError {
 public:
  using RunError::RunError;
};

/// sgd-launch cannot be started, or was killed.
class LauncherLost : public TrainerError {
 public:
  using TrainerError::TrainerError;
};

struct TrainerOptions {
#ifdef SGD_LAUNCH_PROGRAM
  /// The package's own; without a slash one of that name in PATH. $SGD_LAUNCH, where it is set, goes before it.
  std::string launcher = SGD_LAUNCH_PROGRAM;
#else
  std::string launcher = "sgd-launch";
#endif
  /// A coordinator, as "node1:7070": runs go to its cluster, and their folders here are copies. Empty: this machine.
  std::string address;
  /// Where the folders of runs are made: run_001, run_002, ... for what trains, validate_001, ... and apply_001, ...
  /// for the calls of these names. Those that are there already stay, and the numbers go on behind them. Empty:
  /// runs/trainer-<time> in the working directory.
  std::string logdir;
  /// How long a run that is stopped has for its checkpoint, before it is killed.
  std::chrono::milliseconds shutdown_limit = std::chrono::seconds(60);
  /// Further words for sgd-launch, as {"--slots", "1"}.
  std::vector<std::string> arguments;
};

/// Values of the job that one call changes, by their dotted path: {{"training.optimizer.lr", 0.1}}.
using Changes = nlohmann::json;

/// The reports of a run while it goes on. Destroyed before the run has ended it stops it.
class RunIterator {
 public:
  RunIterator(RunIterator&&) noexcept;
  RunIterator& operator=(RunIterator&&) = delete;
  ~RunIterator();

  /// Waits for the next one: a line of metrics.jsonl. Nothing: the run has ended well. Throws as Trainer::run().
  [[nodiscard]] std::optional<nlohmann::json> next();
  [[nodiscard]] bool is_finished() const;
  /// What run() would have returned. Null before the end. `force`: the rest of the reports is not waited for, but the
  /// run is.
  [[nodiscard]] nlohmann::json get_final_results(bool force = false);

  class Turn {
   public:
    explicit Turn(RunIterator& all) : all_(&all), value_(all.next()) {}
    [[nodiscard]] const nlohmann::json& operator*() const { return *value_; }
    Turn& operator++() {
      value_ = all_->next();
      return *this;
    }
    [[nodiscard]] bool operator!=(std::default_sentinel_t) const { return value_.has_value(); }

   private:
    RunIterator* all_;
    std::optional<nlohmann::json> value_;
  };
  [[nodiscard]] Turn begin() { return Turn(*this); }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  friend class Trainer;
  struct State;
  explicit RunIterator(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

namespace client {
/// Which weights: a checkpoint, and of which of its models; empty: the only one.
struct Weights {
  std::string checkpoint;
  std::string model;
};
}  // namespace client

class Trainer {
 public:
  /// A job file.
  explicit Trainer(const std::filesystem::path& job_file, TrainerOptions options = {});
  explicit Trainer(const char* job_file, TrainerOptions options = {})
      : Trainer(std::filesystem::path(job_file), std::move(options)) {}
  explicit Trainer(const std::string& job_file, TrainerOptions options = {})
      : Trainer(std::filesystem::path(job_file), std::move(options)) {}
  /// The job itself; relative paths in it are from the working directory.
  explicit Trainer(nlohmann::json job, TrainerOptions options = {});
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) = delete;
  /// As shutdown(true).
  ~Trainer();

  /// Checks the job, and makes the folder for its runs. No worker waits: each call below starts its own, and they are
  /// gone when it returns.
  void start();

  /// One more epoch: its report, as RaySGD's train() gives it. The job's training.epochs is not looked at; the epoch is
  /// validated where the job says so. It goes on from the newest checkpoint of the calls before, or what load() named;
  /// the first one from the job's resume_from, where it has one. To go on it needs checkpoints: with checkpoint.every
  /// "never" it saves as with "epoch". Throws TrainerError where nothing of phase "train" was reported: training has
  /// stopped early, the job has validate_only, or a function has reported nothing of it.
  nlohmann::json train(const Changes& changes = nullptr);
  /// Measures the weights of that checkpoint: what RaySGD's validate() gives. Trains nothing, and saves nothing.
  nlohmann::json validate(const Changes& changes = nullptr);

  /// The job from its beginning, or from what load() named, to its end: what the training function has returned on each
  /// rank, in their order; empty where nothing was returned. It saves as the job says: with checkpoint.every "never"
  /// the other calls know nothing of what it has trained.
  nlohmann::json run(const Changes& changes = nullptr);
  /// The same, report by report. While it goes on, no other call is taken.
  [[nodiscard]] RunIterator run_iterator(const Changes& changes = nullptr);

  /// Runs a registered function on each worker, {"type": NAME, settings ...}: what it has returned on each rank. Of the
  /// job it has all that a function may have, but no resume_from: early_stop, metrics and the like are left out.
  nlohmann::json apply(const nlohmann::json& function, const Changes& changes = nullptr);

  /// Copies the newest checkpoint, whole or not at all, to the folder `path`, in place of a checkpoint there; returns
  /// it.
  std::string save(const std::string& path) const;
  /// The checkpoint that the next run() or train() begins with: one that save() has made, or any of a run's. With an
  /// `address` the newest of a run of that cluster: others are not there.
  void load(const std::string& path);

  /// What a training function has saved last with save_checkpoint(); null: nothing.
  [[nodiscard]] nlohmann::json latest_checkpoint() const;
  /// The folders of the newest checkpoint, of all of that run, of the run, and of all runs; empty before there is one.
  [[nodiscard]] std::string latest_checkpoint_path() const;
  [[nodiscard]] std::string latest_checkpoint_dir() const;
  [[nodiscard]] std::string latest_run_dir() const;
  [[nodiscard]] std::string logdir() const;

  /// The trained model, as a module of LibTorch's: include <sgd/trainer_model.hpp>. `name`: of several models.
  template <class Net>
  [[nodiscard]] std::shared_ptr<Net> model(std::shared_ptr<Net> net = std::make_shared<Net>(),
                                           const std::string& name = {}) const {
    load_weights(*net, client::Weights{path_for_model(), name});
    return net;
  }

  /// Later calls that need workers are refused. Ends a run whose iterator is still there: with a checkpoint, or at
  /// once.
  void shutdown(bool force = false);

 private:
  friend struct RunIterator::State;
  [[nodiscard]] std::string path_for_model() const;

  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace sgd
