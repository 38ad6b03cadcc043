#pragma once
// Data sets of image files as tensors: features n x channels x rows x columns, in 0 .. 1 or as the transforms leave
// them. image_folder: targets n, the classes of the images. image_masks: targets n x rows x columns, the classes of
// their pixels; pixels without a class have kNoClass, which the loss leaves out.

#include <memory>

#include "worker/torch/datasets.hpp"

namespace sgd::worker {

/// What PyTorch's cross entropy ignores without being told.
inline constexpr std::int64_t kNoClass = -100;

[[nodiscard]] std::shared_ptr<Dataset> make_image_folder(const DatasetSettings& settings);
[[nodiscard]] std::shared_ptr<Dataset> make_image_masks(const DatasetSettings& settings);

}  // namespace sgd::worker
