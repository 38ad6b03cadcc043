#pragma once
// Who the other side of a connection is, as its certificate says: a role and a name, written as one URI in
// the subject alternative name, for example "sgd://agent/n1". Text only: what proves it is the certificate's
// signature. Over a Unix socket it is an account of this machine, which the kernel proves.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace sgd::net {

enum class Role {
  kNone,         ///< No certificate: may ask to join, and nothing else.
  kCoordinator,  ///< Schedules; the only one that listens.
  kAgent,        ///< Speaks for the node of its name.
  kClient,       ///< A person or a program that submits runs.
};

struct PeerIdentity {
  Role role = Role::kNone;
  std::string name;            ///< Of the node, the person or the coordinator's host.
  std::string serial;          ///< Of the certificate: 32 lower-case hexadecimal digits for one that we issued.
  bool is_admin = false;       ///< A client that may act on the runs of others.
  std::int64_t issued_s = 0;   ///< Unix time.
  std::int64_t expires_s = 0;  ///< Unix time.
  /// Over a Unix socket: the account that the kernel names; `name` is then that account's.
  std::optional<std::uint32_t> uid = {};
};

inline constexpr std::size_t kNameBytesMax = 128;

/// "agent".
[[nodiscard]] const char* role_name(Role role);
/// Not for kNone, which nobody can be given.
[[nodiscard]] std::optional<Role> role_of(std::string_view name);

/// From [A-Za-z0-9._-], 1 to 128 bytes, beginning with a letter or a digit: safe as a part of a path and of a
/// URI.
[[nodiscard]] bool is_name(std::string_view text);

/// "sgd://client/eva/admin".
[[nodiscard]] std::string identity_uri(Role role, const std::string& name, bool is_admin);
/// Role, name and is_admin; nothing for any other text.
[[nodiscard]] std::optional<PeerIdentity> parse_identity_uri(std::string_view uri);

/// "agent n1 (certificate 0a1b...)", or "nobody" without a certificate.
[[nodiscard]] std::string describe(const PeerIdentity& identity);

}  // namespace sgd::net
