#include "worker/torch/linear_function.hpp"

#include <optional>
#include <string_view>

#include <ATen/core/dispatch/Dispatcher.h>

#include "worker/torch/autocast.hpp"
#include "worker/torch/gradient_place.hpp"

namespace sgd::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

/// Products of fewer multiplications are faster without oneDNN (measured: 82,000 slower, 2 million faster).
constexpr std::int64_t kMultiplicationsMin = 500'000;
/// A tensor of so many floats (glibc's largest mmap threshold, 32 MiB) gets its pages anew from the system whenever it
/// is made: with up to kSkinnyRows rows that costs more than oneDNN wins over MKL, which can write to where the result
/// is wanted.
constexpr std::int64_t kLargeFloats = std::int64_t{8} << 20;
constexpr std::int64_t kSkinnyRows = 64;

using Attributes = c10::List<std::optional<at::Scalar>>;
using PointwiseLinear = at::Tensor(const at::Tensor&, const at::Tensor&, const std::optional<at::Tensor>&,
                                   std::string_view, Attributes, std::optional<std::string_view>);

/// MKL is at its best on its maker's CPUs: a tenth faster there (measured), and half as fast on others. Where there is
/// no MKL, LibTorch chooses.
bool is_other_makers_cpu() {
#if defined(__x86_64__)
  return __builtin_cpu_is("intel") == 0;
#else
  return false;
#endif
}

std::optional<c10::TypedOperatorHandle<PointwiseLinear>> find_onednn() {
  if (!is_other_makers_cpu() || !at::hasMKLDNN()) return std::nullopt;
  const auto handle = c10::Dispatcher::singleton().findSchema({"mkldnn::_linear_pointwise", ""});
  if (!handle || !handle->hasKernelForDispatchKey(c10::DispatchKey::CPU)) return std::nullopt;
  return handle->typed<PointwiseLinear>();
}

/// left (n x k) * right (m x k)^T + bias, for any strides.
at::Tensor multiply(const at::Tensor& left, const at::Tensor& right, const std::optional<at::Tensor>& bias) {
  static const auto onednn = find_onednn();
  const std::int64_t work = left.size(0) * left.size(1) * right.size(0);
  // ReLU is not fused into the call: oneDNN's turns NaN into 0, and a broken model would look healthy.
  if (onednn && work >= kMultiplicationsMin) return onednn->call(left, right, bias, "none", Attributes(), std::nullopt);
  return bias ? at::addmm(*bias, left, right.t()) : at::mm(left, right.t());
}

at::Tensor forward_of(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, bool relu) {
  at::Tensor output = multiply(input, weight, bias);
  return relu ? output.relu_() : output;
}

/// gradient (n x out)^T * input (n x in).
at::Tensor weight_gradient(const at::Tensor& gradient, const at::Tensor& input, const at::Tensor& weight) {
  const bool is_skinny = gradient.size(0) == 1 || (weight.numel() >= kLargeFloats && gradient.size(0) <= kSkinnyRows);
  at::Tensor place = is_skinny ? claim_gradient_place(weight) : at::Tensor();
  if (place.defined()) return at::mm_out(place, gradient.t(), input);
  return multiply(gradient.t(), input.t(), std::nullopt);
}

struct LinearFunction : torch::autograd::Function<LinearFunction> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const at::Tensor& weight,
                            const at::Tensor& bias, bool relu) {
    const at::Tensor output = forward_of(input, weight, bias, relu);
    context->save_for_backward({input, weight, relu ? output : at::Tensor()});
    return output;
  }

  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    at::Tensor gradient = gradients[0].contiguous();
    if (saved[2].defined()) gradient = at::threshold_backward(gradient, saved[2], 0);
    at::Tensor to_input;
    if (context->needs_input_grad(0)) to_input = multiply(gradient, weight.t(), std::nullopt);
    at::Tensor to_weight;
    if (context->needs_input_grad(1)) to_weight = weight_gradient(gradient, input, weight);
    at::Tensor to_bias;
    if (context->needs_input_grad(2)) to_bias = gradient.sum(0);
    return {to_input, to_weight, to_bias, at::Tensor()};
  }
};

}  // namespace

at::Tensor linear(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& bias, bool relu) {
  if (is_autocast() || !input.is_cpu()) {
    const at::Tensor output = at::linear(input, weight, bias);
    return relu ? output.relu() : output;
  }
  if (!at::GradMode::is_enabled()) return forward_of(input, weight, bias, relu);
  return LinearFunction::apply(input, weight, bias, relu);
}

}  // namespace sgd::worker
