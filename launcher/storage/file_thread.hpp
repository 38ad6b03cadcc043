#pragma once
// Work with files that may take long (a slow disk, a checksum of a gigabyte) on one thread, in the order in
// which it was given; what follows from it happens in the event loop. How much may wait is the owner's to
// limit. A disk that hangs holds up the thread and nobody else: who asks within a limit is answered by then. Where
// there is no room for a thread, the event loop does the work itself until there is.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/result.hpp"
#include "common/base/time.hpp"

namespace sgd::storage {

class FileThread {
 public:
  /// Orders that may wait before one more question is refused.
  static constexpr std::size_t kAskedMax = 8192;
  /// A disk that hangs does not keep a process from ending.
  static constexpr Duration kEndLimit = std::chrono::seconds(5);

  std::size_t asked_max = kAskedMax;

  /// `io` must outlive it.
  explicit FileThread(boost::asio::io_context& io) : io_(io) {}
  /// Waits for the work in progress, but no longer than kEndLimit. What waits is dropped, and no `done` is called any
  /// more.
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

  /// As ask(), for a Work that gives a Result or a Status: `done` is called once, with an error when `limit` is over
  /// before the work is. The work goes on then, and `late` gets what it has made.
  template <class Work, class Done, class Late>
  void ask_within(Duration limit, Work work, Done done, Late late) {
    using Value = decltype(work());
    if (waiting() >= asked_max) return done(Value(busy()));
    const auto timer = std::make_shared<boost::asio::steady_timer>(io_, limit);
    const auto answer = std::make_shared<Done>(std::move(done));
    const auto is_answered = std::make_shared<bool>(false);
    timer->async_wait([timer, answer, is_answered, alive = alive_, limit](const boost::system::error_code& error) {
      if (error || !*alive || std::exchange(*is_answered, true)) return;
      (*answer)(Value(unanswered(limit)));
    });
    ask(std::move(work), [timer, answer, is_answered, late = std::move(late)](Value&& value) mutable {
      if (std::exchange(*is_answered, true)) return late(std::move(value));
      timer->cancel();
      (*answer)(std::move(value));
    });
  }
  template <class Work, class Done>
  void ask_within(Duration limit, Work work, Done done) {
    ask_within(limit, std::move(work), std::move(done), [](auto&&) {});
  }

  /// Blocks until everything that was ordered is carried out, or kEndLimit is over: before the end of the process.
  void finish();
  /// Orders that are not begun.
  [[nodiscard]] std::size_t waiting() const;

 private:
  /// "the disk has not answered for 10 s".
  [[nodiscard]] static Error unanswered(Duration limit);
  [[nodiscard]] Error busy() const;
  using Guard = boost::asio::executor_work_guard<boost::asio::io_context::executor_type>;
  struct Order {
    std::function<void()> work;
    std::function<void()> done;
  };
  /// With the thread, which may be in a call that does not return when everything else is gone.
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Order> orders;
    bool is_working = false;
    bool is_ending = false;
    bool is_abandoned = false;  ///< Nobody waits for its end.
  };
  static void serve(const std::shared_ptr<Shared>& shared, boost::asio::io_context& io);
  [[nodiscard]] bool begin();
  [[nodiscard]] bool carry_out_one();

  boost::asio::io_context& io_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);  ///< The event loop looks at it before each `done`.
  std::shared_ptr<Shared> shared_ = std::make_shared<Shared>();
  std::size_t unfinished_ = 0;  ///< Orders whose `done` is still to come: as long the event loop has work.
  std::optional<Guard> guard_;
  std::thread thread_;
};

}  // namespace sgd::storage
