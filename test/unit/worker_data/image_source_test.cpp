// From files to bytes of one shape, and what is wrong with a file when its sample is read.

#include "worker/data/image_source.hpp"

#include <catch2/catch.hpp>

#include "image_bytes.hpp"
#include "test/unit/worker/temporary_directory.hpp"

namespace sgd::worker {
namespace {

using testing::TemporaryDirectory;

constexpr std::int64_t kAnyClass = 1000;

void put_file(const TemporaryDirectory& folder, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories((folder.path() / name).parent_path());
  testing::write_file(folder.file(name), bytes);
}

/// Of one value.
test::RawImage flat_image(int rows, int columns, int channels, std::uint8_t value) {
  return {rows, columns, channels,
          std::vector<std::uint8_t>(static_cast<std::size_t>(rows * columns * channels), value)};
}

ImageSettings small_images(std::int64_t channels) {
  return {{channels, 4, 4}, ResizeMode::kStretch};
}

std::string sample_error(const ImageFolderSource& source, std::int64_t index) {
  ImageScratch scratch;
  std::vector<std::uint8_t> planes(48);
  const Status read = source.read(index, std::nullopt, scratch, planes.data());
  return read.ok() ? "" : read.error().message;
}

/// A folder of one pair.
std::string pair_error(const TemporaryDirectory& folder, const std::string& mask, std::optional<std::int64_t> ignored) {
  put_file(folder, "images/a.jpg", test::jpeg_file(flat_image(6, 8, 3, 90)));
  put_file(folder, "masks/a.png", mask);
  const auto source = MaskedImageSource::open(folder.file("images"), folder.file("masks"), small_images(3), ignored, 3);
  REQUIRE(source.ok());
  ImageScratch scratch;
  std::vector<std::uint8_t> planes(48);
  std::vector<std::uint8_t> classes(16);
  const Status read = source.value().read(0, std::nullopt, scratch, planes.data(), classes.data());
  return read.ok() ? "" : read.error().message;
}

}  // namespace

TEST_CASE("image sources: files of different sizes and kinds get one shape") {
  const TemporaryDirectory folder;
  put_file(folder, "a/1.png", test::png_file(flat_image(9, 5, 3, 10)));
  put_file(folder, "a/2.png", test::png_file(flat_image(4, 4, 1, 20)));
  put_file(folder, "b/1.jpg", test::jpeg_file(flat_image(16, 32, 1, 30)));
  put_file(folder, "b/2.jpg", test::png_file(flat_image(1, 1, 3, 40)));  // Whatever its name says.
  for (const std::int64_t channels : {1, 3}) {
    const auto opened = ImageFolderSource::open(folder.path(), small_images(channels), kAnyClass);
    REQUIRE(opened.ok());
    const ImageFolderSource& source = opened.value();
    CHECK(source.count() == 4);
    CHECK(source.label(3) == 1);
    ImageScratch scratch;
    for (std::int64_t index = 0; index < 4; ++index) {
      std::vector<std::uint8_t> planes(static_cast<std::size_t>(16 * channels), 0);
      REQUIRE(source.read(index, std::nullopt, scratch, planes.data()).ok());
      CHECK(planes == std::vector<std::uint8_t>(planes.size(), static_cast<std::uint8_t>(10 * (index + 1))));
    }
  }
  CHECK_THAT(ImageFolderSource::open(folder.path(), small_images(3), 1).error().message,
             Catch::Contains("has 2 classes, and the model gives 1 outputs"));
}

TEST_CASE("image sources: a file that cannot be decoded is named") {
  const TemporaryDirectory folder;
  const std::string whole = test::jpeg_file(test::smooth_image(32, 32, 3));
  put_file(folder, "a/cut.jpg", whole.substr(0, whole.size() / 2));
  put_file(folder, "a/good.jpg", whole);
  put_file(folder, "a/text.png", "no image");
  const auto source = ImageFolderSource::open(folder.path(), small_images(3), kAnyClass);
  REQUIRE(source.ok());
  CHECK_THAT(sample_error(source.value(), 0),
             Catch::StartsWith("data file " + folder.file("a/cut.jpg") + ": cannot be decoded: Premature end"));
  CHECK(sample_error(source.value(), 1).empty());
  CHECK(sample_error(source.value(), 2) ==
        "data file " + folder.file("a/text.png") + ": cannot be decoded: neither a JPEG nor a PNG file");
  std::filesystem::remove(folder.file("a/good.jpg"));
  CHECK_THAT(sample_error(source.value(), 1), Catch::Contains("a/good.jpg: No such file"));
}

TEST_CASE("image sources: masks keep their values, and follow their image") {
  const TemporaryDirectory folder;
  // Left half class 1, right half class 2, and the image as bright as its class.
  test::RawImage image{4, 8, 1, {}};
  test::RawImage mask{4, 8, 1, {}};
  for (int pixel = 0; pixel < 32; ++pixel) {
    mask.pixels.push_back(pixel % 8 < 4 ? 1 : 2);
    image.pixels.push_back(static_cast<std::uint8_t>(100 * mask.pixels.back()));
  }
  put_file(folder, "images/a.png", test::png_file(image));
  put_file(folder, "masks/a.png", test::png_file(mask));
  for (const ResizeMode mode : {ResizeMode::kCrop, ResizeMode::kStretch, ResizeMode::kRandomResizedCrop}) {
    const ImageSettings settings{{1, 4, 4}, mode};
    const auto source = MaskedImageSource::open(folder.file("images"), folder.file("masks"), settings, std::nullopt, 3);
    REQUIRE(source.ok());
    ImageScratch scratch;
    for (std::uint64_t chance = 0; chance < 50; ++chance) {
      std::vector<std::uint8_t> planes(16);
      std::vector<std::uint8_t> classes(16);
      REQUIRE(source.value().read(0, chance, scratch, planes.data(), classes.data()).ok());
      for (std::size_t i = 0; i < 16; ++i) {
        REQUIRE((classes[i] == 1 || classes[i] == 2));
        // Between the halves the image has values between; elsewhere it has its class.
        if (planes[i] < 125) REQUIRE(classes[i] == 1);
        if (planes[i] > 175) REQUIRE(classes[i] == 2);
      }
    }
  }
}

TEST_CASE("image sources: masks that do not fit are named with the place") {
  const TemporaryDirectory folder;
  test::RawImage mask = flat_image(6, 8, 1, 2);
  CHECK(pair_error(folder, test::png_file(mask), std::nullopt).empty());
  mask.pixels[3 * 8 + 5] = 255;
  CHECK(pair_error(folder, test::png_file(mask), std::nullopt) ==
        "data file " + folder.file("masks/a.png") +
            ": class 255 at row 3, column 5 (the first is 0) is outside 0..2, what the model gives outputs for; set "
            "training.dataset.ignore where it is no class");
  CHECK(pair_error(folder, test::png_file(mask), 255).empty());
  mask.pixels[7] = 3;
  CHECK_THAT(pair_error(folder, test::png_file(mask), 255),
             Catch::Contains("class 3 at row 0, column 7") && Catch::EndsWith(", and not 255, which is ignored"));
  CHECK(pair_error(folder, test::png_file(flat_image(8, 6, 1, 0)), std::nullopt) ==
        "data file " + folder.file("images/a.jpg") + " has 6 x 8 pixels, and its mask " + folder.file("masks/a.png") +
            " has 8 x 6: the sizes must be the same");
  CHECK_THAT(pair_error(folder, test::png_file(flat_image(6, 8, 3, 0)), std::nullopt),
             Catch::Contains("masks/a.png: cannot be decoded: a mask with 3 channels"));
}

TEST_CASE("image sources: settings of a job") {
  const ImageSettings settings =
      image_settings({{"size", {32, 48}}, {"channels", 1}, {"resize", "random_resized_crop"}});
  CHECK(settings.shape.channels == 1);
  CHECK(settings.shape.rows == 32);
  CHECK(settings.shape.columns == 48);
  CHECK(settings.resize == ResizeMode::kRandomResizedCrop);
}

}  // namespace sgd::worker
