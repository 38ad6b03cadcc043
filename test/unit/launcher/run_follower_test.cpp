// What a client that follows a run is sent first.

#include "launcher/coordinator/run_follower.hpp"

#include <vector>

#include <catch2/catch.hpp>

#include "test/unit/common/temporary_folder.hpp"

namespace sgd::coordinator {

TEST_CASE("run follower: logs are sent by the numbers of their generations and ranks") {
  const std::vector<std::string> sorted = {
      "events.jsonl",
      "logs/gen-0002/rank-0001.log",
      "logs/gen-9999/rank-0000.log",
      "logs/gen-9999/rank-9999.log",
      "logs/gen-9999/rank-10000.log",
      "logs/gen-10000/rank-0000.log",
  };
  const test::TemporaryFolder run;
  for (auto file = sorted.rbegin(); file != sorted.rend(); ++file) run.write(*file, "line\n");
  boost::asio::io_context io;
  storage::FileThread files(io);
  std::vector<std::string> sent;
  FollowSelection selection;
  selection.events = selection.logs = true;
  const auto note = [&](const std::string& file, std::uint64_t, const std::string&) { sent.push_back(file); };
  RunFollower follower(files, run.path(), selection, {}, note, [] {});
  follower.settle();
  io.run_for(std::chrono::seconds(20));
  CHECK(sent == sorted);
}

}  // namespace sgd::coordinator
