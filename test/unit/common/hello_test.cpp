// Which version of the protocol two daemons speak.

#include "common/messages/hello.hpp"

#include <catch2/catch.hpp>

using namespace sgd::hello;

TEST_CASE("hello: the newest version that both speak") {
  CHECK(agree({1, 1}, {1, 1}).value() == 1);
  CHECK(agree({1, 2}, {2, 3}).value() == 2);
  CHECK(agree({2, 3}, {1, 2}).value() == 2);
  CHECK(agree({3, 5}, {1, 9}).value() == 5);
  CHECK(agree({1, 1}, {2, 2}).error().message ==
        "this side speaks version 1 of the protocol, the other side version 2; update this one");
  CHECK(agree({3, 4}, {1, 2}).error().message ==
        "this side speaks version 3 to 4 of the protocol, the other side version 1 to 2; update the other one");
}

TEST_CASE("hello: its JSON") {
  CHECK(encode({1, 2}) == R"({"protocol_max":2,"protocol_min":1,"type":"hello"})");
  CHECK(decode(R"({"type":"hello","protocol_min":1,"protocol_max":2,"later":true})").value().protocol_max == 2);
  for (const char* bad : {"", "[]", "{}", R"({"type":"hello"})", R"({"type":"beat","protocol_min":1,"protocol_max":1})",
                          R"({"type":"hello","protocol_min":2,"protocol_max":1})",
                          R"({"type":"hello","protocol_min":0,"protocol_max":1})",
                          R"({"type":"hello","protocol_min":"1","protocol_max":1})"}) {
    INFO(bad);
    CHECK_FALSE(decode(bad).ok());
  }
}
