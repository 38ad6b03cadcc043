// Who was shut out stays out, whatever clocks say and whatever becomes of the files that say so; and who is given a
// name again comes in.

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>

#include <catch2/catch.hpp>

#include "launcher/cli/cluster_client.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/gateway.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/issued_log.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/net/tls_words.hpp"
#include "test/unit/launcher/join_desk.hpp"
#include "test/unit/launcher/tls_test_support.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using net::Role;
using test::JoinDeskHere;

namespace {

constexpr std::int64_t kMonth_s = 30 * 24 * 3600;

struct RevocationDesk : JoinDeskHere {
  std::string identity_folder = net::coordinator_identity_folder(state);

  /// Whom `message` makes.
  net::PeerIdentity made_by(const join::Request& message, const net::PeerIdentity& as = {}) {
    const join::Response reply = ask(message, "10.0.0.2:4000", as);
    if (const auto* refused = std::get_if<join::Refused>(&reply)) FAIL(refused->reason);
    return net::identity_in(std::get<join::Joined>(reply).certificate).value();
  }
  net::PeerIdentity joins(const std::string& name) { return made_by(message(token(Role::kAgent, name))); }
  net::PeerIdentity renews(const net::PeerIdentity& held) {
    return made_by(join::Renew{net::make_request(net::make_key()).value()}, held);
  }
  net::RevokedList list() const { return net::RevokedList::load(identity_folder).value(); }
  /// As `sgd-launch revoke NAME`.
  void revoke(const std::string& name) const {
    net::RevokedList after = list();
    REQUIRE(net::revoke_name(after, net::IssuedLog::load(state).value(), name, now_s).ok());
    REQUIRE(after.save(identity_folder, now_s).ok());
  }
};

std::string revoked_text() {
  test::TemporaryFolder folder;
  net::RevokedList list;
  SGD_ASSERT(list.add({"", "node1", 100}).ok() && list.readmit({"bb", "node1", 50}).ok() &&
             list.save(folder.path(), 100).ok());
  return net::read_file(net::revoked_file(folder.path()), 1 << 20, net::Readers::kAnybody).value();
}

void put_file(const std::string& path, const std::string& bytes) {
  std::filesystem::remove(path);
  REQUIRE(net::write_file(path, bytes, net::Readers::kOwner).ok());
}

}  // namespace

TEST_CASE("revoke: a name is shut out though the clock was ahead when it joined", "[net]") {
  RevocationDesk at;
  at.now_s += 3600;
  const net::PeerIdentity held = at.joins("node1");
  at.now_s -= 3600;
  at.revoke("node1");
  CHECK(at.list().contains(held));
  CHECK(at.list().has_serial(held.serial));
  at.now_s += 17 * 3600;
  CHECK(at.outcome(join::Renew{net::make_request(net::make_key()).value()}, "10.0.0.2:1", held) ==
        "the certificate was revoked");
}

TEST_CASE("revoke: who gets the name again comes in, however far the clock was ahead at the revocation", "[net]") {
  RevocationDesk at;
  const std::int64_t ahead_s = GENERATE(0, 3600, kMonth_s);  // 0: within the same second.
  at.now_s += ahead_s;
  const net::PeerIdentity before = at.joins("node1");
  at.revoke("node1");
  at.now_s -= ahead_s;
  CHECK_THAT(at.outcome(JoinDeskHere::message(at.token(Role::kAgent))), Catch::StartsWith("node1 was revoked"));
  const net::PeerIdentity again = at.joins("node1");
  CHECK(at.list().contains(before));
  CHECK_FALSE(at.list().contains(again));
  at.now_s += 17 * 3600;
  const net::PeerIdentity renewed = at.renews(again);
  CHECK_FALSE(at.list().contains(renewed));
  CHECK(at.list().contains(before));
  at.revoke("node1");
  for (const net::PeerIdentity& one : {before, again, renewed}) CHECK(at.list().contains(one));
  at.now_s += 17 * 3600;
  CHECK(at.outcome(join::Renew{net::make_request(net::make_key()).value()}, "10.0.0.2:1", renewed) ==
        "the certificate was revoked");
}

