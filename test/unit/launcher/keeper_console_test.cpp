// The pure parts of the console path: cutting lines, the last lines, the window.

#include <string>

#include <catch2/catch.hpp>

#include "common/messages/keeper.hpp"
#include "launcher/keeper/console_lines.hpp"
#include "launcher/keeper/console_window.hpp"
#include "launcher/keeper/tail.hpp"

using namespace sgd;
using namespace sgd::keeper;
using namespace std::chrono_literals;

namespace {

/// Pieces and marks as the console gets them, then "|" and the rest.
std::string cut(const std::string& bytes, std::size_t line_bytes_max) {
  ConsoleCut out;
  cut_lines(bytes, line_bytes_max, out);
  std::string text;
  for (const ConsolePiece& piece : out.pieces) {
    text += piece.bytes;
    if (piece.split) text += "~\n";
  }
  return text + "|" + std::string(out.rest);
}

}  // namespace

TEST_CASE("lines are cut whole, long ones split and marked", "[keeper]") {
  CHECK(cut("", 8) == "|");
  CHECK(cut("ab\ncd\nef", 8) == "ab\ncd\n|ef");
  CHECK(cut("ab\n", 8) == "ab\n|");
  CHECK(cut("\n\n", 8) == "\n\n|");
  CHECK(cut("12345678", 8) == "|12345678");
  CHECK(cut("12345678\n", 8) == "12345678\n|");
  CHECK(cut("123456789", 8) == "12345678~\n|9");
  CHECK(cut("123456789\nx\n", 8) == "12345678~\n9\nx\n|");
  CHECK(cut("a\n123456789abcdefgh\n", 8) == "a\n12345678~\n9abcdefg~\nh\n|");
  CHECK(cut("a\nb\nc\nd\ne\nf\ng\nh\n", 4) == "a\nb\nc\nd\ne\nf\ng\nh\n|");
}

TEST_CASE("a split does not cut a character, unless the text is none", "[keeper]") {
  CHECK(cut("123\xe2\x82\xac"
            "567",
            4) ==
        "123~\n\xe2\x82\xac"
        "5~\n|67");
  CHECK(cut("\x80\x80\x80\x80\x80\x80", 4) == "\x80\x80\x80\x80~\n|\x80\x80");
}

TEST_CASE("the tail keeps the last lines, shortened", "[keeper]") {
  Tail tail;
  CHECK(tail.lines().empty());
  tail.add("one\r\n");
  tail.add("\ntwo\n");
  CHECK(tail.lines() == std::vector<std::string>{"one", "", "two"});
  std::string many;
  for (int i = 0; i < 50; ++i) many += std::to_string(i) + "\n";
  tail.add(many + std::string(1000, 'x'));
  const auto lines = tail.lines();
  REQUIRE(lines.size() == kTailLines);
  CHECK(lines.front() == "31");
  CHECK(lines[18] == "49");
  CHECK(lines.back() == std::string(kTailLineBytesMax, 'x'));
}

TEST_CASE("the last line that may be an object is whole up to a limit, and counts as long as it is among the last",
          "[keeper]") {
  Tail tail;
  CHECK(tail.last_object().empty());
  const std::string whole = "{\"loss\": [" + std::string(kLastObjectBytesMax - 13, '1') + "]}";
  REQUIRE(whole.size() == kLastObjectBytesMax - 1);
  tail.add("{\"loss\": 1}\n  " + whole.substr(1) + "\nwords\n");
  CHECK(tail.last_object() == "{\"loss\": 1}");
  tail.add(" " + whole + "\nwords\n");
  CHECK(tail.last_object() == " " + whole);
  tail.add("{" + std::string(2 * kLastObjectBytesMax, 'x') + "\n");
  CHECK(tail.last_object().size() == kCutObjectBytesMax);
  tail.add("{\"rest\": 1}\n{\"own\": 2}\n", true);
  CHECK(tail.last_object() == "{\"own\": 2}");
  tail.add("{\"rest\": 1}\n", true);
  CHECK(tail.last_object() == "{\"own\": 2}");
  for (std::size_t line = 2; line < kTailLines; ++line) tail.add("words\n");
  CHECK(tail.last_object() == "{\"own\": 2}");
  tail.add("words\n");
  CHECK(tail.last_object().empty());
}

TEST_CASE("the window holds, gives up after a second without a sign, and opens again", "[keeper]") {
  using State = ConsoleWindow::State;
  ConsoleWindow window(1000, 100);
  const TimePoint start{};
  CHECK(window.update(start) == State::kOpen);
  CHECK_FALSE(window.deadline());
  window.sent(900);
  CHECK(window.update(start) == State::kOpen);
  window.sent(1);
  CHECK(window.update(start + 5s) == State::kHolding);
  CHECK(window.deadline() == start + 6s);  // Quiet before it was full does not count.
  CHECK(window.may_overdraw());
  CHECK(window.update(start + 5999ms) == State::kHolding);
  SECTION("any sign prolongs the wait") {
    window.sent(500);
    window.acknowledged(start + 5999ms, 1);
    CHECK(window.update(start + 6500ms) == State::kHolding);
    CHECK(window.update(start + 6999ms) == State::kStalled);
  }
  SECTION("an acknowledgement of nothing is no sign") {
    window.acknowledged(start + 5999ms, 0);
    CHECK(window.update(start + 6s) == State::kStalled);
    CHECK_FALSE(window.deadline());
    window.acknowledged(start + 9s, 1);
    CHECK(window.state() == State::kOpen);
  }
  SECTION("room opens it") {
    window.acknowledged(start + 5999ms, 1);
    CHECK(window.state() == State::kOpen);
  }
  SECTION("overdrawing ends at twice the window") {
    window.sent(999);
    CHECK(window.may_overdraw());
    window.sent(1);
    CHECK_FALSE(window.may_overdraw());
    CHECK(window.update(start + 6s) == State::kStalled);
    CHECK(window.may_overdraw());
    window.acknowledged(start + 6s, 1 << 20);
    CHECK(window.unacknowledged() == 0);
  }
}
