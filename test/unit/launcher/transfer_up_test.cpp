// Logs and checkpoints on their way from a node to the coordinator: nothing is lost and nothing is twice,
// whatever happens on the line.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>

#include <fmt/format.h>
#include <catch2/catch.hpp>

#include "test/unit/common/file_size_limit.hpp"
#include "test/unit/launcher/transfer_support.hpp"

using namespace sgd;
using namespace sgd::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;

namespace {

void append(const std::string& path, const std::string& bytes) {
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream(path, std::ios::binary | std::ios::app) << bytes;
}

/// Everything is there and the node has nothing left.
void end_and_wait(Transfers& at, Transfers::Node& node) {
  node.spool->end("run1");
  at.run_until([&] { return !fs::exists(node.folder()); });
  CHECK(!at.all_sent.empty());
}

/// Where a node notes that a run's folder was refused.
fs::path refusal_of(const fs::path& folder) {
  return folder.parent_path() / (".refused-" + folder.filename().string());
}

}  // namespace

TEST_CASE("transfer: logs arrive as they are written, and the spool goes at the end", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const cluster::DesiredRun desired = at.want(node);
  CHECK(desired.run_dir == node.folder());
  append(desired.run_dir + "/logs/gen-0001/rank-0000.log", "one\n");
  append(desired.run_dir + "/logs/gen-0001/rank-0001.log", "");
  append(desired.run_dir + "/errors/gen-0001-rank-0000.json", "{}");
  node.spool->look("run1");
  at.run_until([&] { return slurp(at.run_dir + "/logs/gen-0001/rank-0000.log") == "one\n"; });
  CHECK(node.spool->is_sending());
  append(desired.run_dir + "/logs/gen-0001/rank-0000.log", "two\n");
  node.spool->look("run1");
  at.run_until([&] { return slurp(at.run_dir + "/logs/gen-0001/rank-0000.log") == "one\ntwo\n"; });
  at.run_until([&] { return at.grown.at("logs/gen-0001/rank-0000.log") == 8; });  // Told once it is there.
  append(desired.run_dir + "/logs/gen-0001/rank-0000.log", "last");
  end_and_wait(at, node);
  CHECK(slurp(at.run_dir + "/logs/gen-0001/rank-0000.log") == "one\ntwo\nlast");
  CHECK(fs::exists(at.run_dir + "/logs/gen-0001/rank-0001.log"));
  CHECK(slurp(at.run_dir + "/errors/gen-0001-rank-0000.json") == "{}");
  CHECK(at.refused.empty());
}

