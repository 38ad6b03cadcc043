#pragma once
// How the coordinator is seen from outside: by the service manager (ready, a line of status, the watchdog) and over
// HTTP
// (/metrics, /healthz, /readyz). All of it runs on the daemon's event loop, so that it proves that the loop turns.

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/coordinator/coordinator_shell.hpp"
#include "launcher/http/coordinator_metrics.hpp"
#include "launcher/http/loop_lag.hpp"
#include "launcher/http/probe_server.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/process/service_notify.hpp"

namespace sgd::coordinator {

class CoordinatorProbes {
 public:
  using Log = std::function<void(const std::string& line)>;

  /// Both must outlive this.
  CoordinatorProbes(boost::asio::io_context& io, const CoordinatorShell& shell, Log log);

  /// Errors: the port is taken, NOTIFY_SOCKET is no address. Without a port nothing listens; 0 takes a free one.
  [[nodiscard]] Status open(std::optional<int> port);
  void on_ready();
  void on_reload();
  void on_stop();
  /// A new line of a run's events.jsonl.
  void on_event(const nlohmann::ordered_json& event);
  /// It has ended, and is no trial.
  void on_run_ended(const std::string& state) { metrics.runs_finished.add(state); }
  void on_commit(Duration took) { metrics.store_commit.observe(to_seconds(took)); }
  [[nodiscard]] int port() const { return server_ ? server_->port() : 0; }

  http::CoordinatorMetrics metrics;  ///< Counters; gauges are set when they are asked for.
  /// Sets those that the shell does not know. May be absent.
  std::function<void(http::CoordinatorMetrics& metrics)> fill;

 private:
  void refresh();
  void tick();
  [[nodiscard]] std::string status_text() const;

  boost::asio::io_context& io_;
  const CoordinatorShell& shell_;
  Log log_;
  process::ServiceNotify notify_;
  std::unique_ptr<process::WatchdogFeeder> feeder_;
  std::unique_ptr<http::ProbeServer> server_;
  std::unique_ptr<http::LoopLag> lag_;
  net::Timer status_timer_;
  std::string last_status_;
};

}  // namespace sgd::coordinator
