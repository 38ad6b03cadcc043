#include "test/sim/twin.hpp"

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "launcher/core/agent.hpp"
#include "launcher/core/coordinator.hpp"
#include "launcher/storage/agent_state_codec.hpp"
#include "launcher/storage/event_codec.hpp"
#include "launcher/storage/state_codec.hpp"

namespace sgd::sim {
namespace {

using AgentTwin = Twin<core::Agent, core::AgentEvent, core::AgentCommand>;
using CoordinatorTwin = Twin<core::Coordinator, core::CoordinatorEvent, core::CoordinatorCommand>;

/// The simulator's jobs say only what its ranks read, which a loader refuses: while a state is text, this stands for
/// each of them.
const job::JobSpec& stand_in() {
  static const job::JobSpec job = *job::load_resolved({{"name", "job"}, {"command", {"true"}}}).job;
  return job;
}

core::CoordinatorState with_jobs(const core::CoordinatorState& state,
                                 const std::function<job::JobSpec(const RunId&)>& job_of) {
  core::CoordinatorState out = state;
  for (auto& [id, machine] : out.runs_) {
    core::RunState run = machine.state();
    run.definition_.job = job_of(id);
    machine = core::RunMachine(std::move(run));
  }
  return out;
}

std::unique_ptr<core::Coordinator> copy_of(const core::Coordinator& machine) {
  const core::CoordinatorState& state = machine.state();
  const auto text = storage::encode_state(with_jobs(state, [](const RunId&) { return stand_in(); }));
  auto read = storage::decode_state(text);
  if (!read) violated("a saved state cannot be read: {}", read.error().message);
  const auto again = with_jobs(read.value(), [&state](const RunId& id) { return state.runs_.at(id).definition().job; });
  return std::make_unique<core::Coordinator>(machine.settings(), again);
}

std::unique_ptr<core::Agent> copy_of_agent(const core::Agent& machine) {
  auto saved = storage::decode_agent(storage::encode_agent(machine));
  if (!saved) violated("a saved agent cannot be read: {}", saved.error().message);
  return std::make_unique<core::Agent>(std::move(saved).value());
}

struct AgentWords {
  std::string operator()(const core::agent_command::TellCoordinator& one) const {
    return "coordinator " + cluster::encode(one.message);
  }
  std::string operator()(const core::agent_command::TellKeeper& one) const {
    return "keeper " + one.run + keeper::encode(one.message);
  }
  std::string operator()(const core::agent_command::TellWorker& one) const {
    return fmt::format("worker {} {} {}", one.connection, one.run, link::encode(one.message));
  }
  std::string operator()(const core::agent_command::StartKeeper& one) const {
    return fmt::format("start {} {}", one.run, one.run_dir);
  }
  std::string operator()(const core::agent_command::DropLink& one) const {
    return fmt::format("drop {} {}", one.connection, one.reason);
  }
  std::string operator()(const core::agent_command::PauseWorker& one) const {
    return fmt::format("pause {}", one.connection);
  }
  std::string operator()(const core::agent_command::ResumeWorker& one) const {
    return fmt::format("resume {}", one.connection);
  }
  std::string operator()(const core::agent_command::FetchCheckpoint& one) const {
    return fmt::format("fetch {} {}", one.run, one.path);
  }
  std::string operator()(const core::agent_command::KeepStacks& one) const {
    return fmt::format("stacks {} {} {} {}", one.run, one.generation, one.run_dir, one.pids.size());
  }
  std::string operator()(const core::agent_command::ReservePort& one) const {
    return fmt::format("reserve {} {} {}", one.run, one.generation, one.workers);
  }
  std::string operator()(const core::agent_command::HoldPort& one) const {
    return fmt::format("hold {} {} {}", one.run, one.port, fmt::join(one.worker_ports, " "));
  }
  std::string operator()(const core::agent_command::ReleasePort& one) const { return "release " + one.run; }
  std::string operator()(const core::agent_command::Warn& one) const { return "warn " + one.message; }
  std::string operator()(const core::agent_command::ClearStrays& one) const { return "strays " + one.run; }
  std::string operator()(const core::agent_command::ForgetRun& one) const { return "forget " + one.run; }
};

struct Words {
  std::string operator()(const core::coordinator_command::Store& one) const {
    // Of a submission the job cannot be compared as text that is read again, and need not be: it is the event's.
    return fmt::format("store at {} event {}", one.at.time_since_epoch().count(), one.event.index());
  }
  std::string operator()(const core::coordinator_command::SendToAgent& one) const {
    return fmt::format("send {} {}", one.node, cluster::encode(one.message));
  }
  std::string operator()(const core::coordinator_command::SendToAgents& one) const {
    return fmt::format("send {} {}", fmt::join(one.nodes, " "), cluster::encode(one.message));
  }
  std::string operator()(const core::coordinator_command::BeginTrial& one) const {
    return fmt::format("begin {} {}", one.run.id, one.run.job.resolved->dump());
  }
  std::string operator()(const core::coordinator_command::TakeCheckpoint& one) const {
    return fmt::format("take {} {} {}", one.run, one.from, one.to);
  }
  std::string operator()(const core::coordinator_command::ChangeJob& one) const {
    return fmt::format("job {} {}", one.run, one.job.dump());
  }
  std::string operator()(const core::coordinator_command::RecordBest& one) const {
    return fmt::format("best {} {}", one.run, one.best.dump());
  }
  std::string operator()(const core::coordinator_command::RecordEvent& one) const {
    return fmt::format("event {} {}", one.run, one.event.dump());
  }
  std::string operator()(const core::coordinator_command::RecordMetrics& one) const {
    return fmt::format("metrics {} {}", one.run, one.metrics.dump());
  }
  std::string operator()(const core::coordinator_command::KeepCheckpoints& one) const {
    std::string text = "keep " + one.run;
    for (const std::string& path : one.paths) text += " " + path;
    return text;
  }
  std::string operator()(const core::coordinator_command::Warn& one) const { return one.run + " " + one.message; }
  std::string operator()(const core::coordinator_command::FinishRun& one) const {
    return fmt::format("finish {} {} {} {} {}", one.run, one.outcome.state, one.outcome.error,
                       one.outcome.metrics.dump(), one.outcome.results.dump());
  }
  std::string operator()(const core::coordinator_command::RefuseAgent& one) const {
    return fmt::format("refuse {} {} {}", one.node, one.incarnation, one.reason);
  }
  std::string operator()(const core::coordinator_command::ForgetRun& one) const { return "forget " + one.run; }
};

}  // namespace

void make_twins() {
  AgentTwin::copy = copy_of_agent;
  AgentTwin::words = [](const core::AgentCommand& command) { return std::visit(AgentWords{}, command); };
  CoordinatorTwin::copy = copy_of;
  CoordinatorTwin::words = [](const core::CoordinatorCommand& command) { return std::visit(Words{}, command); };
}

}  // namespace sgd::sim
