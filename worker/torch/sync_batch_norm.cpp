#include "worker/torch/sync_batch_norm.hpp"

#include <cmath>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <ATen/OpMathType.h>
#include <ATen/ops/batch_norm_native.h>
#include <ATen/ops/instance_norm_native.h>
#include <fmt/format.h>
#include <torch/library.h>
#include <torch/torch.h>

namespace sgd::worker {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;
using MaybeTensor = std::optional<at::Tensor>;

/// Those of the thread that trains.
thread_local Collective* group = nullptr;

class Alone {
 public:
  Alone() : before_(std::exchange(group, nullptr)) {}
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;
  ~Alone() { group = before_; }

 private:
  Collective* before_;
};

std::vector<double> numbers_of(const at::Tensor& tensor) {
  const at::Tensor doubles = tensor.to(at::kCPU, at::kDouble).contiguous();
  const auto* data = doubles.const_data_ptr<double>();
  return {data, data + doubles.numel()};
}

at::Tensor tensor_of(const std::vector<double>& numbers, at::ScalarType type, at::Device device) {
  return at::tensor(numbers, at::kDouble).to(device, type);
}

/// Collective: the numbers of all ranks, in their order. Each has as many.
std::vector<std::vector<double>> told_by_all(const std::vector<double>& own, std::int64_t channels) {
  const std::string bytes(reinterpret_cast<const char*>(own.data()), own.size() * sizeof(double));
  std::vector<std::vector<double>> all;
  for (const std::string& one : group->all_gather(bytes)) {
    if (one.size() != bytes.size())
      throw std::logic_error(
          fmt::format("training.data_parallel.sync_batchnorm: rank {} normalizes {} channels while rank {} normalizes "
                      "another number: every rank must call the same layers in the same order",
                      group->rank(), channels, all.size()));
    std::vector<double>& numbers = all.emplace_back(own.size());
    std::memcpy(numbers.data(), one.data(), one.size());
  }
  return all;
}

/// Of all samples of all ranks, by channel.
struct Moments {
  double count = 0;
  std::vector<double> means;
  std::vector<double> variances;
};

/// Collective.
Moments moments_of(const at::Tensor& input) {
  const std::int64_t channels = input.size(1);
  const at::ScalarType type = at::toOpMathType(input.scalar_type());
  std::vector<double> own(static_cast<std::size_t>(1 + 2 * channels), 0.0);
  if (input.numel() > 0) {
    const at::TensorOptions of_type = input.options().dtype(type);
    own[0] = static_cast<double>(input.numel() / channels);
    // Statistics to update, which are thrown away: of their type the results are.
    const auto [mean, variance] =
        at::batch_norm_update_stats(input, at::zeros({channels}, of_type), at::ones({channels}, of_type), 0);
    const std::vector<double> means = numbers_of(mean);
    const std::vector<double> variances = numbers_of(variance);
    std::copy(means.begin(), means.end(), own.begin() + 1);
    std::copy(variances.begin(), variances.end(), own.begin() + 1 + channels);
  }
  const std::vector<std::vector<double>> all = told_by_all(own, channels);
  Moments moments;
  const auto width = static_cast<std::size_t>(channels);
  moments.means.assign(width, 0);
  moments.variances.assign(width, 0);
  for (const auto& one : all) moments.count += one[0];
  if (moments.count < 2)
    throw std::invalid_argument(
        "batch normalization needs more than one value of each channel, of all workers together");
  for (std::size_t c = 0; c < width; ++c) {
    for (const auto& one : all) moments.means[c] += one[0] * one[1 + c] / moments.count;
    for (const auto& one : all) {
      const double off = one[1 + c] - moments.means[c];
      moments.variances[c] += one[0] * (one[1 + width + c] + off * off) / moments.count;
    }
  }
  return moments;
}

void follow(const MaybeTensor& running, const at::Tensor& seen, double momentum) {
  if (!running || !running->defined()) return;
  running->copy_(seen * momentum + running->to(seen.scalar_type()) * (1 - momentum));
}

/// To be multiplied with a batch.
at::Tensor by_channel(const at::Tensor& values, const at::Tensor& batch) {
  std::vector<std::int64_t> sizes(static_cast<std::size_t>(batch.dim()), 1);
  sizes[1] = values.numel();
  return values.view(sizes);
}

struct BatchNormFunction : torch::autograd::Function<BatchNormFunction> {
  /// An undefined tensor that is no MaybeTensor LibTorch would ask for its device.
  static at::Tensor forward(AutogradContext* context, const at::Tensor& input, const MaybeTensor& weight,
                            const MaybeTensor& bias, const MaybeTensor& running_mean, const MaybeTensor& running_var,
                            double momentum, double eps) {
    const Moments moments = moments_of(input);
    const at::ScalarType type = at::toOpMathType(input.scalar_type());
    const at::Tensor mean = tensor_of(moments.means, type, input.device());
    const at::Tensor variance = tensor_of(moments.variances, type, input.device());
    follow(running_mean, mean, momentum);
    follow(running_var, variance * (moments.count / (moments.count - 1)), momentum);
    context->save_for_backward({input, weight.value_or(at::Tensor()), mean, variance});
    context->saved_data["eps"] = eps;
    context->saved_data["count"] = moments.count;
    if (input.numel() == 0) return at::empty_like(input);
    return std::get<0>(at::native_batch_norm(input, weight, bias, mean, variance, false, 0, eps));
  }

