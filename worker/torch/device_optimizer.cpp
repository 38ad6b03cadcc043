#include "worker/torch/device_optimizer.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>

#include <ATen/Functions.h>
#include <c10/core/GradMode.h>

#include "common/base/assert.hpp"

namespace sgd::worker {
namespace {

using Groups = std::vector<job::Optimizer>;

/// What an update works on: views of one range.
struct Views {
  at::Tensor params;
  at::Tensor grads;
};

/// As the host rounds settings, and as LibTorch takes them without rounding anew.
double rounded(double value) {
  return static_cast<double>(static_cast<float>(value));
}

class DeviceOptimizer : public StepOptimizer {
 public:
  DeviceOptimizer(const Groups& groups, std::size_t count, const Device& device)
      : StepOptimizer(groups.front(), count), device_(device), count_(count) {}

  std::vector<OptimizerBuffer> buffers() override {
    std::vector<OptimizerBuffer> all;
    for (auto& [name, tensor] : tensors_) all.push_back({name, {static_cast<float*>(tensor.data_ptr()), count_}});
    return all;
  }

 protected:
  void keep(const char* name, double initial = 0) {
    tensors_.push_back({name, at::full({static_cast<std::int64_t>(count_)}, rounded(initial),
                                       at::TensorOptions().dtype(at::kFloat).device(device_.place()))});
  }
  void keep_if(const char* name, const Groups& groups, bool (*needs)(const job::Optimizer&)) {
    if (std::any_of(groups.begin(), groups.end(), needs)) keep(name);
  }
  [[nodiscard]] at::Tensor kept(std::string_view name, const Part& part) const {
    const auto found =
        std::find_if(tensors_.begin(), tensors_.end(), [&](const auto& one) { return one.first == name; });
    SGD_ASSERT(found != tensors_.end());
    return found->second.narrow(0, static_cast<std::int64_t>(part.offset), static_cast<std::int64_t>(part.count));
  }
  [[nodiscard]] Views views(const Part& part) const {
    return {device_.wrap(part.params, part.count), device_.wrap(const_cast<float*>(part.grads), part.count)};
  }
  /// grads * scale + decay * params
  [[nodiscard]] static at::Tensor gradient(const Views& at, float scale, double decay) {
    at::Tensor grad = at.grads.mul(static_cast<double>(scale));
    return grad.add_(at.params.mul(rounded(decay)));
  }
  /// sum = sum * keep + grad * grad * rest
  static void mix_square(at::Tensor sum, const at::Tensor& grad, double keep, double rest) {
    sum.mul_(rounded(keep)).add_(grad.mul(grad).mul_(rounded(rest)));
  }

 private:
  Device device_;
  std::size_t count_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

class DeviceSgd final : public DeviceOptimizer {
 public:
  DeviceSgd(const Groups& groups, std::size_t count, const Device& device) : DeviceOptimizer(groups, count, device) {
    keep_if("momentum_buffer", groups, [](const job::Optimizer& group) { return group.momentum != 0; });
  }

 private:
  void apply(const Part& part, const job::Optimizer& settings, float scale, std::int64_t step) override {
    const c10::NoGradGuard no_gradients;
    const Views at = views(part);
    at::Tensor grad = gradient(at, scale, settings.weight_decay);
    if (settings.momentum != 0) {
      at::Tensor momentum = kept("momentum_buffer", part);
      // The first momentum is the gradient itself, without dampening.
      momentum.mul_(step == 1 ? 0.0 : rounded(settings.momentum));
      momentum.add_(grad.mul(step == 1 ? 1.0 : rounded(1 - settings.dampening)));
      grad = settings.nesterov ? grad.add_(momentum.mul(rounded(settings.momentum))) : momentum;
    }
    at.params.sub_(grad.mul(rounded(settings.lr)));
  }
};

class DeviceAdam final : public DeviceOptimizer {
 public:
  DeviceAdam(const Groups& groups, std::size_t count, const Device& device)
      : DeviceOptimizer(groups, count, device), decoupled_(groups.front().type == "adamw") {
    keep("exp_avg");
    keep("exp_avg_sq");
    keep_if("max_exp_avg_sq", groups, [](const job::Optimizer& group) { return group.amsgrad; });
  }

