// One answer for all who ask at a time.

#include "launcher/coordinator/common_answer.hpp"

#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <catch2/catch.hpp>

using namespace sgd;
using namespace std::chrono_literals;
using coordinator::ClientService;
using coordinator::CommonAnswer;

namespace {

struct Board {
  boost::asio::io_context io;
  std::mutex disk;  ///< Held: nothing is made.
  storage::FileThread thread{io};
  int shown = 0;  ///< What is to be told.
  int snapshots = 0;
  int parts = 1;  ///< In which it is gathered.
  std::vector<std::string> told;
  CommonAnswer answer{io, thread, 60s, [this] {
                        ++snapshots;
                        return CommonAnswer::Source{[left = parts]() mutable { return --left > 0; },
                                                    [this, now = shown] {
                                                      const std::lock_guard lock(disk);
                                                      return R"({"ok":true,"n":)" + std::to_string(now) + "}";
                                                    }};
                      }};

  void ask() {
    answer.ask([this](const ClientService::Answer& answered) { told.push_back(answered.text); });
  }
};

}  // namespace

TEST_CASE("common answer: who asks while one is being made gets the next one, and all of them the same") {
  Board board;
  {
    const std::lock_guard hanging(board.disk);
    board.ask();
    board.shown = 1;  // Whoever has made this so, and asks, must see it.
    for (int number = 0; number < 100; ++number) board.ask();
    CHECK(board.snapshots == 1);
    CHECK(board.told.empty());
  }
  board.io.run();
  CHECK(board.snapshots == 2);
  REQUIRE(board.told.size() == 101);
  CHECK(board.told.front() == R"({"ok":true,"n":0})");
  for (std::size_t index = 1; index < board.told.size(); ++index) CHECK(board.told[index] == R"({"ok":true,"n":1})");
}

TEST_CASE("common answer: it is made anew for each who asks alone") {
  Board board;
  for (int number = 0; number < 3; ++number) {
    board.shown = number;
    board.ask();
    board.io.run();
    board.io.restart();
  }
  CHECK(board.told == std::vector<std::string>{R"({"ok":true,"n":0})", R"({"ok":true,"n":1})", R"({"ok":true,"n":2})"});
}

TEST_CASE(
    "common answer: what is gathered in parts lets others have their turn, and who asks meanwhile gets the next") {
  Board board;
  board.parts = 3;
  board.ask();
  CHECK(board.snapshots == 1);
  bool had_turn = false;
  boost::asio::post(board.io, [&] {
    had_turn = true;
    board.shown = 1;
    board.ask();
    CHECK(board.snapshots == 1);
    CHECK(board.told.empty());
  });
  board.io.run();
  CHECK(had_turn);
  CHECK(board.snapshots == 2);
  CHECK(board.told == std::vector<std::string>{R"({"ok":true,"n":0})", R"({"ok":true,"n":1})"});
}

TEST_CASE("common answer: it may end while its values are gathered") {
  boost::asio::io_context io;
  storage::FileThread thread{io};
  int parts = 0;
  std::optional<CommonAnswer> answer;
  answer.emplace(io, thread, 60s, [&parts] {
    return CommonAnswer::Source{[&parts] { return ++parts < 3; }, [] { return std::string(); }};
  });
  answer->ask([](const ClientService::Answer&) { FAIL("nobody is told"); });
  answer.reset();
  io.run();
  CHECK(parts == 1);
}

TEST_CASE("common answer: a thread with too much to do is said to all who wait") {
  Board board;
  board.thread.asked_max = 0;
  board.ask();
  board.ask();
  board.io.run();
  REQUIRE(board.told.size() == 2);
  for (const std::string& text : board.told) CHECK_THAT(text, Catch::Contains("busy"));
}
