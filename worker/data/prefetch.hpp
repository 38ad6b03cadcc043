#pragma once
// Values 0, 1, 2, ... made ahead by threads and taken in their order, whichever is ready first. At most `ahead` are
// finished or in work beside those taken. What is thrown while a value is made is thrown where it is taken: those
// before it are taken as if nothing had happened.
//
// One thread takes, and makes and destroys the object. The destructor waits for the values in work and drops the
// others; a maker that takes long looks at the flag that it is given, and leaves by an exception.

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "common/base/assert.hpp"

namespace sgd::worker {

template <class Value>
class Prefetch {
 public:
  /// Called from several threads at once.
  using Make = std::function<Value(std::int64_t number, const std::atomic<bool>& is_ending)>;

  /// `threads` and `ahead` from 1.
  Prefetch(int threads, int ahead, std::int64_t count, Make make)
      : make_(std::move(make)), count_(count), slots_(static_cast<std::size_t>(ahead)) {
    SGD_ASSERT(threads > 0 && ahead > 0 && count >= 0);
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { run(); });
    } catch (...) {
      end();
      throw;
    }
  }
  ~Prefetch() { end(); }
  Prefetch(const Prefetch&) = delete;
  Prefetch& operator=(const Prefetch&) = delete;

  /// The next value; nothing behind the last.
  std::optional<Value> take() {
    if (taken_ == count_) return std::nullopt;
    std::unique_lock lock(mutex_);
    Slot& slot = slots_[place_of(taken_)];
    made_.wait(lock, [&] { return slot.is_made; });
    Slot out = std::exchange(slot, Slot{});
    ++taken_;
    lock.unlock();
    room_.notify_one();
    if (out.error) std::rethrow_exception(out.error);
    return std::move(out.value);
  }

 private:
  struct Slot {
    bool is_made = false;
    std::optional<Value> value;
    std::exception_ptr error;
  };

  [[nodiscard]] std::size_t place_of(std::int64_t number) const {
    return static_cast<std::size_t>(number) % slots_.size();
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      room_.wait(lock, [this] {
        return is_ending_ || begun_ == count_ || begun_ < taken_ + static_cast<std::int64_t>(slots_.size());
      });
      if (is_ending_ || begun_ == count_) return;
      const std::int64_t number = begun_++;
      lock.unlock();
      Slot made = make(number);
      lock.lock();
      slots_[place_of(number)] = std::move(made);
      made_.notify_one();
    }
  }

  Slot make(std::int64_t number) {
    Slot slot;
    slot.is_made = true;
    try {
      slot.value = make_(number, is_ending_);
    } catch (...) {
      slot.error = std::current_exception();
    }
    return slot;
  }

  void end() {
    {
      const std::lock_guard lock(mutex_);
      is_ending_ = true;
    }
    room_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

  Make make_;
  std::int64_t count_;
  std::atomic<bool> is_ending_{false};
  std::mutex mutex_;
  std::condition_variable made_;
  std::condition_variable room_;
  std::vector<Slot> slots_;  ///< Value n lies at n % ahead.
  std::int64_t begun_ = 0;   ///< Values that were given to a thread.
  std::int64_t taken_ = 0;
  std::vector<std::thread> threads_;
};

}  // namespace sgd::worker
