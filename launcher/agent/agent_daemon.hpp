#pragma once
// An agent as a long-running program: joins a coordinator, dials again whenever it is gone, and runs what it is told.
//
//   coordinator <── TCP ── AgentShell ──> keepers ──> ranks
//
// It keeps a journal in its state folder: one that is killed is followed by one that takes over what runs here
// (agent_takeover.cpp), if that is started within orphan_timeout.
//
// First SIGTERM or SIGINT: the coordinator is told that the node leaves, its runs save and go; when nothing is left, or
// at the second signal, the agent ends, and with it whatever still runs here.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "launcher/agent/agent_shell.hpp"
#include "launcher/agent/output_relay.hpp"
#include "launcher/agent/previous_agent.hpp"
#include "launcher/net/connection.hpp"
#include "launcher/net/dialer.hpp"
#include "launcher/net/enrolment.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/process/daemon_log.hpp"
#include "launcher/process/input_end.hpp"
#include "launcher/process/runtime_dir.hpp"
#include "launcher/process/service_notify.hpp"
#include "launcher/storage/state_lock.hpp"

namespace sgd::agent {

struct AgentOptions {
  net::Address coordinator;
  bool insecure_loopback = false;  ///< TCP in plain text may be spoken on loopback.
  NodeId name;                     ///< Empty: that of the identity, else the host's.
  std::string address;       ///< Where other nodes reach this one; empty: this end of the coordinator's connection.
  std::optional<int> slots;  ///< Absent: as many as cores.
  /// Without a coordinator for so long, all ranks here are ended; and without an agent.
  Duration orphan_timeout = std::chrono::minutes(10);
  std::vector<std::string> gpus;  ///< As CUDA_VISIBLE_DEVICES names them.
  bool are_gpus_by_bus = false;   ///< Numbers among them count along the bus.
  std::int64_t memory_bytes = 0;  ///< For workers; 0: not counted.
  std::map<std::string, std::string> labels;
  std::string state_dir;    ///< Absolute; created when missing. The node's identity is in its folder identity/.
  std::string own_program;  ///< This program's file, for keepers.
  std::string worker_program;
  std::string python_folder;                  ///< Of our modules for Python; empty: there are none.
  std::optional<std::int64_t> files_bytes;    ///< Of what jobs bring.
  std::optional<std::int64_t> journal_bytes;  ///< What is kept for the next agent is begun anew beyond it.
  AccountRule accounts = {};                  ///< In whose name runs are started; others than ours need root.
  bool jobs_share_account = false;            ///< Jobs may run under the account that owns the node's key.
  std::string log_format = "auto";            ///< As process::log_format() takes it.
  /// One run has this node for itself, as on its launcher's own machine: with our environment, and our working
  /// directory where the job names none.
  bool is_for_one_run = false;
  bool ends_with_input = false;  ///< The end of its standard input ends it, and all that runs here.
  std::string output_socket;     ///< Where its launcher listens for what ranks say; empty: it is in logs alone.

  /// The folder of the node's certificate and key.
  [[nodiscard]] std::string identity() const { return state_dir + "/identity"; }
};

class AgentDaemon {
 public:
  explicit AgentDaemon(AgentOptions options);

  /// Everything that can fail before the coordinator is dialled.
  [[nodiscard]] Status open();
  /// Until a signal. Error: it could not begin.
  [[nodiscard]] Status run();

 private:
  [[nodiscard]] core::AgentFacts facts() const;
  [[nodiscard]] Status open_identity();
  [[nodiscard]] Status settle_accounts() const;
  [[nodiscard]] Status check_coordinator() const;
  [[nodiscard]] Status guard_keys(const process::Account* fixed) const;
  [[nodiscard]] Result<std::string> runtime_base() const;
  [[nodiscard]] bool has_others() const { return gives_others(options_.accounts.kind); }
  [[nodiscard]] Result<AgentShell::Persistence> open_past();
  [[nodiscard]] AgentObserver observer();
  [[nodiscard]] std::unique_ptr<OutputRelay> make_relay();
  void wait_signal();
  void on_refused(const std::string& reason);
  void on_address(const std::string& address);
  void on_signal(int signal);
  void end_if_idle();
  void log(const std::string& line, process::LogLevel level = process::LogLevel::kInfo);

  AgentOptions options_;
  process::DaemonLog log_;
  boost::asio::io_context io_{1};
  process::ServiceNotify notify_;
  std::unique_ptr<process::WatchdogFeeder> feeder_;
  net::ReadBuffer buffer_;
  std::optional<storage::StateLock> lock_;
  std::optional<process::RuntimeDir> runtime_;
  std::shared_ptr<const net::TlsContext> tls_;  ///< Null: plain text, over a Unix socket or by --insecure-loopback.
  std::unique_ptr<net::Renewer> renewer_;
  std::unique_ptr<AgentShell> shell_;
  std::unique_ptr<OutputRelay> relay_;  ///< Null: nobody looks on.
  boost::asio::signal_set signals_;
  std::optional<process::InputEnd> input_;
  net::Timer leave_timer_;
  net::Timer look_timer_;
  int slots_ = 0;
  std::string last_lost_;     ///< Said once as long as it stays the same,
  std::string last_address_;  ///< and so is this.
  TimePoint refused_since_{};
  TimePoint refused_at_{};
  std::string refused_for_;  ///< Why it ends, with is_for_one_run.
  int signals_seen_ = 0;
};

}  // namespace sgd::agent
