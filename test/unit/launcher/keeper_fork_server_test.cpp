// Ranks from a fork server. The server here is this test program again, run by the keeper with
// a hidden test case that speaks the real protocol over descriptor 3 and forks shells.

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>

#include "common/messages/fork_server.hpp"
#include "keeper_test_support.hpp"
#include "launcher/keeper/fork_server_process.hpp"
#include "launcher/keeper/limits.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/unix_socket.hpp"
#include "trace_support.hpp"

using namespace sgd;
using keeper_test::TemporaryDir;
using keeper_test::TestKeeper;
using namespace std::chrono_literals;

namespace {

void answer(const fork_server::FromForkServer& message, int pidfd = -1) {
  const std::string text = encode(message);
  (void)process::send_with_descriptors(3, text, std::span(&pidfd, pidfd >= 0 ? 1 : 0));
}

[[noreturn]] void be_rank(const fork_server::Fork& fork, pid_t middle, int output) {
  while (::getppid() == middle) ::sched_yield();
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != fork.keeper_pid) ::_exit(99);
  ::setpgid(0, 0);
  ::dup2(output, 1);
  ::dup2(output, 2);
  ::execl("/bin/sh", "sh", "-c", fork.env.at("SCRIPT").c_str(), nullptr);
  ::_exit(98);
}

void fork_rank(const fork_server::Fork& fork, process::UniqueFd output) {
  int pids[2];
  REQUIRE(::pipe2(pids, O_CLOEXEC) == 0);
  const pid_t middle = ::fork();
  if (middle == 0) {
    const pid_t self = ::getpid();
    const pid_t rank = ::fork();
    if (rank == 0) be_rank(fork, self, output.get());
    (void)!::write(pids[1], &rank, sizeof rank);
    ::_exit(0);
  }
  ::waitpid(middle, nullptr, 0);
  pid_t rank = -1;
  (void)!::read(pids[0], &rank, sizeof rank);
  ::close(pids[0]);
  ::close(pids[1]);
  auto pidfd = process::pidfd_open(rank);
  answer(fork_server::Forked{fork.generation, fork.rank, rank}, pidfd.ok() ? pidfd.value().get() : -1);
}

/// Starts this program as the keeper's fork server; `how` selects what it does at Prepare.
void start_fork_server(TestKeeper& keeper, const std::string& how, const std::string& log_path,
                       const std::string& backend = "") {
  keeper::StartForkServer start;
  start.argv = {"/proc/self/exe", "fake fork server"};
  start.job = {{"how", how}, {"backend", backend}};
  start.log_path = log_path;
  keeper.send(start);
}

void fork_shell(TestKeeper& keeper, Rank rank, const std::string& script, const std::string& log_path,
                std::size_t more_bytes = 0) {
  keeper::Spawn spawn;
  spawn.argv = {"/bin/sh", "-c", "echo by exec ${#LONG}"};
  spawn.generation = 1;
  spawn.rank = rank;
  spawn.fork_server = true;
  spawn.environment.set = {{"SCRIPT", script}};
  if (more_bytes > 0) spawn.environment.set["LONG"] = std::string(more_bytes, 'x');
  spawn.log_path = log_path;
  keeper.send(spawn);
}

}  // namespace

TEST_CASE("fake fork server", "[.]") {
  bool deaf = false;
  static char buffer[128 << 10];
  for (;;) {
    auto received = process::receive_with_descriptors(3, buffer);
    if (!received || received.value().bytes == 0) ::_exit(0);
    auto message = fork_server::decode_to_fork_server({buffer, received.value().bytes});
    if (!message) ::_exit(97);
    if (const auto* prepare = std::get_if<fork_server::Prepare>(&message.value())) {
      const std::string how = prepare->job.at("how");
      deaf = how == "deaf";
      if (how == "refuse") answer(fork_server::PrepareFailed{2, "unknown model \"cmn\""});
      if (how == "refuse") ::_exit(2);
      if (how == "crash") (void)!::write(2, "plug-in: undefined symbol\n", 26);
      if (how == "crash") ::raise(SIGKILL);
      answer(fork_server::Prepared{how == "threads" ? 3 : 1});
      continue;
    }
    if (deaf) continue;
    fork_rank(std::get<fork_server::Fork>(message.value()), std::move(received.value().descriptors.at(0)));
  }
}

