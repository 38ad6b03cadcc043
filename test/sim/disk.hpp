#pragma once
// The checkpoints of a run on a disk that all nodes see. What is here is whole or damaged; whether it
// counts is the coordinator's to say.

#include <map>
#include <string>
#include <tuple>

#include "common/base/ids.hpp"
#include "test/sim/point.hpp"

namespace sgd::sim {

struct Saved {
  Generation generation = 0;
  Point point;
  bool is_damaged = false;
};

class Disk {
 public:
  /// Its name; the oldest beyond `keep` are removed, as a writer does.
  std::string save(Generation generation, const Point& point, int keep);
  [[nodiscard]] const Saved* find(const std::string& path) const;
  /// False: there is none.
  bool damage_newest();

 private:
  using Key = std::tuple<Generation, std::int64_t, int>;  ///< The last tells several of one step apart.
  std::map<Key, Saved> saved_;
};

}  // namespace sgd::sim
