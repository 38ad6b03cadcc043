#pragma once
// CIFAR's binary files, mapped: images of three planes of bytes, and one label each. Sizes are checked by
// common/data/cifar; all labels when the files are opened.

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/data/cifar.hpp"
#include "worker/core/mapped_file.hpp"

namespace sgd::worker {

class CifarDataset {
 public:
  /// The records of `files`, in this order. Labels must be below the layout's classes, and below `outputs`.
  static Result<CifarDataset> open(const std::vector<std::string>& files, const data::CifarLayout& layout,
                                   std::int64_t outputs);

  [[nodiscard]] std::int64_t count() const { return static_cast<std::int64_t>(records_.size()); }
  /// 3 x 32 x 32 bytes.
  [[nodiscard]] const std::uint8_t* image(std::int64_t index) const { return record(index) + layout_.label_bytes; }
  [[nodiscard]] std::int64_t label(std::int64_t index) const { return record(index)[layout_.label_at]; }

  /// As IdxDataset's: floats 0 .. 1, and class numbers.
  void gather_images(std::span<const std::int64_t> indices, float* out) const;
  void gather_labels(std::span<const std::int64_t> indices, std::int64_t* out) const;

 private:
  [[nodiscard]] const std::uint8_t* record(std::int64_t index) const;

  data::CifarLayout layout_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
  std::vector<const std::uint8_t*> records_;  ///< 8 bytes a sample spare the search for its file.
};

}  // namespace sgd::worker