TEST_CASE("ranks come from the fork server with their own pipes and statuses", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  start_fork_server(keeper, "well", dir.file("fork-server.log"));
  const auto ready = keeper.wait<keeper::ForkServerReady>();
  CHECK(ready.can_fork);
  CHECK(ready.threads == 1);
  CHECK(ready.pid > 0);
  CHECK(ready.start_s > 0);
  for (Rank rank = 0; rank < 4; ++rank) {
    fork_shell(keeper, rank, "echo rank " + std::to_string(rank) + "; exit " + std::to_string(10 + rank),
               dir.file("log" + std::to_string(rank)));
  }
  for (int i = 0; i < 4; ++i) {
    const auto exited = keeper.wait<keeper::Exited>();
    CHECK(exited.exit_code == 10 + exited.rank);
    CHECK(keeper.output[exited.rank] == "rank " + std::to_string(exited.rank) + "\n");
  }
  // A rank that is gone before its pid is known must not lose its status to the reaper.
  for (int i = 0; i < 50; ++i) {
    fork_shell(keeper, 0, "exit 7", dir.file("log"));
    CHECK(keeper.wait<keeper::Exited>().exit_code == 7);
  }
  fork_shell(keeper, 1, "kill -9 $$", dir.file("log"));
  CHECK(keeper.wait<keeper::Exited>().signal == SIGKILL);
  keeper.send(keeper::Clear{1});
  CHECK(keeper.wait<keeper::Cleared>().killed == 0);
  REQUIRE(process::descendants(keeper.pid()).size() == 1);
  CHECK(process::descendants(keeper.pid())[0].pid == ready.pid);
}

TEST_CASE("Clear spares the fork server and waits for forks on their way", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  start_fork_server(keeper, "well", dir.file("fork-server.log"));
  const int server = keeper.wait<keeper::ForkServerReady>().pid;
  for (Generation generation = 1; generation <= 10; ++generation) {
    for (Rank rank = 0; rank < 3; ++rank) fork_shell(keeper, rank, "sleep 1000", dir.file("log"));
    keeper.send(keeper::Clear{generation});  // At once: the forks are unanswered.
    const auto cleared = keeper.wait<keeper::Cleared>();
    CHECK(cleared.generation == generation);
    int exits = 0;
    for (keeper::Exited exited; keeper.take(exited); ++exits) CHECK(exited.signal == SIGKILL);
    CHECK(exits == 3);
    CHECK(process::descendants(keeper.pid()).size() == 1);
  }
  CHECK(process::read_process(server).has_value());
  keeper.send(keeper::Close{});
  CHECK(keeper.wait<keeper::Cleared>().killed == 1);
  CHECK(keeper.wait_keeper().exit_code == 0);
  CHECK(keeper_test::wait_gone(server, 1s));
}

