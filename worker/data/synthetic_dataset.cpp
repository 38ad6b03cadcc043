#include "worker/data/synthetic_dataset.hpp"

#include <cmath>
#include <functional>
#include <numeric>

#include "common/base/assert.hpp"
#include "worker/core/mix_bits.hpp"

namespace sgd::worker {
namespace {

constexpr std::uint64_t kCentres = 1;
constexpr std::uint64_t kWeights = 2;
constexpr std::uint64_t kSamples = 3;

/// -1 to below 1, of 24 bits: a float holds it exactly.
float signed_unit(std::uint64_t bits) {
  return static_cast<float>(static_cast<std::int64_t>(bits >> 40) - (1 << 23)) * 0x1p-23f;
}

}  // namespace

SyntheticDataset::SyntheticDataset(const SyntheticSettings& settings, Split split)
    : settings_(settings),
      samples_seed_(mixed(mixed(settings.seed, kSamples), split == Split::kTrain ? 0 : 1)),
      numbers_(std::accumulate(settings.shape.begin(), settings.shape.end(), std::int64_t{1}, std::multiplies<>())) {
  SGD_ASSERT(settings.samples > 0 && numbers_ > 0);
  number_scale_ = static_cast<float>(1 / std::sqrt(static_cast<double>(numbers_)));
}

void SyntheticDataset::write_class(std::uint64_t sample, float* features, std::int64_t& target) const {
  target = below(sample, settings_.classes);
  const std::uint64_t centre = mixed(mixed(settings_.seed, kCentres), static_cast<std::uint64_t>(target));
  for (std::int64_t i = 0; i < numbers_; ++i) {
    const auto place = static_cast<std::uint64_t>(i);
    features[i] = 0.5f * signed_unit(mixed(centre, place)) + signed_unit(mixed(sample, place));
  }
}

void SyntheticDataset::write_number(std::uint64_t sample, float* features, float& target) const {
  const std::uint64_t weights = mixed(settings_.seed, kWeights);
  float sum = 0;
  for (std::int64_t i = 0; i < numbers_; ++i) {
    const auto place = static_cast<std::uint64_t>(i);
    features[i] = signed_unit(mixed(sample, place));
    sum += signed_unit(mixed(weights, place)) * features[i];
  }
  target = sum * number_scale_;
}

Status SyntheticDataset::gather(std::span<const std::int64_t> indices, float* features,
                                const TargetMemory& targets) const {
  for (std::size_t i = 0; i < indices.size(); ++i) {
    SGD_ASSERT(indices[i] >= 0 && indices[i] < count());
    const std::uint64_t sample = mixed(samples_seed_, static_cast<std::uint64_t>(indices[i]));
    if (settings_.classes > 0)
      write_class(sample, features, targets.classes[i]);
    else
      write_number(sample, features, targets.numbers[i]);
    features += numbers_;
  }
  return {};
}

}  // namespace sgd::worker
