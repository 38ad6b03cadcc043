// A connection refuses a peer that does not speak its protocol, and only that one.

#include "launcher/net/connection.hpp"

#include <sys/resource.h>

#include <ctime>
#include <functional>
#include <map>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <catch2/catch.hpp>

#include "launcher/net/tcp_link.hpp"
#include "test/unit/launcher/tls_test_support.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using test::json_frame;
using test::own_hello;

namespace {

struct Plain {
  static std::shared_ptr<const net::TlsContext> coordinator() { return nullptr; }
  static std::shared_ptr<const net::TlsContext> agent() { return nullptr; }
};
struct Tls {
  static std::shared_ptr<const net::TlsContext> coordinator() {
    return test::shared_cluster().context(net::Role::kCoordinator, "head");
  }
  static std::shared_ptr<const net::TlsContext> agent() {
    return test::shared_cluster().context(net::Role::kAgent, "node1");
  }
};

/// A gateway, and sockets that connect to it with whatever bytes a test likes.
template <class Carrier>
struct Knocking {
  boost::asio::io_context io;
  net::Gateway gateway{io, net::Listener::open(io, {"127.0.0.1", 0}, Carrier::coordinator()).value()};
  std::shared_ptr<const net::TlsContext> agent = Carrier::agent();
  std::vector<std::string> refused;
  std::vector<std::string> kinds;  // Of these, as they are counted.
  std::vector<std::unique_ptr<net::CoordinatorLink>> links;
  std::vector<std::string> closed;

  Knocking() {
    const auto refuse = [this](const std::string&, const net::Refusal& refusal) {
      refused.push_back(refusal.reason);
      kinds.emplace_back(name(refusal.kind));
    };
    const auto welcome = [this](const NodeId&, std::unique_ptr<net::CoordinatorLink> link) {
      link->start({[](const cluster::FromAgent&) {}, [this](const std::string& why) { closed.push_back(why); }});
      links.push_back(std::move(link));
    };
    gateway.start({{{net::kAgentKind, net::serve_agents(io, welcome, refuse)}}, refuse});
  }
  ~Knocking() { links.clear(); }

  test::RawPeer knock(const std::string& bytes) {
    test::RawPeer peer(io, gateway.port(), agent, [this] { io.poll(); });
    CHECK(peer.handshake().empty());
    peer.write(bytes);
    return peer;
  }
  bool run_until(const std::function<bool()>& done, Duration limit = 10s) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!done() && std::chrono::steady_clock::now() < deadline) io.run_one_for(20ms);
    return done();
  }
  std::string refusal(const std::string& bytes) {
    const test::RawPeer peer = knock(bytes);
    REQUIRE(run_until([&] { return refused.size() == 1; }));
    return refused.front();
  }
};

std::string state() {
  return json_frame(cluster::encode(cluster::NodeState{"node1", 7, "", 1, 1, true, {}}));
}

}  // namespace

TEMPLATE_TEST_CASE("connection: strangers are refused with the reason", "[net]", Plain, Tls) {
  Knocking<TestType> at;
  SECTION("no hello") {
    CHECK_THAT(at.refusal(state()), Catch::StartsWith("the first frame is no hello"));
  }
  SECTION("HTTP") {
    CHECK_THAT(at.refusal("GET / HTTP/1.1\r\n\r\n"), Catch::StartsWith("frame of unknown kind"));
  }
  SECTION("a frame that is too long") {
    CHECK_THAT(at.refusal(std::string("\x7f\xff\xff\xff\x01", 5)), Catch::Contains("may have 4096"));
  }
  SECTION("a chunk for a hello") {
    CHECK(at.refusal(encode_frame(FrameKind::kChunk, "x")) == "the first frame is no hello");
  }
  SECTION("a newer protocol") {
    CHECK(at.refusal(json_frame(R"({"type":"hello","protocol_min":8,"protocol_max":9})")) ==
          "this side speaks version 1 of the protocol, the other side version 8 to 9; update this one");
  }
  SECTION("not JSON") {
    CHECK(at.refusal(own_hello() + json_frame("{")) == "the first message does not say what kind of session it begins");
  }
  SECTION("a chunk for a first message") {
    CHECK(at.refusal(own_hello() + encode_frame(FrameKind::kChunk, R"({"type":"node_state"})")) ==
          "the first message does not say what kind of session it begins");
  }
  SECTION("of no kind that is served") {
    CHECK(at.refusal(own_hello() + json_frame(cluster::encode(cluster::Beat{}))) ==
          "the first message is of a kind that nobody here serves");
  }
  SECTION("no node") {
    CHECK(at.refusal(own_hello() + json_frame(cluster::encode(cluster::NodeState{}))) ==
          "the first message does not say which node it is");
  }
  SECTION("half a state") {
    CHECK_THAT(at.refusal(own_hello() + json_frame(R"({"type":"node_state"})")),
               Catch::StartsWith("a message of an agent: "));
  }
  SECTION("gone at once") {
    at.knock("").close();
    REQUIRE(at.run_until([&] { return at.refused.size() == 1; }));
    CHECK(at.refused.front() == "closed by the other side");
  }
  CHECK(at.links.empty());
  CHECK(at.kinds.size() == 1);
  CHECK(at.kinds.front() != "none");
}

