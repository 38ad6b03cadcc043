#pragma once
// What an operator trains, registered once under names: models, optimizers, their schedulers. Whatever is registered is
// equal on all ranks, is in every checkpoint, and comes back equal to the bit.
//
//   void setup(sgd::Setup& setup) override {
//     net_ = setup.model("net", std::make_shared<Net>());
//     optimizer_ = setup.optimizer("net", torch::optim::SGD(net_->parameters(), 0.1));
//   }
//
// An operator that registers no optimizer trains with the one that the job names.

#include <concepts>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>
#include <nlohmann/json.hpp>

#include "sgd/model.hpp"

namespace sgd {

/// A registered module. `forward` is empty for one without a forward of one to three tensors.
struct RegisteredModel {
  std::string name;
  std::shared_ptr<torch::nn::Module> module;
  std::size_t inputs = 1;  ///< Tensors that it takes.
  std::function<at::Tensor(const std::vector<at::Tensor>&)> forward;
};

class Setup {
 public:
  virtual ~Setup() = default;

  /// Any module; returns it. With one model its tensors have their own names in checkpoints; with several the names
  /// begin with the model's and a dot.
  template <class Module>
  std::shared_ptr<Module> model(const std::string& name, std::shared_ptr<Module> module) {
    RegisteredModel registered{name, module, 1, nullptr};
    auto* raw = module.get();
    using Inputs = std::vector<at::Tensor>;
    if constexpr (requires(const at::Tensor& x) {
                    { raw->forward(x) } -> std::convertible_to<at::Tensor>;
                  }) {
      registered.forward = [raw](const Inputs& all) { return raw->forward(all[0]); };
    } else if constexpr (requires(const at::Tensor& x) {
                           { raw->forward(x, x) } -> std::convertible_to<at::Tensor>;
                         }) {
      registered.inputs = 2;
      registered.forward = [raw](const Inputs& all) { return raw->forward(all[0], all[1]); };
    } else if constexpr (requires(const at::Tensor& x) {
                           { raw->forward(x, x, x) } -> std::convertible_to<at::Tensor>;
                         }) {
      registered.inputs = 3;
      registered.forward = [raw](const Inputs& all) { return raw->forward(all[0], all[1], all[2]); };
    }
    add_model(std::move(registered));
    return module;
  }
  /// The same for LibTorch's holders: torch::nn::Sequential, torch::nn::Linear, and those of TORCH_MODULE.
  template <class Holder>
  requires std::derived_from<Holder, torch::nn::ModuleHolder<typename Holder::ContainedType>> Holder
  model(const std::string& name, Holder holder) {
    (void)model(name, holder.ptr());
    return holder;
  }

  /// An optimizer of LibTorch's (SGD, Adam, AdamW, RMSprop, Adagrad) over parameters of registered models, with any
  /// groups. What is returned replaces it: its step() takes the mean of the gradients over all ranks and then updates,
  /// in one pass of our own that gives LibTorch's numbers. Its options may be changed at any time, by the user or by
  /// LibTorch's own schedulers, and are part of a checkpoint; its state() stays empty.
  virtual std::shared_ptr<torch::optim::Optimizer> optimizer(const std::string& name,
                                                             const torch::optim::Optimizer& made) = 0;
  /// The optimizer that the job names, with the job's scheduler.
  virtual std::shared_ptr<torch::optim::Optimizer> job_optimizer(const std::string& name,
                                                                 std::vector<at::Tensor> parameters) = 0;
  /// A scheduler as in a job file, {"type": "step", "step_size": 10, "frequency": "batch"} or a list of such, for an
  /// optimizer that optimizer() has returned. Errors name the key.
  virtual void scheduler(const torch::optim::Optimizer& optimizer, const nlohmann::json& settings) = 0;

  /// For the default train_batch() and validate_batch(); without it they take the job's.
  virtual void loss(Loss loss) = 0;

  /// The model that the job names.
  [[nodiscard]] virtual std::shared_ptr<Model> job_model() = 0;
  [[nodiscard]] virtual Loss job_loss() = 0;

 private:
  virtual void add_model(RegisteredModel registered) = 0;
};

}  // namespace sgd
