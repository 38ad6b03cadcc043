#include "launcher/storage/owner_room.hpp"

#include <sys/statvfs.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "launcher/core/quota.hpp"
#include "launcher/storage/retention.hpp"

namespace sgd::storage {
namespace {

constexpr std::int64_t kLeastShare = 10;  ///< One part of so many.

}  // namespace

DiskRoom disk_room(const std::string& folder) {
  struct statvfs info {};
  if (::statvfs(folder.c_str(), &info) != 0) return {};
  return {static_cast<std::int64_t>(info.f_blocks * info.f_frsize),
          static_cast<std::int64_t>(info.f_bavail * info.f_frsize)};
}

std::int64_t share_of_disk(const DiskRoom& disk, std::int64_t has) {
  return std::max(disk.size / kLeastShare, disk.free / 2 + has / 2);
}

std::string OwnerRoom::take(const std::string& folder, std::int64_t bytes) {
  std::string full;
  for (const bool is_measured : {false, true}) {
    if (is_measured) measure_changed();
    const DiskRoom disk = limit_ > 0 ? DiskRoom{} : disk_room(folder);
    const std::lock_guard lock(mutex_);
    const std::int64_t limit = limit_ > 0 ? limit_ : share_of_disk(disk, bytes_);
    if (bytes <= limit - bytes_) {
      count(folder, bytes);
      return {};
    }
    full = core::why_no_bytes(owner_, bytes_, limit);
  }
  return full;
}

void OwnerRoom::add(const std::string& folder, std::int64_t bytes) {
  const std::lock_guard lock(mutex_);
  count(folder, bytes);
}

/// Under the lock. What has not come into a folder that is gone was taken away with it.
void OwnerRoom::count(const std::string& folder, std::int64_t bytes) {
  if (bytes < 0 && !shares_.contains(folder)) return;
  Share& share = shares_[folder];
  share.bytes += bytes;
  share.added += bytes;
  share.is_changed = true;
  bytes_ += bytes;
}

/// Whoever is at the limit may try as often as they like, and others wait for the thread that looks.
void OwnerRoom::measure_changed() {
  std::vector<std::string> changed;
  {
    const std::lock_guard lock(mutex_);
    const TimePoint now = std::chrono::steady_clock::now();
    if (measured_at_ && now < *measured_at_ + kMeasureAgain) return;
    measured_at_ = now;
    for (const auto& [folder, share] : shares_)
      if (share.is_changed) changed.push_back(folder);
  }
  for (const std::string& folder : changed) measure(folder);
}

std::int64_t OwnerRoom::measure(const std::string& folder) {
  std::int64_t added_before = 0;
  {
    const std::lock_guard lock(mutex_);
    Share& share = shares_[folder];
    share.is_changed = false;
    added_before = share.added;
  }
  const std::int64_t found = bytes_below(folder);
  const std::lock_guard lock(mutex_);
  const auto share = shares_.find(folder);
  if (share == shares_.end()) return found;  // Its run was removed meanwhile.
  const std::int64_t now = std::max<std::int64_t>(0, found + share->second.added - added_before);
  bytes_ += now - share->second.bytes;
  share->second.bytes = now;
  if (now == 0) shares_.erase(share);  // A folder that is gone.
  return found;
}

void OwnerRoom::remove(const std::string& folder) {
  const std::lock_guard lock(mutex_);
  const auto share = shares_.find(folder);
  if (share == shares_.end()) return;
  bytes_ -= share->second.bytes;
  shares_.erase(share);
}

std::int64_t OwnerRoom::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace sgd::storage