TEST_CASE("revoke: one that was let in again is shut out by its serial", "[net]") {
  net::RevokedList list;
  const net::PeerIdentity again{Role::kAgent, "node1", "bb", false, 50, 200};
  REQUIRE(list.add({"", "node1", 100}).ok());
  REQUIRE(list.readmit({"bb", "node1", 50}).ok());
  CHECK_FALSE(list.contains(again));
  REQUIRE(list.add({"bb", "", 100}).ok());
  CHECK(list.contains(again));
}

TEST_CASE("revoke: a name of which nothing is known is shut out for as long as a certificate can hold", "[net]") {
  RevocationDesk at;
  at.revoke("lost");
  CHECK(at.list().contains({Role::kAgent, "lost", "aa", false, at.now_s + kMonth_s, at.now_s + 2 * kMonth_s}));
  const net::PeerIdentity back = at.joins("lost");
  CHECK_FALSE(at.list().contains(back));
}

TEST_CASE("revoked list: a damaged file is never taken for an empty one", "[net]") {
  test::Cluster& cluster = test::shared_cluster();
  const std::string folder = cluster.identity(Role::kCoordinator, "head");
  const std::string whole = revoked_text(), file = net::revoked_file(folder);
  put_file(file, whole);
  REQUIRE(net::RevokedList::load(folder).ok());
  std::string other_version = whole;
  other_version.replace(other_version.find("\"schema_version\": 1"), 19, "\"schema_version\": 2");
  for (const std::string& text : {std::string(), whole.substr(0, whole.size() / 2), std::string(200, '\0'),
                                  std::string("{}"), std::string("[]"), other_version}) {
    INFO(text);
    put_file(file, text);
    const auto list = net::RevokedList::load(folder);
    REQUIRE_FALSE(list.ok());
    CHECK_THAT(list.error().message, Catch::StartsWith(file + " is damaged: ") && Catch::Contains("move it away"));
    CHECK_FALSE(net::TlsContext::load(folder).ok());
  }
}

TEST_CASE("revoked list: damaged under a coordinator that runs, it is said once, and who was revoked stays so",
          "[net]") {
  test::Cluster& cluster = test::shared_cluster();
  const std::string folder = cluster.identity(Role::kCoordinator, "head");
  const std::string file = net::revoked_file(folder);
  put_file(file, revoked_text());
  const auto tls = net::TlsContext::load(folder).value();
  boost::asio::io_context io;
  net::Gateway gateway(io, net::Listener::open(io, {"127.0.0.1", 0}, tls).value());
  std::vector<std::string> troubles;
  net::Gateway::Handlers handlers;
  handlers.on_trouble = [&](const std::string& message) { troubles.push_back(message); };
  gateway.start(std::move(handlers));
  CHECK(troubles.empty());
  put_file(file, "{");
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (troubles.empty() && std::chrono::steady_clock::now() < deadline) io.run_one_for(20ms);
  io.run_for(2 * net::TlsContext::kLook);
  REQUIRE(troubles.size() == 1);
  CHECK_THAT(troubles.front(), Catch::StartsWith(file + " is damaged: "));
  CHECK(tls->is_revoked({Role::kAgent, "node1", "aa", false, 100, 200}));
}

