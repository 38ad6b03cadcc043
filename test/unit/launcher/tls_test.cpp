// Who is let in over TLS, and what the others are told: each attack ends its own connection, with a reason on
// both sides.

#include <sys/socket.h>

#include <openssl/ssl.h>

#include <catch2/catch.hpp>

#include "common/messages/cluster.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/net/tcp_link.hpp"
#include "test/unit/launcher/tls_test_support.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using boost::asio::ip::tcp;
using net::Role;
using net::TlsContext;
using net::TlsSide;
using test::json_frame;
using test::own_hello;

namespace {

using Context = std::shared_ptr<const TlsContext>;

std::string state_of(const std::string& node) {
  return json_frame(cluster::encode(cluster::NodeState{node, 7, "", 1, 1, true, {}}));
}

/// A coordinator's gateway that serves agents, clients and those who join.
struct Guarded {
  test::Cluster& cluster = test::shared_cluster();
  boost::asio::io_context io;
  std::string folder = cluster.identity(Role::kCoordinator, "head");
  Context own = TlsContext::load(folder).value();
  net::Gateway gateway{io, net::Listener::open(io, {"127.0.0.1", 0}, own).value()};
  std::vector<std::string> refused;
  std::vector<std::string> kinds;  // Of these, as they are counted.
  std::vector<std::string> closed;
  std::vector<std::string> visited;
  std::vector<std::unique_ptr<net::CoordinatorLink>> links;
  std::vector<std::unique_ptr<net::Session>> sessions;
  std::unique_ptr<test::RawPeer> short_lived;

  Guarded() {
    const auto refuse = [this](const std::string&, const net::Refusal& refusal) {
      refused.push_back(refusal.reason);
      kinds.emplace_back(name(refusal.kind));
    };
    const auto welcome = [this](const NodeId& node, std::unique_ptr<net::CoordinatorLink> link) {
      link->start({[](const cluster::FromAgent&) {}, [this](const std::string& why) { closed.push_back(why); }});
      visited.push_back("agent " + node);
      links.push_back(std::move(link));
    };
    const auto keep = [this](std::unique_ptr<net::Session> session, const nlohmann::json& first) {
      visited.push_back(first["type"].get<std::string>() + " " + net::role_name(session->peer_identity().role) + " " +
                        session->peer_identity().name);
      session->start({[](const Frame&) {}, [this](const std::string& why) { closed.push_back(why); }});
      sessions.push_back(std::move(session));
    };
    gateway.start({{{net::kAgentKind, net::serve_agents(io, welcome, refuse)},
                    {"client", keep},
                    {"join", keep},
                    {"renew", keep},
                    {"files", keep}},
                   refuse});
  }
  ~Guarded() {
    links.clear();
    sessions.clear();
  }

  test::RawPeer dial(const Context& with) {
    return {io, gateway.port(), with, [this] { io.poll(); }};
  }
  bool run_until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!done() && std::chrono::steady_clock::now() < deadline) io.run_one_for(20ms);
    return done();
  }
  /// What the gateway says of a peer that says `bytes`, and in `told` what the peer hears.
  std::string refusal(test::RawPeer& peer, const std::string& bytes, std::string& told) {
    told = peer.handshake();
    if (told.empty()) {
      peer.write(bytes);
      (void)peer.read_until_end();
      told = peer.end_reason();
    }
    REQUIRE(run_until([&] { return !refused.empty(); }));
    return refused.front();
  }
};

}  // namespace

