// Image files as tensors: shapes and types, transforms of image and mask, refusals; and the resize against LibTorch's.
#include <catch2/catch.hpp>

#include <array>
#include <cmath>

#include "test/unit/worker/temporary_directory.hpp"
#include "test/unit/worker_data/image_bytes.hpp"
#include "worker/data/image_resize.hpp"
#include "worker/torch/image_tensors.hpp"

namespace sgd::worker {
namespace {

void put_image(const testing::TemporaryDirectory& folder, const std::string& name, const std::string& bytes) {
  std::filesystem::create_directories((folder.path() / name).parent_path());
  testing::write_file(folder.file(name), bytes);
}

std::shared_ptr<const Dataset> images_of(const nlohmann::json& settings, std::int64_t outputs) {
  job::Training training;
  training.dataset = settings;
  training.model = {{"outputs", outputs}};
  return make_dataset(training);
}

/// Two classes of two images, to train and to validate on.
nlohmann::json folder_settings(const testing::TemporaryDirectory& folder) {
  for (const char* split : {"train", "val"}) {
    for (int image = 0; image < 4; ++image) {
      const std::string name = std::string(split) + (image < 2 ? "/cat/" : "/dog/") + std::to_string(image);
      const test::RawImage raw = test::smooth_image(10 + image, 12, 3, 1 + image);
      put_image(folder, name + (image == 1 ? ".jpg" : ".png"), image == 1 ? test::jpeg_file(raw) : test::png_file(raw));
    }
  }
  return {
      {"type", "image_folder"}, {"train", folder.file("train")}, {"validation", folder.file("val")}, {"size", {8, 6}}};
}

/// Three images with masks; the first mask has a pixel of 255.
nlohmann::json mask_settings(const testing::TemporaryDirectory& folder) {
  for (int image = 0; image < 3; ++image) {
    test::RawImage mask{6, 6, 1, std::vector<std::uint8_t>(36, static_cast<std::uint8_t>(image))};
    if (image == 0) mask.pixels[0] = 255;
    put_image(folder, "images/" + std::to_string(image) + ".png", test::png_file(test::smooth_image(6, 6, 3)));
    put_image(folder, "masks/" + std::to_string(image) + ".png", test::png_file(mask));
  }
  const nlohmann::json folders{{"images", folder.file("images")}, {"masks", folder.file("masks")}};
  return {{"type", "image_masks"}, {"train", folders}, {"validation", folders}, {"size", {6, 6}}, {"ignore", 255}};
}

constexpr std::array<std::int64_t, 4> kFour{3, 0, 1, 2};

}  // namespace

TEST_CASE("image tensors: a folder gives images of one size, and classes") {
  const testing::TemporaryDirectory folder;
  const nlohmann::json settings = folder_settings(folder);
  const auto dataset = images_of(settings, 2);
  CHECK(dataset->shape().features == std::vector<std::int64_t>{3, 8, 6});
  CHECK(dataset->count(Split::kTrain) == 4);
  const Batch batch = dataset->gather(Split::kTrain, 1, kFour);
  CHECK(batch.features.sizes() == at::IntArrayRef({4, 3, 8, 6}));
  CHECK(batch.features.dtype() == at::kFloat);
  CHECK(batch.features.min().item<float>() > 0.1f);
  CHECK(batch.features.max().item<float>() < 1.0f);
  CHECK(batch.target.equal(at::tensor({1, 0, 0, 1}, at::kLong)));
  CHECK(batch.features.equal(dataset->gather(Split::kTrain, 2, kFour).features));
  CHECK(images_of(settings, 0)->shape().outputs == 2);
  CHECK_THROWS_WITH(images_of(settings, 1), Catch::Contains("has 2 classes, and the model gives 1 outputs"));
  std::filesystem::remove_all(folder.file("val/dog"));
  CHECK_THROWS_WITH(images_of(settings, 2), Catch::Contains("the folder to validate on lacks dog"));
}

TEST_CASE("image tensors: chance changes with the epoch in training, and not in validation") {
  const testing::TemporaryDirectory folder;
  nlohmann::json settings = folder_settings(folder);
  settings["resize"] = "random_resized_crop";
  const auto dataset = images_of(settings, 2);
  const auto features = [&](Split split, int epoch) { return dataset->gather(split, epoch, kFour).features; };
  CHECK(features(Split::kTrain, 1).equal(features(Split::kTrain, 1)));
  CHECK_FALSE(features(Split::kTrain, 1).equal(features(Split::kTrain, 2)));
  CHECK(features(Split::kValidation, 1).equal(features(Split::kValidation, 2)));
}

TEST_CASE("image tensors: a file that cannot be decoded is an error that names it") {
  const testing::TemporaryDirectory folder;
  const nlohmann::json settings = folder_settings(folder);
  testing::write_file(folder.file("train/dog/3.png"), "no image");
  const auto dataset = images_of(settings, 2);
  CHECK_THROWS_WITH(dataset->gather(Split::kTrain, 1, kFour), "data file " + folder.file("train/dog/3.png") +
                                                                  ": cannot be decoded: neither a JPEG nor a PNG file");
  CHECK_NOTHROW(dataset->gather(Split::kValidation, 1, kFour));
  const std::atomic<bool> is_ending{true};
  CHECK_THROWS_WITH(dataset->gather_unless(is_ending, Split::kTrain, 1, kFour), Catch::Contains("not wanted"));
}

TEST_CASE("image tensors: masks give a class for each pixel") {
  const testing::TemporaryDirectory folder;
  nlohmann::json settings = mask_settings(folder);
  settings["transforms"] = {{{"type", "horizontal_flip"}, {"probability", 1.0}}};
  const std::vector<std::int64_t> all{0, 1, 2};
  const Batch batch = images_of(settings, 3)->gather(Split::kTrain, 1, all);
  CHECK(batch.features.sizes() == at::IntArrayRef({3, 3, 6, 6}));
  CHECK(batch.target.sizes() == at::IntArrayRef({3, 6, 6}));
  CHECK(batch.target.dtype() == at::kLong);
  CHECK(batch.target[0][0][5].item<std::int64_t>() == kNoClass);  // Flipped with its image.
  CHECK(batch.target[0][0][0].item<std::int64_t>() == 0);
  CHECK(batch.target[2].eq(2).all().item<bool>());
  // A pixel without a class has no part in the loss.
  const at::Tensor output = at::zeros({3, 3, 6, 6});
  CHECK(at::cross_entropy_loss(output, batch.target).item<float>() == Approx(std::log(3.0f)));
  const Batch plain = images_of(settings, 3)->gather(Split::kValidation, 1, all);
  CHECK(plain.target[0][0][0].item<std::int64_t>() == kNoClass);
  settings["transforms"] = {{{"type", "random_crop"}, {"padding", 3}}};
  const at::Tensor cropped = images_of(settings, 3)->gather(Split::kTrain, 1, all).target;
  CHECK(cropped[2].eq(2).logical_or(cropped[2].eq(kNoClass)).all().item<bool>());
  settings.erase("ignore");
  CHECK_THROWS_WITH(images_of(settings, 3)->gather(Split::kTrain, 1, all),
                    Catch::Contains("masks/0.png: class 255 at row 0, column 0"));
}

TEST_CASE("image tensors: the resize is LibTorch's with antialiasing") {
  const std::vector<std::pair<std::int64_t, std::int64_t>> sizes{{37, 53}, {12, 90}, {5, 6}, {16, 20}};
  for (const auto& [rows, columns] : sizes) {
    at::manual_seed(1);
    const at::Tensor image = at::randint(0, 256, {rows, columns, 3}, at::kByte);
    DecodedImage decoded{rows, columns, 3, {}};
    decoded.pixels.assign(image.data_ptr<std::uint8_t>(), image.data_ptr<std::uint8_t>() + image.numel());
    const ImageShape wanted{3, 16, 20};
    at::Tensor out = at::empty({1, 3, 16, 20}, at::kByte);
    ResizeScratch scratch;
    resize_bilinear(decoded, resize_window(ResizeMode::kStretch, rows, columns, wanted, std::nullopt), wanted, scratch,
                    out.data_ptr<std::uint8_t>());
    const at::Tensor planes = image.permute({2, 0, 1}).unsqueeze(0).to(at::kFloat).contiguous();
    const at::Tensor expected = at::_upsample_bilinear2d_aa(planes, {16, 20}, false);
    CHECK((out.to(at::kFloat) - expected).abs().max().item<float>() < 1.01f);
  }
}

}  // namespace sgd::worker
