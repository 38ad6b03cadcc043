// The training functions of RaySGD's guides, an operator with metrics of its own, and a model, in C++.
// configs/porting.md says which is which.
#include <limits>

#include <sgd/sgd.hpp>

namespace {

namespace nn = torch::nn;
namespace optim = torch::optim;

/// Random numbers and a small network: the guide's first function with gradients.
void train_simple(sgd::Session& session) {
  session.enable_reproducibility(0);
  const at::Tensor x = at::randn({8, 5});
  const at::Tensor y = at::randn({8, 5});
  auto model = session.prepare_model("model", nn::Sequential(nn::Linear(5, 5), nn::ReLU(), nn::Linear(5, 5)));
  auto optimizer = session.prepare_optimizer("sgd", optim::SGD(model->parameters(), 0.1));
  for (std::int64_t epoch = 0; epoch < session.config().at("num_epochs"); ++epoch) {
    const at::Tensor loss = at::mse_loss(model->forward(x), y);
    session.backward(loss);
    optimizer->step();    // The mean over all workers, then the update, which leaves no gradients behind.
    session.step_done();  // All updates of this turn are made.
    session.report({{"loss", loss.item<double>()}});
  }
}

/// A number of each worker; a line has their mean, or with "report": {"workers": "list"} all of them.
void accuracy(sgd::Session& session) {
  session.enable_reproducibility(0);
  const at::Tensor predictions = at::randn({10, 5}).softmax(-1);
  const at::Tensor target = at::randint(5, {10});
  session.report({{"accuracy", predictions.argmax(1).eq(target).to(at::kDouble).mean().item<double>()}});
}

/// It goes on from what it has saved, after a failure and after `sgd-launch resume`. A save counts the reports before
/// it: report first.
void checkpoints(sgd::Session& session) {
  std::int64_t model = 0;
  std::int64_t start_epoch = 0;
  if (const auto checkpoint = session.load_checkpoint()) {
    model = checkpoint->values.at("model");
    start_epoch = checkpoint->values.at("epoch").get<std::int64_t>() + 1;
  }
  for (std::int64_t epoch = start_epoch; epoch < session.config().at("num_epochs"); ++epoch) {
    model += epoch;
    session.report({{"model", model}});
    session.save_checkpoint({{"epoch", epoch}, {"model", model}});
  }
}

/// A layer, Adam and data of its own. Weights and optimizer are in each checkpoint beside what save_checkpoint() gets.
void toy(sgd::Session& session) {
  session.enable_reproducibility(0);
  const at::Tensor x = at::randn({100, 4});
  const at::Tensor y = at::rand({100, 1});
  auto model = session.prepare_model("model", nn::Linear(4, 1));
  auto optimizer = session.prepare_optimizer("adam", optim::Adam(model->parameters(), 3e-4));
  std::int64_t start_epoch = 0;
  if (const auto checkpoint = session.load_checkpoint())
    start_epoch = checkpoint->values.at("epoch").get<std::int64_t>() + 1;
  for (std::int64_t epoch = start_epoch; epoch < session.config().at("num_epochs"); ++epoch) {
    const at::Tensor loss = at::mse_loss(model->forward(x), y);
    session.backward(loss);
    optimizer->step();
    session.step_done();
    session.report({{"loss", loss.item<double>()}});
    session.save_checkpoint({{"epoch", epoch}});
  }
}

struct NeuralNetwork : nn::Module {
  NeuralNetwork() { register_module("linear_relu_stack", linear_relu_stack); }
  at::Tensor forward(const at::Tensor& images) { return linear_relu_stack->forward(images.flatten(1)); }

