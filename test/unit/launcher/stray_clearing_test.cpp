// What a dead keeper has left is ended, and nothing else of ours; and the event loop goes on meanwhile.

#include "launcher/agent/stray_clearing.hpp"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include <boost/asio/post.hpp>

#include "keeper_test_support.hpp"
#include "launcher/process/own_children.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/spawn.hpp"
#include "trace_support.hpp"

using namespace sgd;
using namespace std::chrono_literals;

namespace {

process::Child program(const std::string& script) {
  process::SpawnOptions options;
  options.argv = {"sh", "-c", script};
  auto child = process::spawn(options);
  REQUIRE(child.ok());
  return std::move(child).value();
}

/// As a keeper that is killed: reaped, and its orphan is ours. The orphan's pid.
pid_t orphan_of_a_dead_keeper(const keeper_test::TemporaryDir& dir) {
  const process::Child keeper =
      program("(setsid env -i sh -c 'echo $$ > " + dir.file("part") + "; mv " + dir.file("part") + " " +
              dir.file("orphan") + "; exec sleep 1000' &); exec sleep 1000");
  const pid_t orphan = std::stoi(keeper_test::wait_file(dir.file("orphan"), 20s));
  REQUIRE(process::pidfd_send_signal(keeper.pidfd.get(), SIGKILL).ok());
  pollfd ended{keeper.pidfd.get(), POLLIN, 0};
  REQUIRE(::poll(&ended, 1, 20'000) == 1);
  REQUIRE(process::wait_exit(keeper.pidfd.get()).ok());
  return orphan;
}

struct Swept {
  Status status;
  int turns = 0;  ///< Of the loop, before it was done.
};

Swept sweep(std::set<pid_t> spared, Duration limit) {
  boost::asio::io_context io;
  Swept swept;
  bool is_done = false;
  agent::StrayClearing::Handlers handlers;
  handlers.spared = [&] { return spared; };
  handlers.on_done = [&](const Status& status, int) {
    swept.status = status;
    is_done = true;
  };
  agent::StrayClearing clearing(io, {{}, true, 0, {}}, std::move(handlers));
  clearing.limit = limit;
  clearing.start();
  std::function<void()> turn = [&] {
    if (is_done) return;
    ++swept.turns;
    (void)::poll(nullptr, 0, 1);
    boost::asio::post(io, turn);
  };
  boost::asio::post(io, turn);
  io.run_for(20s);
  REQUIRE(is_done);
  return swept;
}

bool is_alive(pid_t pid) {
  const auto entry = process::read_process(pid);
  return entry && !entry->zombie;
}

}  // namespace

TEST_CASE("strays: what a dead keeper has left goes, and what others here have started stays", "[process]") {
  const keeper_test::TemporaryDir dir;
  REQUIRE(process::become_subreaper().ok());
  const process::Child other = program("sh -c 'echo $$ > " + dir.file("below") + "; sleep 1000; true'; true");
  const pid_t below = std::stoi(keeper_test::wait_file(dir.file("below"), 20s));
  const pid_t orphan = orphan_of_a_dead_keeper(dir);
  CHECK(process::own_children().contains(other.pid));
  CHECK_FALSE(process::own_children().contains(orphan));
  const Swept swept = sweep({}, 20s);
  CHECK(swept.status.ok());
  CHECK(swept.turns > 0);
  CHECK_FALSE(process::read_process(orphan).has_value());
  CHECK(is_alive(other.pid));
  CHECK(is_alive(below));
  CHECK(process::kill_descendants({}, 10s).ok());
  CHECK(process::own_children().empty());
}

TEST_CASE("strays: one that does not go is told, and holds nobody up until then", "[process]") {
  const keeper_test::TemporaryDir dir;
  REQUIRE(process::become_subreaper().ok());
  const pid_t orphan = orphan_of_a_dead_keeper(dir);
  // A debugger keeps its end to itself: so it stays, as one does that a disk holds.
  trace_test::QuietTracer tracer(orphan);
  if (tracer.traces()) {
    const Swept swept = sweep({tracer.pid()}, 200ms);
    REQUIRE_FALSE(swept.status.ok());
    CHECK(swept.status.error().message == "process " + std::to_string(orphan) + " does not die of SIGKILL");
    CHECK(swept.turns > 1);
  }
  tracer.end();
  CHECK(process::kill_descendants({}, 10s).ok());
}
