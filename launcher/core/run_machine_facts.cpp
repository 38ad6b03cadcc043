// What RunMachine does with facts, exchange values and heartbeats.

#include <algorithm>

#include <fmt/format.h>

#include "common/exit_codes.hpp"
#include "common/job/validated_epochs.hpp"
#include "launcher/core/claims.hpp"
#include "launcher/core/failure_of.hpp"
#include "launcher/core/report_line.hpp"
#include "launcher/core/run_machine.hpp"

namespace sgd::core {

using coordinator_command::RecordMetrics;
using coordinator_command::SendToAgent;
using Event = nlohmann::ordered_json;

namespace {

/// The rank that a fact is about: rank 0 for checkpoints, which it saves; nothing for what is about a node.
std::optional<Rank> speaker_of(const cluster::FactBody& body) {
  return std::visit(
      []<class Body>(const Body& one) -> std::optional<Rank> {
        if constexpr (requires { one.rank; }) return one.rank;
        if constexpr (std::is_same_v<Body, cluster::CheckpointSaved> || std::is_same_v<Body, cluster::CheckpointFailed>)
          return Rank{0};
        return std::nullopt;
      },
      body);
}

}  // namespace

FactVerdict RunMachine::on_fact(TimePoint now, const NodeId& node, const cluster::Fact& fact,
                                CoordinatorCommands& out) {
  if (finished() || !nodes_.contains(node) || nodes_.at(node).lost) return FactVerdict::kNotOfRun;
  const bool is_cleared = std::holds_alternative<cluster::Cleared>(fact.body);
  const bool is_its = is_cleared ? fact.generation == desired_generation_ && fact.uid == desired_uid_
                                 : fact.generation == generation_ && fact.uid == generation_uid_;
  if (!is_its) return FactVerdict::kOtherGeneration;
  if (const std::optional<Rank> rank = speaker_of(fact.body); rank && !is_on(node, *rank))
    return FactVerdict::kOtherNode;
  const bool is_of_port = std::holds_alternative<cluster::PortReserved>(fact.body) ||
                          std::holds_alternative<cluster::PortRefused>(fact.body);
  if (is_of_port && !reserves_ports(node)) return FactVerdict::kOtherNode;
  if (!why_not(fact).empty()) return FactVerdict::kImplausible;
  on_body(now, node, fact.body, out);
  decide(now, out);
  return FactVerdict::kTaken;
}

/// A node speaks for its own ranks: one that was broken into can end what it holds, and nothing else.
bool RunMachine::is_on(const NodeId& node, Rank rank) const {
  const auto known = ranks_.find(rank);
  return known == ranks_.end() || known->second.node == node;
}

void RunMachine::on_body(TimePoint now, const NodeId& node, const cluster::FactBody& body, CoordinatorCommands& out) {
  struct Visitor {
    RunMachine& self;
    TimePoint now;
    const NodeId& node;
    CoordinatorCommands& out;
    void operator()(const cluster::PortReserved& fact) const { self.on_port(now, node, fact, out); }
    void operator()(const cluster::PortRefused& fact) const {
      self.add_failure(now, failure_of(self.nodes_.at(node).ranks.front(), node, fact));
    }
    void operator()(const cluster::WorkerStarted& fact) const { self.on_started(now, node, fact, out); }
    void operator()(const cluster::WorkerReady& fact) const { self.on_ready(now, fact, out); }
    void operator()(const cluster::WorkerFirstStep& fact) const { self.on_first_step(now, fact, out); }
    void operator()(const cluster::WorkerExited& fact) const { self.on_exited(now, node, fact, out); }
    void operator()(const cluster::SpawnFailed& fact) const { self.add_failure(now, failure_of(node, fact)); }
    void operator()(const cluster::ForkServerFailed& fact) const { self.add_failure(now, failure_of(node, fact)); }
    void operator()(const cluster::KeeperLost& fact) const { self.on_keeper_lost(now, node, fact); }
    void operator()(const cluster::Report& fact) const { self.on_report(now, fact, out); }
    void operator()(const cluster::CheckpointSaved& fact) const { self.on_checkpoint(fact.checkpoint, out); }
    void operator()(const cluster::CheckpointFailed& fact) const { self.on_checkpoint_failed(fact.checkpoint, out); }
    void operator()(const cluster::CheckpointRejected& fact) const { self.on_rejected(fact.checkpoint, out); }
    void operator()(const cluster::WorkerSilent& fact) const { self.add_failure(now, failure_of(node, fact)); }
    void operator()(const cluster::ResultMade& fact) const { self.on_result(fact); }
    void operator()(const cluster::ExchangePut& fact) const { self.on_exchange(now, node, fact, out); }
    void operator()(const cluster::Cleared&) const { self.on_cleared(node); }
    void operator()(const cluster::RanksRaised& fact) const { self.on_raised(now, node, fact); }
    void operator()(const cluster::OutputDropped& fact) const { self.note_dropped(node, fact, out); }
  };
  std::visit(Visitor{*this, now, node, out}, body);
}

void RunMachine::on_started(TimePoint now, const NodeId& node, const cluster::WorkerStarted& started,
                            CoordinatorCommands& out) {
  RankRecord* rank = find(started.rank);
  if (rank == nullptr) return;
  const bool is_first = rank->pid == 0 && started.pid != 0 && ++ranks_started_ == 1;
  rank->pid = started.pid;
  rank->gpus = started.gpus;
  set_phase(*rank, RankPhase::kStarted);
  record({{"event", "worker_started"},
          {"generation", generation_},
          {"rank", started.rank},
          {"pid", started.pid},
          {"node", node}},
         out);
  if (is_first) count_late_start(now, out);
  if (is_training() || !all_started()) return;
  if (is_cleared_unfailed()) budget_.on_first_step();
  if (phase_ != RunPhase::kStarting) return;
  // A command that never says hello counts as started at exec.
  phase_ = RunPhase::kRunning;
  looks_for_room_ = true;  // Slots may have come back while it started.
  note_started();
  started_at_ = now;
  recovery_.ready(now, {});
  if (!has_state_ && recovery_.pending()) record(recovery_.started_again(now, generation_, placement_.world_size), out);
}

void RunMachine::on_checkpoint(const link::CheckpointSaved& checkpoint, CoordinatorCommands& out) {
  unsaved_.reset();
  // Rank 0 saves, and speaks in order: what it has reported by now it had reported before.
  if (const auto after = reducer_.newest_pending(0)) {
    // Newer ones are there, and a rank that never reports would have all of them kept.
    if (held_checkpoints_.size() >= kHeldMax) held_checkpoints_.erase(held_checkpoints_.begin());
    held_checkpoints_.push_back({*after, checkpoint});
  } else {
    accept(checkpoint, out);
  }
}

void RunMachine::on_checkpoint_failed(const link::CheckpointFailed& failed, CoordinatorCommands& out) {
  unsaved_ = failed;
  record(
      {{"event", "checkpoint_failed"}, {"generation", generation_}, {"step", failed.step}, {"reason", failed.reason}},
      out);
}

void RunMachine::accept_reported(CoordinatorCommands& out) {
  while (!held_checkpoints_.empty() && reducer_.is_written(held_checkpoints_.front().after)) {
    accept(held_checkpoints_.front().checkpoint, out);
    held_checkpoints_.erase(held_checkpoints_.begin());
  }
}

void RunMachine::accept(const link::CheckpointSaved& checkpoint, CoordinatorCommands& out) {
  std::erase(checkpoints_, checkpoint.path);
  checkpoints_.push_back(checkpoint.path);
  if (files_travel_) note_accepted(checkpoint.path, arrivals_);
  choose_checkpoints();
  note_step(checkpoint.step);
  Event event = {{"event", "checkpoint_saved"},   {"generation", generation_}, {"step", checkpoint.step},
                 {"epoch", checkpoint.epoch},     {"bytes", checkpoint.bytes}, {"stall_s", checkpoint.stall_s},
                 {"write_s", checkpoint.write_s}, {"path", checkpoint.path}};
  if (checkpoint.skipped > 0) event["skipped"] = checkpoint.skipped;
  if (const auto score = scores_.find(checkpoint.step); score != scores_.end())
    event["metric"] = {{definition_.job.checkpoint.best->metric, score->second}};
  record(std::move(event), out);
  out.push_back(coordinator_command::KeepCheckpoints{definition_.id, checkpoints_});
}

/// It may be one that the job keeps no more: until a newer one has come it is what a lost node leaves.
void RunMachine::on_checkpoint_stored(const std::string& path, CoordinatorCommands& out) {
  note_stored(path, arrivals_);
  come_.insert(path);
  forget_come();
  if (finished()) return;
  const std::vector<std::string> before = checkpoints_;
  choose_checkpoints();
  if (checkpoints_ != before) out.push_back(coordinator_command::KeepCheckpoints{definition_.id, checkpoints_});
}

/// From its beginning on.
void RunMachine::note_here(const std::string& path) {
  if (!files_travel_) return;
  note_accepted(path, arrivals_);
  note_stored(path, arrivals_);
  come_.insert(path);
}

/// Of those that are there.
void RunMachine::choose_checkpoints() {
  KeptCheckpoints kept = kept_checkpoints(scored(checkpoints_, scores_), definition_.job.checkpoint);
  note_best(kept);
  checkpoints_ = with_newest_stored(with_compared(kept.paths), arrivals_);
  forget_come();
  note_newest();
}

/// As it is told: from the run's folder on, where it is inside.
std::string RunMachine::told(const std::string& checkpoint) const {
  const std::string own = definition_.run_dir + "/";
  return checkpoint.starts_with(own) ? checkpoint.substr(own.size()) : checkpoint;
}

/// Its ranks would go on from this one.
void RunMachine::note_newest() {
  outcome_.checkpoint = checkpoints_.empty() ? std::string() : told(checkpoints_.back());
}

void RunMachine::note_best(const KeptCheckpoints& kept) {
  outcome_.best_checkpoints = nullptr;
  for (const ScoredCheckpoint& one : kept.best)
    outcome_.best_checkpoints.push_back(
        {{"path", told(one.path)}, {"metric", definition_.job.checkpoint.best->metric}, {"value", *one.score}});
}

/// A line may come behind the checkpoint of its step, and change which ones are the best.
void RunMachine::judge_line(const link::ReportKey& key, const Event& line, CoordinatorCommands& out) {
  const auto& best = definition_.job.checkpoint.best;
  if (!best) return;
  if (note_score(line, *best, checkpoints_, scores_)) {
    choose_checkpoints();
    out.push_back(coordinator_command::KeepCheckpoints{definition_.id, checkpoints_});
  }
  // Once, at the end of the first epoch that is validated: who misspelt it would find no best checkpoint at the end of
  // the run.
  const int before = definition_.past ? definition_.past->epochs : 0;
  const auto& training = definition_.job.training;
  const bool is_first = training ? key.epoch == job::next_validated(*training, before) : outcome_.epochs == before;
  const bool is_first_end = is_first && key.phase == "validate" && key.batch == 0;
  if (is_first_end && scores_.empty())
    record({{"event", "metric_missing"}, {"generation", generation_}, {"epoch", key.epoch}, {"metric", best->metric}},
           out);
}

void RunMachine::on_rejected(const link::CheckpointRejected& rejected, CoordinatorCommands& out) {
  std::erase_if(checkpoints_, [&](const std::string& path) { return rejected.path.ends_with(path); });
  note_rejected(rejected.path, arrivals_);
  std::erase_if(come_, [&](const std::string& path) { return rejected.path.ends_with(path); });
  choose_checkpoints();
  record({{"event", "checkpoint_rejected"},
          {"generation", generation_},
          {"path", rejected.path},
          {"reason", rejected.reason}},
         out);
}

void RunMachine::on_cleared(const NodeId& node) {
  // Of what an earlier generation left there, before this one could start.
  if (phase_ == RunPhase::kStarting || phase_ == RunPhase::kRunning) return;
  NodeRecord& record = nodes_.at(node);
  clear_node(record);
  if (phase_ != RunPhase::kStopping) return;
  // The stop came before any rank was started there, or its keeper is lost: nobody tells their exits.
  for (const Rank rank : record.ranks) end_rank(ranks_.at(rank));
}

/// Its ranks die with it, and nobody is left to tell how.
void RunMachine::on_keeper_lost(TimePoint now, const NodeId& node, const cluster::KeeperLost& lost) {
  if (is_live())
    for (const Rank rank : nodes_.at(node).ranks) end_rank(ranks_.at(rank));
  if (lost.never_started)
    refusing_.insert(node);
  else
    has_lost_words_ = true;
  add_failure(now, failure_of(node, lost));
}

void RunMachine::note_step(std::int64_t step) {
  steps_told_ = std::max(steps_told_, step);
  outcome_.steps = std::max(outcome_.steps, step);
}

void RunMachine::on_result(const cluster::ResultMade& result) {
  if (find(result.rank) == nullptr) return;
  if (!outcome_.results.is_array())
    outcome_.results = std::vector<nlohmann::json>(static_cast<std::size_t>(placement_.world_size));
  outcome_.results[static_cast<std::size_t>(result.rank)] = result.value;
}

void RunMachine::on_ready(TimePoint now, const cluster::WorkerReady& ready, CoordinatorCommands& out) {
  RankRecord* rank = find(ready.rank);
  if (rank == nullptr || rank->exited || rank->phase == RankPhase::kReady || rank->phase == RankPhase::kStepping)
    return;
  set_phase(*rank, RankPhase::kReady);
  rank->heartbeat.step = ready.ready.step;
  record({{"event", "worker_ready"}, {"generation", generation_}, {"rank", ready.rank}, {"step", ready.ready.step}},
         out);
  recovery_.ready(now, ready.ready);
  const bool all = ranks_ready_ == ranks_.size();
  has_state_ |= !is_training();
  // A command runs from its exec on.
  if (!all || (is_training() ? phase_ != RunPhase::kStarting : !is_live())) return;
  if (is_training()) {
    phase_ = RunPhase::kRunning;
    looks_for_room_ = true;  // Slots may have come back while it started.
  }
  if (ready.ready.source == "fresh" && !definition_.job.resume_from.empty())
    return add_failure(now, protocol_failure(ready.rank, rank->node,
                                             fmt::format("no checkpoint could be read, and training must not "
                                                         "start from the beginning: the run began from {}",
                                                         definition_.job.resume_from)));
  if (ready.ready.source == "fresh" && generation_ == first_generation_) return;
  record({{"event", "restored"},
          {"generation", generation_},
          {"step", ready.ready.step},
          {"epoch", ready.ready.epoch},
          {"source", ready.ready.source},
          {"bit_exact", is_bit_exact()}},
         out);
}

void RunMachine::on_first_step(TimePoint now, const cluster::WorkerFirstStep& step, CoordinatorCommands& out) {
  RankRecord* rank = find(step.rank);
  if (rank == nullptr || rank->exited || rank->first_step >= 0) return;
  set_phase(*rank, RankPhase::kStepping);
  rank->first_step = step.step;
  ++ranks_stepped_;
  rank->heartbeat.step = std::max(rank->heartbeat.step, step.step);
  note_step(step.step);
  if (ranks_stepped_ < ranks_.size()) return;
  record({{"event", "first_step"},
          {"generation", generation_},
          {"step", step.step},
          {"world_size", placement_.world_size}},
         out);
  if (is_cleared_unfailed()) budget_.on_first_step();
  if (!is_live()) return;
  note_started();
  complete_recovery(now, out);
}

void RunMachine::on_exited(TimePoint now, const NodeId& node, const cluster::WorkerExited& exited,
                           CoordinatorCommands& out) {
  RankRecord* rank = find(exited.rank);
  if (rank == nullptr || rank->exited) return;
  end_rank(*rank);
  set_phase(*rank, RankPhase::kExited);
  note_step(exited.step);
  Event event = {{"event", "worker_exited"},
                 {"generation", generation_},
                 {"rank", exited.rank},
                 {"pid", exited.pid},
                 {"node", node}};
  if (exited.signal != 0) event["signal"] = exited.signal;
  if (exited.signal == 0) event["exit_code"] = exited.exit_code;
  record(std::move(event), out);
  const bool was_asked = stop_.has_value() || leave_ != Leave::kNo;
  const bool is_stop = was_asked && is_training() && exited.exit_code == worker_exit::kStopped;
  const bool is_finished = is_training() && exited.exit_code == worker_exit::kDone;
  rank->left = leave_ != Leave::kNo && !is_finished && (is_stop || exited.caused_by_agent);
  rank->done = exited.exit_code == 0 || is_stop;
  take_last_line(now, exited, out);
  if (rank->done && !rank->left && !first_exit_at_) first_exit_at_ = now;
  if (rank->done || exited.caused_by_agent) return;
  Failure failure = failure_of(node, exited, is_training());
  if (!is_training() && !is_first_start()) failure.is_final = false;  // It has been started before: it may be again.
  rank->missed_peer = failure.misses_peer();
  failure.may_follow = !is_training() && ranks_.size() > 1 && failure.kind == FailureKind::kExitCode;
  // A living rank's words count where this one says that it has lost another: elsewhere they may be old.
  if (!failure.follows_peer) return add_failure(now, std::move(failure));
  const bool is_first = !causes_.cause() || (causes_.cause()->is_secondary() && !causes_.cause()->follows_peer);
  add_failure(now, std::move(failure));
  add_living(now, node, exited.others);
  if (is_first && causes_.cause() && causes_.cause()->is_secondary()) ask_for_errors(node, out);
}

void RunMachine::add_living(TimePoint now, const NodeId& node, const std::vector<OtherError>& others) {
  for (const OtherError& other : others) {
    const RankRecord* rank = find(other.rank);
    if (rank != nullptr && !rank->exited && rank->node == node) add_failure(now, failure_of(node, other));
  }
}

/// Of ranks that go on elsewhere: their nodes have not told any exit that they could be told with.
void RunMachine::ask_for_errors(const NodeId& asked_already, CoordinatorCommands& out) const {
  for (const auto& [node, record] : nodes_)
    if (node != asked_already && !record.lost && !record.cleared)
      out.push_back(SendToAgent{node, cluster::ErrorsAsk{definition_.id, generation_, generation_uid_}});
}

void RunMachine::on_raised(TimePoint now, const NodeId& node, const cluster::RanksRaised& raised) {
  if (causes_.cause() && causes_.cause()->follows_peer) add_living(now, node, raised.others);
}

void RunMachine::add_failure(TimePoint now, Failure failure) {
  failure.at = now;
  if (stop_) return;  // What breaks while a stop is under way is its consequence.
  if (is_live()) causes_.add(failure);
}

void RunMachine::on_report(TimePoint now, const cluster::Report& report, CoordinatorCommands& out) {
  auto reduced = reducer_.add(report.rank, report.report.key, report.report.metrics);
  if (!reduced) {
    return add_failure(now, protocol_failure(report.rank, {}, reduced.error().message));
  }
  if (reduced.value()) write_line(now, *reduced.value(), report.report.step, out);
}

/// Who has reported nothing may have printed what there is to report.
void RunMachine::take_last_line(TimePoint now, const cluster::WorkerExited& exited, CoordinatorCommands& out) {
  const std::int64_t before = definition_.past ? definition_.past->reports : 0;
  const bool may_have = exited.rank == 0 && exited.exit_code == 0 && definition_.job.report.last_line;
  if (!may_have || is_training() || reports_written_ != before) return;
  if (exited.last_object.empty()) return;
  const PrintedValues printed = printed_values(exited.last_object);
  if (!printed.fault.empty())  // One before it is not what the rank has come to.
    return record({{"event", "last_line_refused"}, {"generation", generation_}, {"why", printed.fault}}, out);
  write_line(now, {{0, "train", 0, 0}, in_order(printed.values), {printed.values}, {}, std::nullopt}, exited.step, out);
}

void RunMachine::write_line(TimePoint now, const ReducedReport& line, std::int64_t step, CoordinatorCommands& out) {
  Event metrics = {{"phase", line.key.phase}};
  const job::ReportRules& rules = definition_.job.report;
  const Event values = chosen_values(line, rules);
  if (!values.contains("epoch")) metrics["epoch"] = line.key.epoch;
  metrics.update(values);
  metrics["phase"] = line.key.phase;  // By which readers know the line, whatever a metric is called.
  // A user's code may count from 0; its epochs are the run's.
  if (is_training() && metrics["epoch"] != line.key.epoch) metrics["epoch"] = line.key.epoch;
  if (line.key.batch != 0) metrics["batch"] = line.key.batch;
  if (line.key.sequence != 0) metrics["sequence"] = line.key.sequence;
  metrics["step"] = step;
  metrics["generation"] = generation_;
  metrics["world_size"] = placement_.world_size;
  const double before_s = definition_.past ? definition_.past->wall_s : 0;
  const LineTimes times{to_seconds(now - last_report_at_.value_or(submitted_at_)),
                        before_s + to_seconds(now - submitted_at_), ++reports_written_};
  add_autofilled(metrics, rules, times, worker_places());
  last_report_at_ = now;
  outcome_.metrics[line.key.phase] = metrics;
  note_step(step);
  judge_line(line.key, metrics, out);
  if (line.straggler) note_straggler(line.key.epoch, *line.straggler, out);
  for (const KeyMismatch& mismatch : line.mismatches) note_mismatch(line.key, mismatch, out);
  out.push_back(RecordMetrics{definition_.id, std::move(metrics), line.key});
  if (is_live()) complete_recovery(now, out);  // A generation that resumed in validation is at work, too.
  const bool is_end_of_epoch = line.key.phase == "validate" && line.key.batch == 0;
  if (is_end_of_epoch) {
    outcome_.epochs = line.key.epoch;
    budget_.on_epoch_finished();
    record({{"event", "epoch_finished"}, {"generation", generation_}, {"epoch", line.key.epoch}}, out);
  }
  accept_reported(out);
}

/// Where the ranks of this generation run, as a line tells it.
std::map<Rank, WorkerPlace> RunMachine::worker_places() const {
  std::map<Rank, WorkerPlace> places;
  const job::ReportRules& rules = definition_.job.report;
  if (!rules.detailed && rules.workers == job::ReportRules::Workers::kReduced) return places;
  for (const auto& [number, rank] : ranks_) {
    const auto address = addresses_.find(rank.node);
    places[number] = {rank.node, address == addresses_.end() ? std::string() : address->second, rank.pid};
  }
  return places;
}

void RunMachine::on_exchange(TimePoint now, const NodeId& node, const cluster::ExchangePut& put,
                             CoordinatorCommands& out) {
  const Result<bool> is_finished = exchange_.put(put.rank, put.key, put.value);
  if (!is_finished) return add_failure(now, protocol_failure(put.rank, node, is_finished.error().message));
  if (!is_finished.value()) return;
  std::vector<NodeId> members;
  for (const auto& [member, record] : nodes_) members.push_back(member);
  for (cluster::ExchangeDone& part : exchange_.parts(definition_.id, generation_, put.key))
    out.push_back(coordinator_command::SendToAgents{members, std::move(part)});
}

void RunMachine::on_exchange_ask(const NodeId& node, const cluster::ExchangeAsk& ask, CoordinatorCommands& out) const {
  const bool is_known = ask.generation == generation_ && ask.uid == generation_uid_ && nodes_.contains(node);
  if (!is_known) return out.push_back(SendToAgent{node, not_finished(ask)});
  for (cluster::ExchangeDone& part : exchange_.parts(ask.run, ask.generation, ask.key))
    out.push_back(SendToAgent{node, std::move(part)});
}

void RunMachine::on_progress(TimePoint now, const NodeId& node, const cluster::Progress& progress) {
  if (progress.generation != generation_ || !is_on(node, progress.rank)) return;
  RankRecord* rank = find(progress.rank);
  if (rank == nullptr || rank->exited) return;
  rank->heartbeat = progress.heartbeat;
  rank->heartbeat_at = now;
  outcome_.steps = std::max(outcome_.steps, progress.heartbeat.step);
}

}  // namespace sgd::core
