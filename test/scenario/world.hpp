#pragma once
// One coordinator and some agents under a virtual clock. Messages between them are delivered in
// order, unless their link is cut; everything that would leave the machines (keepers, links, files) is
// printed instead, and shown to whoever plays the processes.

#include <deque>
#include <map>
#include <set>
#include <string>

#include "launcher/core/agent.hpp"
#include "launcher/core/coordinator.hpp"

namespace sgd::test {

/// Who plays keepers and ranks.
class Processes {
 public:
  virtual ~Processes() = default;
  virtual void on_command(const NodeId& node, const core::AgentCommand& command) = 0;
  /// When something is to be said by itself, and the time has come.
  [[nodiscard]] virtual std::optional<TimePoint> next_wakeup() const = 0;
  virtual void on_time(TimePoint now) = 0;
};

class World {
 public:
  explicit World(Processes& processes) : processes_(processes) {}

  /// Call it before anything else.
  void set_node_timeout(Duration timeout);
  void set_backfill_limit(Duration limit);
  void add_node(core::AgentFacts facts);
  /// A new agent process in the place of `node`'s; what the old one knew is lost.
  void restart_agent(const NodeId& node);
  void submit(core::RunDefinition run);
  void stop(const RunId& run, const core::StopRequest& request);
  void order(const NodeId& node, const core::NodeOrder& order);
  /// Another agent says that it is `node`.
  void twin(const NodeId& node);
  void forget(const RunId& run);
  void agent_event(const NodeId& node, const core::AgentEvent& event);
  /// From now on messages between the coordinator and `node` are lost; with `is_seen` the coordinator sees its link
  /// close.
  void cut(const NodeId& node, bool is_seen);
  /// They arrive again; with `is_new_link` both know that something was cut.
  void join(const NodeId& node, bool is_new_link);
  /// From now on nodes do not say which ports they have reserved, but by answer_port(); or they do again.
  void hold_ports_back(bool are_held) { answers_ports_ = !are_held; }
  /// `port` 0: there is none; the `workers` after it are those of the ranks.
  void answer_port(const NodeId& node, Generation generation, int port, int workers);
  /// The launcher of the story's run has got a signal that ends nothing.
  void pass_signal(int signal);
  /// Moves the clock on, stopping at every wake-up in between.
  void advance(Duration duration);
  /// Moves the clock on while everything stands still; then everybody looks at it.
  void stand_still(Duration duration);
  /// What has been printed since the last call.
  [[nodiscard]] std::string take_output();
  [[nodiscard]] const core::Coordinator& coordinator() const { return coordinator_; }
  [[nodiscard]] TimePoint now() const { return now_; }

 private:
  void coordinator_event(const core::CoordinatorEvent& event);
  void tell(const NodeId& node, const core::AgentEvent& event);
  void tick();
  void deliver();
  void print(const std::string& line);
  void carry_out(const core::CoordinatorCommand& command);
  void carry_out(const NodeId& node, const core::AgentCommand& command);
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;

  Processes& processes_;
  core::CoordinatorSettings settings_;
  TimePoint now_{};
  core::Coordinator coordinator_;
  std::map<NodeId, core::AgentFacts> facts_;
  std::map<NodeId, core::Agent> agents_;
  std::set<NodeId> cut_;
  std::uint64_t agents_made_ = 0;
  bool answers_ports_ = true;
  std::deque<std::pair<NodeId, core::agent_event::PortReserved>> ports_;  ///< Reserved, and to be said.
  std::deque<std::pair<NodeId, cluster::ToAgent>> to_agents_;
  std::deque<std::pair<NodeId, cluster::FromAgent>> to_coordinator_;
  std::string output_;
};

}  // namespace sgd::test
