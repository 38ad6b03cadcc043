#pragma once
// What the threads of a store say, for tests that wait for it.

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <catch2/catch.hpp>

#include "launcher/storage/event_store.hpp"

namespace sgd::test {

class StoreListener {
 public:
  [[nodiscard]] storage::EventStore::Handlers handlers() {
    return {[this](storage::EventStore::Ticket up_to) { note([&] { committed_ = up_to; }); },
            [this](const std::string& message) { note([&] { troubles_.push_back(message); }); },
            [this] { note([&] { ++recoveries_; }); },
            [this](Result<std::shared_ptr<const storage::StateCut>> cut) { note([&] { cut_ = std::move(cut); }); },
            storage::sync_run_files};
  }
  [[nodiscard]] Result<std::shared_ptr<const storage::StateCut>> wait_cut() {
    wait([&] { return cut_.has_value(); });
    return *std::exchange(cut_, std::nullopt);
  }
  [[nodiscard]] bool has_cut() {
    const std::lock_guard lock(mutex_);
    return cut_.has_value();
  }
  void wait_committed(storage::EventStore::Ticket ticket) {
    wait([&] { return committed_ >= ticket; });
  }
  void wait_trouble() {
    wait([&] { return !troubles_.empty(); });
  }
  [[nodiscard]] storage::EventStore::Ticket committed() {
    const std::lock_guard lock(mutex_);
    return committed_;
  }
  [[nodiscard]] std::vector<std::string> troubles() {
    const std::lock_guard lock(mutex_);
    return troubles_;
  }
  [[nodiscard]] int recoveries() {
    const std::lock_guard lock(mutex_);
    return recoveries_;
  }

 private:
  template <class Change>
  void note(const Change& change) {
    const std::lock_guard lock(mutex_);
    change();
    changed_.notify_all();
  }
  template <class Done>
  void wait(const Done& done) {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, std::chrono::seconds(60), done));
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  storage::EventStore::Ticket committed_ = 0;
  std::vector<std::string> troubles_;
  int recoveries_ = 0;
  std::optional<Result<std::shared_ptr<const storage::StateCut>>> cut_;
};

}  // namespace sgd::test
