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

  std::string certificate_;
  std::unique_ptr<Keys> keys_;
};

}  // namespace sgd::net
