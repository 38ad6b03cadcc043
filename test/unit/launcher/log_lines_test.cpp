#include "launcher/cli/log_lines.hpp"

#include <catch2/catch.hpp>

using sgd::cli::kLogLineBytesMax;
using sgd::cli::LogLines;

TEST_CASE("log lines: a prefix for each, whatever pieces they come in") {
  LogLines lines("3: ");
  CHECK(lines.add("one\ntw").empty() == false);
  CHECK(lines.held() == 2);
  CHECK(lines.add("o").empty());
  CHECK(lines.add("\n\n") == "3: two\n3: \n");
  CHECK(lines.rest().empty());
  CHECK(lines.add("end").empty());
  CHECK(lines.rest() == "3: end\n");
}

TEST_CASE("log lines: whole lines, with what others put in front") {
  LogLines lines = LogLines::bare_lines();
  CHECK(lines.add("one\ntw") == "one\n");
  CHECK(lines.held() == 2);
  CHECK(lines.rest() == "tw\n");
}

TEST_CASE("log lines: without a newline neither memory nor time grow") {
  LogLines lines("0: ");
  const std::string piece(256 << 10, 'x');
  std::size_t printed = 0;
  for (int i = 0; i < 400; ++i) {  // 100 MiB: by the square of it this takes minutes.
    printed += lines.add(piece).size();
    REQUIRE(lines.held() <= kLogLineBytesMax);
  }
  CHECK(printed >= 400 * piece.size() - kLogLineBytesMax);
  LogLines plain;
  CHECK(plain.add(piece) == piece);
  CHECK(plain.held() == 0);
}

TEST_CASE("log lines: without a prefix characters and escape sequences stay whole, and no byte is lost") {
  const std::string text = "a\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80 \x1b[31;1mred\x1b[0m \xff\xc3 \x1b";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    INFO(cut);
    LogLines lines;
    const std::string first = lines.add(text.substr(0, cut));
    CHECK(first == text.substr(0, first.size()));
    CHECK(first.size() + lines.held() == cut);
    const std::string second = lines.add(text.substr(cut));
    CHECK(first + second + lines.rest() == text);
  }
  LogLines lines;
  CHECK(lines.add("a\xE2\x82") == "a");
  CHECK(lines.add("\xAC\x1b[3") == "\xE2\x82\xAC");
  CHECK(lines.add("1m") == "\x1b[31m");
  CHECK(lines.add("\x1b[" + std::string(40, '1')).size() == 42);  // It is none.
}
