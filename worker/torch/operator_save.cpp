#include "worker/torch/operator_save.hpp"

#include <cmath>
#include <cstring>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "common/json/words.hpp"
#include "worker/torch/tensor_types.hpp"

namespace sgd::worker {
namespace {

/// Why JSON text does not hold `value` exactly, and where; empty: it does.
std::string what_is_lost(const nlohmann::json& value, const std::string& path) {
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return fmt::format("a number that is not finite at \"{}\"", path);
  if (value.is_binary()) return fmt::format("binary data at \"{}\"", path);
  if (value.is_string() && !json::is_utf8(value.get_ref<const std::string&>()))
    return fmt::format("a string that is not UTF-8 at \"{}\"", path);
  if (!value.is_structured()) return {};
  for (const auto& [key, item] : value.items()) {
    if (value.is_object() && !json::is_utf8(key)) return fmt::format("a key that is not UTF-8 at \"{}\"", path);
    if (const std::string lost = what_is_lost(item, path + "/" + key); !lost.empty()) return lost;
  }
  return {};
}

TensorBytes bytes_of(const std::string& name, const at::Tensor& tensor, int rank, const char* tensors_in) {
  const auto type = tensor_type_of(tensor.scalar_type());
  if (!type)
    throw std::invalid_argument(
        fmt::format("tensor \"{}\" in {} of rank {} has the type {}, which "
                    "checkpoints cannot hold: keep it as another one",
                    name, tensors_in, rank, c10::toString(tensor.scalar_type())));
  return {name, *type, tensor.sizes().vec(), {static_cast<const std::byte*>(tensor.const_data_ptr()), tensor.nbytes()}};
}

at::Tensor tensor_of(const TensorBytes& bytes) {
  at::Tensor tensor = at::empty(bytes.shape, scalar_type_of(bytes.type));
  if (!bytes.bytes.empty()) std::memcpy(tensor.data_ptr(), bytes.bytes.data(), bytes.bytes.size());
  return tensor;
}

}  // namespace

void check_json_bytes(const char* what, int rank, std::size_t bytes, const char* tensors_in) {
  if (bytes > kStateJsonBytesMax)
    throw std::invalid_argument(
        fmt::format("{} of rank {} has {} bytes as JSON, and the limit is {}: keep what is large "
                    "in {}",
                    what, rank, bytes, kStateJsonBytesMax, tensors_in));
}

void check_rank_bytes(int rank, std::size_t bytes) {
  if (bytes > kGatherBytesMax)
    throw std::invalid_argument(
        fmt::format("state() and state_tensors() of rank {} have {} bytes, and the limit is {}: "
                    "keep less, or in files of your own",
                    rank, bytes, kGatherBytesMax));
}

std::string exact_json(const char* what, int rank, const nlohmann::json& value, const char* way_out) {
  const std::string lost = what_is_lost(value, "");
  if (!lost.empty())
    throw std::invalid_argument(
        fmt::format("{} of rank {} holds {}, which JSON has no text for: {}", what, rank, lost, way_out));
  return value.dump();
}

OperatorState json_state_of(const char* what, int rank, const nlohmann::json& value, const char* tensors_in) {
  const std::string way_out = fmt::format("keep it in {}, or in words of your own", tensors_in);
  const auto text = std::make_shared<const std::string>(exact_json(what, rank, value, way_out.c_str()));
  check_json_bytes(what, rank, text->size(), tensors_in);
  return {*text, {}, {text}};
}

NamedTensors tensors_of(const OperatorState& state) {
  NamedTensors tensors;
  for (const TensorBytes& one : state.tensors) tensors[one.name] = tensor_of(one);
  return tensors;
}

void add_tensors(const NamedTensors& tensors, int rank, OperatorState& state, const char* tensors_in) {
  for (const auto& [name, kept] : tensors) {
    if (!kept.defined()) continue;
    if (kept.layout() != at::kStrided)
      throw std::invalid_argument(
          fmt::format("tensor \"{}\" in {} of rank {} is not dense: keep it as dense ones", name, tensors_in, rank));
    // Its memory is kept as long as it is described, whatever the user's code does with its own.
    const auto tensor = std::make_shared<const at::Tensor>(kept.data().cpu().resolve_conj().resolve_neg().contiguous());
    state.tensors.push_back(bytes_of(name, *tensor, rank, tensors_in));
    state.memory.push_back(tensor);
  }
}

OperatorState own_state_of(const TrainingOperator& training_operator, int rank) {
  OperatorState state = json_state_of("state()", rank, training_operator.state());
  add_tensors(training_operator.state_tensors(), rank, state);
  return state;
}

OperatorState shared_state_of(const TrainingOperator& training_operator) {
  return json_state_of("shared_state()", 0, training_operator.shared_state());
}

void give_back(const TrainingState& state, int rank, int world_size, TrainingOperator& training_operator) {
  const nlohmann::json shared = nlohmann::json::parse(state.shared.json);
  training_operator.load_shared_state(shared);
  std::vector<nlohmann::json> states;
  std::vector<NamedTensors> tensors;
  if (state.shared_is_own) {
    states.push_back(shared);
  } else {
    for (const int saved : ranks_given_to(rank, world_size, state.world_size)) {
      const OperatorState& own = state.records[static_cast<std::size_t>(saved)].own;
      states.push_back(nlohmann::json::parse(own.json));
      tensors.push_back(tensors_of(own));
    }
  }
  training_operator.load_states(std::move(states));
  training_operator.load_states_tensors(std::move(tensors));
}

}  // namespace sgd::worker
