#pragma once
// What OpenSSL says when a TLS connection fails, in words that name the side and the remedy.

#include <cstdint>
#include <string>

#include "launcher/net/peer_identity.hpp"

namespace sgd::net {

/// With this the words begin when the other side does not take `own`,
inline constexpr const char* kCertificateRefused = "the other side refuses this side's certificate";
/// and this is in them where it may be a matter of clocks. What time it is here is not: who dials again and again says
/// equal words once.
inline constexpr const char* kValidFrom = "; it is valid from ";
/// What is said where a coordinator wants a certificate, and this side has none to show.
inline constexpr const char* kWantsIdentity =
    "the other side speaks TLS and this side plain text: this side needs an identity (sgd-launch join)";

/// `code` of ERR_get_error(); `own`: the certificate that was shown, if there is one.
[[nodiscard]] std::string tls_error_in_words(unsigned long code, const PeerIdentity& own);
/// "2026-11-28 21:00:00 UTC".
[[nodiscard]] std::string utc_in_words(std::int64_t unix_s);

}  // namespace sgd::net
