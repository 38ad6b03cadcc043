// A keeper whose agents come and go: it goes on without one, and the next one hears what it has missed.
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <optional>
#include <system_error>
#include <vector>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/keeper/agent_connection.hpp"
#include "launcher/keeper/keeper_main.hpp"
#include "launcher/process/clock.hpp"
#include "launcher/process/pidfd.hpp"
#include "launcher/process/process_tree.hpp"
#include "launcher/process/unix_socket.hpp"

using namespace sgd;
using namespace sgd::keeper_test;
using namespace std::chrono_literals;

namespace {

/// One life of an agent, at the keeper's socket.
class AttachedAgent {
 public:
  AttachedAgent(const std::string& path, std::int64_t received) : received_(received) {
    auto connected = process::connect_unix(path, 5s);
    REQUIRE(connected.ok());
    socket_ = std::move(connected).value();
    send(keeper::Attach{received});
    started = wait<keeper::Started>();
  }

  void send(const keeper::ToKeeper& message) {
    const std::string frame = keeper::encode(message);
    REQUIRE(process::send_with_descriptors(socket_.get(), frame, {}).ok());
  }

  /// The next message of this type; counts all that come.
  template <class T>
  T wait() {
    for (const TimePoint deadline = process::monotonic_now() + 20s;;)
      if (const keeper::FromKeeper message = next(deadline); const T* found = std::get_if<T>(&message)) return *found;
  }
  keeper::FromKeeper next(TimePoint deadline) {
    for (;;)
      if (auto message = next_frame(deadline)) return std::move(*message);
  }
  /// The head of the chunk with which all output ends so.
  keeper::OutputHead wait_for_output(std::string_view last) {
    for (const TimePoint deadline = process::monotonic_now() + 20s; !output.ends_with(last);)
      (void)next_frame(deadline);
    return newest;
  }
  [[nodiscard]] std::int64_t received() const { return received_; }

  keeper::Started started;
  std::vector<process::UniqueFd> descriptors;
  std::string output;         ///< Of all ranks, so far.
  keeper::OutputHead newest;  ///< Of the last chunk.

 private:
  /// A message; nothing: it was output.
  std::optional<keeper::FromKeeper> next_frame(TimePoint deadline) {
    for (;;) {
      auto frame = reader_.next();
      REQUIRE(frame.ok());
      if (frame.value() && frame.value()->kind == FrameKind::kChunk) {
        output += frame.value()->bytes.substr(keeper::kOutputHeaderBytes);
        newest = keeper::decode_output_head(frame.value()->bytes).value();
        return std::nullopt;
      }
      if (frame.value()) {
        auto message = keeper::decode_from_keeper(frame.value()->bytes);
        REQUIRE(message.ok());
        if (keeper::is_counted(message.value())) ++received_;
        return std::move(message).value();
      }
      pollfd entry{socket_.get(), POLLIN, 0};
      REQUIRE(::poll(&entry, 1, process::poll_timeout_ms(process::monotonic_now(), deadline)) == 1);
      char buffer[65536];
      auto got = process::receive_with_descriptors(socket_.get(), buffer);
      REQUIRE(got.ok());
      REQUIRE(got.value().bytes > 0);
      for (process::UniqueFd& fd : got.value().descriptors) descriptors.push_back(std::move(fd));
      reader_.append({buffer, got.value().bytes});
    }
  }

