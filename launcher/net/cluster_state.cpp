#include "launcher/net/cluster_state.hpp"

#include <algorithm>

#include "launcher/net/certificate.hpp"
#include "launcher/net/private_files.hpp"

namespace sgd::net {
namespace {

constexpr int kLockWaitMs = 2000;

}  // namespace

std::string ca_folder(const std::string& state_dir) {
  return state_dir + "/ca";
}
std::string coordinator_socket(const std::string& state_dir) {
  return state_dir + "/coordinator.sock";
}
std::string coordinator_identity_folder(const std::string& state_dir) {
  return state_dir + "/identity";
}

Result<IdentityFiles> issue_identity(const std::string& state_dir, const CertificateAuthority& ca, const Grant& grant,
                                     std::int64_t now_s) {
  IdentityFiles files;
  files.key = make_key();
  files.ca = ca.certificate();
  const Result<std::string> request = make_request(files.key);
  if (!request) return request.error();
  Result<std::string> certificate = ca.issue(request.value(), grant, now_s);
  if (!certificate) return certificate.error();
  files.certificate = std::move(certificate).value();
  Result<PeerIdentity> identity = identity_in(files.certificate);
  if (!identity) return identity.error();
  Result<IssuedLog> log = IssuedLog::load(state_dir);
  if (!log) return log.error();
  if (const Status noted = log.value().add(identity.value(), "init"); !noted) return noted.error();
  return files;
}

Result<PeerIdentity> make_identity(const std::string& state_dir, const CertificateAuthority& ca, const Grant& grant,
                                   const std::string& folder, std::int64_t now_s) {
  const Result<IdentityFiles> files = issue_identity(state_dir, ca, grant, now_s);
  if (!files) return files.error();
  if (const Status saved = save_identity(folder, files.value()); !saved) return saved.error();
  return identity_in(files.value().certificate);
}

Status revoke_name(RevokedList& list, const IssuedLog& issued, const std::string& name, std::int64_t now_s) {
  const std::vector<IssuedLog::Certificate> certificates = issued.certificates_of(name);
  std::int64_t until_s = certificates.empty() ? now_s + validity_s(Role::kCoordinator) : now_s;
  for (const IssuedLog::Certificate& one : certificates) until_s = std::max(until_s, one.issued_s);
  if (const Status added = list.add({"", name, until_s}); !added) return added;
  for (const IssuedLog::Certificate& one : certificates)
    if (one.expires_s > now_s && !list.has_serial(one.serial))
      if (const Status added = list.add({one.serial, "", until_s}); !added) return added;
  return {};
}

Result<bool> renew_coordinator(const std::string& state_dir, std::int64_t now_s) {
  const std::string folder = coordinator_identity_folder(state_dir);
  const Result<IdentityFiles> files = load_identity(folder);
  if (!files) return files.error();
  const Result<PeerIdentity> before = identity_in(files.value().certificate);
  if (!before) return before.error();
  if (now_s < renew_at_s(before.value())) return false;
  const Result<FolderLock> lock = FolderLock::take(state_dir, kLockWaitMs);
  if (!lock) return lock.error();
  const Result<CertificateAuthority> ca = CertificateAuthority::load(ca_folder(state_dir));
  if (!ca) return ca.error();
  const Result<std::vector<std::string>> hosts = host_names_in(files.value().certificate);
  if (!hosts) return hosts.error();
  const Grant grant{Role::kCoordinator, before.value().name, false, hosts.value()};
  const Result<PeerIdentity> after = make_identity(state_dir, ca.value(), grant, folder, now_s);
  if (!after) return after.error();
  return true;
}

}  // namespace sgd::net
