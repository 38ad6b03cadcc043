#pragma once
// Work with files that may take long (a slow disk, a checksum of a gigabyte) on one thread, in the order in
// which it was given; what follows from it happens in the event loop. How much may wait is the owner's to
// limit.

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <boost/asio/io_context.hpp>

namespace sgd::storage {

class FileThread {
 public:
  /// `io` must outlive it.
  explicit FileThread(boost::asio::io_context& io) : io_(io) {}
  /// Waits for the work in progress. What waits is dropped, and no `done` is called any more.
  ~FileThread();
  FileThread(const FileThread&) = delete;
  FileThread& operator=(const FileThread&) = delete;

  /// `work` on the thread, then `done` in the event loop, which has work until then.
  void run(std::function<void()> work, std::function<void()> done);

  /// The same with a value on its way.
  template <class Work, class Done>
  void ask(Work work, Done done) {
    using Value = decltype(work());
    const auto value = std::make_shared<std::unique_ptr<Value>>();
    run([value, work = std::move(work)]() mutable { *value = std::make_unique<Value>(work()); },
        [value, done = std::move(done)]() mutable { done(std::move(**value)); });
  }

 private:
  struct Order {
    std::function<void()> work;
    std::function<void()> done;
  };
  void serve();
  void begin();

  boost::asio::io_context& io_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< The event loop looks at it before each `done`.
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Order> orders_;
  bool is_ending_ = false;
  std::thread thread_;
};

}  // namespace sgd::storage