  /// As if statistics were constant, and then what they add: the two sums over all samples.
  static variable_list backward(AutogradContext* context, const variable_list& gradients) {
    if (at::GradMode::is_enabled())
      throw std::logic_error(
          "training.data_parallel.sync_batchnorm: gradients of gradients (create_graph) are not possible with it");
    const variable_list saved = context->get_saved_variables();
    const at::Tensor& input = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& mean = saved[2];
    const at::Tensor& variance = saved[3];
    const double eps = context->saved_data["eps"].toDouble();
    const std::int64_t channels = input.size(1);
    at::Tensor to_input, to_weight = at::zeros_like(mean), to_bias = at::zeros_like(mean);
    if (input.numel() > 0)
      std::tie(to_input, to_weight, to_bias) = at::native_batch_norm_backward(
          gradients[0], input, weight, mean, variance, {}, {}, false, eps, {true, true, true});
    if (context->needs_input_grad(0)) {
      std::vector<double> own = numbers_of(to_bias);
      const std::vector<double> products = numbers_of(to_weight);
      own.insert(own.end(), products.begin(), products.end());
      std::vector<double> sums(own.size(), 0.0);
      for (const auto& one : told_by_all(own, channels))
        for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += one[i];
      if (input.numel() > 0)
        to_input = with_statistics(to_input, input, weight, mean, variance, sums, context->saved_data);
    }
    if (!weight.defined()) to_weight = to_bias = at::Tensor();
    return {to_input, to_weight, to_bias, {}, {}, {}, {}};
  }

  template <class Data>
  static at::Tensor with_statistics(const at::Tensor& constant, const at::Tensor& input, const at::Tensor& weight,
                                    const at::Tensor& mean, const at::Tensor& variance, const std::vector<double>& sums,
                                    const Data& data) {
    const std::vector<double> variances = numbers_of(variance);
    const std::vector<double> weights = weight.defined() ? numbers_of(weight) : std::vector(variances.size(), 1.0);
    const double count = data.at("count").toDouble();
    const double eps = data.at("eps").toDouble();
    std::vector<double> slopes(variances.size()), offsets(variances.size());
    for (std::size_t c = 0; c < variances.size(); ++c) {
      const double deviation = 1 / std::sqrt(variances[c] + eps);
      offsets[c] = -weights[c] * deviation * sums[c] / count;
      slopes[c] = -weights[c] * deviation * deviation * sums[variances.size() + c] / count;
    }
    const at::ScalarType type = mean.scalar_type();
    at::Tensor all = input.to(type) - by_channel(mean, input);
    all.mul_(by_channel(tensor_of(slopes, type, input.device()), input))
        .add_(by_channel(tensor_of(offsets, type, input.device()), input));
    return all.add_(constant).to(input.scalar_type());
  }
};

at::Tensor batch_norm(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
                      const MaybeTensor& running_mean, const MaybeTensor& running_var, bool training, double momentum,
                      double eps, bool cudnn_enabled) {
  if (group == nullptr || !training)
    return at::native::batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps,
                                  cudnn_enabled);
  return BatchNormFunction::apply(input, weight, bias, running_mean, running_var, momentum, eps);
}

at::Tensor instance_norm(const at::Tensor& input, const MaybeTensor& weight, const MaybeTensor& bias,
                         const MaybeTensor& running_mean, const MaybeTensor& running_var, bool use_input_stats,
                         double momentum, double eps, bool cudnn_enabled) {
  const Alone alone;
  return at::native::instance_norm(input, weight, bias, running_mean, running_var, use_input_stats, momentum, eps,
                                   cudnn_enabled);
}

}  // namespace

SyncBatchNorm::SyncBatchNorm(Collective& collective) : collective_(&collective) {
  set_on(true);
}

void SyncBatchNorm::set_on(bool is_on) {
  group = is_on && collective_->world_size() > 1 ? collective_ : nullptr;
}

SyncBatchNorm::~SyncBatchNorm() {
  group = nullptr;
}

}  // namespace sgd::worker

// LibTorch composes both of other operators for every kind of tensor; on the CPU these come first.
TORCH_LIBRARY_IMPL(aten, AutogradCPU, library) {
  library.impl("batch_norm", sgd::worker::batch_norm);
  library.impl("instance_norm", sgd::worker::instance_norm);
}
