#include "test/scenario/describe.hpp"

#include <fmt/format.h>

namespace sgd::test {
namespace {

template <class... Cases>
struct Overload : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overload(Cases...) -> Overload<Cases...>;

std::string words(const keeper::ToKeeper& message) {
  return std::visit(
      Overload{
          [](const keeper::Spawn& spawn) {
            const auto seen = spawn.environment.set.find("CUDA_VISIBLE_DEVICES");
            const std::string gpus = seen == spawn.environment.set.end() ? "" : fmt::format(" gpus [{}]", seen->second);
            return fmt::format("spawn generation {} rank {}{} cpus [{}]{} {}", spawn.generation, spawn.rank,
                               spawn.fork_server ? " by fork server" : "", fmt::join(spawn.cpus, ","), gpus,
                               spawn.argv.front());
          },
          [](const keeper::Signal& signal) {
            return fmt::format("signal {} to {}rank {}", signal.signal, signal.is_for_group ? "the group of " : "",
                               signal.rank);
          },
          [](const keeper::SignalAll& signal) { return fmt::format("signal {} to all ranks", signal.signal); },
          [](const keeper::Clear& clear) { return fmt::format("clear generation {}", clear.generation); },
          [](const keeper::Close&) { return std::string("close"); },
          [](const keeper::StartForkServer&) { return std::string("start fork server"); },
          [](const keeper::OutputAck&) { return std::string("output ack"); },
          [](const keeper::Attach&) { return std::string("attach"); },
          [](const keeper::Received&) { return std::string("received"); },
          [](const keeper::AgentEnds&) { return std::string("agent ends"); },
          [](const keeper::AskErrors&) { return std::string("what have ranks that go on said of their failure?"); }},
      message);
}

/// The checkpoints to try, without their folder.
std::string sources(const std::vector<std::string>& paths) {
  std::string text;
  for (const std::string& path : paths)
    text += (text.empty() ? ", from " : ", else ") + path.substr(path.rfind('/') + 1);
  return text;
}

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

std::string words(const link::ToWorker& message) {
  return std::visit(
      Overload{
          [](const link::Assignment& to) {
            return fmt::format("assignment generation {} rank {} of {}, local {} of {}, node {} of {}{}", to.generation,
                               to.rank, to.world_size, to.local_rank, to.local_world_size, to.node_rank, to.node_count,
                               sources(to.resume_from));
          },
          [](const link::ExchangeValue& value) {
            return fmt::format("exchange {} rank {} of {}: {}", value.key, value.rank, value.count, value.value.dump());
          },
          [](const link::Fetching& fetching) {
            return fmt::format("{} bytes of {} have come", fetching.bytes, name_of(fetching.path));
          },
          [](const link::Fetched& fetched) {
            return fmt::format("{} {}", name_of(fetched.path),
                               fetched.error.empty() ? "is there" : "cannot be had: " + fetched.error);
          },
          [](const link::Stop& stop) {
            return fmt::format("stop within {:.1f} s{}", stop.deadline_s, stop.checkpoint ? " with a checkpoint" : "");
          },
          [](const link::StopAtEpoch& leave) {
            return std::string(leave.at_checkpoint ? "leave at the next checkpoint" : "leave at the epoch's end");
          },
          [](const auto&) { return std::string("other"); }},
      message);
}

/// Runs beside the story's own are named.
std::string other(const RunId& run) {
  return run == "run" ? "" : run + ": ";
}

const char* words(cluster::Want want) {
  switch (want) {
    case cluster::Want::kPrepare:
      return "prepare";
    case cluster::Want::kRun:
      return "run";
    case cluster::Want::kLeave:
      return "leave";
    case cluster::Want::kStop:
      return "stop";
    case cluster::Want::kClear:
      return "clear";
    case cluster::Want::kGone:
      return "gone";
  }
  return "?";
}

}  // namespace

std::string describe(const core::CoordinatorCommand& command) {
  using namespace core::coordinator_command;
  return std::visit(
      Overload{[](const Store&) { return std::string(); },
               [](const SendToAgent& send) {
                 const auto* desired = std::get_if<cluster::DesiredRun>(&send.message);
                 if (desired == nullptr) return std::string();
                 const std::string places =
                     desired->endpoints.empty() ? "" : fmt::format(" at {}", fmt::join(desired->endpoints, " "));
                 return fmt::format("coordinator -> {}: {}want {} generation {}, {} of {} ranks{}", send.node,
                                    other(desired->run), words(desired->want), desired->generation,
                                    desired->ranks.size(), desired->world_size, places);
               },
               [](const SendToAgents&) { return std::string(); },
               [](const BeginTrial& trial) { return "begin " + trial.run.id; },
               [](const TakeCheckpoint& take) { return fmt::format("{} takes {}", take.run, take.from); },
               [](const ChangeJob& changed) { return fmt::format("job of {} changes", changed.run); },
               [](const RecordBest& best) {
                 return fmt::format("best of {}: trial {}", best.run, best.best.at("trial").dump());
               },
               [](const RecordEvent& event) { return other(event.run) + "event " + event.event.dump(); },
               [](const RecordMetrics& metrics) { return "metrics " + metrics.metrics.dump(); },
               [](const KeepCheckpoints& keep) { return fmt::format("keep {}", fmt::join(keep.paths, ", ")); },
               [](const Warn& warning) { return "warning " + warning.message; },
               [](const RefuseAgent& refused) {
                 return fmt::format("refuse an agent of {}: {}", refused.node, refused.reason);
               },
               [](const ForgetRun& forgotten) { return "forget " + forgotten.run; },
               [](const FinishRun& finished) {
                 const core::RunOutcome& outcome = finished.outcome;
                 return fmt::format("{}finished {} exit code {}, {} failures{}{}", other(finished.run), outcome.state,
                                    outcome.exit_code, outcome.failures, outcome.error.empty() ? "" : ": ",
                                    outcome.error);
               }},
      command);
}

std::string describe(const NodeId& node, const core::AgentCommand& command) {
  using namespace core::agent_command;
  return std::visit(
      Overload{
          [&](const TellKeeper& tell) {
            return fmt::format("{} -> {}keeper: {}", node, other(tell.run), words(tell.message));
          },
          [&](const TellWorker& tell) {
            return fmt::format("{} -> link {}: {}", node, tell.connection, words(tell.message));
          },
          [&](const FetchCheckpoint& fetch) { return fmt::format("{}: fetch {}", node, name_of(fetch.path)); },
          [&](const DropLink& drop) { return fmt::format("{}: drop link {}: {}", node, drop.connection, drop.reason); },
          [&](const PauseWorker& pause) { return fmt::format("{}: link {} is not read", node, pause.connection); },
          [&](const ResumeWorker& resume) { return fmt::format("{}: link {} is read again", node, resume.connection); },
          [&](const StartKeeper& start) { return node + ": " + other(start.run) + "start keeper"; },
          [&](const ClearStrays&) { return node + ": clear strays"; },
          [&](const ReservePort& port) {
            const std::string more = port.workers == 0 ? "" : fmt::format(" and {} for its ranks", port.workers);
            return fmt::format("{}: {}reserve a port{} for generation {}", node, other(port.run), more,
                               port.generation);
          },
          [&](const HoldPort& port) { return fmt::format("{}: {}hold port {}", node, other(port.run), port.port); },
          [&](const ReleasePort& port) { return node + ": " + other(port.run) + "release the port"; },
          [&](const ForgetRun& forget) { return node + ": " + other(forget.run) + "nothing of the run is left"; },
          [&](const KeepStacks& keep) {
            return fmt::format("{}: keep the stacks of {} ranks", node, keep.pids.size());
          },
          [&](const Warn& warning) { return fmt::format("{}: warning: {}", node, warning.message); },
          [](const TellCoordinator&) { return std::string(); }},
      command);
}

}  // namespace sgd::test
