#pragma once
// What OpenSSL says when a TLS connection fails, in words that name the side and the remedy.

#include <string>

namespace sgd::net {

/// `code` of ERR_get_error().
[[nodiscard]] std::string tls_error_in_words(unsigned long code);

}  // namespace sgd::net
