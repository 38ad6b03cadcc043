#pragma once
// The launcher's end of one guard (exec_guard.hpp): starts it, nudges it, hears what people should know, and knows when
// it has ended. Waits for nothing but by the event loop.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/ids.hpp"
#include "common/base/result.hpp"
#include "common/base/time.hpp"

namespace sgd::callbacks {

class ExecProcess {
 public:
  using Warn = std::function<void(const std::string& message)>;
  /// A guard that is not gone so long after it should be is killed.
  static constexpr Duration kGuardLimit = std::chrono::seconds(30);

  /// `timeout`: of the callback.
  ExecProcess(boost::asio::io_context& io, Duration timeout, Warn warn);
  ~ExecProcess();
  ExecProcess(const ExecProcess&) = delete;
  ExecProcess& operator=(const ExecProcess&) = delete;

  /// `program`: sgd-launch. `words`: what follows the run's folder, as exec_guard_main() has them.
  [[nodiscard]] Status start(const std::string& program, const std::string& run_dir,
                             const std::vector<std::string>& words);
  /// Lines were written.
  void wake();
  /// The run has ended, and all its lines are written. `done` when guard and program are gone.
  void end(std::function<void()> done);
  /// Nobody waits for it any more: the guard ends the program soon.
  void give_up();

 private:
  void send(char byte);
  void read();
  void on_message();
  void wait_for_end();
  void finish();

  Warn warn_;
  Duration timeout_;
  boost::asio::posix::stream_descriptor socket_;
  boost::asio::posix::stream_descriptor pidfd_;
  boost::asio::steady_timer limit_;
  bool is_gone_ = true;
  std::function<void()> done_;
  std::shared_ptr<bool> is_here_ = std::make_shared<bool>(true);
};

}  // namespace sgd::callbacks
