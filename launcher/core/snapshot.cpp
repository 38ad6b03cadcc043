#include "launcher/core/snapshot.hpp"

#include <cmath>

#include "common/json/lenient.hpp"
#include "common/json/object_text.hpp"

namespace sgd::core {
namespace {

/// JSON has no NaN.
nlohmann::ordered_json finite(double value) {
  if (!std::isfinite(value)) return nullptr;
  return value;
}

}  // namespace

const char* name(RunPhase phase) {
  switch (phase) {
    case RunPhase::kPlacing:
      return "placing";
    case RunPhase::kStarting:
      return "starting";
    case RunPhase::kRunning:
      return "running";
    case RunPhase::kLeaving:
      return "leaving";
    case RunPhase::kRecovering:
      return "recovering";
    case RunPhase::kWaiting:
      return "waiting";
    case RunPhase::kStopping:
      return "stopping";
    case RunPhase::kClearing:
      return "clearing";
    case RunPhase::kFinished:
      return "finished";
  }
  return "unknown";
}

const char* name(RankPhase phase) {
  switch (phase) {
    case RankPhase::kStarting:
      return "starting";
    case RankPhase::kStarted:
      return "started";
    case RankPhase::kReady:
      return "ready";
    case RankPhase::kStepping:
      return "stepping";
    case RankPhase::kExited:
      return "exited";
  }
  return "unknown";
}

const char* name(NodePhase phase) {
  switch (phase) {
    case NodePhase::kReady:
      return "ready";
    case NodePhase::kClosed:
      return "closed";
    case NodePhase::kDrained:
      return "drained";
    case NodePhase::kLeaving:
      return "leaving";
    case NodePhase::kUnstable:
      return "unstable";
    case NodePhase::kLost:
      return "lost";
  }
  return "unknown";
}

std::string to_text(const NodeSnapshot& snapshot, const char* state, TimePoint now) {
  json::ObjectText text;
  text.add("node", snapshot.node).add("state", state).add("reason", snapshot.reason);
  text.add("slots", snapshot.slots).add("slots_ordered", snapshot.has_ordered_slots).add("used", snapshot.used);
  text.add("drained", snapshot.is_drained).add("leaving", snapshot.is_leaving);
  text.add("cpus", snapshot.cpus).add("cpus_counted", snapshot.counts_cpus).add("gpus", snapshot.gpus);
  text.add("memory_bytes", snapshot.memory_bytes).add("labels", snapshot.labels);
  text.add("version", snapshot.version).add("address", snapshot.address);
  text.add("heard_age_s", to_seconds(now - snapshot.heard_at)).add("runs", snapshot.runs);
  return text.text();
}

std::string to_brief_text(const NodeSnapshot& snapshot, const char* state) {
  json::ObjectText text;
  text.add("node", snapshot.node).add("state", state).add("slots", snapshot.slots).add("used", snapshot.used);
  return text.text();
}

nlohmann::ordered_json to_json(const RunSnapshot& snapshot) {
  nlohmann::ordered_json json = {
      {"schema_version", 1},
      {"run", snapshot.run},
      {"name", snapshot.name},
      {"state", name(snapshot.phase)},
      {"reason", snapshot.reason},
      {"generation", snapshot.generation},
      {"owner", snapshot.owner},
      {"priority", snapshot.priority},
      {"num_workers", snapshot.num_workers},
      {"world_size", snapshot.world_size},
      {"ready", snapshot.ready},
      {"epoch", snapshot.epoch},
      {"epochs", snapshot.epochs},
      {"epochs_done", snapshot.epochs_done},
      {"job_epochs", snapshot.epochs},
      {"step", snapshot.step},
      {"activity", snapshot.activity},
      {"loss", finite(snapshot.loss)},
      {"samples_per_s", finite(snapshot.samples_per_s)},
      {"failures", snapshot.failures},
      {"wall_s", snapshot.wall_s},
      {"checkpoint", snapshot.checkpoint},
      {"gpus_left_out", nlohmann::ordered_json::array()},
      {"ranks", nlohmann::ordered_json::array()},
  };
  for (const LeftOutGpu& one : snapshot.gpus_left_out)
    json["gpus_left_out"].push_back({{"node", one.node}, {"device", one.gpu}, {"restarts", one.restarts}});
  for (const RankSnapshot& rank : snapshot.ranks) {
    nlohmann::ordered_json row = {
        {"rank", rank.rank},         {"node", rank.node},         {"pid", rank.pid},
        {"state", name(rank.phase)}, {"step", rank.step},         {"epoch", rank.epoch},
        {"activity", rank.activity}, {"loss", finite(rank.loss)}, {"samples_per_s", finite(rank.samples_per_s)},
    };
    row["heartbeat_age_s"] = rank.heartbeat_age_s ? nlohmann::ordered_json(*rank.heartbeat_age_s) : nullptr;
    if (rank.gpu.size() == 3)
      row["gpu"] = {
          {"busy_percent", finite(rank.gpu[0])}, {"memory_mib", finite(rank.gpu[1])}, {"celsius", finite(rank.gpu[2])}};
    json["ranks"].push_back(std::move(row));
  }
  return json;
}

RunSnapshot snapshot_from_json(const nlohmann::ordered_json& json) {
  RunSnapshot shot;
  if (!json.is_object()) return shot;
  std::string state;
  read_if_fits(json, "state", state);
  for (const RunPhase phase :
       {RunPhase::kPlacing, RunPhase::kStarting, RunPhase::kRunning, RunPhase::kLeaving, RunPhase::kRecovering,
        RunPhase::kWaiting, RunPhase::kStopping, RunPhase::kClearing, RunPhase::kFinished})
    if (state == name(phase)) shot.phase = phase;
  read_if_fits(json, "run", shot.run);
  read_if_fits(json, "name", shot.name);
  read_if_fits(json, "reason", shot.reason);
  read_if_fits(json, "generation", shot.generation);
  read_if_fits(json, "num_workers", shot.num_workers);
  read_if_fits(json, "world_size", shot.world_size);
  read_if_fits(json, "ready", shot.ready);
  read_if_fits(json, "epoch", shot.epoch);
  read_if_fits(json, "epochs", shot.epochs);
  read_if_fits(json, "epochs_done", shot.epochs_done);
  read_if_fits(json, "step", shot.step);
  read_if_fits(json, "activity", shot.activity);
  read_if_fits(json, "loss", shot.loss);
  read_if_fits(json, "samples_per_s", shot.samples_per_s);
  read_if_fits(json, "failures", shot.failures);
  read_if_fits(json, "wall_s", shot.wall_s);
  read_if_fits(json, "checkpoint", shot.checkpoint);
  return shot;
}

}  // namespace sgd::core
