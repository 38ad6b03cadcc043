// Clear and the loss of the agent: whatever a rank has started is gone, and reaped.

#include <signal.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/keeper/console_window.hpp"
#include "launcher/process/process_tree.hpp"

using namespace sgd;
using keeper_test::TemporaryDir;
using keeper_test::TestKeeper;
using namespace std::chrono_literals;

namespace {

/// A rank whose grandchild has left its session and its parent, and holds the output pipe.
int spawn_stray(TestKeeper& keeper, const TemporaryDir& dir, const char* end) {
  keeper.spawn_shell(0,
                     "(setsid sh -c 'trap \"\" TERM HUP INT; echo $$ > " + dir.file("stray.tmp") + "; mv " +
                         dir.file("stray.tmp") + " " + dir.file("stray") +
                         "; while :; do sleep 1000; done' &); "
                         "while [ ! -e " +
                         dir.file("stray") + " ]; do sleep 0.01; done; " + end,
                     dir.file("log"));
  return std::stoi(keeper_test::wait_file(dir.file("stray"), 20s));
}

}  // namespace

TEST_CASE("an exit is reported although a grandchild holds the pipe; Clear ends the grandchild", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  const int stray = spawn_stray(keeper, dir, "echo last words; exit 4");
  const auto exited = keeper.wait<keeper::Exited>(10s);
  CHECK(exited.exit_code == 4);
  CHECK(keeper.output[0] == "last words\n");
  CHECK(process::read_process(stray).has_value());
  keeper.send(keeper::Clear{1});
  const auto cleared = keeper.wait<keeper::Cleared>();
  CHECK(cleared.generation == 1);
  CHECK(cleared.killed >= 1);
  CHECK_FALSE(process::read_process(stray).has_value());
  CHECK(process::descendants(keeper.pid()).empty());  // Nor a zombie.
}

TEST_CASE("when the agent goes, its ranks and their setsid grandchildren go too", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  const int stray = spawn_stray(keeper, dir, "echo here; sleep 1000");
  keeper.require_until("output", 20s, [&] { return keeper.output[0] == "here\n"; });
  const int rank = keeper.wait<keeper::Spawned>().pid;
  keeper.drop_link();
  CHECK(keeper_test::wait_gone(stray, 20s));
  CHECK(keeper_test::wait_gone(rank, 20s));
  CHECK(keeper.wait_keeper().exit_code == 1);
  CHECK(keeper_test::read_file(dir.file("log")) == "here\n");
}

TEST_CASE("what was written before the agent went is in the log file", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper(keeper::ConsoleWindow::kPatience);
  // The console is not acknowledged: the pipe is full of lines that nobody has read.
  keeper.acknowledge = false;
  keeper.spawn_shell(0, "seq -f %079.0f 60000; echo done > " + dir.file("done") + "; sleep 1000", dir.file("log"));
  REQUIRE(keeper_test::wait_file(dir.file("done"), 30s) == "done\n");
  keeper.drop_link();
  CHECK(keeper.wait_keeper().exit_code == 1);
  const std::string log = keeper_test::read_file(dir.file("log"));
  CHECK(log.size() == 60000U * 80);
  CHECK(log.substr(log.size() - 6) == "60000\n");
}

TEST_CASE("Clear reports every rank before Cleared, and the keeper goes on", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  constexpr int kRanks = 8;
  for (Rank rank = 0; rank < kRanks; ++rank) {
    keeper.spawn_shell(rank, "echo up; exec sleep 1000", dir.file("log" + std::to_string(rank)));
  }
  for (Rank rank = 0; rank < kRanks; ++rank) {
    keeper.require_until("up", 20s, [&] { return keeper.output[rank] == "up\n"; });
  }
  keeper.messages.clear();
  keeper.send(keeper::Clear{1});
  keeper.require_until("Cleared", 20s, [&] {
    return !keeper.messages.empty() && std::holds_alternative<keeper::Cleared>(keeper.messages.back());
  });
  REQUIRE(keeper.messages.size() == kRanks + 1);
  for (int i = 0; i < kRanks; ++i) {
    REQUIRE(std::holds_alternative<keeper::Exited>(keeper.messages[i]));
    CHECK(std::get<keeper::Exited>(keeper.messages[i]).signal == SIGKILL);
    CHECK(std::get<keeper::Exited>(keeper.messages[i]).sequence == i + 1);
  }
  CHECK(std::get<keeper::Cleared>(keeper.messages.back()).killed == kRanks);
  keeper.messages.clear();
  keeper.spawn_shell(0, "exit 6", dir.file("log"));
  CHECK(keeper.wait<keeper::Exited>().exit_code == 6);
  keeper.send(keeper::Clear{2});
  CHECK(keeper.wait<keeper::Cleared>().killed == 0);
}

TEST_CASE("a tree that forks all the time is cleared", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  // Every member keeps replacing itself; some leave for sessions of their own.
  const std::string script =
      "f() { while :; do sleep 0.01 & setsid sh -c 'sleep 0.02; sleep 0.02' & wait; done; }; "
      "for i in 1 2 3 4 5 6 7 8; do f & done; echo up; wait";
  keeper.spawn_shell(0, script, dir.file("log"));
  keeper.require_until("up", 20s, [&] { return keeper.output[0] == "up\n"; });
  keeper.send(keeper::Clear{1});
  const auto cleared = keeper.wait<keeper::Cleared>(20s);
  CHECK(cleared.killed >= 9);
  CHECK(process::descendants(keeper.pid()).empty());
}

TEST_CASE("adopted children leave no zombies while a rank runs", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper.spawn_shell(0,
                     "for i in 1 2 3 4 5 6 7 8 9 10; do (sh -c 'sleep 0.01; exit 3' &); done; "
                     "echo rest; exec sleep 1000",
                     dir.file("log"));
  keeper.require_until("rest", 20s, [&] { return keeper.output[0] == "rest\n"; });
  const int rank = keeper.wait<keeper::Spawned>().pid;
  REQUIRE(keeper_test::wait_until(20s, [&] { return process::descendants(keeper.pid()).size() == 1; }));
  CHECK(process::descendants(keeper.pid())[0].pid == rank);
}