  process::UniqueFd socket_;
  FrameReader reader_;
  std::int64_t received_;
};

class KeeperFixture {
 public:
  explicit KeeperFixture(Duration wait) {
    REQUIRE(process::become_subreaper().ok());
    auto listener = process::listen_unix(path());
    REQUIRE(listener.ok());
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (listener.value().get() != 3) ::dup2(listener.value().get(), 3);
      ::close_range(4, ~0U, 0);
      pollfd first_agent{3, POLLIN, 0};
      (void)::poll(&first_agent, 1, 20'000);  // Else the time without one begins before a test has come to it.
      ::_exit(keeper::keeper_main(wait));
    }
    pidfd_ = std::move(process::pidfd_open(pid_)).value();
  }
  ~KeeperFixture() {
    (void)process::pidfd_send_signal(pidfd_.get(), SIGKILL);
    (void)process::kill_descendants({}, 10s);
  }
  [[nodiscard]] std::string path() const { return folder_.file("keeper.sock"); }
  [[nodiscard]] std::string file(const std::string& name) const { return folder_.file(name); }
  /// Its exit code.
  int wait_end() {
    pollfd entry{pidfd_.get(), POLLIN, 0};
    REQUIRE(::poll(&entry, 1, 20'000) == 1);
    const auto status = process::wait_exit(pidfd_.get());
    REQUIRE((status.ok() && status.value()));
    return status.value()->exit_code;
  }

 private:
  TemporaryDir folder_;
  int pid_ = -1;
  process::UniqueFd pidfd_;
};

keeper::Spawn shell(const std::string& script, const std::string& log) {
  keeper::Spawn spawn;
  spawn.generation = 1;
  spawn.argv = {"/bin/sh", "-c", script};
  spawn.log_path = log;
  return spawn;
}

}  // namespace

TEST_CASE("keeper: what happens without an agent is told to the next one, once") {
  KeeperFixture fixture(30s);
  const std::string script = "while [ ! -e " + fixture.file("go") + " ]; do sleep 0.01; done; echo last; exit 3";
  std::int64_t had = 0;
  int pid = 0;
  {
    AttachedAgent first(fixture.path(), 0);
    CHECK(first.descriptors.size() == 2);
    CHECK(first.started.received == 0);
    first.send(shell(script, fixture.file("log")));
    pid = first.wait<keeper::Spawned>().pid;
    CHECK(first.wait<keeper::Received>().count == 1);
    had = first.received();
  }
  REQUIRE(had == 1);
  REQUIRE(::close(::creat(fixture.file("go").c_str(), 0600)) == 0);
  CHECK(wait_file(fixture.file("log"), 10s) == "last\n");
  REQUIRE(wait_gone(pid, 10s));
  {
    AttachedAgent deaf(fixture.path(), 0);  // It dies before it has written anything down.
    CHECK(deaf.wait<keeper::Spawned>().pid == pid);
  }
  AttachedAgent second(fixture.path(), had);
  CHECK(second.started.received == 1);
  CHECK(second.descriptors.size() == 2);
  const auto exited = second.wait<keeper::Exited>();
  CHECK(exited.exit_code == 3);
  CHECK(exited.tail == std::vector<std::string>{"last"});
  CHECK(second.received() == 2);
  second.send(keeper::OutputAck{5});
  second.send(keeper::Received{2});
  second.send(keeper::Close{});
  CHECK(second.wait<keeper::Cleared>().generation == 0);
  second.send(keeper::Received{3});
  CHECK(fixture.wait_end() == 0);
}

TEST_CASE("keeper: what ranks say without an agent is shown by the next one, up to a limit; the rest is told") {
  KeeperFixture fixture(30s);
  const std::string script =
      "while [ ! -e " + fixture.file("go") + " ]; do sleep 0.01; done; yes 'a line of twenty by' | head -n ";
  int many = 0;
  SECTION("little") {
    many = 1000;
  }
  SECTION("more than the limit") {
    many = 1'000'000;
  }
  AttachedAgent(fixture.path(), 0).send(shell(script + std::to_string(many), fixture.file("log")));
  REQUIRE(::close(::creat(fixture.file("go").c_str(), 0600)) == 0);
  const auto whole = static_cast<std::size_t>(many) * 20;
  const auto has_all = [&] {
    std::error_code missing;
    return std::filesystem::file_size(fixture.file("log"), missing) == whole;
  };
  for (const TimePoint deadline = process::monotonic_now() + 20s; !has_all(); (void)::poll(nullptr, 0, 1))
    REQUIRE(process::monotonic_now() < deadline);
  AttachedAgent second(fixture.path(), 0);
  std::optional<keeper::OutputDropped> dropped;
  for (const TimePoint deadline = process::monotonic_now() + 20s;;) {
    const keeper::FromKeeper message = second.next(deadline);
    if (const auto* told = std::get_if<keeper::OutputDropped>(&message)) dropped = *told;
    if (std::holds_alternative<keeper::Exited>(message)) break;
  }
  const std::size_t lost = dropped ? static_cast<std::size_t>(dropped->bytes) : 0;
  CHECK(second.output.size() + lost == whole);
  CHECK(second.output.ends_with("a line of twenty by\n"));
  CHECK((lost > 0) == (whole > keeper::UntakenOutput::kMemoryMax));
  if (dropped) CHECK(dropped->is_on_console);
  if (dropped) CHECK(dropped->lines == static_cast<std::int64_t>(lost / 20));
}

TEST_CASE("keeper: output that an agent has died with comes again, and says that it is the same") {
  KeeperFixture fixture(30s);
  const std::string script =
      "echo one; echo two; while [ ! -e " + fixture.file("go") + " ]; do sleep 0.01; done; echo three";
  keeper::OutputHead one;
  {
    AttachedAgent first(fixture.path(), 0);
    first.send(shell(script, fixture.file("log")));
    one = first.wait_for_output("one\ntwo\n");
    first.send(keeper::OutputAck{5});  // Of "two" a part.
  }
  REQUIRE(::close(::creat(fixture.file("go").c_str(), 0600)) == 0);
  AttachedAgent second(fixture.path(), 0);
  const keeper::OutputHead two = second.wait_for_output("three\n");
  CHECK((second.output == "one\ntwo\nthree\n" || second.output == "two\nthree\n"));
  CHECK(one.end == 8);
  CHECK(two.end == 14);
  CHECK(one.keeper == two.keeper);
  CHECK(one.keeper != 0);
}

TEST_CASE("keeper: how many lines a full disk has lost while no agent was there is told to the next one") {
  KeeperFixture fixture(30s);
  int pid = 0;
  {
    AttachedAgent first(fixture.path(), 0);
    first.send(shell("while [ ! -e " + fixture.file("go") + " ]; do sleep 0.01; done; echo a; echo b", "/dev/full"));
    pid = first.wait<keeper::Spawned>().pid;
  }
  REQUIRE(::close(::creat(fixture.file("go").c_str(), 0600)) == 0);
  REQUIRE(wait_gone(pid, 10s));
  AttachedAgent second(fixture.path(), 0);
  // What the keeper reads after this visit has begun it tells at once, and then before the end.
  keeper::OutputDropped dropped;
  std::optional<int> exit_code;
  for (const TimePoint deadline = process::monotonic_now() + 20s; !exit_code || dropped.lines < 2;) {
    const keeper::FromKeeper message = second.next(deadline);
    if (const auto* exited = std::get_if<keeper::Exited>(&message)) exit_code = exited->exit_code;
    if (const auto* some = std::get_if<keeper::OutputDropped>(&message))
      dropped = {some->rank, dropped.lines + some->lines, dropped.bytes + some->bytes, some->reason};
  }
  CHECK(exit_code == 0);
  CHECK(dropped.lines == 2);
  CHECK(dropped.bytes == 4);
  CHECK_THAT(dropped.reason, Catch::Contains("/dev/full"));
}

TEST_CASE("keeper: no count of lost lines is lost, however many files lose some; limit kUntoldMax") {
  keeper::AgentConnection agent(1);
  constexpr int kFiles = static_cast<int>(keeper::kUntoldMax) + 3;
  for (int again = 0; again < 2; ++again)
    for (int rank = 0; rank < kFiles; ++rank) agent.send(keeper::OutputDropped{rank, 1, 2, "full"});
  auto ends = process::socket_pair(SOCK_STREAM);
  REQUIRE(ends.ok());
  agent.attach(std::move(ends.value().first));
  REQUIRE(agent.resume({}, {}, {}).ok());
  FrameReader reader;
  std::int64_t lines = 0;
  int messages = 0;
  while (lines < 2 * kFiles) {
    char buffer[65536];
    const ssize_t count = ::recv(ends.value().second.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    agent.flush();
    REQUIRE((count > 0 || agent.wants_write()));
    if (count > 0) reader.append({buffer, static_cast<std::size_t>(count)});
    for (auto frame = reader.next(); frame.ok() && frame.value(); frame = reader.next()) {
      const auto message = keeper::decode_from_keeper(frame.value()->bytes);
      REQUIRE(message.ok());
      if (const auto* dropped = std::get_if<keeper::OutputDropped>(&message.value())) {
        lines += dropped->lines;
        ++messages;
      }
    }
  }
  CHECK(lines == 2 * kFiles);
  CHECK(messages == static_cast<int>(keeper::kUntoldMax));
}

TEST_CASE("keeper: a count of lost lines that has not left for its agent is told to the next one") {
  keeper::AgentConnection agent(1);
  const auto visit = [&agent] {
    auto ends = process::socket_pair(SOCK_STREAM);
    REQUIRE(ends.ok());
    agent.attach(std::move(ends.value().first));
    REQUIRE(agent.resume({}, {}, {}).ok());
    return std::move(ends.value().second);
  };
  const auto lines_told = [&agent](const process::UniqueFd& to) {
    FrameReader reader;
    std::int64_t lines = 0;
    for (char buffer[4096];;) {
      agent.flush();
      const ssize_t count = ::recv(to.get(), buffer, sizeof buffer, MSG_DONTWAIT);
      if (count <= 0) return lines;
      reader.append({buffer, static_cast<std::size_t>(count)});
      for (auto frame = reader.next(); frame.ok() && frame.value(); frame = reader.next()) {
        const auto message = keeper::decode_from_keeper(frame.value()->bytes);
        const auto* dropped = message ? std::get_if<keeper::OutputDropped>(&message.value()) : nullptr;
        lines += dropped == nullptr ? 0 : dropped->lines;
      }
    }
  };
  visit().reset();
  agent.send(keeper::OutputDropped{0, 1, 2, "full"});
  CHECK(agent.lost());
  CHECK(lines_told(visit()) == 1);
  const process::UniqueFd silent = visit();
  while (!agent.wants_write()) agent.send(keeper::Cleared{1, 0});
  agent.send(keeper::OutputDropped{0, 3, 4, "full"});
  CHECK(lines_told(visit()) == 3);
  CHECK(lines_told(visit()) == 0);  // Once.
}

TEST_CASE("keeper: its last words wait for an agent that takes them") {
  KeeperFixture fixture(30s);
  {
    AttachedAgent first(fixture.path(), 0);
    first.send(keeper::Close{});
    CHECK(first.wait<keeper::Cleared>().generation == 0);
  }
  AttachedAgent second(fixture.path(), 0);
  CHECK(second.wait<keeper::Cleared>().generation == 0);
  second.send(keeper::Received{1});
  CHECK(fixture.wait_end() == 0);
}

TEST_CASE("keeper: without an agent for too long everything ends, and at once when none comes back") {
  for (const bool says_so : {false, true}) {
    KeeperFixture fixture(says_so ? Duration(30s) : Duration(500ms));
    int pid = 0;
    {
      AttachedAgent only(fixture.path(), 0);
      only.send(shell("sleep 1000", fixture.file("log")));
      pid = only.wait<keeper::Spawned>().pid;
      if (says_so) only.send(keeper::AgentEnds{});
    }
    CHECK(fixture.wait_end() == 1);
    CHECK(wait_gone(pid, 1s));
  }
}

TEST_CASE("keeper: an agent that has more than was told is none of its own") {
  KeeperFixture fixture(30s);
  auto stranger = process::connect_unix(fixture.path(), 5s);
  REQUIRE(stranger.ok());
  const std::string frame = keeper::encode(keeper::ToKeeper(keeper::Attach{5}));
  REQUIRE(process::send_with_descriptors(stranger.value().get(), frame, {}).ok());
  char byte = 0;
  CHECK(::recv(stranger.value().get(), &byte, 1, 0) == 0);  // It is turned away.
  AttachedAgent own(fixture.path(), 0);
  CHECK(own.started.pid > 0);
}

TEST_CASE(
    "keeper: what may wait for an agent that is away has a limit, and is told whole below it; limit kKeptBytesMax") {
  keeper::AgentConnection agent(1);
  keeper::Exited exited;
  exited.tail = std::vector<std::string>(20, std::string(keeper::kTailLineBytesMax, 'x'));
  std::size_t count = 0;
  std::size_t bytes = 0;
  for (; !agent.keeps_too_much() && bytes < 2 * keeper::kKeptBytesMax; ++count) {
    agent.send(exited);
    bytes += keeper::encode(keeper::FromKeeper(exited)).size();
  }
  CHECK(agent.keeps_too_much());
  CHECK(bytes > keeper::kKeptBytesMax);
  CHECK(bytes < keeper::kKeptBytesMax + (64 << 10));
  CHECK(count > 5'000);  // Thousands of ends with all their last lines.
}

TEST_CASE("keeper: an agent that reads nothing is lost when its queue is full; limit kAgentQueueBytesMax") {
  auto ends = process::socket_pair(SOCK_STREAM);
  REQUIRE(ends.ok());
  REQUIRE(process::set_nonblocking(ends.value().first.get()));
  keeper::AgentConnection agent(std::move(ends.value().first));
  // As many pieces as one read can be cut into: each of the longest lines, and a held-back one.
  keeper::ConsoleCut cut;
  const std::string flood(keeper::kReadBytes + keeper::kConsoleLineBytesMax, 'x');
  keeper::cut_lines(flood, keeper::kConsoleLineBytesMax, cut);
  std::size_t bytes = 0;
  while (!agent.lost() && bytes < 2 * keeper::kAgentQueueBytesMax)
    bytes += static_cast<std::size_t>(agent.send_output({1, 0, keeper::Stream::kOut, false}, cut.pieces, true));
  CHECK(agent.lost());
  CHECK(bytes >= keeper::kAgentQueueBytesMax);
}
