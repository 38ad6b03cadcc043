#pragma once
// The shell of core::Coordinator: one thread, one event loop. Facts become events, commands are carried out in their
// order, one timer is armed at the machine's next wake-up. A run directory that cannot be written does not end the run.
//
// With a store (open_store(), then restore() before anything else) every event is committed before what follows from it
// is carried out, and a coordinator that was killed goes on from there:
//
//   links, timer, submit() ── event ──> core ── Store ──────────> EventStore ── committed ──┐
//                                         └── commands ──> BarrierQueue ── in order ────────┴──> send, record, accept
//
// Lines of runs are written beside the loop, by a thread of their own (run_records.hpp): a disk that hangs holds up
// what waits for it, and nobody who asks.
//
// When the store's queue is full nothing from outside is taken: links are closed and new ones too, submissions are
// refused, until it has room again; agents keep their facts and tell everything when they are back.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>

#include "launcher/coordinator/account_asks.hpp"
#include "launcher/coordinator/barrier_queue.hpp"
#include "launcher/coordinator/core_clock.hpp"
#include "launcher/coordinator/ended_trials.hpp"
#include "launcher/coordinator/run_access.hpp"
#include "launcher/coordinator/run_records.hpp"
#include "launcher/core/coordinator.hpp"
#include "launcher/net/agent_link.hpp"
#include "launcher/net/timer.hpp"
#include "launcher/storage/event_store.hpp"
#include "launcher/storage/file_thread.hpp"

namespace sgd::coordinator {

/// A run as `ps` shows it, live or ended.
struct RunRow {
  RunId id;
  std::string name;
  std::string owner;
  std::string state;   ///< Final state, or "live".
  std::string phase;   ///< As in core::RunPhase.
  std::string reason;  ///< What a live run waits for.
  int exit_code = 0;   ///< Of an ended one.
  double wall_s = 0;
  int num_workers = 0;     ///< Wanted.
  int world_size = 0;      ///< Of a live one.
  double submitted_s = 0;  ///< Unix time.
  double finished_s = 0;   ///< Unix time; 0: it is live.
  std::string run_dir;
  std::string summary;                         ///< As in summary.json, of an ended one. Where it is left out:
  bool has_summary_in_folder = false;          ///< read_summary() has it, which waits for the disk.
  std::optional<core::RunSnapshot> shot = {};  ///< Of a live one, without its ranks.
};
/// The summary of an ended one, from its folder where the row leaves it out: it waits for the disk. Where the folder
/// tells of another end, or of nothing, it is what the row says.
[[nodiscard]] std::string read_summary(const RunRow& row);

class CoordinatorShell {
 public:
  /// The log is cut when it holds more than that (storage/compaction.hpp): it bounds the time of a restart.
  struct CutAfter {
    std::uint64_t idle_events = 1000;  ///< While no run is live.
    std::uint64_t events = 20'000;
    std::uint64_t bytes = 16 << 20;
  };
  /// While lines of a run cannot be written the log grows so many times longer; then those that a kill would cost are
  /// given up.
  static constexpr std::uint64_t kPatience = 4;
  static constexpr std::size_t kTurnedAwayMax = 64;                      ///< Refused agents that may still read why.
  static constexpr Duration kTurnedAwayLimit = std::chrono::seconds(1);  ///< And how long they may.
  static constexpr Duration kLookAtRecords = std::chrono::seconds(1);
  /// So long at a time commands are carried out.
  static constexpr Duration kTurn = std::chrono::milliseconds(5);

  struct StoreObserver {
    /// What keeps the store from committing; nothing is acknowledged meanwhile.
    std::function<void(const std::string& message)> on_trouble;
    std::function<void()> on_recovered;
    /// How long a transaction took. May be absent.
    std::function<void(Duration took)> on_commit = {};
  };

  CutAfter cut_after;

  explicit CoordinatorShell(boost::asio::io_context& io, core::CoordinatorSettings settings = {});

  /// `folder`: of the coordinator's state. Errors are final, and say what to do.
  [[nodiscard]] Status open_store(const std::string& folder, StoreObserver observer);
  using ObserverOf = std::function<RunObserver(const core::RunDefinition& run)>;
  /// Builds the machine again from the store and goes on with its live runs. `observer_of` is asked for each of them,
  /// and later for each trial of an experiment.
  [[nodiscard]] Status restore(const ObserverOf& observer_of);
  [[nodiscard]] const std::string& cluster_id() const { return store_->tables().cluster_id(); }

