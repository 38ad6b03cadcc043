#pragma once
// A coordinator's state folder with the service that takes join tokens, and who asks it, without any socket.

#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <catch2/catch.hpp>

#include "launcher/net/certificate.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/join_service.hpp"
#include "launcher/net/token_store.hpp"
#include "test/unit/launcher/tls_test_support.hpp"

namespace sgd::test {

/// A coordinator's state folder with a service, as `sgd-launch init` makes it.
struct JoinDeskHere {
  TemporaryFolder folder;
  std::string state = folder.path() + "/state";
  std::int64_t now_s = unix_now_s();
  boost::asio::io_context io;
  net::CertificateAuthority ca = net::CertificateAuthority::create(now_s);
  net::Digest ca_key = net::public_key_digest_in(ca.certificate()).value();
  std::unique_ptr<net::JoinService> service;
  TimePoint now{};

  JoinDeskHere() {
    REQUIRE(ca.save(net::ca_folder(state)).ok());
    REQUIRE(net::make_identity(state, ca, {net::Role::kCoordinator, "head", false, {"head.example", "10.0.0.1", "::1"}},
                               net::coordinator_identity_folder(state), now_s)
                .ok());
    service = net::JoinService::open(io, state).value();
  }
  net::JoinToken token(net::Role role, const std::string& name = "", bool is_admin = false,
                       std::int64_t valid_s = 900) const {
    const net::JoinToken made = net::make_join_token(ca_key, role);
    net::TokenStore store = net::load_tokens(state).value();
    REQUIRE(store.add(made, name, is_admin, now_s, valid_s).ok());
    REQUIRE(net::save_tokens(state, store).ok());
    return made;
  }
  static join::Join message(const net::JoinToken& token, const std::string& name = "",
                            const std::string& default_name = "node1") {
    return {net::to_text(token), net::make_request(net::make_key()).value(), name, default_name};
  }
  join::Response ask(const join::Request& message, const std::string& peer = "10.0.0.2:4000",
                     const net::PeerIdentity& as = {}) {
    return service->answer({now, now_s, peer, as}, message);
  }
  /// "agent node1 admin", or the reason of the refusal.
  std::string outcome(const join::Request& message, const std::string& peer = "10.0.0.2:4000",
                      const net::PeerIdentity& as = {}) {
    const join::Response reply = ask(message, peer, as);
    if (const auto* refused = std::get_if<join::Refused>(&reply)) return refused->reason;
    const auto identity = net::identity_in(std::get<join::Joined>(reply).certificate).value();
    return std::string(net::role_name(identity.role)) + " " + identity.name + (identity.is_admin ? " admin" : "");
  }
};

}  // namespace sgd::test
