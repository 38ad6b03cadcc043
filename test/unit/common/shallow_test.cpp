// JSON of a depth that would end whoever copies or prints it.

#include "common/json/shallow.hpp"

#include <catch2/catch.hpp>

using namespace sgd;

namespace {

std::string nested(int levels) {
  const auto count = static_cast<std::size_t>(levels);
  return std::string(count, '[') + std::string(count, ']');
}

}  // namespace

TEST_CASE("shallow: a value of kFileDepthMax levels is read, a deeper one is none") {
  CHECK(parse_shallow<nlohmann::json>(nested(kFileDepthMax)).is_array());
  for (const int levels : {kFileDepthMax + 1, 1'000'000}) {
    CHECK(parse_shallow<nlohmann::json>(nested(levels)).is_discarded());
    CHECK(parse_shallow<nlohmann::json>("{\"x\":" + nested(levels) + "}").is_discarded());
    CHECK(parse_shallow<nlohmann::json>(std::string(static_cast<std::size_t>(levels), '[')).is_discarded());
  }
  CHECK(parse_shallow<nlohmann::json>("{\"x\":\"" + std::string(1000, '[') + "\"}").is_object());
  CHECK(parse_shallow<nlohmann::json>("{").is_discarded());
}
