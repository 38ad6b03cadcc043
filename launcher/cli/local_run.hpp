#pragma once
// A run on this machine with nothing installed as a service: coordinator and agents in this
// process, joined by embedded links, and the console as their observer.
//
//   signals, --timeout, control.sock ──> CoordinatorShell <──EmbeddedLink──> AgentShell (one per node) ──> keeper ──>
//   ranks
//                                              └── events, metrics, outcome ──> Console <── output ──┘
//
// Ends when the run's outcome is recorded, every agent that was given the run has nothing of it left, and the console
// has taken what it will. Every process that the run started is gone by then. A second signal after the outcome ends it
// in any case: keepers end what is left when their links close.

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "common/job/spec.hpp"
#include "launcher/agent/agent_shell.hpp"
#include "launcher/cli/console.hpp"
#include "launcher/cli/local_callbacks.hpp"
#include "launcher/cli/narrator.hpp"
#include "launcher/cli/rank_console.hpp"
#include "launcher/cli/run_options.hpp"
#include "launcher/cli/wait_teller.hpp"
#include "launcher/coordinator/control_server.hpp"
#include "launcher/coordinator/coordinator_shell.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/process/input_end.hpp"
#include "launcher/process/runtime_dir.hpp"
#include "launcher/storage/run_directory.hpp"
#include "launcher/storage/run_history.hpp"
#include "launcher/storage/run_origin.hpp"

namespace sgd::cli {

class LocalRun {
 public:
  /// With a history the run goes on in its folder, else it is a new one, which may begin with another one's state.
  LocalRun(const RunOptions& options, job::JobSpec job, storage::RunPlace place,
           std::optional<storage::RunHistory> history = std::nullopt,
           std::optional<storage::RunOrigin> origin = std::nullopt);

  /// The exit code of sgd-launch.
  [[nodiscard]] int run();

 private:
  struct LocalNode {
    NodeId id;
    int slots = 0;
    std::unique_ptr<agent::AgentShell> agent;
  };

  [[nodiscard]] Status prepare();
  [[nodiscard]] Status open_directory();
  [[nodiscard]] Status record_resumption();
  [[nodiscard]] Status begin_from_origin();
  void print_beginning();
  void submit();
  [[nodiscard]] Status start_node(int index);
  [[nodiscard]] coordinator::RunObserver observer();
  void on_output(std::size_t node, const agent::Output& output);
  [[nodiscard]] int local_rank(Rank rank) const;
  [[nodiscard]] process::UniqueFd input_for_ranks() const;
  void pass_signal(int signal);
  void on_finished(const core::RunOutcome& outcome);
  void on_run_gone(const NodeId& node);
  void end_if_done();
  void end();
  void tell_end();
  void close();
  void leave();
  void wait_signal();
  void on_signal(int signal);
  void tick_status();
  [[nodiscard]] std::int64_t step_before() const;
  [[nodiscard]] nlohmann::ordered_json answer(const nlohmann::json& request);
  [[nodiscard]] nlohmann::ordered_json answer_status() const;
  [[nodiscard]] nlohmann::ordered_json answer_stop(const nlohmann::json& request);
  [[nodiscard]] nlohmann::ordered_json answer_nodes() const;
  [[nodiscard]] nlohmann::ordered_json answer_set_slots(const nlohmann::json& request);

  const RunOptions& options_;
  job::JobSpec job_;
  storage::RunPlace place_;
  std::optional<storage::RunHistory> history_;
  std::optional<storage::RunOrigin> origin_;
  std::optional<core::RunPast> past_;  ///< What it goes on from, in its folder.
  std::string shown_dir_;              ///< The run directory as people would type it.
  boost::asio::io_context io_{1};
  Console console_;
  RankConsole ranks_;
  std::int64_t steps_planned_;
  std::optional<process::RuntimeDir> runtime_;
  std::string spares_;  ///< Where this user's warm server listens; empty: there is none.
  std::unique_ptr<storage::RunDirectory> directory_;
  LocalCallbacks callbacks_;
  coordinator::CoordinatorShell coordinator_;
  coordinator::ControlServer control_;
  std::vector<LocalNode> nodes_;
  boost::asio::signal_set signals_;
  net::Timer status_timer_;
  net::Timer timeout_;
  std::optional<process::InputEnd> lifeline_;
  std::optional<core::RunOutcome> outcome_;
  int signals_seen_ = 0;
  std::set<NodeId> holders_;  ///< Nodes that were given the run, and have something of it.
  bool is_ending_ = false;    ///< Only callbacks are still at work.
  bool is_over_ = false;      ///< Only what was said is still to be taken.
  bool is_hurried_ = false;   ///< A signal has come after the outcome.
  bool has_begun_ = false;    ///< It has had a place.
  WaitTeller waits_;
  int status_ticks_ = 0;
  double failed_at_s_ = 0;  ///< Of the wall clock: the newest failure.
};

}  // namespace sgd::cli
