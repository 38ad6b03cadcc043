#include "launcher/net/tls_words.hpp"

#include <array>
#include <ctime>
#include <utility>

#include <fmt/format.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "launcher/net/certificate.hpp"

namespace sgd::net {
namespace {

// Those with ALERT are what the other side has sent; the rest this side has found.
constexpr std::array<std::pair<int, const char*>, 15> kWords{{
    {SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
     "the other side refuses this side's certificate: it has expired (sgd-launch join)"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED, "the other side refuses this side's certificate: it is revoked"},
    {SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
     "the other side refuses this side's certificate: it is of another role"},
    {SSL_R_SSLV3_ALERT_BAD_CERTIFICATE, "the other side refuses this side's certificate: compare the two clocks"},
    {SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN, "the other side refuses this side's certificate"},
    {SSL_R_TLSV1_ALERT_UNKNOWN_CA,
     "the other side refuses this side's certificate: it is of another cluster's authority"},
    {SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED,
     "the other side wants a certificate, and this side has none (sgd-launch join)"},
    {SSL_R_SSLV3_ALERT_HANDSHAKE_FAILURE, "the other side speaks TLS with other ciphers"},
    {SSL_R_TLSV1_ALERT_PROTOCOL_VERSION, "the other side does not speak TLS 1.3"},
    {SSL_R_TLSV1_ALERT_INTERNAL_ERROR, "the other side has failed inside TLS"},
    {SSL_R_UNSUPPORTED_PROTOCOL, "the other side does not speak TLS 1.3"},
    {SSL_R_WRONG_VERSION_NUMBER, "the other side does not speak TLS"},
    {SSL_R_NO_SHARED_CIPHER, "the other side speaks TLS with other ciphers"},
    {SSL_R_NO_SHARED_GROUPS, "the other side speaks TLS with other key exchanges"},
    {SSL_R_NO_SUITABLE_SIGNATURE_ALGORITHM, "the other side speaks TLS with other signatures"},
}};

std::string validity_in_words(const PeerIdentity& own) {
  return fmt::format("{}{} to {}", kValidFrom, utc_in_words(own.issued_s - kBackdated_s), utc_in_words(own.expires_s));
}

}  // namespace

std::string utc_in_words(std::int64_t unix_s) {
  const auto seconds = static_cast<std::time_t>(unix_s);
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 32> text{};
  return {text.data(), std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M:%S UTC", &parts)};
}

std::string tls_error_in_words(unsigned long code, const PeerIdentity& own) {
  const int found = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
  const bool is_of_time = found == SSL_R_SSLV3_ALERT_BAD_CERTIFICATE || found == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED;
  for (const auto& [reason, words] : kWords)
    if (found == reason) return words + (is_of_time && own.role != Role::kNone ? validity_in_words(own) : "");
  const char* reason = ERR_reason_error_string(code);
  return std::string("TLS: ") + (reason == nullptr ? "failed without a reason" : reason);
}

}  // namespace sgd::net
