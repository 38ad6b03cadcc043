// A rank's two streams, its terminal, lines that are being written, and what it says of its failure.

#include <csignal>
#include <cstdio>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"

using namespace sgd;
using keeper_test::read_file;
using keeper_test::TemporaryDir;
using keeper_test::TestKeeper;
using namespace std::chrono_literals;

namespace {

keeper::Spawn shell(const TemporaryDir& dir, Rank rank, const std::string& script) {
  keeper::Spawn spawn;
  spawn.generation = 1;
  spawn.rank = rank;
  spawn.argv = {"/bin/sh", "-c", script};
  spawn.log_path = dir.file("log" + std::to_string(rank));
  spawn.error_file = dir.file("error" + std::to_string(rank));
  return spawn;
}

/// Of the shell: a file that the script waits for.
std::string until(const TemporaryDir& dir, const char* name) {
  return "while [ ! -e " + dir.file(name) + " ]; do sleep 0.01; done; ";
}

void make(const TemporaryDir& dir, const char* name) {
  std::fclose(std::fopen(dir.file(name).c_str(), "w"));
}

}  // namespace

TEST_CASE("stdout and stderr are told apart, and the log has both", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper::Spawn spawn = shell(dir, 0, "echo one; echo two >&2; echo three two >&2");
  spawn.err.path = dir.file("files/err");
  spawn.err.filters = {"three"};
  spawn.err.filtered_path = dir.file("filtered");
  keeper.send(spawn);
  CHECK(keeper.wait<keeper::Exited>().exit_code == 0);
  CHECK(keeper.errors[0] == "two\nthree two\n");
  CHECK(keeper.output[0].size() == std::string("one\ntwo\nthree two\n").size());
  CHECK(read_file(dir.file("log0")).size() == keeper.output[0].size());
  CHECK(read_file(dir.file("files/err")) == keeper.errors[0]);
  CHECK(read_file(dir.file("filtered")) == "three two\n");
}

TEST_CASE("in a file of all ranks each line says whose it is, and a long one says so once", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  const std::string script = "head -c 100000 /dev/zero | tr '\\0' x; echo ' loss'; echo other; printf 'loss 2'";
  for (const Rank rank : {0, 1}) {
    keeper::Spawn spawn = shell(dir, rank, rank == 0 ? "printf 'loss 1\\nother\\nloss 2'" : script);
    spawn.line_prefix = "[r" + std::to_string(rank) + "]:";
    spawn.out.filters = {"loss", "xx"};
    spawn.out.filtered_path = dir.file("filtered");
    keeper.send(spawn);
    CHECK(keeper.wait<keeper::Exited>().exit_code == 0);
  }
  CHECK(read_file(dir.file("filtered")) ==
        "[r0]:loss 1\n[r0]:loss 2\n[r1]:" + std::string(100000, 'x') + " loss\n[r1]:loss 2\n");
}

TEST_CASE("a stream that is not shown is in its files alone", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper::Spawn spawn = shell(dir, 0, "echo one; echo two >&2");
  spawn.out.is_shown = false;
  keeper.send(spawn);
  CHECK(keeper.wait<keeper::Exited>().tail.size() == 2);
  CHECK(keeper.output[0] == "two\n");
  CHECK(read_file(dir.file("log0")).size() == 8);
}

TEST_CASE("a bar moves on the console, and is one line there when it ends", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper.send(shell(dir, 0, "printf '\\r 10%%\\r 20%%' >&2; " + until(dir, "go") + "printf '\\r100%%\\n' >&2"));
  keeper.require_until("the bar", 20s, [&] { return !keeper.open_lines[0].empty(); });
  CHECK(keeper.open_lines[0].back() == "\r 20%");
  CHECK(keeper.output[0].empty());
  make(dir, "go");
  CHECK(keeper.wait<keeper::Exited>().tail == std::vector<std::string>{"100%"});
  CHECK(keeper.output[0] == "100%\n");
  CHECK(read_file(dir.file("log0")) == "\r 10%\r 20%\r100%\n");
}