TEST_CASE("tls: a certificate that does not hold is refused, and its owner told why", "[net]") {
  Guarded at;
  struct Row {
    Context dialler;
    std::string refused;
    std::string told;
    bool is_of_time = false;
  };
  Row row;
  SECTION("an expired one") {
    row = {TlsContext::load(at.cluster.identity(Role::kAgent, "node1", false, {-1000, 900})).value(),
           "the certificate of the other side has expired",
           "the other side refuses this side's certificate: it has expired (sgd-launch join)", true};
  }
  SECTION("one of tomorrow") {
    row = {TlsContext::load(at.cluster.identity(Role::kAgent, "node1", false, {86'400, 900})).value(),
           "the certificate of the other side is not valid yet: compare the two clocks",
           "the other side refuses this side's certificate: compare the two clocks", true};
  }
  SECTION("a revoked one") {
    row.dialler = at.cluster.context(Role::kAgent, "node1");
    net::RevokedList list;
    REQUIRE(list.add({row.dialler->own().serial, "", test::unix_now_s()}).ok());
    REQUIRE(list.save(at.folder, test::unix_now_s()).ok());
    row.refused = "agent node1 (certificate " + row.dialler->own().serial + ") is revoked";
    row.told = "the other side refuses this side's certificate: it is revoked";
  }
  SECTION("a revoked name's") {
    row.dialler = at.cluster.context(Role::kAgent, "node1");
    net::RevokedList list;
    REQUIRE(list.add({"", "node1", test::unix_now_s() + 1}).ok());
    REQUIRE(list.save(at.folder, test::unix_now_s()).ok());
    row.refused = "agent node1 (certificate " + row.dialler->own().serial + ") is revoked";
    row.told = "the other side refuses this side's certificate: it is revoked";
  }
  test::RawPeer peer = at.dial(row.dialler);
  std::string told;
  CHECK(at.refusal(peer, own_hello() + state_of("node1"), told) == row.refused);
  // Where it may be a matter of clocks, the reader can compare.
  const std::string times = "; it is valid from YYYY-MM-DD hh:mm:ss UTC to YYYY-MM-DD hh:mm:ss UTC";
  CHECK(told.substr(0, row.told.size()) == row.told);
  CHECK(told.size() == row.told.size() + (row.is_of_time ? times.size() : 0));
  if (row.is_of_time) CHECK_THAT(told, Catch::Contains("; it is valid from 2") && Catch::EndsWith(" UTC"));
  CHECK(at.visited.empty());
}

TEST_CASE("tls: roles are held to", "[net]") {
  Guarded at;
  struct Row {
    const char* what;
    Role role;
    std::string name;
    std::string first;
    std::string outcome;
  };
  const std::string client = json_frame(R"({"type":"client"})");
  const std::string files = json_frame(R"({"type":"files"})");
  const std::string join = json_frame(R"({"type":"join"})");
  const std::string renew = json_frame(R"({"type":"renew"})");
  const Row rows[] = {
      {"an agent", Role::kAgent, "node1", state_of("node1"), "agent node1"},
      {"its files", Role::kAgent, "node1", files, "files agent node1"},
      {"a client", Role::kClient, "eva", client, "client client eva"},
      {"a client renews", Role::kClient, "eva", renew, "renew client eva"},
      {"a stranger joins", Role::kNone, "", join, "join none "},
      {"another node", Role::kAgent, "node2", state_of("node1"), "agent node2 may not speak for node node1"},
      {"a client as agent", Role::kClient, "node1", state_of("node1"), "client node1 may not say \"node_state\""},
      {"a client takes files", Role::kClient, "eva", files, "client eva may not say \"files\""},
      {"an agent as client", Role::kAgent, "node1", client, "agent node1 may not say \"client\""},
      {"a coordinator as agent", Role::kCoordinator, "node1", state_of("node1"),
       "coordinator node1 may not say \"node_state\""},
      {"a coordinator as client", Role::kCoordinator, "head", client, "coordinator head may not say \"client\""},
      {"a stranger as agent", Role::kNone, "", state_of("node1"),
       "without a certificate nobody may say \"node_state\", only \"join\""},
      {"a stranger as client", Role::kNone, "", client,
       "without a certificate nobody may say \"client\", only \"join\""},
      {"a stranger renews", Role::kNone, "", renew, "without a certificate nobody may say \"renew\", only \"join\""},
  };
  const Context stranger = TlsContext::for_joining(net::public_key_digest_in(at.cluster.ca.certificate()).value());
  for (const Row& row : rows) {
    INFO(row.what);
    at.refused.clear();
    at.visited.clear();
    test::RawPeer peer = at.dial(row.role == Role::kNone ? stranger : at.cluster.context(row.role, row.name));
    REQUIRE(peer.handshake().empty());
    REQUIRE(peer.write(own_hello() + row.first));
    REQUIRE(at.run_until([&] { return at.refused.size() + at.visited.size() == 1; }));
    CHECK((at.visited.empty() ? at.refused.front() : at.visited.front()) == row.outcome);
  }
}

TEST_CASE("tls: a dialler takes a coordinator of its own cluster, and nobody else", "[net]") {
  test::Cluster& cluster = test::shared_cluster();
  test::Cluster other;
  const auto answer_of = [&](test::Cluster& of, Role role, const char* name, const Context& dialler) {
    boost::asio::io_context io;
    net::ReadBuffer buffer;
    tcp::acceptor acceptor(io, {boost::asio::ip::address_v4::loopback(), 0});
    std::string served_end;
    std::shared_ptr<net::Connection> served;
    const Context server = of.context(role, name);
    acceptor.async_accept([&](const boost::system::error_code&, tcp::socket socket) {
      served = std::make_shared<net::Connection>(std::move(socket), buffer, net::Security{server, TlsSide::kAccepts});
      served->start({[](int) {}, [](const Frame&) {}, [&](const std::string& why) { served_end = why; }});
    });
    test::RawPeer peer(io, acceptor.local_endpoint().port(), dialler, [&io] { io.poll(); });
    const std::string answer = peer.handshake();
    peer.close();
    io.run_for(2s);
    return answer + " / " + served_end;
  };
  const Context agent = cluster.context(Role::kAgent, "node1");
  CHECK(answer_of(cluster, Role::kCoordinator, "head", agent) == " / closed by the other side");
  CHECK(answer_of(cluster, Role::kAgent, "node2", agent) ==
        "the other side is agent node2, not a coordinator / the other side refuses this side's certificate: "
        "it is of "
        "another role");
  CHECK(answer_of(cluster, Role::kClient, "eva", agent) ==
        "the other side is client eva, not a coordinator / the other side refuses this side's certificate: "
        "it is of "
        "another role");
  CHECK(answer_of(other, Role::kCoordinator, "head", agent) ==
        "the certificate of the other side is not of this cluster's authority / the other side refuses this "
        "side's "
        "certificate: it is of another cluster's authority");
  const Context stranger = TlsContext::for_joining(net::public_key_digest_in(cluster.ca.certificate()).value());
  CHECK(answer_of(cluster, Role::kCoordinator, "head", stranger) == " / closed by the other side");
  CHECK(answer_of(other, Role::kCoordinator, "head", stranger) ==
        "this is not the cluster that made the token: a wrong address, or somebody in between / the other "
        "side refuses "
        "this side's certificate: it is of another cluster's authority");
  CHECK_THAT(answer_of(cluster, Role::kAgent, "node2", stranger),
             Catch::StartsWith("the other side") || Catch::StartsWith("this is not the cluster"));
}

TEST_CASE("tls: plain text and TLS tell each other apart", "[net]") {
  SECTION("plain text to a TLS port") {
    Guarded at;
    test::RawPeer peer = at.dial(nullptr);
    std::string told;
    CHECK(at.refusal(peer, own_hello(), told) ==
          "the other side does not speak TLS, without which nobody is let in here");
    CHECK(told == "the other side speaks TLS and this side plain text: this side needs an identity (sgd-launch join)");
  }
  SECTION("HTTP to a TLS port") {
    Guarded at;
    test::RawPeer peer = at.dial(nullptr);
    std::string told;
    CHECK(at.refusal(peer, "GET / HTTP/1.1\r\n\r\n", told) ==
          "the other side does not speak TLS, without which nobody is let in here");
  }
  SECTION("TLS to a plain port") {
    boost::asio::io_context io;
    std::vector<std::string> refused;
    net::Gateway gateway(io, net::Listener::open(io, {"127.0.0.1", 0}).value());
    gateway.start(
        {{}, [&](const std::string&, const net::Refusal& refusal) { refused.push_back(refusal.reason); }, {}});
    test::RawPeer peer(io, gateway.port(), test::shared_cluster().context(Role::kAgent, "node1"), [&] { io.poll(); });
    CHECK(peer.handshake() ==
          "the other side speaks plain text, and this side TLS: it has no identity (sgd-launch init there)");
    REQUIRE(refused.size() == 1);
    CHECK(refused.front() ==
          "the other side speaks TLS and this side plain text: this side has no identity (sgd-launch init)");
  }
}

namespace {

/// Somebody with OpenSSL and ideas of their own: checks nothing.
struct Intruder {
  explicit Intruder(Guarded& at) : socket(at.io) {
    socket.connect({boost::asio::ip::address_v4::loopback(), static_cast<std::uint16_t>(at.gateway.port())});
    socket.non_blocking(true);
  }
  ~Intruder() {
    SSL_free(ssl);
    SSL_CTX_free(context);
  }
  void shake_hands_until_refused(Guarded& at) {
    ssl = SSL_new(context);
    SSL_set_fd(ssl, socket.native_handle());
    SSL_set_connect_state(ssl);
    REQUIRE(at.run_until([&] {
      (void)SSL_do_handshake(ssl);
      return !at.refused.empty();
    }));
  }

  tcp::socket socket;
  SSL_CTX* context = SSL_CTX_new(TLS_method());
  SSL* ssl = nullptr;
};

}  // namespace

TEST_CASE("tls: an older TLS is refused by name", "[net]") {
  Guarded at;
  Intruder intruder(at);
  SSL_CTX_set_max_proto_version(intruder.context, TLS1_2_VERSION);
  intruder.shake_hands_until_refused(at);
  CHECK(at.refused.front() == "the other side does not speak TLS 1.3");
}

TEST_CASE("tls: a certificate of another authority is refused", "[net]") {
  Guarded at;
  Intruder intruder(at);
  test::Cluster other;
  const std::string file = net::identity_file(other.identity(Role::kAgent, "node1"));
  REQUIRE(SSL_CTX_use_certificate_file(intruder.context, file.c_str(), SSL_FILETYPE_PEM) == 1);
  REQUIRE(SSL_CTX_use_PrivateKey_file(intruder.context, file.c_str(), SSL_FILETYPE_PEM) == 1);
  intruder.shake_hands_until_refused(at);
  CHECK(at.refused.front() == "the certificate of the other side is not of this cluster's authority");
}

TEST_CASE("tls: a stranger's frames are small until it has shown a certificate", "[net]") {
  Guarded at;
  const Context stranger = TlsContext::for_joining(net::public_key_digest_in(at.cluster.ca.certificate()).value());
  const std::string long_join = json_frame(R"({"type":"join","token":")" + std::string(20'000, 'x') + "\"}");
  SECTION("before the hello") {
    test::RawPeer peer = at.dial(at.cluster.context(Role::kAgent, "node1"));
    std::string told;
    CHECK_THAT(at.refusal(peer, long_join, told), Catch::EndsWith("kind 1 may have 4096"));
  }
  SECTION("after it") {
    test::RawPeer peer = at.dial(stranger);
    std::string told;
    CHECK_THAT(at.refusal(peer, own_hello() + long_join, told), Catch::EndsWith("kind 1 may have 16384"));
  }
  SECTION("an agent's may be long") {
    test::RawPeer peer = at.dial(at.cluster.context(Role::kAgent, "node1"));
    cluster::NodeState state{"node1", 7, "", 1, 1, true, {}};
    for (int number = 0; number < 2000; ++number) state.runs.push_back({"run-" + std::to_string(number), 1});
    REQUIRE(peer.handshake().empty());
    REQUIRE(peer.write(own_hello() + json_frame(cluster::encode(state))));
    CHECK(at.run_until([&] { return at.visited.size() == 1; }));
  }
  CHECK(at.refused.size() + at.visited.size() == 1);
}

TEST_CASE("tls: an agent's later state may name no other node", "[net]") {
  Guarded at;
  test::RawPeer peer = at.dial(at.cluster.context(Role::kAgent, "node1"));
  REQUIRE(peer.handshake().empty());
  REQUIRE(peer.write(own_hello() + state_of("node1") + state_of("node2")));
  REQUIRE(at.run_until([&] { return !at.closed.empty(); }));
  CHECK(at.closed.front() == "the agent of node node1 speaks for node2");
}

TEST_CASE("tls: whoever is revoked or expires loses the connection that stands", "[net]") {
  Guarded at;
  SECTION("revoked") {
    const Context agent = at.cluster.context(Role::kAgent, "node1");
    test::RawPeer peer = at.dial(agent);
    REQUIRE(peer.handshake().empty());
    REQUIRE(peer.write(own_hello() + state_of("node1")));
    REQUIRE(at.run_until([&] { return at.visited.size() == 1; }));
    net::RevokedList list;
    REQUIRE(list.add({agent->own().serial, "", test::unix_now_s()}).ok());
    REQUIRE(list.save(at.folder, test::unix_now_s()).ok());
    REQUIRE(at.own->refresh().ok());
    REQUIRE(peer.write(json_frame(cluster::encode(cluster::Beat{}))));
    REQUIRE(at.run_until([&] { return !at.closed.empty(); }));
    CHECK_THAT(at.closed.front(), Catch::EndsWith("is revoked"));
  }
  SECTION("expired") {
    // On a slow machine two seconds may be over before the handshake is: then again with more.
    for (std::int64_t valid_s = 2; at.visited.empty() && valid_s < 100; valid_s *= 2) {
      const std::string own = at.cluster.identity(Role::kAgent, "node1", false, {0, valid_s});
      at.refused.clear();
      at.short_lived = std::make_unique<test::RawPeer>(at.dial(TlsContext::load(own).value()));
      if (at.short_lived->handshake().empty()) (void)at.short_lived->write(own_hello() + state_of("node1"));
      REQUIRE(at.run_until([&] { return at.visited.size() + at.refused.size() == 1; }));
    }
    REQUIRE(at.run_until([&] { return !at.closed.empty(); }));
    CHECK(at.closed.front() == "the certificate of the other side has expired");
  }
}

TEST_CASE("tls: a listener's identity must be a coordinator's", "[net]") {
  boost::asio::io_context io;
  const auto listener = net::Listener::open(io, {"0.0.0.0", 0}, test::shared_cluster().context(Role::kAgent, "node1"));
  REQUIRE(!listener.ok());
  CHECK(listener.error().message ==
        "cannot listen on 0.0.0.0:0: the TLS identity is of agent node1, and only a coordinator's listens");
  CHECK(net::Listener::open(io, {"0.0.0.0", 0}, test::shared_cluster().context(Role::kCoordinator, "head")).ok());
}

TEST_CASE("tls: a context takes up what changes in its folder, and keeps what it has when that is damaged", "[net]") {
  test::Cluster& cluster = test::shared_cluster();
  const std::string folder = cluster.identity(Role::kAgent, "node1");
  const Context context = TlsContext::load(folder).value();
  const std::string before = context->own().serial;
  const auto newer = net::load_identity(cluster.identity(Role::kAgent, "node1")).value();
  REQUIRE(net::save_identity(folder, newer).ok());
  REQUIRE(context->refresh().ok());
  const std::string after = context->own().serial;
  CHECK(after != before);
  REQUIRE(net::write_file(net::identity_file(folder), "half a fi", net::Readers::kOwner).ok());
  CHECK(!context->refresh().ok());
  CHECK(context->own().serial == after);
  REQUIRE(net::save_identity(folder, newer).ok());
  CHECK(context->refresh().ok());
}
