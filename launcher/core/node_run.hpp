#pragma once
// One run on one node: closes the difference between the desired state that the coordinator
// sends and what the keeper and the links report.
//
//   keeper:  none --first desire--> starting --Started--> up --Close sent--> closing --link closed--> none
//                                                          └--link closed unasked--> lost (KeeperLost, strays cleared)
//   group:   empty --want run, ready to spawn--> alive --Clear sent--> clearing --Cleared, links closed--> empty
//   fork server: none --training--> starting --ready--> ready | --several threads--> unusable (plain spawns, said)
//                 ^--- died under ranks that go on without it: started anew, at most kForkServersMax times
//
// A group counts as cleared when its links have closed, too: what its ranks said last comes before it.
// An exit is told upwards only after the rank's link has closed too (at most kLinkDrain later), so that
// what the rank said last comes before it; a link that is not read (agent_command::PauseWorker) gets that time when it
// is read again. Anything of an older generation is dropped.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/core/agent_io.hpp"
#include "launcher/core/core_allocation.hpp"
#include "launcher/core/secrets.hpp"
#include "launcher/core/watchdog.hpp"

namespace sgd::core {

class NodeRun {
 public:
  static constexpr Duration kLinkDrain = std::chrono::milliseconds(200);
  /// Between the request for stacks and the report of who is silent.
  static constexpr Duration kStackTime = std::chrono::milliseconds(200);
  /// Fork servers that may die in one run before ranks are started by exec.
  static constexpr int kForkServersMax = 3;

  NodeRun(RunId id, const AgentFacts& facts, Secrets& tokens, CoreAllocation& allocation);

  void on_desired(TimePoint now, const cluster::DesiredRun& desired, AgentCommands& out);
  void on_keeper_started(TimePoint now, const agent_event::KeeperStarted& started, AgentCommands& out);
  /// Its keeper and all that is below it are to end, for `reason`. Returns whether there was one.
  bool on_orphaned(const std::string& reason, AgentCommands& out);
  void on_keeper(TimePoint now, const keeper::FromKeeper& message, AgentCommands& out);
  void on_keeper_closed(TimePoint now, const agent_event::KeeperClosed& closed, AgentCommands& out);
  void on_strays_cleared(TimePoint now, AgentCommands& out);
  void on_exchange_done(const cluster::ExchangeDone& done, AgentCommands& out);
  /// Error: it is not a live rank of this run, by its token and its process.
  [[nodiscard]] Status on_hello(TimePoint now, ConnectionId connection, int peer_pid, const link::Hello& hello,
                                AgentCommands& out);
  /// Returns whether it matters to what comes later: heartbeats mostly do not.
  bool on_link(TimePoint now, ConnectionId connection, const link::FromWorker& message, AgentCommands& out);
  void on_link_closed(TimePoint now, ConnectionId connection, AgentCommands& out);
  /// The link is not read from here on, and is read again.
  void on_paused(ConnectionId connection);
  void on_unpaused(TimePoint now, ConnectionId connection);
  /// Told to the ranks that have asked for its checkpoint.
  void on_fetch(const link::Fetching& fetching, AgentCommands& out);
  void on_fetch(const link::Fetched& fetched, AgentCommands& out);
  /// Returns whether anything was due.
  bool on_tick(TimePoint now, AgentCommands& out);
  /// Nobody is judged by the time that this agent was away.
  void on_resumed(TimePoint now);
  /// What came of exchanges in parts over another link is forgotten.
  void on_connected() { arriving_.clear(); }
  /// Exchanges that its ranks wait for.
  [[nodiscard]] std::set<std::string> awaited() const;
  /// Generation of the group, alive or last alive.
  [[nodiscard]] Generation spawned() const { return spawned_; }
  /// Keys of exchanges that are finished, or may be: the owner asks for them after each event.
  [[nodiscard]] std::vector<std::string> take_asks() { return std::exchange(asks_out_, {}); }
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;

  /// Its ranks are those whose slots are not free: alive, or not known to be dead.
  [[nodiscard]] cluster::HeldRun held() const;
  /// True when nothing of the run is here and none is wanted.
  [[nodiscard]] bool gone() const { return gone_; }
  /// Facts that wait for a sequence number; the owner takes them after each event.
  [[nodiscard]] std::vector<cluster::Fact> take_facts();

 private:
  enum class Keeper { kNone, kStarting, kUp, kClosing, kLost };
  enum class ForkServer { kNone, kStarting, kReady, kUnusable };
  enum class Group { kEmpty, kAlive, kClearing };

