#include "launcher/net/ca.hpp"

#include <arpa/inet.h>

#include <array>
#include <ctime>
#include <span>

#include <fmt/format.h>
#include <openssl/core_names.h>
#include <openssl/ec.h>
#include <openssl/param_build.h>
#include <openssl/pem.h>

#include "launcher/net/certificate.hpp"
#include "launcher/net/openssl.hpp"
#include "launcher/net/private_files.hpp"

namespace sgd::net {
namespace {

constexpr std::int64_t kHour = 3600;
constexpr std::int64_t kDay = 24 * kHour;
constexpr std::int64_t kCaValid_s = 3650 * kDay;
constexpr int kVersion3 = 2;
constexpr const char* kCertificateFile = "/ca.pem";
constexpr const char* kKeyFile = "/ca.key";

void free_integer(ASN1_INTEGER* number) {
  ASN1_INTEGER_free(number);
}
void free_extension(X509_EXTENSION* extension) {
  X509_EXTENSION_free(extension);
}
void free_number(BIGNUM* number) {
  BN_free(number);
}

bool set_serial(X509* certificate) {
  std::array<std::uint8_t, 16> bytes{};
  fill_random(bytes);
  bytes[0] = static_cast<std::uint8_t>((bytes[0] & 0x7f) | 0x40);  // Positive, and always of 16 bytes.
  const std::unique_ptr<BIGNUM, Freed<free_number>> number(
      BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
  const std::unique_ptr<ASN1_INTEGER, Freed<free_integer>> serial(BN_to_ASN1_INTEGER(number.get(), nullptr));
  return serial && X509_set_serialNumber(certificate, serial.get()) == 1;
}

bool set_validity(X509* certificate, std::int64_t from_s, std::int64_t until_s) {
  return ASN1_TIME_set(X509_getm_notBefore(certificate), static_cast<std::time_t>(from_s)) != nullptr &&
         ASN1_TIME_set(X509_getm_notAfter(certificate), static_cast<std::time_t>(until_s)) != nullptr;
}

bool set_common_name(X509_NAME* name, const std::string& text) {
  constexpr std::size_t kCommonNameMax = 64;  // X.520; the whole name is in the URI.
  const std::string shown = text.substr(0, kCommonNameMax);
  return X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_UTF8, reinterpret_cast<const unsigned char*>(shown.c_str()),
                                    -1, -1, 0) == 1;
}

/// `text` in the words of OpenSSL's configuration files; nothing from the network may be in it unchecked.
bool add_extension(X509* certificate, X509* issuer, int kind, const std::string& text) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Freed<free_extension>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, text.c_str()));
  return extension && X509_add_ext(certificate, extension.get(), -1) == 1;
}

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> unused{};
  return ::inet_pton(AF_INET, host.c_str(), unused.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), unused.data()) == 1;
}

std::string alternative_names(const Grant& grant) {
  std::string text = "URI:" + identity_uri(grant.role, grant.name, grant.is_admin);
  for (const std::string& host : grant.host_names) text += (is_address(host) ? ",IP:" : ",DNS:") + host;
  return text;
}

/// The request's public key, if its owner holds the private one.
Result<KeyPtr> key_of_request(std::string_view pem) {
  if (pem.size() > kPemBytesMax) return Error{fmt::format("a signing request of {} bytes", pem.size())};
  const BioPtr bio = memory_bio(pem);
  const RequestPtr request(PEM_read_bio_X509_REQ(bio.get(), nullptr, nullptr, nullptr));
  if (!request) return openssl_error("not a signing request");
  KeyPtr key(X509_REQ_get_pubkey(request.get()));
  if (!key) return openssl_error("the signing request has no key");
  std::array<char, 32> curve{};
  if (EVP_PKEY_get_group_name(key.get(), curve.data(), curve.size(), nullptr) != 1 ||
      std::string_view(curve.data()) != "prime256v1")
    return Error{"the signing request's key is not of the curve P-256"};
  if (X509_REQ_verify(request.get(), key.get()) != 1)
    return openssl_error("the signing request is not signed by its own key");
  return key;
}

