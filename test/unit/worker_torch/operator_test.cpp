// The default bodies of TrainingOperator, without a group.
#include <catch2/catch.hpp>

#include "sgd/training_operator.hpp"

namespace sgd {
namespace {

/// Keeps what it computed last, as a recurrent network keeps its state.
struct Remembering : Model {
  Remembering() { register_module("fc", fc); }
  at::Tensor forward(const at::Tensor& features) override {
    const at::Tensor before = kept.defined() ? kept : at::zeros({features.size(0), 2});
    const at::Tensor output = fc->forward(features) * (before + 1);
    kept = output.data();
    return output;
  }
  torch::nn::Linear fc{3, 2};
  at::Tensor kept;
};

/// Plain LibTorch instead of a group.
class Host : public OperatorHost, public Setup, public Step {
 public:
  [[nodiscard]] int world_rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return 1; }
  [[nodiscard]] int local_rank() const override { return 0; }
  [[nodiscard]] at::Device device() const override { return at::kCPU; }
  [[nodiscard]] const nlohmann::json& config() const override { return config_; }
  [[nodiscard]] const nlohmann::json& training() const override { return config_; }
  [[nodiscard]] const std::vector<RegisteredModel>& models() const override { return models_; }
  [[nodiscard]] const Loss& loss() const override { return loss_; }
  void measure(const at::Tensor&, const at::Tensor&) override { ++measured; }

  std::shared_ptr<torch::optim::Optimizer> optimizer(const std::string&, const torch::optim::Optimizer&) override {
    return nullptr;
  }
  std::shared_ptr<torch::optim::Optimizer> job_optimizer(const std::string&, std::vector<at::Tensor>) override {
    return nullptr;
  }
  void scheduler(const torch::optim::Optimizer&, const nlohmann::json&) override {}
  void loss(Loss loss) override { loss_ = std::move(loss); }
  [[nodiscard]] std::shared_ptr<Model> job_model() override { return std::make_shared<Remembering>(); }
  [[nodiscard]] Loss job_loss() override { return loss_; }

  void set_training(nlohmann::json training) { config_ = std::move(training); }

  int measured = 0;
  [[nodiscard]] const BatchInfo& info() const override { return info_; }
  void backward(const at::Tensor& loss) override { loss.backward(); }
  void backward(const at::Tensor& loss, const torch::optim::Optimizer&) override { loss.backward(); }
  void update(torch::optim::Optimizer&) override {}
  void minimize(const at::Tensor& loss) override { loss.backward(); }
  void step_scheduler() override {}
  void step_scheduler(const torch::optim::Optimizer&) override {}

 private:
  void add_model(RegisteredModel registered) override { models_.push_back(std::move(registered)); }

  nlohmann::json config_ = nlohmann::json::object();
  std::vector<RegisteredModel> models_;
  Loss loss_ = [](const at::Tensor& output, const at::Tensor& target) { return at::mse_loss(output, target); };
  BatchInfo info_;
};

class TwoBatches : public BatchStream {
 public:
  explicit TwoBatches(Step* step = nullptr) : step_(step) {}
  std::optional<Batch> next() override {
    if (given_++ == 2) return std::nullopt;
    return Batch{at::ones({4, 3}), at::ones({4, 2})};
  }
  [[nodiscard]] BatchInfo info() const override { return {1, given_ - 1, given_ - 1}; }
  [[nodiscard]] Step* step() override { return step_; }
  void add(const BatchMetrics& metrics) override { samples += metrics.num_samples; }
  std::int64_t samples = 0;

 private:
  Step* step_;
  int given_ = 0;
};

}  // namespace

TEST_CASE("operator: what a model keeps from validation may be used in training") {
  Host host;
  TrainingOperator plain;
  plain.attach(host);
  plain.setup(host);
  const auto weight = [&host] { return dynamic_cast<Remembering&>(*host.models().front().module).fc->weight; };
  TwoBatches validation;
  (void)plain.validate(validation);
  CHECK(validation.samples == 8);
  CHECK(host.measured == 2);
  CHECK_FALSE(weight().grad().defined());
  TwoBatches training(&host);
  CHECK_NOTHROW(plain.train_epoch(training));
  CHECK(training.samples == 8);
  CHECK(weight().grad().defined());
}

TEST_CASE("operator: accuracy leaves out what the job's loss leaves out") {
  Host host;
  TrainingOperator plain;
  plain.attach(host);
  plain.setup(host);
  host.loss([](const at::Tensor& output, const at::Tensor&) { return output.sum(); });
  torch::nn::Linear& layer = dynamic_cast<Remembering&>(*host.models().front().module).fc;
  torch::nn::init::zeros_(layer->weight);
  torch::nn::init::zeros_(layer->bias);  // Of equal outputs the first counts.
  const at::Tensor target = at::tensor({0, 0, 0, 1}, at::kLong);
  const auto accuracy = [&](const nlohmann::json& loss) {
    host.set_training({{"loss", loss}});
    return plain.validate_batch({at::ones({4, 3}), target}, {}).values.back();
  };
  CHECK(accuracy("cross_entropy") == std::pair<std::string, double>("val_accuracy", 0.75));
  CHECK(accuracy({{"type", "cross_entropy"}, {"ignore_index", 0}}).second == 0);
  CHECK(accuracy({{"type", "cross_entropy"}, {"ignore_index", 1}}).second == 1);
}

TEST_CASE("operator: a model without forward(tensor) needs batches of its own") {
  struct Silent : torch::nn::Module {};
  Host host;
  (void)static_cast<Setup&>(host).model("silent", std::make_shared<Silent>());
  TrainingOperator plain;
  plain.attach(host);
  TwoBatches training(&host);
  CHECK_THROWS_WITH(plain.train_epoch(training), Catch::Contains("\"silent\" has no forward of one to three tensors"));
}

TEST_CASE("operator: LibTorch's holders are registered as modules are") {
  Host host;
  const torch::nn::Linear layer = static_cast<Setup&>(host).model("layer", torch::nn::Linear(3, 2));
  REQUIRE(host.models().size() == 1);
  CHECK(host.models()[0].module == layer.ptr());
  CHECK(host.models()[0].forward({at::zeros({1, 3})}).sizes() == at::IntArrayRef({1, 2}));
}

}  // namespace sgd
