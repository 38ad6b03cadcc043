// Ranks started by exec: statuses, failures, what they inherit, and what a terminal may do.

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/process/process_tree.hpp"
#include "trace_support.hpp"

using namespace sgd;
using keeper_test::TemporaryDir;
using keeper_test::TestKeeper;

TEST_CASE("a keeper hands over two empty memfds of its own", "[keeper]") {
  TestKeeper keeper;
  REQUIRE(keeper.descriptors.size() == 2);
  struct stat shared {};
  struct stat checkpoint {};
  REQUIRE(::fstat(keeper.descriptors[0].get(), &shared) == 0);
  REQUIRE(::fstat(keeper.descriptors[1].get(), &checkpoint) == 0);
  CHECK(shared.st_size == 0);
  CHECK(shared.st_ino != checkpoint.st_ino);
  CHECK(::ftruncate(keeper.descriptors[0].get(), 4096) == 0);
}

TEST_CASE("exit statuses are reported in the order of the exits", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  const struct {
    const char* script;
    int exit_code;
    int signal;
  } cases[] = {{"exit 0", 0, 0}, {"exit 3", 3, 0}, {"kill -9 $$", -1, SIGKILL}, {"kill -SEGV $$", -1, SIGSEGV}};
  std::int64_t sequence = 0;
  for (const auto& entry : cases) {
    keeper.spawn_shell(0, entry.script, dir.file("log"));
    const auto spawned = keeper.wait<keeper::Spawned>();
    const auto exited = keeper.wait<keeper::Exited>();
    CHECK(exited.pid == spawned.pid);
    CHECK(exited.exit_code == entry.exit_code);
    CHECK(exited.signal == entry.signal);
    CHECK(exited.sequence == ++sequence);
  }
}

TEST_CASE("what cannot be started fails at once and says why", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  std::ofstream(dir.file("plain")) << "text\n";
  keeper::Spawn spawn;
  spawn.generation = 1;
  spawn.log_path = dir.file("logs/gen-0001/rank-0000.log");
  spawn.argv = {dir.file("missing")};
  keeper.send(spawn);
  auto failed = keeper.wait<keeper::SpawnFailed>();
  CHECK(failed.error == ENOENT);
  CHECK(failed.message == "program " + dir.file("missing") + " is missing");
  spawn.argv = {dir.file("plain")};
  keeper.send(spawn);
  failed = keeper.wait<keeper::SpawnFailed>();
  CHECK(failed.error == EACCES);
  CHECK_THAT(failed.message, Catch::Contains("is not executable"));
  spawn.argv = {"true"};
  spawn.log_path = "/proc/none/log";
  keeper.send(spawn);
  failed = keeper.wait<keeper::SpawnFailed>();
  CHECK_THAT(failed.message, Catch::Contains("cannot open log file /proc/none/log"));
}

TEST_CASE("a rank inherits only its own three descriptors and default signals", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper::Spawn spawn;
  spawn.generation = 1;
  spawn.argv = {"/bin/sh", "-c",
                "ls -l /proc/$$/fd; grep -E '^Sig(Blk|Ign|Cgt)' /proc/self/status; echo $SGD_TEST_WORD; pwd; "
                "cut -d' ' -f5 /proc/$$/stat; echo $$"};
  spawn.environment.set = {{"SGD_TEST_WORD", "from the agent"}};
  spawn.workdir = "/usr";
  spawn.log_path = dir.file("log");
  keeper.send(spawn);
  const auto exited = keeper.wait<keeper::Exited>();
  const std::string text = keeper.output[0];
  INFO(text);
  CHECK(exited.exit_code == 0);
  CHECK_THAT(text, Catch::Contains("0 -> /dev/null"));
  CHECK_THAT(text, Catch::Contains("1 -> pipe:") && Catch::Contains("2 -> pipe:"));
  CHECK_THAT(text, !Catch::Contains("memfd") && !Catch::Contains("socket") && !Catch::Contains(" 3 -> "));
  CHECK_THAT(text, Catch::Contains("SigBlk:\t0000000000000000") && Catch::Contains("SigIgn:\t0000000000000000"));
  CHECK_THAT(text, Catch::Contains("from the agent\n/usr\n"));
  // Its own process group: the group's number is its pid.
  CHECK_THAT(text, Catch::EndsWith(std::to_string(exited.pid) + "\n" + std::to_string(exited.pid) + "\n"));
  CHECK(exited.tail.size() > 5);
  CHECK(exited.tail.back() == std::to_string(exited.pid));
}

TEST_CASE("a signal reaches the rank's process and not its group", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper.spawn_shell(0,
                     "trap 'echo got it; exit 9' TERM; sleep 1000 & echo $! > " + dir.file("child") + "; echo up; wait",
                     dir.file("log"));
  keeper.require_until("up", std::chrono::seconds(20), [&] { return keeper.output[0] == "up\n"; });
  const int child = std::stoi(keeper_test::read_file(dir.file("child")));
  keeper.send(keeper::Signal{1, 0, SIGTERM});
  const auto exited = keeper.wait<keeper::Exited>();
  CHECK(exited.exit_code == 9);
  CHECK(keeper.output[0] == "up\ngot it\n");
  CHECK(process::read_process(child).has_value());
  keeper.send(keeper::Signal{1, 0, SIGTERM});  // A rank that is gone is ignored.
  keeper.send(keeper::Clear{1});
  CHECK(keeper.wait<keeper::Cleared>().killed == 1);
  CHECK_FALSE(process::read_process(child).has_value());
}

