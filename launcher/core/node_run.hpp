#pragma once
// One run on one node: closes the difference between the desired state that the coordinator
// sends and what the keeper and the links report.
//
//   keeper:  none --first desire--> starting --Started--> up --Close sent--> closing --link closed--> ended --> none
//                                                          └--link closed unasked--> lost (KeeperLost, strays cleared)
//   group:   empty --want run, ready to spawn--> alive --Clear sent--> clearing --Cleared, links closed--> empty
//            a command's, unwanted: alive --SIGTERM to groups, all ended or clear_grace_s over--> Clear sent
//   port:    none --want prepare--> asked for --answer--> reserved --next generation, want gone--> none
//   fork server: none --training, Python--> starting --ready--> ready | --it must not fork--> unusable (exec, said)
//                 ^--- died under ranks that go on without it: started anew, at most kForkServersMax times
//
// A group counts as cleared, and an ended keeper as none, when its links have closed, too: what its ranks said last
// comes before it.
// An exit is told upwards only after the rank's link has closed too (at most kLinkDrain after its last word), so that
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
#include "launcher/core/node_run_state.hpp"
#include "launcher/core/secrets.hpp"

namespace sgd::core {

/// What all runs of an agent share.
struct NodeRunHome {
  const AgentFacts& facts_;
  Secrets& tokens_;
  CoreAllocation& allocation_;
};

class NodeRun : private NodeRunState, private NodeRunHome {
 public:
  using State = NodeRunState;
  static constexpr Duration kLinkDrain = std::chrono::milliseconds(200);
  /// As long as something of a rank that has ended is still heard; others may hold its link, and go on.
  static constexpr Duration kLastWordsMax = std::chrono::seconds(10);
  /// Between the request for stacks and the report of who is silent.
  static constexpr Duration kStackTime = std::chrono::milliseconds(200);
  /// Fork servers that may die in one run before ranks are started by exec.
  static constexpr int kForkServersMax = 3;
  /// Checkpoints that one rank may ask for: each of those that it may go on from, and some of them again.
  static constexpr int kFetchesMax = 32;

  NodeRun(RunId id, const NodeRunHome& home);
  /// Goes on as the machine that `state` was taken of.
  NodeRun(State state, const NodeRunHome& home) : State(std::move(state)), NodeRunHome(home) {}
  /// Between two events it is all there is.
  [[nodiscard]] const State& state() const { return *this; }

