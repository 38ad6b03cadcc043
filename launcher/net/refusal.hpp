#pragma once
// Why a connection ended, as one of a few kinds that can be counted, beside the words that a person reads. Whoever ends
// a connection names the kind; a peer's text never becomes one.

#include <array>
#include <string>
#include <utility>

namespace sgd::net {

enum class RefusalKind {
  kNone,           ///< Nobody's fault: the peer has left, or this side ends.
  kPlainText,      ///< It does not speak TLS where TLS is spoken.
  kHandshake,      ///< TLS of another version or with other ciphers, or bytes that are none.
  kNoCertificate,  ///< Without one it wants what needs one.
  kUntrusted,      ///< Its certificate is not of this cluster's authority, or is none of ours.
  kExpired,        ///< Its certificate has expired, or is not valid yet.
  kRevoked,
  kWrongRole,     ///< Its role may not do what it wants.
  kWrongName,     ///< It speaks for somebody else.
  kWrongAccount,  ///< Over a Unix socket: it is neither our own account nor root.
  kNodeTaken,     ///< The core does not take this agent: its name is in use, or an operator has removed the node.
  kProtocol,      ///< No hello, a second one, or versions that this side does not speak.
  kBadFrame,      ///< Of an unknown kind, or not the one that was announced.
  kOversize,      ///< A frame of more bytes than it may have.
  kBadMessage,    ///< No JSON, of an unknown type, or with fields that make no sense.
  kSlow,          ///< It did not say what it had to say within the time, or does not read.
  kTooMany,       ///< Too many others are there, from this address or in all.
  kGone,          ///< It has left before it had said who it is.
};
inline constexpr std::array<std::pair<RefusalKind, const char*>, 18> kRefusalKindNames{{
    {RefusalKind::kNone, "none"},
    {RefusalKind::kPlainText, "plain_text"},
    {RefusalKind::kHandshake, "handshake"},
    {RefusalKind::kNoCertificate, "no_certificate"},
    {RefusalKind::kUntrusted, "untrusted"},
    {RefusalKind::kExpired, "expired"},
    {RefusalKind::kRevoked, "revoked"},
    {RefusalKind::kWrongRole, "wrong_role"},
    {RefusalKind::kWrongName, "wrong_name"},
    {RefusalKind::kWrongAccount, "wrong_account"},
    {RefusalKind::kNodeTaken, "node_taken"},
    {RefusalKind::kProtocol, "protocol"},
    {RefusalKind::kBadFrame, "bad_frame"},
    {RefusalKind::kOversize, "oversize"},
    {RefusalKind::kBadMessage, "bad_message"},
    {RefusalKind::kSlow, "slow"},
    {RefusalKind::kTooMany, "too_many"},
    {RefusalKind::kGone, "gone"},
}};

/// "bad_frame".
[[nodiscard]] constexpr const char* name(RefusalKind kind) {
  return kRefusalKindNames[static_cast<std::size_t>(kind)].second;
}

struct Refusal {
  RefusalKind kind = RefusalKind::kNone;
  std::string reason;  ///< In words.
};

}  // namespace sgd::net
