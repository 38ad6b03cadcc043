#pragma once
// Samples that no file holds: sample i is a function of (seed, split, i) alone, the same on every machine and whatever
// else is asked for. There is something to learn: features of a class are noise around its centre, a number is a
// weighted sum of the features.

#include <cstdint>
#include <span>
#include <vector>

#include "worker/core/idx_dataset.hpp"
#include "worker/data/sample_reader.hpp"

namespace sgd::worker {

struct SyntheticSettings {
  std::vector<std::int64_t> shape = {1};
  std::int64_t classes = 10;  ///< 0: the target is a number.
  std::int64_t samples = 1;
  std::uint64_t seed = 0;
};

class SyntheticDataset final : public SampleReader {
 public:
  SyntheticDataset(const SyntheticSettings& settings, Split split);

  [[nodiscard]] std::int64_t count() const override { return settings_.samples; }
  [[nodiscard]] const std::vector<std::int64_t>& sample_shape() const override { return settings_.shape; }
  [[nodiscard]] std::int64_t target_numbers() const override { return settings_.classes == 0 ? 1 : 0; }
  Status gather(std::span<const std::int64_t> indices, float* features, const TargetMemory& targets) const override;

 private:
  void write_class(std::uint64_t sample, float* features, std::int64_t& target) const;
  void write_number(std::uint64_t sample, float* features, float& target) const;

  SyntheticSettings settings_;
  std::uint64_t samples_seed_;  ///< Of this split.
  std::int64_t numbers_ = 1;    ///< Of a sample's features.
  float number_scale_ = 1;      ///< Keeps a target near -1 .. 1, however many features there are.
};

}  // namespace sgd::worker
