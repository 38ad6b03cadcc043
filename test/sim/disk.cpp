#include "test/sim/disk.hpp"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace sgd::sim {
namespace {

std::optional<checkpoint::DirectoryName> name_of(const std::string& path) {
  return checkpoint::parse_directory_name(std::string_view(path).substr(path.rfind('/') + 1));
}

}  // namespace

std::string Disk::save(Generation generation, const Point& point) {
  checkpoint::DirectoryName name{generation, point.step, 1};
  while (saved_.contains(name)) ++name.number;
  saved_[name] = {generation, point, false};
  return fmt::format("{}/{}", checkpoint::kDirectory, checkpoint::directory_name(point.step, generation, name.number));
}

void Disk::keep(const std::vector<std::string>& paths) {
  const auto newest = name_of(paths.back());
  std::erase_if(saved_, [&](const auto& one) {
    return one.first < newest && std::none_of(paths.begin(), paths.end(),
                                              [&](const std::string& path) { return name_of(path) == one.first; });
  });
}

const Saved* Disk::find(const std::string& path) const {
  if (const auto taken = taken_.find(path); taken != taken_.end()) return &taken->second;
  const auto name = name_of(path);
  const auto place = name ? saved_.find(*name) : saved_.end();
  return place == saved_.end() ? nullptr : &place->second;
}

bool Disk::damage_newest() {
  if (saved_.empty() || saved_.rbegin()->second.is_damaged) return false;
  saved_.rbegin()->second.is_damaged = true;
  return true;
}

}  // namespace sgd::sim
