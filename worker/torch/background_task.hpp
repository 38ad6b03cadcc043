#pragma once
// One task at a time on a thread beside training: what is done with a copy of the state that a device has given.

#include <atomic>
#include <exception>
#include <functional>
#include <thread>

namespace sgd::worker {

class BackgroundTask {
 public:
  BackgroundTask() = default;
  BackgroundTask(const BackgroundTask&) = delete;
  BackgroundTask& operator=(const BackgroundTask&) = delete;
  ~BackgroundTask();  ///< Waits.

  /// Begins it. The task before must be settled.
  void run(std::function<void()> task);
  [[nodiscard]] bool is_busy() const { return busy_.load(std::memory_order_acquire); }
  /// Waits until it is done. Throws what it has thrown, once.
  void settle();

 private:
  std::atomic<bool> busy_{false};
  std::exception_ptr thrown_;
  std::thread thread_;
};

}  // namespace sgd::worker
