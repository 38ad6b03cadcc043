#include "worker/torch/background_task.hpp"

#include <utility>

#include "common/base/assert.hpp"
#include "worker/link/stack_signal.hpp"

namespace sgd::worker {

BackgroundTask::~BackgroundTask() {
  if (thread_.joinable()) thread_.join();
}

void BackgroundTask::run(std::function<void()> task) {
  SGD_ASSERT(!thread_.joinable());
  const StackSignalBlock no_stack_signal;
  busy_.store(true, std::memory_order_release);
  thread_ = std::thread([this, task = std::move(task)] {
    try {
      task();
    } catch (...) {
      thrown_ = std::current_exception();
    }
    busy_.store(false, std::memory_order_release);
  });
}

void BackgroundTask::settle() {
  if (!thread_.joinable()) return;
  thread_.join();
  if (thrown_) std::rethrow_exception(std::exchange(thrown_, nullptr));
}

}  // namespace sgd::worker
