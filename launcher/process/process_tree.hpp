#pragma once
// All descendants of a process, and the end of them. A single pass over /proc cannot be
// trusted, because processes fork and die while it looks: it proves "none left" only when it
// found nothing and nobody died meanwhile. Identity is (pid, start time), checked through a
// pidfd, so a reused number is never signalled. Works for trees below a child subreaper,
// where orphans come back as our children.

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/base/result.hpp"
#include "common/base/time.hpp"

namespace sgd::process {

struct ProcessEntry {
  pid_t pid = 0;
  pid_t parent = 0;
  pid_t group = 0;
  pid_t session = 0;
  std::uint64_t start_ticks = 0;  ///< Since boot; with the pid, names one process for ever.
  bool zombie = false;            ///< Its first thread has ended.
  bool stopped = false;           ///< By a signal, until SIGCONT; not by a debugger.
};

/// Nothing when there is no such process.
[[nodiscard]] std::optional<ProcessEntry> read_process(pid_t pid);

enum class TreeSource {
  kBest,      ///< Children files where the kernel has them, else the scan.
  kChildren,  ///< /proc/<pid>/task/*/children: cost grows with the tree (CONFIG_PROC_CHILDREN).
  kScan,      ///< Every /proc/*/stat: cost grows with the machine.
};

/// Whether `pid` is a descendant of `root`, as far as its parents go.
[[nodiscard]] bool is_below(pid_t pid, pid_t root);

/// Every process of this machine that we may look at.
[[nodiscard]] std::vector<ProcessEntry> all_processes();

/// Every process below `root`, parents before children; not `root`.
[[nodiscard]] std::vector<ProcessEntry> descendants(pid_t root, TreeSource source = TreeSource::kBest);

/// Orphans below this process become its children.
[[nodiscard]] Status become_subreaper();

/// Kills the descendants of this process in passes, until a pass proves that none is left.
class TreeKiller {
 public:
  enum class Spares {
    kThemselves,  ///< What they have started is killed.
    kTrees,       ///< With all that is below them.
  };
  /// Processes in `spared` are not killed.
  explicit TreeKiller(std::set<pid_t> spared = {}, Spares spares = Spares::kThemselves)
      : spared_(std::move(spared)), spares_(spares) {}

  /// One pass: SIGKILL to everything found. Returns how many processes it found, ended but unreaped ones too.
  /// Zero proves nothing when peek_ended_child() has somebody afterwards: reap, and pass again.
  [[nodiscard]] int pass();
  /// SIGKILL to one of our own children that is not reaped yet.
  void kill(pid_t pid);
  /// Different processes killed so far.
  [[nodiscard]] int killed() const { return static_cast<int>(seen_.size()); }
  /// What the last pass found; for the message when they do not die.
  [[nodiscard]] const std::vector<ProcessEntry>& left() const { return left_; }
  /// Others than those that it was made with.
  void spare(std::set<pid_t> spared) { spared_ = std::move(spared); }
  /// Takes the protection away from every process.
  void spare_nobody() { spared_.clear(); }

 private:
  [[nodiscard]] std::set<pid_t> spared_now() const;
  void kill_groups(const std::set<pid_t>& spared);
  void kill_one(const ProcessEntry& entry);

  std::set<pid_t> spared_;
  Spares spares_ = Spares::kThemselves;
  std::set<std::pair<pid_t, std::uint64_t>> seen_;
  std::vector<ProcessEntry> left_;
};

/// Kills and reaps all descendants but `spared`, waiting for their ends; the error names one that did not die
/// within `limit`. For programs that have nothing else to do meanwhile. Returns how many were killed.
[[nodiscard]] Result<int> kill_descendants(const std::set<pid_t>& spared, Duration limit,
                                           TreeKiller::Spares spares = TreeKiller::Spares::kThemselves);

}  // namespace sgd::process
