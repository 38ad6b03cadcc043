#pragma once
// TLS over a non-blocking socket: OpenSSL does the bytes, the caller the waiting.

#include <memory>

#include "launcher/net/openssl.hpp"
#include "launcher/net/tls_context.hpp"

namespace sgd::net {

/// `ssl` has a context whose certificate check is verify_peer().
[[nodiscard]] std::unique_ptr<Stream> make_tls_stream(std::shared_ptr<const TlsContext> context, SslPtr ssl, int fd,
                                                      TlsSide side, const Digest* pinned_ca_key);

}  // namespace sgd::net