TEST_CASE("a fork server that refuses or dies is reported once, with its words", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  SECTION("refuses the job") {
    start_fork_server(keeper, "refuse", dir.file("fork-server.log"));
    const auto failed = keeper.wait<keeper::ForkServerFailed>();
    CHECK(failed.exit_code == 2);
    CHECK(failed.message == "unknown model \"cmn\"");
  }
  SECTION("dies while it prepares") {
    start_fork_server(keeper, "crash", dir.file("fork-server.log"));
    const auto failed = keeper.wait<keeper::ForkServerFailed>();
    CHECK(failed.signal == SIGKILL);
    CHECK_THAT(failed.message, Catch::StartsWith("fork server ended with signal 9 (SIGKILL)"));
    CHECK_THAT(failed.message, Catch::Contains("\nplug-in: undefined symbol"));
  }
  SECTION("is missing") {
    keeper::StartForkServer start;
    start.argv = {dir.file("sgd-worker")};
    start.log_path = dir.file("fork-server.log");
    keeper.send(start);
    CHECK_THAT(keeper.wait<keeper::ForkServerFailed>().message, Catch::Contains("is missing"));
  }
  fork_shell(keeper, 0, "exit 0", dir.file("log"));
  CHECK(keeper.wait<keeper::SpawnFailed>().message == "the fork server is not ready");
  keeper.send(keeper::Clear{1});
  (void)keeper.wait<keeper::Cleared>();
  keeper::ForkServerFailed again;
  CHECK_FALSE(keeper.take(again));
}

TEST_CASE("ranks that are given more than a message to the fork server holds are started by exec", "[keeper]") {
  constexpr std::size_t kLong = keeper::kForkMessageBytesMax - 1000;  // As one variable may be; more with the script.
  const std::string script = "echo forked #" + std::string(2000, 'x');
  TemporaryDir dir;
  TestKeeper keeper;
  SECTION("and it is said once") {
    start_fork_server(keeper, "well", dir.file("fork-server.log"));
    CHECK(keeper.wait<keeper::ForkServerReady>().can_fork);
    for (Rank rank = 0; rank < 2; ++rank)
      fork_shell(keeper, rank, script, dir.file("log" + std::to_string(rank)), kLong);
    fork_shell(keeper, 2, script, dir.file("log2"));
    for (int i = 0; i < 3; ++i) CHECK(keeper.wait<keeper::Exited>().exit_code == 0);
    const std::string said = "by exec " + std::to_string(kLong) + "\n";
    CHECK(keeper.output[0] == said);
    CHECK(keeper.output[1] == said);
    CHECK(keeper.output[2] == "forked\n");
    const auto told = keeper.wait<keeper::ForkServerReady>();
    CHECK_FALSE(told.can_fork);
    CHECK(told.reason == "their arguments and environment are longer than the 128 KiB that a fork server takes");
    keeper::ForkServerReady again;
    CHECK_FALSE(keeper.take(again));
  }
  SECTION("but for those that only the fork server gives their backend") {
    start_fork_server(keeper, "well", dir.file("fork-server.log"), "sgd");
    (void)keeper.wait<keeper::ForkServerReady>();
    fork_shell(keeper, 0, script, dir.file("log"), kLong);
    CHECK_THAT(keeper.wait<keeper::SpawnFailed>().message, Catch::EndsWith("or start with --preload none"));
  }
}

TEST_CASE("a server with threads cannot fork, and says so", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  start_fork_server(keeper, "threads", dir.file("fork-server.log"));
  const auto ready = keeper.wait<keeper::ForkServerReady>();
  CHECK(ready.threads == 3);
  CHECK_FALSE(ready.can_fork);
}

TEST_CASE("when the fork server is killed its ranks live on until they are cleared", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  start_fork_server(keeper, "well", dir.file("fork-server.log"));
  const int server = keeper.wait<keeper::ForkServerReady>().pid;
  fork_shell(keeper, 0, "echo up; exec sleep 1000", dir.file("log"));
  keeper.require_until("up", 20s, [&] { return keeper.output[0] == "up\n"; });
  const int rank = keeper.wait<keeper::Spawned>().pid;
  REQUIRE(::kill(server, SIGKILL) == 0);
  CHECK(keeper.wait<keeper::ForkServerFailed>().signal == SIGKILL);
  REQUIRE(process::read_process(rank).has_value());
  CHECK_FALSE(process::read_process(rank)->zombie);
  keeper.send(keeper::Clear{1});
  CHECK(keeper.wait<keeper::Cleared>().killed == 1);
  CHECK(keeper.wait<keeper::Exited>().signal == SIGKILL);
  CHECK(process::descendants(keeper.pid()).empty());
}

