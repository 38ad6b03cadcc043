// Fields of messages that another version has, or has not.

#include <catch2/catch.hpp>

#include "common/messages/keeper.hpp"
#include "common/messages/link.hpp"

using namespace sgd;

TEST_CASE("messages: unknown fields are ignored, missing ones take the default") {
  const auto decoded = link::decode_from_worker(R"({"type":"hello","token":"t","colour":"red","deep":{"a":[1]}})");
  REQUIRE(decoded.ok());
  const auto& hello = std::get<link::Hello>(decoded.value());
  CHECK(hello.token == "t");
  CHECK(hello.protocol == link::kProtocol);
  CHECK(hello.version.empty());
}

TEST_CASE("messages: what a keeper of an older version has dropped, the log file lacks") {
  const auto decoded = keeper::decode_from_keeper(R"({"type":"output_dropped","rank":1,"lines":2,"bytes":3})");
  REQUIRE(decoded.ok());
  CHECK_FALSE(std::get<keeper::OutputDropped>(decoded.value()).is_on_console);
}
