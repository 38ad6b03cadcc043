#include "launcher/storage/checkpoint_pruner.hpp"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <utility>

#include "common/base/thread.hpp"
#include "common/checkpoint/manifest.hpp"
#include "launcher/storage/ahead_checkpoints.hpp"
#include "launcher/storage/remove_tree.hpp"

namespace sgd::storage {
namespace {

namespace fs = std::filesystem;

/// ".step-000000001200-gen-0003.part" is what its writer has not finished.
std::optional<checkpoint::DirectoryName> unfinished(const std::string& name) {
  constexpr std::string_view kEnd = ".part";
  if (!name.starts_with('.') || !name.ends_with(kEnd)) return std::nullopt;
  return checkpoint::parse_directory_name(std::string_view(name).substr(1, name.size() - 1 - kEnd.size()));
}

/// Of those that count and are there.
std::optional<checkpoint::DirectoryName> newest_of(const std::vector<std::string>& names,
                                                   const std::vector<std::string>& kept) {
  const std::set<std::string_view> there(names.begin(), names.end());
  std::optional<checkpoint::DirectoryName> newest;
  for (const std::string& name : kept)
    if (there.contains(name)) newest = std::max(newest, checkpoint::parse_directory_name(name));
  return newest;
}

void carry_out(const std::string& folder, const std::vector<std::string>& kept) {
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator entries(folder, error);
  for (; !error && entries != fs::directory_iterator(); entries.increment(error))
    names.push_back(entries->path().filename().string());
  for (const std::string& name : superseded(names, kept))
    (void)remove_tree(folder + "/" + name);  // Ignoring: what cannot be removed stays.
  if (const auto newest = newest_of(names, kept)) remove_passed(folder, *newest);
}

}  // namespace

std::vector<std::string> superseded(const std::vector<std::string>& names, const std::vector<std::string>& kept) {
  const std::set<std::string_view> counting(kept.begin(), kept.end());
  const std::optional<checkpoint::DirectoryName> newest = newest_of(names, kept);
  std::vector<std::string> gone;
  if (!newest) return gone;
  for (const std::string& name : names) {
    const auto half = unfinished(name);
    const auto whole = checkpoint::parse_directory_name(name);
    const bool is_half_of_before = half && half->generation < newest->generation;
    const bool is_old = whole && *whole < *newest && !counting.contains(name);
    if (is_half_of_before || is_old) gone.push_back(name);
  }
  return gone;
}

CheckpointPruner::~CheckpointPruner() {
  if (!thread_.joinable()) {
    if (order_) carry_out(order_->folder, order_->names);
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CheckpointPruner::keep(const std::string& folder, std::vector<std::string> names) {
  {
    const std::lock_guard lock(mutex_);
    order_ = Order{folder, std::move(names)};
  }
  changed_.notify_all();
  if (thread_.joinable()) return;
  if (auto started = start_thread([this] { run(); })) thread_ = std::move(started).value();
}

void CheckpointPruner::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return order_ || is_ending_; });
    if (!order_) return;
    const Order order = std::move(*std::exchange(order_, std::nullopt));
    lock.unlock();
    carry_out(order.folder, order.names);
    lock.lock();
  }
}

}  // namespace sgd::storage
