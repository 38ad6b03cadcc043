#pragma once
// Checkpoints whose turn is still to come with a program that is run for each of them, one at a time. Pure.
//
// Where the program is slower than they come, the oldest that waits is left out: a newer one is worth more, and what
// waits is not removed from the disk, which must not fill up with them.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace sgd::callbacks {

struct SavedCheckpoint {
  std::string path;  ///< Relative to the run's folder.
  std::int64_t step = 0;
  int epoch = 0;
};

class SaveQueue {
 public:
  static constexpr std::size_t kWaitingMax = 16;

  /// Returns the one that is left out for it.
  std::optional<SavedCheckpoint> add(SavedCheckpoint saved) {
    waiting_.push_back(std::move(saved));
    if (waiting_.size() <= kWaitingMax) return std::nullopt;
    SavedCheckpoint oldest = std::move(waiting_.front());
    waiting_.pop_front();
    return oldest;
  }
  /// Begins with the oldest; nothing while one is under way, or none waits.
  [[nodiscard]] std::optional<SavedCheckpoint> begin() {
    if (current_ || waiting_.empty()) return std::nullopt;
    current_ = std::move(waiting_.front());
    waiting_.pop_front();
    return current_;
  }
  /// The one that was under way is done.
  std::optional<SavedCheckpoint> end() { return std::exchange(current_, std::nullopt); }
  /// Nothing waits any more; what did is returned.
  std::deque<SavedCheckpoint> drop() { return std::exchange(waiting_, {}); }

  [[nodiscard]] bool is_empty() const { return !current_ && waiting_.empty(); }
  /// Not to be removed.
  [[nodiscard]] std::vector<std::string> paths() const {
    std::vector<std::string> paths;
    if (current_) paths.push_back(current_->path);
    for (const SavedCheckpoint& one : waiting_) paths.push_back(one.path);
    return paths;
  }

 private:
  std::deque<SavedCheckpoint> waiting_;
  std::optional<SavedCheckpoint> current_;
};

}  // namespace sgd::callbacks
