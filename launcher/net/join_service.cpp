#include "launcher/net/join_service.hpp"

#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <boost/asio/steady_timer.hpp>

#include "launcher/net/certificate.hpp"
#include "launcher/net/cluster_state.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/net/wall_clock.hpp"

namespace sgd::net {
namespace {

constexpr int kDeskLockWaitMs = 100;  // The event loop stands still meanwhile; verbs hold the folder for milliseconds.

constexpr std::array<std::pair<JoinOutcome, const char*>, kJoinOutcomes> kNames{{
    {JoinOutcome::kJoined, "joined"},
    {JoinOutcome::kRenewed, "renewed"},
    {JoinOutcome::kTooOften, "too_often"},
    {JoinOutcome::kMalformed, "malformed"},
    {JoinOutcome::kOtherCluster, "other_cluster"},
    {JoinOutcome::kUnknownToken, "unknown_token"},
    {JoinOutcome::kWrongSecret, "wrong_secret"},
    {JoinOutcome::kExpiredToken, "expired_token"},
    {JoinOutcome::kUsedToken, "used_token"},
    {JoinOutcome::kWrongName, "wrong_name"},
    {JoinOutcome::kNameTaken, "name_taken"},
    {JoinOutcome::kBadRequest, "bad_request"},
    {JoinOutcome::kNobody, "nobody"},
    {JoinOutcome::kTooEarly, "too_early"},
    {JoinOutcome::kRevoked, "revoked"},
    {JoinOutcome::kBusy, "busy"},
}};

}  // namespace

const char* join_outcome_name(JoinOutcome outcome) {
  return kNames[static_cast<std::size_t>(outcome)].second;
}

/// Of one that has its answer, until it leaves.
struct JoinService::Peer {
  Peer(boost::asio::io_context& io, std::unique_ptr<Session> who) : session(std::move(who)), deadline(io) {}
  std::unique_ptr<Session> session;
  boost::asio::steady_timer deadline;
};

JoinService::JoinService(boost::asio::io_context& io, std::string state_dir, CertificateAuthority ca,
                         const Digest& ca_key, IssuedLog issued)
    : io_(io), state_dir_(std::move(state_dir)), ca_(std::move(ca)), ca_key_(ca_key), issued_(std::move(issued)) {}

JoinService::~JoinService() {
  for (const std::shared_ptr<Peer>& peer : peers_) peer->deadline.cancel();
}

Result<std::unique_ptr<JoinService>> JoinService::open(boost::asio::io_context& io, const std::string& state_dir) {
  Result<CertificateAuthority> ca = CertificateAuthority::load(ca_folder(state_dir));
  if (!ca) return ca.error();
  const Result<Digest> ca_key = public_key_digest_in(ca.value().certificate());
  if (!ca_key) return ca_key.error();
  Result<IssuedLog> issued = IssuedLog::load(state_dir);
  if (!issued) return issued.error();
  if (const Result<TokenStore> tokens = load_tokens(state_dir); !tokens) return tokens.error();
  return std::unique_ptr<JoinService>(
      new JoinService(io, state_dir, std::move(ca).value(), ca_key.value(), std::move(issued).value()));
}

// ---- sessions ----

void JoinService::take(std::unique_ptr<Session> session, const nlohmann::json& first) {
  if (peers_.size() >= sessions_max) {  // It goes with its owner, and dials again later.
    (void)refuse(session->peer(), JoinOutcome::kBusy, "too many want to join");
    return;
  }
  Result<join::Request> message = join::decode_request(first.dump());
  join::Response reply = join::Refused{};
  if (message.ok()) {
    reply = answer({std::chrono::steady_clock::now(), unix_now_s(), session->peer(), session->peer_identity()},
                   message.value());
  } else {
    reply = refuse(session->peer(), JoinOutcome::kMalformed, message.error().message);
  }
  const auto peer = std::make_shared<Peer>(io_, std::move(session));
  peers_.insert(peer);
  const Status sent = peer->session->send(FrameKind::kJson, join::encode(reply));
  SGD_ASSERT(sent.ok());  // Two certificates at most.
  const std::weak_ptr<Peer> weak = peer;
  peer->session->start({[](const Frame&) {},
                        [this, weak](const std::string&) {
                          const auto gone = weak.lock();
                          gone->deadline.cancel();
                          peers_.erase(gone);
                        }});
  peer->deadline.expires_after(kLeave);
  peer->deadline.async_wait([weak](const boost::system::error_code& error) {
    const auto stays = weak.lock();
    if (!error && stays) stays->session->close("it has its answer and does not leave", RefusalKind::kSlow);
  });
}

join::Refused JoinService::refuse(const std::string& peer, JoinOutcome outcome, const std::string& reason) {
  ++counts_[static_cast<std::size_t>(outcome)];
  if (on_refused) on_refused(peer, outcome, reason);
  return {reason};
}

// ---- decisions ----

join::Response JoinService::answer(const From& from, const join::Request& message) {
  const std::string address = address_of_peer(from.peer);
  Verdict verdict;
  if (!limit_.allows(from.now, address)) {
    verdict = {JoinOutcome::kTooOften, "too many attempts that failed: try again in a minute", {}};
  } else {
    verdict = std::visit([&](const auto& one) { return judge(from, one); }, message);
    const bool is_member = verdict.outcome == JoinOutcome::kJoined || verdict.outcome == JoinOutcome::kRenewed;
    if (!is_member && verdict.outcome != JoinOutcome::kBusy) limit_.count_failure(from.now, address);
  }
  if (verdict.certificate.empty()) return refuse(from.peer, verdict.outcome, verdict.reason);
  ++counts_[static_cast<std::size_t>(verdict.outcome)];
  return join::Joined{verdict.certificate, ca_.certificate()};
}

JoinService::Verdict JoinService::judge(const From& from, const join::Join& message) {
  const Result<JoinToken> token = parse_join_token(message.token);
  if (!token) return {JoinOutcome::kMalformed, token.error().message, {}};
  if (!equal_in_constant_time(token.value().ca_key, ca_key_))
    return {JoinOutcome::kOtherCluster, "the join token is of another cluster", {}};
  const Result<FolderLock> lock = FolderLock::take(state_dir_, kDeskLockWaitMs);
  if (!lock) return {JoinOutcome::kBusy, "the coordinator is busy: try again", {}};
  return admit(from, message, token.value());
}

/// The folder is ours meanwhile.
JoinService::Verdict JoinService::admit(const From& from, const join::Join& message, const JoinToken& token) {
  Result<TokenStore> store = load_tokens(state_dir_);
  if (!store) return unread(store.error());
  if (const Status read = issued_.refresh(); !read) return unread(read.error());
  StoredToken stored;
  Grant grant;
  const auto tell = [&](Verdict verdict) {
    PeerIdentity who;
    if (verdict.certificate.empty()) {
      who.role = role_of(stored.role).value_or(Role::kNone);
      who.name = grant.name.empty() ? stored.name : grant.name;
    } else {
      who = identity_in(verdict.certificate).value();
    }
    if (on_join) on_join({from.peer, std::move(who), to_hex(token.id), verdict.reason});
    return verdict;
  };
  const char* unknown = "the join token is not known: it was revoked, or ended long ago";
  switch (store.value().check(token, from.now_s, stored)) {
    case TokenFault::kUnknown:
      return {JoinOutcome::kUnknownToken, unknown, {}};
    case TokenFault::kOtherRole:
    case TokenFault::kWrongSecret:
      return {JoinOutcome::kWrongSecret, unknown, {}};
    case TokenFault::kExpired:
      return tell({JoinOutcome::kExpiredToken, "the join token has expired: make another one", {}});
    case TokenFault::kUsed:
      return tell({JoinOutcome::kUsedToken, "the join token is used up: make another one", {}});
    case TokenFault::kNone:
      break;
  }
  if (Verdict refused = name_for(from, message, stored, grant); !refused.reason.empty()) return tell(refused);
  Verdict verdict = sign(from, message.csr, grant);
  if (verdict.certificate.empty()) return verdict;
  // Used up on disk before anybody sees the certificate: whatever happens then, nobody gets a second one. And before
  // the certificate takes the name: it takes it for a day, and another token is soon made.
  TokenStore after = store.value();
  after.mark_used(stored.id, grant.name, from.now_s);
  if (!save_tokens(state_dir_, after)) return {JoinOutcome::kBusy, "the coordinator cannot write its records", {}};
  verdict = note(std::move(verdict), "join " + address_of_peer(from.peer));
  if (!verdict.certificate.empty()) return tell(std::move(verdict));
  (void)save_tokens(state_dir_, store.value());  // Ignoring: without it another token is needed.
  return verdict;
}

JoinService::Verdict JoinService::name_for(const From& from, const join::Join& message, const StoredToken& token,
                                           Grant& grant) {
  grant.role = role_of(token.role).value_or(Role::kNone);
  grant.is_admin = token.is_admin;
  if (!token.name.empty()) {
    grant.name = token.name;
    if (!message.name.empty() && message.name != token.name)
      return {
          JoinOutcome::kWrongName, fmt::format("the join token is for {}, not for {}", token.name, message.name), {}};
    return {};
  }
  grant.name = message.name.empty() ? message.default_name : message.name;
  // What a client is called decides whose runs are its own, and whose account they get.
  if (grant.role == Role::kClient)
    return {JoinOutcome::kWrongName,
            "the join token names nobody, and a client's must: have one made with --role client --name NAME",
            {}};
  if (!is_name(grant.name))
    return {JoinOutcome::kWrongName,
            "a name has letters, digits, \".\", \"_\" and \"-\", at most 128: give one with --name",
            {}};
  const auto revoked = revoked_now();
  if (!revoked) return unread(revoked.error());
  const PeerIdentity* holder = issued_.holder(grant.role, grant.name);
  if (revoked.value()->has_name(grant.name) || (holder != nullptr && revoked.value()->contains(*holder)))
    return {JoinOutcome::kNameTaken,
            fmt::format("{} was revoked: only a token that is made for that name, with --name {}, gives it again",
                        grant.name, grant.name),
            {}};
  if (holder == nullptr || holder->expires_s <= from.now_s) return {};
  return {JoinOutcome::kNameTaken,
          fmt::format("the name {} is taken: join with --name, or with a token that was made with --name {}",
                      grant.name, grant.name),
          {}};
}

JoinService::Verdict JoinService::judge(const From& from, const join::Renew& message) {
  const PeerIdentity& held = from.identity;
  if (held.role != Role::kAgent && held.role != Role::kClient)
    return {JoinOutcome::kNobody, "there is no certificate to renew", {}};
  if (from.now_s < held.issued_s + (held.expires_s - held.issued_s) / 3)
    return {JoinOutcome::kTooEarly, "the certificate is too new to be renewed", {}};
  const Result<FolderLock> lock = FolderLock::take(state_dir_, kDeskLockWaitMs);
  if (!lock) return {JoinOutcome::kBusy, "the coordinator is busy: try again", {}};
  const auto revoked = revoked_now();
  if (!revoked) return unread(revoked.error());
  if (const Status read = issued_.refresh(); !read) return unread(read.error());
  // The gateway looks for revocations once a second only, and a newer certificate would not be among them.
  if (revoked.value()->contains(held)) return {JoinOutcome::kRevoked, "the certificate was revoked", {}};
  Verdict verdict = sign(from, message.csr, {held.role, held.name, held.is_admin, {}});
  if (!verdict.certificate.empty()) verdict = note(std::move(verdict), "renew");
  if (verdict.outcome == JoinOutcome::kJoined) verdict.outcome = JoinOutcome::kRenewed;
  return verdict;
}

/// A stranger need not know more.
JoinService::Verdict JoinService::unread(const Error& trouble) {
  if (on_trouble) on_trouble(trouble.message);
  return {JoinOutcome::kBusy, "the coordinator cannot read its records, and its log says why", {}};
}

/// As it is on disk. The folder is ours meanwhile.
Result<const RevokedList*> JoinService::revoked_now() {
  const std::string folder = coordinator_identity_folder(state_dir_);
  const FileStamp stamp = stamp_of(revoked_file(folder));
  if (stamp == revoked_stamp_) return &revoked_;
  Result<RevokedList> revoked = RevokedList::load(folder);
  if (!revoked) return revoked.error();
  revoked_ = std::move(revoked).value();
  revoked_stamp_ = stamp;
  return &revoked_;
}

/// By the clock it may be older than the revocation of its name, which it is not: a token that is made for the name has
/// given it again, or who renews it is let in. The folder is ours meanwhile.
Status JoinService::readmit(const PeerIdentity& identity) {
  const auto revoked = revoked_now();
  if (!revoked) return revoked.error();
  if (!revoked.value()->contains(identity)) return {};
  RevokedList after = *revoked.value();
  if (const Status added = after.readmit({identity.serial, identity.name, identity.issued_s}); !added) return added;
  return after.save(coordinator_identity_folder(state_dir_), identity.issued_s);
}

/// Nobody has the certificate, and nothing says that it was made.
JoinService::Verdict JoinService::sign(const From& from, const std::string& csr, const Grant& grant) {
  Result<std::string> certificate = ca_.issue(csr, grant, from.now_s);
  if (!certificate) return {JoinOutcome::kBadRequest, certificate.error().message, {}};
  return {JoinOutcome::kJoined, {}, std::move(certificate).value()};
}

/// The same once it is on disk that the certificate was made. It is readmitted first: that alone lets nobody in.
JoinService::Verdict JoinService::note(Verdict made, const std::string& why) {
  const Result<PeerIdentity> identity = identity_in(made.certificate);
  if (!identity) return {JoinOutcome::kBadRequest, identity.error().message, {}};
  if (!readmit(identity.value()) || !issued_.add(identity.value(), why))
    return {JoinOutcome::kBusy, "the coordinator cannot write its records", {}};
  return made;
}

}  // namespace sgd::net