  void on_desired(TimePoint now, const cluster::DesiredRun& desired, AgentCommands& out);
  void on_keeper_started(TimePoint now, const agent_event::KeeperStarted& started, AgentCommands& out);
  /// Its keeper and all that is below it are to end, for `reason`. Returns whether there was one.
  bool on_orphaned(const std::string& reason, AgentCommands& out);
  void on_keeper(TimePoint now, const keeper::FromKeeper& message, AgentCommands& out);
  void on_keeper_closed(TimePoint now, const agent_event::KeeperClosed& closed, AgentCommands& out);
  void on_strays_cleared(TimePoint now, AgentCommands& out);
  void on_port(const agent_event::PortReserved& reserved);
  void on_exchange_done(const cluster::ExchangeDone& done, AgentCommands& out);
  void on_signal(const cluster::PassSignal& signal, AgentCommands& out) const;
  void on_errors_ask(const cluster::ErrorsAsk& ask, AgentCommands& out);
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
  /// Nobody is judged by the time that this agent was away; what this process kept from others is kept again.
  void on_resumed(TimePoint now, AgentCommands& out);
  /// What came of exchanges in parts over another link is forgotten.
  void on_connected() { arriving_.clear(); }
  /// Exchanges that its ranks wait for.
  [[nodiscard]] std::set<std::string> awaited() const;
  /// Generation of the group, alive or last alive.
  [[nodiscard]] Generation spawned() const { return spawned_; }
  [[nodiscard]] GenerationUid spawned_uid() const { return spawned_uid_; }
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
  void reconcile(TimePoint now, AgentCommands& out);
  void settle_port(AgentCommands& out);
  [[nodiscard]] agent_command::ReservePort wanted_port() const;
  [[nodiscard]] bool have_had_their_time(TimePoint now, AgentCommands& out);
  void ask_to_end(Rank rank, RankRecord& record, AgentCommands& out);
  void close_keeper(AgentCommands& out);
  void start_keeper_if_needed(AgentCommands& out);
  bool fork_server_settled(AgentCommands& out);
  void spawn_all(AgentCommands& out);
  keeper::Spawn spawn_of(Rank rank, RankRecord& record) const;
  void on_fork_server_failed(TimePoint now, const keeper::ForkServerFailed& failed, AgentCommands& out);
  [[nodiscard]] bool uses_fork_server() const;
  void start_fork_server(AgentCommands& out);
  void clear_group(AgentCommands& out);
  void ask_to_leave(AgentCommands& out);
  void end_clearing(TimePoint now, AgentCommands& out);
  void forget_keeper(TimePoint now, AgentCommands& out);
  bool check_silence(TimePoint now, AgentCommands& out);
  void keep_stacks(AgentCommands& out);
  [[nodiscard]] bool can_agree() const;
  void ask_to_stop(TimePoint now, AgentCommands& out);
  [[nodiscard]] bool is_unheard() const;
  void wait_for_more(TimePoint now, RankRecord& record);
  void on_spawned(TimePoint now, const keeper::Spawned& spawned, AgentCommands& out);
  [[nodiscard]] Status check_process(const RankRecord& record) const;
  /// Returns why not, in words; empty: it is on its way.
  [[nodiscard]] std::string give(Rank rank, RankRecord& record, const link::ExchangePut& put);
  void assign(Rank rank, RankRecord& record, AgentCommands& out);
  void on_fetch_asked(RankRecord& record, const std::string& path, AgentCommands& out);
  void tell_exit(TimePoint now, Rank rank, RankRecord& record);
  void on_dropped(const keeper::OutputDropped& dropped);
  void tell_lost(Rank rank, RankRecord& record);
  void group_cleared(int killed);
  void tell_keeper_lost(cluster::KeeperLost lost);
  /// Of the group, alive or last alive, whatever is wanted by now.
  void say(cluster::FactBody body);
  /// Of the generation that is wanted.
  void say_of_wanted(cluster::FactBody body);
  void say(Generation generation, GenerationUid uid, cluster::FactBody body);
  /// The group is, or was last, of the generation that is wanted.
  [[nodiscard]] bool is_of_desired() const { return spawned_ == desired_.generation && spawned_uid_ == desired_.uid; }
  /// Or will want them in a moment.
  [[nodiscard]] bool wants_ranks() const {
    return desired_.want == cluster::Want::kPrepare || desired_.want == cluster::Want::kRun ||
           desired_.want == cluster::Want::kLeave;
  }
  void tell_keeper(keeper::ToKeeper message, AgentCommands& out) const;
  /// The errors of ranks of this group, within the bounds of a fact.
  [[nodiscard]] std::vector<OtherError> own(const std::vector<OtherError>& others);
  /// Its ranks are those that are spoken of, and their keeper can be told something.
  [[nodiscard]] bool is_at_work(Generation generation, GenerationUid uid) const {
    return keeper_ == Keeper::kUp && group_ == Group::kAlive && generation == spawned_ && uid == spawned_uid_;
  }
  [[nodiscard]] Duration heartbeat_setting(const char* key, Duration otherwise) const;
  [[nodiscard]] bool is_training() const { return desired_.job->contains("training"); }
  [[nodiscard]] RankRecord* find(Rank rank);
};
static_assert(sizeof(NodeRun) == sizeof(NodeRunState) + sizeof(NodeRunHome),
              "a field of the machine belongs into NodeRunState");

}  // namespace sgd::core
