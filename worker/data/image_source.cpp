#include "worker/data/image_source.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "worker/data/image_decoder.hpp"

namespace sgd::worker {
namespace {

/// The pixels of a file, in `out`.
Status read_pixels(const std::string& path, PixelKind kind, std::vector<std::uint8_t>& file, DecodedImage& out) {
  Status read = read_image_file(path, file);
  if (!read) return read;
  const Status decoded = decode_image(file, kind, out);
  if (!decoded) return Error{fmt::format("data file {}: cannot be decoded: {}", path, decoded.error().message)};
  return {};
}

PixelKind kind_for(const ImageSettings& settings) {
  return settings.shape.channels == 1 ? PixelKind::kGrey : PixelKind::kColour;
}

}  // namespace

ImageSettings image_settings(const nlohmann::json& dataset) {
  ImageSettings settings;
  settings.shape.channels = read_or(dataset, "channels", settings.shape.channels);
  const nlohmann::json& size = member(dataset, "size");
  if (size.is_array() && size.size() == 2) {
    settings.shape.rows = size[0].get<std::int64_t>();
    settings.shape.columns = size[1].get<std::int64_t>();
  }
  settings.resize = resize_mode(read_or(dataset, "resize", ""));
  return settings;
}

Result<ImageFolderSource> ImageFolderSource::open(const std::string& folder, const ImageSettings& settings,
                                                  std::int64_t outputs) {
  Result<data::ImageFolder> listed = data::list_image_folder(folder);
  if (!listed) return listed.error();
  ImageFolderSource source;
  source.folder_ = std::move(listed).value();
  source.settings_ = settings;
  const auto classes = static_cast<std::int64_t>(source.folder_.classes.size());
  if (classes > outputs)
    return Error{
        fmt::format("data folder {} has {} classes, and the model gives {} outputs", folder, classes, outputs)};
  return source;
}

Status ImageFolderSource::read(std::int64_t index, std::optional<std::uint64_t> chance, ImageScratch& scratch,
                               std::uint8_t* planes) const {
  Status read = read_pixels(folder_.files.path(index), kind_for(settings_), scratch.file, scratch.image);
  if (!read) return read;
  const ResizeWindow window =
      resize_window(settings_.resize, scratch.image.rows, scratch.image.columns, settings_.shape, chance);
  resize_bilinear(scratch.image, window, settings_.shape, scratch.resize, planes);
  return {};
}

Result<MaskedImageSource> MaskedImageSource::open(const std::string& images, const std::string& masks,
                                                  const ImageSettings& settings, std::optional<std::int64_t> ignored,
                                                  std::int64_t outputs) {
  Result<data::MaskedImages> listed = data::list_masked_images(images, masks);
  if (!listed) return listed.error();
  MaskedImageSource source;
  source.files_ = std::move(listed).value();
  source.settings_ = settings;
  source.ignored_ = ignored;
  source.outputs_ = outputs;
  return source;
}

Status MaskedImageSource::check_values(const std::string& path, const DecodedImage& mask) const {
  const auto is_bad = [this](std::uint8_t value) { return value >= outputs_ && value != ignored_; };
  const auto bad = std::find_if(mask.pixels.begin(), mask.pixels.end(), is_bad);
  if (bad == mask.pixels.end()) return {};
  const std::int64_t place = bad - mask.pixels.begin();
  return Error{
      fmt::format("data file {}: class {} at row {}, column {} (the first is 0) is outside 0..{}, what the model "
                  "gives outputs for{}",
                  path, *bad, place / mask.columns, place % mask.columns, outputs_ - 1,
                  ignored_ ? fmt::format(", and not {}, which is ignored", *ignored_)
                           : "; set training.dataset.ignore where it is no class")};
}

Status MaskedImageSource::read(std::int64_t index, std::optional<std::uint64_t> chance, ImageScratch& scratch,
                               std::uint8_t* planes, std::uint8_t* mask) const {
  const std::string image_path = files_.images.path(index);
  const std::string mask_path = files_.masks.path(index);
  Status read = read_pixels(image_path, kind_for(settings_), scratch.file, scratch.image);
  if (read.ok()) read = read_pixels(mask_path, PixelKind::kClass, scratch.file, scratch.mask);
  if (read.ok()) read = check_values(mask_path, scratch.mask);
  if (!read) return read;
  const DecodedImage& image = scratch.image;
  if (image.rows != scratch.mask.rows || image.columns != scratch.mask.columns)
    return Error{fmt::format("data file {} has {} x {} pixels, and its mask {} has {} x {}: the sizes must be the same",
                             image_path, image.rows, image.columns, mask_path, scratch.mask.rows,
                             scratch.mask.columns)};
  const ResizeWindow window = resize_window(settings_.resize, image.rows, image.columns, settings_.shape, chance);
  resize_bilinear(image, window, settings_.shape, scratch.resize, planes);
  resize_nearest(scratch.mask, window, settings_.shape, mask);
  return {};
}

}  // namespace sgd::worker
