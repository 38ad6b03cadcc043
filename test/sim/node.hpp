#pragma once
// One node: its agent, the keepers that the agent has started, and its link to the coordinator. A node
// that crashes or whose agent ends comes back as a new incarnation; an agent that is killed, as the one that it
// was: it begins with its journal's state, takes the events since anew, and then hears what keepers and ranks had to
// say meanwhile.

#include <map>
#include <string>
#include <vector>

#include "launcher/core/agent.hpp"
#include "launcher/core/journal_filter.hpp"
#include "launcher/storage/agent_state_codec.hpp"
#include "test/sim/host.hpp"
#include "test/sim/last_words.hpp"
#include "test/sim/wire.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class Cluster;
class Keeper;
class Worker;

class Node {
 public:
  Node(World& world, Cluster& cluster, NodeId id, const NodePlan& plan);

  void boot();
  /// Everything on it is gone at once, and nobody says goodbye.
  void crash();
  /// The agent's process ends; its keepers follow within moments.
  void end_agent();
  /// The agent's process is killed; what it had started waits for the next one.
  void kill_agent();
  /// Which is here now.
  void take_over();
  /// It is told to end: says so, ends, and comes back much later.
  void preempt();
  /// It ends, or its agent does, and nothing of it comes back.
  void go_for_good(bool is_crash);
  void set_slots(int slots);
  void pause(Duration duration);

  void tell(core::AgentEvent event);
  /// 0: there is no agent to connect to.
  [[nodiscard]] core::ConnectionId connect(Worker& worker);
  void disconnect(core::ConnectionId connection) { workers_.erase(connection); }

  [[nodiscard]] const NodeId& id() const { return id_; }
  [[nodiscard]] Cluster& cluster() { return cluster_; }
  [[nodiscard]] Wire& wire() { return wire_; }
  [[nodiscard]] LastWords& last_words() { return last_words_; }
  [[nodiscard]] bool is_up() const { return agent_.alive(); }
  [[nodiscard]] bool is_away() const { return is_away_; }
  [[nodiscard]] bool is_gone() const { return is_gone_; }
  [[nodiscard]] bool paused() const { return agent_.paused(); }
  [[nodiscard]] Incarnation incarnation() const { return incarnation_; }
  [[nodiscard]] int slots() const { return slots_; }
  [[nodiscard]] const NodePlan& plan() const { return plan_; }
  /// That are kept for a run: MASTER_PORT first; none: empty, or 0 alone while it is not known that there is none.
  [[nodiscard]] std::vector<int> ports(const RunId& run) const;
  [[nodiscard]] const std::map<RunId, Keeper*>& keepers() const { return keepers_; }
  /// Newest generation of a run that this incarnation of the agent was told.
  [[nodiscard]] Generation told(const RunId& run) const;
  /// Nothing of that generation is to be left here.
  [[nodiscard]] bool is_told_to_end(const RunId& run) const;
  /// Since when neither the agent nor its link has been in trouble.
  [[nodiscard]] TimePoint healthy_since() const;

 private:
  void observe(const core::AgentEvent& event);
  void write_down(const core::AgentEvent& event);
  void begin_journal();
  void carry_out(core::AgentCommand&& command);
  void start_keeper(const RunId& run);
  void tell_keeper(const RunId& run, keeper::ToKeeper message);
  void tell_worker(core::ConnectionId connection, link::ToWorker message);
  void clear_strays(const RunId& run);
  void reserve_port(const core::agent_command::ReservePort& wanted);

  World& world_;
  Cluster& cluster_;
  NodeId id_;
  const NodePlan& plan_;
  int slots_;
  Incarnation incarnation_ = 0;
  Host<core::Agent, core::AgentEvent, core::agent_event::Tick, core::AgentCommand> agent_;
  Wire wire_;
  LastWords last_words_;
  std::map<RunId, Keeper*> keepers_;
  std::map<RunId, Keeper*> lost_;  ///< Dead, and their strays are not cleared yet.
  std::map<core::ConnectionId, Worker*> workers_;
  std::map<core::ConnectionId, Worker*> paused_;  ///< Not read; ended or not.
  std::map<RunId, Generation> newest_desired_;
  std::map<RunId, Generation> ended_;        ///< Newest that it was told to end, and its keeper.
  std::map<RunId, std::vector<int>> ports_;  ///< Kept by the agent's process.
  int processes_ = 0;                        ///< Of the agent, that there have been.
  core::ConnectionId next_connection_ = 1;
  /// Where the machine began, and what it was told since, as its journal has it.
  struct Journal {
    std::vector<storage::StateRow> state;
    std::vector<core::TimedEvent> events;
    std::int64_t told = 0;  ///< Facts, when the newest was written.
    core::JournalFilter filter;
    int most = 0;  ///< Events, before it begins anew.
  };
  Journal journal_;
  std::size_t journals_ = 0;  ///< That there have been.
  bool is_away_ = false;
  bool is_gone_ = false;
  std::vector<core::AgentEvent> unheard_;  ///< Said while it was away.
  TimePoint trouble_until_{};
};

}  // namespace sgd::sim
