#pragma once
// The end of a tree whose root is dead and has left nobody to whom its orphans return: they are init's
// children now. They are known by an entry of the environment that the root was started with and that all
// below it have inherited, by its session, and as descendants of those. A process that has emptied its
// environment and left the session and its parents is not found.

#include <sys/types.h>

#include <cstdint>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/process/process_tree.hpp"

namespace sgd::process {

struct StrayMark {
  std::string entry;       ///< "NAME=value" of the environment.
  bool is_prefix = false;  ///< What begins with it counts too.
  pid_t session = 0;       ///< The root's; 0: not known.
};

/// In passes, for who has something else to do between them.
class StrayKiller {
 public:
  /// Passes that find nobody: in one alone, a child that was forked meanwhile may have been overlooked.
  static constexpr int kPassesToBeSure = 2;

  explicit StrayKiller(StrayMark mark);
  /// Those that live, after a SIGKILL to each.
  [[nodiscard]] std::vector<ProcessEntry> pass();
  [[nodiscard]] int killed() const { return static_cast<int>(killed_.size()); }

 private:
  void kill(const ProcessEntry& entry);

  StrayMark mark_;
  std::set<pid_t> sessions_;
  std::set<std::pair<pid_t, std::uint64_t>> killed_;
};

/// Kills all of this user that bear the mark, until none is left; the error names one that does not die within
/// `limit`. Returns how many were killed. Never the calling process.
[[nodiscard]] Result<int> kill_strays(const StrayMark& mark, Duration limit);

}  // namespace sgd::process
