// A model and an operator of a user's own: plain LibTorch modules, running statistics, dropout, settings.
#include <sgd/sgd.hpp>

namespace {

struct Net : torch::nn::Module {
  Net(std::int64_t inputs, std::int64_t hidden, double dropout)
      : first(register_module("first", torch::nn::Linear(inputs, hidden))),
        norm(register_module("norm", torch::nn::BatchNorm1d(hidden))),
        drop(register_module("drop", torch::nn::Dropout(dropout))),
        last(register_module("last", torch::nn::Linear(hidden, 10))),
        spare(register_module("spare", torch::nn::Linear(3, 3))) {}

  at::Tensor forward(const at::Tensor& images) {
    return last->forward(drop->forward(torch::relu(norm->forward(first->forward(images.flatten(1))))));
  }

  torch::nn::Linear first;
  torch::nn::BatchNorm1d norm;
  torch::nn::Dropout drop;
  torch::nn::Linear last;
  torch::nn::Linear spare;  // No loss reaches it.
};

class Smoothed : public sgd::TrainingOperator {
 public:
  void setup(sgd::Setup& setup) override {
    if (config().at("fail_in").get<std::string>() == "setup") throw std::runtime_error("setup does not like this");
    net_ = setup.model("net", std::make_shared<Net>(784, config().at("hidden"), config().at("dropout")));
  }

  /// In "train_epoch" it forgets to complete its batch.
  nlohmann::json train_epoch(sgd::BatchStream& batches) override {
    if (config().at("fail_in").get<std::string>() != "train_epoch") return sgd::TrainingOperator::train_epoch(batches);
    if (const auto batch = batches.next()) (void)train_batch(*batch, *batches.step());
    return nlohmann::json::object();
  }

  sgd::BatchMetrics train_batch(const sgd::Batch& batch, sgd::Step& step) override {
    if (config().at("fail_in").get<std::string>() == "train_batch" && step.info().global_step == 3)
      throw std::runtime_error("this batch is odd");
    for (at::Tensor& one : net_->first->parameters())
      one.set_requires_grad(step.info().global_step < config().at("freeze_at"));
    const auto loss = torch::nn::functional::cross_entropy(
        net_->forward(batch.features), batch.target,
        torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(config().at("smoothing")));
    step.minimize(loss);
    return {batch.features.size(0), {{"train_loss", loss.item<double>()}}};
  }

  sgd::BatchMetrics validate_batch(const sgd::Batch& batch, const sgd::BatchInfo&) override {
    if (config().at("fail_in").get<std::string>() == "validate_batch") throw std::runtime_error("no batch of these");
    const auto right = net_->forward(batch.features).argmax(1).eq(batch.target).sum();
    const auto samples = batch.features.size(0);
    return {samples, {{"val_accuracy", right.item<double>() / static_cast<double>(samples)}}};
  }

 private:
  std::shared_ptr<Net> net_;
};

/// As the built-in "mlp" with one hidden layer, for the built-in operator.
/// The larger one of each two neighbours, and 0. LibTorch has no deterministic form of it.
at::Tensor unpooled(const at::Tensor& numbers) {
  const auto [pooled, places] = at::max_pool2d_with_indices(numbers.unsqueeze(1).unsqueeze(1), {1, 2}, {1, 2});
  return at::max_unpool2d(pooled, places, {1, numbers.size(1)}).flatten(1);
}

struct TwoLayers : sgd::Model {
  TwoLayers(std::int64_t inputs, std::int64_t hidden, std::int64_t outputs, bool does_unpool)
      : first(register_module("fc1", torch::nn::Linear(inputs, hidden))),
        last(register_module("fc2", torch::nn::Linear(hidden, outputs))),
        unpools(does_unpool) {}
  at::Tensor forward(const at::Tensor& features) override {
    const at::Tensor numbers = torch::relu(first->forward(features.flatten(1)));
    return last->forward(unpools ? unpooled(numbers) : numbers);
  }
  torch::nn::Linear first, last;
  bool unpools;
};

std::shared_ptr<sgd::Model> two_layers(const nlohmann::json& settings, const sgd::SampleShape& sample) {
  std::int64_t inputs = 1;
  for (const std::int64_t size : sample.features) inputs *= size;
  return std::make_shared<TwoLayers>(inputs, settings.at("hidden"), sample.outputs, settings.value("unpool", false));
}

}  // namespace

SGD_REGISTER_OPERATOR("smoothed", Smoothed, R"({
  "hidden": {"type": "integer", "minimum": 1, "maximum": 4096, "default": 64},
  "dropout": {"type": "number", "minimum": 0, "exclusiveMaximum": 1, "default": 0.2},
  "freeze_at": {"type": "integer", "minimum": 0, "default": 1000000},
  "smoothing": {"type": "number", "minimum": 0, "maximum": 1, "default": 0.1},
  "fail_in": {"enum": ["nothing", "setup", "train_batch", "train_epoch", "validate_batch"], "default": "nothing"}
})");
SGD_REGISTER_MODEL("two_layers", two_layers, R"({
  "hidden": {"type": "integer", "minimum": 1, "default": 32},
  "unpool": {"type": "boolean", "default": false}
})");