TEST_CASE("gateway: one address has a quarter of the places, and gives way to one that has none", "[net]") {
  rlimit files{};
  REQUIRE(::getrlimit(RLIMIT_NOFILE, &files) == 0);
  const rlim_t wanted = 4 * net::Gateway::kStrangersMax;  // Both ends of each connection are here.
  if (files.rlim_max < wanted) return;
  if (files.rlim_cur < wanted) files.rlim_cur = wanted;
  REQUIRE(::setrlimit(RLIMIT_NOFILE, &files) == 0);
  Knocking<Tls> at;
  std::vector<tcp::socket> held;
  const auto hold = [&](const char* from) {
    tcp::socket& one = held.emplace_back(at.io, tcp::endpoint(boost::asio::ip::make_address(from), 0));
    one.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(at.gateway.port())});
    at.io.poll();
  };
  for (const char* from : {"127.0.0.2", "127.0.0.3", "127.0.0.4", "127.0.0.5"})
    for (std::size_t number = 0; number < net::Gateway::kStrangersOfOneMax; ++number) hold(from);
  hold("127.0.0.2");
  CHECK(at.refused.empty());
  const test::RawPeer member = at.knock(own_hello() + state());
  CHECK(at.run_until([&] { return at.links.size() == 1; }));
  CHECK(at.refused == std::vector<std::string>{"it makes room for another address"});
  CHECK(at.kinds == std::vector<std::string>{"too_many"});
}

TEST_CASE("gateway: an address from which nobody proves anything is served slowly, and no other one; limit kVainFree",
          "[net]") {
  Knocking<Tls> at;
  at.gateway.vain = net::AttemptLimit(2, 1h);
  const auto come_and_go = [&](const char* from, Duration limit = 10s) {
    tcp::socket stranger(at.io, tcp::endpoint(boost::asio::ip::make_address(from), 0));
    stranger.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(at.gateway.port())});
    const std::size_t before = at.refused.size();
    stranger.close();
    return at.run_until([&] { return at.refused.size() > before; }, limit);
  };
  CHECK(come_and_go("127.0.0.2"));
  CHECK(come_and_go("127.0.0.2"));
  CHECK_FALSE(come_and_go("127.0.0.2", 200ms));  // It waits, at no cost.
  CHECK(come_and_go("127.0.0.3"));
  const test::RawPeer member = at.knock(own_hello() + state());
  REQUIRE(at.run_until([&] { return at.links.size() == 1; }));
  for (int time = 0; time < 5; ++time) CHECK(come_and_go("127.0.0.1"));  // A member is there: it is not kept waiting.
}

TEST_CASE("gateway: who finds no place waits until one is free", "[net]") {
  Knocking<Tls> at;
  std::vector<tcp::socket> held;
  for (std::size_t number = 0; number < net::Gateway::kStrangersOfOneMax; ++number) {
    held.emplace_back(at.io).connect(
        {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(at.gateway.port())});
    at.io.poll();
  }
  boost::asio::steady_timer leaves(at.io, 50ms);
  leaves.async_wait([&](const boost::system::error_code&) { held.pop_back(); });
  const test::RawPeer member = at.knock(own_hello() + state());  // Shakes hands, once it has been let in.
  CHECK(at.run_until([&] { return at.links.size() == 1; }));
  CHECK(at.kinds == std::vector<std::string>{"gone"});
}

