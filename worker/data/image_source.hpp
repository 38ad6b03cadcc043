#pragma once
// From image files to bytes of one shape, with or without masks: each read anew when its sample is asked for. Read-only
// after open(), so several threads and processes may share one.
//
// Names are looked at when a source is opened; what is inside a file when it is read, so an error comes with the sample
// that meets it, and names the file.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/base/result.hpp"
#include "common/data/image_files.hpp"
#include "common/json/nlohmann.hpp"
#include "worker/data/image_resize.hpp"

namespace sgd::worker {

struct ImageSettings {
  ImageShape shape{3, 224, 224};
  ResizeMode resize = ResizeMode::kCrop;
};
/// From "training.dataset" of type "image_folder" or "image_masks", complete.
[[nodiscard]] ImageSettings image_settings(const nlohmann::json& dataset);

/// Memory of one caller, used again for every image.
struct ImageScratch {
  std::vector<std::uint8_t> file;
  DecodedImage image;
  DecodedImage mask;
  ResizeScratch resize;
};

/// One folder for each class.
class ImageFolderSource {
 public:
  /// Classes must be at most `outputs`.
  static Result<ImageFolderSource> open(const std::string& folder, const ImageSettings& settings, std::int64_t outputs);

  [[nodiscard]] std::int64_t count() const { return folder_.files.count(); }
  [[nodiscard]] std::int64_t label(std::int64_t index) const { return folder_.label(index); }
  [[nodiscard]] const std::vector<std::string>& classes() const { return folder_.classes; }

  /// shape.count() bytes in planes. `chance`: the sample's seed, where the part that is taken is random.
  [[nodiscard]] Status read(std::int64_t index, std::optional<std::uint64_t> chance, ImageScratch& scratch,
                            std::uint8_t* planes) const;

 private:
  data::ImageFolder folder_;
  ImageSettings settings_;
};

/// Images, and masks of the same sizes.
class MaskedImageSource {
 public:
  /// Values of masks must be below `outputs`, or be `ignored`.
  static Result<MaskedImageSource> open(const std::string& images, const std::string& masks,
                                        const ImageSettings& settings, std::optional<std::int64_t> ignored,
                                        std::int64_t outputs);

  [[nodiscard]] std::int64_t count() const { return files_.images.count(); }

  /// The image as ImageFolderSource's, and shape.plane() values of its mask.
  [[nodiscard]] Status read(std::int64_t index, std::optional<std::uint64_t> chance, ImageScratch& scratch,
                            std::uint8_t* planes, std::uint8_t* mask) const;

 private:
  [[nodiscard]] Status check_values(const std::string& path, const DecodedImage& mask) const;

  data::MaskedImages files_;
  ImageSettings settings_;
  std::optional<std::int64_t> ignored_;
  std::int64_t outputs_ = 0;
};

}  // namespace sgd::worker
