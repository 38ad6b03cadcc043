#pragma once
// All trainable parameters of a model in one flat float buffer, and their gradients in another:
// the tensors are views, so one optimizer pass and one all-reduce serve the whole model. Every
// parameter begins on 64 bytes; the gaps hold zeros. One that modules share has one place, and several names.
//
// A backward pass begins without gradients, so that LibTorch hands over what it computed instead of
// adding it to zeros; a hook brings each to its place while it is in the cache, and a function that
// knows how writes it there itself (claim_gradient_place()).
//
// The invariant: after collect_gradients() every gradient is the view at its place. User code may
// break it (zero_grad() drops gradients, an assignment replaces them), so it is checked each step
// by one pointer compare a parameter and repaired. Does not own the gradient buffer.

#include <cstddef>
#include <cstdint>
#include <optional>
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
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;
  ~FlatParameters();

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  [[nodiscard]] std::span<float> values() { return values_.span(); }
  [[nodiscard]] const std::vector<ParameterPlace>& places() const { return places_; }

  /// Gradients have their places in `gradients` (of size()) from here on; what is there is kept, but the gaps become
  /// zero.
  void attach_gradients(std::span<float> gradients);
  /// No parameter has a gradient; the places can be claimed on this thread until collect_gradients(). Throws, naming
  /// the parameter, where one does not lie at its place any more.
  void begin_backward();
  /// Makes every gradient the view at its place; one that is missing is zero. Throws on a sparse one, naming the
  /// parameter.
  void collect_gradients();
  /// For each place, whether the last backward pass reached it.
  [[nodiscard]] const std::vector<bool>& has_gradient() const { return has_gradient_; }

  /// A number that differs (all but surely) when any bit of the values differs.
  [[nodiscard]] std::uint64_t hash();

 private:
  friend at::Tensor claim_gradient_place(const at::Tensor& parameter);
  struct PlacingHook;

  void place(std::size_t index);
  [[nodiscard]] std::optional<std::size_t> find(const at::Tensor& parameter) const;

  AlignedFloats values_;
  std::span<float> gradients_;
  std::vector<ParameterPlace> places_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> views_;  // The gradient views, to re-attach.
  std::vector<bool> claimed_;      // In this backward pass.
  std::vector<bool> has_gradient_;
};

}  // namespace sgd::worker
