// Every transcript must read exactly as the machines speak now.

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <vector>

#include <catch2/catch.hpp>

#include "test/scenario/story.hpp"

namespace {

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::filesystem::path> transcripts() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(SGD_TRANSCRIPTS)) paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace

TEST_CASE("transcripts") {
  const bool rewrite = std::getenv("SGD_REWRITE") != nullptr;
  const auto paths = transcripts();
  REQUIRE_FALSE(paths.empty());
  for (const auto& path : paths) {
    const std::string expected = read_file(path);
    const std::string now = sgd::test::replay(expected);
    INFO(path.filename().string());
    if (rewrite) {
      std::ofstream(path) << now;
    } else {
      CHECK(now == expected);
    }
  }
}

TEST_CASE("the same story twice gives the same bytes") {
  for (const auto& path : transcripts()) {
    const std::string text = read_file(path);
    CHECK(sgd::test::replay(text) == sgd::test::replay(text));
  }
}
