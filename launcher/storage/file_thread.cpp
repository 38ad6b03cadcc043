#include "launcher/storage/file_thread.hpp"

#include <signal.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>

namespace sgd::storage {

FileThread::~FileThread() {
  *alive_ = false;
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    is_ending_ = true;
    orders_.clear();
  }
  changed_.notify_all();
  thread_.join();
}

void FileThread::run(std::function<void()> work, std::function<void()> done) {
  // The guard travels with `done` into the event loop, and goes there.
  auto guard = std::make_shared<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>>(
      boost::asio::make_work_guard(io_));
  auto finish = [this, alive = alive_, guard, done = std::move(done)]() mutable {
    boost::asio::post(io_, [alive = std::move(alive), guard = std::move(guard), done = std::move(done)] {
      if (*alive) done();
    });
  };
  {
    const std::lock_guard lock(mutex_);
    orders_.push_back({std::move(work), std::move(finish)});
  }
  changed_.notify_all();
  if (!thread_.joinable()) begin();
}

void FileThread::begin() {
  // Signals are for the main thread.
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { serve(); });
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void FileThread::serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return !orders_.empty() || is_ending_; });
    if (is_ending_) return;
    Order order = std::move(orders_.front());
    orders_.pop_front();
    lock.unlock();
    order.work();
    order.done();
    order = {};  // What it holds goes without the lock.
    lock.lock();
  }
}

}  // namespace sgd::storage
