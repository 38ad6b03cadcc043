#include "worker/core/safetensors.hpp"

#include <catch2/catch.hpp>

#include <fcntl.h>
#include <unistd.h>

#include <cstring>

#include <fmt/format.h>

#include "common/checkpoint/crc32c.hpp"
#include "test/unit/worker/temporary_directory.hpp"

namespace sgd::worker {
namespace {

using testing::read_file;
using testing::TemporaryDirectory;
using testing::write_file;

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

std::uint32_t crc_of(const std::string& text) {
  return checkpoint::crc32c(0, std::as_bytes(std::span(text)));
}

std::string file_bytes(const std::string& header, const std::string& data) {
  const std::uint64_t size = header.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + header + data;
}

TEST_CASE("safetensors: what was written is read back") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("model.safetensors");
  const std::vector<float> weight = {1, 2, 3, 4, 5, -0.0f};
  const std::vector<std::int64_t> steps = {1'000'000'000'000};
  std::vector<TensorBytes> tensors;
  tensors.push_back({"a.weight", TensorType::kF32, {2, 3}, bytes_of(weight)});
  tensors.push_back({"empty", TensorType::kF32, {0, 4}, {}});
  tensors.push_back({"steps", TensorType::kI64, {}, bytes_of(steps)});
  const Result<WrittenFile> written = write_safetensors(path, tensors, {{"format", "pt"}, {"note", "\"quoted\""}});
  REQUIRE(written);
  const std::string bytes = read_file(path);
  CHECK(written.value().bytes == bytes.size());
  CHECK(written.value().crc32c == crc_of(bytes));
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), 8);
  CHECK(header_bytes % 8 == 0);
  CHECK(bytes.size() == 8 + header_bytes + 24 + 8);

  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  REQUIRE(file);
  CHECK(file.value().metadata() == std::map<std::string, std::string>{{"format", "pt"}, {"note", "\"quoted\""}});
  CHECK(file.value().tensors().size() == 3);
  const TensorBytes* found = file.value().find("a.weight");
  REQUIRE(found != nullptr);
  CHECK(found->type == TensorType::kF32);
  CHECK(found->shape == std::vector<std::int64_t>{2, 3});
  CHECK(std::memcmp(found->bytes.data(), weight.data(), 24) == 0);
  CHECK(file.value().find("steps")->shape.empty());
  CHECK(file.value().find("empty")->bytes.empty());
  CHECK(file.value().find("b.weight") == nullptr);
}

TEST_CASE("safetensors: a file of many pieces keeps its checksum") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("large");
  std::vector<float> values(3'000'001);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
  const std::vector<TensorBytes> tensors = {{"x", TensorType::kF32, {3'000'001}, bytes_of(values)}};
  const Result<WrittenFile> written = write_safetensors(path, tensors);
  REQUIRE(written);
  CHECK(written.value().crc32c == crc_of(read_file(path)));
}

TEST_CASE("safetensors: an existing file is not overwritten, a full disk is an error") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("there");
  write_file(path, "precious");
  const std::vector<float> values(4096);
  const std::vector<TensorBytes> tensors = {{"x", TensorType::kF32, {4096}, bytes_of(values)}};
  const auto refused = write_safetensors(path, tensors);
  REQUIRE_FALSE(refused);
  CHECK_THAT(refused.error().message, Catch::Contains(path));
  CHECK(read_file(path) == "precious");
  const int full = ::open("/dev/full", O_WRONLY | O_CLOEXEC);
  REQUIRE(full >= 0);
  const auto failed = write_safetensors(full, "weights", tensors);
  ::close(full);
  REQUIRE_FALSE(failed);
  CHECK(failed.error().message == "weights: No space left on device");
}

