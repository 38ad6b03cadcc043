#pragma once
// Which runs that have ended go, by number, age and bytes, and how one goes. A pinned run stays until it is unpinned:
// its folder holds a file "pinned", so that a copy, or a coordinator started anew, knows it too.

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/base/time.hpp"

namespace sgd::storage {

/// A run that has ended.
struct EndedRun {
  RunId id;
  std::string directory;
  double finished_s = 0;  ///< Unix time.
  std::int64_t bytes = 0;
  bool is_pinned = false;
};

struct Retention {
  std::optional<std::size_t> count;   ///< The newest stay, beside the pinned ones.
  std::optional<Duration> age;        ///< Since the end.
  std::optional<std::int64_t> bytes;  ///< Of all that stay; the pinned ones count.
};

/// Those that go, the oldest first. What has ended later than now, before the clock was set back, stays and counts for
/// nothing: whether it is newer than the others is known when its time has come.
[[nodiscard]] std::vector<EndedRun> beyond(std::vector<EndedRun> ended, const Retention& retention, double now_s);

/// Of all files below, as they take room on the disk; a hole counts as what it stands for. Links are not followed.
[[nodiscard]] std::int64_t bytes_below(const std::string& directory);
[[nodiscard]] bool is_pinned(const std::string& directory);
/// A pin is on the disk then.
[[nodiscard]] Status set_pinned(const std::string& directory, bool pinned);
/// A launcher writes to it.
[[nodiscard]] bool is_run_live(const std::string& directory);
/// The folder leaves its name at once, and its files after that: a kill in between leaves no half of a run. What such a
/// kill has left beside it goes too. A missing folder is no error. Where runs/latest led to it, it leads to another
/// run.
[[nodiscard]] Status remove_run_folder(const std::string& directory);
/// The runs below `runs_dir`, the newest first; `finished_s` is 0 for one that is live.
[[nodiscard]] std::vector<EndedRun> runs_below(const std::string& runs_dir);

/// Seconds that nothing was written in a folder before it can be a stray: who makes one has not told of it yet.
inline constexpr double kStrayAge = 600;
/// Those of runs_below() that nobody knows of, and that no launcher writes to: an older version, or a coordinator that
/// was killed at the wrong moment, has left them.
[[nodiscard]] std::vector<EndedRun> strays_below(const std::string& runs_dir, const std::set<RunId>& known,
                                                 double now_s);

}  // namespace sgd::storage
