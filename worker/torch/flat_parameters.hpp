#pragma once
// All trained parameters in one flat float buffer, and their gradients in another: the tensors are views, so
// one optimizer pass and one all-reduce serve all parameters of an optimizer, which lie side by side. Every
// parameter begins on 64 bytes; the gaps hold zeros. One that modules share has one place, and several names.
//
// The first backward pass after an update finds no gradients, so that LibTorch hands over what it computed instead
// of adding it to zeros; a hook brings each to its place while it is in the cache, and a function that
// knows how writes it there itself (claim_gradient_place()). Later passes add to what is there.
//
// The invariant: after collect_gradients() every gradient of its range is the view at its place. User code may
// break it (zero_grad() drops gradients, an assignment replaces them), so it is checked each step
// by one pointer compare a parameter and repaired. Does not own the gradient buffer.
//
// What stands in a gradient between a backward pass and its update is this rank's own. Whether user code has written
// there is seen by three numbers of each, kept by the hook: torch::nn::utils::clip_grad_norm_() writes through data(),
// which no version counter tells of.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "worker/core/aligned_floats.hpp"
#include "worker/core/step_optimizer.hpp"
#include "worker/torch/device.hpp"
#include "worker/torch/named_models.hpp"
#include "worker/torch/parameter_place.hpp"

namespace sgd::worker {

/// A parameter that is to be trained.
struct TrainedParameter {
  std::string name;
  at::Tensor tensor;
  std::vector<std::string> also = {};  ///< Further names of it.
};

/// All parameters of the models that require gradients, each once.
[[nodiscard]] std::vector<TrainedParameter> trainable_parameters(const NamedModels& models);

/// Parameters that lie side by side: those of one optimizer.
struct ParameterRange {
  std::size_t first = 0;  ///< Index of a place.
  std::size_t count = 0;
  FlatRange floats;  ///< With the gaps.
};

class FlatParameters {
 public:
  /// Moves the parameters into the flat buffer, in this order. Throws on one that is not dense fp32. All lie on
  /// `device`, and so do both buffers.
  explicit FlatParameters(std::vector<TrainedParameter> parameters, const Device& device = {});
  FlatParameters(const FlatParameters&) = delete;
  FlatParameters& operator=(const FlatParameters&) = delete;
  ~FlatParameters();

  [[nodiscard]] std::size_t size() const { return values_.size(); }
  /// Addresses of the device.
  [[nodiscard]] std::span<float> values() { return values_; }
  [[nodiscard]] const std::vector<ParameterPlace>& places() const { return places_; }

  /// Gradients have their places in `gradients` (of size() or more) from here on; those of before are dropped. The gaps
  /// become zero.
  void attach_gradients(std::span<float> gradients);
  [[nodiscard]] ParameterRange range(std::size_t first, std::size_t count) const;
  [[nodiscard]] ParameterRange all() const { return range(0, places_.size()); }
  [[nodiscard]] const at::Tensor& parameter(std::size_t index) const { return parameters_[index]; }

  /// While it lives, places can be claimed on this thread: around one backward pass.
  class Backward {
   public:
    explicit Backward(FlatParameters& parameters);
    ~Backward();
    Backward(const Backward&) = delete;
    Backward& operator=(const Backward&) = delete;

   private:
    FlatParameters& parameters_;
  };
  /// A gradient that comes outside of such a pass is an error from here on: its loss was not scaled as the others are.
  void take_own_passes_only() { takes_own_passes_only_ = true; }
  /// Makes every gradient of the range the view at its place; one that is missing is zero. Returns which were there.
  /// Throws, naming the parameter, on a sparse one, and where a parameter does not lie at its place any more.
  [[nodiscard]] std::vector<bool> collect_gradients(const ParameterRange& range);
  /// Whether some gradient that was collected since the last call had been written to since its backward pass. Changes
  /// that leave the numbers that are looked at as they were are not seen, nor any on a device with memory of its own:
  /// reading would wait for it.
  [[nodiscard]] bool take_rewritten() { return std::exchange(is_rewritten_, false); }
  /// The range has no gradients any more.
  void drop_gradients(const ParameterRange& range);
  void scale_gradients(const ParameterRange& range, double factor);
  [[nodiscard]] bool has_gradients(const ParameterRange& range) const;

  /// A number that differs (all but surely) when any bit of the values differs; `values` as memory of the host.
  [[nodiscard]] static std::uint64_t hash(std::span<const float> values);

 private:
  friend at::Tensor claim_gradient_place(const at::Tensor& parameter);
  struct PlacingHook;

  /// The bits of the first, the middle and the last number of a gradient.
  using Sample = std::array<std::uint32_t, 3>;

  void place(std::size_t index);
  [[nodiscard]] Sample sample(std::size_t index) const;
  void keep_sample(std::size_t index);
  [[nodiscard]] bool is_rewritten(std::size_t index) const;
  [[nodiscard]] std::optional<std::size_t> find(const at::Tensor& parameter) const;

  Device device_;
  AlignedFloats on_host_;  // The buffer, where the device is the host.
  at::Tensor on_device_;   // And where it is not.
  std::span<float> values_;
  std::span<float> gradients_;
  std::vector<ParameterPlace> places_;
  std::vector<at::Tensor> parameters_;
  std::vector<at::Tensor> views_;  // The gradient views, to re-attach.
  std::vector<bool> claimed_;      // In this backward pass.
  std::vector<Sample> samples_;    // As the last backward pass has left each gradient.
  bool is_rewritten_ = false;
  bool is_in_pass_ = false;  // A device's pass has a thread of its own, which begins and ends inside of ours.
  bool takes_own_passes_only_ = false;
};

}  // namespace sgd::worker
