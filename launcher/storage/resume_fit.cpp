#include "launcher/storage/resume_fit.hpp"

#include <fmt/format.h>

#include "common/job/model_size.hpp"
#include "common/json/lenient.hpp"

namespace sgd::storage {
namespace {

constexpr int kEpochsSuggested = 3;  // Beyond those that are trained.

/// Epochs whose outcome is on disk: without a checkpoint of the last one its weights are still to be made.
int epochs_kept(const job::JobSpec& job, const RunHistory& history) {
  const bool keeps_checkpoints = job.checkpoint.every != job::CheckpointPolicy::Every::kNever;
  return keeps_checkpoints || !history.past.checkpoints.empty() ? history.newest.epoch : history.past.epochs;
}

std::string unlike(const char* key, const std::string& was, const std::string& is) {
  return fmt::format(
      "{0} was {1} and is {2}: what the newest checkpoint holds is of {1}. Keep it (--set {0}={1}), or "
      "start a new run",
      key, was, is);
}

/// A plug-in's operator or function makes models and optimizers of its own, of which only the worker knows.
bool makes_own_state(const nlohmann::json& training) {
  return !member(training, "function").is_null() ||
         read_or(member(training, "operator"), "type", job::kSupervised) != job::kSupervised;
}

std::string state_conflict(const job::JobSpec& job, const RunHistory& history) {
  const job::Training& training = *job.training;
  const nlohmann::json& before = member(history.made_by, "training");
  const nlohmann::json& after = member(*job.resolved, "training");
  if (makes_own_state(before) || makes_own_state(after)) return {};
  const nlohmann::json& model = member(before, "model");
  const std::string was = read_or(model, "type", "");
  const std::string is = read_or(training.model, "type", "");
  const bool are_known = job::is_built_in_model(model) && job::is_built_in_model(training.model);
  if (are_known && was != is) return unlike("training.model.type", was, is);
  if (!history.optimizers.is_array() || history.optimizers.size() != 1) return {};
  const std::string saved = read_or(history.optimizers.front(), "type", "");
  const std::string wanted = read_or(member(after, "optimizer"), "type", "");
  if (saved.empty() || wanted.empty() || saved == wanted) return {};
  return unlike("training.optimizer.type", saved, wanted);
}

}  // namespace

std::string why_nothing_to_train(const job::JobSpec& job, const RunHistory& history) {
  if (!job.training || job.training->validate_only) return {};
  const int kept = epochs_kept(job, history);
  const int wanted = job.training->epochs;
  if (kept < wanted) return {};
  // Killed between its last checkpoint and its summary: the workers find nothing to do, and the end is
  // recorded.
  if (kept == wanted && !history.succeeded) return {};
  const std::string trained = kept == wanted ? fmt::format("all {} epochs are trained", kept)
                                             : fmt::format("{} epochs are trained, the job wants {}", kept, wanted);
  return fmt::format("nothing to train: {}; --set training.epochs={} trains more", trained, kept + kEpochsSuggested);
}

std::string fit_to_job(const job::JobSpec& job, RunHistory& history) {
  if (job.training && !history.past.checkpoints.empty())
    if (std::string conflict = state_conflict(job, history); !conflict.empty()) return conflict;
  if (job.training && job.training->validate_only) return {};  // No order of samples goes on.
  std::string refusal = why_nothing_to_train(job, history);
  if (refusal.empty() && !job.resume_from.empty() && history.past.checkpoints.empty())
    return fmt::format(
        "no whole checkpoint is left, and training must not start from the beginning: the run began from {}; start a "
        "new run of its job",
        job.resume_from);
  if (!refusal.empty() || !job.training || history.past.checkpoints.empty()) return refusal;
  const nlohmann::json after = {{"training", job.resolved->at("training")}, {"cpus", job.per_worker.cpus}};
  history.past.is_same_job = checkpoint::is_same_arithmetic(history.made_by, after);
  return checkpoint::order_conflict(history.place, history.made_by, after);
}

Status add_scores(const job::JobSpec& job, const std::string& directory, RunHistory& history) {
  history.past.scores.clear();
  if (!job.checkpoint.best) return {};
  auto scores = read_scores(directory, *job.checkpoint.best, history.past.checkpoints);
  if (!scores) return scores.error();
  history.past.scores = std::move(scores).value();
  return {};
}

}  // namespace sgd::storage
