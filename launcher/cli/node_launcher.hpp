#pragma once
// What the launchers of a run of several machines have in common, first or not: a private folder, identities made of
// the secret, the daemons of this machine, and how they say what they wait for.

#include <memory>
#include <optional>
#include <string>

#include "launcher/cli/cluster_line.hpp"
#include "launcher/cli/console.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/scratch_folder.hpp"
#include "launcher/process/runtime_dir.hpp"
#include "launcher/rendezvous/daemon_children.hpp"
#include "launcher/rendezvous/membership.hpp"
#include "launcher/rendezvous/own_host.hpp"

namespace sgd::cli {

class NodeLauncher {
 public:
  static constexpr Duration kDialLimit = std::chrono::seconds(2);  ///< Of a coordinator that may not be there yet.
  static constexpr Duration kQuiet = std::chrono::seconds(1);      ///< What takes no longer is not told.
  static constexpr Duration kLook = std::chrono::milliseconds(50);
  static constexpr Duration kSayAgain = std::chrono::seconds(10);
  static constexpr Duration kHeadLostLimit = std::chrono::seconds(15);

  NodeLauncher(const RunOptions& options, const rendezvous::NodesPlan& plan, int workers_here);

  /// Makes this machine's identities. On the first one it starts the coordinator and the agent. A second time: as
  /// another one.
  [[nodiscard]] Status begin(bool is_head);
  /// On another one than the first: its own work, once it has looked at what is there.
  [[nodiscard]] Status start_agent();
  /// The agent has been at work: it is started again from now on, however it ends. Looks whether it has, unless
  /// `is_sure`.
  void note_agent(bool is_sure);

  [[nodiscard]] const RunOptions& options() const { return options_; }
  [[nodiscard]] const rendezvous::NodesPlan& plan() const { return plan_; }
  [[nodiscard]] int workers_here() const { return workers_here_; }
  /// Where the agent brings what its ranks say; empty: node 0 alone shows output.
  [[nodiscard]] std::string output_socket() const { return sockets_ ? sockets_->file("output.sock") : ""; }
  /// The name of this machine's agent.
  [[nodiscard]] const std::string& node() const { return node_; }
  [[nodiscard]] const rendezvous::Folders& folders() const { return folders_; }
  [[nodiscard]] const std::shared_ptr<const net::TlsContext>& tls() const { return tls_; }
  [[nodiscard]] rendezvous::DaemonChildren& children() { return *children_; }
  /// To the coordinator.
  [[nodiscard]] ClusterLine line() const { return ClusterLine(plan_.head, tls_); }
  [[nodiscard]] Duration waited() const;
  /// " (12s so far)".
  [[nodiscard]] std::string so_far() const;

  /// From here on it is said there; null: on stderr.
  void set_console(Console* console) { console_ = console; }
  /// `is_trouble`: also where only failures and waits are to be told.
  void print(const std::string& text, bool is_trouble = false) const;
  /// At most once in kSayAgain, unless it is new.
  void print_waiting(const std::string& what, const std::string& more);
  /// One that ends nothing, and that nobody can be told of now.
  void print_not_passed(int signal, const std::string& why) const;

 private:
  [[nodiscard]] Result<std::string> read_secret() const;
  [[nodiscard]] Status make_sockets();
  [[nodiscard]] Status start_coordinator();
  [[nodiscard]] std::string log_of(const char* daemon) const;

  const RunOptions& options_;
  const rendezvous::NodesPlan& plan_;
  int workers_here_;
  bool is_head_ = false;
  bool has_agent_settled_ = false;
  std::string node_;
  std::string secret_;           ///< Read once: a pipe has it only once.
  rendezvous::HeadPlace place_;  ///< Of the first machine, if this is it.
  ScratchFolder folder_{"sgd-nodes"};
  std::optional<process::RuntimeDir> sockets_;
  Console* console_ = nullptr;
  rendezvous::Folders folders_;
  std::shared_ptr<const net::TlsContext> tls_;
  std::optional<rendezvous::DaemonChildren> children_;
  TimePoint begun_at_;
  TimePoint said_at_{};
  std::string said_;
};

/// SIGUSR1 or SIGUSR2: it ends nothing, and ranks of a command are told of it.
[[nodiscard]] bool is_user_signal(int signal);

}  // namespace sgd::cli
