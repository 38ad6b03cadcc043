// The link between coordinator and agent: the embedded one and TCP keep the same promises.

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <functional>
#include <memory>
#include <optional>
#include <type_traits>

#include <boost/asio/io_context.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <catch2/catch.hpp>

#include "keeper_test_support.hpp"
#include "launcher/net/embedded_link.hpp"
#include "launcher/net/local_peer.hpp"
#include "launcher/net/tcp_link.hpp"
#include "test/unit/launcher/tls_test_support.hpp"

using namespace sgd;
using namespace std::chrono_literals;

namespace {

/// A pair of ends that are connected, whatever carries them.
struct Pair {
  virtual ~Pair() = default;
  boost::asio::io_context io;
  std::unique_ptr<net::AgentLink> agent;
  std::unique_ptr<net::CoordinatorLink> coordinator;
  std::vector<cluster::FromAgent> from_agent;
  std::vector<cluster::ToAgent> to_agent;
  int connected = 0;
  std::string closed;

  void run_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + 60s;
    while (!done()) {
      INFO("closed: " << closed << ", " << from_agent.size() << " and " << to_agent.size() << " messages");
      REQUIRE(std::chrono::steady_clock::now() < deadline);
      if (io.stopped()) io.restart();
      io.run_one_for(100ms);
    }
  }
  void start_agent() {
    agent->start({[this] {
                    ++connected;
                    agent->send(cluster::NodeState{"node1", 7, "10.0.0.1", 4, 8, true, {}});
                  },
                  [this](cluster::ToAgent message) { to_agent.push_back(std::move(message)); }, nullptr});
  }
  void start_coordinator() {
    const std::size_t before = from_agent.size();
    coordinator->start({[this](cluster::FromAgent message) { from_agent.push_back(std::move(message)); },
                        [this](const std::string& reason) { closed = reason; }});
    CHECK(from_agent.size() == before);  // Not inside start().
  }
  virtual void connect() = 0;
};

struct Embedded : Pair {
  void connect() override {
    net::EmbeddedLink link = net::make_embedded_link(io);
    agent = std::move(link.agent);
    coordinator = std::move(link.coordinator);
    start_coordinator();
    start_agent();
    CHECK(connected == 0);  // Not inside start().
    run_until([&] { return from_agent.size() == 1; });
  }
};

struct Tcp : Pair {
  net::ReadBuffer buffer;
  std::unique_ptr<net::Gateway> gateway;
  std::shared_ptr<const net::TlsContext> own_tls;  ///< Of the coordinator.
  std::shared_ptr<const net::TlsContext> agent_tls;
  net::Address at{"127.0.0.1", 0};

  std::unique_ptr<net::Listener> listen() {
    std::unique_ptr<net::Listener> listener = net::Listener::open(io, at, own_tls).value();
    at.port = listener->port();
    return listener;
  }
  void connect() override {
    gateway = std::make_unique<net::Gateway>(io, listen());
    const auto refuse = [](const std::string& peer, const net::Refusal& why) {
      FAIL(peer << " is refused: " << why.reason);
    };
    const auto welcome = [this](const NodeId& node, std::unique_ptr<net::CoordinatorLink> link) {
      CHECK(node == "node1");
      coordinator = std::move(link);
      start_coordinator();
    };
    gateway->start({{{net::kAgentKind, net::serve_agents(io, welcome, refuse)}}, refuse});
    agent = net::make_tcp_agent_link(io, buffer, at, core::Random({1, 2, 3, 4}), agent_tls);
    start_agent();
    run_until([&] { return from_agent.size() == 1; });
  }
  ~Tcp() override {
    agent.reset();
    coordinator.reset();
    gateway.reset();
    if (io.stopped()) io.restart();
    io.run_for(1s);  // What is left ends by itself.
  }
};

struct UnixPair : Tcp {
  keeper_test::TemporaryDir folder;
  UnixPair() { at = {{}, 0, folder.file("coordinator.sock")}; }
  ~UnixPair() override {
    agent.reset();
    coordinator.reset();
    gateway.reset();
  }
};

struct TlsPair : Tcp {
  TlsPair() {
    own_tls = test::shared_cluster().context(net::Role::kCoordinator, "head");
    agent_tls = test::shared_cluster().context(net::Role::kAgent, "node1");
  }
};

