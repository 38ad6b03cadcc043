#pragma once
// What is done to an image before a model sees it, in the order of the job's list. Chance is a function of (seed,
// epoch, sample, place in the list): the same whatever rank, batch or world size a sample comes in, and nothing of it
// is state. Validation gets the steps without chance only.
//
// Steps before the first normalize work on bytes, the others on floats 0 .. 1; the results are the same.

#include <cstdint>
#include <utility>
#include <variant>
#include <vector>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "worker/data/images.hpp"

namespace sgd::worker {

/// A crop of the image's own size from one with `padding` black pixels on each side.
struct RandomCrop {
  std::int64_t padding = 4;
};
/// Left and right change places, in this share of the samples.
struct HorizontalFlip {
  double probability = 0.5;
};
/// By channel.
struct Normalize {
  std::vector<float> mean;
  std::vector<float> deviation;
};
/// A square around a random pixel becomes 0.
struct Cutout {
  std::int64_t size = 16;
};
using Transform = std::variant<RandomCrop, HorizontalFlip, Normalize, Cutout>;

/// The seed of one sample's chance in one epoch.
[[nodiscard]] std::uint64_t sample_seed(std::uint64_t seed, int epoch, std::int64_t index);

class Transforms {
 public:
  Transforms() = default;
  explicit Transforms(std::vector<Transform> steps) : steps_(std::move(steps)) {}

  /// "transforms" of a data set in a job, which has been checked; null when there are none.
  static Transforms of(const nlohmann::json& list);

  [[nodiscard]] bool is_empty() const { return steps_.empty(); }
  /// Those that do the same to every image: what validation gets.
  [[nodiscard]] Transforms without_chance() const;
  /// An error when a step does not fit images of this shape.
  [[nodiscard]] Status check(const ImageShape& shape) const;

  /// Memory of one caller, used again for every image.
  struct Scratch {
    std::vector<std::uint8_t> bytes[2];
    std::vector<float> floats;
  };
  /// Writes shape.count() floats: the image's bytes * 1/255, transformed. `chance` is the sample's seed.
  void apply(const std::uint8_t* image, const ImageShape& shape, std::uint64_t chance, Scratch& scratch,
             float* out) const;
  /// What apply() with the same `chance` does to where things are (crops, flips) is done to the classes of the pixels;
  /// what it does to colours is not. Pixels from outside the image get `border`. `mask` and `out` are rows x columns.
  void apply_to_mask(const std::uint8_t* mask, const ImageShape& shape, std::uint64_t chance, std::uint8_t border,
                     Scratch& scratch, std::uint8_t* out) const;

 private:
  std::vector<Transform> steps_;
};

}  // namespace sgd::worker
