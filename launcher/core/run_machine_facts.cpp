// What RunMachine does with facts, exchange values and heartbeats.

#include <algorithm>

#include "common/exit_codes.hpp"
#include "launcher/core/failure_of.hpp"
#include "launcher/core/run_machine.hpp"

namespace sgd::core {

using coordinator_command::RecordMetrics;
using coordinator_command::SendToAgent;
using Event = nlohmann::ordered_json;

void RunMachine::on_fact(TimePoint now, const NodeId& node, const cluster::Fact& fact, CoordinatorCommands& out) {
  if (finished() || fact.generation != generation_ || !nodes_.contains(node)) return;
  on_body(now, node, fact.body, out);
  decide(now, out);
}

void RunMachine::on_body(TimePoint now, const NodeId& node, const cluster::FactBody& body, CoordinatorCommands& out) {
  struct Visitor {
    RunMachine& self;
    TimePoint now;
    const NodeId& node;
    CoordinatorCommands& out;
    void operator()(const cluster::WorkerStarted& fact) const { self.on_started(node, fact, out); }
    void operator()(const cluster::WorkerReady& fact) const { self.on_ready(fact, out); }
    void operator()(const cluster::WorkerFirstStep& fact) const { self.on_first_step(fact, out); }
    void operator()(const cluster::WorkerExited& fact) const { self.on_exited(now, node, fact, out); }
    void operator()(const cluster::SpawnFailed& fact) const { self.add_failure(now, failure_of(node, fact)); }
    void operator()(const cluster::ForkServerFailed& fact) const { self.add_failure(now, failure_of(node, fact)); }
    void operator()(const cluster::KeeperLost& fact) const { self.add_failure(now, failure_of(node, fact)); }
    void operator()(const cluster::Report& fact) const { self.on_report(now, fact, out); }
    void operator()(const cluster::CheckpointSaved& fact) const { self.on_checkpoint(fact.checkpoint, out); }
    void operator()(const cluster::CheckpointRejected&) const {}
    void operator()(const cluster::WorkerSilent&) const {}
    void operator()(const cluster::ResultMade& fact) const { self.on_result(fact); }
    void operator()(const cluster::Cleared&) const { self.nodes_.at(node).cleared = true; }
  };
  std::visit(Visitor{*this, now, node, out}, body);
}

void RunMachine::on_started(const NodeId& node, const cluster::WorkerStarted& started, CoordinatorCommands& out) {
  RankRecord* rank = find(started.rank);
  if (rank == nullptr) return;
  rank->pid = started.pid;
  rank->phase = RankPhase::kStarted;
  record({{"event", "worker_started"}, {"generation", generation_}, {"rank", started.rank}, {"pid", started.pid},
          {"node", node}}, out);
  const bool all = std::all_of(ranks_.begin(), ranks_.end(), [](const auto& other) { return other.second.pid != 0; });
  // A command that never says hello counts as started at exec.
  if (!definition_.job.training && phase_ == RunPhase::kStarting && all) phase_ = RunPhase::kRunning;
}

void RunMachine::on_checkpoint(const link::CheckpointSaved& checkpoint, CoordinatorCommands& out) {
  outcome_.checkpoint = checkpoint.path;
  outcome_.steps = std::max(outcome_.steps, checkpoint.step);
  record({{"event", "checkpoint_saved"}, {"generation", generation_}, {"step", checkpoint.step},
          {"epoch", checkpoint.epoch}, {"bytes", checkpoint.bytes}, {"stall_s", checkpoint.stall_s},
          {"write_s", checkpoint.write_s}, {"path", checkpoint.path}}, out);
}

void RunMachine::on_result(const cluster::ResultMade& result) {
  if (find(result.rank) == nullptr) return;
  if (!outcome_.results.is_array())
    outcome_.results = std::vector<nlohmann::json>(static_cast<std::size_t>(placement_.world_size));
  outcome_.results[static_cast<std::size_t>(result.rank)] = result.value;
}

void RunMachine::on_ready(const cluster::WorkerReady& ready, CoordinatorCommands& out) {
  RankRecord* rank = find(ready.rank);
  if (rank == nullptr || rank->exited) return;
  rank->phase = RankPhase::kReady;
  rank->heartbeat.step = ready.ready.step;
  record({{"event", "worker_ready"}, {"generation", generation_}, {"rank", ready.rank}, {"step", ready.ready.step}}, out);
  const bool all = std::all_of(ranks_.begin(), ranks_.end(), [](const auto& other) {
    return other.second.phase == RankPhase::kReady || other.second.phase == RankPhase::kStepping;
  });
  if (all && phase_ == RunPhase::kStarting) phase_ = RunPhase::kRunning;
}

void RunMachine::on_first_step(const cluster::WorkerFirstStep& step, CoordinatorCommands& out) {
  RankRecord* rank = find(step.rank);
  if (rank == nullptr || rank->exited) return;
  rank->phase = RankPhase::kStepping;
  rank->first_step = step.step;
  rank->heartbeat.step = std::max(rank->heartbeat.step, step.step);
  for (const auto& [other, record] : ranks_)
    if (record.first_step < 0) return;
  record({{"event", "first_step"}, {"generation", generation_}, {"step", step.step},
          {"world_size", placement_.world_size}}, out);
}

void RunMachine::on_exited(TimePoint now, const NodeId& node, const cluster::WorkerExited& exited,
                           CoordinatorCommands& out) {
  RankRecord* rank = find(exited.rank);
  if (rank == nullptr || rank->exited) return;
  rank->exited = true;
  rank->phase = RankPhase::kExited;
  Event event = {{"event", "worker_exited"}, {"generation", generation_}, {"rank", exited.rank},
                 {"pid", exited.pid}, {"node", node}};
  if (exited.signal != 0) event["signal"] = exited.signal;
  if (exited.signal == 0) event["exit_code"] = exited.exit_code;
  record(std::move(event), out);
  const bool is_stop = stop_.has_value() && exited.exit_code == worker_exit::kStopped;
  rank->done = exited.exit_code == 0 || is_stop;
  if (rank->done || exited.caused_by_agent) return;

  add_failure(now, failure_of(node, exited, definition_.job.training.has_value()));
}

void RunMachine::add_failure(TimePoint now, Failure failure) {
  failure.at = now;
  if (stop_) return;  // What breaks while a stop is under way is its consequence.
  causes_.add(failure);
  if (phase_ == RunPhase::kClearing && outcome_.state == "failed") outcome_.cause = causes_.cause();
}

void RunMachine::on_report(TimePoint now, const cluster::Report& report, CoordinatorCommands& out) {
  auto reduced = reducer_.add(report.rank, report.report.key, report.report.metrics);
  if (!reduced) {
    return add_failure(now, protocol_failure(report.rank, {}, reduced.error().message));
  }
  if (!reduced.value()) return;
  const ReducedReport& line = *reduced.value();
  Event metrics = {{"phase", line.key.phase}};
  if (!line.metrics.contains("epoch")) metrics["epoch"] = line.key.epoch;
  metrics.update(line.metrics);
  metrics["step"] = report.report.step;
  metrics["generation"] = generation_;
  metrics["world_size"] = placement_.world_size;
  metrics["_time_this_iter_s"] = to_seconds(now - last_report_at_.value_or(submitted_at_));
  metrics["_training_iteration"] = ++reports_written_;
  last_report_at_ = now;
  outcome_.metrics[line.key.phase] = metrics;
  outcome_.steps = std::max(outcome_.steps, report.report.step);
  out.push_back(RecordMetrics{definition_.id, std::move(metrics)});
  const bool is_end_of_epoch = line.key.phase == "validate" && line.key.batch == 0;
  if (!is_end_of_epoch) return;
  outcome_.epochs = line.key.epoch;
  record({{"event", "epoch_finished"}, {"generation", generation_}, {"epoch", line.key.epoch}}, out);
}

void RunMachine::on_exchange(TimePoint now, const NodeId& node, const cluster::ExchangePut& put,
                             CoordinatorCommands& out) {
  if (put.generation != generation_ || finished() || !nodes_.contains(node)) return;
  auto done = exchange_.put(put.rank, put.key, put.value);
  if (!done) {
    add_failure(now, protocol_failure(put.rank, node, done.error().message));
    return decide(now, out);
  }
  if (!done.value()) return;
  for (const auto& [member, record] : nodes_)
    out.push_back(SendToAgent{member, cluster::ExchangeDone{definition_.id, generation_, put.key, *done.value()}});
}

void RunMachine::on_progress(TimePoint now, const cluster::Progress& progress) {
  if (progress.generation != generation_) return;
  RankRecord* rank = find(progress.rank);
  if (rank == nullptr || rank->exited) return;
  rank->heartbeat = progress.heartbeat;
  rank->heartbeat_at = now;
  outcome_.steps = std::max(outcome_.steps, progress.heartbeat.step);
}

}  // namespace sgd::core
