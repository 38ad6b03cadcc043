#include "launcher/net/x509_identity.hpp"

#include <arpa/inet.h>

#include <array>
#include <ctime>
#include <vector>

#include "launcher/net/certificate.hpp"

namespace sgd::net {
namespace {

constexpr std::string_view kOurs = "sgd://";

void free_names(GENERAL_NAMES* names) {
  GENERAL_NAMES_free(names);
}
using NamesPtr = std::unique_ptr<GENERAL_NAMES, Freed<free_names>>;

std::string_view text_in(const ASN1_STRING* text) {
  return {reinterpret_cast<const char*>(ASN1_STRING_get0_data(text)),
          static_cast<std::size_t>(ASN1_STRING_length(text))};
}

/// Empty for what is no address.
std::string address_in(const ASN1_OCTET_STRING* bytes) {
  std::array<char, INET6_ADDRSTRLEN> text{};
  const bool is_v6 = ASN1_STRING_length(bytes) == sizeof(in6_addr);
  if (!is_v6 && ASN1_STRING_length(bytes) != sizeof(in_addr)) return {};
  (void)::inet_ntop(is_v6 ? AF_INET6 : AF_INET, ASN1_STRING_get0_data(bytes), text.data(), text.size());
  return text.data();
}

std::vector<std::string_view> our_uris(const GENERAL_NAMES* names) {
  std::vector<std::string_view> found;
  for (int index = 0; index < sk_GENERAL_NAME_num(names); ++index) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names, index);
    if (name->type != GEN_URI) continue;
    const std::string_view uri = text_in(name->d.uniformResourceIdentifier);
    if (uri.starts_with(kOurs)) found.push_back(uri);
  }
  return found;
}

std::int64_t unix_seconds_of(const ASN1_TIME* time) {
  std::tm parts{};
  return ASN1_TIME_to_tm(time, &parts) == 1 ? static_cast<std::int64_t>(::timegm(&parts)) : 0;
}

}  // namespace

Result<PeerIdentity> identity_of(X509* certificate) {
  const NamesPtr names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  const std::vector<std::string_view> uris = our_uris(names.get());
  if (uris.empty()) return Error{"the certificate names no role of ours (sgd://agent/NAME, for example)"};
  if (uris.size() > 1) return Error{"the certificate names more than one role"};
  std::optional<PeerIdentity> identity = parse_identity_uri(uris.front());
  if (!identity) return Error{"the certificate names no role that is known"};
  identity->serial = serial_of(certificate);
  identity->issued_s = unix_seconds_of(X509_get0_notBefore(certificate)) + kBackdated_s;
  identity->expires_s = unix_seconds_of(X509_get0_notAfter(certificate));
  return *std::move(identity);
}

std::vector<std::string> host_names_of(X509* certificate) {
  const NamesPtr names(
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  std::vector<std::string> found;
  for (int index = 0; index < sk_GENERAL_NAME_num(names.get()); ++index) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(names.get(), index);
    if (name->type == GEN_DNS) found.emplace_back(text_in(name->d.dNSName));
    if (name->type == GEN_IPADD) found.push_back(address_in(name->d.iPAddress));
  }
  std::erase(found, std::string());
  return found;
}

std::string serial_of(X509* certificate) {
  const ASN1_INTEGER* serial = X509_get0_serialNumber(certificate);
  return to_hex({ASN1_STRING_get0_data(serial), static_cast<std::size_t>(ASN1_STRING_length(serial))});
}

}  // namespace sgd::net
