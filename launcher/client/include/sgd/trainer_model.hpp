#pragma once
// Trainer::model<Net>(): the weights of a checkpoint in a module of LibTorch's.

#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <vector>

#include <torch/torch.h>

#include <sgd/trainer.hpp>

namespace sgd::client {

/// A tensor's bytes in a safetensors file.
struct StoredTensor {
  std::string type;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

inline at::ScalarType scalar_type_of(const std::string& type) {
  static const std::pair<const char*, at::ScalarType> known[] = {
      {"F64", at::kDouble}, {"F32", at::kFloat}, {"F16", at::kHalf}, {"BF16", at::kBFloat16}, {"I64", at::kLong},
      {"I32", at::kInt},    {"I16", at::kShort}, {"I8", at::kChar},  {"U8", at::kByte},       {"BOOL", at::kBool}};
  for (const auto& [name, value] : known)
    if (type == name) return value;
  throw TrainerError("a tensor of type " + type + " has no counterpart");
}

/// A file of which every read is checked.
class WeightsFile {
 public:
  explicit WeightsFile(const std::string& path) : path_(path), file_(path, std::ios::binary) {
    std::uint64_t length = 0;
    read(0, &length, sizeof length);
    if (length > kHeaderBytesMax) fail("its header is too long");
    std::string text(length, ' ');
    read(sizeof length, text.data(), text.size());
    header_ = nlohmann::json::parse(text, nullptr, false);
    if (!header_.is_object()) fail("its header is no JSON");
    data_ = sizeof length + length;
  }

  /// Into `tensor`, which keeps its place, shape, type and device.
  void load(const std::string& name, at::Tensor tensor) {
    const auto found = header_.find(name);
    if (found == header_.end()) fail("it has no tensor \"" + name + "\": it is of another model");
    const auto shape = found->at("shape").get<std::vector<std::int64_t>>();
    if (tensor.sizes() != at::IntArrayRef(shape)) fail("its tensor \"" + name + "\" has another shape");
    at::Tensor stored = at::empty(shape, scalar_type_of(found->at("dtype").get<std::string>()));
    const auto offsets = found->at("data_offsets").get<std::vector<std::uint64_t>>();
    if (offsets.at(1) - offsets.at(0) != stored.nbytes()) fail("its tensor \"" + name + "\" has another size");
    read(data_ + offsets.at(0), stored.data_ptr(), stored.nbytes());
    const at::NoGradGuard no_gradients;
    tensor.copy_(stored);
  }

 private:
  static constexpr std::uint64_t kHeaderBytesMax = std::uint64_t{100} << 20;

  [[noreturn]] void fail(const std::string& why) const { throw TrainerError(path_ + ": " + why); }
  void read(std::uint64_t from, void* into, std::size_t bytes) {
    file_.seekg(static_cast<std::streamoff>(from));
    if (!file_.read(static_cast<char*>(into), static_cast<std::streamsize>(bytes))) fail("it cannot be read");
  }

  std::string path_;
  std::ifstream file_;
  nlohmann::json header_;
  std::uint64_t data_ = 0;
};

/// Parameters and buffers, by their registered names.
inline void load_weights(torch::nn::Module& module, const Weights& weights) {
  WeightsFile file(weights.checkpoint + "/model.safetensors");
  const std::string front = weights.model.empty() ? "" : weights.model + ".";
  for (const auto& one : module.named_parameters()) file.load(front + one.key(), one.value().data());
  for (const auto& one : module.named_buffers()) file.load(front + one.key(), one.value());
}

}  // namespace sgd::client