  /// A connection whose first message will say that it is `node`. It takes the place of the node's former link when
  /// that message has come, unless the core refuses it.
  void add_agent(const NodeId& node, std::unique_ptr<net::CoordinatorLink> link);
  /// `on_accepted` is called when the submission is committed, with its id; or, if its request_id is known, with the id
  /// of the run that it made: then `directory` is not used. An error: nothing was submitted.
  void submit(core::RunDefinition run, std::unique_ptr<storage::RunDirectory> directory, RunObserver observer,
              std::function<void(const Result<RunId>&)> on_accepted = {});
  /// Calls `then` when everything that has happened so far is committed.
  void when_committed(std::function<void()> then);
  /// Committed or on its way.
  [[nodiscard]] std::optional<RunId> run_of_request(const std::string& request_id) const;
  void request_stop(const RunId& run, const core::StopRequest& request);
  /// With a store. An experiment that was stopped goes on, or has `samples` from now on. Error: nothing would change.
  [[nodiscard]] Status resume_experiment(const RunId& experiment, std::int64_t samples);
  /// Its search program has said a line, or cannot be heard any more.
  void search_said(const RunId& experiment, const std::string& line);
  void search_failed(const RunId& experiment, const std::string& why);
  /// A checkpoint of the run is whole in its folder, where it comes from nodes; may be told again.
  void checkpoint_stored(const RunId& run, const std::string& path);
  /// Null: it is none that is known. Until the next event.
  [[nodiscard]] const core::Experiment* experiment(const RunId& id) const {
    const auto known = core_.state().experiments_.find(id);
    return known == core_.state().experiments_.end() ? nullptr : &known->second;
  }
  /// That are known, in the order of their ids.
  [[nodiscard]] std::vector<core::RunDefinition> experiments() const;
  /// To the ranks of a command, on all nodes. Error: they are not told, and why.
  [[nodiscard]] Status pass_signal(const RunId& run, int signal);
  /// `reason` says so where the disk does not answer.
  [[nodiscard]] std::optional<core::RunSnapshot> snapshot(const RunId& run,
                                                          core::Ranks ranks = core::Ranks::kShown) const;
  [[nodiscard]] std::vector<core::NodeSnapshot> nodes() const { return core_.nodes(); }
  [[nodiscard]] std::map<core::NodePhase, core::NodeSum> node_sums() const { return core_.node_sums(); }
  /// Without a store, whose restart would not make it again: a line of the run's events that is no decision.
  void add_event(const RunId& run, const nlohmann::ordered_json& event);
  /// Without a store. These checkpoints of the run are not removed, and no others are kept for this.
  void spare_checkpoints(const RunId& run, const std::vector<std::string>& paths);
  /// What an operator wants of a node; why it would change nothing, else empty.
  [[nodiscard]] std::string order(const NodeId& node, const core::NodeOrder& order);
  /// Whether `node` may add to the run's files and have them: it has had a rank of it. The one place that says so; a
  /// run that is not known is nobody's.
  [[nodiscard]] bool may_touch(const RunId& run, const NodeId& node);
  /// That have had ranks of the run.
  [[nodiscard]] std::set<NodeId> nodes_of(const RunId& run);
  [[nodiscard]] core::OwnerLoad load_of(const std::string& owner) const { return core_.load_of(owner); }
  [[nodiscard]] const core::FactCounts& facts() const { return core_.facts(); }
  /// What would become of `run`, were it submitted now.
  [[nodiscard]] core::Explanation explain(const core::RunDefinition& run) const;
  /// Whether `nodes` would give `run` an account. `done` as of AccountAsks::ask().
  void ask_accounts(const std::vector<NodeId>& nodes, const core::RunDefinition& run, AccountAsks::Done done);
  enum class Which { kAll, kLive };
  /// In the order in which they were submitted; without trials, which their experiments stand for.
  [[nodiscard]] std::vector<RunRow> runs(Which which = Which::kAll) const;
  /// Theirs: for who takes their rows a few at a time.
  [[nodiscard]] std::vector<RunId> run_ids(Which which) const;
  /// How many are live, by the name of their phase.
  [[nodiscard]] std::map<std::string, int> live_phases() const;
  /// The runs whose id begins so, at most `most` of them; the newest one for an empty prefix. Trials only where more
  /// is given than their experiment's id.
  [[nodiscard]] std::vector<RunId> ids(const std::string& prefix, std::size_t most) const;
  /// One of them; nothing if it is not known.
  [[nodiscard]] std::optional<RunRow> run(const RunId& id) const;
  [[nodiscard]] bool is_trial(const RunId& id) const;
  /// It is known, and has ended.
  [[nodiscard]] bool is_over(const RunId& id) const;
  /// All that are known, without what is large: what they have left, and when (0: not yet). Without trials, which lie
  /// in the folders of their experiments.
  struct RunFolder {
    RunId id;
    std::string run_dir;
    double finished_s = 0;
  };
  [[nodiscard]] std::vector<RunFolder> folders() const;
  /// Without the row of a live run: that would count all its ranks.
  [[nodiscard]] std::optional<std::string> directory_of(const RunId& id) const;
  [[nodiscard]] std::optional<std::string> owner_of(const RunId& id) const;
  /// Of a run that ended long ago this is not known any more.
  [[nodiscard]] bool is_of_admin(const RunId& id) const;
  /// Of a run that has ended: it is another one than it seemed to be, in its row and its summary.json.
  void change_outcome(const RunId& id, const core::RunOutcome& outcome);
  /// Of a run that is over, and whose observer is_settled_later: its files are whole, and a restart need not tell its
  /// end again. May be called by what that observer is told.
  void settle(const RunId& id);
  /// Kept whole: of runs, of trials that have not ended, and of few others.
  [[nodiscard]] std::size_t rows() const { return runs_.size(); }
  /// Nothing is known any more of a run that has ended.
  void forget_run(const RunId& id);
  /// It is connected, or may come back.
  [[nodiscard]] bool is_expected(const NodeId& node) const { return core_.is_expected(node); }
  /// No run is live, and everything is recorded and committed.
  [[nodiscard]] bool is_idle() const;
  /// Stored events that a restart would replay.
  [[nodiscard]] std::uint64_t log_length() const { return store_->events(); }
  /// Of the store on the disk; 0 without one.
  [[nodiscard]] std::int64_t store_bytes() const { return store_ ? store_->file_bytes() : 0; }
  /// Nothing is taken from outside: too much waits for the store.
  [[nodiscard]] bool is_held() const { return is_held_; }
  void stop();

