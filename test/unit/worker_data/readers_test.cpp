// CIFAR, .npy, tokens and synthetic samples: what is read, and what is said before training.

#include <catch2/catch.hpp>

#include "test/unit/common/data_bytes.hpp"
#include "test/unit/common/temporary_folder.hpp"
#include "worker/data/cifar_dataset.hpp"
#include "worker/data/npy_dataset.hpp"
#include "worker/data/open_reader.hpp"
#include "worker/data/synthetic_dataset.hpp"
#include "worker/data/token_dataset.hpp"

namespace sgd::worker {
namespace {

using test::bytes_of;
using test::npy_file;
using test::npy_header;
using Indices = std::vector<std::int64_t>;

struct Gathered {
  std::vector<float> features;
  Indices classes;
  std::vector<float> numbers;
};

Gathered gathered(const SampleReader& reader, const Indices& indices) {
  std::size_t each = 1;
  for (const std::int64_t size : reader.sample_shape()) each *= static_cast<std::size_t>(size);
  Gathered out{std::vector<float>(indices.size() * each, -7), Indices(indices.size(), -7),
               std::vector<float>(indices.size() * static_cast<std::size_t>(reader.target_numbers()), -7)};
  REQUIRE(reader.gather(indices, out.features.data(), {out.classes.data(), out.numbers.data()}).ok());
  return out;
}

}  // namespace

TEST_CASE("cifar: images and labels of several files, in any order") {
  const test::TemporaryFolder folder;
  const std::vector<std::string> files{folder.write("a", test::cifar_record("\x03", 0) + test::cifar_record("\x04", 1)),
                                       folder.write("b", test::cifar_record("\x05", 2))};
  const auto dataset = CifarDataset::open(files, data::cifar_layout("cifar10"), 10);
  REQUIRE(dataset.ok());
  CHECK(dataset.value().count() == 3);
  CHECK(dataset.value().image(2)[0] == 2);
  const Indices indices{2, 0, 1, 2};
  std::vector<float> images(indices.size() * 3072);
  Indices labels(indices.size());
  dataset.value().gather_images(indices, images.data());
  dataset.value().gather_labels(indices, labels.data());
  CHECK(labels == Indices{5, 3, 4, 5});
  for (std::size_t i = 0; i < images.size(); ++i) {
    const auto pixel = static_cast<std::uint8_t>(static_cast<std::size_t>(indices[i / 3072]) + i % 3072);
    REQUIRE(images[i] == static_cast<float>(pixel) * (1.0f / 255.0f));
  }
}

TEST_CASE("cifar: of CIFAR-100's two labels the one that is asked for") {
  const test::TemporaryFolder folder;
  const std::vector<std::string> files{folder.write("a", test::cifar_record("\x07\x2a", 0))};
  CHECK(CifarDataset::open(files, data::cifar_layout("cifar100"), 100).value().label(0) == 42);
  CHECK(CifarDataset::open(files, data::cifar_layout("cifar100_coarse"), 20).value().label(0) == 7);
  CHECK(CifarDataset::open(files, data::cifar_layout("cifar100"), 100).value().image(0)[1] == 1);
}

TEST_CASE("cifar: a label that is none of the classes names its record") {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a", test::cifar_record("\x03", 0) + test::cifar_record("\x0a", 1));
  const auto ten = CifarDataset::open({path}, data::cifar_layout("cifar10"), 100);
  REQUIRE_FALSE(ten.ok());
  CHECK(ten.error().message == "data file " + path +
                                   ": label 10 of record 1 (the first is 0) is outside 0..9, what the model gives "
                                   "outputs for");
  CHECK_THAT(CifarDataset::open({path}, data::cifar_layout("cifar10"), 3).error().message,
             Catch::Contains("label 3 of record 0") && Catch::Contains("0..2"));
}

TEST_CASE("npy: every type of numbers becomes float32") {
  const test::TemporaryFolder folder;
  struct Array {
    const char* descr;
    std::string payload;
  };
  const std::string labels =
      folder.write("y.npy", npy_file(npy_header("<i8", "(3,)"), bytes_of<std::int64_t>({2, 0, 1})));
  for (const Array& array :
       {Array{"<f4", bytes_of<float>({0, 1, 2, 3, 4, 5})}, Array{"<f8", bytes_of<double>({0, 1, 2, 3, 4, 5})},
        Array{"<i4", bytes_of<std::int32_t>({0, 1, 2, 3, 4, 5})},
        Array{"<i8", bytes_of<std::int64_t>({0, 1, 2, 3, 4, 5})},
        Array{"|u1", bytes_of<std::uint8_t>({0, 1, 2, 3, 4, 5})}}) {
    INFO(array.descr);
    const std::string path = folder.write("x.npy", npy_file(npy_header(array.descr, "(3, 2)"), array.payload));
    const ReaderResult reader = NpyDataset::open(path, labels, 3);
    REQUIRE(reader.ok());
    CHECK(reader.value()->count() == 3);
    CHECK(reader.value()->sample_shape() == Indices{2});
    const Gathered batch = gathered(*reader.value(), {2, 0, 2});
    CHECK(batch.features == std::vector<float>{4, 5, 0, 1, 4, 5});
    CHECK(batch.classes == Indices{1, 2, 1});
  }
}

TEST_CASE("npy: targets that are numbers, and a shape without a second dimension") {
  const test::TemporaryFolder folder;
  const std::string x = folder.write("x.npy", npy_file(npy_header("<f4", "(2,)"), bytes_of<float>({5, 6})));
  const std::string y = folder.write("y.npy", npy_file(npy_header("<f8", "(2, 2)"), bytes_of<double>({1, 2, 3, 4}), 2));
  const ReaderResult reader = NpyDataset::open(x, y, 0);
  REQUIRE(reader.ok());
  CHECK(reader.value()->sample_shape() == Indices{1});
  CHECK(reader.value()->target_numbers() == 2);
  const Gathered batch = gathered(*reader.value(), {1, 0});
  CHECK(batch.features == std::vector<float>{6, 5});
  CHECK(batch.numbers == std::vector<float>{3, 4, 1, 2});
}

TEST_CASE("npy: a class that the model has no output for names its sample") {
  const test::TemporaryFolder folder;
  std::vector<std::int32_t> classes(3000, 1);
  classes[2500] = -1;
  const std::string x = folder.write("x.npy", npy_file(npy_header("|u1", "(3000,)"), std::string(3000, 'x')));
  const std::string y = folder.write("y.npy", npy_file(npy_header("<i4", "(3000,)"), bytes_of(classes)));
  const ReaderResult reader = NpyDataset::open(x, y, 10);
  REQUIRE_FALSE(reader.ok());
  CHECK_THAT(reader.error().message,
             Catch::Contains("y.npy: label -1 of sample 2500 (the first is 0) is outside 0..9"));
}

TEST_CASE("tokens: windows of several files, each shifted by one for the target") {
  const test::TemporaryFolder folder;
  const std::vector<std::string> files{folder.write("a", bytes_of<std::uint16_t>({0, 1, 2, 3, 4, 5, 6, 7})),
                                       folder.write("b", bytes_of<std::uint16_t>({10, 11, 12, 13}))};
  const auto dataset = TokenDataset::open(files, 2, 3, 20);
  REQUIRE(dataset.ok());
  CHECK(dataset.value().count() == 3);
  Indices features(6), target(6);
  dataset.value().gather(Indices{2, 1}, features.data(), target.data());
  CHECK(features == Indices{10, 11, 12, 3, 4, 5});
  CHECK(target == Indices{11, 12, 13, 4, 5, 6});
}

TEST_CASE("tokens: bytes of a text are tokens, too") {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a.txt", "abc\xff");
  const auto dataset = TokenDataset::open({path}, 1, 3, 256);
  REQUIRE(dataset.ok());
  CHECK(dataset.value().count() == 1);
  Indices features(3), target(3);
  dataset.value().gather(Indices{0}, features.data(), target.data());
  CHECK(features == Indices{'a', 'b', 'c'});
  CHECK(target == Indices{'b', 'c', 255});
  CHECK_THAT(TokenDataset::open({path}, 1, 3, 255).error().message, Catch::Contains("token 255 at place 3"));
}

TEST_CASE("tokens: one that the model does not know names its place") {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a", bytes_of<std::uint32_t>({7, 1, 70000, 3}));
  CHECK(TokenDataset::open({path}, 4, 3, 70001).ok());
  const auto dataset = TokenDataset::open({path}, 4, 3, 70000);
  REQUIRE_FALSE(dataset.ok());
  CHECK_THAT(dataset.error().message,
             Catch::Contains("a: token 70000 at place 2 (the first is 0) is outside 0..69999"));
}

TEST_CASE("synthetic: a sample is a function of the seed and its number") {
  const SyntheticSettings settings{{3, 5}, 4, 1000, 7};
  const SyntheticDataset train(settings, Split::kTrain);
  const Gathered all = gathered(train, {5, 6, 5});
  CHECK(gathered(train, {6}).features == std::vector<float>(all.features.begin() + 15, all.features.begin() + 30));
  CHECK(std::equal(all.features.begin(), all.features.begin() + 15, all.features.begin() + 30));
  SyntheticSettings longer = settings;
  longer.samples = 5000;
  CHECK(gathered(SyntheticDataset(longer, Split::kTrain), {5}).features == gathered(train, {5}).features);
  CHECK(gathered(SyntheticDataset(settings, Split::kValidation), {5}).features != gathered(train, {5}).features);
  SyntheticSettings other = settings;
  other.seed = 8;
  CHECK(gathered(SyntheticDataset(other, Split::kTrain), {5}).features != gathered(train, {5}).features);
  // Written down, so that a change of the arithmetic is seen: samples are the same on every machine and in every
  // version.
  CHECK(gathered(train, {0, 1, 2, 3, 4, 5, 6, 7}).classes == Indices{3, 1, 3, 1, 1, 3, 2, 2});
}

TEST_CASE("synthetic: there is something to learn, and all classes come") {
  const SyntheticDataset classes({{8}, 4, 400, 1}, Split::kTrain);
  Indices indices(400);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  const Gathered batch = gathered(classes, indices);
  double means[4] = {};
  int counts[4] = {};
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto label = static_cast<std::size_t>(batch.classes[i]);
    REQUIRE(label < 4);
    ++counts[label];
    for (std::size_t j = 0; j < 8; ++j) {
      REQUIRE(std::abs(batch.features[i * 8 + j]) <= 1.5f);
      means[label] += static_cast<double>(batch.features[i * 8 + j]) * (j % 2 == 0 ? 1 : -1);
    }
  }
  for (std::size_t label = 0; label < 4; ++label) {
    CHECK(counts[label] > 60);
    means[label] /= counts[label];
  }
  CHECK(std::abs(means[0] - means[1]) + std::abs(means[1] - means[2]) + std::abs(means[2] - means[3]) > 0.5);
  const SyntheticDataset numbers({{8}, 0, 400, 1}, Split::kTrain);
  CHECK(numbers.target_numbers() == 1);
  const Gathered line = gathered(numbers, indices);
  CHECK(*std::max_element(line.numbers.begin(), line.numbers.end()) > 0.3f);
  CHECK(*std::min_element(line.numbers.begin(), line.numbers.end()) < -0.3f);
}

