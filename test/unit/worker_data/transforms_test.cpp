// Operations on images by tables, and the chance that decides them.

#include "worker/data/transforms.hpp"

#include <catch2/catch.hpp>

#include <algorithm>
#include <numeric>
#include <set>

#include "worker/core/sampler.hpp"

namespace sgd::worker {
namespace {

using Bytes = std::vector<std::uint8_t>;
using Floats = std::vector<float>;

Bytes counted(const ImageShape& shape) {
  Bytes image(shape.count());
  for (std::size_t i = 0; i < image.size(); ++i) image[i] = static_cast<std::uint8_t>(i * 37 + 1);
  return image;
}

Floats applied(const Transforms& transforms, const Bytes& image, const ImageShape& shape, std::uint64_t chance) {
  Transforms::Scratch scratch;
  Floats out(shape.count(), -9);
  transforms.apply(image.data(), shape, chance, scratch, out.data());
  return out;
}

Floats scaled(const Bytes& image) {
  Floats out;
  for (const std::uint8_t byte : image) out.push_back(static_cast<float>(byte) * (1.0f / 255.0f));
  return out;
}

}  // namespace

TEST_CASE("images: a shift fills what comes from outside with 0") {
  const ImageShape shape{1, 3, 3};
  const Bytes image{1, 2, 3, 4, 5, 6, 7, 8, 9};
  const auto shifted = [&](std::int64_t down, std::int64_t right) {
    Bytes out(9, 77);
    shift_image(image.data(), shape, down, right, out.data());
    return out;
  };
  CHECK(shifted(0, 0) == image);
  CHECK(shifted(1, 0) == Bytes{4, 5, 6, 7, 8, 9, 0, 0, 0});
  CHECK(shifted(-1, 0) == Bytes{0, 0, 0, 1, 2, 3, 4, 5, 6});
  CHECK(shifted(0, 1) == Bytes{2, 3, 0, 5, 6, 0, 8, 9, 0});
  CHECK(shifted(0, -2) == Bytes{0, 0, 1, 0, 0, 4, 0, 0, 7});
  CHECK(shifted(2, -1) == Bytes{0, 7, 8, 0, 0, 0, 0, 0, 0});
  CHECK(shifted(3, 0) == Bytes(9, 0));
  CHECK(shifted(0, -3) == Bytes(9, 0));
  CHECK(shifted(-100, 100) == Bytes(9, 0));
}

TEST_CASE("images: planes are flipped and cut alike") {
  const ImageShape shape{2, 2, 3};
  const Floats image{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  Floats out(12);
  flip_image(image.data(), shape, out.data());
  CHECK(out == Floats{3, 2, 1, 6, 5, 4, 9, 8, 7, 12, 11, 10});
  out = image;
  cut_square(out.data(), shape, 1, 2, 2);  // Rows 0 and 1, columns 1 and 2.
  CHECK(out == Floats{1, 0, 0, 4, 0, 0, 7, 0, 0, 10, 0, 0});
  out = image;
  cut_square(out.data(), shape, 0, 0, 1);
  CHECK(out == Floats{0, 2, 3, 4, 5, 6, 0, 8, 9, 10, 11, 12});
  out = image;
  cut_square(out.data(), shape, 0, 0, 100);
  CHECK(out == Floats(12, 0));
  out = image;
  normalize_image(out.data(), shape, Floats{1, 7}, Floats{2, 4});
  CHECK(out == Floats{0, 0.5f, 1, 1.5f, 2, 2.5f, 0, 0.25f, 0.5f, 0.75f, 1, 1.25f});
}

TEST_CASE("transforms: chance is a function of seed, epoch and sample") {
  std::set<std::uint64_t> seeds;
  for (const std::uint64_t seed : {0, 1})
    for (const int epoch : {1, 2})
      for (const std::int64_t index : {0, 1}) seeds.insert(sample_seed(seed, epoch, index));
  CHECK(seeds.size() == 8);
  CHECK(sample_seed(3, 4, 5) == sample_seed(3, 4, 5));
  // Written down: a recovered or resumed run makes the images that it made before.
  CHECK(sample_seed(1, 2, 3) == 0x599f508e64104751);
}

TEST_CASE("transforms: the same images at every world size") {
  const ImageShape shape{1, 8, 8};
  const Transforms transforms({RandomCrop{2}, HorizontalFlip{}, Cutout{3}});
  constexpr std::int64_t kSamples = 24;
  const auto images_at = [&](int world_size) {
    std::vector<Floats> images(kSamples);
    const Sampler sampler(5, 3, kSamples, world_size, true);
    std::vector<std::int64_t> indices;
    for (std::int64_t position = 0; sampler.batch_length(position, 3) > 0; position = sampler.advance(position, 3)) {
      for (int rank = 0; rank < world_size; ++rank) {
        sampler.batch(position, rank, 3, indices);
        for (const std::int64_t index : indices) {
          Bytes image = counted(shape);
          image[0] = static_cast<std::uint8_t>(index);
          images[static_cast<std::size_t>(index)] = applied(transforms, image, shape, sample_seed(5, 3, index));
        }
      }
    }
    return images;
  };
  const std::vector<Floats> alone = images_at(1);
  CHECK(alone == images_at(2));
  CHECK(alone == images_at(3));
  CHECK(alone == images_at(5));
  CHECK(std::set<Floats>(alone.begin(), alone.end()).size() > kSamples / 2);
}

TEST_CASE("transforms: each crop and each side comes about as often") {
  const ImageShape shape{1, 4, 4};
  Bytes image(16, 0);
  image[5] = 255;  // Row 1, column 1.
  int places[16] = {};
  int outside = 0;
  for (std::int64_t index = 0; index < 9000; ++index) {
    const Floats out = applied(Transforms({RandomCrop{1}}), image, shape, sample_seed(0, 1, index));
    const auto found = std::find(out.begin(), out.end(), 1.0f);
    if (found == out.end())
      ++outside;
    else
      ++places[found - out.begin()];
  }
  CHECK(outside == 0);
  for (const int place : {0, 1, 2, 4, 5, 6, 8, 9, 10}) CHECK(std::abs(places[place] - 1000) < 150);
  int flipped = 0;
  for (std::int64_t index = 0; index < 4000; ++index)
    flipped += applied(Transforms({HorizontalFlip{0.25}}), image, shape, sample_seed(0, 1, index))[6] == 1.0f ? 1 : 0;
  CHECK(std::abs(flipped - 1000) < 150);
  CHECK(applied(Transforms({HorizontalFlip{0}}), image, shape, 1) == scaled(image));
  CHECK(applied(Transforms({HorizontalFlip{1}}), image, shape, 1)[6] == 1.0f);
}

TEST_CASE("transforms: steps on bytes and steps on floats are the same steps") {
  const ImageShape shape{3, 6, 7};
  const Bytes image = counted(shape);
  const Normalize nothing{{0, 0, 0}, {1, 1, 1}};
  const std::vector<Transform> steps{RandomCrop{2}, HorizontalFlip{}, RandomCrop{1}, Cutout{2}, HorizontalFlip{}};
  // Behind a normalize that changes nothing each step's place in the list is one further: so has the first list one.
  std::vector<Transform> on_bytes{HorizontalFlip{0}};
  std::vector<Transform> on_floats{nothing};
  on_bytes.insert(on_bytes.end(), steps.begin(), steps.end());
  on_floats.insert(on_floats.end(), steps.begin(), steps.end());
  int changed = 0;
  for (std::int64_t index = 0; index < 50; ++index) {
    const std::uint64_t chance = sample_seed(9, 1, index);
    const Floats expected = applied(Transforms(on_bytes), image, shape, chance);
    REQUIRE(applied(Transforms(on_floats), image, shape, chance) == expected);
    changed += expected == scaled(image) ? 0 : 1;
  }
  CHECK(changed > 40);
}

TEST_CASE("transforms: a mask goes where its image goes") {
  const ImageShape shape{3, 6, 5};
  // Each pixel has a value of its own, in all channels and in the mask, from 1.
  Bytes mask(30);
  std::iota(mask.begin(), mask.end(), std::uint8_t{1});
  Bytes image;
  for (int channel = 0; channel < 3; ++channel) image.insert(image.end(), mask.begin(), mask.end());
  const Transforms plain({RandomCrop{2}, HorizontalFlip{}});
  const Transforms coloured({RandomCrop{2}, HorizontalFlip{}, Cutout{3}, Normalize{{0.5f, 0.5f, 0.5f}, {2, 2, 2}}});
  Transforms::Scratch scratch;
  std::set<Bytes> seen;
  for (std::uint64_t chance = 0; chance < 60; ++chance) {
    const Floats moved = applied(plain, image, shape, chance);
    Bytes out(30, 99);
    plain.apply_to_mask(mask.data(), shape, chance, 0, scratch, out.data());
    REQUIRE(Floats(moved.begin(), moved.begin() + 30) == scaled(out));
    Bytes same(30, 99);
    coloured.apply_to_mask(mask.data(), shape, chance, 0, scratch, same.data());
    REQUIRE(same == out);
    Bytes bordered(30, 99);
    plain.apply_to_mask(mask.data(), shape, chance, 255, scratch, bordered.data());
    for (std::size_t i = 0; i < 30; ++i) REQUIRE(bordered[i] == (out[i] == 0 ? 255 : out[i]));
    seen.insert(out);
  }
  CHECK(seen.size() > 20);
}

TEST_CASE("transforms: validation gets what has no chance") {
  const nlohmann::json list = nlohmann::json::parse(
      R"([{"type": "random_crop", "padding": 1}, {"type": "horizontal_flip", "probability": 0.5},
          {"type": "normalize", "mean": [0.5], "std": [0.25]}, {"type": "cutout", "size": 2}])");
  const Transforms transforms = Transforms::of(list);
  const ImageShape shape{1, 4, 4};
  const Bytes image = counted(shape);
  Floats normalized = scaled(image);
  for (float& value : normalized) value = (value - 0.5f) / 0.25f;
  CHECK(applied(transforms.without_chance(), image, shape, 1) == normalized);
  const Floats cut = applied(transforms, image, shape, 1);
  CHECK(std::count(cut.begin(), cut.end(), 0.0f) >= 1);  // Behind normalize 0 is the mean.
  CHECK(Transforms::of(nullptr).is_empty());
  CHECK(transforms.check(shape).ok());
  CHECK(transforms.check({3, 4, 4}).error().message ==
        "normalize has 1 numbers in mean and 1 in std, expected 3: one for each channel");
}

}  // namespace sgd::worker
