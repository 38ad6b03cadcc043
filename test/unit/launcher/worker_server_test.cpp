// The ranks' socket: a link that is not read loses nothing and holds up nobody, and what a link may cost is bounded.
#include "launcher/agent/worker_server.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <span>

#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/process/foreign_fds.hpp"
#include "launcher/process/heap_trim.hpp"
#include "launcher/process/unix_socket.hpp"

using namespace sgd;
using namespace std::chrono_literals;

namespace {

/// A server, and what it has heard.
struct RanksSocket {
  keeper_test::TemporaryDir folder;
  boost::asio::io_context io;
  std::vector<core::AgentEvent> events;
  std::vector<std::string> dropped;
  std::function<void(const core::AgentEvent&)> on_event;
  agent::WorkerServer server{io,
                             {[this](const core::AgentEvent& event) {
                                events.push_back(event);
                                if (on_event) on_event(event);
                              },
                              [this](const std::string& reason) { dropped.push_back(reason); }}};

  RanksSocket() { REQUIRE(server.listen("run", folder.file("link.sock")).ok()); }
  ~RanksSocket() {
    server.stop();
    io.poll();
  }
  process::UniqueFd connect(const char* path = "link.sock") {
    process::UniqueFd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, folder.file(path).c_str(), sizeof(address.sun_path) - 1);
    REQUIRE(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0);
    return socket;
  }
  void run_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!done() && std::chrono::steady_clock::now() < deadline) io.run_one_for(5ms);
    REQUIRE(done());
  }
  std::vector<std::int64_t> steps(core::ConnectionId of = 0) const {
    std::vector<std::int64_t> steps;
    for (const core::AgentEvent& event : events) {
      const auto* said = std::get_if<core::agent_event::FromWorker>(&event);
      if (said != nullptr && of != 0 && said->connection != of) said = nullptr;
      const auto* step = said == nullptr ? nullptr : std::get_if<link::FirstStep>(&said->message);
      if (step != nullptr) steps.push_back(step->step);
    }
    return steps;
  }
};

void write_to(const process::UniqueFd& socket, const std::string& text) {
  REQUIRE(::send(socket.get(), text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size()));
}

std::string greeting(bool returns) {
  return link::encode(link::FromWorker(link::Hello{"t", 1, link::kProtocol, "", returns, 0}));
}

std::string step(std::int64_t number) {
  return link::encode(link::FromWorker(link::FirstStep{number}));
}

constexpr std::int64_t kMany = 300;

std::string many_steps() {
  std::string text;
  for (std::int64_t number = 1; number <= kMany; ++number) text += step(number);
  return text;
}

/// Each line of link 1 takes a millisecond.
void make_costly(RanksSocket& at) {
  at.on_event = [](const core::AgentEvent& event) {
    const auto* said = std::get_if<core::agent_event::FromWorker>(&event);
    if (said == nullptr || said->connection != 1) return;
    const auto until = std::chrono::steady_clock::now() + 1ms;
    while (std::chrono::steady_clock::now() < until) continue;
  };
}

}  // namespace

TEST_CASE("ranks' socket: a paused link stops at the line, and goes on with the next one", "[worker_server]") {
  RanksSocket at;
  at.on_event = [&](const core::AgentEvent& event) {
    const auto* said = std::get_if<core::agent_event::FromWorker>(&event);
    const auto* first = said == nullptr ? nullptr : std::get_if<link::FirstStep>(&said->message);
    if (first != nullptr && first->step % 2 == 0) at.server.pause(said->connection);
  };
  process::UniqueFd rank = at.connect();
  write_to(rank, greeting(true) + step(1) + step(2) + step(3) + step(4) + step(5));
  rank.reset();  // Its end is seen after its last word.
  at.run_until([&] { return at.steps().size() == 2; });
  for (int turn = 0; turn < 20; ++turn) at.io.run_one_for(1ms);
  CHECK(at.steps() == std::vector<std::int64_t>{1, 2});
  at.server.resume(1);
  at.run_until([&] { return at.steps().size() == 4; });
  for (int turn = 0; turn < 20; ++turn) at.io.run_one_for(1ms);
  CHECK(at.steps().size() == 4);
  CHECK(std::none_of(at.events.begin(), at.events.end(), [](const core::AgentEvent& event) {
    return std::holds_alternative<core::agent_event::LinkClosed>(event);
  }));
  at.server.resume(1);
  at.run_until([&] { return std::holds_alternative<core::agent_event::LinkClosed>(at.events.back()); });
  CHECK(at.steps() == std::vector<std::int64_t>{1, 2, 3, 4, 5});
}

