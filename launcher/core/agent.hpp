#pragma once
// An agent's decisions: routes events to its runs, and keeps facts until they are acknowledged (outbox.hpp). A rank
// whose run has told as much as may wait is not read until half of that is acknowledged. Policy of one run is in
// node_run.hpp.

#include <deque>
#include <map>
#include <optional>
#include <set>

#include "common/base/time.hpp"
#include "launcher/core/agent_io.hpp"
#include "launcher/core/core_allocation.hpp"
#include "launcher/core/node_run.hpp"
#include "launcher/core/outbox.hpp"
#include "launcher/core/secrets.hpp"

namespace sgd::core {

/// All that the machine knows beside its runs, as a value. A new field belongs here (Agent does not compile with one of
/// its own), and into its list in storage/agent_state_fields.hpp (which does not compile without it).
struct AgentState {
  AgentFacts facts_;
  Secrets tokens_;
  CoreAllocation allocation_;
  bool is_leaving_ = false;
  std::map<ConnectionId, RunId> owners_;  ///< Links that have said hello.
  std::map<ConnectionId, RunId> paused_;  ///< Links that are not read.
  std::set<RunId> warned_;                ///< Of whose paused links people were told.
  Outbox outbox_;
  bool is_linked_ = false;
  std::deque<cluster::ExchangeAsk> asks_;  ///< The first is on its way.
  std::optional<TimePoint> beat_at_;
  std::optional<TimePoint> orphaned_at_;  ///< While the coordinator cannot be reached.
};
struct AgentRuns {
  std::map<RunId, NodeRun> runs_;  ///< Which know where their agent is.
  bool was_soft_ = false;          ///< In the event in work.
};
/// Of one that was saved.
struct SavedAgent {
  AgentState state;
  std::map<RunId, NodeRunState> runs;
};

class Agent : private AgentState, private AgentRuns {
 public:
  /// `tokens`: for ranks. `told`: facts of this incarnation that were told and acknowledged before.
  Agent(AgentFacts facts, Secrets tokens, std::int64_t told = 0);
  /// Goes on as the machine that `saved` was taken of.
  explicit Agent(SavedAgent saved);
  Agent(const Agent&) = delete;
  Agent& operator=(const Agent&) = delete;
  /// Between two events these two are all there is.
  [[nodiscard]] const AgentState& state() const { return *this; }
  [[nodiscard]] const std::map<RunId, NodeRun>& runs() const { return runs_; }

  void on(TimePoint now, const AgentEvent& event, AgentCommands& out);
  /// The last event changed nothing but what the next sign of life brings again: a replay may leave it out.
  [[nodiscard]] bool was_soft() const { return was_soft_; }
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;
  /// Nothing of any run is here, and everything that was told is acknowledged: after LeavingSoon the process may end.
  [[nodiscard]] bool idle() const { return runs_.empty() && outbox_.empty(); }
  [[nodiscard]] const AgentFacts& facts() const { return facts_; }
  [[nodiscard]] const Secrets& tokens() const { return tokens_; }
  /// Facts told so far.
  [[nodiscard]] std::int64_t last_sequence() const { return outbox_.last_sequence(); }

 private:
  void handle(TimePoint now, const AgentEvent& event, AgentCommands& out);
  void on_coordinator(TimePoint now, const cluster::ToAgent& message, AgentCommands& out);
  void on_worker(TimePoint now, const agent_event::FromWorker& event, AgentCommands& out);
  void forget_gone(AgentCommands& out);
  void tell_state(bool is_new_link, AgentCommands& out) const;
  void on_tick(TimePoint now, AgentCommands& out);
  void on_resumed(TimePoint now, const agent_event::Resumed& resumed, AgentCommands& out);
  void end_orphans(AgentCommands& out);
  void take_facts(const AgentEvent& event, AgentCommands& out);
  void pause(const RunId& run, ConnectionId connection, AgentCommands& out);
  void on_unlinked();
  void ask_all(AgentCommands& out);
  void ask(cluster::ExchangeAsk ask, AgentCommands& out);
  void on_exchange_done(const cluster::ExchangeDone& part, AgentCommands& out);
  void resume_links(TimePoint now, AgentCommands& out);
  [[nodiscard]] NodeRun* find(const RunId& run);
  [[nodiscard]] NodeRunHome home() { return {facts_, tokens_, allocation_}; }
};
static_assert(sizeof(Agent) == sizeof(AgentState) + sizeof(AgentRuns),
              "a field of the machine belongs into AgentState");

}  // namespace sgd::core