KeyPtr key_of(const BIGNUM* private_part, std::span<const unsigned char> public_part) {
  const std::unique_ptr<OSSL_PARAM_BLD, Freed<OSSL_PARAM_BLD_free>> builder(OSSL_PARAM_BLD_new());
  const bool is_built =
      OSSL_PARAM_BLD_push_utf8_string(builder.get(), OSSL_PKEY_PARAM_GROUP_NAME, "prime256v1", 0) == 1 &&
      OSSL_PARAM_BLD_push_BN(builder.get(), OSSL_PKEY_PARAM_PRIV_KEY, private_part) == 1 &&
      OSSL_PARAM_BLD_push_octet_string(builder.get(), OSSL_PKEY_PARAM_PUB_KEY, public_part.data(),
                                       public_part.size()) == 1;
  SGD_ASSERT(is_built);
  const std::unique_ptr<OSSL_PARAM, Freed<OSSL_PARAM_free>> parameters(OSSL_PARAM_BLD_to_param(builder.get()));
  const std::unique_ptr<EVP_PKEY_CTX, Freed<EVP_PKEY_CTX_free>> context(
      EVP_PKEY_CTX_new_from_name(nullptr, "EC", nullptr));
  EVP_PKEY* key = nullptr;
  const bool is_made = EVP_PKEY_fromdata_init(context.get()) == 1 &&
                       EVP_PKEY_fromdata(context.get(), &key, EVP_PKEY_KEYPAIR, parameters.get()) == 1;
  SGD_ASSERT(is_made);
  return KeyPtr(key);
}

/// FIPS 186-5, A.2.1: with 64 bits more than the group's order has, the remainder favours no number.
KeyPtr derive_key(std::string_view secret, std::string_view label) {
  std::array<unsigned char, 40> bytes{};
  constexpr std::uint64_t kCost = 1 << 14;
  constexpr std::uint64_t kMemoryMax = 64 << 20;
  const bool is_stretched =
      EVP_PBE_scrypt(secret.data(), secret.size(), reinterpret_cast<const unsigned char*>(label.data()), label.size(),
                     kCost, 8, 1, kMemoryMax, bytes.data(), bytes.size()) == 1;
  SGD_ASSERT(is_stretched);
  const std::unique_ptr<EC_GROUP, Freed<EC_GROUP_free>> group(EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1));
  const std::unique_ptr<BN_CTX, Freed<BN_CTX_free>> scratch(BN_CTX_secure_new());
  const std::unique_ptr<BIGNUM, Freed<BN_clear_free>> number(
      BN_bin2bn(bytes.data(), static_cast<int>(bytes.size()), nullptr));
  const std::unique_ptr<BIGNUM, Freed<BN_clear_free>> most(BN_dup(EC_GROUP_get0_order(group.get())));
  OPENSSL_cleanse(bytes.data(), bytes.size());
  SGD_ASSERT(BN_sub_word(most.get(), 1) == 1 && BN_nnmod(number.get(), number.get(), most.get(), scratch.get()) == 1 &&
             BN_add_word(number.get(), 1) == 1);
  const std::unique_ptr<EC_POINT, Freed<EC_POINT_free>> point(EC_POINT_new(group.get()));
  SGD_ASSERT(EC_POINT_mul(group.get(), point.get(), number.get(), nullptr, nullptr, scratch.get()) == 1);
  std::array<unsigned char, 65> open{};
  const std::size_t size = EC_POINT_point2oct(group.get(), point.get(), POINT_CONVERSION_UNCOMPRESSED, open.data(),
                                              open.size(), scratch.get());
  SGD_ASSERT(size == open.size());
  return key_of(number.get(), open);
}

}  // namespace

struct CertificateAuthority::Keys {
  KeyPtr key;
  CertificatePtr certificate;
};

std::int64_t validity_s(Role role) {
  switch (role) {
    case Role::kCoordinator:
      return 365 * kDay;
    case Role::kAgent:
      return kDay;
    case Role::kClient:
      return 90 * kDay;
    case Role::kNone:
      break;
  }
  return 0;
}

CertificateAuthority::CertificateAuthority(std::string certificate, std::unique_ptr<Keys> keys)
    : certificate_(std::move(certificate)), keys_(std::move(keys)) {}
CertificateAuthority::~CertificateAuthority() = default;
CertificateAuthority::CertificateAuthority(CertificateAuthority&&) noexcept = default;
CertificateAuthority& CertificateAuthority::operator=(CertificateAuthority&&) noexcept = default;

CertificateAuthority CertificateAuthority::make(std::unique_ptr<Keys> keys, const std::string& mark,
                                                std::int64_t now_s) {
  keys->certificate = CertificatePtr(X509_new());
  X509* certificate = keys->certificate.get();
  SGD_ASSERT(keys->key != nullptr && certificate != nullptr);
  X509_NAME* name = X509_get_subject_name(certificate);
  const bool made = X509_set_version(certificate, kVersion3) == 1 && set_serial(certificate) &&
                    set_validity(certificate, now_s - kBackdated_s, now_s + kCaValid_s) &&
                    set_common_name(name, "sgd-launch CA " + mark) && X509_set_issuer_name(certificate, name) == 1 &&
                    X509_set_pubkey(certificate, keys->key.get()) == 1 &&
                    add_extension(certificate, certificate, NID_basic_constraints, "critical,CA:TRUE,pathlen:0") &&
                    add_extension(certificate, certificate, NID_key_usage, "critical,keyCertSign,cRLSign") &&
                    add_extension(certificate, certificate, NID_subject_key_identifier, "hash") &&
                    X509_sign(certificate, keys->key.get(), EVP_sha256()) > 0;
  SGD_ASSERT(made);
  return {pem_of(certificate), std::move(keys)};
}