TEST_CASE("issued log: a damaged line is said with the way out, and nobody joins meanwhile", "[net]") {
  RevocationDesk at;
  const net::PeerIdentity held = at.joins("node1");
  const std::string file = at.state + "/issued.jsonl";
  const std::string whole = net::read_file(file, 1 << 20, net::Readers::kOwner).value();
  const std::size_t second = whole.find('\n') + 1;
  std::string damaged = whole;
  SECTION("garbled") {
    damaged.replace(second, 4, 4, '\0');
  }
  SECTION("cut") {
    damaged.erase(second, 20);
  }
  SECTION("of a role that there is not") {
    damaged.replace(damaged.find("\"agent\""), 7, "\"agemt\"");
  }
  SECTION("empty") {
    damaged.replace(second, std::string::npos, "\n");
  }
  put_file(file, damaged);
  const auto log = net::IssuedLog::load(at.state);
  REQUIRE_FALSE(log.ok());
  CHECK_THAT(log.error().message, Catch::StartsWith(file + " is damaged in line 2") && Catch::Contains("--unknown"));
  boost::asio::io_context io;
  CHECK_FALSE(net::JoinService::open(io, at.state).ok());
  std::vector<std::string> troubles;
  at.service->on_trouble = [&](const std::string& message) { troubles.push_back(message); };
  CHECK_THAT(at.outcome(JoinDeskHere::message(at.token(Role::kAgent))), Catch::Contains("cannot read its records"));
  CHECK(troubles == std::vector<std::string>{log.error().message});
  put_file(file, whole);
  CHECK_THAT(at.outcome(JoinDeskHere::message(at.token(Role::kAgent))), Catch::StartsWith("the name node1 is taken"));
  REQUIRE(net::IssuedLog::load(at.state).value().holder_of(held.serial) != nullptr);
}

TEST_CASE("issued log: a whole last line counts without its end, and is no damage to the next one", "[net]") {
  RevocationDesk at;
  const net::PeerIdentity held = at.joins("node1");
  const std::string file = at.state + "/issued.jsonl";
  const std::string whole = net::read_file(file, 1 << 20, net::Readers::kOwner).value();
  put_file(file, whole.substr(0, whole.size() - 1));
  CHECK_THAT(at.outcome(JoinDeskHere::message(at.token(Role::kAgent))), Catch::StartsWith("the name node1 is taken"));
  const net::PeerIdentity next = at.joins("node2");
  const auto log = net::IssuedLog::load(at.state).value();
  CHECK(log.holder_of(held.serial) != nullptr);
  CHECK(log.holder_of(next.serial) != nullptr);
}

TEST_CASE("token store: a damaged file keeps a coordinator from starting, and says what moving it away means",
          "[net]") {
  RevocationDesk at;
  const net::JoinToken token = at.token(Role::kAgent);
  const std::string file = at.state + "/tokens.json";
  for (const char* text : {"", "{", "{}", R"({"schema_version": 2, "tokens": []})"}) {
    INFO(text);
    put_file(file, text);
    boost::asio::io_context io;
    const auto service = net::JoinService::open(io, at.state);
    REQUIRE_FALSE(service.ok());
    CHECK_THAT(service.error().message, Catch::StartsWith(file + " is damaged: ") && Catch::Contains("Move it away"));
  }
  std::filesystem::remove(file);
  CHECK_THAT(at.outcome(JoinDeskHere::message(token)), Catch::StartsWith("the join token is not known"));
}

TEST_CASE("a coordinator that refuses a certificate is not said to be missing", "[net]") {
  const net::Address head{"head", 7979};
  CHECK(cli::no_coordinator(head, "cannot reach head:7979: Connection refused") ==
        "no coordinator at head:7979: Connection refused");
  CHECK(cli::no_coordinator(head, "the other side refuses this side's certificate: it is revoked") ==
        "the coordinator at head:7979 refuses this side's certificate: it is revoked");
  CHECK_THAT(cli::no_coordinator(head, std::string("the other side refuses this side's certificate: compare the two "
                                                   "clocks") +
                                           net::kValidFrom + "A to B"),
             Catch::StartsWith("the coordinator at head:7979 refuses this side's certificate: compare the two clocks; "
                               "it is valid from A to B, and here it is 2") &&
                 Catch::EndsWith(" UTC"));
  CHECK(cli::no_coordinator(head, net::kWantsIdentity) ==
        "the coordinator at head:7979 wants an identity, and you have none: ask an admin for a token (sgd-launch token "
        "create --role client --name NAME), then sgd-launch join head:7979 --token-file FILE");
  CHECK(cli::no_coordinator(head, "the certificate of the other side has expired") ==
        "the coordinator at head:7979: the certificate of the other side has expired");
}
