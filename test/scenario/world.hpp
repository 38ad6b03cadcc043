#pragma once
// One coordinator and some agents under a virtual clock. Messages between them are delivered in
// order; everything that would leave the machines (keepers, links, files) is printed instead.

#include <deque>
#include <map>
#include <string>

#include "launcher/core/agent.hpp"
#include "launcher/core/coordinator.hpp"

namespace sgd::test {

class World {
 public:
  void add_node(const NodeId& node, int slots);
  void submit(core::RunDefinition run);
  void stop(const RunId& run, const core::StopRequest& request);
  void agent_event(const NodeId& node, const core::AgentEvent& event);
  /// Moves the clock on, stopping at every wake-up in between.
  void advance(Duration duration);
  /// What has been printed since the last call.
  [[nodiscard]] std::string take_output();
  [[nodiscard]] const core::Coordinator& coordinator() const { return coordinator_; }
  [[nodiscard]] TimePoint now() const { return now_; }

 private:
  void coordinator_event(const core::CoordinatorEvent& event);
  void tell(const NodeId& node, const core::AgentEvent& event);
  void deliver();
  void print(const std::string& line);
  void carry_out(const core::CoordinatorCommand& command);
  void carry_out(const NodeId& node, const core::AgentCommand& command);

  TimePoint now_{};
  core::Coordinator coordinator_;
  std::map<NodeId, core::Agent> agents_;
  std::deque<std::pair<NodeId, cluster::ToAgent>> to_agents_;
  std::deque<std::pair<NodeId, cluster::FromAgent>> to_coordinator_;
  std::string output_;
};

}  // namespace sgd::test