TEST_CASE("a question is shown once its writer is quiet; stdout keeps its bytes", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper.send(shell(dir, 0, "printf 'Name? '; " + until(dir, "go") + "printf 'x\\ry\\n'"));
  keeper.require_until("the question", 20s, [&] { return !keeper.open_lines[0].empty(); });
  CHECK(keeper.open_lines[0].back() == "Name? ");
  make(dir, "go");
  CHECK(keeper.wait<keeper::Exited>().exit_code == 0);
  CHECK(keeper.output[0] == "Name? x\ry\n");
}

TEST_CASE("a failure is told with the rank's own words, and those of others that go on", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  const std::string traceback = "printf 'Traceback (most recent call last):\\n  File \"a\"\\nValueError: bad\\n' >&2; ";
  keeper.send(shell(dir, 0, traceback + "touch " + dir.file("said") + "; " + until(dir, "never")));
  keeper.send(shell(
      dir, 1,
      until(dir, "said") + "printf '{\"message\": {\"message\": \"KeyError: 7' >" + dir.file("error1") + "; exit 1"));
  const auto failed = keeper.wait<keeper::Exited>();
  CHECK(failed.rank == 1);
  CHECK(failed.error.type == "KeyError");
  CHECK(failed.error.message == "7");
  REQUIRE(failed.others.size() == 1);
  CHECK(failed.others[0].rank == 0);
  CHECK(failed.others[0].error.type == "ValueError");
  keeper.send(shell(dir, 2, "exit 0"));
  const auto done = keeper.wait<keeper::Exited>();
  CHECK(done.error.empty());
  CHECK(done.others.empty());
}

TEST_CASE("a signal for the group reaches what the rank has started", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  // The shell waits for its foreground child, which has the default action and is there when it says so; the trap is
  // taken when that has ended.
  keeper.send(shell(dir, 0, "trap 'echo rank' INT; sh -c 'echo up; exec sleep 1000'; echo after"));
  keeper.require_until("the rank", 20s, [&] { return keeper.output[0] == "up\n"; });
  keeper.send(keeper::Signal{1, 0, SIGINT, true});
  CHECK(keeper.wait<keeper::Exited>().exit_code == 0);
  CHECK(keeper.output[0] == "up\nrank\nafter\n");
}

TEST_CASE("a rank with a terminal writes to one, and ends with all that it wrote", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper::Spawn spawn = shell(dir, 0, "test -t 1 && test -t 2 && echo yes; seq 1000; echo last >&2");
  spawn.has_terminal = true;
  keeper.send(spawn);
  CHECK(keeper.wait<keeper::Exited>().exit_code == 0);
  CHECK(keeper.output[0].starts_with("yes\n1\n2\n"));
  CHECK(keeper.output[0].ends_with("1000\nlast\n"));
}

TEST_CASE("a rank that puts a file in place of its terminal goes on, and may open it again", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  keeper::Spawn spawn =
      shell(dir, 0,
            "exec 3>&1; tty <&1 >" + dir.file("tty") + "; exec >" + dir.file("own") + " 2>&1 3>&-; echo hidden; " +
                until(dir, "go") + "exec >$(cat " + dir.file("tty") + "); echo back; exit 7");
  spawn.has_terminal = true;
  keeper.send(spawn);
  CHECK(keeper_test::wait_file(dir.file("own"), 20s) == "hidden\n");
  for (Rank rank = 1; rank < 3; ++rank) {  // The loop has turned.
    keeper.send(shell(dir, rank, "exit 0"));
    CHECK(keeper.wait<keeper::Exited>().rank == rank);
  }
  make(dir, "go");
  const auto exited = keeper.wait<keeper::Exited>();
  CHECK(exited.signal == 0);
  CHECK(exited.exit_code == 7);
  CHECK(keeper.output[0] == "back\n");
}