TEST_CASE(
    "gateway: when nobody more may wait before it, who comes is refused, and a place is taken in turn; limit kQueueMax",
    "[net]") {
  Knocking<Tls> at;
  at.gateway.queue_max = 1;
  std::vector<tcp::socket> held;
  for (std::size_t number = 0; number < net::Gateway::kStrangersOfOneMax + 2; ++number) {
    held.emplace_back(at.io).connect(
        {boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(at.gateway.port())});
    at.io.poll();
  }
  REQUIRE(at.run_until([&] { return !at.refused.empty(); }));
  CHECK(at.refused == std::vector<std::string>{"too many connections wait: 1"});
  CHECK(at.kinds == std::vector<std::string>{"too_many"});
  held.clear();
  const test::RawPeer member = at.knock(own_hello() + state());
  CHECK(at.run_until([&] { return at.links.size() == 1; }));
}

TEST_CASE("gateway: a name that has had its share of the loop waits, and comes no sooner over another connection",
          "[net]") {
  boost::asio::io_context io;
  net::Gateway gateway{io, net::Listener::open(io, {"127.0.0.1", 0}, Tls::coordinator()).value()};
  gateway.work_share = {20ms, 1e-6};  // Who has had its burst rests for as long as anybody may.
  std::vector<std::unique_ptr<net::Session>> sessions;
  std::map<std::string, int> heard;
  const auto welcome = [&](std::unique_ptr<net::Session> session, const nlohmann::json&) {
    const std::string who = session->peer_identity().name;
    sessions.push_back(std::move(session));
    sessions.back()->start({[&heard, who](const Frame&) {
                              ++heard[who];
                              const std::clock_t until =
                                  std::clock() + (who == "node1" ? 3 * CLOCKS_PER_SEC / 1000 : 0);
                              while (std::clock() < until) continue;
                            },
                            [](const std::string&) {}});
  };
  gateway.start({{{net::kAgentKind, welcome}}, [](const std::string&, const net::Refusal&) {}});
  const auto run_until = [&](const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + 20s;
    while (!done() && std::chrono::steady_clock::now() < deadline) io.run_one_for(20ms);
    return done();
  };
  const auto knock = [&](const char* name, int beats) {
    test::RawPeer peer(io, gateway.port(), test::shared_cluster().context(net::Role::kAgent, name),
                       [&io] { io.poll(); });
    CHECK(peer.handshake().empty());
    std::string text = own_hello() + state();
    for (int beat = 0; beat < beats; ++beat) text += json_frame(cluster::encode(cluster::Beat{}));
    peer.write(text);
    return peer;
  };
  {
    const test::RawPeer greedy = knock("node1", 100);
    REQUIRE(run_until([&] { return heard["node1"] >= 6; }));
    test::RawPeer other = knock("node2", 50);
    CHECK(run_until([&] { return heard["node2"] == 50; }));
    CHECK(heard["node1"] < 100);
  }
  sessions.clear();
  const int before = heard["node1"];
  test::RawPeer other = knock("node2", 0);
  const auto begin = std::chrono::steady_clock::now();
  const test::RawPeer greedy = knock("node1", 1);
  other.write(json_frame(cluster::encode(cluster::Beat{})));
  CHECK(run_until([&] { return heard["node2"] == 51; }));
  if (std::chrono::steady_clock::now() - begin < net::WorkMeter::kRestMax) CHECK(heard["node1"] == before);
  CHECK(run_until([&] { return heard["node1"] == before + 1; }));  // It is heard in the end.
  sessions.clear();
}

TEST_CASE("gateway: a name is not charged for time in which the loop does not compute", "[net]") {
  constexpr int kBeats = 120;
  boost::asio::io_context io;
  net::Gateway gateway{io, net::Listener::open(io, {"127.0.0.1", 0}, Tls::coordinator()).value()};
  gateway.work_share = {200ms, 0.001};  // Were it, five sixths of the beats would wait half a second each.
  std::vector<std::unique_ptr<net::Session>> sessions;
  int heard = 0;
  const auto welcome = [&](std::unique_ptr<net::Session> session, const nlohmann::json&) {
    sessions.push_back(std::move(session));
    sessions.back()->start({[&heard, &io](const Frame&) {
                              ++heard;
                              boost::asio::steady_timer(io, 10ms).wait();  // As if others had the processor.
                            },
                            [](const std::string&) {}});
  };
  gateway.start({{{net::kAgentKind, welcome}}, [](const std::string&, const net::Refusal&) {}});
  test::RawPeer peer(io, gateway.port(), Tls::agent(), [&io] { io.poll(); });
  CHECK(peer.handshake().empty());
  std::string text = own_hello() + state();
  for (int beat = 0; beat < kBeats; ++beat) text += json_frame(cluster::encode(cluster::Beat{}));
  peer.write(text);
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (heard < kBeats && std::chrono::steady_clock::now() < deadline) io.run_one_for(20ms);
  CHECK(heard == kBeats);
  sessions.clear();
}