TEST_CASE("safetensors: the reader refuses what is not exactly well formed") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("bad");
  const auto refuse = [&](const std::string& bytes, const std::string& part) {
    write_file(path, bytes);
    const auto file = SafetensorsFile::open(path);
    CAPTURE(bytes);
    REQUIRE_FALSE(file);
    CHECK_THAT(file.error().message,
               Catch::StartsWith(path + ": not a valid safetensors file: ") && Catch::Contains(part));
  };
  const auto tensor = [](const std::string& begin, const std::string& end) {
    return fmt::format(R"({{"dtype":"F32","shape":[1],"data_offsets":[{},{}]}})", begin, end);
  };
  const auto only = [](const std::string& entry) { return fmt::format("{{\"a\":{}}}", entry); };
  refuse("", "too short");
  refuse("1234567", "too short");
  refuse(std::string(8, '\xff'), "its header would have");
  refuse(std::string("\x09\0\0\0\0\0\0\0{}", 10), "ends within its header");
  refuse(file_bytes("[]", ""), "not a JSON object");
  refuse(file_bytes("{\"a\":", ""), "not a JSON object");
  refuse(file_bytes(std::string(100'000, '['), ""), "not a JSON object");
  refuse(file_bytes(fmt::format("{{\"a\":{},\"a\":{}}}", tensor("0", "4"), tensor("4", "8")), "12345678"),
         "'a' occurs twice");
  refuse(file_bytes(only(tensor("0", "4")), "123"), "lies outside");
  refuse(file_bytes(only(tensor("4", "0")), "12345678"), "lies outside");
  refuse(file_bytes(only(tensor("0", "8")), "12345678"), "its shape needs 4");
  refuse(file_bytes(only(tensor("-4", "0")), "1234"), "no usable data_offsets");
  refuse(file_bytes(only(tensor("0", "4")), "12345"), "1 data bytes belong to no tensor");
  refuse(file_bytes(only(tensor("1", "5")), "12345"), "gap");
  refuse(file_bytes(fmt::format("{{\"a\":{},\"b\":{}}}", tensor("0", "4"), tensor("2", "6")), "123456"),
         "'b' overlaps");
  refuse(file_bytes(R"({"a":{"dtype":"F31","shape":[1],"data_offsets":[0,4]}})", "1234"), "unknown dtype \"F31\"");
  refuse(file_bytes(R"({"a":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}})", "1234"), "bad extent");
  refuse(file_bytes(R"({"a":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,4]}})", "1234"),
         "too large");
  refuse(file_bytes(R"({"a":{"dtype":"F32","shape":[1]}})", "1234"), "exactly dtype");
  refuse(file_bytes(R"({"a":1})", ""), "exactly dtype");
  const std::string ones = fmt::format("{}", fmt::join(std::vector<int>(65, 1), ","));
  refuse(file_bytes(R"({"a":{"dtype":"F32","shape":[)" + ones + R"(],"data_offsets":[0,4]}})", "1234"),
         "no usable shape");
  refuse(file_bytes(R"({"__metadata__":{"a":1}})", ""), "not text");
  const std::string deep = std::string(200'000, '[') + std::string(200'000, ']');
  refuse(file_bytes(R"({"a":{"dtype":)" + deep + R"(,"shape":[1],"data_offsets":[0,4]}})", "1234"), "nested too deep");
  const auto absent = SafetensorsFile::open(directory.file("absent"));
  REQUIRE_FALSE(absent);
  CHECK_THAT(absent.error().message, Catch::Contains("No such file"));
}

TEST_CASE("safetensors: every cut and every flipped header bit of a file is refused or harmless") {
  const TemporaryDirectory directory;
  const std::string path = directory.file("good");
  const std::vector<float> values = {1, 2, 3};
  REQUIRE(write_safetensors(path, std::vector<TensorBytes>{{"w", TensorType::kF32, {3}, bytes_of(values)}}));
  const std::string good = read_file(path);
  const std::string other = directory.file("other");
  for (std::size_t size = 0; size < good.size(); ++size) {
    write_file(other, good.substr(0, size));
    CHECK_FALSE(SafetensorsFile::open(other));
  }
  for (std::size_t bit = 0; bit < (good.size() - 12) * 8; ++bit) {
    std::string damaged = good;
    damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
    write_file(other, damaged);
    const auto file = SafetensorsFile::open(other);
    if (file && !file.value().tensors().empty()) CHECK(file.value().tensors()[0].bytes.size() == 12);
  }
}

}  // namespace
}  // namespace sgd::worker
