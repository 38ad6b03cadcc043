#include "worker/torch/image_tensors.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "common/json/lenient.hpp"
#include "worker/data/image_source.hpp"
#include "worker/data/transforms.hpp"
#include "worker/torch/taken.hpp"

namespace sgd::worker {
namespace {

constexpr int kByteValues = 256;

/// What both kinds do alike: transforms by split and epoch, and batches that may be left half-made.
class DecodedTensors : public Dataset {
 public:
  explicit DecodedTensors(const DatasetSettings& settings)
      : settings_(image_settings(settings.dataset)),
        transforms_(Transforms::of(member(settings.dataset, "transforms"))),
        validation_transforms_(transforms_.without_chance()),
        seed_(settings.seed) {
    check(transforms_.check(settings_.shape));
  }

  bool is_slow() const override { return true; }

  Batch gather(Split split, int epoch, std::span<const std::int64_t> indices) const override {
    const std::atomic<bool> never{false};
    return gather_unless(never, split, epoch, indices);
  }
  Batch gather_unless(const std::atomic<bool>& is_ending, Split split, int epoch,
                      std::span<const std::int64_t> indices) const override {
    const auto rows = static_cast<std::int64_t>(indices.size());
    Batch batch{at::empty({rows, settings_.shape.channels, settings_.shape.rows, settings_.shape.columns}, at::kFloat),
                empty_target(rows)};
    float* out = batch.features.data_ptr<float>();
    Memory memory;
    memory.planes.resize(settings_.shape.count());
    for (std::int64_t row = 0; row < rows; ++row) {
      if (is_ending.load(std::memory_order_relaxed)) throw std::runtime_error("the batch is not wanted any more");
      Sample sample{split, indices[static_cast<std::size_t>(row)], std::nullopt, 0};
      sample.seed = sample_seed(seed_, epoch, sample.index);
      if (split == Split::kTrain) sample.chance = sample.seed;
      read(sample, row, memory, batch.target);
      transforms_of(split).apply(memory.planes.data(), settings_.shape, sample.seed, memory.transforms, out);
      out += settings_.shape.count();
    }
    return batch;
  }

 protected:
  struct Sample {
    Split split;
    std::int64_t index;
    std::optional<std::uint64_t> chance;  ///< Nothing in validation.
    std::uint64_t seed;
  };
  /// Of one batch.
  struct Memory {
    ImageScratch image;
    Transforms::Scratch transforms;
    std::vector<std::uint8_t> planes;
    std::vector<std::uint8_t> mask;
  };

  [[nodiscard]] virtual at::Tensor empty_target(std::int64_t rows) const = 0;
  /// The image's bytes into memory.planes, its target into `row` of the batch's.
  virtual void read(const Sample& sample, std::int64_t row, Memory& memory, at::Tensor& target) const = 0;

  [[nodiscard]] const ImageSettings& settings() const { return settings_; }
  [[nodiscard]] std::vector<std::int64_t> feature_sizes() const {
    return {settings_.shape.channels, settings_.shape.rows, settings_.shape.columns};
  }
  [[nodiscard]] const Transforms& transforms_of(Split split) const {
    return split == Split::kTrain ? transforms_ : validation_transforms_;
  }

 private:
  ImageSettings settings_;
  Transforms transforms_;
  Transforms validation_transforms_;
  std::uint64_t seed_;
};

class FolderTensors final : public DecodedTensors {
 public:
  explicit FolderTensors(const DatasetSettings& given)
      : DecodedTensors(given),
        train_(
            taken(ImageFolderSource::open(given.dataset.at("train").get<std::string>(), settings(), limit_of(given)))),
        validation_(taken(
            ImageFolderSource::open(given.dataset.at("validation").get<std::string>(), settings(), limit_of(given)))),
        outputs_(given.outputs > 0 ? given.outputs : static_cast<std::int64_t>(train_.classes().size())) {
    const std::string difference = data::class_difference(train_.classes(), validation_.classes());
    if (!difference.empty()) throw std::runtime_error(difference);
  }

