#pragma once
// A join token: what somebody must have to become a member of a cluster, once. It proves the holder to the
// coordinator (secret) and the coordinator to the holder (digest of the authority's public key).

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "launcher/net/digest.hpp"
#include "launcher/net/peer_identity.hpp"

namespace sgd::net {

struct JoinToken {
  std::array<std::uint8_t, 8> id{};  ///< Names it in lists; no secret.
  std::array<std::uint8_t, 32> secret{};
  Digest ca_key{};          ///< SHA-256 of the authority's public key.
  Role role = Role::kNone;  ///< kAgent or kClient.
};

/// Id and secret from the system's generator.
[[nodiscard]] JoinToken make_join_token(const Digest& ca_key, Role role);

/// "sgd-join-" and base64url of version, id, secret, digest, role and a check sum, so that a slip of the hand
/// is told from an attack.
[[nodiscard]] std::string to_text(const JoinToken& token);
/// White space around it is ignored. Errors: no token, a mistyped one, one of a newer version.
[[nodiscard]] Result<JoinToken> parse_join_token(std::string_view text);

}  // namespace sgd::net
