#include "worker/torch/shared_buffers.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "worker/torch/module_buffers.hpp"

namespace sgd::worker {
namespace {

/// Of a buffer's name among the tensors that a rank keeps of its own.
constexpr std::string_view kPrefix = "buffer/";

std::string kept_name(const ModuleBuffer& buffer) {
  return std::string(kPrefix) + buffer.name;
}

std::vector<TensorBytes>::iterator find(std::vector<TensorBytes>& kept, const ModuleBuffer& buffer) {
  return std::find_if(kept.begin(), kept.end(),
                      [name = kept_name(buffer)](const TensorBytes& one) { return one.name == name; });
}

std::vector<at::Tensor> dense_buffers(const NamedModels& models) {
  std::vector<at::Tensor> buffers;
  for (const NamedModel& model : models)
    for (at::Tensor& buffer : model.module->buffers())
      if (buffer.defined() && buffer.numel() > 0) buffers.push_back(std::move(buffer));
  return buffers;
}

}  // namespace

SharedBuffers::SharedBuffers(NamedModels models, Collective& collective, Rules rules)
    : models_(std::move(models)), collective_(collective), rules_(rules), has_any_(!dense_buffers(models_).empty()) {}

bool SharedBuffers::keeps_own() const {
  return !rules_.broadcasts && collective_.world_size() > 1 && has_any_;
}

void SharedBuffers::remember() {
  if (!rules_.heals) return;
  before_.clear();
  for (const at::Tensor& buffer : dense_buffers(models_))
    if (buffer.is_floating_point()) before_.push_back(buffer.data().clone());
}

void SharedBuffers::end_batch() {
  if (!has_any_) return;
  if (rules_.broadcasts && collective_.world_size() > 1) take_rank_0s();
  if (rules_.heals) heal();
}

/// Every rank by itself: with equal buffers all do the same. What was not finite before is so on purpose.
void SharedBuffers::heal() {
  const at::NoGradGuard no_gradients;
  std::size_t i = 0;
  for (at::Tensor& buffer : dense_buffers(models_)) {
    if (!buffer.is_floating_point() || i == before_.size()) continue;
    at::Tensor& before = before_[i++];
    if (!before.sizes().equals(buffer.sizes())) {
      before = buffer.data().clone();
    } else if (!buffer.isfinite().all().item<bool>() && before.isfinite().all().item<bool>()) {
      buffer.data().copy_(before);
    } else {
      before.copy_(buffer);
    }
  }
}

void SharedBuffers::give_own(OperatorState& own) const {
  if (!keeps_own()) return;
  for (const ModuleBuffer& buffer : buffers_of(models_)) {
    if (find(own.tensors, buffer) != own.tensors.end())
      throw std::invalid_argument(fmt::format(
          "tensor \"{}\" in state_tensors() has the name that a buffer of a model has there: give it another one",
          kept_name(buffer)));
    own.tensors.push_back({kept_name(buffer), buffer.type, buffer.shape, buffer.bytes});
  }
}

void SharedBuffers::take_own(TrainingState& state) {
  const std::vector<int> given = ranks_given_to(collective_.rank(), collective_.world_size(), state.world_size);
  const auto from = static_cast<std::size_t>(given.empty() ? 0 : given.front());
  for (std::size_t rank = 0; rank < state.records.size(); ++rank) {
    std::vector<TensorBytes>& kept = state.records[rank].own.tensors;
    for (const ModuleBuffer& buffer : buffers_of(models_)) {
      const auto one = find(kept, buffer);
      if (one == kept.end()) continue;
      const bool fits = one->type == buffer.type && one->shape == buffer.shape;
      if (rank == from && keeps_own() && fits) std::memcpy(buffer.bytes.data(), one->bytes.data(), one->bytes.size());
      kept.erase(one);
    }
  }
}

void SharedBuffers::take_rank_0s() {
  const std::vector<at::Tensor> buffers = dense_buffers(models_);
  std::size_t bytes = 0;
  for (const at::Tensor& buffer : buffers) bytes += buffer.nbytes();
  packed_.resize(bytes);
  std::byte* at = packed_.data();
  if (collective_.rank() == 0) {
    for (const at::Tensor& buffer : buffers) {
      std::memcpy(at, buffer.data_ptr(), buffer.nbytes());
      at += buffer.nbytes();
    }
  }
  collective_.broadcast(packed_, 0);
  if (collective_.rank() == 0) return;
  for (const at::Tensor& buffer : buffers) {
    std::memcpy(buffer.data_ptr(), at, buffer.nbytes());
    at += buffer.nbytes();
  }
}

std::uint64_t SharedBuffers::hash() {
  if (keeps_own()) return 0;
  std::uint64_t all = 0;
  for (const at::Tensor& buffer : dense_buffers(models_)) {
    const std::string_view bytes(static_cast<const char*>(buffer.data_ptr()), buffer.nbytes());
    all = all * 0x9e3779b97f4a7c15 + std::hash<std::string_view>()(bytes);
  }
  return all;
}

}  // namespace sgd::worker
