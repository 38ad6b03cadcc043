#pragma once
// The cluster's own certificate authority: one P-256 key that signs the certificates of its coordinator,
// agents and clients. What a certificate says comes from the caller, of a signing request only the public key
// is used.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "common/base/result.hpp"
#include "launcher/net/peer_identity.hpp"

namespace sgd::net {

struct Grant {
  Role role = Role::kNone;
  std::string name;
  bool is_admin = false;                ///< Of a client.
  std::vector<std::string> host_names;  ///< Of a coordinator: DNS names and addresses, for tools that look at them.
};

/// Seconds: a node renews its certificate while it lives, a person comes back now and then.
[[nodiscard]] std::int64_t validity_s(Role role);

class CertificateAuthority {
 public:
  /// `now_s`: Unix time, as everywhere here.
  [[nodiscard]] static CertificateAuthority create(std::int64_t now_s);
  /// The one that all who know `secret` make alike, for the same `label`: its key and name follow from both, so that
  /// they accept each other and need to exchange nothing. The key comes from scrypt (RFC 7914): to try one guess of the
  /// secret takes some 50 ms and 16 MiB.
  [[nodiscard]] static CertificateAuthority derive(std::string_view secret, std::string_view label, std::int64_t now_s);
  /// Of a folder that save() has filled. Errors: absent (code ENOENT), damaged, readable by others.
  [[nodiscard]] static Result<CertificateAuthority> load(const std::string& folder);
  [[nodiscard]] Status save(const std::string& folder) const;

  /// Answers a signing request. Errors: no request, not signed by its own key, not P-256.
  [[nodiscard]] Result<std::string> issue(std::string_view request, const Grant& grant, std::int64_t now_s) const;
  /// The same with a validity of the caller's.
  [[nodiscard]] Result<std::string> issue(std::string_view request, const Grant& grant, std::int64_t now_s,
                                          std::int64_t valid_s) const;

  [[nodiscard]] const std::string& certificate() const { return certificate_; }

  ~CertificateAuthority();
  CertificateAuthority(CertificateAuthority&&) noexcept;
  CertificateAuthority& operator=(CertificateAuthority&&) noexcept;

 private:
  struct Keys;
  CertificateAuthority(std::string certificate, std::unique_ptr<Keys> keys);
  /// Signs itself; `keys` has the key.
  [[nodiscard]] static CertificateAuthority make(std::unique_ptr<Keys> keys, const std::string& mark,
                                                 std::int64_t now_s);

  std::string certificate_;
  std::unique_ptr<Keys> keys_;
};

}  // namespace sgd::net
