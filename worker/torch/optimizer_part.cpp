#include "worker/torch/optimizer_part.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "worker/collective/sum.hpp"
#include "worker/core/gradient_clip.hpp"
#include "worker/torch/clock.hpp"
#include "worker/torch/device_optimizer.hpp"
#include "worker/torch/optimizer_options.hpp"

namespace sgd::worker {
namespace {

constexpr std::size_t kNamedParameters = 3;

/// Each with the gap behind it, which holds zeros, so that neighbours adjoin. Offsets count from the range's beginning.
std::vector<GroupedParameter> grouped(const FlatParameters& parameters, const ParameterRange& range,
                                      const std::vector<std::size_t>& group_of) {
  std::vector<GroupedParameter> all;
  for (std::size_t i = 0; i < range.count; ++i) {
    const FlatRange one = parameters.range(range.first + i, 1).floats;
    all.push_back({{one.offset - range.floats.offset, one.count}, group_of[i]});
  }
  return all;
}

/// The first group that trains something. The job's own may be empty: its settings are then nobody's.
std::size_t rate_group(const std::vector<std::size_t>& group_of) {
  const auto first = std::min_element(group_of.begin(), group_of.end());
  return first == group_of.end() ? 0 : *first;
}

/// As they would be without the scheduler that has left `state`: what it sets is its own, and goes with it.
job::Optimizer without_schedule(job::Optimizer now, const job::Optimizer& made, const nlohmann::json& state) {
  now.lr = made.lr;
  if (!state.contains("momentum_bits")) return now;
  now.momentum = made.momentum;
  now.beta1 = made.beta1;
  return now;
}

/// Which buffers the settings need beside those of their type.
auto needs(const job::Optimizer& settings) {
  return std::tuple(settings.momentum != 0, settings.amsgrad, settings.centered);
}

}  // namespace

OptimizerPart::OptimizerPart(const RegisteredOptimizer& registered, FlatParameters& parameters, Collective& collective,
                             const GradientClip& clip, const Device& device)
    : device_(device),
      parameters_(parameters),
      collective_(collective),
      clip_(clip),
      optimizer_(registered.optimizer),
      range_(parameters.range(registered.first, registered.group_of.size())),
      made_(settings()),
      groups_(grouped(parameters, range_, registered.group_of)),
      rate_group_(rate_group(registered.group_of)),
      used_(collective, range_.count) {
  if (registered.schedule) {
    for (const job::Optimizer& group : made_) schedules_.push_back(make_schedule(*registered.schedule, group.lr));
    frequency_ = registered.schedule->frequency;
    follow_schedules();
  }
  // After the schedules: one that cycles momentum gives it to an optimizer that has none of its own.
  begun_ = settings();
  stepper_ = device_.is_separate() ? make_device_optimizer(begun_, range_.floats.count, device_)
                                   : make_step_optimizer(begun_, range_.floats.count);
}

std::vector<job::Optimizer> OptimizerPart::settings() const {
  std::vector<job::Optimizer> all;
  for (const torch::optim::OptimizerParamGroup& group : std::as_const(*optimizer_).param_groups())
    all.push_back(settings_of(optimizer_->type(), group.options()));
  return all;
}

void OptimizerPart::check(const std::vector<job::Optimizer>& now) const {
  if (now.size() != begun_.size())
    throw std::runtime_error(
        fmt::format("optimizer \"{}\" had {} groups in setup(), and has {} now: add groups in setup()", name(),
                    begun_.size(), now.size()));
  for (std::size_t i = 0; i < now.size(); ++i) {
    if (!std::isfinite(now[i].lr))
      throw std::runtime_error(fmt::format("the learning rate of optimizer \"{}\" is not finite", name()));
    if (needs(now[i]) != needs(begun_[i]))
      throw std::runtime_error(fmt::format(
          "momentum, amsgrad or centered of optimizer \"{}\" was switched on or off since setup(): it has no "
          "buffers for that; begin with a small momentum where it is to grow",
          name()));
  }
}

std::uint32_t OptimizerPart::update(std::uint32_t control_word, float unscale) {
  const std::vector<bool> own = parameters_.collect_gradients(range_);
  if (parameters_.take_rewritten()) warn_of_rewritten();
  control_word |= used_.control_word(own);
  const std::uint32_t agreed = collective_.all_reduce(control_word, range_.floats.offset, range_.floats.count);
  reduced_ = time_now();
  const std::vector<bool>& used = used_.agree(agreed, own);
  if ((agreed & (control::kNan | control::kInfinite)) != 0) return agreed;
  const std::vector<job::Optimizer> now = settings();
  check(now);
  used_rate_ = now.at(rate_group_).lr;
  const float scale = clipped_scale(used, unscale);
  groups_.step(*stepper_, parameters_.values().subspan(range_.floats.offset, range_.floats.count),
               collective_.gradients().subspan(range_.floats.offset, range_.floats.count), now, used, scale);
  parameters_.drop_gradients(range_);
  is_updated_ = true;
  return agreed;
}

/// Who clips there, as with DistributedDataParallel, clips each rank's own, and trains otherwise than meant. A constant
/// factor is right, so it is no error.
void OptimizerPart::warn_of_rewritten() {
  if (collective_.world_size() == 1 || std::exchange(has_warned_, true)) return;
  std::fprintf(
      stderr,
      "sgd-worker: warning: gradients of optimizer \"%s\" were changed between backward() and the update, where "
      "they are this rank's own and no mean over the ranks yet: clip with training.gradient_clip\n",
      name().c_str());
}

void OptimizerPart::skip() {
  parameters_.drop_gradients(range_);
  is_updated_ = true;
}

/// What the sums are multiplied with in the update: they become the mean, within the limits.
float OptimizerPart::clipped_scale(const std::vector<bool>& used, float unscale) {
  const float scale = unscale / static_cast<float>(collective_.world_size());
  const std::span<float> gradients = collective_.gradients();
  if (device_.is_separate()) return clipped_on_device(used, scale);
  if (clip_.value) {
    scale_and_clamp(gradients.subspan(range_.floats.offset, range_.floats.count), scale,
                    static_cast<float>(*clip_.value));
    return 1.0f;
  }
  if (!clip_.norm) return scale;
  double squares = 0;
  for (std::size_t i = 0; i < range_.count; ++i) {
    const ParameterPlace& place = parameters_.places()[range_.first + i];
    if (used[i]) squares += sum_of_squares(gradients.subspan(place.offset, place.count));
  }
  return static_cast<float>(scale * clip_factor(scale * std::sqrt(squares), *clip_.norm));
}

/// The same. The norm is summed in double in the device's own order.
float OptimizerPart::clipped_on_device(const std::vector<bool>& used, float scale) {
  if (!clip_.value && !clip_.norm) return scale;
  const at::NoGradGuard no_gradients;
  at::Tensor gradients = device_.wrap(collective_.gradients().data() + range_.floats.offset, range_.floats.count);
  if (clip_.value) {
    const auto limit = static_cast<double>(static_cast<float>(*clip_.value));
    (void)gradients.mul_(static_cast<double>(scale)).clamp_(-limit, limit);
    return 1.0f;
  }
  at::Tensor squares = at::zeros({}, gradients.options().dtype(at::kDouble));
  for (std::size_t i = 0; i < range_.count; ++i) {
    const ParameterPlace& place = parameters_.places()[range_.first + i];
    if (!used[i]) continue;
    const at::Tensor own = device_.wrap(collective_.gradients().data() + place.offset, place.count).to(at::kDouble);
    squares.add_(own.mul(own).sum());
  }
  return static_cast<float>(scale * clip_factor(scale * std::sqrt(squares.item<double>()), *clip_.norm));
}

std::vector<float> OptimizerPart::gradients_on_host() const {
  std::vector<float> values(range_.floats.count);
  at::from_blob(values.data(), {static_cast<std::int64_t>(values.size())})
      .copy_(device_.wrap(collective_.gradients().data() + range_.floats.offset, values.size()));
  return values;
}

/// Every rank has the same sums, so each finds the same names by itself. Whose gradients made them so is not in them.
std::string OptimizerPart::not_finite() const {
  const std::vector<float> gradients = gradients_on_host();
  std::string names;
  std::size_t found = 0;
  for (std::size_t i = 0; i < range_.count; ++i) {
    const ParameterPlace& place = parameters_.places()[range_.first + i];
    if (all_finite(std::span(gradients).subspan(place.offset - range_.floats.offset, place.count))) continue;
    if (++found <= kNamedParameters) names += (found == 1 ? "" : ", ") + place.name;
  }
  if (found > kNamedParameters) names += " and " + std::to_string(found - kNamedParameters) + " more";
  return names;
}

void OptimizerPart::end_batch() {
  if (!std::exchange(is_updated_, false)) return;
  ++batches_;
  if (frequency_ == "batch") follow_schedules();
  // Losses of other optimizers have added to them since.
  parameters_.drop_gradients(range_);
}

std::int64_t OptimizerPart::scheduler_count() const {
  if (frequency_ == "manual") return scheduler_calls_;
  return frequency_ == "batch" ? batches_ : epochs_completed_;
}

void OptimizerPart::follow_schedules() {
  for (std::size_t i = 0; i < schedules_.size(); ++i) {
    schedules_[i]->set_count(scheduler_count());
    torch::optim::OptimizerOptions& options = optimizer_->param_groups()[i].options();
    set_options(with_rates(settings_of(optimizer_->type(), options), schedules_[i]->rates()), options);
  }
}

void OptimizerPart::set_epochs_completed(std::int64_t epochs) {
  epochs_completed_ = epochs;
  follow_schedules();
}

void OptimizerPart::step_scheduler() {
  if (frequency_ != "manual")
    throw std::logic_error(
        fmt::format("step_scheduler() of optimizer \"{}\" needs a scheduler with \"frequency\": \"manual\"", name()));
  ++scheduler_calls_;
  follow_schedules();
}

void OptimizerPart::observe(double value) {
  for (const auto& schedule : schedules_) schedule->observe(value);
  follow_schedules();
}

double OptimizerPart::learning_rate() const {
  return std::as_const(*optimizer_).param_groups().at(rate_group_).options().get_lr();
}

double OptimizerPart::used_rate() const {
  return used_rate_.value_or(learning_rate());
}

OptimizerRecord OptimizerPart::record() const {
  OptimizerRecord record;
  record.name = name();
  record.type = optimizer_->type();
  const std::vector<std::int64_t>& steps = groups_.steps();
  record.steps = *std::max_element(steps.begin(), steps.end());
  if (*std::min_element(steps.begin(), steps.end()) != record.steps) record.parameter_steps = steps;
  record.batches = batches_;
  record.used_rate = used_rate_;
  for (const auto& schedule : schedules_) record.schedulers.push_back(schedule->export_state());
  const std::vector<job::Optimizer> now = settings();
  record.groups = nlohmann::json::array();
  for (std::size_t i = 0; i < now.size(); ++i)
    record.groups.push_back({{"made", to_json(made_.at(i))}, {"now", to_json(now[i])}});
  return record;
}

void OptimizerPart::load(const OptimizerRecord& record) {
  load_counts(record);
  batches_ = record.batches;
  used_rate_ = record.used_rate;
  load_settings(record);
  // A job whose settings were changed since may have a scheduler where there was none.
  const std::size_t schedules = std::min(schedules_.size(), record.schedulers.size());
  for (std::size_t i = 0; i < schedules; ++i) {
    if (Status loaded = schedules_[i]->import_state(record.schedulers[i]); !loaded)
      throw std::runtime_error(loaded.error().message);
    // What the state counts is what the job's scheduler counted then, and batches are known without it.
    const auto counted = record.schedulers[i].at("count").get<std::int64_t>();
    if (frequency_ == "manual") scheduler_calls_ = counted;
    if (frequency_ == "epoch") epochs_completed_ = counted;
  }
  follow_schedules();
}

void OptimizerPart::load_counts(const OptimizerRecord& record) {
  const std::size_t count = range_.count;
  if (!record.parameter_steps.empty() && record.parameter_steps.size() != count)
    throw std::runtime_error(
        fmt::format("the checkpoint counts the updates of {} parameters of optimizer \"{}\", and it "
                    "has {}",
                    record.parameter_steps.size(), name(), count));
  groups_.set_steps(record.parameter_steps.empty() ? std::vector(count, record.steps) : record.parameter_steps);
}

void OptimizerPart::load_settings(const OptimizerRecord& record) {
  const nlohmann::json& groups = record.groups;
  if (!groups.is_array() || groups.size() != made_.size()) return;
  for (std::size_t i = 0; i < made_.size(); ++i) {
    if (groups[i].at("made") != to_json(made_[i])) continue;
    job::Optimizer now = settings_from(groups[i].at("now"));
    if (i < record.schedulers.size()) now = without_schedule(std::move(now), made_[i], record.schedulers[i]);
    set_options(now, optimizer_->param_groups()[i].options());
  }
}

}  // namespace sgd::worker
