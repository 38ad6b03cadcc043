#pragma once
// Files that root writes at places which other accounts have a part in: a link that somebody else has put on the way
// there, or into the file's place, would lead root wherever its maker likes. Each step is opened from the folder before
// it, so that nothing counts that is put there meanwhile; links of root's are followed, those of others are refused. To
// whoever is not root all links are as the system has them. Blocks.

#include <sys/types.h>

#include <string>

#include "common/base/result.hpp"
#include "launcher/process/unique_fd.hpp"

namespace sgd::process {

/// Where a path ends: a folder that is open, and a name in it.
class OwnPath {
 public:
  enum class Folders {
    kMustBeThere,
    kAreMade,  ///< Those that are missing.
  };
  enum class LastLink {
    kIsFollowed,
    kStays,  ///< What has the name is replaced, and not written to.
  };

  /// Errors are reasons without the path, with errno; EPERM: somebody else's link is on the way.
  [[nodiscard]] static Result<OwnPath> find(const std::string& path, Folders folders,
                                            LastLink last = LastLink::kIsFollowed);

  /// None: errno says why. ELOOP: a link has come into its place meanwhile.
  [[nodiscard]] UniqueFd open(int flags, mode_t mode = 0666) const { return open(name_, flags, mode); }
  /// Another name in the same folder.
  [[nodiscard]] UniqueFd open(const std::string& name, int flags, mode_t mode = 0666) const;
  [[nodiscard]] int folder() const { return folder_.get(); }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  OwnPath(UniqueFd folder, std::string name, bool is_kernels)
      : folder_(std::move(folder)), name_(std::move(name)), is_kernels_(is_kernels) {}

  UniqueFd folder_;
  std::string name_;
  bool is_kernels_;  ///< It is a descriptor's name in /proc, a link that can only be followed.
};

}  // namespace sgd::process