  SampleShape shape() const override { return {feature_sizes(), outputs_}; }
  std::vector<std::string> classes() const override { return train_.classes(); }
  std::int64_t count(Split split) const override { return of(split).count(); }

 protected:
  at::Tensor empty_target(std::int64_t rows) const override { return at::empty({rows}, at::kLong); }
  void read(const Sample& sample, std::int64_t row, Memory& memory, at::Tensor& target) const override {
    check(of(sample.split).read(sample.index, sample.chance, memory.image, memory.planes.data()));
    target.data_ptr<std::int64_t>()[row] = of(sample.split).label(sample.index);
  }

 private:
  const ImageFolderSource& of(Split split) const { return split == Split::kTrain ? train_ : validation_; }

  ImageFolderSource train_;
  ImageFolderSource validation_;
  std::int64_t outputs_;
};

std::optional<std::int64_t> ignored_value(const nlohmann::json& dataset) {
  if (!member(dataset, "ignore").is_number()) return std::nullopt;
  return read_or(dataset, "ignore", std::int64_t{0});
}

MaskedImageSource open_masked(const DatasetSettings& given, const char* split, const ImageSettings& settings) {
  const nlohmann::json& folders = member(given.dataset, split);
  return taken(MaskedImageSource::open(read_or(folders, "images", ""), read_or(folders, "masks", ""), settings,
                                       ignored_value(given.dataset), limit_of(given)));
}

class MaskTensors final : public DecodedTensors {
 public:
  explicit MaskTensors(const DatasetSettings& given)
      : DecodedTensors(given),
        train_(open_masked(given, "train", settings())),
        validation_(open_masked(given, "validation", settings())),
        border_(static_cast<std::uint8_t>(ignored_value(given.dataset).value_or(0))),
        outputs_(given.outputs) {
    for (std::size_t value = 0; value < classes_.size(); ++value) classes_[value] = static_cast<std::int64_t>(value);
    if (const auto ignored = ignored_value(given.dataset)) classes_[static_cast<std::size_t>(*ignored)] = kNoClass;
  }

  SampleShape shape() const override { return {feature_sizes(), outputs_}; }
  std::int64_t count(Split split) const override { return of(split).count(); }

 protected:
  at::Tensor empty_target(std::int64_t rows) const override {
    return at::empty({rows, settings().shape.rows, settings().shape.columns}, at::kLong);
  }
  void read(const Sample& sample, std::int64_t row, Memory& memory, at::Tensor& target) const override {
    const auto pixels = static_cast<std::size_t>(settings().shape.plane());
    memory.mask.resize(2 * pixels);
    std::uint8_t* whole = memory.mask.data();
    std::uint8_t* moved = whole + pixels;
    check(of(sample.split).read(sample.index, sample.chance, memory.image, memory.planes.data(), whole));
    transforms_of(sample.split).apply_to_mask(whole, settings().shape, sample.seed, border_, memory.transforms, moved);
    std::int64_t* out = target.data_ptr<std::int64_t>() + row * settings().shape.plane();
    std::transform(moved, moved + pixels, out, [this](std::uint8_t value) { return classes_[value]; });
  }

 private:
  const MaskedImageSource& of(Split split) const { return split == Split::kTrain ? train_ : validation_; }

  MaskedImageSource train_;
  MaskedImageSource validation_;
  std::array<std::int64_t, kByteValues> classes_{};  ///< By the value in a mask.
  std::uint8_t border_;                              ///< What a crop adds around a mask.
  std::int64_t outputs_;
};

}  // namespace

std::shared_ptr<Dataset> make_image_folder(const DatasetSettings& settings) {
  return std::make_shared<FolderTensors>(settings);
}

std::shared_ptr<Dataset> make_image_masks(const DatasetSettings& settings) {
  return std::make_shared<MaskTensors>(settings);
}

}  // namespace sgd::worker
