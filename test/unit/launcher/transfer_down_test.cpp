// Checkpoints on their way to a node that lacks them, from the coordinator or from another node; and peers
// who want what they may not have.

#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "test/unit/launcher/transfer_support.hpp"

using namespace sgd;
using namespace sgd::test;
using namespace std::chrono_literals;
namespace fs = std::filesystem;
using Fetched = std::optional<agent::FileFetcher::Fetched>;

namespace {

void put_on_coordinator(const Transfers& at, const CheckpointFiles& made) {
  fs::create_directories(at.run_dir + "/checkpoints");
  write_checkpoint(at.run_dir, made);
}

}  // namespace

TEST_CASE("fetch: a node gets the checkpoint that it lacks, over a line that breaks", "[transfer]") {
  Transfers at;
  const CheckpointFiles made = make_checkpoint(100, 1, 6 << 20);
  put_on_coordinator(at, made);
  Transfers::Node& node = at.add_node("node1");
  const cluster::DesiredRun desired = at.want(node, {at.run_dir + "/checkpoints/" + made.name, "/elsewhere/x"});
  CHECK(desired.resume_from == std::vector<std::string>{node.folder() + "/checkpoints/" + made.name, "/elsewhere/x"});
  node.wire->cut_after_down = 1'400'000;
  int cuts = 1;
  node.wire->on_down = [&, before = 0](const std::string&) mutable {
    if (node.wire->connections == before) return;
    before = node.wire->connections;
    node.wire->cut_after_down = 1'400'000;
    ++cuts;
  };
  Fetched fetched;
  at.fetch(node, made.name, fetched);
  at.run_until([&] { return fetched.has_value(); });
  CHECK(fetched->error.empty());
  CHECK(cuts >= 6);
  CHECK(Transfers::has(desired.resume_from.front(), made));
}

TEST_CASE("fetch: a node gets what the run has taken from another one, to the same place in its own folder",
          "[transfer]") {
  Transfers at;
  const CheckpointFiles made = make_checkpoint(100, 1, 3 << 20);
  fs::create_directories(at.folder.path("other") + "/checkpoints");
  write_checkpoint(at.folder.path("other"), made);
  const std::string taken = "/taken/0001/" + made.name;
  fs::create_directories(at.run_dir + "/taken/0001");
  fs::rename(at.folder.path("other") + "/checkpoints/" + made.name, at.run_dir + taken);
  Transfers::Node& node = at.add_node("node1");
  const cluster::DesiredRun desired = at.want(node, {at.run_dir + taken});
  CHECK(desired.resume_from.front() == node.folder() + taken);
  Fetched fetched;
  node.spool->fetch("run1", node.folder() + taken,
                    {nullptr, [&](const agent::FileFetcher::Fetched& got) { fetched = got; }});
  at.run_until([&] { return fetched.has_value(); });
  CHECK(fetched->error.empty());
  CHECK(Transfers::has(node.folder() + taken, made));
  CHECK(fs::is_empty(node.folder() + "/checkpoints"));
}

