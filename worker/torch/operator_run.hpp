#pragma once
// Trains with an operator: epochs of training and validation, and a report after each.
//
//   setup -> begin -> [ train_epoch() -> report -> validate() -> report -> end of the epoch ]*

#include "sgd/training_operator.hpp"
#include "worker/torch/engine.hpp"

namespace sgd::worker {

class OperatorRun final : public OperatorHost, private UserState {
 public:
  /// Both outlive this object.
  OperatorRun(const EngineSetup& setup, TrainingOperator& training_operator);

  [[nodiscard]] Outcome run();

  [[nodiscard]] int world_rank() const override { return engine_.world_rank(); }
  [[nodiscard]] int world_size() const override { return engine_.world_size(); }
  [[nodiscard]] int local_rank() const override { return engine_.local_rank(); }
  [[nodiscard]] at::Device device() const override { return engine_.device().place(); }
  [[nodiscard]] const nlohmann::json& config() const override { return config_; }
  [[nodiscard]] const nlohmann::json& training() const override { return training_; }
  [[nodiscard]] const std::vector<RegisteredModel>& models() const override { return engine_.record().models(); }
  [[nodiscard]] const Loss& loss() const override { return engine_.record().loss(); }
  void measure(const at::Tensor& output, const at::Tensor& target) override { engine_.measure(output, target); }

 private:
  using After = Engine::After;

  After train();
  After validate();

  [[nodiscard]] OperatorState own(int rank) const override;
  [[nodiscard]] OperatorState shared() const override;
  void load(const TrainingState& state, int rank, int world_size) override;

  TrainingOperator& operator_;
  const job::Training& job_;
  bool validates_only_;
  nlohmann::json config_;
  nlohmann::json training_;
  Engine engine_;
};

}  // namespace sgd::worker
