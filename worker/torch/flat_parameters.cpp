#include "worker/torch/flat_parameters.hpp"

#include <cstring>
#include <stdexcept>

#include "common/base/assert.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kAlignedFloats = 16;  // 64 bytes.

at::Tensor view_of(float* base, const ParameterPlace& place) {
  return at::from_blob(base + place.offset, place.shape, at::TensorOptions().dtype(at::kFloat));
}

}  // namespace

FlatParameters::FlatParameters(torch::nn::Module& model) {
  std::size_t offset = 0;
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& tensor = item.value();
    if (!tensor.requires_grad()) continue;  // Frozen: stays where it is, and is saved as a buffer.
    if (tensor.layout() != at::kStrided || tensor.scalar_type() != at::kFloat)
      throw std::invalid_argument("parameter " + item.key() + " is not a dense float32 tensor");
    ParameterPlace place;
    place.name = item.key();
    place.shape = tensor.sizes().vec();
    place.offset = offset;
    place.count = static_cast<std::size_t>(tensor.numel());
    offset += (place.count + kAlignedFloats - 1) / kAlignedFloats * kAlignedFloats;
    places_.push_back(std::move(place));
    parameters_.push_back(tensor);
  }
  if (places_.empty()) throw std::invalid_argument("the model has no trainable parameter");
  values_ = AlignedFloats(offset);
  const at::NoGradGuard no_gradients;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    at::Tensor view = view_of(values_.data(), places_[i]);
    view.copy_(parameters_[i]);
    parameters_[i].set_data(view);
  }
}

void FlatParameters::attach_gradients(std::span<float> gradients) {
  SGD_ASSERT(gradients.size() == size());
  gradients_ = gradients;
  views_.clear();
  for (std::size_t i = 0; i < places_.size(); ++i) {
    views_.push_back(view_of(gradients_.data(), places_[i]));
    parameters_[i].mutable_grad() = views_[i];
  }
  zero_gradients();
}

void FlatParameters::zero_gradients() { std::memset(gradients_.data(), 0, gradients_.size_bytes()); }

void FlatParameters::collect_gradients() {
  for (std::size_t i = 0; i < places_.size(); ++i) {
    const at::Tensor& gradient = parameters_[i].mutable_grad();
    if (!gradient.is_same(views_[i])) repair(i);
  }
}

void FlatParameters::repair(std::size_t index) {
  at::Tensor& gradient = parameters_[index].mutable_grad();
  const at::NoGradGuard no_gradients;
  if (!gradient.defined()) {
    views_[index].zero_();
  } else if (gradient.layout() != at::kStrided) {
    throw std::runtime_error("the gradient of parameter " + places_[index].name + " is sparse, which is not supported");
  } else if (gradient.data_ptr() != views_[index].data_ptr() || !gradient.is_contiguous()) {
    views_[index].copy_(gradient);
  }
  gradient = views_[index];
}

std::uint64_t FlatParameters::hash() {
  // Eight independent lanes keep the multiplier busy; each step is a bijection of its lane.
  constexpr std::uint64_t kMultiplier = 0x9e3779b97f4a7c15;
  constexpr std::size_t kLanes = kAlignedFloats / 2;
  std::uint64_t lanes[kLanes] = {1, 2, 3, 4, 5, 6, 7, 8};
  const float* data = values_.data();
  for (std::size_t at = 0; at + kAlignedFloats <= values_.size(); at += kAlignedFloats) {
    std::uint64_t words[kLanes];
    std::memcpy(words, data + at, sizeof words);
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const std::uint64_t mixed = (lanes[lane] ^ words[lane]) * kMultiplier;
      lanes[lane] = mixed ^ (mixed >> 29);
    }
  }
  std::uint64_t result = values_.size();
  for (const std::uint64_t lane : lanes) result = (result ^ lane) * kMultiplier + (result >> 31);
  return result;
}

}  // namespace sgd::worker
