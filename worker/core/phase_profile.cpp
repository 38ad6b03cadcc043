#include "worker/core/phase_profile.hpp"

#include <limits>
#include <numeric>

namespace sgd::worker {
namespace {

constexpr std::size_t kSamplesKept = 10;

}  // namespace

void PhaseProfile::add(ProfiledPart part, Duration taken) {
  if (!is_on_) return;
  Samples& samples = samples_[static_cast<std::size_t>(part)];
  if (samples.seconds.size() < kSamplesKept) {
    samples.seconds.push_back(to_seconds(taken));
    return;
  }
  samples.seconds[samples.next] = to_seconds(taken);
  samples.next = (samples.next + 1) % kSamplesKept;
}

double PhaseProfile::mean_of(ProfiledPart part) const {
  const std::vector<double>& seconds = samples_[static_cast<std::size_t>(part)].seconds;
  if (seconds.empty()) return std::numeric_limits<double>::quiet_NaN();
  return std::accumulate(seconds.begin(), seconds.end(), 0.0) / static_cast<double>(seconds.size());
}

nlohmann::ordered_json PhaseProfile::training() const {
  if (!is_on_) return nullptr;
  return {{"mean_train_epoch_s", mean_of(ProfiledPart::kTrainEpoch)},
          {"mean_fwd_s", mean_of(ProfiledPart::kForward)},
          {"mean_grad_s", mean_of(ProfiledPart::kGradient)},
          {"mean_apply_s", mean_of(ProfiledPart::kApply)}};
}

nlohmann::ordered_json PhaseProfile::validation() const {
  if (!is_on_) return nullptr;
  return {{"mean_validation_s", mean_of(ProfiledPart::kValidation)},
          {"mean_eval_fwd_s", mean_of(ProfiledPart::kEvalForward)}};
}

void PhaseProfile::clear() {
  for (Samples& samples : samples_) samples = {};
}

}  // namespace sgd::worker
