#include "worker/torch/checkpoint_state.hpp"

#include "common/json/lenient.hpp"

namespace sgd::worker {
namespace {

constexpr int kFormat = 1;

}  // namespace

nlohmann::json to_json(const TrainingState& state) {
  nlohmann::json out;
  out["format"] = kFormat;
  out["position"]["epoch"] = state.position.epoch;
  out["position"]["phase"] = state.position.phase;
  out["position"]["consumed"] = state.position.consumed;
  out["step"] = state.step;
  out["world_size"] = state.world_size;
  out["seed"] = state.seed;
  out["scheduler"] = state.scheduler;
  out["optimizer"]["type"] = state.optimizer;
  out["optimizer"]["steps"] = state.optimizer_steps;
  out["records"] = state.records;
  out["user"] = state.user;
  out["made_by"] = state.made_by;
  return out;
}

Result<TrainingState> parse_training_state(const nlohmann::json& json) {
  TrainingState state;
  try {
    if (json.at("format").get<int>() != kFormat)
      return Error{"format " + json.at("format").dump() + " is not known to this worker"};
    const nlohmann::json& position = json.at("position");
    position.at("epoch").get_to(state.position.epoch);
    position.at("phase").get_to(state.position.phase);
    position.at("consumed").get_to(state.position.consumed);
    json.at("step").get_to(state.step);
    json.at("world_size").get_to(state.world_size);
    json.at("seed").get_to(state.seed);
    state.scheduler = json.at("scheduler");
    (void)state.scheduler.at("count").get<std::int64_t>();  // There is one: ignoring its value.
    json.at("optimizer").at("type").get_to(state.optimizer);
    json.at("optimizer").at("steps").get_to(state.optimizer_steps);
    json.at("records").get_to(state.records);
    state.user = json.at("user");
    state.made_by = member(json, "made_by");
  } catch (const nlohmann::json::exception&) {
    return Error{kWrongShape};
  }
  if (state.position.epoch < 1) return Error{"position.epoch is below 1"};
  if (state.position.phase != "train" && state.position.phase != "validate")
    return Error{"position.phase is \"" + state.position.phase + "\""};
  if (state.position.consumed < 0 || state.step < 0) return Error{"a count is negative"};
  if (state.world_size < 1 || state.records.size() != static_cast<std::size_t>(state.world_size))
    return Error{"there are " + std::to_string(state.records.size()) + " records for world_size " +
                 std::to_string(state.world_size)};
  return state;
}

Result<MetricsAccumulator> record_of(const TrainingState& state, int rank, int world_size) {
  MetricsAccumulator sums;
  for (int from = 0; from < state.world_size; ++from) {
    MetricsAccumulator one;
    if (Status imported = one.import_state(state.records[static_cast<std::size_t>(from)]); !imported)
      return Error{"record of rank " + std::to_string(from) + ": " + imported.error().message};
    sums.count_batches(one.batch_count());
    if (from % world_size == rank) sums.merge(one);
  }
  return sums;
}

}  // namespace sgd::worker
