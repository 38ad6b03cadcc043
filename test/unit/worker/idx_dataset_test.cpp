#include "worker/core/idx_dataset.hpp"

#include <catch2/catch.hpp>

#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdlib>
#include <optional>

#include "test/unit/worker/rank_processes.hpp"
#include "test/unit/worker/temporary_directory.hpp"
#include "worker/core/unpack_cache.hpp"

namespace sgd::worker {
namespace {

using testing::read_file;
using testing::TemporaryDirectory;
using testing::write_file;

constexpr std::int64_t kCount = 300, kRows = 5, kColumns = 7;

std::string u32(std::int64_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift & 0xff);
  return text;
}

char pixel(std::int64_t i) {
  return static_cast<char>(i * 31 % 256);
}

std::string image_file() {
  std::string text = std::string("\0\0\x08\x03", 4) + u32(kCount) + u32(kRows) + u32(kColumns);
  for (std::int64_t i = 0; i < kCount * kRows * kColumns; ++i) text += pixel(i);
  return text;
}

std::string label_file() {
  std::string text = std::string("\0\0\x08\x01", 4) + u32(kCount);
  for (std::int64_t i = 0; i < kCount; ++i) text += static_cast<char>(i == 17 ? 200 : i % 10);
  return text;
}

std::string gzipped(const std::string& bytes) {
  const TemporaryDirectory directory;
  const std::string path = directory.file("x.gz");
  const gzFile file = ::gzopen(path.c_str(), "wb");
  ::gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size()));
  ::gzclose(file);
  return read_file(path);
}

// A directory with both files of the training split, and a cache directory of its own.
struct Fixture {
  TemporaryDirectory data, cache;

  explicit Fixture(bool compressed) {
    write_file(images(compressed), compressed ? gzipped(image_file()) : image_file());
    write_file(labels(compressed), compressed ? gzipped(label_file()) : label_file());
    ::setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
  }
  ~Fixture() { ::unsetenv("XDG_CACHE_HOME"); }
  [[nodiscard]] std::string images(bool compressed) const {
    return data.file(std::string("train-images-idx3-ubyte") + (compressed ? ".gz" : ""));
  }
  [[nodiscard]] std::string labels(bool compressed) const {
    return data.file(std::string("train-labels-idx1-ubyte") + (compressed ? ".gz" : ""));
  }
  [[nodiscard]] Result<IdxDataset> open(std::int64_t outputs = 201) const {
    return IdxDataset::open(data.path().string(), Split::kTrain, outputs);
  }
  [[nodiscard]] std::vector<std::filesystem::path> cached() const {
    std::vector<std::filesystem::path> paths;
    const auto directory = cache.path() / "sgd-launch" / "data";
    if (!std::filesystem::exists(directory)) return paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) paths.push_back(entry.path());
    return paths;
  }
};

void check_contents(const IdxDataset& dataset) {
  CHECK(dataset.count() == kCount);
  CHECK(dataset.sample_bytes() == kRows * kColumns);
  CHECK(dataset.sample_shape() == std::vector<std::int64_t>{kRows, kColumns});
  const std::vector<std::int64_t> indices = {299, 0, 5, 5};
  std::vector<float> images(indices.size() * 35, -1.0f);
  dataset.gather_images(indices, images.data());
  for (std::size_t i = 0; i < images.size(); ++i) {
    const std::int64_t place = indices[i / 35] * 35 + static_cast<std::int64_t>(i % 35);
    const auto wanted = static_cast<float>(static_cast<unsigned char>(pixel(place))) * (1.0f / 255.0f);
    CHECK(images[i] == wanted);
  }
  std::vector<std::int64_t> labels(indices.size());
  dataset.gather_labels(indices, labels.data());
  CHECK(labels == std::vector<std::int64_t>{9, 0, 5, 5});
}

TEST_CASE("idx: plain files are mapped as they are") {
  const Fixture fixture(false);
  const auto dataset = fixture.open();
  REQUIRE(dataset);
  check_contents(dataset.value());
  CHECK(fixture.cached().empty());
}

TEST_CASE("idx: a label out of range is found at opening, by file and sample") {
  for (const bool compressed : {false, true}) {
    const Fixture fixture(compressed);
    const auto dataset = fixture.open(10);
    REQUIRE_FALSE(dataset);
    CHECK(dataset.error().message == "data file " + fixture.labels(compressed) +
                                         ": label 200 of sample 17 (the first is 0) is outside 0..9, what the model "
                                         "gives outputs for");
    CHECK_FALSE(fixture.open(200));
    CHECK(fixture.open(201));
  }
}

TEST_CASE("idx: compressed files are unpacked once") {
  const Fixture fixture(true);
  const auto first = fixture.open();
  REQUIRE(first);
  check_contents(first.value());
  const auto cached = fixture.cached();
  REQUIRE(cached.size() == 2);
  std::vector<ino_t> inodes;
  for (const auto& path : cached) {
    struct stat info {};
    REQUIRE(::stat(path.c_str(), &info) == 0);
    inodes.push_back(info.st_ino);
  }
  const auto second = fixture.open();
  REQUIRE(second);
  check_contents(second.value());
  CHECK(fixture.cached() == cached);
  for (std::size_t i = 0; i < cached.size(); ++i) {
    struct stat info {};
    REQUIRE(::stat(cached[i].c_str(), &info) == 0);
    CHECK(info.st_ino == inodes[i]);
  }
}

