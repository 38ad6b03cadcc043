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

class Host : public OperatorHost {
 public:
  void step(const at::Tensor& loss) override { loss.backward(); }
  void step_scheduler() override {}
  [[nodiscard]] int world_rank() const override { return 0; }
  [[nodiscard]] int world_size() const override { return 1; }
  [[nodiscard]] const nlohmann::json& config() const override { return config_; }
  [[nodiscard]] const nlohmann::json& training() const override { return config_; }
  [[nodiscard]] std::shared_ptr<Model> make_model() const override { return std::make_shared<Remembering>(); }
  [[nodiscard]] Loss make_loss() const override {
    return [](const at::Tensor& output, const at::Tensor& target) { return at::mse_loss(output, target); };
  }

 private:
  nlohmann::json config_ = nlohmann::json::object();
};

class TwoBatches : public BatchStream {
 public:
  std::optional<Batch> next() override {
    if (given_++ == 2) return std::nullopt;
    return Batch{at::ones({4, 3}), at::ones({4, 2})};
  }
  [[nodiscard]] BatchInfo info() const override { return {1, given_ - 1, given_ - 1}; }
  void add(const BatchMetrics& metrics) override { samples += metrics.num_samples; }
  std::int64_t samples = 0;

 private:
  int given_ = 0;
};

}  // namespace

TEST_CASE("operator: what a model keeps from validation may be used in training") {
  Host host;
  TrainingOperator plain;
  plain.attach(host);
  plain.setup();
  TwoBatches validation;
  (void)plain.validate(validation);
  CHECK(validation.samples == 8);
  CHECK_FALSE(dynamic_cast<Remembering&>(*plain.model()).fc->weight.grad().defined());
  TwoBatches training;
  CHECK_NOTHROW(plain.train_epoch(training));
  CHECK(training.samples == 8);
  CHECK(dynamic_cast<Remembering&>(*plain.model()).fc->weight.grad().defined());
}

}  // namespace sgd
