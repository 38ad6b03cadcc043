#pragma once
// Whether a peer's certificate is accepted: signed by our authority and valid now (OpenSSL's part), of a role
// that this side takes, and not revoked (ours). The reason of a refusal is kept in words; the peer hears the
// fitting alert.

#include <string>

#include "launcher/net/openssl.hpp"
#include "launcher/net/peer_identity.hpp"
#include "launcher/net/refusal.hpp"
#include "launcher/net/tls_context.hpp"

namespace sgd::net {

/// Of one connection; the SSL object's application data points to it.
struct PeerCheck {
  const TlsContext* context = nullptr;
  TlsSide side = TlsSide::kAccepts;
  const Digest* pinned_ca_key = nullptr;       ///< Joining: in place of an authority that we know.
  PeerIdentity found;                          ///< Of a certificate that was accepted.
  std::string refusal;                         ///< Why it was not; empty if it was.
  RefusalKind kind = RefusalKind::kUntrusted;  ///< Of that.
};

/// For SSL_CTX_set_cert_verify_callback.
int verify_peer(X509_STORE_CTX* store, void* unused);

}  // namespace sgd::net
