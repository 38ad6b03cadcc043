#include "test/sim/disk.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>

namespace sgd::sim {
namespace {

std::optional<checkpoint::DirectoryName> name_of(const std::string& path) {
  return checkpoint::parse_directory_name(std::string_view(path).substr(path.rfind('/') + 1));
}

std::string path_of(const checkpoint::DirectoryName& name) {
  return fmt::format("{}/{}", checkpoint::kDirectory,
                     checkpoint::directory_name(name.step, name.generation, name.number));
}

}  // namespace

std::string Disk::save(Generation generation, const Point& point) {
  checkpoint::DirectoryName name{generation, point.step, 1};
  while (saved_.contains(name)) ++name.number;
  saved_[name] = {generation, point, false};
  return path_of(name);
}

void Disk::keep_at(const std::string& path, const NodeId& home, bool is_sent_off) {
  Saved& saved = saved_.at(name_of(path).value());
  saved.home = home;
  saved.is_stored = false;
  saved.is_sent_off = is_sent_off;
}

void Disk::store(const std::string& path) {
  Saved& saved = saved_.at(name_of(path).value());
  saved.is_stored = true;
  saved.is_sent_off = false;
}

std::vector<std::string> Disk::stored() const {
  std::vector<std::string> paths;
  for (const auto& [name, saved] : saved_)
    if (saved.is_stored && !saved.is_damaged) paths.push_back(path_of(name));
  return paths;
}

/// Each disk by itself: one that counts and is not there makes none there superfluous.
void Disk::keep(const std::vector<std::string>& paths) {
  std::map<NodeId, checkpoint::DirectoryName> newest_at;
  std::optional<checkpoint::DirectoryName> newest_stored;
  std::set<checkpoint::DirectoryName> counting;
  for (const std::string& path : paths) {
    const auto name = name_of(path);
    const auto saved = name ? saved_.find(*name) : saved_.end();
    if (saved == saved_.end()) continue;
    counting.insert(*name);
    if (saved->second.is_stored) newest_stored = std::max(newest_stored, name);
    if (!saved->second.home.empty()) {
      checkpoint::DirectoryName& newest = newest_at.try_emplace(saved->second.home, *name).first->second;
      newest = std::max(newest, *name);
    }
  }
  for (auto& [name, saved] : saved_) {
    if (counting.contains(name)) continue;
    if (newest_stored && name < *newest_stored) saved.is_stored = false;
    const auto newest = newest_at.find(saved.home);
    if (newest != newest_at.end() && name < newest->second && !saved.is_sent_off) saved.home.clear();
  }
  std::erase_if(saved_, [](const auto& one) { return !one.second.is_stored && one.second.home.empty(); });
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
