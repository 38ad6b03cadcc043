#pragma once
// All trainable parameters of a model in one flat float buffer, and their gradients in another:
// the tensors are views, so one optimizer pass, one all-reduce and one memset serve the whole
// model. Every parameter begins on 64 bytes; the gaps hold zeros.
//
// The invariant: after collect_gradients() every gradient is the view at its place. User code may
// break it (zero_grad() drops gradients, an assignment replaces them), so it is checked each step
// by one pointer compare a parameter and repaired. Does not own the gradient buffer.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <torch/torch.h>

#include "worker/core/aligned_floats.hpp"
#include "worker/torch/parameter_place.hpp"

namespace sgd::worker {

class FlatParameters {
 public:
  /// Moves the parameters of `model` into the flat buffer. Throws on a trainable parameter that is not dense fp32.
  explicit FlatParameters(torch::nn::Module& model);

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] std::span<float> values() { return values_.span(); }
  [[nodiscard]] const std::vector<ParameterPlace>& places() const { return places_; }

  /// Makes the gradients views of `gradients` (of size()), and zero.
  void attach_gradients(std::span<float> gradients);
  void zero_gradients();
  /// Brings replaced gradients into the buffer. Throws on a sparse one, naming the parameter.
  void collect_gradients();

  /// A number that differs (all but surely) when any bit of the values differs.
  [[nodiscard]] std::uint64_t hash();

 private:
  void repair(std::size_t index);

  AlignedFloats values_;
  std::span<float> gradients_;
  std::vector<ParameterPlace> places_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> views_;  // The gradient views, to re-attach.
};

}  // namespace sgd::worker
