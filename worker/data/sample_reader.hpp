#pragma once
// Samples by number, written into the caller's memory: features as float32, the target as a class or as float32.
// What can be wrong with the data is found when a reader is opened, and named with file and position. Readers are
// read-only afterwards and may be shared by processes that fork.

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/base/result.hpp"

namespace sgd::worker {

/// Where a batch's targets go; which of the two a reader fills says its target_numbers().
struct TargetMemory {
  std::int64_t* classes = nullptr;  ///< One a sample.
  float* numbers = nullptr;         ///< target_numbers() a sample.
};

class SampleReader {
 public:
  virtual ~SampleReader() = default;

  [[nodiscard]] virtual std::int64_t count() const = 0;
  /// Without the batch: {4} for a row of four numbers.
  [[nodiscard]] virtual const std::vector<std::int64_t>& sample_shape() const = 0;
  /// Numbers to predict; 0: a class.
  [[nodiscard]] virtual std::int64_t target_numbers() const = 0;

  /// Writes the samples one after the other. An error only where a file has changed since it was opened.
  virtual Status gather(std::span<const std::int64_t> indices, float* features, const TargetMemory& targets) const = 0;
};

using ReaderResult = Result<std::unique_ptr<const SampleReader>>;

}  // namespace sgd::worker
