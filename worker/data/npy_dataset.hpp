#pragma once
// A split of two .npy files, mapped: features of any shape and a target each, converted to float32 (or a class number)
// as a batch is gathered. Headers are checked by common/data/npy; class numbers when the files are opened.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "common/data/npy.hpp"
#include "worker/core/mapped_file.hpp"
#include "worker/data/sample_reader.hpp"

namespace sgd::worker {

/// One array, by rows.
class NpyArray {
 public:
  static Result<NpyArray> open(const data::NpyInfo& info);

  [[nodiscard]] std::int64_t rows() const { return info_.shape.front(); }
  [[nodiscard]] std::int64_t row_numbers() const { return row_numbers_; }
  [[nodiscard]] const data::NpyInfo& info() const { return info_; }
  /// Rows as float32, one after the other.
  void gather(std::span<const std::int64_t> rows, float* out) const;
  /// The first number of each row, of an array of integers.
  void gather_integers(std::span<const std::int64_t> rows, std::int64_t* out) const;

 private:
  NpyArray(const data::NpyInfo& info, MappedFile file);
  [[nodiscard]] const std::byte* row(std::int64_t index) const;

  data::NpyInfo info_;
  MappedFile file_;
  std::int64_t row_numbers_;
};

class NpyDataset final : public SampleReader {
 public:
  /// `outputs`: classes that the model knows; 0: the targets are numbers.
  static ReaderResult open(const std::string& features, const std::string& target, std::int64_t outputs);

  [[nodiscard]] std::int64_t count() const override { return features_.rows(); }
  [[nodiscard]] const std::vector<std::int64_t>& sample_shape() const override { return shape_; }
  [[nodiscard]] std::int64_t target_numbers() const override { return target_numbers_; }
  Status gather(std::span<const std::int64_t> indices, float* features, const TargetMemory& targets) const override;

 private:
  NpyDataset(NpyArray features, NpyArray target, bool has_classes);

  NpyArray features_;
  NpyArray target_;
  std::vector<std::int64_t> shape_;
  std::int64_t target_numbers_;
};

}  // namespace sgd::worker
