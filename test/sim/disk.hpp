#pragma once
// The checkpoints of a run on a disk that all nodes see. What is here is whole or damaged; whether it
// counts is the coordinator's to say.

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
};

class Disk {
 public:
  /// Its path in the run's folder.
  std::string save(Generation generation, const Point& point);
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
