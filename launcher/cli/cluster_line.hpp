#pragma once
// One connection to a coordinator for many questions, asked one after the other by a program that has nothing else to
// do meanwhile but to hear signals.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "common/base/result.hpp"
#include "common/json/nlohmann.hpp"
#include "launcher/net/client_link.hpp"

namespace sgd::cli {

class ClusterLine {
 public:
  using Json = nlohmann::ordered_json;

  ClusterLine(net::Address coordinator, std::shared_ptr<const net::TlsContext> tls);

  /// The answer, {"ok":...}. Error: there was none within `limit`, or a signal came first.
  [[nodiscard]] Result<Json> ask(const Json& request, Duration limit);
  /// Until then, or a signal.
  void wait(Duration time);
  /// Runs while this asks or waits.
  [[nodiscard]] boost::asio::io_context& io() { return io_; }
  /// Signals that have come and were not taken yet, in their order.
  [[nodiscard]] std::optional<int> take_signal();

 private:
  template <class Done>
  void run_until(TimePoint deadline, const Done& done);
  void catch_signals();

  net::Address coordinator_;
  boost::asio::io_context io_{1};
  boost::asio::signal_set signals_;
  net::ClientLink link_;
  bool is_open_ = false;
  std::string why_not_;  ///< Of the newest attempt.
  int asked_ = 0;
  std::optional<Json> answer_;
  std::vector<int> heard_;
};

}  // namespace sgd::cli
