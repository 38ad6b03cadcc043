#include "worker/torch/stepper.hpp"

#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "worker/collective/sum.hpp"
#include "worker/core/gradient_clip.hpp"

namespace sgd::worker {
namespace {
constexpr std::size_t kNamedParameters = 3;

/// One group of all; each with the gap behind it, which holds zeros, so that neighbours adjoin.
std::vector<GroupedParameter> grouped(const FlatParameters& parameters) {
  const std::vector<ParameterPlace>& places = parameters.places();
  std::vector<GroupedParameter> all;
  for (std::size_t i = 0; i < places.size(); ++i) {
    const std::size_t end = i + 1 < places.size() ? places[i + 1].offset : parameters.size();
    all.push_back({{places[i].offset, end - places[i].offset}, 0});
  }
  return all;
}

}  // namespace

Stepper::Stepper(FlatParameters& parameters, Collective& collective, const job::Training& training)
    : parameters_(parameters),
      collective_(collective),
      settings_(training.optimizer),
      groups_(grouped(parameters)),
      used_(collective, parameters.places().size()),
      clip_norm_(training.clip_norm),
      clip_value_(training.clip_value) {
  if (training.scheduler) {
    schedule_ = make_schedule(*training.scheduler, settings_.lr);
    frequency_ = training.scheduler->frequency;
    follow_schedule();
  }
  // After the schedule: one that cycles momentum gives it to an optimizer that has none of its own.
  optimizer_ = make_step_optimizer(settings_, parameters.size());
  parameters_.attach_gradients(collective_.gradients());
}

std::int64_t Stepper::scheduler_count() const {
  if (frequency_ == "manual") return scheduler_calls_;
  return frequency_ == "batch" ? steps_ : epochs_completed_;
}

void Stepper::follow_schedule() {
  if (!schedule_) return;
  schedule_->set_count(scheduler_count());
  settings_ = with_rates(std::move(settings_), schedule_->rates());
}

double Stepper::learning_rate() const {
  return settings_.lr;
}

void Stepper::set_steps(std::int64_t steps) {
  steps_ = steps;
  follow_schedule();
}

void Stepper::set_epochs_completed(std::int64_t epochs) {
  epochs_completed_ = epochs;
  follow_schedule();
}

void Stepper::set_parameter_steps(std::vector<std::int64_t> steps) {
  if (steps.size() != parameters_.places().size())
    throw std::runtime_error("the checkpoint counts the updates of " + std::to_string(steps.size()) +
                             " parameters, and the model has " + std::to_string(parameters_.places().size()));
  groups_.set_steps(std::move(steps));
}

void Stepper::step_scheduler() {
  if (frequency_ != "manual")
    throw std::logic_error("step_scheduler() needs a scheduler with \"frequency\": \"manual\" in the job");
  ++scheduler_calls_;
  follow_schedule();
}

void Stepper::observe(double value) {
  schedule_->observe(value);
  follow_schedule();
}

nlohmann::json Stepper::scheduler_state() const {
  if (schedule_) return schedule_->export_state();
  nlohmann::json state;
  state["count"] = scheduler_count();
  return state;
}

void Stepper::load_scheduler_state(const nlohmann::json& state) {
  if (!schedule_) return;
  if (Status loaded = schedule_->import_state(state); !loaded) throw std::runtime_error(loaded.error().message);
  const auto count = state.at("count").get<std::int64_t>();
  (frequency_ == "manual" ? scheduler_calls_ : frequency_ == "batch" ? steps_ : epochs_completed_) = count;
  follow_schedule();
}

std::uint32_t Stepper::step(const at::Tensor& loss, std::uint32_t control_word) {
  last_loss_ = loss.item<double>();
  parameters_.begin_backward();
  // A loss without history (a constant) has no gradients; the other ranks, whose may have some, wait for us.
  if (loss.requires_grad()) loss.backward();
  parameters_.collect_gradients();
  if (!std::isfinite(last_loss_)) control_word |= control::kNan;
  control_word |= used_.control_word(parameters_.has_gradient());
  const std::uint32_t agreed = collective_.all_reduce(control_word);
  if ((agreed & control::kNan) != 0) report_loss_not_finite();
  if ((agreed & control::kInfinite) != 0) report_gradients_not_finite();
  const std::vector<bool>& used = used_.agree(agreed, parameters_.has_gradient());
  groups_.step(*optimizer_, parameters_.values(), collective_.gradients(), {settings_}, used, clipped_scale(used));
  set_steps(steps_ + 1);
  return agreed;
}

/// What the sums are multiplied with in the update: they become the mean, within the limits of the job.
float Stepper::clipped_scale(const std::vector<bool>& used) {
  const float scale = 1.0f / static_cast<float>(collective_.world_size());
  if (clip_value_) {
    scale_and_clamp(collective_.gradients(), scale, static_cast<float>(*clip_value_));
    return 1.0f;
  }
  if (!clip_norm_) return scale;
  double squares = 0;
  const std::vector<ParameterPlace>& places = parameters_.places();
  for (std::size_t i = 0; i < places.size(); ++i)
    if (used[i]) squares += sum_of_squares(collective_.gradients().subspan(places[i].offset, places[i].count));
  return static_cast<float>(scale * clip_factor(scale * std::sqrt(squares), *clip_norm_));
}

void Stepper::report_loss_not_finite() {
  const std::vector<std::string> finite = collective_.all_gather(std::isfinite(last_loss_) ? "1" : "0");
  std::string ranks;
  for (std::size_t rank = 0; rank < finite.size(); ++rank) {
    if (finite[rank] == "0") ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  throw std::runtime_error("the loss is not finite at step " + std::to_string(steps_ + 1) + " on rank " + ranks);
}

/// Every rank has the same sums, so each finds the same names by itself. Whose gradients made them so is not in them.
void Stepper::report_gradients_not_finite() {
  const std::span<const float> gradients = collective_.gradients();
  std::string names;
  std::size_t found = 0;
  for (const ParameterPlace& place : parameters_.places()) {
    if (all_finite(gradients.subspan(place.offset, place.count))) continue;
    if (++found <= kNamedParameters) names += (found == 1 ? "" : ", ") + place.name;
  }
  if (found > kNamedParameters) names += " and " + std::to_string(found - kNamedParameters) + " more";
  throw std::runtime_error("the loss is finite on every rank at step " + std::to_string(steps_ + 1) +
                           ", but the gradients summed over the ranks are not, of parameter " + names +
                           ": lower the learning rate, or look for a square root or a division whose derivative is "
                           "infinite");
}

}  // namespace sgd::worker
