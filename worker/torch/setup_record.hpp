#pragma once
// What an operator registers in setup(), and what follows from it: which parameters are trained, by which optimizer,
// and in which order they lie.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/job/spec.hpp"
#include "sgd/setup.hpp"
#include "worker/torch/flat_parameters.hpp"
#include "worker/torch/job_groups.hpp"
#include "worker/torch/optimizer_part.hpp"

namespace sgd::worker {

/// Where a job's model and loss come from.
struct JobFactories {
  std::function<std::shared_ptr<Model>()> model;
  std::function<Loss()> loss;
};

class SetupRecord final : public Setup {
 public:
  /// `job` must outlive this object.
  SetupRecord(const job::JobSpec& job, JobFactories factories);

  std::shared_ptr<torch::optim::Optimizer> optimizer(const std::string& name,
                                                     const torch::optim::Optimizer& made) override;
  std::shared_ptr<torch::optim::Optimizer> job_optimizer(const std::string& name,
                                                         std::vector<at::Tensor> parameters) override;
  void scheduler(const torch::optim::Optimizer& optimizer, const nlohmann::json& settings) override;
  void loss(Loss loss) override { loss_ = std::move(loss); }
  [[nodiscard]] std::shared_ptr<Model> job_model() override { return factories_.model(); }
  [[nodiscard]] Loss job_loss() override { return factories_.loss(); }

  /// Once, after setup(): the job's optimizer over all that requires gradients if none was registered. Throws, naming
  /// it, on what is trained twice, is trained but of no registered model, or given in the job but not used.
  /// `may_be_empty`: there may be no model.
  void finish(bool may_be_empty = false);

  [[nodiscard]] const std::vector<RegisteredModel>& models() const { return models_; }
  [[nodiscard]] const std::vector<RegisteredOptimizer>& optimizers() const { return optimizers_; }
  /// In the order of the optimizers.
  [[nodiscard]] const std::vector<TrainedParameter>& trained() const { return trained_; }
  /// The registered one, else the job's, made when it is asked for first.
  [[nodiscard]] const Loss& loss() const;

 private:
  void add_model(RegisteredModel registered) override;
  std::shared_ptr<PreparedOptimizer> add(std::string name, std::string type, const torch::optim::Optimizer& made);
  void place(RegisteredOptimizer& registered);

  const job::JobSpec& job_;
  JobFactories factories_;
  JobGroups groups_;
  std::vector<RegisteredModel> models_;
  std::vector<RegisteredOptimizer> optimizers_;
  std::vector<TrainedParameter> trained_;
  mutable Loss loss_;
};

}  // namespace sgd::worker
