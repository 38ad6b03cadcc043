// IDX files as they come: whole, cut, foreign. No bytes are unpacked beyond the header.

#include <zlib.h>

#include <filesystem>

#include <catch2/catch.hpp>

#include "common/data/idx.hpp"
#include "common/job/load.hpp"
#include "job_support.hpp"
#include "temporary_folder.hpp"

namespace sgd::data {
namespace {

std::string number(std::uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(value >> shift & 0xff));
  return out;
}

std::string idx(const std::vector<std::uint32_t>& dims, char type = 0x08) {
  std::string out{'\0', '\0', type, static_cast<char>(dims.size())};
  std::size_t bytes = 1;
  for (const std::uint32_t dim : dims) {
    out += number(dim);
    bytes *= dim;
  }
  return out + std::string(bytes, 'p');
}

std::string gzip(const std::string& text) {
  z_stream stream{};
  REQUIRE(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  REQUIRE(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

void write_split(const test::TemporaryFolder& folder, const std::string& prefix, std::uint32_t images,
                 std::uint32_t labels) {
  folder.write(prefix + "-images-idx3-ubyte.gz", gzip(idx({images, 12, 12})));
  folder.write(prefix + "-labels-idx1-ubyte", idx({labels}));
}

}  // namespace

TEST_CASE("idx: whole files, plain and gzip") {
  const test::TemporaryFolder folder;
  for (const bool packed : {false, true}) {
    const std::string bytes = idx({10, 4, 5});
    const auto info = inspect_idx(folder.write("f", packed ? gzip(bytes) : bytes));
    REQUIRE(info.ok());
    CHECK(info.value().compressed == packed);
    CHECK(info.value().dims == std::vector<std::uint32_t>{10, 4, 5});
    CHECK(info.value().header_bytes == 16);
    CHECK(info.value().payload_bytes == 200);
  }
}

TEST_CASE("idx: a gzip file of several members is whole, wherever they are divided") {
  const test::TemporaryFolder folder;
  const std::string bytes = idx({500, 400, 5});
  for (const std::size_t at : {std::size_t{3}, std::size_t{500}, bytes.size() - 1}) {
    const auto info = inspect_idx(folder.write("f", gzip(bytes.substr(0, at)) + gzip(bytes.substr(at))));
    REQUIRE(info.ok());
    CHECK(info.value().compressed);
    CHECK(info.value().payload_bytes == 1'000'000);
  }
  // Numbers that cannot be packed, so that the second member begins near the end of a piece that is looked at at once.
  std::string labels = idx({70'000});
  std::uint32_t state = 1;
  for (std::size_t i = 8; i < labels.size(); ++i)
    labels[i] = static_cast<char>((state = state * 1664525 + 1013904223) >> 24);
  for (std::size_t at = 65'480; at < 65'520; ++at)
    CHECK(inspect_idx(folder.write("f", gzip(labels.substr(0, at)) + gzip(labels.substr(at)))).ok());
  const std::string noise = folder.write("f", gzip(idx({1000})) + std::string(200'000, 'n') + std::string(4, '\0'));
  CHECK_FALSE(inspect_idx(noise).ok());
  std::filesystem::resize_file(noise, 33 << 20);
  CHECK(inspect_idx(noise).ok());  // Too large to be searched: unpacking it tells.
}

TEST_CASE("idx: damaged and foreign files are errors that name them") {
  const test::TemporaryFolder folder;
  const std::string whole = idx({10, 4, 5});
  struct Bad {
    std::string bytes;
    const char* error;
  };
  for (const Bad& bad : std::vector<Bad>{
           {"", "is not IDX"},
           {"\x89PNG....", "is not IDX"},
           {std::string("\0\0\x08", 3), "is not IDX"},
           {whole.substr(0, 10), "is truncated in its header"},
           {whole.substr(0, 16), "is truncated: 16 bytes, its header asks for 216"},
           {whole.substr(0, whole.size() - 1), "is truncated: 215 bytes, its header asks for 216"},
           {whole + "x", "is too long: 217 bytes, its header asks for 216"},
           {idx({2}, 0x0d), "IDX type 0x0d is not supported"},
           {idx({}), "0 dimensions"},
           {idx({1, 1, 1, 1, 1}), "5 dimensions"},
           {idx({0, 4, 5}), "holds nothing"},
           {std::string("\0\0\x08\x03", 4) + std::string(12, '\xff'), "claims more than"},
           {gzip(whole).substr(0, 10), "is truncated"},
           {gzip(idx({1000, 4, 5})).substr(0, 60), "is truncated or damaged"},
           {gzip(idx({1000, 4, 5}) + "x"), "is truncated or damaged"},
           {gzip(idx({1000, 4, 5})) + gzip("too long"), "is truncated or damaged"},
           {gzip("text"), "is not IDX"},
       }) {
    INFO(bad.error);
    const std::string path = folder.write("f", bad.bytes);
    const auto info = inspect_idx(path);
    REQUIRE_FALSE(info.ok());
    CHECK(info.error().message.find(path) != std::string::npos);
    CHECK_THAT(info.error().message, Catch::Contains(bad.error));
  }
  CHECK_THAT(inspect_idx(folder.path("absent")).error().message, Catch::Contains("No such file"));
}

TEST_CASE("idx: a folder's splits") {
  const test::TemporaryFolder folder;
  write_split(folder, "train", 20, 20);
  write_split(folder, "t10k", 10, 9);
  const auto files = find_idx(folder.path(""), IdxSplit::kTrain);
  REQUIRE(files.ok());
  CHECK(files.value().images.compressed);
  CHECK_FALSE(files.value().labels.compressed);
  CHECK_THAT(find_idx(folder.path(""), IdxSplit::kValidate).error().message,
             Catch::Contains("10 images in") && Catch::Contains("9 labels in"));
  folder.write("train-images-idx3-ubyte.gz", gzip(idx({20})));
  CHECK_THAT(find_idx(folder.path(""), IdxSplit::kTrain).error().message, Catch::Contains("expected 3"));
  CHECK_THAT(find_idx(folder.path("nowhere"), IdxSplit::kTrain).error().message, Catch::Contains("does not exist"));
}

TEST_CASE("job: data is checked at the path's place") {
  const test::TemporaryFolder folder;
  folder.write("data/t10k-images-idx3-ubyte", "x");
  write_split(folder, "good/train", 20, 20);
  write_split(folder, "good/t10k", 10, 10);
  const auto lines = [&](const std::string& path) {
    job::LoadResult loaded =
        job::load_job_file(folder.write("job.json",
                                        "{\"training\": {\"batch_size\": 8, \"model\": {\"type\": \"cnn\"},\n"
                                        "\"dataset\": {\"type\": \"idx\", \"path\": \"" +
                                            path + "\"}}}"),
                           {});
    REQUIRE(loaded.job.has_value());
    job::check_data(*loaded.job, "job.json", loaded.diagnostics);
    return test::lines_of(loaded.diagnostics, folder.path(""));
  };
  CHECK(lines("good").empty());
  const auto missing = lines("nowhere");
  REQUIRE(missing.size() == 1);
  CHECK_THAT(missing[0], Catch::StartsWith("job.json:2:36: error: data set folder nowhere does not exist"));
  const auto damaged = lines("data");
  REQUIRE(damaged.size() == 2);
  CHECK_THAT(damaged[0], Catch::Contains("has neither train-images-idx3-ubyte"));
  CHECK_THAT(damaged[1], Catch::Contains("t10k-images-idx3-ubyte is not IDX"));
}

}  // namespace sgd::data
