// What a callback's program is given, over several lives of its guard.

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "launcher/callbacks/exec_stream.hpp"
#include "test/unit/common/temporary_folder.hpp"

namespace sgd::callbacks {
namespace {

std::vector<std::string> take_lines(ExecStream& stream, std::size_t most) {
  std::vector<std::string> lines;
  while (lines.size() < most) {
    REQUIRE(stream.read().ok());
    if (stream.front() == nullptr) break;
    lines.push_back(*stream.front());
    REQUIRE(stream.given().ok());
  }
  return lines;
}

}  // namespace

TEST_CASE("exec: lines are given once, over lives of the guard") {
  const test::TemporaryFolder folder;
  folder.write("metrics.jsonl", "{\"loss\":1}\n{\"loss\":2}\n");
  folder.write("events.jsonl", "{\"event\":\"run_started\"}\n");
  const std::string place = folder.path("given");
  {
    ExecStream stream(folder.path(), nlohmann::json::object(), place);
    REQUIRE(stream.open().ok());
    ExecStream second(folder.path(), nlohmann::json::object(), place);
    CHECK(second.open().error().code == EWOULDBLOCK);
    CHECK(take_lines(stream, 2) ==
          std::vector<std::string>{"{\"type\":\"event\",\"line\":1,\"event\":\"run_started\"}\n",
                                   "{\"type\":\"report\",\"line\":1,\"loss\":1}\n"});
  }
  {
    ExecStream stream(folder.path(), nlohmann::json::object(), place);
    REQUIRE(stream.open().ok());
    CHECK(stream.given_lines() == 2);
    CHECK(take_lines(stream, 9) == std::vector<std::string>{"{\"type\":\"report\",\"line\":2,\"loss\":2}\n"});
    std::ofstream(folder.path("metrics.jsonl"), std::ios::app) << "{\"loss\":3}\n{\"lo";
    CHECK(take_lines(stream, 9) == std::vector<std::string>{"{\"type\":\"report\",\"line\":3,\"loss\":3}\n"});
    std::ofstream(folder.path("metrics.jsonl"), std::ios::app) << "ss\":4}\n{\"loss\":5}\n";
    CHECK(stream.left() == 2);
    CHECK(stream.left() == 2);
    CHECK(stream.given_lines() == 4);
  }
}

TEST_CASE("exec: what a program has not read is given to the next one") {
  const test::TemporaryFolder folder;
  folder.write("metrics.jsonl", "{\"loss\":1}\n{\"loss\":2}\n{\"loss\":3}\n");
  folder.write("events.jsonl", "{\"event\":\"a\"}\n");
  const std::string last = "{\"type\":\"report\",\"line\":3,\"loss\":3}\n";
  {
    ExecStream stream(folder.path(), nlohmann::json::object(), folder.path("given"));
    REQUIRE(stream.open().ok());
    REQUIRE(take_lines(stream, 9).size() == 4);
    REQUIRE(stream.take_back(last.size() + 1).ok());  // Of the line before it one byte.
    CHECK(stream.left() == 2);
    CHECK(stream.given_lines() == 2);
  }
  ExecStream stream(folder.path(), nlohmann::json::object(), folder.path("given"));
  REQUIRE(stream.open().ok());
  const auto again = take_lines(stream, 9);
  REQUIRE(again.size() == 2);
  CHECK(again.back() == last);
  REQUIRE(stream.take_back(1000).ok());
  CHECK(stream.given_lines() == 2);
}

TEST_CASE("exec: what a callback has not asked for is not given") {
  const test::TemporaryFolder folder;
  folder.write("metrics.jsonl", "{\"phase\":\"train\",\"loss\":1,\"other\":2}\n");
  folder.write("events.jsonl", "{\"event\":\"run_started\"}\n");
  ExecStream stream(folder.path(), nlohmann::json::parse(R"({"events": false, "metrics": ["loss"]})"),
                    folder.path("given"));
  REQUIRE(stream.open().ok());
  CHECK(take_lines(stream, 9) ==
        std::vector<std::string>{"{\"type\":\"report\",\"line\":1,\"phase\":\"train\",\"loss\":1}\n"});
  CHECK(stream.left() == 0);
}

TEST_CASE("exec: a file of what was given that is damaged begins anew") {
  const test::TemporaryFolder folder;
  folder.write("metrics.jsonl", "{\"loss\":1}\n");
  folder.write("given", "{\"reports\": tw");
  ExecStream stream(folder.path(), nlohmann::json::object(), folder.path("given"));
  REQUIRE(stream.open().ok());
  CHECK(take_lines(stream, 9).size() == 1);
}

}  // namespace sgd::callbacks
