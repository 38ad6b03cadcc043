// Text of a JSON object that is written key by key: what nlohmann::json prints of the same values.

#include <cstdint>
#include <limits>
#include <map>
#include <string>

#include <catch2/catch.hpp>

#include "common/json/object_text.hpp"

using namespace sgd;

namespace {

std::string dumped(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

}  // namespace

TEST_CASE("json object text: it is what nlohmann::json prints, key by key") {
  const std::map<std::string, std::string> labels = {{"gpu", "h100"}, {"z\"one", "a\\b"}};
  const std::map<std::string, int> runs = {{"one", 1}, {"two", -2}};
  json::ObjectText text;
  text.add("node", "n1").add("is", true).add("not", false).add("slots", 8).add("least", std::int64_t{INT64_MIN});
  text.add("age", 1.25).add("tiny", 1e-20).add("whole", 3.0).add("labels", labels).add("runs", runs);
  text.add("none", std::map<std::string, int>{}).add("empty", std::string());
  nlohmann::ordered_json json;
  json["node"] = "n1";
  json["is"] = true;
  json["not"] = false;
  json["slots"] = 8;
  json["least"] = INT64_MIN;
  json["age"] = 1.25;
  json["tiny"] = 1e-20;
  json["whole"] = 3.0;
  json["labels"] = labels;
  json["runs"] = runs;
  json["none"] = nlohmann::json::object();
  json["empty"] = "";
  CHECK(text.text() == dumped(json));
  CHECK(json::ObjectText().text() == "{}");
}

TEST_CASE("json object text: bytes of any kind, and numbers that JSON has not") {
  for (const std::string& value : {std::string("\0x", 2), std::string("a\nb\tc\x7f"), std::string("\"\\/"),
                                   std::string("\xc3\xa4"), std::string("\xff\xfe"), std::string("\x1b[31m")}) {
    json::ObjectText text;
    text.add("value", value);
    CHECK(text.text() == dumped({{"value", value}}));
    CHECK(nlohmann::json::accept(text.text()));
  }
  json::ObjectText text;
  text.add("value", std::numeric_limits<double>::quiet_NaN());
  CHECK(text.text() == R"({"value":null})");
}