 private:
  void apply(const Part& part, const job::Optimizer& settings, float scale, std::int64_t step) override {
    const c10::NoGradGuard no_gradients;
    const auto t = static_cast<double>(step);
    const Views at = views(part);
    const at::Tensor grad = gradient(at, scale, decoupled_ ? 0 : settings.weight_decay);
    at::Tensor mean = kept("exp_avg", part);
    mean.add_(grad.sub(mean).mul_(rounded(1 - settings.beta1)));
    at::Tensor square = kept("exp_avg_sq", part);
    mix_square(square, grad, settings.beta2, 1 - settings.beta2);
    if (settings.amsgrad) {
      at::Tensor largest = kept("max_exp_avg_sq", part);
      largest.copy_(at::where(square.gt(largest), square, largest));
      square = largest;
    }
    at::Tensor root = square.sqrt().div_(rounded_tensor(std::sqrt(1 - std::pow(settings.beta2, t)), square));
    const at::Tensor change =
        mean.div(root.add_(rounded(settings.eps))).mul_(rounded(settings.lr / (1 - std::pow(settings.beta1, t))));
    if (decoupled_) at.params.mul_(rounded(1 - settings.lr * settings.weight_decay));
    at.params.sub_(change);
  }
  /// LibTorch divides by a number as it multiplies with its inverse, which rounds otherwise.
  static at::Tensor rounded_tensor(double value, const at::Tensor& like) {
    return at::full({1}, rounded(value), like.options());
  }

  bool decoupled_;
};

class DeviceRmsprop final : public DeviceOptimizer {
 public:
  DeviceRmsprop(const Groups& groups, std::size_t count, const Device& device)
      : DeviceOptimizer(groups, count, device) {
    keep("square_avg");
    keep_if("momentum_buffer", groups, [](const job::Optimizer& group) { return group.momentum != 0; });
    keep_if("grad_avg", groups, [](const job::Optimizer& group) { return group.centered; });
  }

 private:
  void apply(const Part& part, const job::Optimizer& settings, float scale, std::int64_t) override {
    const c10::NoGradGuard no_gradients;
    const Views at = views(part);
    at::Tensor grad = gradient(at, scale, settings.weight_decay);
    const at::Tensor square = kept("square_avg", part);
    mix_square(square, grad, settings.alpha, 1 - settings.alpha);
    at::Tensor variance = square;
    if (settings.centered) {
      at::Tensor mean = kept("grad_avg", part);
      mean.add_(grad.sub(mean).mul_(rounded(1 - settings.alpha)));
      variance = square.sub(mean.mul(mean));
      variance = at::where(variance.lt(0), at::zeros_like(variance), variance);
    }
    const at::Tensor root = variance.sqrt().add_(rounded(settings.eps));
    if (settings.momentum == 0) {
      at.params.sub_(grad.mul_(rounded(settings.lr)).div_(root));
      return;
    }
    at::Tensor momentum = kept("momentum_buffer", part);
    momentum.mul_(rounded(settings.momentum)).add_(grad.div_(root));
    at.params.sub_(momentum.mul(rounded(settings.lr)));
  }
};

class DeviceAdagrad final : public DeviceOptimizer {
 public:
  DeviceAdagrad(const Groups& groups, std::size_t count, const Device& device)
      : DeviceOptimizer(groups, count, device) {
    keep("sum", groups.front().initial_accumulator_value);
  }

 private:
  void apply(const Part& part, const job::Optimizer& settings, float scale, std::int64_t step) override {
    const c10::NoGradGuard no_gradients;
    const Views at = views(part);
    at::Tensor grad = gradient(at, scale, settings.weight_decay);
    at::Tensor sum = kept("sum", part);
    sum.add_(grad.mul(grad));
    const double rate = settings.lr / (1 + static_cast<double>(step - 1) * settings.lr_decay);
    at.params.sub_(grad.mul_(rounded(rate)).div_(sum.sqrt().add_(rounded(settings.eps))));
  }
};

}  // namespace

std::unique_ptr<StepOptimizer> make_device_optimizer(const Groups& groups, std::size_t count, const Device& device) {
  SGD_ASSERT(!groups.empty());
  for (const job::Optimizer& group : groups) SGD_ASSERT(group.type == groups.front().type);
  const std::string& type = groups.front().type;
  if (type == "sgd") return std::make_unique<DeviceSgd>(groups, count, device);
  if (type == "rmsprop") return std::make_unique<DeviceRmsprop>(groups, count, device);
  if (type == "adagrad") return std::make_unique<DeviceAdagrad>(groups, count, device);
  SGD_ASSERT(type == "adam" || type == "adamw");
  return std::make_unique<DeviceAdam>(groups, count, device);
}

}  // namespace sgd::worker
