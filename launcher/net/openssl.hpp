#pragma once
// OpenSSL's objects as owned values, and its errors as text. Only .cpp files of this folder include it: no
// other header shows OpenSSL.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>
#include <openssl/x509v3.h>

#include "common/base/result.hpp"
#include "launcher/net/digest.hpp"

namespace sgd::net {

template <auto Free>
struct Freed {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};

using BioPtr = std::unique_ptr<BIO, Freed<BIO_free_all>>;
using KeyPtr = std::unique_ptr<EVP_PKEY, Freed<EVP_PKEY_free>>;
using CertificatePtr = std::unique_ptr<X509, Freed<X509_free>>;
using RequestPtr = std::unique_ptr<X509_REQ, Freed<X509_REQ_free>>;
using ContextPtr = std::unique_ptr<SSL_CTX, Freed<SSL_CTX_free>>;
using SslPtr = std::unique_ptr<SSL, Freed<SSL_free>>;

/// The newest error that OpenSSL has noted, behind `what`; its notes are cleared.
[[nodiscard]] Error openssl_error(std::string what);

/// Readable bytes without a copy; `text` must outlive it.
[[nodiscard]] BioPtr memory_bio(std::string_view text);
/// What was written to a memory BIO.
[[nodiscard]] std::string text_of(BIO* memory);

[[nodiscard]] Result<CertificatePtr> parse_certificate(std::string_view pem, const std::string& what);
[[nodiscard]] Result<KeyPtr> parse_key(std::string_view pem, const std::string& what);
[[nodiscard]] std::string pem_of(X509* certificate);
/// Of a private key, without a passphrase: the file's mode protects it.
[[nodiscard]] std::string pem_of(EVP_PKEY* key);

/// SHA-256 of the public key, in the form that certificates carry (SubjectPublicKeyInfo).
[[nodiscard]] Digest public_key_digest(X509* certificate);

}  // namespace sgd::net
