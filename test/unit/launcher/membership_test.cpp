// How members come and go: certificates of the authority, join tokens, the service that takes them, and the side
// that brings them.

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <catch2/catch.hpp>

#include "launcher/net/attempt_limit.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/enrolment.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/join_service.hpp"
#include "launcher/net/private_files.hpp"
#include "test/unit/common/file_size_limit.hpp"
#include "test/unit/launcher/join_desk.hpp"
#include "test/unit/launcher/tls_test_support.hpp"

using namespace sgd;
using namespace std::chrono_literals;
using net::JoinOutcome;
using net::Role;
using test::JoinDeskHere;

TEST_CASE("identity: a URI is a role and a name, and nothing else", "[net]") {
  CHECK(net::identity_uri(Role::kAgent, "n1", false) == "sgd://agent/n1");
  CHECK(net::identity_uri(Role::kClient, "eva", true) == "sgd://client/eva/admin");
  const auto admin = net::parse_identity_uri("sgd://client/eva/admin");
  REQUIRE(admin);
  CHECK((admin->role == Role::kClient && admin->name == "eva" && admin->is_admin));
  for (const char* bad :
       {"", "sgd://", "sgd://agent", "sgd://agent/", "sgd://none/n1", "sgd://root/n1", "sgd://agent/n1/admin",
        "sgd://agent/../x", "sgd://agent/.x", "sgd://agent/a b", "http://agent/n1", "sgd://client//admin"})
    CHECK(!net::parse_identity_uri(bad));
  CHECK(!net::is_name(std::string(129, 'a')));
  CHECK(!net::is_name(std::string("a\0b", 3)));
}

TEST_CASE("ca: a certificate says what the authority grants, and not what the request asks for", "[net]") {
  const std::int64_t now_s = test::unix_now_s();
  const auto ca = net::CertificateAuthority::create(now_s);
  const std::string key = net::make_key();
  const std::string request = net::make_request(key).value();
  const std::string certificate = ca.issue(request, {Role::kAgent, "node1", false, {}}, now_s).value();
  const auto identity = net::identity_in(certificate).value();
  CHECK((identity.role == Role::kAgent && identity.name == "node1" && !identity.is_admin));
  CHECK(identity.serial.size() == 32);
  CHECK(identity.issued_s == now_s);
  CHECK(identity.expires_s == now_s + 24 * 3600);
  CHECK(net::renew_at_s(identity) == now_s + 16 * 3600);
  CHECK(net::check_issued(certificate, key, ca.certificate()).ok());
  CHECK(!net::check_issued(certificate, net::make_key(), ca.certificate()).ok());
  CHECK(!net::check_issued(certificate, key, net::CertificateAuthority::create(now_s).certificate()).ok());
  CHECK(!ca.issue("-----BEGIN", {Role::kAgent, "node1", false, {}}, now_s).ok());
  CHECK(!ca.issue(std::string(9000, 'x'), {Role::kAgent, "node1", false, {}}, now_s).ok());
  CHECK(!ca.issue(request, {Role::kCoordinator, "head", false, {"a,URI:sgd://client/x/admin"}}, now_s).ok());
  std::string forged = request;
  const std::size_t at = forged.size() / 2;
  forged[at] = forged[at] == 'A' ? 'B' : 'A';
  CHECK(!ca.issue(forged, {Role::kAgent, "node1", false, {}}, now_s).ok());
  CHECK(ca.issue(request, {Role::kAgent, "node1", false, {}}, now_s).value() != certificate);
}

