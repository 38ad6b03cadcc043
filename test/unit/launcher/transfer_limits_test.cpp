// Written limits of files on their way: of what a line does to them, and of what the other side claims.

#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "launcher/agent/file_fetcher.hpp"
#include "launcher/agent/file_sender.hpp"
#include "test/unit/launcher/transfer_support.hpp"

using namespace sgd;
using namespace sgd::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Fetched = std::optional<agent::FileFetcher::Fetched>;

namespace {

/// The same length, and not what its manifest says.
void damage(const fs::path& checkpoint) {
  for (const auto& entry : fs::directory_iterator(checkpoint)) {
    if (entry.path().filename() == "manifest.json" || fs::file_size(entry.path()) == 0) continue;
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    const int byte = file.get();
    file.seekp(0);
    file.put(static_cast<char>(byte ^ 1));
    return;
  }
}

Fetched fetched_by(Transfers& at, Transfers::Node& node, const CheckpointFiles& made) {
  Fetched fetched;
  at.fetch(node, made.name, fetched);
  at.run_until([&] { return fetched.has_value(); });
  return fetched;
}

CheckpointFiles on_coordinator(const Transfers& at, std::size_t bytes) {
  CheckpointFiles made = make_checkpoint(100, 1, bytes);
  fs::create_directories(at.run_dir + "/checkpoints");
  write_checkpoint(at.run_dir, made);
  return made;
}

}  // namespace

