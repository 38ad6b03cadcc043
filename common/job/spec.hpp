#pragma once
// A job, typed: what the launcher and the worker read after the strict reader has accepted
// the file. Produced by job/load.hpp only; every value here has passed validation.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "common/json/nlohmann.hpp"
#include "common/json/shared.hpp"

namespace sgd::job {

/// The built-in operator's type.
inline constexpr const char* kSupervised = "supervised";

/// `"unlimited"` in the file.
inline constexpr std::int64_t kUnlimited = -1;

struct PerWorker {
  int cpus = 1;                   ///< Cores and intra-op threads of one worker.
  int gpus = 0;                   ///< Of its own.
  std::int64_t memory_bytes = 0;  ///< 0: not counted.
};

/// On which nodes a run may have workers, and how they are divided among those.
struct PlacementRules {
  enum class Strategy { kPack, kSpread };
  Strategy strategy = Strategy::kPack;
  std::map<std::string, std::string> labels;  ///< A node must have all of them.
  std::vector<std::string> exclude;           ///< Nodes by name.
  int max_per_node = 0;                       ///< Workers; 0: no limit.
};

struct Backoff {
  Duration first = std::chrono::seconds(1);
  double factor = 2;
  int attempts = 10;
};

struct Recovery {
  std::int64_t max_failures = 0;  ///< Default 3 for training, 0 for a command; or kUnlimited.
  Backoff backoff;
  std::string scale_up = "epoch";  ///< "epoch", "checkpoint" or "at_once".
  Duration cooldown = std::chrono::seconds(10);
  int exclude_after = 2;  ///< Restarts of which a GPU is the cause before the run does without it; 0: it never does.
};

struct Heartbeat {
  Duration interval = std::chrono::milliseconds(500);
  Duration timeout = std::chrono::seconds(5);
  Duration stall_timeout = std::chrono::minutes(10);
};

struct Stop {
  Duration grace = std::chrono::seconds(30);
};

/// Checkpoints that stay for a value of the reports at their step.
struct KeepBest {
  std::string metric;       ///< A number in a line of metrics.
  bool is_highest = false;  ///< The best is the highest one, else the lowest.
  int count = 1;            ///< At least 1.
};

/// A program that is run for each checkpoint.
struct AfterSave {
  std::vector<std::string> command;
  Duration timeout = std::chrono::minutes(10);  ///< Above 0; it is killed then.
};

struct CheckpointPolicy {
  enum class Every { kEpoch, kSteps, kSeconds, kNever };
  Every every = Every::kEpoch;
  std::int64_t steps = 0;        ///< With kSteps.
  double seconds = 0;            ///< With kSeconds.
  int keep = 3;                  ///< Newest complete checkpoints kept; at least 1.
  std::optional<KeepBest> best;  ///< Kept beside them.
  std::optional<AfterSave> after_save;
  bool memory = true;  ///< Between those on disk, copies in memory that outlive a rank.
};

struct Scheduler {
  std::string frequency = "epoch";  ///< What is counted: "epoch", "batch", or "manual", the user's calls.
  std::vector<nlohmann::json>
      chain;  ///< {"type": "step", ...}, defaults filled in; one after the other changes the rate.
};

struct Optimizer {
  std::string type = "sgd";  ///< "sgd", "adam", "adamw", "rmsprop" or "adagrad".
  double lr = 0.01;
  double momentum = 0;      ///< sgd, rmsprop.
  double dampening = 0;     ///< sgd.
  bool nesterov = false;    ///< sgd.
  double weight_decay = 0;  ///< All; default 0.01 for adamw.
  double beta1 = 0.9;       ///< adam, adamw; `"betas": [0.9, 0.999]` in the file.
  double beta2 = 0.999;
  double eps = 1e-8;                     ///< All but sgd; default 1e-10 for adagrad.
  bool amsgrad = false;                  ///< adam, adamw.
  double alpha = 0.99;                   ///< rmsprop.
  bool centered = false;                 ///< rmsprop.
  double lr_decay = 0;                   ///< adagrad.
  double initial_accumulator_value = 0;  ///< adagrad.
};

/// Settings of an optimizer for some of its parameters.
struct OptimizerGroup {
  std::vector<std::string> parameters;  ///< Patterns with * and ?.
  std::optional<double> lr;
  std::optional<double> weight_decay;
};

/// When training ends before its last epoch.
struct EarlyStop {
  std::string metric = "val_loss";
  bool wants_least = true;
  int patience = 3;      ///< Validations in a row.
  double min_delta = 0;  ///< By how much a value must be better.
};

/// How batches are made ahead of training.
struct Loader {
  std::optional<int> threads;  ///< 0: the training thread makes them; nothing: as the data set needs.
  int prefetch = 4;            ///< Batches ahead, at most.
};

/// What a `training` job runs in sgd-worker.
struct Training {
  std::uint64_t seed = 0;
  int epochs = 1;
  std::int64_t batch_size = 0;             ///< Global; 0 when batch_size_per_worker is given.
  std::int64_t batch_size_per_worker = 0;  ///< 0 when batch_size is given.
  bool shuffle = true;
  nlohmann::json model;              ///< {"type": "cnn", ...}, defaults filled in; null: the operator's own.
  nlohmann::json training_operator;  ///< {"type": ..., ...} of a plug-in's; null: the built-in one.
  nlohmann::json function;           ///< {"type": ..., ...} of a plug-in's; null: an operator trains.
  nlohmann::json loss = {{"type", "cross_entropy"}};  ///< {"type": "mse" ..., options}.
  nlohmann::json
      dataset;  ///< {"type": "idx" | "csv" ..., ...}, defaults, absolute paths. Null: a function has its own.
  std::map<std::string, nlohmann::json> datasets;  ///< By name, each as `dataset`, which is "train" of them then.
  bool has_validation = true;                      ///< Else the job names no data for it, and no epoch is validated.
  Loader loader;
  Optimizer optimizer;
  std::vector<OptimizerGroup> optimizer_groups;  ///< A parameter is of the first that names it.
  std::optional<Scheduler> scheduler;
  std::optional<double> clip_norm;         ///< Of the mean gradient of all parameters together.
  std::optional<double> clip_value;        ///< Of each of its numbers; not both.
  std::int64_t gradient_accumulation = 1;  ///< Batches an update.
  std::string on_nan = "stop";             ///< "stop", "skip" or "rollback": an update that is not finite.
  bool broadcast_buffers = true;           ///< Buffers of models are rank 0's after each batch.
  bool sync_batchnorm = false;             ///< Batch normalization measures the batches of all workers together.
  std::string backend = "auto";            ///< "auto", "shm" or "gloo".
  std::string device = "auto";             ///< "auto", "cpu" or "cuda".
  std::vector<nlohmann::json> metrics;     ///< {"type": "top_k", "k": 5, "on": "validation"}, defaults filled in.
  bool profile = false;                    ///< Reports have the mean times of steps.
  nlohmann::json info;                     ///< For the operator; null: none.
  std::string precision = "fp32";          ///< Or "bf16", "fp16": as autocast has it.
  bool channels_last = false;              ///< Features lie in memory with the channels of a pixel side by side.
  bool deterministic = false;
  bool flush_denormal = true;        ///< Numbers below 1.2e-38 count as zero.
  std::int64_t steps_per_epoch = 0;  ///< Batches of one worker; 0: an epoch is one pass over the data.
  int validate_every = 1;            ///< Epochs.
  bool validate_only = false;        ///< The weights that the run begins with.
  std::optional<EarlyStop> early_stop;
};

/// What of the workers' reports a line of metrics has.
struct ReportRules {
  enum class Workers {
    kReduced,  ///< One value of all.
    kRank0,    ///< Rank 0's.
    kAll,      ///< The reduced ones, and every worker's.
    kList,     ///< Every worker's alone.
    kSome,     ///< The reduced ones, and those of `ranks`.
  };
  Workers workers = Workers::kReduced;
  std::vector<int> ranks;  ///< With kSome, in the file's order.
  bool detailed = false;   ///< Also host, pid and times.
  bool last_line =
      false;  ///< Of a command that has reported nothing: the last JSON object that rank 0 prints is a line.
};

struct JobSpec {
  std::string name;
  int num_workers = 1;
  int min_workers = 1;
  PerWorker per_worker;
  PlacementRules placement;
  int priority = 0;  ///< In a cluster's queue: the higher one first.
  Recovery recovery;
  Heartbeat heartbeat;
  Stop stop;
  CheckpointPolicy checkpoint;
  ReportRules report;
  std::optional<Training> training;  ///< Exactly one of training and command is set.
  std::vector<std::string> command;
  std::string resume_from;           ///< Where a new run begins: a path, or a run's name; empty: anew.
  std::string worker;                ///< A worker of one's own, absolute; empty: sgd-worker.
  std::vector<std::string> files;    ///< That the workers need, absolute paths: a cluster brings them to its nodes.
  std::vector<std::string> plugins;  ///< Libraries that the worker loads, absolute paths.
  std::vector<nlohmann::json> callbacks;  ///< {"type": "json", ...}, defaults filled in, absolute folders.
  nlohmann::json tune;                    ///< An experiment, defaults filled in; null: none. See launcher/tune.
  bool fork_server = true;
  Duration placement_timeout = std::chrono::seconds(100);  ///< For the first start, above 0.
  bool elastic_start = false;  ///< `"start": "elastic"`: the first start takes any size from min_workers.
  struct Location {
    std::string source;
    int line = 0;
    int column = 0;
  };
  /// Where values of "training" were given whose errors are found later: by dotted path, see kPlaced in load.cpp.
  std::map<std::string, Location> locations;
  SharedJson resolved;  ///< The whole job with defaults and absolute paths, as job.json keeps it.
};

/// The part of `batch_size` that one rank takes at `world_size`: floor, at least 1 by validation.
[[nodiscard]] std::int64_t batch_size_per_rank(const Training& training, int world_size);

}  // namespace sgd::job
