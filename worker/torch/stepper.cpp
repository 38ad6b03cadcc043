#include "worker/torch/stepper.hpp"

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <utility>

#include <fmt/format.h>

#include "worker/torch/errors.hpp"

namespace sgd::worker {

Stepper::Stepper(FlatParameters& parameters, Collective& collective, const std::vector<RegisteredOptimizer>& optimizers,
                 const GradientClip& clip, const StepRules& rules, const Device& device)
    : parameters_(parameters), collective_(collective), device_(device), on_nan_(rules.on_nan) {
  if (rules.scales_losses) {
    scale_.emplace();
    parameters_.take_own_passes_only();
  }
  for (const RegisteredOptimizer& one : optimizers)
    parts_.push_back(std::make_unique<OptimizerPart>(one, parameters, collective, clip, device));
  parameters_.attach_gradients(collective_.gradients());
}

void Stepper::backward(const at::Tensor& loss, const OptimizerPart* only, double weight) {
  // A device is given the backward pass first: reading the loss waits for it.
  if (device_.is_separate()) run_backward(loss, only, weight);
  last_loss_ = loss.item<double>();
  is_finite_ = is_finite_ && std::isfinite(last_loss_);
  if (!device_.is_separate()) run_backward(loss, only, weight);
}

void Stepper::run_backward(const at::Tensor& loss, const OptimizerPart* only, double weight) {
  // A loss without history (a constant) has no gradients; the other ranks, whose may have some, wait for us.
  if (!loss.requires_grad()) return;
  if (scale_) weight *= scale_->value();
  const at::Tensor weighted = weight == 1 ? loss : loss * weight;
  const FlatParameters::Backward claims(parameters_);
  if (only == nullptr) {
    weighted.backward();
    return;
  }
  std::vector<at::Tensor> inputs;
  for (std::size_t i = 0; i < only->range().count; ++i) {
    const at::Tensor& parameter = parameters_.parameter(only->range().first + i);
    if (parameter.requires_grad()) inputs.push_back(parameter);
  }
  if (!inputs.empty()) weighted.backward({}, std::nullopt, false, inputs);
}

std::uint32_t Stepper::update(OptimizerPart& part, std::uint32_t control_word) {
  const bool is_finite = std::exchange(is_finite_, true);
  if (!is_finite) control_word |= control::kNan;
  const std::uint32_t agreed = part.update(control_word, scale_ ? static_cast<float>(1 / scale_->value()) : 1.0f);
  if ((agreed & (control::kNan | control::kInfinite)) == 0) return agreed;
  if (fault_.empty()) is_peers_fault_ = (agreed & control::kNan) != 0 && is_finite;
  const bool is_overflow = (agreed & control::kNan) == 0 && scale_ && scale_->can_fall();
  if (is_overflow)
    is_overflow_ = true;
  else if (on_nan_ == "stop")
    fail(fault_of(agreed, is_finite, part));
  else if (on_nan_ == "rollback" && fault_.empty())
    fault_ = fault_of(agreed, is_finite, part);
  part.skip();
  ++skipped_;
  return agreed;
}

void Stepper::fail(const std::string& fault) {
  if (!is_peers_fault_) throw std::runtime_error(fault);
  try {
    collective_.barrier();
  } catch (const CollectiveError&) {
    // Expected: they do not come, and the launcher aborts the group when the first of them has ended.
  }
  throw PeerFault(fault);
}

void Stepper::end_batch() {
  const double factor = scale_ && is_updated() ? scale_->end_step(std::exchange(is_overflow_, false)) : 1;
  if (is_updated()) ++steps_;
  for (const auto& part : parts_) {
    // What waits for a later batch's update was made with the scale of before.
    if (factor != 1 && !part->is_updated()) parameters_.scale_gradients(part->range(), factor);
    part->end_batch();
  }
}

void Stepper::roll_back(const std::vector<OptimizerRecord>& records) {
  (void)drop_pending();  // Of a batch that never was: ignoring whose.
  check_same_optimizers(records, kinds());
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i]->load_counts(records[i]);
}

void Stepper::load_loss_scale(const nlohmann::json& state) {
  if (!scale_) return;
  if (Status loaded = scale_->load(state); !loaded) throw std::runtime_error(loaded.error().message);
}

bool Stepper::is_updated() const {
  return std::any_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->is_updated(); });
}

bool Stepper::all_updated() const {
  return std::all_of(parts_.begin(), parts_.end(), [](const auto& part) { return part->is_updated(); });
}

bool Stepper::is_pending() const {
  return std::any_of(parts_.begin(), parts_.end(), [this](const auto& part) {
    return !part->is_updated() && parameters_.has_gradients(part->range());
  });
}

std::string Stepper::drop_pending() {
  std::string names;
  is_finite_ = true;
  for (const auto& part : parts_) {
    if (!parameters_.has_gradients(part->range())) continue;
    parameters_.drop_gradients(part->range());
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", part->name());
  }
  return names;
}

void Stepper::set_epochs_completed(std::int64_t epochs) {
  for (const auto& part : parts_) part->set_epochs_completed(epochs);
}

OptimizerPart& Stepper::part_of(const torch::optim::Optimizer& optimizer) {
  for (const auto& part : parts_)
    if (&part->optimizer() == &optimizer) return *part;
  throw std::logic_error("an optimizer is used that is not registered: use what setup.optimizer() has returned");
}

OptimizerPart& Stepper::only_part(const char* what) {
  if (parts_.size() == 1) return *parts_.front();
  throw std::logic_error(
      fmt::format("{} is for one optimizer, and there are {}: name the one that is meant", what, parts_.size()));
}

std::vector<OptimizerKind> Stepper::kinds() const {
  std::vector<OptimizerKind> all;
  for (const auto& part : parts_) all.push_back({part->name(), part->optimizer().type()});
  return all;
}

std::vector<OptimizerRecord> Stepper::records() const {
  std::vector<OptimizerRecord> all;
  for (const auto& part : parts_) all.push_back(part->record());
  return all;
}

void Stepper::load(const std::vector<OptimizerRecord>& records, std::int64_t steps) {
  check_same_optimizers(records, kinds());
  for (std::size_t i = 0; i < parts_.size(); ++i) parts_[i]->load(records[i]);
  steps_ = steps;
}

std::string Stepper::fault_of(std::uint32_t agreed, bool is_own_finite, const OptimizerPart& part) {
  if ((agreed & control::kNan) == 0)
    return fmt::format(
        "the loss is finite on every rank at step {}, but the gradients summed over the ranks are not, of parameter "
        "{}: lower the learning rate, or look for a square root or a division whose derivative is infinite",
        steps_ + 1, part.not_finite());
  const std::vector<std::string> finite = collective_.all_gather(is_own_finite ? "1" : "0");
  std::string ranks;
  for (std::size_t rank = 0; rank < finite.size(); ++rank) {
    if (finite[rank] == "0") ranks += (ranks.empty() ? "" : ", ") + std::to_string(rank);
  }
  const char* plural = ranks.find(',') == std::string::npos ? "" : "s";
  const std::string rate = parts_.size() == 1 ? fmt::format(" ({:g})", parts_.front()->learning_rate()) : "";
  return fmt::format(
      "the loss is not finite at step {} on rank{} {}: lower the learning rate{}, or check the data and the loss",
      steps_ + 1, plural, ranks, rate);
}

}  // namespace sgd::worker
