#include "common/json/lenient.hpp"

#include <limits>

#include <catch2/catch.hpp>

using namespace sgd;
using Json = nlohmann::ordered_json;

TEST_CASE("what is missing, of another type or too large is left alone, and nothing throws") {
  const Json json = {{"text", "a"},       {"whole", 7},   {"minus", -7},     {"part", 1.5},   {"huge", 1e300},
                     {"long", 1LL << 40}, {"flag", true}, {"none", nullptr}, {"list", {1, 2}}};
  CHECK(read_or(json, "text", "b") == "a");
  for (const char* key : {"whole", "none", "list", "absent"}) CHECK(read_or(json, key, "b") == "b");
  CHECK(read_or(json, "whole", 1) == 7);
  CHECK(read_or(json, "part", 0) == 1);
  CHECK(read_or(json, "part", 0.0) == 1.5);
  CHECK(read_or(json, "minus", 3u) == 3u);
  CHECK(read_or(json, "long", 3) == 3);
  CHECK(read_or(json, "long", std::int64_t{3}) == 1LL << 40);
  for (const char* key : {"text", "huge", "flag", "none", "list", "absent"}) CHECK(read_or(json, key, 3) == 3);
  CHECK(read_or(json, "flag", false));
  CHECK_FALSE(read_or(json, "whole", false));
  CHECK(member(json, "list").size() == 2);
  CHECK(member(json, "absent").is_null());
  for (const Json& other : {Json(), Json("text"), Json(3), Json::array({1})}) {
    CHECK(read_or(other, "key", 3) == 3);
    CHECK(member(other, "key").is_null());
  }
}
