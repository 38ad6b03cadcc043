// A network and a training step of one's own.
#include <sgd/sgd.hpp>

namespace {

struct Net : torch::nn::Module {
  explicit Net(std::int64_t hidden)
      : first(register_module("first", torch::nn::Linear(784, hidden))),
        norm(register_module("norm", torch::nn::BatchNorm1d(hidden))),
        last(register_module("last", torch::nn::Linear(hidden, 10))) {}

  at::Tensor forward(const at::Tensor& images) {
    return last->forward(torch::relu(norm->forward(first->forward(images.flatten(1)))));
  }

  torch::nn::Linear first, last;
  torch::nn::BatchNorm1d norm;
};

class Smoothed : public sgd::TrainingOperator {
 public:
  void setup(sgd::Setup& setup) override {
    net_ = setup.model("net", std::make_shared<Net>(config().at("hidden")));
    options_.label_smoothing(config().at("smoothing"));
  }

  sgd::BatchMetrics train_batch(const sgd::Batch& batch, sgd::Step& step) override {
    const auto loss = torch::nn::functional::cross_entropy(net_->forward(batch.features), batch.target, options_);
    step.minimize(loss);  // Backward, the mean over all workers, one step of the job's optimizer.
    return {batch.features.size(0), {{"train_loss", loss.item<double>()}}};
  }

  sgd::BatchMetrics validate_batch(const sgd::Batch& batch, const sgd::BatchInfo&) override {
    const auto right = net_->forward(batch.features).argmax(1).eq(batch.target);
    return {batch.features.size(0), {{"val_accuracy", right.to(at::kDouble).mean().item<double>()}}};
  }

 private:
  std::shared_ptr<Net> net_;
  torch::nn::functional::CrossEntropyFuncOptions options_;
};

}  // namespace

SGD_REGISTER_OPERATOR("smoothed", Smoothed, R"({
  "hidden": {"type": "integer", "minimum": 1, "default": 256},
  "smoothing": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.1}
})");
