#pragma once
// What the folders of one owner's runs take together, as it grows: bytes are counted before they are written, at the
// price of an addition. What goes meanwhile (checkpoints that newer ones have superseded) is not told here; so before
// anything is refused, the folders that have changed are summed up again.
//
// For any thread; a disk is never waited for under the lock.

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "common/base/time.hpp"

namespace sgd::storage {

/// A file system, as this process may use it. The most there can be where that cannot be told.
struct DiskRoom {
  std::int64_t size = std::numeric_limits<std::int64_t>::max();
  std::int64_t free = std::numeric_limits<std::int64_t>::max();
};
[[nodiscard]] DiskRoom disk_room(const std::string& folder);

/// What the runs of an owner may take where the operator names no limit: half of what they would find free without
/// `has`, that they take, and a tenth of the disk in any case, so that nobody pays for what others have filled.
[[nodiscard]] std::int64_t share_of_disk(const DiskRoom& disk, std::int64_t has);

class OwnerRoom {
 public:
  /// Between two looks at folders that are made before something is refused.
  static constexpr Duration kMeasureAgain = std::chrono::seconds(5);

  /// `limit`: bytes; 0: a share of the disk.
  OwnerRoom(std::string owner, std::int64_t limit) : owner_(std::move(owner)), limit_(limit) {}

  /// Counts `bytes` that are to come into `folder`. Why they may not, with the way out; empty: they may.
  [[nodiscard]] std::string take(const std::string& folder, std::int64_t bytes);
  /// Counts what is not limited, or, below 0, has not come.
  void add(const std::string& folder, std::int64_t bytes);
  /// Sums `folder` up, and counts what is found in place of what was counted. Blocks.
  std::int64_t measure(const std::string& folder);
  void remove(const std::string& folder);
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct Share {
    std::int64_t bytes = 0;
    std::int64_t added = 0;   ///< Ever: what comes while the folder is summed up is known by it.
    bool is_changed = false;  ///< Since it was summed up.
  };
  void measure_changed();
  void count(const std::string& folder, std::int64_t bytes);

  const std::string owner_;
  const std::int64_t limit_;
  mutable std::mutex mutex_;
  std::map<std::string, Share> shares_;  ///< By folder.
  std::int64_t bytes_ = 0;               ///< Of all shares.
  std::optional<TimePoint> measured_at_;
};

/// At whose cost bytes come into a folder.
struct Charge {
  std::shared_ptr<OwnerRoom> room = nullptr;  ///< Null: nobody's.
  std::string folder = {};                    ///< Of the run, or of the experiment that its trial is of.
  bool is_limited = true;                     ///< Else it is only counted: the run is an admin's.
};

}  // namespace sgd::storage
