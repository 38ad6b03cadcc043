// A stop as a client writes it.

#include "launcher/core/stop_request.hpp"

#include <catch2/catch.hpp>

using namespace sgd;
using core::StopRequest;

TEST_CASE("stop request: what is missing has its default") {
  const auto stop = core::stop_request_of(nlohmann::json::object());
  REQUIRE(stop);
  CHECK(stop.value().why == StopRequest::Why::kCancelled);
  CHECK_FALSE(stop.value().at_once);
  CHECK_FALSE(stop.value().grace);
  CHECK(stop.value().signal == 0);
}

TEST_CASE("stop request: a value of a wrong type is refused") {
  for (const char* request : {R"({"why": 1})", R"({"at_once": [1]})", R"({"grace_s": "5"})", R"({"grace_s": null})",
                              R"({"signal": "TERM"})", "5", "null"}) {
    INFO(request);
    CHECK_FALSE(core::stop_request_of(nlohmann::json::parse(request)));
  }
}

TEST_CASE("stop request: a grace is one that can be added to a time") {
  const auto grace_of = [](double seconds) {
    return core::stop_request_of(nlohmann::json{{"grace_s", seconds}}).value().grace.value();
  };
  CHECK(grace_of(2.5) == std::chrono::milliseconds(2500));
  CHECK(grace_of(-1) == Duration{0});
  const TimePoint late(std::chrono::hours(24 * 365 * 100));
  CHECK(late + grace_of(1e300) > late + std::chrono::hours(24 * 365));
}
