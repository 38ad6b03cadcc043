#pragma once
// What stands in the user's code for an optimizer of LibTorch's: the same groups and options, and a step() that every
// rank makes together.

#include <functional>
#include <string>
#include <utility>

#include <torch/torch.h>

namespace sgd::worker {

class PreparedOptimizer final : public torch::optim::Optimizer {
 public:
  /// Takes groups and options of `made`, which is not used any more. `type` as optimizer_type_of() tells it.
  PreparedOptimizer(std::string name, std::string type, const torch::optim::Optimizer& made)
      : Optimizer(std::vector<torch::optim::OptimizerParamGroup>(), made.defaults().clone()),
        name_(std::move(name)),
        type_(std::move(type)) {
    // Not add_param_group(): it would give a group the defaults again where the user has set something else since.
    for (const torch::optim::OptimizerParamGroup& group : made.param_groups()) param_groups().push_back(group);
  }

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const std::string& type() const { return type_; }

  /// What step() does; without one it is an error to call it.
  void on_step(std::function<void(PreparedOptimizer&)> update) { update_ = std::move(update); }

  /// Collective. Returns what `closure` returns, which is called before, once.
  at::Tensor step(LossClosure closure = nullptr) override {
    at::Tensor loss;
    if (closure) {
      const at::AutoGradMode with_gradients(true);
      loss = closure();
    }
    if (!update_) throw std::logic_error("step() of optimizer \"" + name_ + "\" is called outside of training");
    update_(*this);
    return loss;
  }

 private:
  std::string name_;
  std::string type_;
  std::function<void(PreparedOptimizer&)> update_;
};

}  // namespace sgd::worker
