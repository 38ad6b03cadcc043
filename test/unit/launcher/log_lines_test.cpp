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
