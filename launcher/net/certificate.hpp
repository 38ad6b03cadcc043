#pragma once
// Keys, signing requests and what certificates say, as text (PEM) and values. A key is made where it is used
// and never leaves that machine: what travels is a request, and the certificate that answers it.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/net/digest.hpp"
#include "launcher/net/peer_identity.hpp"

namespace sgd::net {

inline constexpr std::size_t kPemBytesMax = 8 << 10;  ///< Of one request, certificate or key.

/// A certificate is valid from so long before it is made: the clocks of the cluster's machines may differ.
inline constexpr std::int64_t kBackdated_s = 300;

/// A new private key (P-256).
[[nodiscard]] std::string make_key();

/// A signing request for `key`. Role and name are not in it: who signs decides them.
[[nodiscard]] Result<std::string> make_request(std::string_view key);

/// Role, name, serial and validity. Error: no certificate, or not one of ours: it must hold exactly one URI
/// that names a role.
[[nodiscard]] Result<PeerIdentity> identity_in(std::string_view certificate);

/// The DNS names and addresses in it.
[[nodiscard]] Result<std::vector<std::string>> host_names_in(std::string_view certificate);

/// SHA-256 of the certificate's public key: what a join token holds of the CA.
[[nodiscard]] Result<Digest> public_key_digest_in(std::string_view certificate);

/// Whether `certificate` belongs to `key`, and `ca` has signed it. The error says which is not so; validity
/// is not judged.
[[nodiscard]] Status check_issued(std::string_view certificate, std::string_view key, std::string_view ca);

/// When a certificate is to be made anew: after two thirds of its time, in Unix seconds.
[[nodiscard]] std::int64_t renew_at_s(const PeerIdentity& identity);

}  // namespace sgd::net
