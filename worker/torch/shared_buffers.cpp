#include "worker/torch/shared_buffers.hpp"

#include <cstring>
#include <functional>
#include <string_view>
#include <utility>

namespace sgd::worker {
namespace {

std::vector<at::Tensor> dense_buffers(const NamedModels& models) {
  std::vector<at::Tensor> buffers;
  for (const NamedModel& model : models)
    for (at::Tensor& buffer : model.module->buffers())
      if (buffer.defined() && buffer.numel() > 0) buffers.push_back(std::move(buffer));
  return buffers;
}

}  // namespace

SharedBuffers::SharedBuffers(NamedModels models, Collective& collective)
    : models_(std::move(models)),
      collective_(collective),
      is_needed_(collective.world_size() > 1 && !dense_buffers(models_).empty()) {}

void SharedBuffers::take_rank_0s() {
  if (!is_needed_) return;
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
  std::uint64_t all = 0;
  for (const at::Tensor& buffer : dense_buffers(models_)) {
    const std::string_view bytes(static_cast<const char*>(buffer.data_ptr()), buffer.nbytes());
    all = all * 0x9e3779b97f4a7c15 + std::hash<std::string_view>()(bytes);
  }
  return all;
}

}  // namespace sgd::worker