TEST_CASE("transfer: logs are the same byte for byte when the line is cut again and again", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  std::mt19937 random(7);
  std::map<std::string, std::string> written;
  for (int round = 0; round < 40; ++round) {
    const std::string name = "logs/gen-0001/rank-000" + std::to_string(random() % 4) + ".log";
    const std::string bytes = noise(random() % 200'000, static_cast<unsigned>(round));
    append(folder + "/" + name, bytes);
    written[name] += bytes;
    node.spool->look("run1");
    if (round % 2 == 0) node.wire->cut_after_up = static_cast<std::int64_t>(random() % 150'000);
    if (round % 7 == 0) node.wire->cut_after_down = static_cast<std::int64_t>(random() % 500);
    if (round == 20) at.restart_desk();
    for (int turn = 0; turn < 30; ++turn) at.io.run_one_for(1ms);
  }
  node.wire->cut_after_up = node.wire->cut_after_down = -1;
  end_and_wait(at, node);
  for (const auto& [name, bytes] : written) CHECK(slurp(at.run_dir + "/" + name) == bytes);
  CHECK(node.wire->connections > 10);
}

TEST_CASE("transfer: a checkpoint that is interrupted at every chunk arrives whole", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  const CheckpointFiles made = make_checkpoint(100, 1, 6 << 20);
  write_checkpoint(folder, made);
  // Between two cuts a chunk and what is asked before it fit, but not two chunks.
  node.wire->cut_after_up = 1'400'000;
  int cuts = 1;
  node.wire->on_up = [&, before = 0](const std::string&) mutable {
    if (node.wire->connections == before) return;
    before = node.wire->connections;
    node.wire->cut_after_up = 1'400'000;
    ++cuts;
  };
  node.spool->look("run1");
  at.run_until([&] { return at.is_stored(made); });
  CHECK(cuts >= 7);
  CHECK(Transfers::has(at.run_dir + "/checkpoints/" + made.name, made));
  // Nothing is sent twice but what was on its way.
  CHECK(node.wire->up_bytes < 2 * (8 << 20) + cuts * 200'000);
  node.wire->on_up = nullptr;
  node.wire->cut_after_up = -1;
  end_and_wait(at, node);
}

TEST_CASE("transfer: bits that turn over on the way are found and repaired", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  const CheckpointFiles made = make_checkpoint(100, 1, 5 << 20);
  const std::string log = noise(3'000'000, 9);
  std::mt19937 random(3);
  int flips = 0;
  node.wire->on_up = [&](std::string& bytes) {
    // Large pieces only: most of what they hold are chunks. A frame's head can be hit, too, which ends the
    // connection.
    if (bytes.size() < 10'000 || random() % 20 != 0 || flips == 30) return;
    bytes[random() % bytes.size()] ^= static_cast<char>(1 << random() % 8);
    ++flips;
  };
  write_checkpoint(folder, made);
  append(folder + "/logs/gen-0001/rank-0000.log", log);
  node.spool->look("run1");
  at.run_until([&] { return at.is_stored(made); });
  end_and_wait(at, node);
  CHECK(flips > 3);
  CHECK(!at.refused.empty());
  CHECK(Transfers::has(at.run_dir + "/checkpoints/" + made.name, made));
  CHECK(slurp(at.run_dir + "/logs/gen-0001/rank-0000.log") == log);
}

TEST_CASE("transfer: the newest checkpoint goes first, and one that was superseded never", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  node.wire->block(true);
  const std::string folder = at.want(node).run_dir;
  std::vector<CheckpointFiles> made;
  for (int number = 1; number <= 4; ++number) {
    made.push_back(make_checkpoint(100 * number, 1, 50'000, static_cast<unsigned>(number)));
    write_checkpoint(folder, made.back());
  }
  at.service->keep("run1", {"checkpoints/" + made[2].name, "checkpoints/" + made[3].name});
  if (GENERATE(false, true)) at.service->settle("run1");  // The node may come when the run is over for the others.
  node.wire->block(false);
  node.spool->look("run1");
  at.run_until([&] { return at.stored.size() == 2; });
  CHECK(at.stored == std::vector<std::string>{"checkpoints/" + made[3].name, "checkpoints/" + made[2].name});
  at.run_until([&] { return !fs::exists(folder + "/checkpoints/" + made[0].name); });
  CHECK(fs::exists(folder + "/checkpoints/" + made[3].name));
  end_and_wait(at, node);
  CHECK(at.stored.size() == 2);
}

TEST_CASE("transfer: which checkpoints count is remembered for the last runs that are over, no more", "[transfer]") {
  const auto [later, sent] = GENERATE(table<std::size_t, std::size_t>(
      {{coordinator::FileService::kSettledMax - 1, 1}, {coordinator::FileService::kSettledMax, 2}}));
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  node.wire->block(true);
  const std::string folder = at.want(node).run_dir;
  const CheckpointFiles first = make_checkpoint(100, 1, 1'000, 1);
  const CheckpointFiles second = make_checkpoint(200, 1, 1'000, 2);
  write_checkpoint(folder, first);
  write_checkpoint(folder, second);
  at.service->keep("run1", {"checkpoints/" + second.name});
  at.service->settle("run1");
  for (std::size_t run = 0; run < later; ++run) {
    const RunId id = fmt::format("later{}", run);
    at.service->keep(id, {});
    at.service->settle(id);
  }
  node.wire->block(false);
  node.spool->look("run1");
  end_and_wait(at, node);
  CHECK(at.stored.size() == sent);
}

TEST_CASE("transfer: what was kept at the coordinator stays until one that counts has come", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  const CheckpointFiles first = make_checkpoint(100, 1, 50'000, 1);
  const CheckpointFiles second = make_checkpoint(200, 1, 50'000, 2);
  write_checkpoint(folder, first);
  node.spool->look("run1");
  at.run_until([&] { return at.is_stored(first); });
  at.service->keep("run1", {"checkpoints/" + second.name});
  CHECK(fs::exists(at.run_dir + "/checkpoints/" + first.name));
  write_checkpoint(folder, second);
  node.spool->look("run1");
  at.run_until([&] { return at.is_stored(second); });
  CHECK_FALSE(fs::exists(at.run_dir + "/checkpoints/" + first.name));
}

TEST_CASE("transfer: a spool of an earlier life is brought and removed", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  node.wire->block(true);
  const std::string folder = at.want(node).run_dir;
  append(folder + "/logs/gen-0001/rank-0000.log", "what was left\n");
  node.spool.reset();
  node.wire->block(false);
  at.start(node, "node1", 2);
  at.run_until([&] { return !fs::exists(folder); });
  CHECK(slurp(at.run_dir + "/logs/gen-0001/rank-0000.log") == "what was left\n");
}

TEST_CASE("transfer: a run that nobody knows any more stays for its time", "[transfer]") {
  Transfers at;
  at.knows_run = false;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  append(folder + "/logs/gen-0001/rank-0000.log", "kept\n");
  node.spool->end("run1");
  at.run_until([&] { return fs::exists(refusal_of(folder)); });
  CHECK_FALSE(node.spool->is_sending());  // An agent that ends does not wait for it.
  CHECK(slurp(folder + "/logs/gen-0001/rank-0000.log") == "kept\n");
  SECTION("and is brought when it is known again") {
    at.knows_run = true;
    node.spool.reset();
    at.start(node, "node1", 2);
    at.run_until([&] { return !fs::exists(folder); });
    CHECK_FALSE(fs::exists(refusal_of(folder)));
    CHECK(slurp(at.run_dir + "/logs/gen-0001/rank-0000.log") == "kept\n");
  }
  SECTION("however the clock is set") {
    fs::last_write_time(refusal_of(folder), fs::file_time_type::clock::now() - 48h);
    node.spool.reset();
    at.start(node, "node1", 2);
    at.run_until([&] { return at.refused.size() >= 2; });
    CHECK(slurp(folder + "/logs/gen-0001/rank-0000.log") == "kept\n");
  }
  SECTION("and then goes, when it was refused at as many visits") {
    at.revisit = 20ms;
    at.keep_refused = 60ms;
    for (Incarnation life = 2; life < 7; ++life) {  // A start is no such visit.
      node.spool.reset();
      at.start(node, "node1", life);
      CHECK(fs::exists(folder));
    }
    at.run_until([&] { return !fs::exists(folder); });
    CHECK_FALSE(fs::exists(refusal_of(folder)));
    CHECK(at.refused.size() >= 5);  // The first time, at the last start, and at three visits.
  }
}

TEST_CASE("transfer: a folder of an earlier life that cannot be made ready stays for its time, and then goes",
          "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  node.spool.reset();
  fs::remove_all(folder + "/logs");
  append(folder + "/logs", "a file where a folder must be");
  at.revisit = 20ms;
  at.keep_refused = 60ms;
  at.start(node, "node1", 2);
  CHECK(fs::exists(refusal_of(folder)));
  at.run_until([&] { return !fs::exists(folder); });
  CHECK_FALSE(fs::exists(refusal_of(folder)));
  CHECK(std::count_if(node.warnings.begin(), node.warnings.end(),
                      [&](const std::string& warning) { return warning.starts_with(folder + " stays for"); }) == 1);
}

TEST_CASE("transfer: a node that had no rank of the run adds nothing to it, and hears nothing of it", "[transfer]") {
  Transfers at;
  at.foreign = {"node2"};
  Transfers::Node& node = at.add_node("node2");
  const std::string folder = at.want(node).run_dir;
  append(folder + "/logs/gen-0001/rank-0000.log", "forged\n");
  const CheckpointFiles planted = make_checkpoint(900, 9, 50'000);
  const CheckpointFiles superseded = make_checkpoint(100, 1, 50'000);
  write_checkpoint(folder, planted);
  write_checkpoint(folder, superseded);
  at.service->keep("run1", {"checkpoints/" + planted.name});
  node.spool->look("run1");
  node.spool->end("run1");
  at.run_until([&] { return fs::exists(refusal_of(folder)); });
  CHECK(at.refused.front() == "the run has had no rank on this node");
  CHECK(at.stored.empty());
  CHECK(at.all_sent.empty());
  CHECK_FALSE(fs::exists(at.run_dir + "/logs"));
  CHECK_FALSE(fs::exists(at.run_dir + "/checkpoints/" + planted.name));
  CHECK(fs::exists(folder + "/checkpoints/" + superseded.name));  // It was not told which ones count.
}

TEST_CASE("transfer: a mark of a refusal that cannot be looked at ends nobody", "[transfer]") {
  Transfers at;
  at.foreign = {"node2"};
  Transfers::Node& node = at.add_node("node2");
  const std::string folder = at.want(node).run_dir;
  append(folder + "/logs/gen-0001/rank-0000.log", "kept\n");
  fs::create_symlink(refusal_of(folder), refusal_of(folder));  // It leads to itself.
  node.spool->look("run1");
  node.spool->end("run1");
  at.run_until([&] {
    return std::any_of(node.warnings.begin(), node.warnings.end(),
                       [&](const std::string& warning) { return warning.starts_with(folder + " stays for"); });
  });
  CHECK(fs::exists(folder));
}

TEST_CASE("transfer: a quota refuses what is too much, and the node keeps it", "[transfer]") {
  Transfers at({100'000, 150'000});
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  append(folder + "/logs/gen-0001/rank-0000.log", std::string(100'001, 'x'));
  append(folder + "/logs/gen-0001/rank-0001.log", std::string(90'000, 'y'));
  node.spool->look("run1");
  at.run_until([&] { return at.refused.size() == 1 && at.grown["logs/gen-0001/rank-0001.log"] == 90'000; });
  CHECK(at.refused.front() == "logs/gen-0001/rank-0000.log is larger than 100000 bytes");
  // What came of another file since does not make the run whole.
  CHECK(at.service->trouble_of("run1") == at.refused.front());
  append(folder + "/logs/gen-0001/rank-0002.log", std::string(70'000, 'z'));
  node.spool->look("run1");
  at.run_until([&] { return at.refused.size() == 2; });
  CHECK(at.refused.back() == "the run's files take more than 150000 bytes");
  CHECK(at.service->refused() == 2);
  node.spool->end("run1");
  at.run_until([&] { return fs::exists(refusal_of(folder)); });
  CHECK(fs::file_size(folder + "/logs/gen-0001/rank-0002.log") == 70'000);
}

TEST_CASE("transfer: a disk that is full is waited for, and nothing is lost", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  const CheckpointFiles made = make_checkpoint(100, 1, 3'000'000);
  const std::string log = noise(2'500'000, 1);
  write_checkpoint(folder, made);
  append(folder + "/logs/gen-0001/rank-0000.log", log);
  std::optional<FileSizeLimit> full(1'500'000);
  node.spool->look("run1");
  at.run_until([&] { return at.refused.size() >= 3; });
  CHECK(at.stored.empty());
  CHECK(!node.warnings.empty());
  full.reset();
  at.run_until([&] { return at.is_stored(made); });
  end_and_wait(at, node);
  CHECK(slurp(at.run_dir + "/logs/gen-0001/rank-0000.log") == log);
  CHECK(Transfers::has(at.run_dir + "/checkpoints/" + made.name, made));
}

TEST_CASE("transfer: a checkpoint that is damaged on its node is refused, not stored", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  CheckpointFiles made = make_checkpoint(100, 1, 50'000);
  made.files["model.safetensors"][1000] ^= 1;
  write_checkpoint(folder, made);
  node.spool->look("run1");
  at.run_until([&] { return at.refused.size() >= 3 && !node.warnings.empty(); });
  CHECK_THAT(at.refused.front(), Catch::Contains("model.safetensors is damaged"));
  CHECK(at.stored.empty());
  CHECK_FALSE(fs::exists(at.run_dir + "/checkpoints/" + made.name));
}

TEST_CASE("transfer: a checkpoint that cannot be read is tried three times and stays; others go", "[transfer]") {
  Transfers at;
  at.knows_all = true;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  const std::string other = at.want(node, {}, "run2").run_dir;
  const CheckpointFiles unreadable = make_checkpoint(100, 1, 50'000, 1);
  const CheckpointFiles good = make_checkpoint(200, 1, 50'000, 2);
  write_checkpoint(folder, unreadable);
  write_checkpoint(other, good);
  const std::string file = "checkpoints/" + unreadable.name + "/model.safetensors";
  const auto warnings_with = [&](const std::string& words) {
    return std::count_if(node.warnings.begin(), node.warnings.end(), [&](const std::string& warning) {
      return warning.find(unreadable.name) != std::string::npos && warning.find(words) != std::string::npos;
    });
  };
  int listings = 0;
  node.wire->on_up = [&](std::string& bytes) {
    if (bytes.find(file) == std::string::npos) return;
    ++listings;  // By then it was listed as a file; it is read when the answer is there.
    fs::remove(folder + "/" + file);
    fs::create_directory(folder + "/" + file);
  };
  node.spool->look("run1");
  node.spool->look("run2");
  at.run_until([&] {
    if (fs::is_directory(folder + "/" + file) && warnings_with("model.safetensors is no regular file") == listings) {
      fs::remove(folder + "/" + file);
      append(folder + "/" + file, unreadable.files.at("model.safetensors"));
    }
    return warnings_with("stays on this node") > 0 && at.is_stored(good);
  });
  for (int turn = 0; turn < 50; ++turn) at.io.run_one_for(10ms);
  CHECK(listings == agent::FileSender::kAttemptsMax);
  CHECK(warnings_with("is sent again in") == 2);
  CHECK(warnings_with("stays on this node") == 1);
  CHECK_FALSE(at.is_stored(unreadable));
  node.spool->end("run1");
  at.run_until([&] { return fs::exists(refusal_of(folder)); });
  CHECK(fs::exists(folder + "/" + file));
}

TEST_CASE("transfer: a node that got no folder for a run has sent everything when the run ends there", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  at.run_until([&] { return node.wire->connections > 0; });
  at.run_until([&] {
    node.spool->end("run1");
    return !at.all_sent.empty();
  });
  CHECK(at.all_sent.front() == "node1");
}
