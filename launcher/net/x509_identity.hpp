#pragma once
// What one of our certificates says of its owner, read from OpenSSL's form of it. Nothing is verified here.

#include <string>
#include <vector>

#include "launcher/net/openssl.hpp"
#include "launcher/net/peer_identity.hpp"

namespace sgd::net {

/// Error: none or several URIs of ours, or one that says nothing.
[[nodiscard]] Result<PeerIdentity> identity_of(X509* certificate);

/// DNS names and addresses, as text.
[[nodiscard]] std::vector<std::string> host_names_of(X509* certificate);

/// Lower-case hexadecimal digits.
[[nodiscard]] std::string serial_of(X509* certificate);

}  // namespace sgd::net
