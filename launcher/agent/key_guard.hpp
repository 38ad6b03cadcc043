#pragma once
// Jobs are other people's programs: none may run under an account that can open the keys of this node or of the
// cluster, since whoever has a key is that node, or everybody. An account can open what it owns, whatever the file's
// mode; root can open everything.

#include <sys/types.h>

#include <string>
#include <vector>

namespace sgd::agent {

struct KeyPaths {
  std::string identity;                   ///< This node's: a file with its key.
  std::vector<std::string> coordinators;  ///< State folders of coordinators on this machine, with the cluster's key.
};

/// The node's identity in `identity_folder`, and where coordinators keep their state unless told otherwise: the
/// system's, and that of the account with the folder `home`.
[[nodiscard]] KeyPaths key_paths(const std::string& identity_folder, const std::string& home);

/// Whose key a job of `uid` could open: "owns this node's key (PATH)"; empty: none.
[[nodiscard]] std::string open_key(uid_t uid, const KeyPaths& paths);

}  // namespace sgd::agent
