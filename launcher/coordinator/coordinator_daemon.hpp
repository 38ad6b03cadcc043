#pragma once
// The coordinator as a long-running program: one thread, one event loop, one gateway.
//
//   agents ──> Gateway ──> CoordinatorShell <── RunService <── ClientService <── Gateway <── clients
//   their files ──> Gateway ──> FileService ──> run directories below <state>/runs
//   JoinService <── Gateway <── those who join or renew     with an identity (`sgd-launch init`): then all of it is TLS
//
// SIGTERM and SIGINT end the daemon, never a run: workers go on, agents wait for the next coordinator. SIGHUP:
// identities are read anew (they are whenever their files change).

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "launcher/coordinator/coordinator_probes.hpp"
#include "launcher/coordinator/file_completion.hpp"
#include "launcher/coordinator/file_service.hpp"
#include "launcher/coordinator/run_service.hpp"
#include "launcher/net/gateway.hpp"
#include "launcher/net/join_service.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/process/daemon_log.hpp"
#include "launcher/process/input_end.hpp"

namespace sgd::coordinator {

struct CoordinatorOptions {
  /// Nothing: with an identity 127.0.0.1:7070, else the state folder's Unix socket.
  std::optional<net::Address> listen;
  bool insecure_loopback = false;  ///< TCP in plain text may be spoken on loopback.
  std::string state_dir;           ///< Absolute; created when missing.
  Duration node_timeout = std::chrono::seconds(5);
  core::OwnerQuota quota;
  storage::Retention retention{2000, {}, {}};
  /// Of one owner: what its jobs bring.
  shipping::FileStore::Limits files_of_one{.keeps_disk_free = true, .has_siblings = true};
  std::optional<int> metrics_port;  ///< On 127.0.0.1; 0 takes a free one.
  std::string log_format = "auto";  ///< As process::log_format() takes it.
  /// Somebody else's folder, in place of the state folder's own: runs get folders in it, and nothing there is removed.
  std::string runs_dir;
  bool ends_with_input = false;  ///< The end of its standard input is a signal to end.

  [[nodiscard]] std::string runs() const { return runs_dir.empty() ? state_dir + "/runs" : runs_dir; }
  /// On the disk of the runs, which keep them by links.
  [[nodiscard]] std::string files() const { return runs_dir.empty() ? state_dir + "/files" : runs_dir + "/.files"; }
};

class CoordinatorDaemon {
 public:
  explicit CoordinatorDaemon(CoordinatorOptions options);

  /// Everything that can fail. Nothing is served before run().
  [[nodiscard]] Status open();
  /// Where it listens.
  [[nodiscard]] const net::Address& address() const { return *options_.listen; }
  /// Of the probes; 0: there are none.
  [[nodiscard]] int metrics_port() const { return probes_.port(); }
  /// Until a signal.
  void run();

 private:
  void serve();
  [[nodiscard]] FileService::Handlers file_handlers();
  [[nodiscard]] Result<std::shared_ptr<const net::TlsContext>> open_identity();
  [[nodiscard]] Status open_gateway(std::shared_ptr<const net::TlsContext> tls);
  [[nodiscard]] Status open_state_dir() const;
  void renew_identity();
  void wait_signal();
  void end(const std::string& why);
  void log(const std::string& line, process::LogLevel level = process::LogLevel::kInfo);

  CoordinatorOptions options_;
  process::DaemonLog log_;
  boost::asio::io_context io_{1};
  CoordinatorShell shell_;
  CoordinatorProbes probes_;
  AuditLog audit_;
  RunService service_;
  FileService files_;
  FileCompletion file_completion_;
  std::unique_ptr<net::JoinService> join_service_;  ///< With an identity.
  std::unique_ptr<net::Gateway> gateway_;
  boost::asio::signal_set signals_;
  std::optional<process::InputEnd> input_;
  net::Timer renewal_;
};

}  // namespace sgd::coordinator
