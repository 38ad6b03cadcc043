#pragma once
// What a daemon tells the service manager that started it: ready, reloading, stopping, a line of status, and
// that its event loop turns. systemd's notification protocol (sd_notify(3)) needs one datagram socket and a
// few words, so no library is loaded for it. Without NOTIFY_SOCKET in the environment every call does
// nothing.

#include <memory>
#include <string>
#include <string_view>

#include "common/base/result.hpp"
#include "common/base/time.hpp"
#include "launcher/process/unique_fd.hpp"

namespace boost::asio {
class io_context;
}

namespace sgd::process {

/// The variables of the protocol.
struct NotifyEnvironment {
  std::string socket;         ///< NOTIFY_SOCKET: a path, or "@name" in the abstract namespace; empty: nobody listens.
  std::string watchdog_usec;  ///< WATCHDOG_USEC.
  std::string watchdog_pid;   ///< WATCHDOG_PID: whom it is for; empty: for everyone.
};
/// Reads them and removes them from the environment, so that workers do not speak for the daemon. Before any
/// thread.
[[nodiscard]] NotifyEnvironment take_notify_environment();

class ServiceNotify {
 public:
  /// Longest wait for a service manager that does not read, for what must not be lost: ready, reloading,
  /// stopping.
  static constexpr Duration kSendLimit = std::chrono::seconds(2);

  /// Says nothing.
  ServiceNotify() = default;
  /// Error: NOTIFY_SOCKET is no address. One where nobody listens fails when something is said.
  [[nodiscard]] static Result<ServiceNotify> open(const NotifyEnvironment& environment);

  [[nodiscard]] bool is_heard() const { return static_cast<bool>(socket_); }

  /// The start is over, or a reload; `status` is shown by `systemctl status`.
  Status ready(std::string_view status);
  /// Answered by ready().
  Status reloading(TimePoint now);
  Status stopping(std::string_view status);
  /// Lost when the service manager does not read: the next one says it.
  void status(std::string_view text);
  /// From now on, in whichever phase: starting, stopping. Say it again before it is over.
  void extend_timeout(Duration duration);
  void feed_watchdog();

  /// Half of the time after which the service manager takes this process for stuck; zero: it does not watch.
  [[nodiscard]] Duration watchdog_interval() const { return watchdog_interval_; }

 private:
  Status send(std::string_view lines, bool may_wait);

  UniqueFd socket_;
  std::string address_;  ///< Bytes of a sockaddr_un.
  Duration watchdog_interval_ = Duration::zero();
};

/// Feeds the watchdog from the event loop, so that a loop that is stuck is noticed. Does nothing without a
/// watchdog.
class WatchdogFeeder {
 public:
  /// Both must outlive this.
  WatchdogFeeder(boost::asio::io_context& io, ServiceNotify& notify);
  ~WatchdogFeeder();

 private:
  struct Timer;
  std::shared_ptr<Timer> timer_;
};

}  // namespace sgd::process
