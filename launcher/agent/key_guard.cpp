#include "launcher/agent/key_guard.hpp"

#include <sys/stat.h>

#include <cerrno>

#include <fmt/format.h>

#include "launcher/net/cluster_state.hpp"
#include "launcher/net/identity_files.hpp"

namespace sgd::agent {
namespace {

bool is_owner(uid_t uid, const std::string& path) {
  struct stat facts {};
  return ::lstat(path.c_str(), &facts) == 0 && (facts.st_uid == uid || uid == 0);
}

/// Whether a coordinator's `folder` has the cluster's key, and `uid` can open it; where we may not look, the folder's
/// owner counts.
bool has_cluster_key(uid_t uid, const std::string& folder) {
  struct stat facts {};
  const std::string key = net::ca_folder(folder) + "/ca.key";
  if (::lstat(key.c_str(), &facts) == 0 || errno != EACCES) return is_owner(uid, key);
  return is_owner(uid, folder);
}

}  // namespace

KeyPaths key_paths(const std::string& identity_folder, const std::string& home) {
  KeyPaths paths{net::identity_file(identity_folder), {"/var/lib/sgd-launch/coordinator"}};
  if (!home.empty()) paths.coordinators.push_back(home + "/.local/state/sgd-launch/coordinator");
  return paths;
}

std::string open_key(uid_t uid, const KeyPaths& paths) {
  if (is_owner(uid, paths.identity)) return fmt::format("owns this node's key ({})", paths.identity);
  for (const std::string& folder : paths.coordinators)
    if (has_cluster_key(uid, folder))
      return fmt::format("owns the state of a coordinator, with the cluster's key ({})", folder);
  return {};
}

}  // namespace sgd::agent