cluster::Fact fact(std::int64_t sequence) {
  return {7, sequence, "run1", 1, cluster::WorkerStarted{static_cast<Rank>(sequence % 4), 100}};
}

}  // namespace

TEMPLATE_TEST_CASE("link: messages arrive whole and in order, both ways", "[net]", Embedded, Tcp, UnixPair, TlsPair) {
  TestType pair;
  pair.connect();
  CHECK(pair.connected == 1);
  const auto* state = std::get_if<cluster::NodeState>(&pair.from_agent.front());
  REQUIRE(state != nullptr);
  CHECK(state->slots == 4);
  CHECK(state->is_new_link);
  const bool is_tcp = std::is_same_v<TestType, Tcp> || std::is_same_v<TestType, TlsPair>;
  CHECK(pair.agent->local_address() == (is_tcp ? "127.0.0.1" : ""));
  constexpr std::int64_t kCount = 2000;
  cluster::DesiredRun desired;
  desired.run = "run1";
  desired.job = nlohmann::json{{"text", std::string(10'000, 'x')}};
  for (std::int64_t number = 1; number <= kCount; ++number) {
    pair.agent->send(fact(number));
    desired.generation = number;
    if (number % 4 == 0) pair.coordinator->send(desired);
  }
  CHECK(pair.to_agent.empty());  // Not inside send().
  pair.run_until([&] { return pair.from_agent.size() == kCount + 1 && pair.to_agent.size() == kCount / 4; });
  for (std::int64_t number = 1; number <= kCount; ++number)
    REQUIRE(std::get<cluster::Fact>(pair.from_agent[static_cast<std::size_t>(number)]).sequence == number);
  for (std::size_t index = 0; index < pair.to_agent.size(); ++index) {
    const auto& got = std::get<cluster::DesiredRun>(pair.to_agent[index]);
    REQUIRE(got.generation == static_cast<Generation>(4 * (index + 1)));
    REQUIRE(got.job == desired.job);
  }
}

TEMPLATE_TEST_CASE("link: an end that is gone hears nothing, and nothing breaks", "[net]", Embedded, Tcp, UnixPair,
                   TlsPair) {
  TestType pair;
  pair.connect();
  pair.coordinator->send(cluster::FactAck{7, 1});
  pair.agent.reset();
  pair.coordinator->send(cluster::FactAck{7, 2});
  if (pair.io.stopped()) pair.io.restart();
  pair.io.run_for(50ms);
  CHECK(pair.to_agent.empty());
}

TEMPLATE_TEST_CASE("link: the coordinator's end may go while messages are on their way", "[net]", Embedded, Tcp,
                   UnixPair, TlsPair) {
  TestType pair;
  pair.connect();
  pair.agent->send(fact(1));
  pair.coordinator.reset();
  pair.agent->send(fact(2));
  if (pair.io.stopped()) pair.io.restart();
  pair.io.run_for(50ms);
  for (const cluster::FromAgent& message : pair.from_agent) CHECK(std::holds_alternative<cluster::NodeState>(message));
}

TEMPLATE_TEST_CASE("link over TCP: a broken connection is told to both, and made again", "[net]", Tcp, UnixPair,
                   TlsPair) {
  TestType pair;
  std::string lost;
  net::Gateway gateway(pair.io, pair.listen());
  int links = 0;
  const auto welcome = [&](const NodeId&, std::unique_ptr<net::CoordinatorLink> link) {
    ++links;
    pair.coordinator = std::move(link);
    pair.coordinator->start({[&](cluster::FromAgent message) { pair.from_agent.push_back(std::move(message)); },
                             [&](const std::string& reason) { pair.closed = reason; }});
  };
  gateway.start({{{net::kAgentKind, net::serve_agents(pair.io, welcome, nullptr)}}, nullptr});
  pair.agent = net::make_tcp_agent_link(pair.io, pair.buffer, pair.at, core::Random({1, 2, 3, 4}), pair.agent_tls);
  pair.agent->start({[&] {
                       ++pair.connected;
                       pair.agent->send(cluster::NodeState{"node1", 7, "", 1, 1, true, {}});
                     },
                     [](const cluster::ToAgent&) {}, [&](const std::string& reason) { lost = reason; }});
  pair.run_until([&] { return pair.from_agent.size() == 1; });
  SECTION("by the coordinator") {
    pair.coordinator.reset();
    pair.run_until([&] { return pair.from_agent.size() == 2; });
    CHECK(lost == "closed by the other side");
    CHECK(pair.closed.empty());
  }
  SECTION("by the agent") {
    pair.agent.reset();
    pair.run_until([&] { return !pair.closed.empty(); });
    CHECK(pair.closed == "closed by the other side");
    return;
  }
  CHECK(pair.connected == 2);
  CHECK(links == 2);
}

TEST_CASE("redial: waits double up to a limit, and are drawn from their upper half", "[net]") {
  CHECK(net::redial_wait(0, 0.0) == 25ms);
  CHECK(net::redial_wait(1, 0.0) == 50ms);
  CHECK(net::redial_wait(1, 0.999) < 100ms);
  CHECK(net::redial_wait(1, 0.5) == 75ms);
  CHECK(net::redial_wait(1000, 0.0) == 2500ms);
  CHECK(net::redial_wait(1000, 0.999) < 5s);
}

TEST_CASE("listener: what it refuses, in words", "[net]") {
  boost::asio::io_context io;
  const auto words = [&](const char* host, int port) { return net::Listener::open(io, {host, port}).error().message; };
  CHECK(words("0.0.0.0", 0) ==
        "cannot listen on 0.0.0.0:0: without a TLS identity only loopback addresses are served, as 127.0.0.1 is; "
        "run `sgd-launch init` to make one");
  CHECK(words("node1", 7070) == "cannot listen on node1:7070: not an IP address and a port, as 127.0.0.1:7070 is");
  CHECK(words("127.0.0.1", 70000) ==
        "cannot listen on 127.0.0.1:70000: not an IP address and a port, as 127.0.0.1:7070 is");
  const auto first = net::Listener::open(io, {"127.0.0.1", 0});
  REQUIRE(first.ok());
  CHECK_THAT(words("127.0.0.1", first.value()->port()), Catch::Contains("Address already in use"));
}

TEST_CASE("listener: over a Unix socket the kernel says who comes, and only its own account gets to the file",
          "[net]") {
  boost::asio::io_context io;
  const keeper_test::TemporaryDir folder;
  const net::Address at{{}, 0, folder.file("c.sock")};
  const auto words = [&](const net::Address& address) { return net::Listener::open(io, address).error().message; };
  {
    const auto first = net::Listener::open(io, at);
    REQUIRE(first.ok());
    struct stat facts {};
    REQUIRE(::stat(at.path.c_str(), &facts) == 0);
    CHECK((facts.st_mode & 0777) == 0600);
    CHECK(words(at) == "cannot listen on unix:" + at.path + ": somebody listens there");
    boost::asio::local::stream_protocol::socket socket(io);
    socket.connect(boost::asio::local::stream_protocol::endpoint(at.path));
    const auto peer = net::local_peer(socket.native_handle());
    REQUIRE(peer);
    CHECK(peer->uid == ::geteuid());
    CHECK(peer->pid == ::getpid());
    CHECK(net::is_trusted(*peer));
  }
  CHECK(::access(at.path.c_str(), F_OK) != 0);
  CHECK_FALSE(net::is_trusted({::geteuid() + 1, 1, ""}));
  // What a killed listener has left is replaced; what is no socket is left alone.
  const int dead = ::socket(AF_UNIX, SOCK_STREAM, 0);
  const boost::asio::local::stream_protocol::endpoint endpoint(at.path);
  REQUIRE(::bind(dead, endpoint.data(), static_cast<socklen_t>(endpoint.size())) == 0);
  ::close(dead);
  CHECK(net::Listener::open(io, at).ok());
  std::ofstream(folder.file("file")) << "x";
  CHECK_THAT(words({{}, 0, folder.file("file")}), Catch::EndsWith("there is something else of that name"));
  CHECK_THAT(words({{}, 0, folder.file(std::string(200, 'x'))}), Catch::EndsWith("with --listen unix:PATH"));
}
