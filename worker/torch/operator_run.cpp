#include "worker/torch/operator_run.hpp"

#include <cstdio>
#include <string>
#include <utility>

#include "common/job/validated_epochs.hpp"
#include "worker/torch/operator_save.hpp"

namespace sgd::worker {

OperatorRun::OperatorRun(const EngineSetup& setup, TrainingOperator& training_operator)
    : operator_(training_operator),
      job_(*setup.job.training),
      validates_only_(setup.job.training->validate_only),
      config_(setup.job.training->training_operator),
      training_(setup.job.resolved->value("training", nlohmann::json::object())),
      engine_(setup, *this) {
  operator_.attach(*this);
  operator_.setup(engine_.record());
}

Outcome OperatorRun::run() {
  engine_.begin();
  engine_.check_validation();
  if (validates_only_) {
    engine_.go_to_validation();
    const bool done = validate() == After::kGoOn;
    engine_.finish(false);  // Nothing is saved.
    return done ? Outcome::kDone : Outcome::kStopped;
  }
  After after = After::kGoOn;
  while (after == After::kGoOn && !engine_.is_over()) {
    if (engine_.position().phase == "train") after = train();
    if (after == After::kGoOn) after = validate();
    if (after == After::kGoOn) after = engine_.end_epoch();
  }
  const bool done = after == After::kGoOn;
  engine_.finish(done);
  return done ? Outcome::kDone : Outcome::kStopped;
}

OperatorRun::After OperatorRun::train() {
  PhaseStream& batches = engine_.begin_training();
  const nlohmann::json further = operator_.train_epoch(batches);
  batches.check_completed("train_epoch()");
  if (batches.interrupted()) return After::kStop;
  engine_.report({engine_.position().epoch, "train", 0, 0}, engine_.measured(further));
  engine_.end_training();
  return After::kGoOn;
}

OperatorRun::After OperatorRun::validate() {
  const int epoch = engine_.position().epoch;
  if (!validates_only_ && (!engine_.has_validation() || !job::is_validated(job_, epoch))) {
    // Readers of the run take this line for the epoch's end.
    engine_.report({epoch, "validate", 0, 0}, nlohmann::json::object());
    engine_.skip_validation();
    return After::kGoOn;
  }
  PhaseStream& batches = engine_.begin_validation();
  const nlohmann::json further = operator_.validate(batches);
  batches.check_completed("validate()");
  if (batches.interrupted()) return After::kStop;
  nlohmann::json metrics = engine_.measured(further);
  if (const std::string reason = validates_only_ ? "" : engine_.stops_early(); !reason.empty()) {
    metrics["early_stop"] = reason;
    if (world_rank() == 0)
      std::fprintf(stderr, "sgd-worker: training ends after epoch %d: %s\n", epoch, reason.c_str());
  }
  engine_.report({epoch, "validate", 0, 0}, std::move(metrics));
  engine_.end_validation();
  return After::kGoOn;
}

OperatorState OperatorRun::own(int rank) const {
  return own_state_of(operator_, rank);
}

OperatorState OperatorRun::shared() const {
  return shared_state_of(operator_);
}

void OperatorRun::load(const TrainingState& state, int rank, int world_size) {
  give_back(state, rank, world_size, operator_);
}

}  // namespace sgd::worker
