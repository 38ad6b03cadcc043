#include "test/scenario/world.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "test/scenario/describe.hpp"

namespace sgd::test {

void World::set_node_timeout(Duration timeout) {
  settings_.node_timeout = timeout;
  coordinator_ = core::Coordinator(settings_);
}

void World::set_backfill_limit(Duration limit) {
  settings_.backfill_limit = limit;
  coordinator_ = core::Coordinator(settings_);
}

void World::add_node(core::AgentFacts facts) {
  const NodeId node = facts.node;
  facts.address = "10.0.0." + std::to_string(agents_.size() + 1);
  facts.worker_program = "sgd-worker";
  facts_[node] = std::move(facts);
  restart_agent(node);
}

void World::restart_agent(const NodeId& node) {
  if (agents_.erase(node) > 0) coordinator_event(core::coordinator_event::AgentClosed{node});
  cut_.erase(node);
  core::AgentFacts facts = facts_.at(node);
  facts.incarnation = ++agents_made_;
  agents_.try_emplace(node, facts, core::Secrets({1, 2, 3, agents_made_ + 3}));
  agent_event(node, core::agent_event::Connected{});
}

void World::submit(core::RunDefinition run) {
  coordinator_event(core::coordinator_event::Submitted{std::move(run)});
}

void World::stop(const RunId& run, const core::StopRequest& request) {
  coordinator_event(core::coordinator_event::StopRequested{run, request});
}

void World::order(const NodeId& node, const core::NodeOrder& order) {
  const std::string why_not = coordinator_.why_not(node, order);
  if (!why_not.empty()) print("no order: " + why_not);
  coordinator_event(core::coordinator_event::NodeOrdered{node, order});
}

void World::twin(const NodeId& node) {
  cluster::NodeState state;
  state.node = node;
  state.incarnation = 1000 + agents_made_;
  state.slots = 1;
  state.is_new_link = true;
  coordinator_event(core::coordinator_event::FromAgent{node, state});
}

void World::forget(const RunId& run) {
  coordinator_event(core::coordinator_event::RunForgotten{run});
}

void World::cut(const NodeId& node, bool is_seen) {
  cut_.insert(node);
  if (is_seen) coordinator_event(core::coordinator_event::AgentClosed{node});
  if (is_seen) agent_event(node, core::agent_event::Disconnected{});
}

void World::join(const NodeId& node, bool is_new_link) {
  cut_.erase(node);
  if (is_new_link) agent_event(node, core::agent_event::Connected{});
}

void World::answer_port(const NodeId& node, Generation generation, int port, int workers) {
  core::agent_event::PortReserved answer{"run", generation, port, port == 0 ? "no port is free" : ""};
  for (int worker = 1; worker <= workers; ++worker) answer.worker_ports.push_back(port + worker);
  agent_event(node, answer);
}

void World::pass_signal(int signal) {
  const auto orders = coordinator_.signal_orders("run", signal);
  if (!orders) return print("not passed on: " + orders.error().message);
  for (const core::coordinator_command::SendToAgent& order : orders.value()) carry_out(order);
  deliver();
}

void World::agent_event(const NodeId& node, const core::AgentEvent& event) {
  if (const auto* changed = std::get_if<core::agent_event::SlotsChanged>(&event))
    facts_.at(node).slots = changed->slots;
  tell(node, event);
  deliver();
}

void World::coordinator_event(const core::CoordinatorEvent& event) {
  core::CoordinatorCommands commands;
  coordinator_.on(now_, event, commands);
  for (const core::CoordinatorCommand& command : commands) carry_out(command);
  deliver();
}

void World::tell(const NodeId& node, const core::AgentEvent& event) {
  core::AgentCommands commands;
  agents_.at(node).on(now_, event, commands);
  for (const core::AgentCommand& command : commands) carry_out(node, command);
}

void World::deliver() {
  while (!to_agents_.empty() || !to_coordinator_.empty() || !ports_.empty()) {
    if (!ports_.empty()) {
      const auto [node, port] = std::move(ports_.front());
      ports_.pop_front();
      tell(node, port);
    } else if (!to_coordinator_.empty()) {
      const auto [node, message] = std::move(to_coordinator_.front());
      to_coordinator_.pop_front();
      core::CoordinatorCommands commands;
      coordinator_.on(now_, core::coordinator_event::FromAgent{node, message}, commands);
      for (const core::CoordinatorCommand& command : commands) carry_out(command);
    } else {
      const auto [node, message] = std::move(to_agents_.front());
      to_agents_.pop_front();
      tell(node, core::agent_event::FromCoordinator{message});
    }
  }
}

void World::advance(Duration duration) {
  const TimePoint begin = now_;
  const TimePoint end = now_ + duration;
  int turns = 0;
  for (auto next = next_wakeup(); next && *next <= end; next = next_wakeup()) {
    turns = *next > now_ ? 0 : turns + 1;
    if (turns > 100) return print("A WAKE-UP THAT CHANGES NOTHING");
    now_ = std::max(now_, *next);
    const std::size_t before = output_.size();
    processes_.on_time(now_);
    tick();
    if (output_.size() > before) output_.insert(before, fmt::format("after {}:\n", format_duration(now_ - begin)));
  }
  now_ = end;
}

void World::stand_still(Duration duration) {
  now_ += duration;
  coordinator_event(core::coordinator_event::Tick{});  // The worst order: the clock first, what lay unread last.
  tick();
  processes_.on_time(now_);
}

void World::tick() {
  for (auto& [node, agent] : agents_) agent_event(node, core::agent_event::Tick{});
  coordinator_event(core::coordinator_event::Tick{});
}

std::optional<TimePoint> World::next_wakeup() const {
  std::optional<TimePoint> next;
  const auto consider = [&next](std::optional<TimePoint> at) {
    if (at) next = next ? std::min(*next, *at) : at;
  };
  consider(coordinator_.next_wakeup());
  consider(processes_.next_wakeup());
  for (const auto& [node, agent] : agents_) consider(agent.next_wakeup());
  return next;
}

void World::carry_out(const core::CoordinatorCommand& command) {
  using namespace core::coordinator_command;
  const auto* send = std::get_if<SendToAgent>(&command);
  const bool is_lost = send != nullptr && cut_.contains(send->node);
  const std::string line = describe(command);
  if (!line.empty()) print(line + (is_lost ? " (lost)" : ""));
  if (send != nullptr && !is_lost) to_agents_.emplace_back(send->node, send->message);
  const auto* shared = std::get_if<SendToAgents>(&command);
  if (shared == nullptr) return;
  for (const NodeId& node : shared->nodes)
    if (!cut_.contains(node)) to_agents_.emplace_back(node, shared->message);
}

void World::carry_out(const NodeId& node, const core::AgentCommand& command) {
  if (const auto* up = std::get_if<core::agent_command::TellCoordinator>(&command)) {
    if (!cut_.contains(node)) to_coordinator_.emplace_back(node, up->message);
    return;
  }
  print(describe(node, command));
  const auto* wanted = std::get_if<core::agent_command::ReservePort>(&command);
  if (wanted != nullptr && answers_ports_) {
    core::agent_event::PortReserved answer{wanted->run, wanted->generation, 29500, ""};
    for (int worker = 0; worker < wanted->workers; ++worker) answer.worker_ports.push_back(29501 + worker);
    ports_.emplace_back(node, std::move(answer));
  }
  processes_.on_command(node, command);
}

void World::print(const std::string& line) {
  output_ += line + "\n";
}

std::string World::take_output() {
  return std::exchange(output_, {});
}

}  // namespace sgd::test
