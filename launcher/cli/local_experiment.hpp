#pragma once
// An experiment on this machine with nothing installed as a service: coordinator and agent in this process, as for one
// run (local_run.hpp), but with a store in the experiment's folder, from which `tune --resume` goes on after whatever
// has ended this process.
//
//   signals, --timeout, control.sock ──> CoordinatorShell <──EmbeddedLink──> AgentShell ──> keepers ──> ranks of trials
//                                         │  └── state/: the store
//                                         └── events of the experiment ──> TrialTable ──> Console
//
// What ranks write is in their trials' logs; it is not shown. Ends when the outcome is recorded and committed, and the
// agent has nothing left, or with a second signal after it. A stop that the store does not take ends it in any case
// (stop_watch.hpp): keepers end what is left when their links close, and `tune --resume` goes on as after a kill.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "launcher/agent/agent_shell.hpp"
#include "launcher/cli/console.hpp"
#include "launcher/cli/kept_search.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/stop_watch.hpp"
#include "launcher/cli/trial_table.hpp"
#include "launcher/cli/wait_teller.hpp"
#include "launcher/coordinator/control_server.hpp"
#include "launcher/coordinator/coordinator_shell.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/process/input_end.hpp"
#include "launcher/process/runtime_dir.hpp"
#include "launcher/storage/run_directory.hpp"

namespace sgd::cli {

class LocalExperiment {
 public:
  LocalExperiment(const RunOptions& options, core::RunDefinition experiment);

  /// A new one. The exit code of sgd-launch.
  [[nodiscard]] int run();
  /// The one in the folder of `experiment` goes on, or is to have `samples` from now on; 0: as it had. Everything else
  /// of it is what its store has.
  [[nodiscard]] int resume(std::int64_t samples);

 private:
  [[nodiscard]] Status prepare();
  [[nodiscard]] int slots() const;
  [[nodiscard]] Status start_search();
  void stop_all();
  [[nodiscard]] Status start_node();
  [[nodiscard]] Status submit();
  [[nodiscard]] Status open_store();
  [[nodiscard]] Status reopen(std::int64_t samples);
  void read_table();
  void go();
  [[nodiscard]] coordinator::RunObserver observer_of(const core::RunDefinition& run);
  [[nodiscard]] coordinator::RunObserver own_observer();
  void end_if_done();
  void end();
  void wait_signal();
  void on_signal(int signal);
  void request_stop(const core::StopRequest& request);
  void tell_stop_waits();
  void leave_unstored(const std::string& trouble);
  void tick_status();
  void look_for_waits();
  [[nodiscard]] nlohmann::ordered_json answer(const nlohmann::json& request);

  const RunOptions& options_;
  core::RunDefinition experiment_;
  std::string shown_dir_;  ///< As people would type it.
  boost::asio::io_context io_{1};
  Console console_;
  TrialTable table_;
  std::vector<nlohmann::ordered_json> past_;  ///< Events from before there was a search program to be told of them.
  std::optional<process::RuntimeDir> runtime_;
  coordinator::CoordinatorShell coordinator_;
  coordinator::ControlServer control_;
  std::unique_ptr<agent::AgentShell> agent_;
  std::unique_ptr<KeptSearch> search_;  ///< That makes the trials; nothing: a list does.
  boost::asio::signal_set signals_;
  net::Timer status_timer_;
  net::Timer end_timer_;
  net::Timer timeout_;
  StopWatch stop_watch_;
  std::optional<process::InputEnd> lifeline_;
  std::optional<core::RunOutcome> outcome_;
  WaitTeller waits_;
  int signals_seen_ = 0;
  bool has_told_wait_ = false;  ///< That a stop waits for the store.
  bool is_ending_ = false;
  bool is_hurried_ = false;  ///< A signal has come after the outcome.
};

}  // namespace sgd::cli
