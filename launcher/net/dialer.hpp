#pragma once
// Makes connections to one address, again and again: attempts that fail are repeated after a wait that doubles up to a
// limit, and is drawn from its upper half, so that thousands of agents do not come back in one moment. A Unix socket is
// talked to only if our own account or root listens there; root itself talks to everybody's.

#include <functional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/base/time.hpp"
#include "launcher/core/random.hpp"
#include "launcher/net/address.hpp"
#include "launcher/net/socket.hpp"

namespace sgd::net {

/// The wait before the attempt that follows `failures` failed ones in a row; `chance` in [0, 1).
[[nodiscard]] Duration redial_wait(int failures, double chance);

class Dialer {
 public:
  static constexpr Duration kWaitMin = std::chrono::milliseconds(50);
  static constexpr Duration kWaitMax = std::chrono::seconds(5);
  static constexpr Duration kAttempt = std::chrono::seconds(5);  ///< Limit of one: name and connection.

  struct Handlers {
    std::function<void(Socket socket)> on_socket;
    /// An attempt has failed; the next one follows.
    std::function<void(std::string reason)> on_failure;
  };

  Dialer(boost::asio::io_context& io, Address address, core::Random random);
  ~Dialer();

  /// Dials; on_socket ends it until the next call of again().
  void start(Handlers handlers);
  /// What came of the last socket: the count of failures begins anew, or goes on.
  void again(bool was_open);
  /// Dials in so long, whatever was under way.
  void rest(Duration time);

 private:
  struct Attempt;
  void dial();
  void dial_path();
  void hand_over(Socket socket);
  void fail(const std::string& reason);

  boost::asio::io_context& io_;
  Address address_;
  core::Random random_;
  Handlers handlers_;
  boost::asio::steady_timer timer_;
  std::shared_ptr<Attempt> attempt_;
  int failures_ = 0;
};

}  // namespace sgd::net
