#include "worker/torch/operator_state.hpp"

#include <algorithm>
#include <optional>

#include "common/json/lenient.hpp"

namespace sgd::worker {
namespace {

constexpr const char* kCutOff = "what ranks keep of their own is cut off";

std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Nothing where the shape is impossible.
std::optional<std::uint64_t> bytes_of(TensorType type, const std::vector<std::int64_t>& shape) {
  std::uint64_t bytes = size_of(type);
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<std::uint64_t>(extent), &bytes)) return std::nullopt;
  }
  return bytes;
}

}  // namespace

nlohmann::json describe(const OperatorState& state) {
  nlohmann::json tensors = nlohmann::json::array();
  for (const TensorBytes& tensor : state.tensors)
    tensors.push_back({{"name", tensor.name}, {"type", name_of(tensor.type)}, {"shape", tensor.shape}});
  return {{"json_bytes", state.json.size()}, {"tensors", std::move(tensors)}};
}

void append_pieces(const OperatorState& state, std::vector<std::string_view>& pieces) {
  pieces.push_back(state.json);
  for (const TensorBytes& tensor : state.tensors) pieces.push_back(as_text(tensor.bytes));
}

DescribedText::DescribedText(std::string text) : text_(std::make_shared<const std::string>(std::move(text))) {
  head_ = text_->c_str();  // A NUL ends the description.
  rest_ = std::string_view(*text_).substr(std::min(text_->size(), head_.size() + 1));
}

Result<nlohmann::json> DescribedText::head() const {
  nlohmann::json json = nlohmann::json::parse(head_, nullptr, false);
  if (!json.is_object()) return Error{"not a JSON object"};
  return json;
}

Result<OperatorState> DescribedText::next(const nlohmann::json& description) {
  OperatorState state;
  state.memory.push_back(text_);
  try {
    const auto json_bytes = description.at("json_bytes").get<std::uint64_t>();
    if (json_bytes > rest_.size()) return Error{kCutOff};
    state.json = take(json_bytes);
    for (const nlohmann::json& told : description.at("tensors")) {
      TensorBytes tensor;
      told.at("name").get_to(tensor.name);
      told.at("shape").get_to(tensor.shape);
      const auto type = tensor_type_named(told.at("type").get<std::string>());
      const auto bytes = type ? bytes_of(*type, tensor.shape) : std::nullopt;
      if (!bytes) return Error{"tensor " + tensor.name + " has an unknown type or an impossible shape"};
      if (*bytes > rest_.size()) return Error{kCutOff};
      tensor.type = *type;
      tensor.bytes = std::as_bytes(std::span(take(*bytes)));
      state.tensors.push_back(std::move(tensor));
    }
  } catch (const nlohmann::json::exception&) {
    return Error{kWrongShape};
  }
  return state;
}

std::string_view DescribedText::take(std::uint64_t bytes) {
  const std::string_view taken = rest_.substr(0, bytes);
  rest_.remove_prefix(bytes);
  return taken;
}

std::string joined(const std::vector<std::string_view>& pieces) {
  std::size_t bytes = 0;
  for (const std::string_view piece : pieces) bytes += piece.size();
  std::string text;
  text.reserve(bytes);
  for (const std::string_view piece : pieces) text += piece;
  return text;
}

}  // namespace sgd::worker
