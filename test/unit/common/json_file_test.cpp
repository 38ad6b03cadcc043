#include "common/json/json_file.hpp"

#include <sys/stat.h>

#include <cerrno>
#include <filesystem>

#include <catch2/catch.hpp>

#include "common/json/shallow.hpp"
#include "temporary_folder.hpp"

using namespace sgd;

TEST_CASE("json file: what a file holds is read, with comments") {
  const test::TemporaryFolder folder;
  const std::string path = folder.write("a.json", "{\"b\": 1,  // one\n\"a\": 2}");
  CHECK(json::read_file(path) == nlohmann::json({{"a", 2}, {"b", 1}}));
  CHECK(json::read_ordered_file(path).dump() == R"({"b":1,"a":2})");
  const std::string large(100'000, 'x');
  CHECK(json::text_of_file(folder.write("large", large)).value() == large);
  CHECK(json::text_of_file("/proc/self/status").value().starts_with("Name:"));
}

TEST_CASE("json file: a value of kFileDepthMax levels is read, a deeper one is none, whatever its comments say") {
  const test::TemporaryFolder folder;
  const auto nested = [](int levels) {
    const auto count = static_cast<std::size_t>(levels);
    return std::string(count, '[') + std::string(count, ']');
  };
  CHECK(json::read_file(folder.write("whole", nested(kFileDepthMax))).is_array());
  CHECK(json::read_ordered_file(folder.write("object", "{\"a\": " + nested(kFileDepthMax - 1) + "}")).is_object());
  CHECK(json::read_file(folder.write("text", "[\"" + std::string(1000, '[') + "\"]")).is_array());
  for (const std::string& text :
       {nested(kFileDepthMax + 1), nested(100'000), "/* \" */" + nested(1000), std::string(100'000, '[')})
    CHECK(json::read_file(folder.write("deep", text)).is_discarded());
}

TEST_CASE("json file: what cannot be read is an error, holds nobody up, and nothing throws") {
  const test::TemporaryFolder folder;
  std::filesystem::create_directory(folder.path("folder"));
  REQUIRE(::mkfifo(folder.path("pipe").c_str(), 0600) == 0);
  // Nothing lies at the beginning of our memory: the file opens, and a read of it fails as on a bad disk.
  for (const std::string& path : {folder.path("missing"), folder.path("folder"), folder.path("pipe"),
                                  folder.write("torn", "{\"a\": "), std::string("/proc/self/mem")}) {
    INFO(path);
    CHECK(json::read_file(path).is_discarded());
    CHECK(json::read_ordered_file(path).is_discarded());
  }
  CHECK(json::text_of_file(folder.path("missing")).error().code == ENOENT);
  CHECK(json::text_of_file("/proc/self/mem").error().code == EIO);
}
