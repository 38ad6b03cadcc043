// What users get wrong where there are several models and optimizers.
#include <sgd/sgd.hpp>

namespace {

namespace optim = torch::optim;

class Mistaken : public sgd::TrainingOperator {
 public:
  void setup(sgd::Setup& setup) override {
    first_ = setup.model("first", torch::nn::Linear(784, 10));
    if (is("same model name")) (void)setup.model("first", torch::nn::Linear(2, 2));
    const auto layer = torch::nn::Linear(10, 10);
    second_ = is("not registered") ? layer : setup.model("second", layer);
    if (is("lbfgs")) (void)setup.optimizer("first", optim::LBFGS(first_->parameters()));
    if (is("class of its own")) (void)setup.optimizer("first", Own(first_->parameters(), optim::SGDOptions(0.1)));
    first_optimizer_ = setup.optimizer("first", optim::SGD(first_->parameters(), 0.01));
    second_optimizer_ = setup.optimizer("second", optim::Adam((is("of two") ? first_ : second_)->parameters()));
    if (is("bad scheduler")) setup.scheduler(*first_optimizer_, {{"type", "steep"}});
  }

  sgd::BatchMetrics train_batch(const sgd::Batch& batch, sgd::Step& step) override {
    const at::Tensor output = second_->forward(first_->forward(batch.features.flatten(1)));
    const at::Tensor loss = torch::cross_entropy_loss(output, batch.target);
    if (is("minimize")) step.minimize(loss);
    step.backward(loss);
    if (is("unknown to update")) {
      optim::SGD other(first_->parameters(), 0.1);
      step.update(other);
    }
    step.update(*first_optimizer_);
    if (is("forgets one")) return {batch.features.size(0), {}};
    if (!is("one rank updates") || world_rank() == 0) step.update(*second_optimizer_);
    return {batch.features.size(0), {{"train_loss", loss.item<double>()}}};
  }

  sgd::BatchMetrics validate_batch(const sgd::Batch& batch, const sgd::BatchInfo&) override {
    return {batch.features.size(0), {}};
  }

 private:
  struct Own : optim::SGD {
    using SGD::SGD;
  };

  [[nodiscard]] bool is(const char* mistake) const { return config().at("mistake") == mistake; }

  torch::nn::Linear first_{nullptr}, second_{nullptr};
  std::shared_ptr<optim::Optimizer> first_optimizer_, second_optimizer_;
};

}  // namespace

SGD_REGISTER_OPERATOR("mistaken", Mistaken, R"({"mistake": {"type": "string", "default": "nothing"}})");