TEST_CASE("a rank whose group was sent SIGTERM ends with its group", "[keeper]") {
  using namespace std::chrono_literals;
  TemporaryDir dir;
  TestKeeper keeper;
  const std::string go = dir.file("go");
  const auto spawn_wrapper = [&](const std::string& trap) {
    // The outer shell has no handler: it dies at once, and its child is who has something to do. That waits for the
    // signal by itself, since a shell would say that what it waits with is terminated.
    keeper.spawn_shell(0, "sh -c '" + trap + "; echo up; while :; do :; done' & wait", dir.file("log"));
    keeper.require_until("up", 20s, [&] { return keeper.output[0] == "up\n"; });
    const int rank = keeper.wait<keeper::Spawned>().pid;
    keeper.send(keeper::Signal{1, 0, SIGTERM, true});
    REQUIRE(keeper_test::wait_gone(rank, 20s));
    CHECK_FALSE(keeper.read_some(100ms));
  };
  SECTION("which saves what it has") {
    spawn_wrapper("trap \"while [ ! -e " + go + " ]; do sleep 0.01; done; echo saved; exit 0\" TERM");
    std::ofstream(go) << "now\n";
    CHECK(keeper.wait<keeper::Exited>().signal == SIGTERM);
    CHECK(keeper.output[0] == "up\nsaved\n");
    CHECK(process::descendants(keeper.pid()).empty());
  }
  SECTION("which a later signal ends") {
    spawn_wrapper("trap \"\" TERM");
    keeper.send(keeper::Signal{1, 0, SIGINT, true});
    CHECK_FALSE(keeper.read_some(100ms));  // What a script starts behind & ignores it.
    keeper.send(keeper::Signal{1, 0, SIGHUP, true});
    CHECK(keeper.wait<keeper::Exited>().signal == SIGTERM);
  }
  SECTION("unless it is cleared") {
    spawn_wrapper("trap \"\" TERM");
    keeper.send(keeper::Clear{1});
    CHECK(keeper.wait<keeper::Exited>().signal == SIGTERM);
    CHECK(keeper.wait<keeper::Cleared>().killed >= 1);
    CHECK(process::descendants(keeper.pid()).empty());
  }
}

TEST_CASE("after the signals of a terminal a rank ends by itself", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper.spawn_shell(0, "sleep 1000 & echo up; exec sleep 1000", dir.file("log"));  // The first one ignores SIGINT.
  keeper.require_until("up", std::chrono::seconds(20), [&] { return keeper.output[0] == "up\n"; });
  keeper.send(keeper::Signal{1, 0, SIGINT, true});
  CHECK(keeper.wait<keeper::Exited>().signal == SIGINT);
  keeper.send(keeper::Clear{1});
  CHECK(keeper.wait<keeper::Cleared>().killed == 1);
}

TEST_CASE("the terminal's signals do not end a keeper", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGTSTP}) {
    REQUIRE(::kill(keeper.pid(), signal) == 0);
  }
  const auto entry = process::read_process(keeper.pid());
  REQUIRE(entry);
  CHECK(entry->group == keeper.pid());  // Ctrl-C goes to another group altogether.
  keeper.spawn_shell(0, "exit 5", dir.file("log"));
  CHECK(keeper.wait<keeper::Exited>().exit_code == 5);
}

TEST_CASE("Close ends the keeper with 0, a bad frame with its tree", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper.spawn_shell(0, "echo up; sleep 1000", dir.file("log"));
  keeper.require_until("up", std::chrono::seconds(20), [&] { return keeper.output[0] == "up\n"; });
  const int rank = keeper.wait<keeper::Spawned>().pid;
  SECTION("Close") {
    keeper.send(keeper::Close{});
    CHECK(keeper.wait<keeper::Exited>().signal == SIGKILL);
    CHECK(keeper.wait<keeper::Cleared>().killed >= 1);
    CHECK(keeper.wait_keeper().exit_code == 0);
  }
  SECTION("bad frame") {
    REQUIRE(::write(keeper.socket(), "\xff\xff\xff\xff\x01garbage", 12) == 12);
    CHECK(keeper.wait_keeper().exit_code == 1);
  }
  CHECK(keeper_test::wait_gone(rank, std::chrono::seconds(2)));
}

TEST_CASE("a rank whose end a debugger keeps to itself costs no time until it lets go", "[keeper]") {
  using namespace std::chrono_literals;
  TemporaryDir dir;
  TestKeeper keeper;
  keeper.spawn_shell(0, "exec sleep 1000", dir.file("log"));
  const pid_t rank = keeper.wait<keeper::Spawned>().pid;
  trace_test::QuietTracer tracer(rank);
  if (!tracer.traces()) return;
  REQUIRE(::kill(rank, SIGKILL) == 0);
  REQUIRE(keeper_test::wait_until(20s, [&] {
    const auto entry = process::read_process(rank);
    return entry && entry->zombie;
  }));
  const auto before = keeper_test::cpu_time_of(keeper.pid());
  CHECK_FALSE(keeper.read_some(400ms));
  CHECK(keeper_test::cpu_time_of(keeper.pid()) - before < 200ms);
  tracer.end();
  const auto exited = keeper.wait<keeper::Exited>();
  CHECK(exited.pid == rank);
  CHECK(exited.signal == SIGKILL);
}
