#include "worker/data/transforms.hpp"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "common/json/lenient.hpp"
#include "worker/core/mix_bits.hpp"
#include "worker/core/scale_bytes.hpp"

namespace sgd::worker {
namespace {

constexpr std::uint64_t kTransforms = 0x7472616e73666f72;  // Apart from the shuffle's and the steps' use of a seed.

/// Independent draws of one step for one sample.
struct Draws {
  std::uint64_t seed;
  [[nodiscard]] std::uint64_t operator()(std::uint64_t number) const { return mixed(seed, number); }
};

/// An image between two places in memory: a step that cannot work in place writes to the other one.
template <class T>
struct Canvas {
  const T* image;   ///< Where it is now.
  T* places[2];     ///< What may be written; `image` may lie elsewhere at first.
  T border = T{0};  ///< What pixels from outside are.

  [[nodiscard]] T* other() const { return image == places[0] ? places[1] : places[0]; }
};

template <class T>
void run_step(const RandomCrop& step, const ImageShape& shape, const Draws& draws, Canvas<T>& canvas) {
  T* out = canvas.other();
  const std::int64_t down = below(draws(0), 2 * step.padding + 1) - step.padding;
  const std::int64_t right = below(draws(1), 2 * step.padding + 1) - step.padding;
  shift_image(canvas.image, shape, down, right, out, canvas.border);
  canvas.image = out;
}

template <class T>
void run_step(const HorizontalFlip& step, const ImageShape& shape, const Draws& draws, Canvas<T>& canvas) {
  if (unit_interval(draws(0)) >= step.probability) return;
  T* out = canvas.other();
  flip_image(canvas.image, shape, out);
  canvas.image = out;
}

template <class T>
void run_step(const Cutout& step, const ImageShape& shape, const Draws& draws, Canvas<T>& canvas) {
  T* out = canvas.image == canvas.places[1] ? canvas.places[1] : canvas.places[0];
  if (canvas.image != out) std::copy(canvas.image, canvas.image + shape.count(), out);
  canvas.image = out;
  cut_square(out, shape, below(draws(0), shape.rows), below(draws(1), shape.columns), step.size);
}

void run_step(const Normalize& step, const ImageShape& shape, const Draws&, Canvas<float>& canvas) {
  float* out = canvas.image == canvas.places[1] ? canvas.places[1] : canvas.places[0];
  normalize_image(out, shape, step.mean, step.deviation);
}

void run_step(const Normalize&, const ImageShape&, const Draws&, Canvas<std::uint8_t>&) {}  // Ends the steps on bytes.

/// Where things are; the others change colours.
bool is_geometric(const Transform& step) {
  return std::holds_alternative<RandomCrop>(step) || std::holds_alternative<HorizontalFlip>(step);
}

bool has_chance(const Transform& step) {
  return !std::holds_alternative<Normalize>(step);
}

std::vector<float> floats_of(const nlohmann::json& list) {
  std::vector<float> values;
  for (const auto& item : list) values.push_back(item.get<float>());
  return values;
}

Transform transform_of(const nlohmann::json& item) {
  const std::string type = read_or(item, "type", "");
  if (type == "random_crop") return RandomCrop{read_or(item, "padding", RandomCrop{}.padding)};
  if (type == "horizontal_flip") return HorizontalFlip{read_or(item, "probability", HorizontalFlip{}.probability)};
  if (type == "cutout") return Cutout{read_or(item, "size", Cutout{}.size)};
  return Normalize{floats_of(member(item, "mean")), floats_of(member(item, "std"))};
}

}  // namespace

std::uint64_t sample_seed(std::uint64_t seed, int epoch, std::int64_t index) {
  const std::uint64_t of_epoch = mixed(mixed(seed, kTransforms), static_cast<std::uint64_t>(epoch));
  return mixed(of_epoch, static_cast<std::uint64_t>(index));
}

Transforms Transforms::of(const nlohmann::json& list) {
  std::vector<Transform> steps;
  for (const auto& item : list) steps.push_back(transform_of(item));
  return Transforms(std::move(steps));
}

Transforms Transforms::without_chance() const {
  std::vector<Transform> steps;
  std::copy_if(steps_.begin(), steps_.end(), std::back_inserter(steps),
               [](const auto& step) { return !has_chance(step); });
  return Transforms(std::move(steps));
}

Status Transforms::check(const ImageShape& shape) const {
  for (const Transform& step : steps_) {
    const auto* normalize = std::get_if<Normalize>(&step);
    if (normalize == nullptr) continue;
    const auto channels = static_cast<std::size_t>(shape.channels);
    if (normalize->mean.size() != channels || normalize->deviation.size() != channels)
      return Error{fmt::format("normalize has {} numbers in mean and {} in std, expected {}: one for each channel",
                               normalize->mean.size(), normalize->deviation.size(), channels)};
  }
  return {};
}

void Transforms::apply(const std::uint8_t* image, const ImageShape& shape, std::uint64_t chance, Scratch& scratch,
                       float* out) const {
  const auto draws = [&](std::size_t place) { return Draws{mixed(chance, place)}; };
  for (auto& bytes : scratch.bytes) bytes.resize(shape.count());
  Canvas<std::uint8_t> bytes{image, {scratch.bytes[0].data(), scratch.bytes[1].data()}};
  std::size_t step = 0;
  for (; step < steps_.size() && has_chance(steps_[step]); ++step) {
    std::visit([&](const auto& kind) { run_step(kind, shape, draws(step), bytes); }, steps_[step]);
  }
  scale_bytes(bytes.image, out, shape.count());
  if (step == steps_.size()) return;
  scratch.floats.resize(shape.count());
  Canvas<float> floats{out, {out, scratch.floats.data()}};
  for (; step < steps_.size(); ++step) {
    std::visit([&](const auto& kind) { run_step(kind, shape, draws(step), floats); }, steps_[step]);
  }
  if (floats.image != out) std::copy(floats.image, floats.image + shape.count(), out);
}

void Transforms::apply_to_mask(const std::uint8_t* mask, const ImageShape& shape, std::uint64_t chance,
                               std::uint8_t border, Scratch& scratch, std::uint8_t* out) const {
  const ImageShape plane{1, shape.rows, shape.columns};
  for (auto& bytes : scratch.bytes) bytes.resize(plane.count());
  Canvas<std::uint8_t> canvas{mask, {scratch.bytes[0].data(), scratch.bytes[1].data()}, border};
  for (std::size_t step = 0; step < steps_.size(); ++step) {
    if (!is_geometric(steps_[step])) continue;
    const Draws draws{mixed(chance, step)};  // By the same place in the list as the image's.
    std::visit([&](const auto& kind) { run_step(kind, plane, draws, canvas); }, steps_[step]);
  }
  std::copy(canvas.image, canvas.image + plane.count(), out);
}

}  // namespace sgd::worker