CertificateAuthority CertificateAuthority::create(std::int64_t now_s) {
  auto keys = std::make_unique<Keys>();
  keys->key = KeyPtr(EVP_EC_gen("P-256"));
  std::array<std::uint8_t, 4> mark{};  // Two clusters' authorities differ by name, so that a mix-up is told as one.
  fill_random(mark);
  return make(std::move(keys), to_hex(mark), now_s);
}

CertificateAuthority CertificateAuthority::derive(std::string_view secret, std::string_view label, std::int64_t now_s) {
  auto keys = std::make_unique<Keys>();
  keys->key = derive_key(secret, label);
  // Made of the secret, too: those who differ in it are told apart by name.
  const std::string text = pem_of(keys->key.get());
  const Digest mark = sha256({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  return make(std::move(keys), to_hex(std::span(mark).first(4)), now_s);
}

Result<CertificateAuthority> CertificateAuthority::load(const std::string& folder) {
  Result<std::string> certificate = read_file(folder + kCertificateFile, kPemBytesMax, Readers::kAnybody);
  if (!certificate) return certificate.error();
  const Result<std::string> key = read_file(folder + kKeyFile, kPemBytesMax, Readers::kOwner);
  if (!key) return key.error();
  auto keys = std::make_unique<Keys>();
  Result<CertificatePtr> parsed = parse_certificate(certificate.value(), folder + kCertificateFile);
  if (!parsed) return parsed.error();
  Result<KeyPtr> parsed_key = parse_key(key.value(), folder + kKeyFile);
  if (!parsed_key) return parsed_key.error();
  if (X509_check_private_key(parsed.value().get(), parsed_key.value().get()) != 1)
    return openssl_error(folder + ": the CA's key does not belong to its certificate");
  keys->certificate = std::move(parsed).value();
  keys->key = std::move(parsed_key).value();
  return CertificateAuthority(std::move(certificate).value(), std::move(keys));
}

Status CertificateAuthority::save(const std::string& folder) const {
  if (const Status made = make_private_folder(folder); !made) return made;
  // The certificate last: an authority whose writing was cut off is none, and is made again.
  if (const Status key = write_file(folder + kKeyFile, pem_of(keys_->key.get()), Readers::kOwner); !key) return key;
  return write_file(folder + kCertificateFile, certificate_, Readers::kAnybody);
}

Result<std::string> CertificateAuthority::issue(std::string_view request, const Grant& grant,
                                                std::int64_t now_s) const {
  return issue(request, grant, now_s, validity_s(grant.role));
}

Result<std::string> CertificateAuthority::issue(std::string_view request, const Grant& grant, std::int64_t now_s,
                                                std::int64_t valid_s) const {
  const Result<KeyPtr> key = key_of_request(request);
  if (!key) return key.error();
  for (const std::string& host : grant.host_names)
    if (!is_name(host) && !is_address(host)) return Error{"not the name or address of a host: " + host};
  const CertificatePtr made(X509_new());
  X509* certificate = made.get();
  X509* issuer = keys_->certificate.get();
  const char* usage = grant.role == Role::kCoordinator ? "serverAuth,clientAuth" : "clientAuth";
  const bool is_made = certificate != nullptr && X509_set_version(certificate, kVersion3) == 1 &&
                       set_serial(certificate) && set_validity(certificate, now_s - kBackdated_s, now_s + valid_s) &&
                       set_common_name(X509_get_subject_name(certificate), grant.name) &&
                       X509_set_issuer_name(certificate, X509_get_subject_name(issuer)) == 1 &&
                       X509_set_pubkey(certificate, key.value().get()) == 1 &&
                       add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:FALSE") &&
                       add_extension(certificate, issuer, NID_key_usage, "critical,digitalSignature") &&
                       add_extension(certificate, issuer, NID_ext_key_usage, usage) &&
                       add_extension(certificate, issuer, NID_subject_alt_name, alternative_names(grant)) &&
                       add_extension(certificate, issuer, NID_authority_key_identifier, "keyid:always") &&
                       X509_sign(certificate, keys_->key.get(), EVP_sha256()) > 0;
  if (!is_made) return openssl_error("cannot make a certificate");
  return pem_of(certificate);
}

}  // namespace sgd::net