TEST_CASE("a fork server that is killed takes the forks that it was asked for with it, which names the signal",
          "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  start_fork_server(keeper, "deaf", dir.file("fork-server.log"));
  const int server = keeper.wait<keeper::ForkServerReady>().pid;
  fork_shell(keeper, 0, "exit 0", dir.file("log"));
  REQUIRE(::kill(server, SIGKILL) == 0);
  CHECK(keeper.wait<keeper::ForkServerFailed>().signal == SIGKILL);
  CHECK(keeper.wait<keeper::SpawnFailed>().signal == SIGKILL);
  fork_shell(keeper, 1, "exit 0", dir.file("log"));  // As one that was on its way then.
  CHECK(keeper.wait<keeper::SpawnFailed>().signal == SIGKILL);
}

TEST_CASE("a fork server that does not answer cannot hold Clear up", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  start_fork_server(keeper, "deaf", dir.file("fork-server.log"));
  (void)keeper.wait<keeper::ForkServerReady>();
  fork_shell(keeper, 0, "exit 0", dir.file("log"));
  keeper.send(keeper::Clear{1});
  (void)keeper.wait<keeper::Cleared>();
  CHECK(keeper.wait<keeper::SpawnFailed>().rank == 0);
  CHECK_THAT(keeper.wait<keeper::ForkServerFailed>().message, Catch::Contains("held up the clearing"));
  CHECK(process::descendants(keeper.pid()).empty());
}

TEST_CASE("a fork server whose end a debugger keeps to itself costs no time until it lets go", "[keeper]") {
  TemporaryDir dir;
  TestKeeper keeper;
  start_fork_server(keeper, "well", dir.file("fork-server.log"));
  const pid_t server = keeper.wait<keeper::ForkServerReady>().pid;
  trace_test::QuietTracer tracer(server);
  if (!tracer.traces()) return;
  REQUIRE(::kill(server, SIGKILL) == 0);
  REQUIRE(keeper_test::wait_until(20s, [&] {
    const auto entry = process::read_process(server);
    return entry && entry->zombie;
  }));
  const Duration before = keeper_test::cpu_time_of(keeper.pid());
  CHECK_FALSE(keeper.read_some(keeper::kLinkClosedLimit + 500ms));  // It is killed once more then, for its silence.
  CHECK(keeper_test::cpu_time_of(keeper.pid()) - before < 200ms);
  tracer.end();
  CHECK(keeper.wait<keeper::ForkServerFailed>().signal == SIGKILL);
}

TEST_CASE(
    "a fork server that does not read is asked for a bounded number of ranks, and then no more; limit kForkRequestsMax",
    "[keeper]") {
  TemporaryDir dir;
  keeper::StartForkServer start;
  start.argv = {"/bin/sleep", "1000"};
  start.log_path = dir.file("log");
  auto server = keeper::ForkServerProcess::start(start, {});
  REQUIRE(server.ok());
  fork_server::Fork fork;
  fork.env = {{"SCRIPT", std::string(1000, 'x')}};
  Status asked;
  std::size_t count = 0;
  for (; asked.ok() && count < 4 * keeper::kForkRequestsMax; ++count) asked = server.value().request_fork(fork, {});
  REQUIRE_FALSE(asked.ok());
  CHECK(asked.error().message == "too many requests wait for the fork server");
  CHECK(count >= keeper::kForkRequestsMax);
  fork.env = {{"SCRIPT", std::string(keeper::kForkMessageBytesMax, 'x')}};
  CHECK(server.value().request_fork(fork, {}).error().message == "the message to the fork server is too long");
  server.value().kill();
  pollfd end{server.value().pidfd(), POLLIN, 0};
  CHECK(::poll(&end, 1, 10'000) == 1);
  CHECK(process::wait_exit(server.value().pidfd()).ok());
}