TEST_CASE("fetch: a line that damages each chunk is given up in the end; limit kDamagedChunksMax", "[transfer]") {
  Transfers at;
  const CheckpointFiles made = on_coordinator(at, 60'000);
  Transfers::Node& node = at.add_node("node1");
  at.want(node);
  int chunks = 0;
  node.wire->on_down = [&](std::string& bytes) {
    if (bytes.size() < 5'000) return;
    ++chunks;
    bytes[bytes.size() / 2] ^= 1;
  };
  const Fetched fetched = fetched_by(at, node, made);
  CHECK(fetched->error == "its bytes are damaged on their way again and again");
  CHECK_FALSE(fetched->is_missing);  // Nothing is known of the checkpoint.
  CHECK(chunks >= agent::FileFetcher::kDamagedChunksMax);
}

TEST_CASE("fetch: a checkpoint that is not what its manifest says is tried twice; limit kAttemptsMax", "[transfer]") {
  Transfers at;
  const CheckpointFiles made = on_coordinator(at, 60'000);
  damage(at.run_dir + "/checkpoints/" + made.name);
  Transfers::Node& node = at.add_node("node1");
  at.want(node);
  const Fetched fetched = fetched_by(at, node, made);
  CHECK_FALSE(fetched->error.empty());
  CHECK(fetched->is_missing);
  CHECK_FALSE(fs::exists(node.folder() + "/checkpoints/" + made.name));
}

TEST_CASE("fetch: a checkpoint of too many files is refused; limit kListedFilesMax", "[transfer]") {
  Transfers at;
  const CheckpointFiles made = on_coordinator(at, 1000);
  const std::string folder = at.run_dir + "/checkpoints/" + made.name;
  for (std::size_t number = 0; number < transfer::kListedFilesMax; ++number)
    std::ofstream(fmt::format("{}/f{}", folder, number)).put('x');
  Transfers::Node& node = at.add_node("node1");
  at.want(node);
  const Fetched fetched = fetched_by(at, node, made);
  CHECK_THAT(fetched->error, Catch::Contains("files are listed"));
  CHECK(fetched->is_missing);
}

TEST_CASE("transfer: a checkpoint that is damaged where it lies is sent a few times; limit FileSender::kAttemptsMax",
          "[transfer]") {
  Transfers at;
  at.times.retry_first = at.times.retry_max = 10ms;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  const CheckpointFiles made = make_checkpoint(100, 1, 1000);
  write_checkpoint(folder, made);
  damage(folder + "/checkpoints/" + made.name);
  node.spool->look("run1");
  const auto says_that_it_stays = [&] {
    for (const std::string& warning : node.warnings)
      if (warning.find("stays on this node") != std::string::npos) return true;
    return false;
  };
  at.run_until(says_that_it_stays);
  CHECK(at.refused.size() == static_cast<std::size_t>(agent::FileSender::kAttemptsMax));
  CHECK(at.stored.empty());
}

TEST_CASE("transfer: no other run waits for one whose checkpoints are refused", "[transfer]") {
  Transfers at;
  at.times.retry_first = at.times.retry_max = 1h;
  at.knows_all = true;
  Transfers::Node& node = at.add_node("node1");
  const std::string bad = at.want(node).run_dir;
  const std::string good = at.want(node, {}, "run2").run_dir;
  const CheckpointFiles damaged = make_checkpoint(100, 1, 1000);
  write_checkpoint(bad, damaged);
  damage(bad + "/checkpoints/" + damaged.name);
  node.spool->look("run1");
  at.run_until([&] { return !at.refused.empty(); });
  const CheckpointFiles made = make_checkpoint(7, 1, 1000);
  write_checkpoint(good, made);
  node.spool->look("run2");
  at.run_until([&] { return at.is_stored(made); });
  CHECK(at.refused.size() == 1);
}

TEST_CASE("transfer: a run has no more files than it may have; limit FileSender::kRefusedMax", "[transfer]") {
  Transfers at(storage::Quota{.run_files = 3});
  Transfers::Node& node = at.add_node("node1");
  const std::string logs = at.want(node).run_dir + "/logs/gen-0001";
  fs::create_directories(logs);
  for (int number = 0; number < 2000; ++number) std::ofstream(fmt::format("{}/f{:04}", logs, number)).put('x');
  node.spool->look("run1");
  const auto says_that_others_stay = [&] {
    for (const std::string& warning : node.warnings)
      if (warning.find("so does what is new of it: the run has 3 files here") != std::string::npos) return true;
    return false;
  };
  at.run_until(says_that_others_stay);
  const auto until = std::chrono::steady_clock::now() + 300ms;
  at.run_until([&] { return std::chrono::steady_clock::now() > until; });
  CHECK(at.grown.size() == 3);
  CHECK(at.refused.size() < 1000);  // Those that were on their way by then, and no others.
  CHECK(node.warnings.size() <= agent::FileSender::kRefusedMax + 1);
}

TEST_CASE("file service: no more checkpoints are named to a node than one message may have; limit kPathsMax",
          "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  const CheckpointFiles made = make_checkpoint(1, 1, 1000);
  const CheckpointFiles counts = make_checkpoint(2, 1, 1000);
  write_checkpoint(folder, made);
  write_checkpoint(folder, counts);
  node.spool->look("run1");
  at.run_until([&] { return at.is_stored(made) && at.is_stored(counts); });
  std::vector<std::string> paths;
  for (std::size_t step = 2; step <= transfer::kPathsMax + 10; ++step)
    paths.push_back(fmt::format("checkpoints/step-{:012}-gen-0001", step));
  at.service->keep("run1", paths);
  // It is understood: what does not count goes.
  at.run_until([&] { return !fs::exists(folder + "/checkpoints/" + made.name); });
  CHECK(fs::exists(folder + "/checkpoints/" + counts.name));
}

TEST_CASE(
    "file service: who asks for the files of all runs that there are has no more opened than may be; limit kOpenMax",
    "[transfer]") {
  constexpr std::size_t kMost = coordinator::FileService::kOpenMax;
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  files.rlim_cur = std::min<rlim_t>(files.rlim_max, 4 * kMost);
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
  if (files.rlim_cur < 4 * kMost) return;
  Transfers at;
  at.knows_all = true;
  Stranger stranger(at);
  const auto descriptors = [] {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator("/proc/self/fd"), fs::directory_iterator()));
  };
  const std::size_t before = descriptors();
  for (std::size_t number = 0; number < kMost + 200; ++number)
    stranger.say(transfer::encode(transfer::Query{fmt::format("run-{}", number), "logs/a"}));
  stranger.put("logs/end.log", "x");
  at.run_until([&] { return at.grown.contains("logs/end.log"); });
  CHECK(at.refused.empty());
  CHECK(descriptors() > before + kMost / 2);
  CHECK(descriptors() < before + kMost + 50);
}

TEST_CASE("transfer: a checkpoint of too many files stays, and no other run loses its link; limit kShippedFilesMax",
          "[transfer]") {
  Transfers at;
  at.knows_all = true;
  Transfers::Node& node = at.add_node("node1");
  const std::string bad = at.want(node).run_dir;
  const std::string good = at.want(node, {}, "run2").run_dir;
  const CheckpointFiles many = make_checkpoint(100, 1, 1000);
  write_checkpoint(bad, many);
  // More than questions may be open at the coordinator, each of one file.
  for (std::size_t number = 0; number < 2 * coordinator::FileService::kRequestsMax; ++number)
    std::ofstream(fmt::format("{}/checkpoints/{}/f{}", bad, many.name, number));
  node.spool->look("run1");
  const auto says_that_it_stays = [&] {
    return std::any_of(node.warnings.begin(), node.warnings.end(), [](const std::string& warning) {
      return warning.find(fmt::format("stays on this node: it has more than {} files",
                                      agent::FileSender::kShippedFilesMax)) != std::string::npos;
    });
  };
  at.run_until(says_that_it_stays);
  const CheckpointFiles made = make_checkpoint(7, 1, 1000);
  write_checkpoint(good, made);
  node.spool->look("run2");
  at.run_until([&] { return at.is_stored(made); });
  CHECK(at.refused.empty());
  CHECK(node.wire->connections == 1);
}

TEST_CASE("transfer: of a run with more names than files may be, no more are remembered, and its folder stays",
          "[transfer]") {
  Transfers at;
  at.node_quota.run_files = 20;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  for (int number = 0; number < 500; ++number) std::ofstream(fmt::format("{}/logs/n{:04}", folder, number)).put('x');
  node.spool->look("run1");
  const auto says_that_it_is_cut = [&] {
    return std::any_of(node.warnings.begin(), node.warnings.end(), [](const std::string& warning) {
      return warning == "run run1: its folder here has more than 20 files, and what is beyond stays here";
    });
  };
  at.run_until(says_that_it_is_cut);
  at.run_until([&] { return at.grown.size() == 20; });
  node.spool->end("run1");
  at.run_until([&] { return fs::exists(node.state_dir + "/runs/.refused-run1"); });
  CHECK(at.grown.size() == 20);
  CHECK(fs::exists(folder));
}