TEST_CASE("work meter: a burst, then a share of the time, and all is made up for in the end", "[net]") {
  const TimePoint now{1000s};
  net::WorkMeter meter({100ms, 0.1});
  CHECK(meter.owes_nothing(now));
  meter.charge(now, 100ms);
  CHECK(meter.wait(now) == 0ms);
  meter.charge(now, 10ms);
  CHECK(to_seconds(meter.wait(now)) == Approx(0.1));
  CHECK(meter.wait(now + 101ms) == 0ms);
  CHECK_FALSE(meter.owes_nothing(now + 1s));
  CHECK(meter.owes_nothing(now + 2s));
  meter.charge(now + 2s, 1h);
  CHECK(meter.wait(now + 2s) == net::WorkMeter::kRestMax);
}

TEMPLATE_TEST_CASE("connection: one byte at a time is as good as all at once", "[net]", Plain, Tls) {
  Knocking<TestType> at;
  test::RawPeer peer = at.knock("");
  for (const char letter : own_hello() + state()) {
    peer.write({&letter, 1});
    at.io.poll();
  }
  CHECK(at.run_until([&] { return at.links.size() == 1; }));
}

TEMPLATE_TEST_CASE("connection: a bad frame ends its connection and no other", "[net]", Plain, Tls) {
  Knocking<TestType> at;
  test::RawPeer good = at.knock(own_hello() + state());
  test::RawPeer bad = at.knock(own_hello() + state());
  REQUIRE(at.run_until([&] { return at.links.size() == 2; }));
  bad.write(std::string("\0\0\0\1\7x", 6));
  REQUIRE(at.run_until([&] { return at.closed.size() == 1; }));
  CHECK(at.closed.front() == "frame of unknown kind 7");
  good.write(json_frame(cluster::encode(cluster::Beat{})));
  at.io.run_for(20ms);
  CHECK(at.closed.size() == 1);
}

TEMPLATE_TEST_CASE("connection: a peer that does not read is given up at the limit", "[net]", Plain, Tls) {
  Knocking<TestType> at;
  const test::RawPeer peer = at.knock(own_hello() + state());
  REQUIRE(at.run_until([&] { return at.links.size() == 1; }));
  cluster::DesiredRun desired;
  desired.job = nlohmann::json{{"text", std::string(900'000, 'x')}};
  net::SharedMessage message{desired};  // Made once: the kernel gives up, too, who takes nothing for some seconds.
  for (int number = 0; number < 40 && at.closed.empty(); ++number) {
    at.links.front()->send(message);
    at.io.poll();
  }
  REQUIRE(at.run_until([&] { return !at.closed.empty(); }));
  CHECK_THAT(at.closed.front(), Catch::StartsWith("the other side does not read"));
}

TEST_CASE("connection: silence before the hello has a limit", "[net]") {
  boost::asio::io_context io;
  net::ReadBuffer buffer;
  tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
  tcp::socket silent(io);
  silent.connect(acceptor.local_endpoint());
  net::ConnectionLimits limits;
  limits.hello = 30ms;
  const bool is_secure = GENERATE(false, true);
  const net::Security security{is_secure ? Tls::coordinator() : nullptr, net::TlsSide::kAccepts};
  const auto connection = std::make_shared<net::Connection>(acceptor.accept(), buffer, security, limits);
  std::string closed;
  connection->start({[](int) {}, [](const Frame&) {}, [&](const std::string& reason) { closed = reason; }});
  io.run_for(5s);
  CHECK(closed == (is_secure ? "no TLS handshake within 30ms" : "no hello within 30ms"));
}
