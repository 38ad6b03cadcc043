#include "test/sim/disk.hpp"

#include <fmt/format.h>

#include "common/checkpoint/manifest.hpp"

namespace sgd::sim {

std::string Disk::save(Generation generation, const Point& point, int keep) {
  int number = 0;
  while (saved_.contains({generation, point.step, number})) ++number;
  saved_[{generation, point.step, number}] = {generation, point, false};
  while (saved_.size() > static_cast<std::size_t>(keep)) saved_.erase(saved_.begin());
  return fmt::format("{}/{}/{}", checkpoint::kDirectory, number, checkpoint::directory_name(point.step, generation));
}

const Saved* Disk::find(const std::string& path) const {
  const std::size_t name_at = path.rfind('/') + 1;
  const std::size_t number_at = path.rfind('/', name_at - 2) + 1;
  const auto name = checkpoint::parse_directory_name(path.substr(name_at));
  if (!name) return nullptr;
  const auto place = saved_.find({name->generation, name->step, std::stoi(path.substr(number_at))});
  return place == saved_.end() ? nullptr : &place->second;
}

bool Disk::damage_newest() {
  if (saved_.empty() || saved_.rbegin()->second.is_damaged) return false;
  saved_.rbegin()->second.is_damaged = true;
  return true;
}

}  // namespace sgd::sim