  /// A connection was closed because its agent is not the node's, or no longer.
  std::function<void(const NodeId& node, const std::string& reason)> on_refused;
  /// A node's link has ended; the node may come back.
  std::function<void(const NodeId& node, const std::string& reason)> on_link_lost;

 private:
  /// Each connection has a number, so that a late word of a former one is known as such.
  struct AgentEnd {
    std::uint64_t number = 0;
    core::LinkNumber order_link = 0;  ///< As orders for it say.
    std::unique_ptr<net::CoordinatorLink> link;
  };
  struct Run {
    std::unique_ptr<RunRecords> records;  ///< Nothing: it has ended, and everything is written.
    storage::StoredRun row;
  };
  [[nodiscard]] std::optional<RunRow> shown(const RunId& id, const Run& run) const;
  [[nodiscard]] static bool is_live(const Run& run);
  [[nodiscard]] std::optional<storage::StoredRun> ended_trial(const RunId& id) const;
  struct Replay;  ///< Of the stored events, while it lasts.

  // coordinator_shell.cpp
  void on_event(const core::CoordinatorEvent& event);
  void look_for_checkpoints();
  void on_agent(const NodeId& node, std::uint64_t number, cluster::FromAgent message);
  void on_agent_closed(NodeId node, std::uint64_t number, const std::string& reason);
  void turn_away(std::uint64_t number, std::unique_ptr<net::CoordinatorLink> link, const std::string& reason);
  void follow(core::CoordinatorCommands commands);
  void drain();
  void drain_later();
  void carry_out(const core::CoordinatorCommand& command);
  void record(const core::CoordinatorCommand& command);
  void send(const core::coordinator_command::SendToAgent& order);
  void arm_timer();
  [[nodiscard]] static storage::StoredRun row_of(const core::RunDefinition& run);

