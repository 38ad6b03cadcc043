// Data sets as tensors: shapes and types that models and losses take, transforms by split and epoch, refusals.
#include <catch2/catch.hpp>

#include "test/unit/common/data_bytes.hpp"
#include "test/unit/worker/temporary_directory.hpp"
#include "worker/torch/datasets.hpp"

namespace sgd::worker {
namespace {

using testing::TemporaryDirectory;
using testing::write_file;

std::shared_ptr<const Dataset> dataset_of(const nlohmann::json& settings, std::int64_t outputs,
                                          std::uint64_t seed = 0) {
  job::Training training;
  training.dataset = settings;
  training.model = {{"outputs", outputs}};
  training.seed = seed;
  return make_dataset(training);
}

/// Two files of CIFAR-10, of six and two records.
nlohmann::json cifar_in(const TemporaryDirectory& folder) {
  std::string train;
  for (int i = 0; i < 6; ++i) train += test::cifar_record(std::string(1, static_cast<char>(i)), i);
  write_file(folder.file("train.bin"), train);
  write_file(folder.file("test.bin"), test::cifar_record("\x09", 1) + test::cifar_record("\x08", 2));
  return {{"type", "cifar"},
          {"variant", "cifar10"},
          {"train", folder.file("train.bin")},
          {"validation", folder.file("test.bin")}};
}

/// An IDX file of zeros.
std::string idx_of(const std::vector<char>& sizes) {
  std::string bytes{'\0', '\0', '\x08', static_cast<char>(sizes.size())};
  std::size_t count = 1;
  for (const char size : sizes) {
    bytes += std::string(3, '\0') + size;
    count *= static_cast<std::size_t>(size);
  }
  return bytes + std::string(count, '\0');
}

}  // namespace

TEST_CASE("data sets: images to validate on have the size of those to train on") {
  const TemporaryDirectory folder;
  const nlohmann::json settings{{"type", "idx"}, {"path", folder.path().string()}};
  for (const char* prefix : {"train", "t10k"}) {
    write_file(folder.file(std::string(prefix) + "-images-idx3-ubyte"), idx_of({2, 4, 4}));
    write_file(folder.file(std::string(prefix) + "-labels-idx1-ubyte"), idx_of({2}));
  }
  CHECK(dataset_of(settings, 10)->shape().features == std::vector<std::int64_t>{1, 4, 4});
  write_file(folder.file("t10k-images-idx3-ubyte"), idx_of({2, 4, 5}));
  CHECK_THROWS_WITH(
      dataset_of(settings, 10),
      folder.path().string() + ": images to validate on have shape 1 x 4 x 5, those to train on have shape 1 x 4 x 4");
}

TEST_CASE("data sets: cifar gives images of three channels and classes") {
  const TemporaryDirectory folder;
  const auto dataset = dataset_of(cifar_in(folder), 10);
  CHECK(dataset->shape().features == std::vector<std::int64_t>{3, 32, 32});
  CHECK(dataset->count(Split::kTrain) == 6);
  const std::vector<std::int64_t> indices{5, 0};
  const Batch batch = dataset->gather(Split::kTrain, 1, indices);
  CHECK(batch.features.sizes() == at::IntArrayRef({2, 3, 32, 32}));
  CHECK(batch.target.equal(at::tensor({5, 0}, at::kLong)));
  CHECK(batch.features[0][0][0][1].item<float>() == 6.0f * (1.0f / 255.0f));
  CHECK_THROWS_WITH(dataset_of(cifar_in(folder), 5), Catch::Contains("label 5 of record 5"));
}

TEST_CASE("data sets: transforms change with the epoch and the seed in training, and not in validation") {
  const TemporaryDirectory folder;
  nlohmann::json settings = cifar_in(folder);
  settings["transforms"] = {{{"type", "random_crop"}, {"padding", 4}},
                            {{"type", "horizontal_flip"}, {"probability", 0.5}},
                            {{"type", "normalize"}, {"mean", {0.5, 0.5, 0.5}}, {"std", {0.25, 0.5, 1.0}}}};
  const auto dataset = dataset_of(settings, 10, 3);
  const std::vector<std::int64_t> all{0, 1, 2, 3, 4, 5};
  const std::vector<std::int64_t> turned{5, 4, 3, 2, 1, 0};
  const auto images = [&](const Dataset& data, int epoch) { return data.gather(Split::kTrain, epoch, all).features; };
  CHECK(images(*dataset, 1).equal(images(*dataset, 1)));
  CHECK_FALSE(images(*dataset, 1).equal(images(*dataset, 2)));
  CHECK_FALSE(images(*dataset, 1).equal(images(*dataset_of(settings, 10, 4), 1)));
  CHECK(images(*dataset, 1).flip(0).equal(dataset->gather(Split::kTrain, 1, turned).features));
  const std::vector<std::int64_t> two{0, 1};
  const at::Tensor validation = dataset->gather(Split::kValidation, 1, two).features;
  CHECK(validation.equal(dataset->gather(Split::kValidation, 2, two).features));
  const at::Tensor plain = dataset_of(cifar_in(folder), 10)->gather(Split::kValidation, 1, two).features;
  const at::Tensor deviation = at::tensor({0.25, 0.5, 1.0}).view({1, 3, 1, 1}).to(at::kFloat);
  CHECK(validation.equal((plain - 0.5) / deviation));  // As torchvision's Normalize, to the bit.
}

TEST_CASE("data sets: rows of numbers come with classes or numbers") {
  const TemporaryDirectory folder;
  write_file(folder.file("a.csv"), "x,y,z\n1,2,0\n3,4,1\n");
  nlohmann::json csv{{"type", "csv"},
                     {"train", folder.file("a.csv")},
                     {"validation", folder.file("a.csv")},
                     {"columns", {{"target", "z"}}}};
  const std::vector<std::int64_t> indices{1, 0};
  const Batch classes = dataset_of(csv, 2)->gather(Split::kTrain, 1, indices);
  CHECK(classes.features.equal(at::tensor({3.0f, 4.0f, 1.0f, 2.0f}).view({2, 2})));
  CHECK(classes.target.equal(at::tensor({1, 0}, at::kLong)));
  csv["targets"] = "numbers";
  const Batch numbers = dataset_of(csv, 1)->gather(Split::kValidation, 1, indices);
  CHECK(numbers.target.equal(at::tensor({1.0f, 0.0f}).view({2, 1})));
  CHECK_THROWS_WITH(dataset_of(csv, 2), "a target of the data set has 1 numbers, and the model gives 2 outputs");
  const nlohmann::json synthetic{{"type", "synthetic"}, {"shape", {2, 3}}, {"samples", 4}, {"classes", 3}};
  const Batch batch = dataset_of(synthetic, 3)->gather(Split::kTrain, 1, indices);
  CHECK(batch.features.sizes() == at::IntArrayRef({2, 2, 3}));
}

TEST_CASE("data sets: what is only trained on has nothing to validate on") {
  const TemporaryDirectory folder;
  write_file(folder.file("a.csv"), "x,y,z\n1,2,0\n3,4,1\n");
  job::Training training;
  training.dataset = {{"type", "csv"},
                      {"train", folder.file("a.csv")},
                      {"validation", folder.file("a.csv")},
                      {"columns", {{"target", "z"}}}};
  training.model = {{"outputs", 2}};
  const auto both = make_dataset(training);
  CHECK(both->has_validation());
  CHECK(both->parts().size() == 2);
  training.has_validation = false;
  const auto one = make_dataset(training);
  CHECK_FALSE(one->has_validation());
  REQUIRE(one->parts().size() == 1);
  CHECK(one->parts().front().split == Split::kTrain);
  training.datasets = {{"train", training.dataset}};
  CHECK_FALSE(make_dataset(training)->has_validation());
}

TEST_CASE("data sets: tokens come in windows") {
  const TemporaryDirectory folder;
  write_file(folder.file("t"), test::bytes_of<std::uint16_t>({1, 2, 3, 4, 5}));
  const nlohmann::json settings{{"type", "tokens"},
                                {"train", folder.file("t")},
                                {"validation", folder.file("t")},
                                {"dtype", "u16"},
                                {"length", 2}};
  const auto dataset = dataset_of(settings, 6);
  CHECK(dataset->shape().features == std::vector<std::int64_t>{2});
  CHECK(dataset->shape().outputs == 6);
  const std::vector<std::int64_t> indices{1, 0};
  const Batch batch = dataset->gather(Split::kTrain, 1, indices);
  CHECK(batch.features.equal(at::tensor({3, 4, 1, 2}, at::kLong).view({2, 2})));
  CHECK(batch.target.equal(at::tensor({4, 5, 2, 3}, at::kLong).view({2, 2})));
  CHECK_THROWS_WITH(dataset_of(settings, 5), Catch::Contains("token 5 at place 4"));
}

}  // namespace sgd::worker
