#include "test/sim/disk.hpp"

#include "common/checkpoint/manifest.hpp"

namespace sgd::sim {

std::string Disk::save(Generation generation, const Point& point, int keep) {
  saved_[{generation, point.step}] = {generation, point, false};
  while (saved_.size() > static_cast<std::size_t>(keep)) saved_.erase(saved_.begin());
  return std::string(checkpoint::kDirectory) + "/" + checkpoint::directory_name(point.step, generation);
}

const Saved* Disk::find(const std::string& path) const {
  const auto name = checkpoint::parse_directory_name(path.substr(path.rfind('/') + 1));
  if (!name) return nullptr;
  const auto place = saved_.find({name->generation, name->step});
  return place == saved_.end() ? nullptr : &place->second;
}

bool Disk::damage_newest() {
  if (saved_.empty() || saved_.rbegin()->second.is_damaged) return false;
  saved_.rbegin()->second.is_damaged = true;
  return true;
}

}  // namespace sgd::sim
