#include "launcher/net/certificate.hpp"

#include <openssl/ec.h>
#include <openssl/pem.h>

#include "launcher/net/openssl.hpp"
#include "launcher/net/x509_identity.hpp"

namespace sgd::net {

std::string make_key() {
  const KeyPtr key(EVP_EC_gen("P-256"));
  SGD_ASSERT(key != nullptr);
  return pem_of(key.get());
}

Result<std::string> make_request(std::string_view key) {
  const Result<KeyPtr> parsed = parse_key(key, "the key");
  if (!parsed) return parsed.error();
  const RequestPtr request(X509_REQ_new());
  const bool made = request != nullptr && X509_REQ_set_version(request.get(), X509_REQ_VERSION_1) == 1 &&
                    X509_REQ_set_pubkey(request.get(), parsed.value().get()) == 1 &&
                    X509_REQ_sign(request.get(), parsed.value().get(), EVP_sha256()) > 0;
  if (!made) return openssl_error("cannot make a signing request");
  const BioPtr bio(BIO_new(BIO_s_mem()));
  if (PEM_write_bio_X509_REQ(bio.get(), request.get()) != 1) return openssl_error("cannot write a signing request");
  return text_of(bio.get());
}

Result<PeerIdentity> identity_in(std::string_view certificate) {
  const Result<CertificatePtr> parsed = parse_certificate(certificate, "the text");
  if (!parsed) return parsed.error();
  return identity_of(parsed.value().get());
}

Result<std::vector<std::string>> host_names_in(std::string_view certificate) {
  const Result<CertificatePtr> parsed = parse_certificate(certificate, "the text");
  if (!parsed) return parsed.error();
  return host_names_of(parsed.value().get());
}

Result<Digest> public_key_digest_in(std::string_view certificate) {
  const Result<CertificatePtr> parsed = parse_certificate(certificate, "the text");
  if (!parsed) return parsed.error();
  return public_key_digest(parsed.value().get());
}

Status check_issued(std::string_view certificate, std::string_view key, std::string_view ca) {
  const Result<CertificatePtr> own = parse_certificate(certificate, "the certificate");
  const Result<KeyPtr> own_key = parse_key(key, "the key");
  const Result<CertificatePtr> authority = parse_certificate(ca, "the CA's certificate");
  if (!own) return own.error();
  if (!own_key) return own_key.error();
  if (!authority) return authority.error();
  if (X509_check_private_key(own.value().get(), own_key.value().get()) != 1)
    return openssl_error("the certificate belongs to another key");
  if (X509_verify(own.value().get(), X509_get0_pubkey(authority.value().get())) != 1)
    return openssl_error("the certificate is not signed by this CA");
  return {};
}

std::int64_t renew_at_s(const PeerIdentity& identity) {
  return identity.issued_s + (identity.expires_s - identity.issued_s) * 2 / 3;
}

}  // namespace sgd::net