  nn::Sequential linear_relu_stack{nn::Linear(28 * 28, 512), nn::ReLU(), nn::Linear(512, 512), nn::ReLU(),
                                   nn::Linear(512, 10)};
};

/// The quick start: the job's data, sharded; a loop over epochs that goes on where it was.
void quick_start(sgd::Session& session) {
  auto model = session.prepare_model("model", std::make_shared<NeuralNetwork>());
  auto optimizer = session.prepare_optimizer("sgd", optim::SGD(model->parameters(), 0.01));
  for (const int epoch : session.epochs()) {
    (void)epoch;
    model->train();
    for (const sgd::Batch& batch : session.train_data()) {
      session.backward(torch::cross_entropy_loss(model->forward(batch.features), batch.target));
      optimizer->step();
    }
    model->eval();
    const at::NoGradGuard no_gradients;
    double loss = 0, right = 0, samples = 0;
    for (const sgd::Batch& batch : session.validation_data()) {
      const at::Tensor output = model->forward(batch.features);
      loss += at::cross_entropy_loss(output, batch.target, {}, at::Reduction::Sum).item<double>();
      right += output.argmax(1).eq(batch.target).sum().item<double>();
      samples += static_cast<double>(batch.features.size(0));
    }
    session.report({{"val_loss", loss / samples}, {"val_accuracy", right / samples}});
  }
}

/// The network of Tune's MNIST page, for the built-in operator and the loss "nll".
struct ConvNet : sgd::Model {
  ConvNet()
      : conv(register_module("conv1", nn::Conv2d(nn::Conv2dOptions(1, 3, 3)))),
        last(register_module("fc", nn::Linear(192, 10))) {}
  at::Tensor forward(const at::Tensor& images) override {
    const at::Tensor pooled = torch::relu(at::max_pool2d(conv->forward(images), 3));
    return at::log_softmax(last->forward(pooled.flatten(1)), 1);
  }
  nn::Conv2d conv;
  nn::Linear last;
};

std::shared_ptr<sgd::Model> conv_net(const nlohmann::json& /*settings*/, const sgd::SampleShape& /*sample*/) {
  return std::make_shared<ConvNet>();
}

/// Metrics of one's own: reports have the mean over a phase's batches, by samples, and the last value.
class Scores : public sgd::TrainingOperator {
 public:
  sgd::BatchMetrics train_batch(const sgd::Batch& batch, sgd::Step& step) override {
    sgd::BatchMetrics metrics = sgd::TrainingOperator::train_batch(batch, step);
    if (config().at("steps_scheduler").get<bool>()) step.step_scheduler();
    return scored(std::move(metrics), step.info());
  }
  sgd::BatchMetrics validate_batch(const sgd::Batch& batch, const sgd::BatchInfo& info) override {
    return scored(sgd::TrainingOperator::validate_batch(batch, info), info);
  }

 private:
  [[nodiscard]] sgd::BatchMetrics scored(sgd::BatchMetrics metrics, const sgd::BatchInfo& info) const {
    const bool has_none = info.batch_index == config().at("no_score_in").get<std::int64_t>();
    const double score = has_none ? std::numeric_limits<double>::quiet_NaN() : static_cast<double>(info.batch_index);
    metrics.values.emplace_back("score", score);
    return metrics;
  }
};

}  // namespace

SGD_REGISTER_FUNCTION("train_simple", train_simple,
                      R"({"num_epochs": {"type": "integer", "minimum": 1, "default": 10}})");
SGD_REGISTER_FUNCTION("accuracy", accuracy, "{}");
SGD_REGISTER_FUNCTION("checkpoints", checkpoints, R"({"num_epochs": {"type": "integer", "minimum": 1, "default": 5}})");
SGD_REGISTER_FUNCTION("toy", toy, R"({"num_epochs": {"type": "integer", "minimum": 1, "default": 5}})");
SGD_REGISTER_FUNCTION("quick_start", quick_start, "{}");
SGD_REGISTER_MODEL("conv_net", conv_net, "{}");
SGD_REGISTER_OPERATOR("scores", Scores, R"({
  "no_score_in": {"type": "integer", "default": -1},
  "steps_scheduler": {"type": "boolean", "default": false}
})");