TEST_CASE("fetch: bits that turn over on the way are found and asked for again", "[transfer]") {
  Transfers at;
  const CheckpointFiles made = make_checkpoint(100, 1, 6 << 20);
  put_on_coordinator(at, made);
  Transfers::Node& node = at.add_node("node1");
  at.want(node);
  int flips = 0;
  node.wire->on_down = [&](std::string& bytes) {
    if (bytes.size() < 20'000 || flips == 12) return;
    if (++flips % 2 == 0) bytes[bytes.size() / 2] ^= 1;
  };
  Fetched fetched;
  at.fetch(node, made.name, fetched);
  at.run_until([&] { return fetched.has_value(); });
  CHECK(fetched->error.empty());
  CHECK(Transfers::has(node.folder() + "/checkpoints/" + made.name, made));
}

TEST_CASE("fetch: what the coordinator lacks comes from another node; when that one dies, the next goes on",
          "[transfer]") {
  Transfers at;
  const CheckpointFiles made = make_checkpoint(100, 1, 6 << 20);
  // Neither brings it of its own accord: their lines are blocked until the third one asks.
  for (const char* name : {"node1", "node2"}) {
    Transfers::Node& holder = at.add_node(name);
    holder.wire->block(true);
    write_checkpoint(at.want(holder).run_dir, made);
  }
  Transfers::Node& asking = at.add_node("node3");
  at.want(asking);
  Fetched fetched;
  std::int64_t progress = 0;
  asking.spool->fetch("run1", asking.folder() + "/checkpoints/" + made.name,
                      {[&](std::int64_t bytes) { progress = std::max(progress, bytes); },
                       [&](const agent::FileFetcher::Fetched& got) { fetched = got; }});
  at.run_until([&] { return asking.wire->up_bytes > 0; });
  Transfers::Node& first = at.nodes.at("node1");
  Transfers::Node& second = at.nodes.at("node2");
  first.wire->cut_after_up = 3'500'000;
  first.wire->block(false);
  at.run_until([&] { return first.wire->up_bytes > 3'000'000; });
  at.run_until([&] { return first.wire->cut_after_up == -1; });  // Cut in the middle,
  first.wire->block(true);                                       // for ever.
  CHECK_FALSE(fetched.has_value());
  second.wire->block(false);
  at.run_until([&] { return fetched.has_value(); });
  CHECK(fetched->error.empty());
  CHECK(progress > 0);
  CHECK(Transfers::has(asking.folder() + "/checkpoints/" + made.name, made));
  CHECK(Transfers::has(at.run_dir + "/checkpoints/" + made.name, made));
  CHECK(second.wire->up_bytes < 7'000'000);  // Of 8 MiB: it went on where the first had come to.
}

TEST_CASE("fetch: a folder of somewhere else is refused at once", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  at.want(node);
  for (const char* path : {"/elsewhere/checkpoints/step-000000000100-gen-0001", "", "checkpoints/../../etc"}) {
    Fetched fetched;
    node.spool->fetch("run1", path, {nullptr, [&](const agent::FileFetcher::Fetched& got) { fetched = got; }});
    CHECK_FALSE(fetched.has_value());
    at.run_until([&] { return fetched.has_value(); });
    CHECK(fetched->is_missing);
  }
}

TEST_CASE("fetch: facts carry the coordinator's paths", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string local = at.want(node).run_dir;
  cluster::Fact fact;
  fact.run = "run1";
  fact.body = cluster::CheckpointRejected{{local + "/checkpoints/x", "damaged"}};
  const auto rejected = std::get<cluster::Fact>(node.spool->for_coordinator(fact));
  CHECK(std::get<cluster::CheckpointRejected>(rejected.body).checkpoint.path == at.run_dir + "/checkpoints/x");
  link::Ready ready;
  ready.path = local + "/checkpoints/x";
  fact.body = cluster::WorkerReady{0, ready};
  const auto told = std::get<cluster::Fact>(node.spool->for_coordinator(fact));
  CHECK(std::get<cluster::WorkerReady>(told.body).ready.path == at.run_dir + "/checkpoints/x");
}

TEST_CASE("spool: a live run keeps its place among ten thousand that came and went; limit kRemotesMax", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string local = at.want(node).run_dir;
  cluster::DesiredRun gone;
  gone.want = cluster::Want::kGone;
  for (int number = 0; number < 10'001; ++number) {
    gone.run = "run2-" + std::to_string(number);
    gone.run_dir = "/elsewhere";
    (void)node.spool->localize(gone);
  }
  cluster::Fact fact;
  const auto told = [&](const RunId& run, const std::string& path) {
    fact.run = run;
    fact.body = cluster::CheckpointRejected{{path, "damaged"}};
    return std::get<cluster::CheckpointRejected>(std::get<cluster::Fact>(node.spool->for_coordinator(fact)).body)
        .checkpoint.path;
  };
  CHECK(told("run1", local + "/checkpoints/x") == at.run_dir + "/checkpoints/x");
  const std::string folder = local.substr(0, local.rfind('/'));
  CHECK(told("run2-10000", folder + "/run2-10000/x") == "/elsewhere/x");
  CHECK(told("run2-0", folder + "/run2-0/x") == folder + "/run2-0/x");  // It has been forgotten.
}

TEST_CASE("file service: names that lead elsewhere are refused and counted", "[transfer]") {
  Transfers at;
  Stranger stranger(at);
  const std::vector<std::string> names = {"../outside.log",
                                          "logs/../../outside.log",
                                          "/etc/passwd",
                                          "logs//x",
                                          "logs/a/b/c.log",
                                          "logs",
                                          "",
                                          "logs/.hidden",
                                          std::string("logs/a\0b", 8),
                                          "logs/" + std::string(200, 'x'),
                                          "checkpoints/x/model.safetensors",
                                          "checkpoints/step-000000000100-gen-0001",
                                          "job.json",
                                          "logs/gen-0001/r\xc3\xa4nk.log",
                                          "logs/a\nb"};
  for (const std::string& name : names) stranger.put(name, "x");
  at.run_until([&] { return at.refused.size() == names.size(); });
  CHECK(at.service->refused() == names.size());
  CHECK(at.refused.front() == "\"../outside.log\" is no name of a run's file");
  CHECK_FALSE(fs::exists(at.folder.path("coordinator/outside.log")));
  CHECK(fs::is_empty(at.run_dir));
  CHECK_FALSE(stranger.is_closed());
  stranger.put("logs/good.log", "x");
  at.run_until([&] { return at.grown.contains("logs/good.log"); });
}

TEST_CASE("file service: a node that is refused often is read slowly; limit kRefusalsFree, on its next connection too",
          "[transfer]") {
  Transfers at;
  const auto batch = [&](std::size_t count) {
    Stranger stranger(at);
    const std::size_t before = at.refused.size();
    std::string flood;
    for (std::size_t i = 0; i < count; ++i)
      flood += encode_frame(FrameKind::kJson, transfer::encode(transfer::Query{"nobody", "logs/a"}));
    stranger.write(flood);
    at.run_until([&] { return at.refused.size() == before + count; });
  };
  const auto free = static_cast<std::size_t>(coordinator::FileService::kRefusalsFree);
  const auto begin = std::chrono::steady_clock::now();
  batch(free + 1);
  batch(free);
  // Each beyond those that are free is followed by a rest, or comes when one has been forgotten, which takes as long.
  CHECK(std::chrono::steady_clock::now() - begin >= (free - 2) * coordinator::FileService::kRest);
}

TEST_CASE("file service: a link that somebody has planted is not followed", "[transfer]") {
  Transfers at;
  fs::create_directories(at.folder.path("outside"));
  fs::create_directories(at.run_dir + "/logs");
  fs::create_directories(at.run_dir + "/checkpoints");
  at.folder.write("outside/secret.log", "secret");
  fs::create_symlink(at.folder.path("outside"), at.run_dir + "/logs/gen-0001");
  fs::create_symlink(at.folder.path("outside/secret.log"), at.run_dir + "/logs/link.log");
  fs::create_directory_symlink(at.folder.path("outside"), at.run_dir + "/checkpoints/step-000000000100-gen-0001");
  REQUIRE(::mkfifo((at.run_dir + "/logs/pipe.log").c_str(), 0600) == 0);
  Stranger stranger(at);
  stranger.put("logs/gen-0001/rank-0000.log", "x");
  stranger.put("logs/link.log", "x");
  stranger.put("logs/pipe.log", "x");
  stranger.say(transfer::encode(transfer::Get{"run1", "checkpoints/step-000000000100-gen-0001", "secret.log", 0, 10}));
  at.run_until([&] { return at.refused.size() == 4; });
  CHECK_THAT(at.refused[0] + at.refused[1] + at.refused[2] + at.refused[3], Catch::Contains("a link is in its place"));
  CHECK(slurp(at.folder.path("outside/secret.log")) == "secret");
  CHECK_FALSE(fs::exists(at.folder.path("outside/rank-0000.log")));
}

TEST_CASE("file service: requests without bytes have a limit, and the next connection is served", "[transfer]") {
  Transfers at;
  {
    Stranger stranger(at);
    // More than one turn of the event loop takes, and all of them before any is done.
    transfer::Put put{"run1", "logs/a", 0, 0, transfer::checksum("run1", "logs/a", 0, {}), true};
    std::string flood;
    for (std::size_t i = 0; i < coordinator::FileService::kRequestsMax + 500; ++i)
      flood += encode_frame(FrameKind::kJson, transfer::encode(put));
    stranger.write(flood);
    stranger.put("logs/end.log", "x");
    // A disk that is done with each before the next are read leaves nothing to refuse.
    at.run_until([&] { return stranger.is_closed() || at.grown.contains("logs/end.log"); });
    if (stranger.is_closed()) CHECK_THAT(at.refused.back(), Catch::Contains("more than 4096 requests at a time"));
  }
  Stranger next(at);
  next.put("logs/good.log", "x");
  at.run_until([&] { return at.grown.contains("logs/good.log"); });
}

TEST_CASE("file service: who is refused too often is shown out", "[transfer]") {
  Transfers at;
  Stranger stranger(at);
  for (std::size_t i = 0; i <= coordinator::FileService::kRefusalsMax; ++i) {
    CHECK(at.service->refused() <= coordinator::FileService::kRefusalsMax);
    stranger.say(transfer::encode(transfer::Query{"run1", "../x"}));
  }
  at.run_until([&] { return stranger.is_closed(); });
  CHECK(at.service->refused() == coordinator::FileService::kRefusalsMax + 1);
}

TEST_CASE("file service: who is refused often is read slowly, and what it says then is taken all the same",
          "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  (void)at.want(node);
  Stranger stranger(at);
  stranger.put("logs/first.log", "x");
  at.run_until([&] { return at.grown.contains("logs/first.log"); });
  constexpr std::size_t kFree = coordinator::FileService::kRefusalsFree;
  constexpr std::size_t kSlow = 50;
  std::string said;
  for (std::size_t i = 0; i < kFree + kSlow; ++i)
    said += encode_frame(FrameKind::kJson, transfer::encode(transfer::Query{"run1", "../x"}));
  stranger.write(said);
  at.run_until([&] { return at.service->refused() > kFree; });
  CHECK(at.service->refused() < kFree + kSlow);  // The others have come with it, and wait.
  at.run_until([&] { return at.service->refused() == kFree + kSlow; });
  stranger.put("logs/good.log", "x");
  at.run_until([&] { return at.grown.contains("logs/good.log"); });
}

TEST_CASE("file service: who breaks the protocol is shown out, and nobody else", "[transfer]") {
  Transfers at;
  Transfers::Node& node = at.add_node("node1");
  const std::string folder = at.want(node).run_dir;
  Stranger stranger(at);
  SECTION("bytes that were not announced") {
    stranger.chunk("x");
  }
  SECTION("other bytes than were announced") {
    stranger.say(transfer::encode(transfer::Put{"run1", "logs/a", 0, 3, 0, false}));
    stranger.chunk("x");
  }
  SECTION("no bytes where some were announced") {
    stranger.say(transfer::encode(transfer::Put{"run1", "logs/a", 0, 3, 0, false}));
    stranger.say(transfer::encode(transfer::Query{"run1", "logs/a"}));
  }
  SECTION("an impossible size") {
    stranger.say(transfer::encode(transfer::Put{"run1", "logs/a", INT64_MAX, 1, 0, false}));
  }
  SECTION("a chunk that is too large") {
    stranger.say(transfer::encode(transfer::Put{"run1", "logs/a", 0, (1 << 20) + 1, 0, false}));
  }
  SECTION("no message") {
    stranger.say("{}");
  }
  at.run_until([&] { return stranger.is_closed(); });
  std::ofstream(folder + "/logs/a.log") << "still served";
  node.spool->look("run1");
  at.run_until([&] { return slurp(at.run_dir + "/logs/a.log") == "still served"; });
}
