#include "launcher/core/run_machine.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/exit_codes.hpp"

namespace sgd::core {

using coordinator_command::FinishRun;
using coordinator_command::RecordEvent;
using coordinator_command::ReservePort;
using coordinator_command::SendToAgent;
using Event = nlohmann::ordered_json;

RunMachine::RunMachine(RunDefinition definition, TimePoint now)
    : definition_(std::move(definition)), submitted_at_(now) {
  if (!definition_.past) return;
  const RunPast& past = *definition_.past;
  generation_ = past.generation;
  reports_written_ = past.reports;
  if (past.written) reducer_.set_written(*past.written);
  outcome_.epochs = past.epochs;
  outcome_.steps = past.steps;
  outcome_.failures = past.failures;
  outcome_.metrics = past.metrics;
  // The worker names checkpoints relative to the run directory; so does the outcome.
  if (!past.checkpoints.empty()) outcome_.checkpoint = past.checkpoints.front().substr(definition_.run_dir.size() + 1);
}

// ---- placing and starting ----

void RunMachine::on_capacity(TimePoint now, const std::map<NodeId, NodeView>& nodes, CoordinatorCommands& out) {
  if (phase_ != RunPhase::kPlacing) return;
  std::map<NodeId, int> free_slots;
  for (const auto& [node, view] : nodes) {
    free_slots[node] = view.free_slots;
    addresses_[node] = view.address;
  }
  const int wanted = definition_.job.num_workers;  // The first start is strict.
  placement_ = place(free_slots, wanted, wanted);
  if (placement_.world_size == 0) return;
  start_generation(now, out);
}

void RunMachine::start_generation(TimePoint, CoordinatorCommands& out) {
  ++generation_;
  phase_ = RunPhase::kStarting;
  causes_.reset();
  exchange_.reset(placement_.world_size);
  reducer_.reset(placement_.world_size);
  nodes_.clear();
  ranks_.clear();
  for (std::size_t index = 0; index < placement_.nodes.size(); ++index) {
    const NodePlace& place = placement_.nodes[index];
    nodes_[place.node] = NodeRecord{static_cast<int>(index), place.ranks, false};
    for (const Rank rank : place.ranks) ranks_[rank].node = place.node;
  }
  outcome_.world_size = placement_.world_size;
  if (generation_ == 1)
    record({{"event", "run_started"}, {"run", definition_.id}, {"num_workers", definition_.job.num_workers}}, out);
  if (definition_.job.training) {
    send_desired(cluster::Want::kRun, out);
  } else {
    out.push_back(ReservePort{definition_.id, placement_.nodes.front().node});
  }
}

void RunMachine::on_port(TimePoint, int port, CoordinatorCommands& out) {
  if (phase_ != RunPhase::kStarting || master_port_ == port) return;
  master_port_ = port;
  send_desired(cluster::Want::kRun, out);
}

/// The whole desired state, to every node of the generation.
void RunMachine::send_desired(cluster::Want want, CoordinatorCommands& out) {
  for (const auto& [node, record] : nodes_) {
    cluster::DesiredRun desired;
    desired.run = definition_.id;
    desired.generation = generation_;
    desired.want = want;
    if (want == cluster::Want::kRun || want == cluster::Want::kStop)
      for (std::size_t local = 0; local < record.ranks.size(); ++local)
        desired.ranks.push_back({record.ranks[local], static_cast<int>(local)});
    desired.world_size = placement_.world_size;
    desired.node_rank = record.node_rank;
    desired.node_count = static_cast<int>(nodes_.size());
    desired.master_address = addresses_[placement_.nodes.front().node];
    desired.master_port = master_port_;
    desired.restart_count = static_cast<int>(generation_) - 1;
    if (definition_.past) desired.resume_from = definition_.past->checkpoints;
    if (stop_) desired.stop_grace_s = to_seconds(stop_->grace.value_or(definition_.job.stop.grace));
    desired.run_dir = definition_.run_dir;
    desired.job = definition_.job.resolved;
    out.push_back(SendToAgent{node, std::move(desired)});
  }
}

// ---- stopping and the end ----

void RunMachine::on_stop(TimePoint now, const StopRequest& request, CoordinatorCommands& out) {
  if (finished()) return;
  const bool is_first = !stop_.has_value();
  if (is_first) stop_ = request;
  if (phase_ == RunPhase::kClearing) return;
  if (is_first) {
    outcome_.state = state_of(request);
    outcome_.exit_code = exit_code_of(request);
    outcome_.error = request.why == StopRequest::Why::kSignal ? "stopped by signal " + signal_words(request.signal)
                     : request.why == StopRequest::Why::kTimeout ? "stopped by --timeout"
                                                                 : "stopped by request";
  }
  if (nodes_.empty()) return finish(now, out);
  if (request.at_once) return begin_clearing(out);
  if (!is_first) return;
  phase_ = RunPhase::kStopping;
  send_desired(cluster::Want::kStop, out);
  decide(now, out);
}

std::string RunMachine::state_of(const StopRequest& request) {
  switch (request.why) {
    case StopRequest::Why::kSignal: return "interrupted";
    case StopRequest::Why::kCancelled: return "cancelled";
    case StopRequest::Why::kTimeout: return "timed_out";
  }
  return "cancelled";
}

int RunMachine::exit_code_of(const StopRequest& request) {
  switch (request.why) {
    case StopRequest::Why::kSignal: return exit_code::kSignalBase + request.signal;
    case StopRequest::Why::kCancelled: return exit_code::kCancelled;
    case StopRequest::Why::kTimeout: return exit_code::kTimeout;
  }
  return exit_code::kCancelled;
}

/// After every fact and tick: is the outcome known, and is everything gone?
void RunMachine::decide(TimePoint now, CoordinatorCommands& out) {
  const bool is_live =
      phase_ == RunPhase::kStarting || phase_ == RunPhase::kRunning || phase_ == RunPhase::kStopping;
  const bool all_cleared = !nodes_.empty() && std::all_of(nodes_.begin(), nodes_.end(), [](const auto& node) {
    return node.second.cleared;
  });
  if (is_live && stop_ && (all_exited() || all_cleared)) {
    begin_clearing(out);
  } else if (is_live && !stop_ && causes_.decided(now)) {
    outcome_.state = "failed";
    outcome_.exit_code = exit_code::kFailed;
    ++outcome_.failures;
    outcome_.cause = causes_.cause();
    const Failure& cause = *outcome_.cause;
    if (cause.subject == "fork server" && cause.exit_code == worker_exit::kConfiguration)
      outcome_.exit_code = exit_code::kUsage;
    begin_clearing(out);
  } else if (is_live && !stop_ && all_exited() && !causes_.cause()) {
    outcome_.state = "succeeded";
    outcome_.exit_code = exit_code::kSucceeded;
    begin_clearing(out);
  }
  if (phase_ == RunPhase::kClearing && all_cleared) finish(now, out);
}

void RunMachine::begin_clearing(CoordinatorCommands& out) {
  phase_ = RunPhase::kClearing;
  send_desired(cluster::Want::kGone, out);
}

void RunMachine::finish(TimePoint now, CoordinatorCommands& out) {
  phase_ = RunPhase::kFinished;
  if (outcome_.state == "failed" && outcome_.cause) {
    const Failure& cause = *outcome_.cause;
    outcome_.error = words(cause);
    Event event = {{"event", "failure"}, {"generation", generation_}, {"kind", name(cause.kind)}};
    event["rank"] = cause.rank >= 0 ? Event(cause.rank) : Event(nullptr);
    event["node"] = cause.node;
    event["message"] = words(cause);
    record(std::move(event), out);
  }
  outcome_.generation = generation_;
  outcome_.wall_s = to_seconds(now - submitted_at_);
  record({{"event", "run_finished"}, {"generation", generation_}, {"state", outcome_.state},
          {"exit_code", outcome_.exit_code}, {"failures", outcome_.failures}}, out);
  out.push_back(FinishRun{definition_.id, outcome_});
}

void RunMachine::on_tick(TimePoint now, CoordinatorCommands& out) {
  if (phase_ == RunPhase::kPlacing && now >= submitted_at_ + definition_.placement_timeout) {
    outcome_.state = "not_placed";
    outcome_.exit_code = exit_code::kNotPlaced;
    outcome_.error = fmt::format("could not be placed within {}: {}", format_duration(definition_.placement_timeout),
                                 placement_.reason);
    return finish(now, out);
  }
  decide(now, out);
}

std::optional<TimePoint> RunMachine::next_wakeup() const {
  if (phase_ == RunPhase::kPlacing) return submitted_at_ + definition_.placement_timeout;
  const bool is_live = phase_ == RunPhase::kStarting || phase_ == RunPhase::kRunning;
  return is_live ? causes_.next_wakeup() : std::nullopt;
}

// ---- small views ----

void RunMachine::record(nlohmann::ordered_json event, CoordinatorCommands& out) const {
  out.push_back(RecordEvent{definition_.id, std::move(event)});
}

bool RunMachine::all_exited() const {
  return !ranks_.empty() && std::all_of(ranks_.begin(), ranks_.end(), [](const auto& rank) { return rank.second.exited; });
}

RunMachine::RankRecord* RunMachine::find(Rank rank) {
  const auto place = ranks_.find(rank);
  return place == ranks_.end() ? nullptr : &place->second;
}

int RunMachine::slots_used(const NodeId& node) const {
  const auto place = nodes_.find(node);
  return finished() || place == nodes_.end() ? 0 : static_cast<int>(place->second.ranks.size());
}

}  // namespace sgd::core
