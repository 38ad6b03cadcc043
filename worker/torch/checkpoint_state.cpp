#include "worker/torch/checkpoint_state.hpp"

#include <charconv>

#include <fmt/format.h>

#include "common/json/lenient.hpp"

namespace sgd::worker {
namespace {

constexpr std::string_view kRankPrefix = "rank-";
constexpr int kFormat = 3;
constexpr int kOneOptimizerFormat = 2;  // And the formats below.
constexpr int kSharedOnlyFormat = 1;    // Records were sums alone, and "user" rank 0's state for all.

/// All but the operators' states.
nlohmann::json common_part(const TrainingState& state) {
  nlohmann::json out;
  out["format"] = kFormat;
  out["position"]["epoch"] = state.position.epoch;
  out["position"]["phase"] = state.position.phase;
  out["position"]["consumed"] = state.position.consumed;
  out["position"]["pass"] = state.position.pass;
  out["position"]["pass_consumed"] = state.position.pass_consumed;
  out["position"]["batches"] = state.position.batches;
  if (!state.early_stop.is_null()) out["early_stop"] = state.early_stop;
  if (!state.loss_scale.is_null()) out["loss_scale"] = state.loss_scale;
  if (state.skipped_updates > 0) out["skipped_updates"] = state.skipped_updates;
  if (state.rollbacks > 0) out["rollbacks"] = state.rollbacks;
  out["step"] = state.step;
  out["world_size"] = state.world_size;
  out["seed"] = state.seed;
  out["optimizers"] = nlohmann::json::array();
  for (const OptimizerRecord& record : state.optimizers) out["optimizers"].push_back(to_json(record));
  out["records"] = nlohmann::json::array();
  for (const RankRecord& record : state.records) out["records"].push_back({{"sums", record.sums}});
  out["made_by"] = state.made_by;
  return out;
}

/// As it was before there could be several.
OptimizerRecord only_optimizer(const nlohmann::json& json, std::int64_t step) {
  OptimizerRecord record;
  record.batches = step;
  record.schedulers.push_back(json.at("scheduler"));
  (void)record.schedulers[0].at("count").get<std::int64_t>();  // There is one: ignoring its value.
  json.at("optimizer").at("type").get_to(record.type);
  json.at("optimizer").at("steps").get_to(record.steps);
  if (const nlohmann::json& steps = member(json.at("optimizer"), "parameter_steps"); !steps.is_null())
    steps.get_to(record.parameter_steps);
  return record;
}

/// Where each epoch was one pass, nothing says it.
void read_pass(const nlohmann::json& json, Position& position) {
  position.pass = position.epoch + (position.phase == "validate" ? 1 : 0);
  if (!json.contains("pass")) return;
  json.at("pass").get_to(position.pass);
  json.at("pass_consumed").get_to(position.pass_consumed);
  json.at("batches").get_to(position.batches);
}

/// The same, read; throws the JSON library's exceptions.
void read_common_part(const nlohmann::json& json, TrainingState& state) {
  const nlohmann::json& position = json.at("position");
  position.at("epoch").get_to(state.position.epoch);
  position.at("phase").get_to(state.position.phase);
  position.at("consumed").get_to(state.position.consumed);
  read_pass(position, state.position);
  state.early_stop = member(json, "early_stop");
  state.loss_scale = member(json, "loss_scale");
  read_if_fits(json, "skipped_updates", state.skipped_updates);
  read_if_fits(json, "rollbacks", state.rollbacks);
  json.at("step").get_to(state.step);
  json.at("world_size").get_to(state.world_size);
  json.at("seed").get_to(state.seed);
  const int format = json.at("format").get<int>();
  if (format <= kOneOptimizerFormat) {
    state.optimizers.push_back(only_optimizer(json, state.step));
  } else {
    for (const auto& one : json.at("optimizers").get_ref<const nlohmann::json::array_t&>())
      state.optimizers.push_back(optimizer_record_from(one));
  }
  for (const auto& record : json.at("records").get_ref<const nlohmann::json::array_t&>())
    state.records.emplace_back().sums = format == kSharedOnlyFormat ? record : record.at("sums");
  state.made_by = member(json, "made_by");
}

Status consistent(const TrainingState& state) {
  if (state.position.epoch < 1) return Error{"position.epoch is below 1"};
  if (state.position.phase != "train" && state.position.phase != "validate")
    return Error{"position.phase is \"" + state.position.phase + "\""};
  if (state.position.pass < 1) return Error{"position.pass is below 1"};
  if (state.position.consumed < 0 || state.position.pass_consumed < 0 || state.position.batches < 0 || state.step < 0 ||
      state.skipped_updates < 0 || state.rollbacks < 0)
    return Error{"a count is negative"};
  if (state.world_size < 1 || state.records.size() != static_cast<std::size_t>(state.world_size))
    return Error{"there are " + std::to_string(state.records.size()) + " records for world_size " +
                 std::to_string(state.world_size)};
  return {};
}

OperatorState state_of(const nlohmann::json& json) {
  const auto text = std::make_shared<const std::string>(json.dump());
  return {*text, {}, {text}};
}

}  // namespace

nlohmann::json to_json(const TrainingState& state) {
  nlohmann::json out = common_part(state);
  for (std::size_t rank = 0; rank < state.records.size(); ++rank)
    out["records"][rank]["state"] = nlohmann::json::parse(state.records[rank].own.json);
  out["shared"] = nlohmann::json::parse(state.shared.json);
  return out;
}

Result<TrainingState> parse_training_state(const nlohmann::json& json) {
  TrainingState state;
  try {
    const int format = json.at("format").get<int>();
    if (format < kSharedOnlyFormat || format > kFormat)
      return Error{"format " + json.at("format").dump() + " is not known to this worker"};
    state.shared_is_own = format == kSharedOnlyFormat;
    read_common_part(json, state);
    state.shared = state_of(json.at(state.shared_is_own ? "user" : "shared"));
    for (std::size_t rank = 0; rank < state.records.size() && !state.shared_is_own; ++rank)
      state.records[rank].own = state_of(json.at("records")[rank].at("state"));
  } catch (const nlohmann::json::exception&) {
    return Error{kWrongShape};
  }
  if (Status checked = consistent(state); !checked) return checked.error();
  return state;
}

std::string packed_head(const TrainingState& state) {
  nlohmann::json head = common_part(state);
  for (std::size_t rank = 0; rank < state.records.size(); ++rank)
    head["records"][rank]["own"] = describe(state.records[rank].own);
  head["shared"] = describe(state.shared);
  head["shared_is_own"] = state.shared_is_own;
  return head.dump();
}

std::vector<std::string_view> packed_pieces(const std::string& head, const TrainingState& state) {
  std::vector<std::string_view> pieces = {head, std::string_view("\0", 1)};
  for (const RankRecord& record : state.records) append_pieces(record.own, pieces);
  append_pieces(state.shared, pieces);
  return pieces;
}

Result<TrainingState> unpack_training_state(std::string text) {
  DescribedText described(std::move(text));
  Result<nlohmann::json> head = described.head();
  if (!head) return head.error();
  const nlohmann::json& json = head.value();
  TrainingState state;
  try {
    if (json.at("format").get<int>() != kFormat)
      return Error{"format " + json.at("format").dump() + " is not known to this worker"};
    read_common_part(json, state);
    json.at("shared_is_own").get_to(state.shared_is_own);
    for (std::size_t rank = 0; rank < state.records.size(); ++rank) {
      Result<OperatorState> own = described.next(json.at("records")[rank].at("own"));
      if (!own) return own.error();
      state.records[rank].own = std::move(own).value();
    }
    Result<OperatorState> shared = described.next(json.at("shared"));
    if (!shared) return shared.error();
    state.shared = std::move(shared).value();
  } catch (const nlohmann::json::exception&) {
    return Error{kWrongShape};
  }
  if (Status checked = consistent(state); !checked) return checked.error();
  if (!described.is_at_end()) return Error{"there are bytes that belong to no rank"};
  return state;
}

Result<MetricsAccumulator> record_of(const TrainingState& state, int rank, int world_size) {
  MetricsAccumulator sums;
  for (int from = 0; from < state.world_size; ++from) {
    MetricsAccumulator one;
    if (Status imported = one.import_state(state.records[static_cast<std::size_t>(from)].sums); !imported)
      return Error{"record of rank " + std::to_string(from) + ": " + imported.error().message};
    sums.count_batches(one.batch_count());
    if (from % world_size == rank) sums.merge(one);
  }
  return sums;
}

std::string tensor_name_of(int rank, const std::string& name) {
  return fmt::format("{}{:04}/{}", kRankPrefix, rank, name);
}

Status add_tensors(const std::shared_ptr<const SafetensorsFile>& file, TrainingState& state) {
  for (const TensorBytes& tensor : file->tensors()) {
    const std::size_t slash = tensor.name.find('/');
    std::size_t rank = state.records.size();
    if (slash != std::string::npos && tensor.name.starts_with(kRankPrefix))
      (void)std::from_chars(tensor.name.data() + kRankPrefix.size(), tensor.name.data() + slash,
                            rank);  // Ignoring: below.
    const bool is_known = rank < state.records.size() &&
                          tensor.name == tensor_name_of(static_cast<int>(rank), tensor.name.substr(slash + 1));
    if (!is_known) return Error{"tensor " + tensor.name + " belongs to no rank"};
    OperatorState& own = state.records[rank].own;
    own.tensors.push_back(tensor);
    own.tensors.back().name.erase(0, slash + 1);
    own.memory.push_back(file);
  }
  return {};
}

std::vector<int> ranks_given_to(int rank, int world_size, int saved_world_size) {
  std::vector<int> given;
  for (int saved = rank; saved < saved_world_size; saved += world_size) given.push_back(saved);
  return given;
}

}  // namespace sgd::worker
