#include "worker/torch/setup_record.hpp"

#include <algorithm>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/job/load.hpp"
#include "worker/plugin/registered.hpp"
#include "worker/torch/errors.hpp"
#include "worker/torch/named_models.hpp"
#include "worker/torch/optimizer_options.hpp"

namespace sgd::worker {
namespace {

template <class Registered>
bool is_taken(const std::vector<Registered>& all, const std::string& name) {
  return std::any_of(all.begin(), all.end(), [&name](const Registered& one) { return one.name == name; });
}

/// Names are parts of file names' keys: as in a job file.
void check_name(const char* kind, const std::string& name) {
  const auto is_fine = [](char letter) {
    return (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z') || (letter >= '0' && letter <= '9') ||
           letter == '_' || letter == '-';
  };
  if (name.empty() || !std::all_of(name.begin(), name.end(), is_fine))
    throw std::logic_error(fmt::format("setup(): \"{}\" is no name for {}: letters, digits, '_' and '-'", name, kind));
}

/// What `settings` mean as the job's scheduler, checked like that.
job::Scheduler read_scheduler(const job::JobSpec& job, const nlohmann::json& settings) {
  nlohmann::json resolved = job.resolved;
  resolved["training"]["scheduler"] = settings;
  const job::LoadResult loaded = job::load_resolved(resolved, registered_properties());
  if (loaded.job) return loaded.job->training->scheduler.value();
  std::string errors;
  for (const Diagnostic& item : loaded.diagnostics.items)
    if (!item.warning) errors += (errors.empty() ? "" : "; ") + item.message;
  throw ConfigurationError("setup(): a scheduler: " + errors);
}

}  // namespace

SetupRecord::SetupRecord(const job::JobSpec& job, JobFactories factories)
    : job_(job), factories_(std::move(factories)), groups_(*job.training) {}

void SetupRecord::add_model(RegisteredModel registered) {
  check_name("a model", registered.name);
  if (!registered.module) throw std::logic_error(fmt::format("setup(): the model \"{}\" is null", registered.name));
  if (is_taken(models_, registered.name))
    throw std::logic_error(fmt::format("setup(): two models are named \"{}\"", registered.name));
  models_.push_back(std::move(registered));
}

std::shared_ptr<PreparedOptimizer> SetupRecord::add(std::string name, std::string type,
                                                    const torch::optim::Optimizer& made) {
  check_name("an optimizer", name);
  for (const RegisteredOptimizer& other : optimizers_)
    if (other.optimizer->name() == name)
      throw std::logic_error(fmt::format("setup(): two optimizers are named \"{}\"", name));
  if (made.param_groups().empty())
    throw std::logic_error(fmt::format("setup(): optimizer \"{}\" has no group of parameters", name));
  RegisteredOptimizer registered;
  registered.optimizer = std::make_shared<PreparedOptimizer>(std::move(name), std::move(type), made);
  optimizers_.push_back(registered);
  return registered.optimizer;
}

std::shared_ptr<torch::optim::Optimizer> SetupRecord::optimizer(const std::string& name,
                                                                const torch::optim::Optimizer& made) {
  const std::string type = optimizer_type_of(made);
  if (dynamic_cast<const torch::optim::LBFGS*>(&made) != nullptr)
    throw std::logic_error(
        fmt::format("setup(): optimizer \"{}\" is LBFGS, which evaluates the loss several times a "
                    "step, and its line search would have to run over all ranks: use Adam or SGD",
                    name));
  if (type.empty())
    throw std::logic_error(
        fmt::format("setup(): optimizer \"{}\" is of a class of its own; those that are known are "
                    "torch::optim::SGD, Adam, AdamW, RMSprop and Adagrad",
                    name));
  return add(name, type, made);
}

std::shared_ptr<torch::optim::Optimizer> SetupRecord::job_optimizer(const std::string& name,
                                                                    std::vector<at::Tensor> parameters) {
  const job::Training& training = *job_.training;
  std::vector<ParameterGroup> divided = groups_.divided(parameters, named(models_));
  const auto made = make_torch_optimizer(divided.front().settings, std::move(divided.front().parameters));
  for (std::size_t i = 1; i < divided.size(); ++i)
    add_group(divided[i].settings, std::move(divided[i].parameters), *made);
  const auto prepared = add(name, training.optimizer.type, *made);
  optimizers_.back().is_the_jobs = true;
  optimizers_.back().schedule = training.scheduler;
  return prepared;
}

void SetupRecord::scheduler(const torch::optim::Optimizer& optimizer, const nlohmann::json& settings) {
  for (RegisteredOptimizer& one : optimizers_) {
    if (one.optimizer.get() != &optimizer) continue;
    if (one.schedule)
      throw std::logic_error(
          fmt::format("setup(): optimizer \"{}\" has a scheduler: give it one list", one.optimizer->name()));
    one.schedule = read_scheduler(job_, settings);
    return;
  }
  throw std::logic_error("setup(): scheduler() is for an optimizer that optimizer() has returned");
}

const Loss& SetupRecord::loss() const {
  if (!loss_) loss_ = factories_.loss();
  return loss_;
}

void SetupRecord::place(RegisteredOptimizer& registered) {
  const std::string& name = registered.optimizer->name();
  const auto names = named_parameters(named(models_));
  registered.first = trained_.size();
  const auto& groups = std::as_const(*registered.optimizer).param_groups();
  for (std::size_t group = 0; group < groups.size(); ++group) {
    for (const at::Tensor& tensor : groups[group].params()) {
      TrainedParameter one{"", tensor, {}};
      for (const auto& [full, parameter] : names) {
        if (!parameter.is_same(tensor)) continue;
        if (one.name.empty())
          one.name = full;
        else
          one.also.push_back(full);
      }
      if (one.name.empty())
        throw std::logic_error(
            fmt::format("setup(): optimizer \"{}\" has a parameter of shape {} that is of no "
                        "registered model: register the model with setup.model()",
                        name, fmt::join(tensor.sizes(), " x ")));
      const auto same = [&tensor](const TrainedParameter& other) { return other.tensor.is_same(tensor); };
      if (std::any_of(trained_.begin(), trained_.end(), same))
        throw std::logic_error(
            fmt::format("setup(): parameter {} is of two optimizers, or twice in \"{}\"", one.name, name));
      // What is frozen may be trained later. Whole numbers never are.
      if (!tensor.requires_grad() && (tensor.scalar_type() != at::kFloat || tensor.layout() != at::kStrided)) continue;
      trained_.push_back(std::move(one));
      registered.group_of.push_back(group);
    }
  }
  if (registered.group_of.empty())
    throw std::logic_error(fmt::format("setup(): optimizer \"{}\" has no parameter to train", name));
}

void SetupRecord::finish(bool may_be_empty) {
  if (models_.empty() && optimizers_.empty() && may_be_empty) return;
  if (models_.empty()) throw std::logic_error("the operator's setup() registered no model");
  if (optimizers_.empty()) {
    std::vector<at::Tensor> parameters;
    for (const TrainedParameter& one : trainable_parameters(named(models_))) parameters.push_back(one.tensor);
    if (parameters.empty()) throw std::invalid_argument("the model has no trainable parameter");
    (void)job_optimizer("optimizer", std::move(parameters));
  }
  for (RegisteredOptimizer& one : optimizers_) place(one);
  const auto is_the_jobs = [](const RegisteredOptimizer& one) { return one.is_the_jobs; };
  const bool uses_the_jobs = std::any_of(optimizers_.begin(), optimizers_.end(), is_the_jobs);
  if (uses_the_jobs) groups_.check_all_used(named(models_));
  if (job_.training->scheduler && !uses_the_jobs)
    throw ConfigurationError(
        "the job has a \"training.scheduler\", and its operator makes its own optimizers: remove it, or make one with "
        "setup.job_optimizer()");
}

}  // namespace sgd::worker