TEST_CASE("readers are opened by what a job says") {
  const test::TemporaryFolder folder;
  folder.write("x.npy", npy_file(npy_header("<f4", "(2, 1)"), bytes_of<float>({5, 6})));
  folder.write("y.npy", npy_file(npy_header("|u1", "(2,)"), "\x01\x02"));
  const nlohmann::json files{{"features", folder.path("x.npy")}, {"target", folder.path("y.npy")}};
  nlohmann::json npy{{"type", "npy"}, {"train", files}, {"validation", files}, {"targets", "classes"}};
  CHECK(open_reader(npy, Split::kTrain, 3).value()->count() == 2);
  CHECK_FALSE(open_reader(npy, Split::kValidation, 2).ok());
  npy["targets"] = "numbers";
  CHECK(open_reader(npy, Split::kValidation, 2).value()->target_numbers() == 1);
  folder.write("r.csv", "a,y\n1,0\n2,1\n");
  const nlohmann::json csv{{"type", "csv"},
                           {"train", folder.path("*.csv")},
                           {"validation", folder.path("none-*.csv")},
                           {"columns", {{"target", "y"}}}};
  CHECK(open_reader(csv, Split::kTrain, 2).value()->count() == 2);
  CHECK_THAT(open_reader(csv, Split::kValidation, 2).error().message, Catch::StartsWith("no data file matches"));
  const nlohmann::json synthetic{
      {"type", "synthetic"}, {"shape", {2, 3}}, {"samples", 5}, {"validation_samples", 6}, {"classes", 4}};
  CHECK(open_reader(synthetic, Split::kTrain, 4).value()->sample_shape() == Indices{2, 3});
  CHECK(open_reader(synthetic, Split::kValidation, 4).value()->count() == 6);
  CHECK(open_reader(synthetic, Split::kValidation, 3).error().message ==
        "the data set has 4 classes, and the model gives 3 outputs");
  folder.write("c.bin", test::cifar_record("\x01", 0));
  const nlohmann::json cifar{{"type", "cifar"}, {"train", folder.path("c.bin")}, {"variant", "cifar10"}};
  CHECK(open_cifar(cifar, Split::kTrain, 10).value().label(0) == 1);
  folder.write("t.bin", bytes_of<std::uint32_t>({1, 2, 3, 4, 5}));
  const nlohmann::json tokens{{"type", "tokens"}, {"train", {folder.path("t.bin")}}, {"dtype", "u32"}, {"length", 2}};
  CHECK(open_tokens(tokens, Split::kTrain, 6).value().count() == 2);
}

}  // namespace sgd::worker
