// Names, sizes and headers of data files: what is seen without reading the data.

#include <catch2/catch.hpp>

#include "common/data/cifar.hpp"
#include "common/data/file_list.hpp"
#include "common/data/npy.hpp"
#include "common/data/tokens.hpp"
#include "data_bytes.hpp"
#include "temporary_folder.hpp"

namespace sgd::data {
namespace {

using test::npy_file;
using test::npy_header;

std::string npy_message(const std::string& bytes) {
  const test::TemporaryFolder folder;
  const Result<NpyInfo> info = inspect_npy(folder.write("a.npy", bytes));
  if (info.ok()) return "";
  const std::string front = "data file " + folder.path("a.npy") + ": ";
  REQUIRE(info.error().message.substr(0, front.size()) == front);
  return info.error().message.substr(front.size());
}

}  // namespace

TEST_CASE("data files: globs give their files in the order of names, and each only once") {
  const test::TemporaryFolder folder;
  for (const char* name : {"b-2.csv", "b-10.csv", "a.csv", "[odd].csv"}) folder.write(name, "x");
  const auto found = [&](const std::vector<std::string>& names) {
    std::vector<std::string> patterns;
    for (const std::string& name : names) patterns.push_back(folder.path(name));
    const auto files = find_files(patterns);
    if (!files) return std::vector<std::string>{files.error().message.substr(0, files.error().message.find(" /"))};
    std::vector<std::string> out;
    for (const std::string& file : files.value()) out.push_back(std::filesystem::path(file).filename().string());
    return out;
  };
  CHECK(found({"b-*.csv", "a.csv"}) == std::vector<std::string>{"b-10.csv", "b-2.csv", "a.csv"});
  CHECK(found({"[odd].csv"}) == std::vector<std::string>{"[odd].csv"});
  CHECK(found({"c-*.csv"}) == std::vector<std::string>{"no data file matches"});
  CHECK(found({"c.csv"}) == std::vector<std::string>{"data file"});
  CHECK(found({"a.csv", "a*.csv"}) == std::vector<std::string>{"data file"});
  CHECK_THAT(find_files({folder.path("c.csv")}).error().message, Catch::EndsWith("c.csv does not exist"));
  CHECK_THAT(find_files({folder.path("a.csv"), folder.path("*.csv")}).error().message,
             Catch::EndsWith("a.csv is named twice"));
  CHECK_THAT(find_files({folder.path()}).error().message, Catch::EndsWith(" is not a regular file"));
  CHECK(patterns_of("a") == std::vector<std::string>{"a"});
  CHECK(patterns_of({"a", "b*"}) == std::vector<std::string>{"a", "b*"});
}

TEST_CASE("cifar: records are counted, and a cut one is named") {
  const test::TemporaryFolder folder;
  const CifarLayout ten = cifar_layout("cifar10");
  const CifarLayout hundred = cifar_layout("cifar100");
  CHECK(ten.record_bytes() == 3073);
  CHECK(hundred.record_bytes() == 3074);
  CHECK(hundred.label_at == 1);
  CHECK(cifar_layout("cifar100_coarse").label_at == 0);
  const std::string two = test::cifar_record("a", 0) + test::cifar_record("b", 0);
  CHECK(inspect_cifar(folder.write("two", two), ten).value() == 2);
  CHECK_THAT(inspect_cifar(folder.write("cut", two + "abc"), ten).error().message,
             Catch::EndsWith("cut is truncated: record 2 (the first is 0) has 3 bytes, expected 3073"));
  CHECK_THAT(
      inspect_cifar(folder.write("two", two), hundred).error().message,
      Catch::Contains("has records of 3073 bytes, expected 3074") && Catch::Contains("training.dataset.variant"));
  CHECK_THAT(inspect_cifar(folder.write("none", ""), ten).error().message,
             Catch::EndsWith("none is empty, expected records of 3073 bytes"));
  CHECK_THAT(inspect_cifar(folder.path("absent"), ten).error().message, Catch::Contains("No such file"));
}

TEST_CASE("tokens: windows share their borders, and what does not fill one is left") {
  const test::TemporaryFolder folder;
  const auto windows = [&](std::size_t bytes, std::int64_t width, std::int64_t length) {
    return inspect_tokens(folder.write("t.bin", std::string(bytes, 'x')), width, length);
  };
  CHECK(windows(2 * 9, 2, 4).value() == 2);
  CHECK(windows(2 * 12, 2, 4).value() == 2);
  CHECK(windows(4 * 5, 4, 4).value() == 1);
  CHECK_THAT(windows(2 * 4, 2, 4).error().message,
             Catch::EndsWith("t.bin has 4 tokens, expected at least 5: a window is length + 1"));
  CHECK_THAT(windows(21, 4, 4).error().message,
             Catch::EndsWith("t.bin is truncated: token 5 (the first is 0) has 1 byte, expected 4"));
  CHECK(token_bytes("u8") == 1);
  CHECK(token_bytes("u16") == 2);
  CHECK(token_bytes("u32") == 4);
}

TEST_CASE("npy: headers of both versions") {
  const test::TemporaryFolder folder;
  for (const int version : {1, 2}) {
    const std::string bytes = npy_file(npy_header("<f4", "(3, 2)"), std::string(24, 'x'), version);
    const Result<NpyInfo> info = inspect_npy(folder.write("a.npy", bytes));
    REQUIRE(info.ok());
    CHECK(info.value().type == NpyType::kF4);
    CHECK(info.value().shape == std::vector<std::int64_t>{3, 2});
    CHECK(info.value().sample_numbers() == 2);
    CHECK(info.value().header_bytes % 64 == 0);
    CHECK_FALSE(info.value().is_integer());
  }
  // As others write it: another order, no blanks, double quotes, no comma at the end.
  CHECK(npy_message(npy_file("{\"shape\":(4,),\"fortran_order\":False,\"descr\":\"|u1\"}", "abcd")).empty());
}

TEST_CASE("npy: what is no array of ours is refused with what was expected") {
  struct NpyRow {
    std::string bytes;
    const char* message;
  };
  const std::string good = npy_header("<f4", "(3,)");
  for (const NpyRow& row : std::vector<NpyRow>{
           {"", "not .npy: it does not begin with \\x93NUMPY"},
           {"PK\x03\x04 is a zip file", "not .npy: it does not begin with \\x93NUMPY"},
           {std::string("\x93NUMPY\x01", 7), "truncated in its header"},
           {npy_file(good, "").substr(0, 40), "truncated in its header"},
           {npy_file(good, std::string(12, 'x'), 3), "version 3, expected 1 or 2"},
           {npy_file(npy_header("<f4", "(3,)"), std::string(11, 'x')),
            "truncated: its shape asks for more than the 11 bytes behind its header"},
           {npy_file(npy_header("<f4", "(3,)"), std::string(13, 'x')),
            "too long: its shape asks for 12 bytes, 13 are behind its header"},
           {npy_file(npy_header("<f4", "(9223372036854775807, 9223372036854775807)"), "x"),
            "truncated: its shape asks for more than the 1 bytes behind its header"},
           {npy_file(npy_header("<f4", "(0, 3)"), ""), "it holds nothing: dimension 0 is 0"},
           {npy_file(npy_header("<f4", "()"), "abcd"), "one number, expected an array of samples"},
           {npy_file(npy_header("|u1", "(1, 1, 1, 1, 1, 1, 1, 1, 1)"), "a"), "9 dimensions, at most 8"},
           {npy_file(npy_header(">f4", "(3,)"), ""),
            "numbers of type '>f4', expected '<f4', '<f8', '<i4', '<i8' or '|u1': convert it with array.astype('<f4')"},
           {npy_file("{'descr': '<f4', 'fortran_order': True, 'shape': (3,), }", ""),
            "in Fortran order, expected C order: save numpy.ascontiguousarray(array)"},
           {npy_file("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", ""),
            "byte 10 of its header's text: expected one type of numbers (a structured array is none)"},
           {npy_file("{'descr': '<f4', 'fortran_order': False}", ""),
            "byte 40 of its header's text: expected 'descr', 'fortran_order' and 'shape', each once"},
           {npy_file("{'descr': '<f4', 'descr': '<f4'}", ""),
            "byte 25 of its header's text: expected 'descr', 'fortran_order' and 'shape', each once"},
           {npy_file("{'descr': '<f4', 'fortran_order': 0}", ""),
            "byte 34 of its header's text: expected True or False"},
           {npy_file(npy_header("<f4", "(3 3)"), ""), "byte 53 of its header's text: expected ',' or ')' in the shape"},
           {npy_file(npy_header("<f4", "(-3,)"), ""), "byte 51 of its header's text: expected a dimension"},
           {npy_file(npy_header("<f4", "3"), ""), "byte 50 of its header's text: expected '(' of the shape"},
           {npy_file(good + "x", ""), "byte 57 of its header's text: expected nothing behind '}'"},
           {npy_file("descr", ""), "byte 0 of its header's text: expected '{'"},
       }) {
    INFO(row.bytes);
    CHECK(npy_message(row.bytes) == row.message);
  }
}

TEST_CASE("npy: limits of the header, and of samples") {
  const std::string long_header = npy_file(std::string(70000, ' '), "", 2);
  CHECK_THAT(npy_message(long_header), Catch::Contains("bytes, at most 65536"));  // kNpyHeaderBytesMax
  CHECK(check_sample_count("it", kSamplesMax).ok());
  CHECK(check_sample_count("it", kSamplesMax + 1).error().message ==
        "it has 4294967296 samples, expected 1 to 4294967295");
  CHECK_FALSE(check_sample_count("it", 0).ok());
}

TEST_CASE("npy: features and targets belong together") {
  const test::TemporaryFolder folder;
  const std::string three = folder.write("x.npy", npy_file(npy_header("<f4", "(3, 2)"), std::string(24, 'x')));
  const std::string labels = folder.write("y.npy", npy_file(npy_header("|u1", "(3,)"), "abc"));
  const std::string two = folder.write("two.npy", npy_file(npy_header("|u1", "(2,)"), "ab"));
  CHECK(inspect_npy_pair(three, labels, true).ok());
  CHECK_THAT(inspect_npy_pair(three, two, true).error().message,
             Catch::StartsWith("3 samples in ") && Catch::Contains("2 targets in "));
  CHECK_THAT(inspect_npy_pair(three, three, true).error().message, Catch::Contains("expected integers: classes"));
  CHECK(inspect_npy_pair(three, three, false).ok());
  const std::string pairs = folder.write("pairs.npy", npy_file(npy_header("|u1", "(3, 2)"), "abcdef"));
  CHECK_THAT(inspect_npy_pair(three, pairs, true).error().message, Catch::Contains("2 numbers a sample, expected 1"));
}

}  // namespace sgd::data