  // coordinator_store.cpp
  void store(const core::coordinator_command::Store& event);
  void wait_for(BarrierQueue::Ticket ticket);
  void file(const Run& run);
  void file_when_settled(const Run& run);
  [[nodiscard]] bool is_committed() const;
  void replay(TimePoint at, const core::CoordinatorEvent& event, Replay& replay);
  [[nodiscard]] bool is_removed(const core::RunDefinition& definition) const;
  void adopt(const core::RunDefinition& definition);
  void begin_trial(const core::RunDefinition& definition);
  void begin_again(const core::RunDefinition& definition);
  void redo_resumption(const core::coordinator_event::ExperimentResumed& resumed);
  void reopen_row(Run& run);
  [[nodiscard]] Run* find_whole(const RunId& id);
  void shorten(const RunId& id);
  [[nodiscard]] bool goes_on(const RunId& run) const;
  void check_lines();
  [[nodiscard]] Status start_store();
  void on_committed(BarrierQueue::Ticket up_to);
  void hold();
  static void put_outcome(storage::StoredRun& row, const core::RunOutcome& outcome);
  void settle_changed();
  void watch_records();
  [[nodiscard]] std::unique_ptr<RunRecords> make_records(const RunId& run,
                                                         std::unique_ptr<storage::RunDirectory> directory,
                                                         RunObserver observer);
  [[nodiscard]] std::uint64_t recorded_up_to(bool is_patient) const;
  [[nodiscard]] Status restore_state(Replay& replay);
  void redo(const core::CoordinatorCommands& commands);
  void note_carried_out();
  void cut_if_long();
  void on_cut(const Result<std::shared_ptr<const storage::StateCut>>& cut);
  boost::asio::io_context& io_;
  core::CoordinatorSettings settings_;
  core::Coordinator core_;
  CoreClock clock_;
  std::map<NodeId, AgentEnd> agents_;
  std::map<std::uint64_t, std::unique_ptr<net::CoordinatorLink>> arriving_;  ///< Without a first message.
  /// Of agents that are refused: each goes when its agent has read why, after a while, or when others need its place.
  struct TurnedAway {
    std::unique_ptr<net::CoordinatorLink> link;
    std::shared_ptr<net::Timer> limit;
  };
  std::map<std::uint64_t, TurnedAway> turned_away_;
  std::uint64_t links_ = 0;
  std::map<RunId, Run> runs_;
  EndedTrials ended_trials_;  ///< Of experiments in runs_; none of them is there, too.
  RunAccess access_;
  AccountAsks account_asks_;
  std::map<RunId, Run*> live_;  ///< Of runs_: those with records.
  std::set<RunId> changed_;     ///< Of live_: something of them was given to be written, or is.
  /// Have ended, and are written but for their rows, which come with settle(): the events behind these tell their ends.
  std::map<RunId, std::uint64_t> unsettled_;
  BarrierQueue queue_;
  bool is_draining_ = false;
  bool drains_later_ = false;
  net::Timer timer_;
  std::optional<TimePoint> armed_;  ///< No later than the machine's next wake-up.

  StoreObserver store_observer_;
  ObserverOf observer_of_;
  bool is_replaying_ = false;
  BarrierQueue::Ticket last_ticket_ = 0;  ///< Of anything that was given to the store.
  BarrierQueue::Ticket committed_ = 0;
  /// Stored events that something may still have to follow from: a ticket, and the newest event under it.
  std::deque<std::pair<BarrierQueue::Ticket, std::uint64_t>> open_events_;
  std::uint64_t carried_out_ = 0;  ///< The newest event that nothing is still to follow from.
  bool is_cutting_ = false;
  std::uint64_t cut_again_at_ = 0;  ///< After a failed one: events.
  bool is_held_ = false;
  net::Timer watch_timer_;
  bool is_watching_ = false;
  std::optional<boost::asio::executor_work_guard<boost::asio::io_context::executor_type>> uncommitted_;
  std::shared_ptr<CoordinatorShell*> self_;     ///< For handlers that may come when this is gone.
  storage::FileThread files_;                   ///< Of lines of runs; with a store.
  std::unique_ptr<storage::EventStore> store_;  ///< Last: its thread ends first.
};

}  // namespace sgd::coordinator