TEST_CASE("ranks' socket: what a rank does not acknowledge has a limit", "[worker_server]") {
  RanksSocket at;
  const process::UniqueFd rank = at.connect();
  write_to(rank, greeting(true));
  at.run_until([&] { return at.events.size() == 1; });
  const link::ToWorker value = link::ExchangeValue{"k", 0, 1, std::string(48 << 10, 'x')};
  std::size_t sent = 0;
  for (; at.dropped.empty() && sent < 2 * agent::WorkerServer::kKeptBytesMax; sent += 48 << 10)
    at.server.send(1, value, {});
  CHECK(sent <= agent::WorkerServer::kKeptBytesMax + (96 << 10));
  REQUIRE(at.dropped.size() == 1);
  CHECK_THAT(at.dropped.front(), Catch::EndsWith("it acknowledges nothing"));
}

TEST_CASE("ranks' socket: links that have not said hello have a limit for each user", "[worker_server]") {
  RanksSocket at;
  std::vector<process::UniqueFd> strangers;
  for (std::size_t i = 0; i <= agent::WorkerServer::kStrangersMax; ++i) {
    strangers.push_back(at.connect());
    at.io.poll();
  }
  at.run_until([&] { return !at.dropped.empty(); });
  CHECK(at.dropped == std::vector<std::string>{"worker link refused: 256 links have not said hello"});
}

TEST_CASE("ranks' socket: a hello that is taken when its time has run out counts", "[worker_server]") {
  RanksSocket at;
  at.server.hello_deadline = 0s;
  const process::UniqueFd rank = at.connect();
  write_to(rank, greeting(false) + step(1));
  at.run_until([&] { return at.steps().size() == 1 || !at.dropped.empty(); });
  at.io.poll();  // The time that has run out.
  CHECK(at.dropped.empty());
  const process::UniqueFd silent = at.connect();
  at.run_until([&] { return !at.dropped.empty(); });
  CHECK(at.dropped.front().ends_with("no hello in time"));
}

TEST_CASE("ranks' socket: hundreds of quiet links hold no buffers", "[worker_server]") {
  RanksSocket at;
  const process::UniqueFd first = at.connect();
  write_to(first, greeting(true));
  at.run_until([&] { return at.events.size() == 1; });
  const std::size_t before = process::resident_bytes();
  REQUIRE(before > 0);
  std::vector<process::UniqueFd> quiet;
  while (quiet.size() < agent::WorkerServer::kStrangersMax) {
    quiet.push_back(at.connect());
    at.io.poll();
  }
  CHECK(process::resident_bytes() < before + (16 << 20));  // With 64 KiB each it would be as much.
}

TEST_CASE("ranks' socket: a link whose lines take long has its turns, and others have theirs between",
          "[worker_server]") {
  RanksSocket at;
  make_costly(at);
  const process::UniqueFd greedy = at.connect();
  at.io.poll();
  const process::UniqueFd other = at.connect();
  at.io.poll();
  write_to(greedy, greeting(true) + many_steps());
  write_to(other, greeting(true) + step(7));
  at.run_until([&] { return at.steps(2).size() == 1; });
  CHECK(at.steps(1).size() < kMany);
  at.run_until([&] { return at.steps(1).size() == kMany; });
}

TEST_CASE("ranks' socket: a run that has had its share waits, and is heard to its end when its rank has ended",
          "[worker_server]") {
  RanksSocket at;
  make_costly(at);
  at.server.work_share = {20ms, 0.001};
  REQUIRE(at.server.listen("greedy", at.folder.file("greedy.sock")).ok());
  process::UniqueFd greedy = at.connect("greedy.sock");
  at.io.poll();
  write_to(greedy, greeting(true) + many_steps());
  at.run_until([&] { return at.steps(1).size() >= 20; });
  const auto begin = std::chrono::steady_clock::now();
  const std::size_t before = at.steps(1).size();
  const process::UniqueFd other = at.connect();
  write_to(other, greeting(true));
  for (std::int64_t number = 1; number <= 50; ++number) {
    write_to(other, step(number));
    at.run_until([&] { return at.steps(2).size() == static_cast<std::size_t>(number); });
  }
  // One turn of some lines, each of a millisecond, between two rests; and three more, since the burst may end in the
  // second one, and the first rest may be short.
  using agent::WorkerServer;
  const auto turns = (std::chrono::steady_clock::now() - begin) / WorkerServer::kRestMax + 3;
  CHECK(at.steps(1).size() - before <= static_cast<std::size_t>(turns * (WorkerServer::kTurn / 1ms + 1)));
  greedy.reset();
  at.run_until([&] { return at.steps(1).size() == kMany; });
  CHECK(at.steps(1).back() == kMany);
}

