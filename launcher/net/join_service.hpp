#pragma once
// Where a coordinator makes members: whoever brings a join token gets a certificate of the token's role, and
// whoever has a certificate gets a newer one of the same role and name. Every answer is counted by its
// outcome.
//
//   {"type":"join","token":T,"csr":PEM,"name":N}  -> {"type":"joined","certificate":PEM,"ca":PEM}
//   {"type":"renew","csr":PEM}                       or {"type":"refused","reason":R}
// The peer leaves when it has its answer. Files are written here, at most a few times a second: what is
// said to a joiner must be on disk before.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>

#include "common/json/nlohmann.hpp"
#include "common/messages/join.hpp"
#include "launcher/net/attempt_limit.hpp"
#include "launcher/net/ca.hpp"
#include "launcher/net/gateway.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/issued_log.hpp"
#include "launcher/net/private_files.hpp"
#include "launcher/net/token_store.hpp"

namespace sgd::net {

enum class JoinOutcome {
  kJoined,
  kRenewed,
  kTooOften,      ///< Too many failures from this address.
  kMalformed,     ///< Not a message, or no token in it.
  kOtherCluster,  ///< A token of another authority.
  kUnknownToken,
  kWrongSecret,
  kExpiredToken,
  kUsedToken,
  kWrongName,   ///< The token is for another one, or it is no name.
  kNameTaken,   ///< Somebody holds a certificate for it, or has lost it by force, and the token does not name it.
  kBadRequest,  ///< No signing request that we can answer.
  kNobody,      ///< A renewal without a certificate to renew.
  kTooEarly,    ///< A renewal of a certificate that is quite new.
  kRevoked,     ///< A renewal of a certificate that was revoked.
  kBusy,        ///< The disk, or a verb that holds the folder.
};
inline constexpr std::size_t kJoinOutcomes = 16;

/// "wrong_secret".
[[nodiscard]] const char* join_outcome_name(JoinOutcome outcome);

class JoinService {
 public:
  static constexpr double kFailuresAtOnce = 10;  ///< Of one address.
  static constexpr Duration kOneFailurePer = std::chrono::seconds(6);
  static constexpr std::size_t kSessionsMax = 1024;  ///< Of which the gateway lets in a quarter from one address.
  std::size_t sessions_max = kSessionsMax;
  static constexpr Duration kLeave = std::chrono::seconds(5);  ///< A session that stays longer is shown out.

  /// Errors: no authority there, records that are damaged. `io` must outlive the service.
  [[nodiscard]] static Result<std::unique_ptr<JoinService>> open(boost::asio::io_context& io,
                                                                 const std::string& state_dir);
  ~JoinService();

  /// As Gateway::OnSession, for the kinds "join" and "renew".
  void take(std::unique_ptr<Session> session, const nlohmann::json& first);

  struct Member {
    std::string peer;
    PeerIdentity identity;  ///< That it has got, or would have got: then only role and name.
    std::string token;      ///< Its id.
    std::string refused;    ///< Why it has got nothing, though it holds a token of ours; empty: it is a member.
  };
  /// Told of each that brings a token of ours. May be absent.
  std::function<void(const Member& member)> on_join;
  /// Told of each session that goes without a certificate. May be absent.
  std::function<void(const std::string& peer, JoinOutcome outcome, const std::string& reason)> on_refused;
  /// Told what is wrong with a file of the state folder, each time that nobody can join because of it. May be absent.
  std::function<void(const std::string& message)> on_trouble;

  struct From {
    TimePoint now;           ///< For the limit of attempts.
    std::int64_t now_s = 0;  ///< Unix time.
    std::string peer;        ///< "10.0.0.2:41822".
    PeerIdentity identity;
  };
  [[nodiscard]] join::Response answer(const From& from, const join::Request& message);
  [[nodiscard]] std::uint64_t count(JoinOutcome outcome) const { return counts_[static_cast<std::size_t>(outcome)]; }

 private:
  struct Verdict {
    JoinOutcome outcome = JoinOutcome::kJoined;
    std::string reason;  ///< Of a refusal.
    std::string certificate;
  };
  struct Peer;
  JoinService(boost::asio::io_context& io, std::string state_dir, CertificateAuthority ca, const Digest& ca_key,
              IssuedLog issued);

  join::Refused refuse(const std::string& peer, JoinOutcome outcome, const std::string& reason);
  Verdict judge(const From& from, const join::Join& message);
  Verdict judge(const From& from, const join::Renew& message);
  Verdict admit(const From& from, const join::Join& message, const JoinToken& token);
  Verdict name_for(const From& from, const join::Join& message, const StoredToken& token, Grant& grant);
  Verdict unread(const Error& trouble);
  [[nodiscard]] Result<const RevokedList*> revoked_now();
  [[nodiscard]] Status readmit(const PeerIdentity& identity);
  Verdict sign(const From& from, const std::string& csr, const Grant& grant);
  Verdict note(Verdict made, const std::string& why);

  boost::asio::io_context& io_;
  std::string state_dir_;
  CertificateAuthority ca_;
  Digest ca_key_;
  IssuedLog issued_;
  RevokedList revoked_;
  FileStamp revoked_stamp_;  ///< Of the file that revoked_ was read from.
  AttemptLimit limit_{kFailuresAtOnce, kOneFailurePer};
  std::array<std::uint64_t, kJoinOutcomes> counts_{};
  std::set<std::shared_ptr<Peer>> peers_;
};

}  // namespace sgd::net
