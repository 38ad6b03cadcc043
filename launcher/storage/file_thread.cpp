#include "launcher/storage/file_thread.hpp"

#include <cerrno>

#include <fmt/format.h>
#include <boost/asio/post.hpp>

#include "common/base/thread.hpp"

namespace sgd::storage {

FileThread::~FileThread() {
  *alive_ = false;
  if (!thread_.joinable()) return;
  std::unique_lock lock(shared_->mutex);
  shared_->is_ending = true;
  shared_->orders.clear();
  shared_->changed.notify_all();
  const bool has_ended = shared_->changed.wait_for(lock, kEndLimit, [this] { return !shared_->is_working; });
  shared_->is_abandoned = !has_ended;
  lock.unlock();
  if (has_ended) {
    thread_.join();
    return;
  }
  // It has all that it needs, touches nothing of this any more, and ends with the process.
  (void)new std::thread(std::move(thread_));  // tidy: allow start_thread: it runs.
}

void FileThread::run(std::function<void()> work, std::function<void()> done) {
  if (unfinished_++ == 0) guard_.emplace(io_.get_executor());
  auto finish = [this, alive = alive_, done = std::move(done)] {
    if (!*alive) return;
    if (--unfinished_ == 0) guard_.reset();
    done();
  };
  {
    const std::lock_guard lock(shared_->mutex);
    shared_->orders.push_back({std::move(work), std::move(finish)});
  }
  shared_->changed.notify_all();
  if (begin()) return;
  boost::asio::post(io_, [this, alive = alive_] {
    if (*alive) (void)carry_out_one();  // Ignoring: there may be a thread by now, which has done it.
  });
}

void FileThread::finish() {
  while (carry_out_one()) {
  }
  std::unique_lock lock(shared_->mutex);
  (void)shared_->changed.wait_for(lock, kEndLimit, [this] { return shared_->orders.empty() && !shared_->is_working; });
}

std::size_t FileThread::waiting() const {
  const std::lock_guard lock(shared_->mutex);
  return shared_->orders.size();
}

Error FileThread::unanswered(Duration limit) {
  return Error{fmt::format("the disk has not answered for {}: look at it, and try again", format_duration(limit)),
               ETIMEDOUT};
}

Error FileThread::busy() const {
  return Error{fmt::format("{} requests wait already: try again later", asked_max), EBUSY};
}

bool FileThread::begin() {
  if (thread_.joinable()) return true;
  auto started = start_thread([shared = shared_, &io = io_] { serve(shared, io); });
  if (started) thread_ = std::move(started).value();
  return started.ok();
}

/// The oldest order, where nobody else carries it out. One order a turn of the loop.
bool FileThread::carry_out_one() {
  std::unique_lock lock(shared_->mutex);
  if (thread_.joinable() || shared_->orders.empty()) return false;
  const Order order = std::move(shared_->orders.front());
  shared_->orders.pop_front();
  lock.unlock();
  order.work();
  boost::asio::post(io_, order.done);
  return true;
}

void FileThread::serve(const std::shared_ptr<Shared>& shared, boost::asio::io_context& io) {
  std::unique_lock lock(shared->mutex);
  for (;;) {
    shared->changed.wait(lock, [&shared] { return !shared->orders.empty() || shared->is_ending; });
    if (shared->is_ending) return;
    Order order = std::move(shared->orders.front());
    shared->orders.pop_front();
    shared->is_working = true;
    lock.unlock();
    order.work();
    order.work = {};  // What it holds goes without the lock.
    lock.lock();
    shared->is_working = false;
    shared->changed.notify_all();
    if (shared->is_ending) {
      // What it holds may belong to an event loop that is gone: it goes where it was ordered, or with the process.
      if (shared->is_abandoned)
        (void)new Order(std::move(order));
      else
        shared->orders.push_back(std::move(order));
      return;
    }
    boost::asio::post(io, std::move(order.done));
  }
}

}  // namespace sgd::storage