TEST_CASE("ranks' socket: one line may have cost a run its share for hours, and it is heard all the same",
          "[worker_server]") {
  RanksSocket at;
  make_costly(at);
  at.server.work_share = {Duration::zero(), 1e-6};
  REQUIRE(at.server.listen("greedy", at.folder.file("greedy.sock")).ok());
  process::UniqueFd greedy = at.connect("greedy.sock");
  write_to(greedy, greeting(true));
  for (std::int64_t number = 1; number <= 3; ++number) {
    write_to(greedy, step(number));
    at.run_until([&] { return at.steps(1).size() == static_cast<std::size_t>(number); });
  }
  write_to(greedy, step(4));
  greedy.reset();
  at.run_until([&] { return std::holds_alternative<core::agent_event::LinkClosed>(at.events.back()); });
  CHECK(at.steps(1) == std::vector<std::int64_t>{1, 2, 3, 4});
}

TEST_CASE("ranks' socket: nothing is taken behind what ends a link", "[worker_server]") {
  RanksSocket at;
  const process::UniqueFd rank = at.connect();
  write_to(rank, greeting(true) + step(1) + "no line\n" + step(2) + "no line\n");
  at.run_until(
      [&] { return !at.events.empty() && std::holds_alternative<core::agent_event::LinkClosed>(at.events.back()); });
  CHECK(at.steps() == std::vector<std::int64_t>{1});
  CHECK(at.dropped.size() == 1);
}

TEST_CASE("ranks' socket: a rank that reads nothing has its link ended; limit kQueueBytesMax", "[worker_server]") {
  RanksSocket at;
  const process::UniqueFd socket = at.connect();
  write_to(socket, greeting(false));
  at.run_until([&] { return !at.events.empty(); });
  const link::ToWorker line = link::ExchangeValue{"key", 0, 1, std::string(60'000, 'x')};
  const auto has_ended = [&] { return std::holds_alternative<core::agent_event::LinkClosed>(at.events.back()); };
  std::size_t sent = 0;
  for (; sent < 2 * agent::LocalStream::kQueueBytesMax && !has_ended(); sent += 60'000) {
    at.server.send(1, line, {});
    at.io.poll();
  }
  CHECK(has_ended());
  CHECK(sent > agent::LocalStream::kQueueBytesMax);  // And what the kernel holds.
}

namespace {

/// A socket whose close waits for what nobody reads, and its other end.
struct Lingering {
  process::UniqueFd reader;
  process::UniqueFd writer;

  explicit Lingering(int seconds) {
    const process::UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    REQUIRE(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    REQUIRE(::listen(listener.get(), 1) == 0);
    REQUIRE(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size) == 0);
    writer.reset(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    REQUIRE(::connect(writer.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0);
    reader.reset(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    REQUIRE(process::set_nonblocking(writer.get()));
    const std::string bytes(1 << 16, 'x');
    while (::send(writer.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) > 0) continue;
    const linger wait{1, seconds};
    REQUIRE(::setsockopt(writer.get(), SOL_SOCKET, SO_LINGER, &wait, sizeof wait) == 0);
  }
};

template <class Work>
Duration time_of(const Work& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::steady_clock::now() - begin;
}

constexpr int kLingerSeconds = 20;

}  // namespace

TEST_CASE("ranks' socket: a descriptor that would not close holds up nobody", "[worker_server]") {
  Lingering sent(kLingerSeconds);
  RanksSocket at;
  process::UniqueFd rank = at.connect();
  const int descriptor = sent.writer.get();
  const auto went = process::send_with_descriptors(rank.get(), greeting(false), std::span(&descriptor, 1));
  if (!went) sent.reader.reset();  // Refused: its close is ours to wait for.
  sent.writer.reset();             // Else the other end has the last one.
  const Duration taken = time_of([&] { at.run_until([&] { return !went || !at.dropped.empty(); }); });
  CHECK(taken < 10s);
  if (went) CHECK_THAT(at.dropped.front(), Catch::EndsWith("it sent descriptors, and none are taken"));
  write_to(at.connect(), greeting(false) + step(7));
  at.run_until([&] { return at.steps() == std::vector<std::int64_t>{7}; });
  sent.reader.reset();
}

TEST_CASE("a connection is discarded at once, whatever its other end has sent", "[process]") {
  Lingering sent(kLingerSeconds);
  auto ends = process::socket_pair(SOCK_STREAM);
  REQUIRE(ends);
  const int descriptor = sent.writer.get();
  REQUIRE(process::send_with_descriptors(ends.value().first.get(), "x", std::span(&descriptor, 1)));
  sent.writer.reset();
  CHECK(time_of([&] { process::discard(std::move(ends.value().second)); }) < 10s);
  sent.reader.reset();
}
