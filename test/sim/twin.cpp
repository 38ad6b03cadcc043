#include "test/sim/twin.hpp"

#include <fmt/format.h>

#include "common/job/load.hpp"
#include "launcher/core/coordinator.hpp"
#include "launcher/storage/event_codec.hpp"
#include "launcher/storage/state_codec.hpp"

namespace sgd::sim {
namespace {

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

struct Words {
  std::string operator()(const core::coordinator_command::Store& one) const {
    // Of a submission the job cannot be compared as text that is read again, and need not be: it is the event's.
    return fmt::format("store at {} event {}", one.at.time_since_epoch().count(), one.event.index());
  }
  std::string operator()(const core::coordinator_command::SendToAgent& one) const {
    return fmt::format("send {} {}", one.node, cluster::encode(one.message));
  }
  std::string operator()(const core::coordinator_command::ReservePort& one) const {
    return fmt::format("reserve {} {} {}", one.run, one.generation, one.node);
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
  CoordinatorTwin::copy = copy_of;
  CoordinatorTwin::words = [](const core::CoordinatorCommand& command) { return std::visit(Words{}, command); };
}

}  // namespace sgd::sim
