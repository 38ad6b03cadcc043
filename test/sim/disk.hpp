#pragma once
// The checkpoints of a run: on a disk that all nodes see, or, where files travel, on that of the node that has saved
// them, and some time later on the coordinator's. What is here is whole or damaged; whether it counts is the
// coordinator's to say.

#include <map>
#include <string>
#include <vector>

#include "common/base/ids.hpp"
#include "common/checkpoint/manifest.hpp"
#include "test/sim/point.hpp"

namespace sgd::sim {

struct Saved {
  Generation generation = 0;
  Point point;
  bool is_damaged = false;
  NodeId home = {};          ///< Has a copy; empty: none, any more.
  bool is_stored = true;     ///< On the coordinator's disk, or that of all.
  bool is_sent_off = false;  ///< Its home does not take it away before it has come.
};

class Disk {
 public:
  /// Its path in the run's folder.
  std::string save(Generation generation, const Point& point);
  /// Where files travel: it is on the disk of `home` only.
  void keep_at(const std::string& path, const NodeId& home, bool is_sent_off);
  void store(const std::string& path);
  /// On the coordinator's disk, undamaged, the oldest first.
  [[nodiscard]] std::vector<std::string> stored() const;
  /// What is older than the last of `paths`, and none of them, goes.
  void keep(const std::vector<std::string>& paths);
  [[nodiscard]] const Saved* find(const std::string& path) const;
  /// Of another run's, which is its own from here on, at `path`.
  void take(const std::string& path, const Saved& saved) { taken_.emplace(path, saved); }
  /// False: there is none.
  bool damage_newest();

 private:
  std::map<checkpoint::DirectoryName, Saved> saved_;
  std::map<std::string, Saved> taken_;  ///< They stay.
};

}  // namespace sgd::sim
