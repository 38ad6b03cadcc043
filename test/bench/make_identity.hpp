#pragma once
// Identities for benches: an authority of their own signs them.

#include <cstdlib>
#include <string>

#include "launcher/net/ca.hpp"
#include "launcher/net/certificate.hpp"
#include "launcher/net/identity_files.hpp"
#include "launcher/net/wall_clock.hpp"

namespace sgd::bench {

/// The folder.
inline std::string make_identity(const net::CertificateAuthority& ca, net::Role role, const std::string& name,
                                 const std::string& folder) {
  net::IdentityFiles files;
  files.key = net::make_key();
  files.ca = ca.certificate();
  files.certificate =
      ca.issue(net::make_request(files.key).value(), {role, name, false, {}}, net::unix_now_s()).value();
  if (!net::save_identity(folder, files).ok()) std::abort();
  return folder;
}

}  // namespace sgd::bench
