#pragma once
// A data set of images and labels in IDX files (MNIST's format), held as mapped memory; a batch
// is a gather of rows by sample number. Compressed files are unpacked once into a cache of this
// user, so a second start only maps them. Headers and sizes are checked by common/data/idx.
//
// Objects are read-only after open() and may be shared by processes that fork.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/assert.hpp"
#include "common/base/result.hpp"
#include "worker/core/mapped_file.hpp"

namespace sgd::worker {

enum class Split {
  kTrain,       ///< train-images-idx3-ubyte and train-labels-idx1-ubyte, plain or .gz.
  kValidation,  ///< t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, plain or .gz.
};

class IdxDataset {
 public:
  /// Opens one split in `dir`; every label must be below `outputs`. Errors name the file.
  static Result<IdxDataset> open(const std::string& dir, Split split, std::int64_t outputs);

  /// Samples.
  [[nodiscard]] std::int64_t count() const { return count_; }
  /// Bytes of one image: rows * columns (* channels).
  [[nodiscard]] std::int64_t sample_bytes() const { return sample_bytes_; }
  /// Shape of one image as stored, for example {28, 28}.
  [[nodiscard]] const std::vector<std::int64_t>& sample_shape() const { return sample_shape_; }
  /// All images, count() * sample_bytes() bytes.
  [[nodiscard]] std::span<const std::uint8_t> images() const { return images_; }
  /// One image, sample_bytes() bytes.
  [[nodiscard]] const std::uint8_t* image(std::int64_t index) const {
    SGD_ASSERT(index >= 0 && index < count_);
    return images_.data() + index * sample_bytes_;
  }
  /// All labels, count() bytes.
  [[nodiscard]] std::span<const std::uint8_t> labels() const { return labels_; }

  /// Writes the images of `indices` one after the other as floats 0 .. 1 (value * 1/255).
  void gather_images(std::span<const std::int64_t> indices, float* out) const;
  /// Writes the labels of `indices`.
  void gather_labels(std::span<const std::int64_t> indices, std::int64_t* out) const;

 private:
  std::shared_ptr<const MappedFile> image_file_;
  std::shared_ptr<const MappedFile> label_file_;
  std::span<const std::uint8_t> images_;
  std::span<const std::uint8_t> labels_;
  std::vector<std::int64_t> sample_shape_;
  std::int64_t count_ = 0;
  std::int64_t sample_bytes_ = 0;
};

}  // namespace sgd::worker
