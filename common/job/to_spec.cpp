#include "common/job/to_spec.hpp"

#include <utility>

#include "common/base/assert.hpp"
#include "common/base/bytes.hpp"
#include "common/job/named_datasets.hpp"

namespace sgd::job {
namespace {

using Json = nlohmann::json;

Duration duration(const Json& text) {
  const std::optional<Duration> parsed = parse_duration(text.get<std::string>());
  SGD_ASSERT(parsed.has_value());
  return *parsed;
}

PerWorker per_worker(const Json& json) {
  PerWorker out{json["cpus"].get<int>(), json.value("gpus", 0), 0};
  if (!json.contains("memory")) return out;
  const std::optional<std::int64_t> bytes = parse_bytes(json["memory"].get<std::string>());
  SGD_ASSERT(bytes.has_value());
  out.memory_bytes = *bytes;
  return out;
}

PlacementRules placement(const Json& json) {
  PlacementRules out;
  const bool spreads = json["strategy"] == "spread";
  out.strategy = spreads ? PlacementRules::Strategy::kSpread : PlacementRules::Strategy::kPack;
  out.labels = json["labels"].get<std::map<std::string, std::string>>();
  out.exclude = json["exclude"].get<std::vector<std::string>>();
  out.max_per_node = json.value("max_per_node", 0);
  return out;
}

Recovery recovery(const Json& json) {
  Recovery out;
  const Json& failures = json["max_failures"];
  out.max_failures = failures.is_string() ? kUnlimited : failures.get<std::int64_t>();
  out.backoff = {duration(json["backoff"]["first"]), json["backoff"]["factor"].get<double>(),
                 json["backoff"]["attempts"].get<int>()};
  out.scale_up = json["scale_up"];
  out.cooldown = duration(json["cooldown"]);
  out.exclude_after = json["exclude_after"].get<int>();
  return out;
}

CheckpointPolicy checkpoint(const Json& json) {
  using Every = CheckpointPolicy::Every;
  CheckpointPolicy out;
  const Json& keep = json["keep"];
  out.keep = keep.is_object() ? keep["latest"] : keep;
  if (keep.is_object() && keep.contains("best"))
    out.best = {keep["best"]["metric"], keep["best"]["mode"] == "max", keep["best"]["n"]};
  if (json.contains("after_save")) {
    const Json& rule = json["after_save"];
    out.after_save = {rule["command"].get<std::vector<std::string>>(), duration(rule["timeout"])};
  }
  out.memory = json["memory"];
  const Json& every = json["every"];
  if (every.is_string()) {
    out.every = every == "never" ? Every::kNever : Every::kEpoch;
  } else if (every.contains("steps")) {
    out.every = Every::kSteps;
    out.steps = every["steps"];
  } else {
    out.every = Every::kSeconds;
    out.seconds = every["seconds"];
  }
  return out;
}

ReportRules report_rules(const Json& json) {
  using Workers = ReportRules::Workers;
  ReportRules out;
  out.detailed = json["detailed"];
  out.last_line = json.value("last_line", false);
  const Json& workers = json["workers"];
  if (workers.is_array()) {
    out.workers = Workers::kSome;
    out.ranks = workers.get<std::vector<int>>();
  } else if (workers == "rank0") {
    out.workers = Workers::kRank0;
  } else if (workers == "all") {
    out.workers = Workers::kAll;
  } else if (workers == "list") {
    out.workers = Workers::kList;
  }
  return out;
}

Optimizer optimizer(const Json& json) {
  Optimizer out;
  out.type = json["type"];
  out.lr = json["lr"];
  out.weight_decay = json["weight_decay"];
  if (out.type == "sgd") {
    out.momentum = json["momentum"];
    out.dampening = json["dampening"];
    out.nesterov = json["nesterov"];
    return out;
  }
  out.eps = json["eps"];
  if (out.type == "rmsprop") {
    out.alpha = json["alpha"];
    out.centered = json["centered"];
    out.momentum = json["momentum"];
  } else if (out.type == "adagrad") {
    out.lr_decay = json["lr_decay"];
    out.initial_accumulator_value = json["initial_accumulator_value"];
  } else {
    out.beta1 = json["betas"][0];
    out.beta2 = json["betas"][1];
    out.amsgrad = json["amsgrad"];
  }
  return out;
}

Scheduler scheduler(const Json& json) {
  Scheduler out;
  if (json.is_array()) {
    out.chain = json.get<std::vector<Json>>();
  } else {
    out.chain = {json};
  }
  out.frequency = out.chain.front()["frequency"];
  return out;
}

std::vector<OptimizerGroup> optimizer_groups(const Json& json) {
  std::vector<OptimizerGroup> groups;
  for (const Json& one : json) {
    OptimizerGroup group;
    group.parameters = one["parameters"].get<std::vector<std::string>>();
    if (one.contains("lr")) group.lr = one["lr"].get<double>();
    if (one.contains("weight_decay")) group.weight_decay = one["weight_decay"].get<double>();
    groups.push_back(std::move(group));
  }
  return groups;
}

EarlyStop early_stop(const Json& json) {
  EarlyStop out;
  out.metric = json["metric"];
  out.wants_least = json["mode"] == "min";
  out.patience = json["patience"];
  out.min_delta = json["min_delta"];
  return out;
}

Loader loader(const Json& json) {
  Loader out;
  if (json["threads"].is_number()) out.threads = json["threads"].get<int>();
  out.prefetch = json["prefetch"];
  return out;
}

Training training(const Json& json) {
  Training out;
  out.seed = json["seed"];
  out.epochs = json["epochs"];
  out.batch_size = json.value("batch_size", std::int64_t{0});
  out.batch_size_per_worker = json.value("batch_size_per_worker", std::int64_t{0});
  out.shuffle = json["shuffle"];
  out.model = json.value("model", Json());
  if (json.contains("operator") && json["operator"]["type"] != kSupervised) out.training_operator = json["operator"];
  out.loss = json["loss"].is_string() ? Json{{"type", json["loss"]}} : json["loss"];
  out.function = json.value("function", Json());
  out.dataset = with_both_parts(json.value("dataset", Json()));
  out.has_validation = !lacks_validation(json);
  const Json datasets = json.value("datasets", Json::object());
  for (const auto& [name, one] : datasets.items()) out.datasets[name] = with_both_parts(one);
  if (const auto train = out.datasets.find(kTrainSet); train != out.datasets.end()) out.dataset = train->second;
  out.loader = loader(json["loader"]);
  out.optimizer = optimizer(json["optimizer"]);
  out.optimizer_groups = optimizer_groups(json["optimizer"].value("groups", Json::array()));
  if (json.contains("scheduler")) out.scheduler = scheduler(json["scheduler"]);
  if (json.contains("gradient_clip")) {
    const Json& clip = json["gradient_clip"];
    if (clip.contains("norm")) out.clip_norm = clip["norm"].get<double>();
    if (clip.contains("value")) out.clip_value = clip["value"].get<double>();
  }
  out.gradient_accumulation = json["gradient_accumulation"];
  out.on_nan = json["on_nan"];
  out.broadcast_buffers = json["data_parallel"]["broadcast_buffers"];
  out.sync_batchnorm = json["data_parallel"]["sync_batchnorm"];
  if (json.contains("metrics")) out.metrics = json["metrics"].get<std::vector<Json>>();
  out.profile = json["profile"];
  out.info = json.value("info", Json());
  out.backend = json["backend"];
  out.device = json["device"];
  out.precision = json["precision"];
  out.channels_last = json["memory_format"] == "channels_last";
  out.deterministic = json["deterministic"];
  out.flush_denormal = json["flush_denormal"];
  out.steps_per_epoch = json.value("steps_per_epoch", std::int64_t{0});
  out.validate_every = json["validate_every"];
  out.validate_only = json["validate_only"];
  if (json.contains("early_stop")) out.early_stop = early_stop(json["early_stop"]);
  return out;
}

}  // namespace

JobSpec to_spec(Json resolved) {
  const Json& json = resolved;
  JobSpec out;
  out.name = json["name"];
  out.num_workers = json["num_workers"];
  out.min_workers = json["min_workers"];
  out.per_worker = per_worker(json["per_worker"]);
  out.placement = placement(json["placement"]);
  out.priority = json["priority"];
  out.recovery = recovery(json["recovery"]);
  const Json& heartbeat = json["heartbeat"];
  out.heartbeat = {duration(heartbeat["interval"]), duration(heartbeat["timeout"]),
                   duration(heartbeat["stall_timeout"])};
  out.stop = {duration(json["stop"]["grace"])};
  out.checkpoint = checkpoint(json["checkpoint"]);
  out.report = report_rules(json["report"]);
  if (json.contains("training")) out.training = training(json["training"]);
  if (json.contains("command")) out.command = json["command"].get<std::vector<std::string>>();
  out.resume_from = json.value("resume_from", "");
  out.worker = json.value("worker", std::string());
  if (json.contains("files")) out.files = json["files"].get<std::vector<std::string>>();
  if (json.contains("plugins")) out.plugins = json["plugins"].get<std::vector<std::string>>();
  out.callbacks = json["callbacks"].get<std::vector<Json>>();
  out.tune = json.value("tune", Json());
  out.fork_server = json["fork_server"];
  out.placement_timeout = duration(json["placement_timeout"]);
  out.elastic_start = json["start"] == "elastic";
  out.resolved = std::move(resolved);
  return out;
}

std::int64_t batch_size_per_rank(const Training& training, int world_size) {
  SGD_ASSERT(world_size > 0);
  if (training.batch_size_per_worker > 0) return training.batch_size_per_worker;
  return training.batch_size / world_size;
}

}  // namespace sgd::job
