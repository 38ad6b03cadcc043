#pragma once
// An agent's decisions: routes events to its runs, numbers facts and keeps them until they are
// acknowledged. Policy of one run is in node_run.hpp.

#include <deque>
#include <map>
#include <optional>

#include "common/base/time.hpp"
#include "launcher/core/agent_io.hpp"
#include "launcher/core/core_allocation.hpp"
#include "launcher/core/node_run.hpp"
#include "launcher/core/random.hpp"

namespace sgd::core {

class Agent {
 public:
  /// Facts without acknowledgement. Only a coordinator that is gone for long can leave as many.
  static constexpr std::size_t kOutboxMax = 65536;
  /// A fact that is not acknowledged for so long is sent again, with all that follow it.
  static constexpr Duration kResendAfter = std::chrono::seconds(2);

  /// `told`: facts of this incarnation that were told and acknowledged before.
  Agent(AgentFacts facts, Random random, std::int64_t told = 0);

  void on(TimePoint now, const AgentEvent& event, AgentCommands& out);
  /// The last event changed nothing but what the next sign of life brings again: a replay may leave it out.
  [[nodiscard]] bool was_soft() const { return was_soft_; }
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;
  [[nodiscard]] std::size_t outbox_size() const { return outbox_.size(); }
  /// Nothing of any run is here, and everything that was told is acknowledged: after LeavingSoon the process may end.
  [[nodiscard]] bool idle() const { return runs_.empty() && outbox_.empty(); }
  [[nodiscard]] const AgentFacts& facts() const { return facts_; }
  [[nodiscard]] const Random& random() const { return random_; }
  /// Facts told so far.
  [[nodiscard]] std::int64_t told() const { return sequence_; }

 private:
  void handle(TimePoint now, const AgentEvent& event, AgentCommands& out);
  void on_coordinator(TimePoint now, const cluster::ToAgent& message, AgentCommands& out);
  void on_worker(TimePoint now, const agent_event::FromWorker& event, AgentCommands& out);
  void forget_gone(AgentCommands& out);
  void tell_state(bool is_new_link, AgentCommands& out) const;
  void on_tick(TimePoint now, AgentCommands& out);
  void on_resumed(TimePoint now, const agent_event::Resumed& resumed);
  void end_orphans(AgentCommands& out);
  void send_facts(TimePoint now, AgentCommands& out);
  [[nodiscard]] NodeRun* find(const RunId& run);

  AgentFacts facts_;
  Random random_;
  CoreAllocation allocation_;
  bool is_leaving_ = false;
  bool was_soft_ = false;
  std::map<RunId, NodeRun> runs_;
  std::map<ConnectionId, RunId> owners_;  ///< Links that have said hello.
  std::deque<cluster::Fact> outbox_;
  std::int64_t sequence_ = 0;
  std::optional<TimePoint> resend_at_;  ///< While the outbox is not empty.
  std::optional<TimePoint> beat_at_;
  std::optional<TimePoint> orphaned_at_;  ///< While the coordinator cannot be reached.
};

}  // namespace sgd::core