TEST_CASE("idx: a cached file of the wrong size is made again") {
  const Fixture fixture(true);
  REQUIRE(fixture.open());
  for (const auto& path : fixture.cached()) write_file(path.string(), "cut");
  const auto dataset = fixture.open();
  REQUIRE(dataset);
  check_contents(dataset.value());
}

TEST_CASE("idx: processes that unpack at the same time all get whole data") {
  const Fixture fixture(true);
  const auto errors = testing::run_ranks({4, {}, std::chrono::seconds(60)}, [&](const testing::RankContext& context) {
    for (int i = 0; i < 5; ++i) {
      // The exchange's values are ignored: it only makes the ranks begin together.
      (void)context.exchange("opened " + std::to_string(i), "yes");
      if (context.rank == 0) {
        for (const auto& path : fixture.cached()) std::filesystem::remove(path);
      }
      (void)context.exchange("emptied " + std::to_string(i), "yes");
      const auto dataset = fixture.open();
      testing::expect(dataset.ok(), dataset.ok() ? "" : dataset.error().message);
      testing::expect(dataset.value().images()[1000] == static_cast<unsigned char>(pixel(1000)), "contents");
    }
  });
  for (const std::string& error : errors) CHECK(error == "");
  const auto dataset = fixture.open();
  REQUIRE(dataset);
  check_contents(dataset.value());
  CHECK(fixture.cached().size() == 2);  // No temporary file is left.
}

TEST_CASE("idx: a damaged or truncated gzip file is named and leaves nothing behind") {
  const bool truncated = GENERATE(false, true);
  const Fixture fixture(true);
  std::string bytes = read_file(fixture.images(true));
  if (truncated) {
    // The last four bytes say the unpacked size, which the header check wants right.
    bytes = bytes.substr(0, bytes.size() / 2) + bytes.substr(bytes.size() - 4);
  } else {
    for (std::size_t i = bytes.size() / 2; i < bytes.size() / 2 + 8; ++i) bytes[i] = static_cast<char>(bytes[i] ^ 0x5a);
  }
  write_file(fixture.images(true), bytes);
  const auto dataset = fixture.open();
  REQUIRE_FALSE(dataset);
  CHECK_THAT(dataset.error().message, Catch::Contains(fixture.images(true)) && Catch::Contains("damaged gzip"));
  const auto unpacked = unpacked_file(fixture.images(true), image_file().size());  // Without the header's check.
  REQUIRE_FALSE(unpacked);
  CHECK_THAT(unpacked.error().message, Catch::StartsWith(fixture.images(true) + ": damaged gzip file: "));
  CHECK(fixture.cached().empty());
}

TEST_CASE("idx: gzip files of several members are read as one, and named where they are too short in all") {
  const Fixture fixture(true);
  const std::string images = image_file();
  const std::string labels = label_file();
  write_file(fixture.images(true), gzipped(images.substr(0, 500)) + gzipped(images.substr(500)));
  write_file(fixture.labels(true),
             gzipped(labels.substr(0, 2)) + gzipped(labels.substr(2, 50)) + gzipped(labels.substr(52)));
  {
    const auto dataset = fixture.open();
    REQUIRE(dataset);
    check_contents(dataset.value());
  }
  write_file(fixture.images(true), gzipped(images.substr(0, 400)) + gzipped(images.substr(500)));
  const auto dataset = fixture.open();
  REQUIRE_FALSE(dataset);
  CHECK_THAT(dataset.error().message, Catch::Contains(fixture.images(true)) &&
                                          Catch::Contains("it unpacks to 10416 bytes where its header says"));
}

TEST_CASE("idx: a file that unpacks to another size than its header says is refused") {
  const Fixture fixture(true);
  for (const std::size_t size : {image_file().size() - 1, image_file().size() + 1}) {
    const auto unpacked = unpacked_file(fixture.images(true), size);
    REQUIRE_FALSE(unpacked);
    CHECK_THAT(unpacked.error().message, Catch::Contains("where its header says " + std::to_string(size)));
  }
  CHECK(fixture.cached().empty());
}

TEST_CASE("idx: without a usable cache directory a private one under /tmp is used, or the error names it") {
  const Fixture fixture(true);
  ::setenv("XDG_CACHE_HOME", "/dev/null/nowhere", 1);
  const char* home = std::getenv("HOME");
  const std::optional<std::string> saved = home == nullptr ? std::nullopt : std::optional<std::string>(home);
  ::unsetenv("HOME");
  const auto dataset = fixture.open();
  if (saved) ::setenv("HOME", saved->c_str(), 1);
  REQUIRE(dataset);
  check_contents(dataset.value());
  const std::string own = "/tmp/sgd-launch-" + std::to_string(::geteuid());
  struct stat info {};
  REQUIRE(::lstat(own.c_str(), &info) == 0);
  CHECK((info.st_mode & 0777) == 0700);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(own + "/data", ignored)) {
    if (entry.file_size() == image_file().size() || entry.file_size() == label_file().size()) {
      std::filesystem::remove(entry.path(), ignored);
    }
  }
}

TEST_CASE("idx: an absent directory is named") {
  const auto dataset = IdxDataset::open("/nowhere/at/all", Split::kValidation, 10);
  REQUIRE_FALSE(dataset);
  CHECK_THAT(dataset.error().message, Catch::Contains("/nowhere/at/all"));
}

}  // namespace
}  // namespace sgd::worker
