// Logs of a run that is followed: in which order, and which files are looked at again.

#include "launcher/cli/log_printer.hpp"

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "test/unit/common/temporary_folder.hpp"

namespace sgd::cli {
namespace {

struct PrintedLogs {
  explicit PrintedLogs(const LogPrinter::Choice& choice = {})
      : printer(folder.path(), choice, [this](const std::string& text) {
          printed += text;
          return true;
        }) {}
  void append(int generation, int rank, const std::string& text) const {
    const std::string path = fmt::format("logs/gen-{:04}/rank-{:04}.log", generation, rank);
    std::filesystem::create_directories(std::filesystem::path(folder.path(path)).parent_path());
    std::ofstream(folder.path(path), std::ios::app) << text;
  }
  /// What is printed now.
  std::string next(bool is_live) {
    printed.clear();
    REQUIRE(printer.print_new(is_live));
    return printed;
  }
  test::TemporaryFolder folder;
  std::string printed;
  LogPrinter printer;
};

}  // namespace

TEST_CASE("log printer: generations and ranks by their numbers, however many digits these have") {
  PrintedLogs logs;
  for (const auto& [generation, rank] : {std::pair(10'000, 0), {9'999, 10'000}, {9'999, 9'999}, {2, 1}, {2, 0}})
    logs.append(generation, rank, fmt::format("of {}\n", generation));
  CHECK(logs.next(false) == "0: of 2\n1: of 2\n9999: of 9999\n10000: of 9999\n0: of 10000\n");
}

TEST_CASE("log printer: while a run lives the newest generations are looked at, in the end all") {
  PrintedLogs logs;
  constexpr int kNewest = 3 * LogPrinter::kGrowing;
  for (int generation = 1; generation <= kNewest; ++generation) logs.append(generation, 0, "first\n");
  const std::string first = logs.next(true);
  CHECK(first.size() == static_cast<std::size_t>(kNewest) * std::string("0: first\n").size());
  CHECK(logs.next(true).empty());
  logs.append(1, 0, "late\n");
  logs.append(kNewest - LogPrinter::kGrowing + 1, 0, "a little late\n");
  logs.append(kNewest, 0, "second\n");
  CHECK(logs.next(true) == "0: a little late\n0: second\n");
  // Several may come between two looks.
  for (int generation = kNewest + 1; generation <= 2 * kNewest; ++generation) logs.append(generation, 0, "");
  logs.append(kNewest + 1, 0, "new\n");
  CHECK(logs.next(true) == "0: new\n");
  CHECK(logs.next(false) == "0: late\n");
  CHECK(logs.printer.trouble().empty());
}

TEST_CASE("log printer: one rank, one generation, and a last line without its end") {
  PrintedLogs logs({.rank = 1, .generation = 2, .prefix = true});
  for (const int generation : {1, 2})
    for (const int rank : {0, 1}) logs.append(generation, rank, fmt::format("{} {}\npart", generation, rank));
  CHECK(logs.next(false) == "1: 2 1\n");
  logs.printer.print_rest();
  CHECK(logs.printed == "1: 2 1\n1: part\n");
}

}  // namespace sgd::cli
