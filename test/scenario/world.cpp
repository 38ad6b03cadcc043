#include "test/scenario/world.hpp"

#include <fmt/format.h>

namespace sgd::test {
namespace {

std::string describe(const keeper::ToKeeper& message) {
  if (const auto* spawn = std::get_if<keeper::Spawn>(&message))
    return fmt::format("spawn generation {} rank {}{} cpus [{}] {}", spawn->generation, spawn->rank,
                       spawn->fork_server ? " by fork server" : "", fmt::join(spawn->cpus, ","), spawn->argv.front());
  if (const auto* signal = std::get_if<keeper::Signal>(&message))
    return fmt::format("signal {} to rank {}", signal->signal, signal->rank);
  if (const auto* clear = std::get_if<keeper::Clear>(&message)) return fmt::format("clear generation {}", clear->generation);
  if (std::holds_alternative<keeper::Close>(message)) return "close";
  if (std::holds_alternative<keeper::StartForkServer>(message)) return "start fork server";
  return "output ack";
}

std::string describe(const link::ToWorker& message) {
  if (const auto* assignment = std::get_if<link::Assignment>(&message))
    return fmt::format("assignment generation {} rank {} of {}, local {} of {}, node {} of {}", assignment->generation,
                       assignment->rank, assignment->world_size, assignment->local_rank, assignment->local_world_size,
                       assignment->node_rank, assignment->node_count);
  if (const auto* value = std::get_if<link::ExchangeValue>(&message))
    return fmt::format("exchange {} rank {} of {}: {}", value->key, value->rank, value->count, value->value.dump());
  if (const auto* stop = std::get_if<link::Stop>(&message))
    return fmt::format("stop within {:.1f} s{}", stop->deadline_s, stop->checkpoint ? " with a checkpoint" : "");
  return "other";
}

const char* describe(cluster::Want want) {
  switch (want) {
    case cluster::Want::kRun: return "run";
    case cluster::Want::kLeave: return "leave";
    case cluster::Want::kStop: return "stop";
    case cluster::Want::kClear: return "clear";
    case cluster::Want::kGone: return "gone";
  }
  return "?";
}

}  // namespace

void World::add_node(const NodeId& node, int slots) {
  core::AgentFacts facts;
  facts.node = node;
  facts.address = "10.0.0." + std::to_string(agents_.size() + 1);
  facts.incarnation = agents_.size() + 1;
  facts.slots = slots;
  for (int core = 0; core < slots; ++core) facts.allowed_cores.push_back(core);
  facts.worker_program = "sgd-worker";
  facts.link_path = "link.sock";
  agents_.try_emplace(node, facts, core::Random({1, 2, 3, agents_.size() + 4}));
  agent_event(node, core::agent_event::Connected{});
}

void World::submit(core::RunDefinition run) { coordinator_event(core::coordinator_event::Submitted{std::move(run)}); }

void World::stop(const RunId& run, const core::StopRequest& request) {
  coordinator_event(core::coordinator_event::StopRequested{run, request});
}

void World::agent_event(const NodeId& node, const core::AgentEvent& event) {
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
  while (!to_agents_.empty() || !to_coordinator_.empty()) {
    if (!to_coordinator_.empty()) {
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
  const TimePoint end = now_ + duration;
  for (;;) {
    std::optional<TimePoint> next = coordinator_.next_wakeup();
    for (const auto& [node, agent] : agents_) {
      const auto at = agent.next_wakeup();
      if (at) next = next ? std::min(*next, *at) : at;
    }
    if (!next || *next > end) break;
    now_ = std::max(now_, *next);
    for (auto& [node, agent] : agents_) agent_event(node, core::agent_event::Tick{});
    coordinator_event(core::coordinator_event::Tick{});
    const auto again = coordinator_.next_wakeup();
    if (again && *again <= now_ && next == again) break;  // A wake-up that changes nothing would spin.
  }
  now_ = end;
}

void World::carry_out(const core::CoordinatorCommand& command) {
  using namespace core::coordinator_command;
  if (const auto* send = std::get_if<SendToAgent>(&command)) {
    if (const auto* desired = std::get_if<cluster::DesiredRun>(&send->message))
      print(fmt::format("coordinator -> {}: want {} generation {}, {} of {} ranks", send->node, describe(desired->want),
                        desired->generation, desired->ranks.size(), desired->world_size));
    to_agents_.emplace_back(send->node, send->message);
  } else if (const auto* reserve = std::get_if<ReservePort>(&command)) {
    print(fmt::format("reserve a port on {}", reserve->node));
    core::CoordinatorCommands more;
    coordinator_.on(now_, core::coordinator_event::PortReserved{reserve->run, 29500}, more);
    for (const core::CoordinatorCommand& next : more) carry_out(next);
  } else if (const auto* event = std::get_if<RecordEvent>(&command)) {
    print("event " + event->event.dump());
  } else if (const auto* metrics = std::get_if<RecordMetrics>(&command)) {
    print("metrics " + metrics->metrics.dump());
  } else if (const auto* warning = std::get_if<Warn>(&command)) {
    print("warning " + warning->message);
  } else if (const auto* finished = std::get_if<FinishRun>(&command)) {
    const core::RunOutcome& outcome = finished->outcome;
    print(fmt::format("finished {} exit code {}, {} failures{}{}", outcome.state, outcome.exit_code, outcome.failures,
                      outcome.error.empty() ? "" : ": ", outcome.error));
  }
}

void World::carry_out(const NodeId& node, const core::AgentCommand& command) {
  using namespace core::agent_command;
  if (const auto* up = std::get_if<TellCoordinator>(&command)) {
    to_coordinator_.emplace_back(node, up->message);
  } else if (const auto* keeper = std::get_if<TellKeeper>(&command)) {
    print(fmt::format("{} -> keeper: {}", node, describe(keeper->message)));
  } else if (const auto* worker = std::get_if<TellWorker>(&command)) {
    print(fmt::format("{} -> link {}: {}", node, worker->connection, describe(worker->message)));
  } else if (const auto* drop = std::get_if<DropLink>(&command)) {
    print(fmt::format("{}: drop link {}: {}", node, drop->connection, drop->reason));
  } else if (std::holds_alternative<StartKeeper>(command)) {
    print(fmt::format("{}: start keeper", node));
  } else if (std::holds_alternative<ClearStrays>(command)) {
    print(fmt::format("{}: clear strays", node));
  } else if (std::holds_alternative<ForgetRun>(command)) {
    print(fmt::format("{}: nothing of the run is left", node));
  }
}

void World::print(const std::string& line) { output_ += line + "\n"; }

std::string World::take_output() { return std::exchange(output_, {}); }

}  // namespace sgd::test