  struct RankRecord {
    int local_rank = 0;
    RankShare share;
    std::string token;
    int pid = 0;
    std::optional<ConnectionId> connection;
    int link_pid = 0;  ///< Who has the connection.
    bool assigned = false;
    std::int64_t step = 0;  ///< Of its last heartbeat.
    bool is_ready = false;  ///< Its state is restored; it can be asked for its stack.
    bool asked_to_stop = false;
    bool asked_to_leave = false;
    bool exit_told = false;
    bool start_told = false;
    bool is_paused = false;  ///< Its link is not read.
    bool had_time = false;   ///< Since its end it was read again: it is waited for once, whoever else writes there.
    std::string failure_message;         ///< What the rank said in `failed`.
    std::optional<keeper::Exited> exit;  ///< Held until the link has closed.
    TimePoint exit_deadline;
    std::optional<std::string> fetching;       ///< Path of the checkpoint that it waits for.
    std::map<std::string, std::size_t> given;  ///< Exchange values in this generation: a digest by key.
    std::set<std::string> unanswered;          ///< Keys of them whose exchange it waits for.
    [[nodiscard]] bool is_unheard() const { return is_paused && !had_time; }
  };

  void reconcile(TimePoint now, AgentCommands& out);
  void close_keeper(AgentCommands& out);
  void start_keeper_if_needed(AgentCommands& out);
  bool fork_server_settled(AgentCommands& out);
  void spawn_all(AgentCommands& out);
  keeper::Spawn spawn_of(Rank rank, RankRecord& record) const;
  void on_fork_server_failed(const keeper::ForkServerFailed& failed, AgentCommands& out);
  void start_fork_server(AgentCommands& out);
  void clear_group(AgentCommands& out);
  void ask_to_leave(AgentCommands& out);
  void end_clearing(TimePoint now, AgentCommands& out);
  bool check_silence(TimePoint now, AgentCommands& out);
  void keep_stacks(AgentCommands& out);
  void ask_to_stop(TimePoint now, AgentCommands& out);
  [[nodiscard]] bool is_unheard() const;
  void on_spawned(TimePoint now, const keeper::Spawned& spawned, AgentCommands& out);
  [[nodiscard]] Status check_process(const RankRecord& record) const;
  /// Returns why not, in words; empty: it is on its way.
  [[nodiscard]] std::string give(Rank rank, RankRecord& record, const link::ExchangePut& put);
  void assign(Rank rank, RankRecord& record, AgentCommands& out);
  void tell_exit(TimePoint now, Rank rank, RankRecord& record);
  void group_cleared(int killed);
  void tell_keeper_lost(cluster::KeeperLost lost);
  /// Of `generation`, whatever is wanted by now.
  void say(Generation generation, cluster::FactBody body);
  [[nodiscard]] bool wants_ranks() const {
    return desired_.want == cluster::Want::kRun || desired_.want == cluster::Want::kLeave;
  }
  void tell_keeper(keeper::ToKeeper message, AgentCommands& out);
  [[nodiscard]] Duration heartbeat_setting(const char* key, Duration otherwise) const;
  [[nodiscard]] bool is_training() const { return desired_.job.contains("training"); }
  [[nodiscard]] RankRecord* find(Rank rank);

  RunId id_;
  const AgentFacts& facts_;
  Secrets& tokens_;
  CoreAllocation& allocation_;
  cluster::DesiredRun desired_;
  std::string link_path_;  ///< The run's own socket, from the start of its keeper on.
  Keeper keeper_ = Keeper::kNone;
  bool is_orphan_ = false;  ///< kLost by our own order, and the coordinator is told.
  ForkServer fork_server_ = ForkServer::kNone;
  Group group_ = Group::kEmpty;
  Generation spawned_ = 0;             ///< Generation of the group, alive or last alive.
  Generation keeper_generation_ = 0;   ///< For which the keeper was started.
  Generation cleared_told_ = 0;        ///< Newest generation for which Cleared was told.
  bool was_cleared_by_order_ = false;  ///< SIGKILL exits from now on are ours.
  bool gone_ = false;
  bool has_closed_ = false;  ///< The keeper has said that nothing below it is left.
  std::optional<TimePoint> stop_deadline_;
  std::optional<keeper::Cleared> cleared_;  ///< The keeper is done; links are still open.
  TimePoint links_deadline_;
  int fork_servers_lost_ = 0;
  Watchdog watchdog_;
  std::vector<Silence> silent_;  ///< To be told at silence_deadline_.
  TimePoint silence_deadline_;
  std::map<Rank, RankRecord> ranks_;
  std::map<ConnectionId, Rank> connections_;
  std::map<std::string, std::vector<nlohmann::json>> arriving_;  ///< Values of exchanges of which parts are here.
  std::vector<std::string> asks_out_;
  std::vector<cluster::Fact> facts_out_;
};

}  // namespace sgd::core
