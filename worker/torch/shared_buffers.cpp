#include "worker/torch/shared_buffers.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "worker/torch/named_buffers.hpp"

namespace sgd::worker {
namespace {

/// Of a buffer's name among the tensors that a rank keeps of its own.
constexpr std::string_view kPrefix = "buffer/";

std::string kept_name(const std::string& buffer) {
  return std::string(kPrefix) + buffer;
}

std::vector<TensorBytes>::iterator find(std::vector<TensorBytes>& kept, const std::string& buffer) {
  return std::find_if(kept.begin(), kept.end(),
                      [name = kept_name(buffer)](const TensorBytes& one) { return one.name == name; });
}

at::Tensor bytes_of(const at::Tensor& tensor) {
  return tensor.data().contiguous().reshape(-1).view(at::kByte);
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
  for (const NamedBuffer& buffer : named_buffers(models_)) {
    if (find(own.tensors, buffer.name) != own.tensors.end())
      throw std::invalid_argument(fmt::format(
          "tensor \"{}\" in state_tensors() has the name that a buffer of a model has there: give it another one",
          kept_name(buffer.name)));
    const auto on_host = std::make_shared<const at::Tensor>(buffer.tensor.cpu());
    const ModuleBuffer described = describe(buffer.name, *on_host);
    own.tensors.push_back({kept_name(buffer.name), described.type, described.shape, described.bytes});
    own.memory.push_back(on_host);
  }
}

void SharedBuffers::take_own(TrainingState& state) {
  const std::vector<int> given = ranks_given_to(collective_.rank(), collective_.world_size(), state.world_size);
  const auto from = static_cast<std::size_t>(given.empty() ? 0 : given.front());
  const at::NoGradGuard no_gradients;
  for (std::size_t rank = 0; rank < state.records.size(); ++rank) {
    std::vector<TensorBytes>& kept = state.records[rank].own.tensors;
    for (const NamedBuffer& buffer : named_buffers(models_)) {
      const auto one = find(kept, buffer.name);
      if (one == kept.end()) continue;
      at::Tensor on_host = at::empty(buffer.tensor.sizes(), buffer.tensor.options().device(at::kCPU));
      const ModuleBuffer described = describe(buffer.name, on_host);
      const bool fits = one->type == described.type && one->shape == described.shape;
      if (rank == from && keeps_own() && fits) {
        std::memcpy(described.bytes.data(), one->bytes.data(), one->bytes.size());
        buffer.tensor.data().copy_(on_host);
      }
      kept.erase(one);
    }
  }
}

void SharedBuffers::take_rank_0s() {
  if (rules_.is_separate) return take_rank_0s_on_device();
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

/// In one copy to the host and one back, however many there are.
void SharedBuffers::take_rank_0s_on_device() {
  const at::NoGradGuard no_gradients;
  const std::vector<at::Tensor> buffers = dense_buffers(models_);
  std::vector<at::Tensor> flat;
  std::int64_t bytes = 0;
  for (const at::Tensor& buffer : buffers) {
    flat.push_back(bytes_of(buffer));
    bytes += flat.back().numel();
  }
  at::Tensor packed = collective_.rank() == 0 ? at::cat(flat).cpu() : at::empty({bytes}, at::kByte);
  collective_.broadcast({static_cast<std::byte*>(packed.data_ptr()), static_cast<std::size_t>(bytes)}, 0);
  if (collective_.rank() == 0) return;
  packed = packed.to(buffers.front().device());
  std::int64_t offset = 0;
  for (const at::Tensor& buffer : buffers) {
    const auto count = static_cast<std::int64_t>(buffer.nbytes());
    // In there it begins anywhere; a tensor of its own is aligned.
    buffer.data().copy_(packed.narrow(0, offset, count).clone().view(buffer.scalar_type()).view(buffer.sizes()));
    offset += count;
  }
}

std::uint64_t SharedBuffers::hash() {
  if (keeps_own()) return 0;
  std::uint64_t all = 0;
  for (const at::Tensor& buffer : dense_buffers(models_)) {
    const at::Tensor on_host = buffer.cpu();
    const std::string_view bytes(static_cast<const char*>(on_host.data_ptr()), on_host.nbytes());
    all = all * 0x9e3779b97f4a7c15 + std::hash<std::string_view>()(bytes);
  }
  return all;
}

}  // namespace sgd::worker
