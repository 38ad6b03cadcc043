// Who asks for ever fills a bounded number of files, and nothing of the newest is lost.

#include "launcher/coordinator/audit_log.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "state_folder.hpp"

using namespace sgd;
using coordinator::AuditLog;

namespace {

/// The runs that the lines of a file are about.
std::vector<int> runs_in(const std::string& path) {
  std::vector<int> runs;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) runs.push_back(nlohmann::json::parse(line).at("run"));
  return runs;
}

}  // namespace

TEST_CASE("audit log: a client that asks for ever has a bounded number of files, the newest lines among them") {
  const test::StateFolder folder;
  std::filesystem::create_directory(folder.state());
  std::vector<std::string> troubles;
  AuditLog log([&](const std::string& message) { troubles.push_back(message); });
  log.file_bytes_max = 2000;  // In place of kFileBytesMax.
  REQUIRE(log.open(folder.state()).ok());
  AuditLog other(
      [&](const std::string& message) { troubles.push_back(message); });  // A verb's, beside the coordinator.
  other.file_bytes_max = log.file_bytes_max;
  REQUIRE(other.open(folder.state()).ok());
  constexpr int kLines = 2000;
  for (int number = 0; number < kLines; ++number)
    (number % 3 == 0 ? other : log).add({"eva", "0a", "127.0.0.1:1", false, {}}, "read_logs", {{"run", number}});
  CHECK(troubles.empty());
  const std::string path = folder.file("audit.jsonl");
  std::vector<int> all;
  int files = 0;
  for (int number = AuditLog::kFilesMax + 5; number >= 0; --number) {
    const std::string one = number == 0 ? path : fmt::format("{}.{}", path, number);
    if (!std::filesystem::exists(one)) continue;
    ++files;
    CHECK(std::filesystem::file_size(one) < 2200);
    for (const int run : runs_in(one)) all.push_back(run);
  }
  CHECK(files == AuditLog::kFilesMax);
  REQUIRE_FALSE(all.empty());
  CHECK(all.back() == kLines - 1);
  for (std::size_t at = 1; at < all.size(); ++at) CHECK(all[at] == all[at - 1] + 1);
}

TEST_CASE("audit log: lines that cannot be read are said, and take no line behind them along") {
  const test::StateFolder folder;
  std::filesystem::create_directory(folder.state());
  const std::string path = folder.file("audit.jsonl");
  CHECK(AuditLog::damage_in(folder.state()).empty());
  std::ofstream(path) << "{\"run\":1}\n";
  CHECK(AuditLog::damage_in(folder.state()).empty());
  std::ofstream(path, std::ios::app) << std::string(9, '\0') << "\n{\"run\":2}\n{\"time\":17";
  CHECK_THAT(AuditLog::damage_in(folder.state()),
             Catch::StartsWith(path + " is damaged: 2 of its 4 lines cannot be read, from line 2 on"));
  {
    AuditLog log([](const std::string& message) { FAIL(message); });
    REQUIRE(log.open(folder.state()).ok());
    log.add({"eva", "", "", false, {}}, "stop", {{"run", 3}});
  }
  std::ifstream file(path);
  std::string last;
  for (std::string line; std::getline(file, line);) last = line;
  REQUIRE(nlohmann::json::accept(last));
  CHECK(nlohmann::json::parse(last).at("run") == 3);
}

TEST_CASE(
    "audit log: while the disk hangs a bounded number of lines waits, and that others are left out is said once") {
  const test::StateFolder folder;
  std::filesystem::create_directory(folder.state());
  std::vector<std::string> troubles;
  boost::asio::io_context io;
  {
    AuditLog log([&](const std::string& message) { troubles.push_back(message); });
    REQUIRE(log.open(folder.state()).ok());
    log.lines_max = 0;  // In place of kLinesMax: the disk has not taken one yet.
    log.write_beside(io);
    for (int number = 0; number < 3; ++number) log.add({"eva", "", "", false, {}}, "stop", {{"run", number}});
    CHECK(troubles == std::vector<std::string>{"the audit log: 0 lines wait for the disk, more are left out"});
    log.lines_max = AuditLog::kLinesMax;
    log.add({"eva", "", "", false, {}}, "stop", {{"run", 7}});
  }
  CHECK(troubles.size() == 1);
  CHECK(runs_in(folder.file("audit.jsonl")) == std::vector<int>{7});
}