TEST_CASE("identity files: keys are for their owner alone, and an identity of another cluster is not replaced",
          "[net]") {
  test::Cluster cluster;
  test::Cluster other;
  const std::string folder = cluster.identity(Role::kAgent, "node1");
  const std::string file = net::identity_file(folder);
  struct stat facts {};
  REQUIRE(::stat(file.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0600);
  REQUIRE(::stat(folder.c_str(), &facts) == 0);
  CHECK((facts.st_mode & 0777) == 0700);
  const auto foreign = net::load_identity(other.identity(Role::kAgent, "node1")).value();
  CHECK_THAT(net::save_identity(folder, foreign).error().message, Catch::Contains("another cluster"));
  REQUIRE(::chmod(file.c_str(), 0640) == 0);
  CHECK_THAT(net::load_identity(folder).error().message,
             Catch::Contains("can be read by others (mode 640): chmod 600"));
  CHECK(net::load_identity(folder + "/none").error().code == ENOENT);
  REQUIRE(::unlink(file.c_str()) == 0);
  REQUIRE(::symlink("/dev/null", file.c_str()) == 0);
  CHECK(!net::load_identity(folder).ok());
}

TEST_CASE("state folder: an authority and the coordinator's names survive, and its certificate is renewed in time",
          "[net]") {
  JoinDeskHere at;
  const std::string folder = net::coordinator_identity_folder(at.state);
  const auto before = net::load_identity(folder).value();
  CHECK(net::host_names_in(before.certificate).value() == std::vector<std::string>{"head.example", "10.0.0.1", "::1"});
  CHECK(!net::renew_coordinator(at.state, at.now_s).value());
  const std::int64_t later_s = at.now_s + 250 * 24 * 3600;
  CHECK(net::renew_coordinator(at.state, later_s).value());
  const auto after = net::load_identity(folder).value();
  CHECK(after.key != before.key);
  CHECK(net::host_names_in(after.certificate).value().size() == 3);
  CHECK(net::identity_in(after.certificate).value().expires_s == later_s + 365 * 24 * 3600);
}

TEST_CASE("join token: a text is the token, or says what is wrong with it", "[net]") {
  const net::JoinToken token = net::make_join_token(net::sha256({}), Role::kAgent);
  const std::string text = net::to_text(token);
  CHECK(text.starts_with("sgd-join-"));
  const auto back = net::parse_join_token(" " + text + "\n").value();
  CHECK((back.id == token.id && back.secret == token.secret && back.ca_key == token.ca_key && back.role == token.role));
  CHECK(net::parse_join_token("").error().message == "not a join token: one begins with sgd-join-");
  CHECK(net::parse_join_token(text.substr(0, 50)).error().message == "the join token is cut off or mistyped");
  CHECK(net::parse_join_token(std::string(10'000, 'a')).error().message ==
        "not a join token: one begins with sgd-join-");
  for (std::size_t index = std::string("sgd-join-").size() + 2; index < text.size(); ++index) {
    std::string mistyped = text;
    mistyped[index] = mistyped[index] == 'x' ? 'y' : 'x';
    CHECK(!net::parse_join_token(mistyped).ok());
  }
}

TEST_CASE("join service: a token makes one member, of its role", "[net]") {
  JoinDeskHere at;
  const net::JoinToken agent = at.token(Role::kAgent);
  CHECK(at.outcome(JoinDeskHere::message(agent)) == "agent node1");
  CHECK(at.outcome(JoinDeskHere::message(agent, "node2")) == "the join token is used up: make another one");
  CHECK(at.outcome(JoinDeskHere::message(at.token(Role::kClient, "eva", true), "eva")) == "client eva admin");
  CHECK(at.outcome(JoinDeskHere::message(at.token(Role::kAgent, "node7"))) == "agent node7");
  CHECK(at.service->count(JoinOutcome::kJoined) == 3);
  CHECK(at.service->count(JoinOutcome::kUsedToken) == 1);
  const std::string file = net::read_file(at.state + "/tokens.json", 1 << 20, net::Readers::kOwner).value();
  CHECK(file.find(net::to_hex(agent.secret)) == std::string::npos);
  CHECK(file.find(net::to_hex(net::sha256(agent.secret))) != std::string::npos);
}

TEST_CASE("join service: refusals, each with its count", "[net]") {
  JoinDeskHere at;
  const auto refused = [&](const join::Request& message, JoinOutcome outcome) {
    const std::string reason = at.outcome(message);
    CHECK(at.service->count(outcome) == 1);
    return reason;
  };
  SECTION("unknown") {
    CHECK_THAT(
        refused(JoinDeskHere::message(net::make_join_token(at.ca_key, Role::kAgent)), JoinOutcome::kUnknownToken),
        Catch::StartsWith("the join token is not known"));
  }
  SECTION("a guessed secret") {
    net::JoinToken guess = at.token(Role::kAgent);
    guess.secret[5] ^= 1;
    CHECK_THAT(refused(JoinDeskHere::message(guess), JoinOutcome::kWrongSecret),
               Catch::StartsWith("the join token is not known"));
  }
  SECTION("another role than it was made for") {
    net::JoinToken changed = at.token(Role::kAgent);
    changed.role = Role::kClient;
    CHECK_THAT(refused(JoinDeskHere::message(changed), JoinOutcome::kWrongSecret),
               Catch::StartsWith("the join token is not known"));
  }
  SECTION("expired") {
    const net::JoinToken token = at.token(Role::kAgent, "", false, 60);
    at.now_s += 60;
    CHECK(refused(JoinDeskHere::message(token), JoinOutcome::kExpiredToken) ==
          "the join token has expired: make another one");
  }
  SECTION("another cluster's") {
    CHECK(refused(JoinDeskHere::message(net::make_join_token(net::sha256({}), Role::kAgent)),
                  JoinOutcome::kOtherCluster) == "the join token is of another cluster");
  }
  SECTION("mistyped") {
    CHECK(refused(join::Join{"sgd-join-abc", "", "", ""}, JoinOutcome::kMalformed) ==
          "the join token is cut off or mistyped");
  }
  SECTION("another name") {
    CHECK(refused(JoinDeskHere::message(at.token(Role::kAgent, "node7"), "node8"), JoinOutcome::kWrongName) ==
          "the join token is for node7, not for node8");
  }
  SECTION("no name") {
    CHECK_THAT(refused(JoinDeskHere::message(at.token(Role::kAgent), "../../etc"), JoinOutcome::kWrongName),
               Catch::StartsWith("a name has letters"));
  }
  SECTION("a client that names itself") {
    CHECK_THAT(refused(JoinDeskHere::message(at.token(Role::kClient), "eva"), JoinOutcome::kWrongName),
               Catch::StartsWith("the join token names nobody"));
  }
  SECTION("no request") {
    const net::JoinToken token = at.token(Role::kAgent);
    CHECK_THAT(refused(join::Join{net::to_text(token), "x", "", "node1"}, JoinOutcome::kBadRequest),
               Catch::StartsWith("not a signing request"));
    CHECK(at.outcome(JoinDeskHere::message(token)) == "agent node1");  // It was not used up.
  }
  SECTION("the folder is held") {
    const net::JoinToken token = at.token(Role::kAgent);
    {
      const auto lock = net::FolderLock::take(at.state, 0);
      REQUIRE(lock.ok());
      CHECK(refused(JoinDeskHere::message(token), JoinOutcome::kBusy) == "the coordinator is busy: try again");
    }
    CHECK(at.outcome(JoinDeskHere::message(token)) == "agent node1");
  }
}

TEST_CASE("join service: a name is its holder's until the certificate ends, or is revoked", "[net]") {
  JoinDeskHere at;
  CHECK(at.outcome(JoinDeskHere::message(at.token(Role::kAgent))) == "agent node1");
  CHECK_THAT(at.outcome(JoinDeskHere::message(at.token(Role::kAgent))), Catch::StartsWith("the name node1 is taken"));
  CHECK(at.service->count(JoinOutcome::kNameTaken) == 1);
  SECTION("a token that names it") {
    CHECK(at.outcome(JoinDeskHere::message(at.token(Role::kAgent, "node1"))) == "agent node1");
  }
  SECTION("another role") {
    CHECK(at.outcome(JoinDeskHere::message(at.token(Role::kClient, "node1"))) == "client node1");
  }
  SECTION("after its end") {
    at.now_s += 24 * 3600;
    CHECK(at.outcome(JoinDeskHere::message(at.token(Role::kAgent))) == "agent node1");
  }
  SECTION("revoked") {
    net::RevokedList list;
    REQUIRE(list.add({"", "node1", at.now_s}).ok());
    REQUIRE(list.save(net::coordinator_identity_folder(at.state), at.now_s).ok());
    for (const std::int64_t later_s : {0, 25 * 3600}) {  // Also when the certificate has ended.
      at.now_s += later_s;
      CHECK_THAT(at.outcome(JoinDeskHere::message(at.token(Role::kAgent))), Catch::StartsWith("node1 was revoked"));
    }
    CHECK(at.outcome(JoinDeskHere::message(at.token(Role::kAgent, "node1"))) == "agent node1");
  }
  SECTION("a service that begins anew knows it too") {
    at.service = net::JoinService::open(at.io, at.state).value();
    CHECK_THAT(at.outcome(JoinDeskHere::message(at.token(Role::kAgent))), Catch::StartsWith("the name node1 is taken"));
  }
}

TEST_CASE("join service: a disk that is full takes neither the name nor the token", "[net]") {
  JoinDeskHere at;
  const net::JoinToken token = at.token(Role::kAgent);
  const std::string log = at.state + "/issued.jsonl";
  SECTION("where tokens are") {
    const std::string in_the_way = at.state + "/tokens.json." + std::to_string(::getpid()) + ".tmp";
    REQUIRE(::mkdir(in_the_way.c_str(), 0700) == 0);
    CHECK(at.outcome(JoinDeskHere::message(token)) == "the coordinator cannot write its records");
    REQUIRE(::rmdir(in_the_way.c_str()) == 0);
  }
  SECTION("where certificates are noted") {
    std::ofstream(log, std::ios::app)
        << R"({"issued_s":1,"expires_s":2,"role":"agent","name":"old","serial":"aa","why":")"
        << std::string(100'000, '#') << "\"}\n";
    const auto before = std::filesystem::file_size(log);
    {
      const test::FileSizeLimit limit(before + 20);
      CHECK(at.outcome(JoinDeskHere::message(token)) == "the coordinator cannot write its records");
    }
    CHECK(std::filesystem::file_size(log) == before);
  }
  CHECK(at.service->count(JoinOutcome::kBusy) == 1);
  CHECK(at.outcome(JoinDeskHere::message(token)) == "agent node1");
}

TEST_CASE("join service: renewals keep role and name", "[net]") {
  JoinDeskHere at;
  const join::Renew renew{net::make_request(net::make_key()).value()};
  net::PeerIdentity held{Role::kClient, "eva", "00", true, at.now_s - 60 * 24 * 3600, at.now_s + 30 * 24 * 3600};
  CHECK(at.outcome(renew, "10.0.0.2:1", held) == "client eva admin");
  CHECK(at.service->count(JoinOutcome::kRenewed) == 1);
  held.issued_s = at.now_s;
  CHECK(at.outcome(renew, "10.0.0.2:1", held) == "the certificate is too new to be renewed");
  CHECK(at.outcome(renew) == "there is no certificate to renew");
}

TEST_CASE("join service: whoever was revoked a moment ago gets no newer certificate", "[net]") {
  JoinDeskHere at;
  const join::Renew renew{net::make_request(net::make_key()).value()};
  const net::PeerIdentity held{Role::kAgent, "node1", "0a", false, at.now_s - 20 * 3600, at.now_s + 4 * 3600};
  CHECK(at.outcome(renew, "10.0.0.2:1", held) == "agent node1");
  const bool by_serial = GENERATE(true, false);
  net::RevokedList list;
  REQUIRE(list.add({by_serial ? "0a" : "", by_serial ? "" : "node1", at.now_s}).ok());
  REQUIRE(list.save(net::coordinator_identity_folder(at.state), at.now_s).ok());
  ++at.now_s;
  CHECK(at.outcome(renew, "10.0.0.2:1", held) == "the certificate was revoked");
  CHECK(at.service->count(JoinOutcome::kRevoked) == 1);
}

TEST_CASE("join service: whoever fails often is not heard for a while, and only that address", "[net]") {
  JoinDeskHere at;
  const join::Join wrong = JoinDeskHere::message(net::make_join_token(at.ca_key, Role::kAgent));
  for (int number = 0; number < 10; ++number)
    CHECK_THAT(at.outcome(wrong), Catch::StartsWith("the join token is not known"));
  CHECK_THAT(at.outcome(wrong, "10.0.0.2:9999"), Catch::StartsWith("too many attempts"));
  const net::JoinToken good = at.token(Role::kAgent);
  CHECK_THAT(at.outcome(JoinDeskHere::message(good)), Catch::StartsWith("too many attempts"));
  CHECK(at.outcome(JoinDeskHere::message(good), "10.0.0.3:1") == "agent node1");
  at.now += 7s;
  CHECK(at.outcome(JoinDeskHere::message(at.token(Role::kAgent), "node2")) == "agent node2");
  for (int number = 0; number < 20; ++number)
    CHECK(at.outcome(JoinDeskHere::message(at.token(Role::kAgent), "n" + std::to_string(number)), "10.0.0.9:1")
              .starts_with("agent"));
}

TEST_CASE("attempt limit: remembers a bounded number of peers", "[net]") {
  net::AttemptLimit limit(10, 6s);
  TimePoint now{};
  for (int number = 0; number < 20; ++number) limit.count_failure(now, "bad");
  CHECK(!limit.allows(now, "bad"));
  for (int number = 0; number < 5'000; ++number) limit.count_failure(now, "once-" + std::to_string(number));
  CHECK(!limit.allows(now, "bad"));
  CHECK(limit.allows(now, "once-1"));
  CHECK(limit.allows(now + 70s, "bad"));
  CHECK(net::address_of_peer("10.0.0.2:41822") == "10.0.0.2");
  CHECK(net::address_of_peer("2001:db8:1:2:3:4:5:6:41822") == "2001:db8:1:2::");
  CHECK(net::address_of_peer("::ffff:10.0.0.2:41822") == "10.0.0.2");  // IPv4, where [::] listens.
}

TEST_CASE("issued log: a torn end is ignored, goes with the next line, and harms no other", "[net]") {
  test::TemporaryFolder folder;
  const net::PeerIdentity one{Role::kAgent, "node1", "aa", false, 1, 100};
  const net::PeerIdentity two{Role::kAgent, "node2", "bb", false, 1, 200};
  {
    auto log = net::IssuedLog::load(folder.path()).value();
    REQUIRE(log.add(one, "join 10.0.0.2").ok());
  }
  FILE* file = std::fopen((folder.path() + "/issued.jsonl").c_str(), "a");
  std::fputs("{\"issued_s\":1,\"expi", file);
  std::fclose(file);
  auto log = net::IssuedLog::load(folder.path()).value();
  CHECK(log.holder(Role::kAgent, "node1")->serial == "aa");
  REQUIRE(log.add(two, "renew").ok());
  const auto again = net::IssuedLog::load(folder.path()).value();
  REQUIRE(again.holder(Role::kAgent, "node2") != nullptr);
  CHECK(again.holder_of("bb")->expires_s == 200);
  CHECK(again.holder(Role::kClient, "node1") == nullptr);
}

namespace {

/// A service behind a real gateway.
struct Served : JoinDeskHere {
  std::shared_ptr<const net::TlsContext> tls = net::TlsContext::load(net::coordinator_identity_folder(state)).value();
  net::Gateway gateway{io, net::Listener::open(io, {"127.0.0.1", 0}, tls).value()};
  std::vector<std::string> refused;

  Served() {
    const auto serve = [this](std::unique_ptr<net::Session> session, const nlohmann::json& first) {
      service->take(std::move(session), first);
    };
    gateway.start({{{"join", serve}, {"renew", serve}},
                   [this](const std::string&, const net::Refusal& refusal) { refused.push_back(refusal.reason); },
                   {}});
  }
  ~Served() { service.reset(); }
  bool run_refused() {
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (refused.empty() && std::chrono::steady_clock::now() < deadline) io.run_one_for(20ms);
    return !refused.empty();
  }
  template <class Call>
  Result<net::PeerIdentity> wait(net::Enrolment& enrolment, Call call) {
    std::optional<Result<net::PeerIdentity>> outcome;
    call(enrolment, [&](const Result<net::PeerIdentity>& result) { outcome = result; });
    const auto deadline = std::chrono::steady_clock::now() + 10s;
    while (!outcome && std::chrono::steady_clock::now() < deadline) io.run_one_for(20ms);
    REQUIRE(outcome);
    return *outcome;
  }
  Result<net::PeerIdentity> join(const net::JoinToken& token, const std::string& identity_folder) {
    net::Enrolment enrolment(io, {"127.0.0.1", gateway.port()}, identity_folder);
    return wait(enrolment,
                [&](net::Enrolment& one, net::Enrolment::Done done) { one.join(token, "", "node1", std::move(done)); });
  }
};

}  // namespace

TEST_CASE("enrolment: a token becomes an identity, which is renewed over its own connection", "[net]") {
  Served at;
  const std::string folder = at.folder.path() + "/agent";
  const auto joined = at.join(at.token(Role::kAgent), folder);
  REQUIRE(joined.ok());
  CHECK((joined.value().role == Role::kAgent && joined.value().name == "node1"));
  const auto tls = net::TlsContext::load(folder).value();
  CHECK(tls->own().serial == joined.value().serial);
  net::Enrolment again(at.io, {"127.0.0.1", at.gateway.port()}, folder);
  const auto early =
      at.wait(again, [&](net::Enrolment& one, net::Enrolment::Done done) { one.renew(tls, std::move(done)); });
  REQUIRE(!early.ok());
  CHECK(early.error().message == "the certificate is too new to be renewed");
  // The same name, at two thirds of its time.
  net::IdentityFiles aged = net::load_identity(folder).value();
  aged.certificate =
      at.ca.issue(net::make_request(aged.key).value(), {Role::kAgent, "node1", false, {}}, at.now_s - 7200, 10'000)
          .value();
  REQUIRE(net::save_identity(folder, aged).ok());
  net::Renewer renewer(at.io, {"127.0.0.1", at.gateway.port()}, folder, tls, {});
  std::string renewed;
  renewer.start({[&](const net::PeerIdentity& identity) { renewed = identity.serial; },
                 [&](const std::string& reason) { FAIL(reason); }});
  const auto deadline = std::chrono::steady_clock::now() + 10s;
  while (renewed.empty() && std::chrono::steady_clock::now() < deadline) at.io.run_one_for(20ms);
  REQUIRE(!renewed.empty());
  REQUIRE(tls->refresh().ok());
  CHECK(tls->own().serial == renewed);
  CHECK(net::load_identity(folder).value().key != aged.key);
}

TEST_CASE("enrolment: a joiner gives its token to no other cluster", "[net]") {
  Served at;
  Served between;  // Somebody in the middle, with an authority of their own.
  const net::JoinToken token = at.token(Role::kAgent);
  const std::string folder = at.folder.path() + "/agent";
  const auto joined = between.join(token, folder);
  REQUIRE(!joined.ok());
  CHECK(joined.error().message ==
        "this is not the cluster that made the token: a wrong address, or somebody in between");
  REQUIRE(between.run_refused());
  for (std::size_t outcome = 0; outcome < net::kJoinOutcomes; ++outcome)
    CHECK(between.service->count(static_cast<JoinOutcome>(outcome)) == 0);
  CHECK(net::load_identity(folder).error().code == ENOENT);
  CHECK(at.join(token, folder).ok());
}

TEST_CASE("enrolment: a refusal and a silent coordinator are told", "[net]") {
  Served at;
  const std::string folder = at.folder.path() + "/agent";
  const auto refused = at.join(net::make_join_token(at.ca_key, Role::kAgent), folder);
  REQUIRE(!refused.ok());
  CHECK_THAT(refused.error().message, Catch::StartsWith("the join token is not known"));
  net::Enrolment nobody(at.io, {"127.0.0.1", 1}, folder);
  const auto lost = at.wait(nobody, [&](net::Enrolment& one, net::Enrolment::Done done) {
    one.join(net::make_join_token(at.ca_key, Role::kAgent), "", "node1", std::move(done));
  });
  REQUIRE(!lost.ok());
  CHECK_THAT(lost.error().message, Catch::StartsWith("cannot reach 127.0.0.1:1: "));
}

TEST_CASE("join service: more visitors than there are places are counted and go; limit kSessionsMax", "[net]") {
  Served at;
  at.service->sessions_max = 0;
  const auto lost = at.join(at.token(Role::kAgent), at.folder.path() + "/agent");
  REQUIRE_FALSE(lost.ok());
  CHECK(at.service->count(JoinOutcome::kBusy) >= 1);
  at.service->sessions_max = net::JoinService::kSessionsMax;
  CHECK(at.join(at.token(Role::kAgent), at.folder.path() + "/agent").ok());
}
