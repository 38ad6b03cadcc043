// All at once that a checkpoint must hold: running statistics, dropout, tied weights, a parameter that no loss reaches,
// one that is frozen at epoch 2, two models with an optimizer each, groups, a scheduler each, accumulation over three
// batches, and a tensor that each rank keeps for itself and trains with.
#include <sgd/sgd.hpp>

namespace {

namespace optim = torch::optim;

/// A linear layer whose weight is another one's.
struct TiedImpl : torch::nn::LinearImpl {
  using LinearImpl::LinearImpl;
  void tie(const at::Tensor& other) {
    parameters_.erase("weight");
    weight = register_parameter("weight", other);
  }
};
TORCH_MODULE(Tied);

struct Body : torch::nn::Module {
  explicit Body(std::int64_t width)
      : in(register_module("in", torch::nn::Linear(784, width))),
        norm(register_module("norm", torch::nn::BatchNorm1d(width))),
        drop(register_module("drop", torch::nn::Dropout(0.2))),
        mix(register_module("mix", torch::nn::Linear(width, width))),
        again(register_module("again", Tied(width, width))),
        spare(register_module("spare", torch::nn::Linear(3, 3))) {
    again->tie(mix->weight);
  }

  at::Tensor forward(const at::Tensor& images) {
    const at::Tensor mixed = torch::relu(mix->forward(drop->forward(norm->forward(in->forward(images.flatten(1))))));
    return torch::relu(again->forward(mixed));
  }

  torch::nn::Linear in;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear mix;
  Tied again;
  torch::nn::Linear spare;
};

class Everything : public sgd::TrainingOperator {
 public:
  void setup(sgd::Setup& setup) override {
    const std::int64_t width = config().at("width");
    body_ = setup.model("body", std::make_shared<Body>(width));
    head_ = setup.model("head", torch::nn::Linear(width, 10));
    std::vector<at::Tensor> weights, rest;
    for (const at::Tensor& one : body_->parameters()) {
      const bool seen =
          std::any_of(weights.begin(), weights.end(), [&](const at::Tensor& w) { return w.is_same(one); });
      if (!seen) (one.dim() > 1 ? weights : rest).push_back(one);
    }
    std::vector<optim::OptimizerParamGroup> groups;
    groups.emplace_back(weights, std::make_unique<optim::AdamOptions>(optim::AdamOptions(2e-3).weight_decay(1e-2)));
    groups.emplace_back(rest);
    body_optimizer_ = setup.optimizer("body", optim::Adam(groups, optim::AdamOptions(1e-3).amsgrad(true)));
    setup.scheduler(*body_optimizer_, {{"type", "step"}, {"step_size", 40}, {"gamma", 0.8}, {"frequency", "batch"}});
    head_optimizer_ = setup.optimizer("head", optim::SGD(head_->parameters(), optim::SGDOptions(0.02).momentum(0.9)));
    setup.scheduler(*head_optimizer_, {{"type", "exponential"}, {"gamma", 0.7}});
    seen_ = at::zeros({784});
  }

  sgd::BatchMetrics train_batch(const sgd::Batch& batch, sgd::Step& step) override {
    body_->in->bias.set_requires_grad(step.info().epoch < 2);
    const at::Tensor images = batch.features.flatten(1);
    seen_ = seen_ * 0.9 + images.mean(0);
    const at::Tensor output = head_->forward(body_->forward(images + 0.01 * seen_));
    const at::Tensor loss = torch::cross_entropy_loss(output, batch.target);
    step.backward(loss / 3, *body_optimizer_);
    const at::Tensor again = torch::cross_entropy_loss(head_->forward(body_->forward(images).detach()), batch.target);
    step.backward(again);
    head_optimizer_->step();
    if (step.info().batch_index % 3 == 2 || step.info().is_last) step.update(*body_optimizer_);
    return {images.size(0), {{"train_loss", loss.item<double>()}}};
  }

  sgd::BatchMetrics validate_batch(const sgd::Batch& batch, const sgd::BatchInfo&) override {
    const auto right = head_->forward(body_->forward(batch.features)).argmax(1).eq(batch.target).sum();
    const auto samples = batch.features.size(0);
    return {samples, {{"val_accuracy", right.item<double>() / static_cast<double>(samples)}}};
  }

  [[nodiscard]] sgd::NamedTensors state_tensors() const override { return {{"seen", seen_}}; }
  void load_state_tensors(sgd::NamedTensors tensors) override { seen_ = tensors.at("seen"); }

 private:
  std::shared_ptr<Body> body_;
  torch::nn::Linear head_{nullptr};
  std::shared_ptr<optim::Optimizer> body_optimizer_, head_optimizer_;
  at::Tensor seen_;
};

}  // namespace

SGD_REGISTER_OPERATOR("everything", Everything, R"({"width": {"type": "integer", "minimum": 1, "default": 48}})");
