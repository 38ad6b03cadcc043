#include "launcher/net/openssl.hpp"

#include <limits>

#include <openssl/err.h>
#include <openssl/pem.h>

namespace sgd::net {
namespace {

/// Files here have no passphrase; without this OpenSSL asks for one on the terminal.
int no_passphrase(char*, int, int, void*) {
  return -1;
}

}  // namespace

Error openssl_error(std::string what) {
  const unsigned long code = ERR_peek_last_error();
  ERR_clear_error();
  const char* reason = code == 0 ? nullptr : ERR_reason_error_string(code);
  return Error{std::move(what) + ": " + (reason == nullptr ? "OpenSSL names no reason" : reason)};
}

BioPtr memory_bio(std::string_view text) {
  SGD_ASSERT(text.size() <= static_cast<std::size_t>(std::numeric_limits<int>::max()));
  return BioPtr(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

std::string text_of(BIO* memory) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(memory, &bytes);
  return size > 0 ? std::string(bytes, static_cast<std::size_t>(size)) : std::string();
}

Result<CertificatePtr> parse_certificate(std::string_view pem, const std::string& what) {
  const BioPtr bio = memory_bio(pem);
  CertificatePtr certificate(PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr));
  if (!certificate) return openssl_error(what + " holds no certificate");
  return certificate;
}

Result<KeyPtr> parse_key(std::string_view pem, const std::string& what) {
  const BioPtr bio = memory_bio(pem);
  KeyPtr key(PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr));
  if (!key) return openssl_error(what + " holds no private key");
  return key;
}

std::string pem_of(X509* certificate) {
  const BioPtr bio(BIO_new(BIO_s_mem()));
  SGD_ASSERT(PEM_write_bio_X509(bio.get(), certificate) == 1);
  return text_of(bio.get());
}

std::string pem_of(EVP_PKEY* key) {
  const BioPtr bio(BIO_new(BIO_s_secmem()));  // Wiped when it is freed.
  SGD_ASSERT(PEM_write_bio_PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr) == 1);
  return text_of(bio.get());
}

Digest public_key_digest(X509* certificate) {
  unsigned char* bytes = nullptr;
  const int size = i2d_X509_PUBKEY(X509_get_X509_PUBKEY(certificate), &bytes);
  SGD_ASSERT(size > 0);
  const Digest digest = sha256({bytes, static_cast<std::size_t>(size)});
  OPENSSL_free(bytes);
  return digest;
}

}  // namespace sgd::net
