#include "launcher/cli/terminal_text.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/cli/start_checks.hpp"

using namespace sgd;
using cli::for_terminal;
using cli::Steering;

TEST_CASE("text of others does not steer a terminal", "[cli]") {
  CHECK(for_terminal("plain text\twith a tab\n", Steering::kNone) == "plain text\twith a tab\n");
  CHECK(for_terminal("größer €\xf0\x9f\x99\x82", Steering::kNone) == "größer €\xf0\x9f\x99\x82");
  CHECK(for_terminal("\x1b]0;owned\x07", Steering::kColors) == "\\x1b]0;owned\\x07");
  CHECK(for_terminal("\x1b[2J", Steering::kColors) == "\\x1b[2J");
  CHECK(for_terminal("\xc2\x9b"
                     "2J \x9b",
                     Steering::kColors) ==
        "\\xc2\\x9b"
        "2J \\x9b");
  CHECK(for_terminal("\x1b[1;31mred\x1b[0m 50%\r60%", Steering::kColors) == "\x1b[1;31mred\x1b[0m 50%\r60%");
  CHECK(for_terminal("\x1b[31mred\r", Steering::kNone) == "\\x1b[31mred\\x0d");
  CHECK(for_terminal("cut \x1b[3", Steering::kColors) == "cut \\x1b[3");
  CHECK(for_terminal("cut \xe2\x82", Steering::kNone) == "cut \\xe2\\x82");
  CHECK(for_terminal(std::string_view("\0\x7f", 2), Steering::kColors) == "\\x00\\x7f");
}

TEST_CASE("text of others does not reorder what a terminal shows", "[cli]") {
  for (const char* one : {"\u061c", "\u200e", "\u200f", "\u2028", "\u2029", "\u202a", "\u202b", "\u202c", "\u202d",
                          "\u202e", "\u2066", "\u2067", "\u2068", "\u2069"}) {
    std::string expected = "a";
    for (const char* byte = one; *byte != '\0'; ++byte)
      expected += fmt::format("\\x{:02x}", static_cast<unsigned char>(*byte));
    for (const Steering steering : {Steering::kNone, Steering::kColors})
      CHECK(for_terminal(std::string("a") + one + "b", steering) == expected + "b");
  }
  for (const char* one : {"\u061b", "\u061d", "\u200d", "\u2010", "\u2027", "\u202f", "\u2065", "\u206a"})
    CHECK(for_terminal(one, Steering::kNone) == one);
}

TEST_CASE("limits of the shell that are too low are said as that", "[cli]") {
  const auto said = [](bool is_training, int workers, process::ResourceLimits limits) {
    job::JobSpec job;
    job.num_workers = workers;
    if (is_training) job.training.emplace();
    Diagnostics diagnostics;
    cli::check_limits(job, limits, diagnostics);
    return diagnostics.items.empty() ? std::string() : diagnostics.items.front().message;
  };
  CHECK(said(true, 2, {}).empty());
  CHECK(said(false, 100, {1024, 1 << 20}).empty());
  CHECK(said(false, 2, {16, std::nullopt}) ==
        "only 16 files may be open (ulimit -n), and 2 workers here need 72: ulimit -n 1024");
  CHECK(said(false, 1000, {1024, std::nullopt}) ==
        "only 1024 files may be open (ulimit -n), and 1000 workers here need 4064: ulimit -n 4064");
  CHECK(
      said(true, 1, {std::nullopt, 500 << 20}) ==
      "a process may have only 500 MiB of address space (ulimit -v), and a worker needs 1024 MiB before its model and "
      "data: ulimit -v unlimited");
}
