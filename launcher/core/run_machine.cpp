#include "launcher/core/run_machine.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/base/assert.hpp"
#include "common/exit_codes.hpp"
#include "launcher/core/failure_of.hpp"
#include "launcher/core/process_rules.hpp"
#include "launcher/core/stop_request.hpp"

namespace sgd::core {

using coordinator_command::FinishRun;
using coordinator_command::RecordEvent;
using coordinator_command::SendToAgent;
using Event = nlohmann::ordered_json;

namespace {

/// How many each has. Each node stands there once: to look for its name among ten thousand others is not needed.
Event workers_per_node(const Placement& placement) {
  Event::object_t nodes;
  nodes.reserve(placement.nodes.size());
  for (const NodePlace& place : placement.nodes) nodes.emplace_back(place.node, place.ranks.size());
  return nodes;
}

}  // namespace

RunMachine::RunMachine(RunDefinition definition, TimePoint now, bool files_travel) {
  files_travel_ = files_travel;
  definition_ = std::move(definition);
  submitted_at_ = now;
  budget_ = RetryBudget(definition_.job);
  placeless_since_ = now;
  if (!definition_.past) return;
  const RunPast& past = *definition_.past;
  generation_ = past.generation;
  first_generation_ = past.generation + 1;
  for (auto path = past.checkpoints.rbegin(); path != past.checkpoints.rend(); ++path) {
    checkpoints_.push_back(told(*path));
    note_here(checkpoints_.back());
  }
  scores_ = past.scores;
  note_best(kept_checkpoints(scored(checkpoints_, scores_), definition_.job.checkpoint));
  reports_written_ = past.reports;
  outcome_.epochs = past.epochs;
  outcome_.steps = past.steps;
  outcome_.failures = past.failures;
  outcome_.metrics = past.metrics;
  if (past.written) reducer_.set_written(*past.written);
  for (const std::vector<Rank>& ranks : past.shape) {
    trained_.world_size += static_cast<int>(ranks.size());
    trained_.nodes.push_back({NodeId(), ranks});
  }
  note_newest();
}

// ---- placing and starting ----

void RunMachine::on_capacity(TimePoint now, Offer offer, CoordinatorCommands& out) {
  if (finished()) return;
  looks_for_room_ = false;
  for (const auto& [node, view] : offer.nodes) addresses_.insert_or_assign(addresses_.end(), node, view.address);
  offer.nodes.merge(views_);  // What was known of the others.
  views_ = std::move(offer.nodes);
  offered_ = {{}, {}, std::move(offer.reason), offer.fits_idle, offer.growth};
  if (waits_for_room()) {
    is_queued_ = offer.fits_idle;
    if (offer.fits_idle) placeless_since_.reset();
    if (!offer.fits_idle && !placeless_since_) placeless_since_ = now;
    placement_ = std::move(offer.placement);
    if (placement_.world_size > 0) start_generation(now, out);
    if (waits_for_room() && !is_queued_ && !refusing_.empty()) on_no_other_node(now, out);
    const bool may_ask_again = waits_for_room() && is_queued_ && !refusing_.empty();
    if (!may_ask_again) ask_again_at_.reset();
    if (may_ask_again && !ask_again_at_) ask_again_at_ = now + budget_.ask_again_delay();
  }
  if (is_ready_to_count()) wait_for_slots(now, out);
  consider_leaving(out);
  consider_growth(now, out);
  if (is_live()) decide(now, out);
}

void RunMachine::on_view(TimePoint now, const NodeId& node, const NodeView& view, CoordinatorCommands& out) {
  if (finished() || !nodes_.contains(node)) return;
  addresses_[node] = view.address;
  const bool was_leaving = std::exchange(views_[node], view).is_leaving;
  const NodeRecord& record = nodes_.at(node);
  const bool waits = phase_ == RunPhase::kRecovering || phase_ == RunPhase::kWaiting;
  if (waits && !record.lost && view.is_leaving && !was_leaving) send_desired(node, record, cluster::Want::kClear, out);
  consider_leaving(out);
  decide(now, out);  // A link may have closed behind which missed ranks are.
}

Demand RunMachine::demand() const {
  const job::JobSpec& job = definition_.job;
  const bool is_strict = !is_admitted() && !job.elastic_start;
  Demand demand{job.num_workers, is_strict ? job.num_workers : job.min_workers, job.per_worker, job.placement};
  for (const LeftOutGpu& one : gpus_left_out()) {
    LeftOutGpus& there = demand.left_out[one.node];
    there.free = ++there.all;
  }
  demand.refusing = refusing_;
  return demand;
}

bool RunMachine::may_grow() const {
  const bool has_moment = is_training() || grows_at_once();
  const bool has_ended = first_exit_at_.has_value();  // Partly: what is done would be done again.
  return phase_ == RunPhase::kRunning && has_moment && !has_ended && !stop_ && leave_ == Leave::kNo &&
         placement_.world_size < definition_.job.num_workers;
}

void RunMachine::start_generation(TimePoint now, CoordinatorCommands& out) {
  SGD_ASSERT(waits_for_room());                 // Else ranks that are at work would be forgotten.
  SGD_ASSERT(nodes_.empty() || all_cleared());  // Else ranks of two generations would write one model.
  generation_ = next_generation();
  want_generation(now, generation_);
  generation_uid_ = desired_uid_;
  phase_ = RunPhase::kStarting;
  start_by_ = now + start_time();
  wait_until_.reset();
  first_exit_at_.reset();
  const Leave left = std::exchange(leave_, Leave::kNo);
  looks_for_room_ = false;
  was_started_ = has_cleared_ = has_lost_words_ = false;
  started_at_.reset();
  held_checkpoints_.clear();
  unsaved_.reset();
  straggler_.reset();
  mismatches_told_.clear();
  drops_told_.clear();
  master_port_ = 0;
  worker_ports_.clear();
  causes_.reset();
  exchange_.reset(placement_.world_size);
  reducer_.reset(placement_.world_size);
  outcome_.results = nullptr;  // Of ranks that may not be there any more.
  const std::map<NodeId, NodeRecord> former = std::exchange(nodes_, {});
  ranks_.clear();
  ranks_started_ = ranks_exited_ = ranks_ready_ = ranks_stepped_ = nodes_cleared_ = 0;
  for (std::size_t index = 0; index < placement_.nodes.size(); ++index) {
    const NodePlace& place = placement_.nodes[index];
    nodes_.emplace_hint(nodes_.end(), place.node, NodeRecord{static_cast<int>(index), place.ranks, false, false});
    for (const Rank rank : place.ranks) ranks_.emplace_hint(ranks_.end(), rank, RankRecord{})->second.node = place.node;
  }
  // A node that is no part of the run any more ends its keeper.
  for (const auto& [node, record] : former)
    if (!nodes_.contains(node)) send_desired(node, record, cluster::Want::kGone, out);
  SGD_ASSERT(static_cast<int>(ranks_.size()) ==
             placement_.world_size);  // Else the others would wait for a rank for ever.
  if (views_.size() > nodes_.size())  // Each of them has one.
    std::erase_if(views_, [this](const auto& view) { return !nodes_.contains(view.first); });
  outcome_.world_size = placement_.world_size;
  recovery_.started(now);
  if (generation_ == 1)
    record({{"event", "run_started"}, {"run", definition_.id}, {"num_workers", definition_.job.num_workers}}, out);
  note_resize(now, before_, left, out);
  send_starts(out);
}

/// Who has left for another size and got the same one has paid for it, too: it does not ask again at once.
void RunMachine::note_resize(TimePoint now, const Placement& before, Leave left, CoordinatorCommands& out) {
  const bool is_resized = before.world_size != 0 && before.world_size != placement_.world_size;
  if (is_resized || left == Leave::kAtBoundary) grow_at_ = now + definition_.job.recovery.cooldown;
  if (!is_resized && left != Leave::kNo) {
    Event from = workers_per_node(before);
    Event to = workers_per_node(placement_);
    if (from != to)
      record({{"event", "moved"},
              {"generation", generation_},
              {"from", std::move(from)},
              {"to", std::move(to)},
              {"reason", resize_reason_}},
             out);
  }
  if (!is_resized) return;
  record({{"event", "resized"},
          {"generation", generation_},
          {"from", before.world_size},
          {"to", placement_.world_size},
          {"reason", resize_reason_}},
         out);
}

/// Told from here on, to whoever is told anything.
void RunMachine::want_generation(TimePoint now, Generation generation) {
  desired_generation_ = generation;
  const GenerationUid at = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  desired_uid_ = std::max(at, desired_uid_ + 1);  // Two wishes of one moment are two.
}

/// The whole desired state, to every node that the run touches.
void RunMachine::send_desired(cluster::Want want, CoordinatorCommands& out) {
  out.reserve(out.size() + nodes_.size());
  const cluster::DesiredRun desired = desired_run(want);
  for (const auto& [node, record] : nodes_)
    if (!record.lost) send_desired(node, record, desired, out);
}

void RunMachine::send_desired(const NodeId& node, const NodeRecord& record, cluster::Want want,
                              CoordinatorCommands& out) {
  send_desired(node, record, desired_run(want), out);
}

/// What all its nodes are told alike.
cluster::DesiredRun RunMachine::desired_run(cluster::Want want) const {
  cluster::DesiredRun desired;
  desired.run = definition_.id;
  desired.generation = desired_generation_;
  desired.uid = desired_uid_;
  desired.want = want;
  desired.world_size = placement_.world_size;
  desired.node_count = static_cast<int>(nodes_.size());
  if (!placement_.nodes.empty()) {
    const auto address = addresses_.find(placement_.nodes.front().node);
    if (address != addresses_.end()) desired.master_address = address->second;
  }
  desired.master_port = master_port_;
  desired.restart_count = static_cast<int>(generation_) - 1;
  desired.resume_from = checkpoints_to_try();
  const bool has_grace = stop_ && stop_->grace;
  desired.stop_grace_s = to_seconds(has_grace ? *stop_->grace : definition_.job.stop.grace);
  const bool is_signal = stop_ && stop_->why == StopRequest::Why::kSignal;
  if (is_signal && passes_signal(definition_.job.resolved, stop_->signal)) desired.stop_signal = stop_->signal;
  if (!is_training() && !(stop_ && stop_->at_once))
    desired.clear_grace_s = to_seconds(shutdown_timeout(definition_.job.resolved));
  desired.run_dir = definition_.run_dir;
  desired.job = definition_.job.resolved;
  desired.owner = definition_.owner;
  desired.may_be_root = definition_.may_be_root;
  if (want == cluster::Want::kRun || want == cluster::Want::kLeave) add_backend(desired);
  return desired;
}

/// The order is made in its place among the commands: there may be ten thousand of them.
void RunMachine::send_desired(const NodeId& node, const NodeRecord& record, const cluster::DesiredRun& all,
                              CoordinatorCommands& out) {
  touched_.insert(node);
  auto& command = out.emplace_back(std::in_place_type<SendToAgent>, node, all);
  auto& desired = std::get<cluster::DesiredRun>(std::get<SendToAgent>(command).message);
  // An agent that ends does not wait for ranks that start elsewhere, if they do at all; nor does a keeper for those of
  // a run that is paused, perhaps for good.
  const auto view = views_.find(node);
  const bool is_leaving = view != views_.end() && view->second.is_leaving;
  if (desired.want == cluster::Want::kClear && (is_leaving || is_paused_)) desired.want = cluster::Want::kGone;
  if (desired.want != cluster::Want::kClear && desired.want != cluster::Want::kGone)
    for (std::size_t local = 0; local < record.ranks.size(); ++local)
      desired.ranks.push_back({record.ranks[local], static_cast<int>(local)});
  // Also while it waits: others are given these first then, and leave it the rest.
  desired.left_out_gpus = left_out_of(gpu_faults_, node, definition_.job.recovery.exclude_after);
  desired.node_rank = record.node_rank;
  const auto keeper_from = keepers_from_.find(node);
  if (keeper_from != keepers_from_.end()) desired.keeper_from = keeper_from->second;
}

bool RunMachine::is_news(const cluster::HeldRun& held) const {
  if (finished() || held.generation > desired_generation_ + kAheadMax) return false;
  if (held.generation > desired_generation_) return true;
  // Its ranks are of a generation whose number is to be given now, or was given a second time.
  if (held.generation != desired_generation_ || held.world_size == 0) return false;
  return generation_ != desired_generation_ || held.uid != generation_uid_;
}

void RunMachine::note_held(const cluster::HeldRun& held) {
  if (is_news(held)) newest_held_ = std::max(newest_held_, held.generation);
}

void RunMachine::on_node_back(TimePoint now, const NodeId& node, const cluster::HeldRun& held,
                              CoordinatorCommands& out) {
  if (is_news(held) && has_touched(node)) return adopt(now, node, held.generation, out);
  const auto place = nodes_.find(node);
  if (place == nodes_.end() || place->second.lost || finished()) {
    cluster::DesiredRun gone;
    gone.run = definition_.id;
    gone.generation = std::max(held.generation, desired_generation_);
    // By the answer the coordinator knows that nothing of what was wanted before is left.
    gone.uid = held.generation > desired_generation_ ? 0 : desired_uid_;
    gone.want = cluster::Want::kGone;
    gone.run_dir = definition_.run_dir;
    gone.job = finished() ? SharedJson(nlohmann::json::object()) : definition_.job.resolved;
    out.push_back(SendToAgent{node, std::move(gone)});
    return;
  }
  cluster::Want want = cluster::Want::kRun;
  switch (phase_) {
    case RunPhase::kPlacing:
    case RunPhase::kFinished:
      return;
    case RunPhase::kStarting:
      return send_start(node, place->second, out);
    case RunPhase::kRunning:
      want = leave_ == Leave::kAtBoundary ? cluster::Want::kLeave : want;
      break;
    case RunPhase::kLeaving:
    case RunPhase::kStopping:
      want = cluster::Want::kStop;
      break;
    case RunPhase::kRecovering:
    case RunPhase::kWaiting:
      want = cluster::Want::kClear;
      break;
    case RunPhase::kClearing:
      want = cluster::Want::kGone;
      break;
  }
  send_desired(node, place->second, want, out);
}

// ---- stopping and the end ----

void RunMachine::on_stop(TimePoint now, const StopRequest& request, CoordinatorCommands& out) {
  if (finished()) return;
  const bool is_first = !stop_.has_value();
  if (is_first) stop_ = request;
  if (request.at_once) stop_->at_once = true;
  const bool changes_grace = request.grace && request.grace != stop_->grace;
  if (changes_grace) stop_->grace = request.grace;
  if (phase_ == RunPhase::kClearing) {
    if (request.at_once) send_desired(cluster::Want::kGone, out);  // Who has time to end has none any more.
    return;
  }
  if (is_first) {
    outcome_.state = state_of(request);
    outcome_.exit_code = exit_code_of(request);
    outcome_.error = words(request);
  }
  if (nodes_.empty()) return finish(now, out);
  if (request.at_once || !is_live()) return begin_clearing(now, out);
  if (!is_first && !changes_grace) return;
  phase_ = RunPhase::kStopping;
  send_desired(cluster::Want::kStop, out);
  decide(now, out);
}

Result<std::vector<SendToAgent>> RunMachine::signal_orders(int signal) const {
  if (is_training()) return Error{"the workers of a training run are told nothing by it"};
  if (!passes_signal(definition_.job.resolved, signal)) return Error{"it is none of the job's \"process.signals\""};
  std::vector<SendToAgent> orders;
  const bool is_at_work = is_live() && phase_ != RunPhase::kStarting;
  for (const auto& [node, record] : nodes_)
    if (is_at_work && !record.lost && !record.cleared)
      orders.push_back({node, cluster::PassSignal{definition_.id, generation_, generation_uid_, signal}});
  if (orders.empty()) return Error{"no worker of the run is at work now"};
  return orders;
}

/// After every fact and tick: is something decided, and is everything gone?
void RunMachine::decide(TimePoint now, CoordinatorCommands& out) {
  note_peer_loss(now, out);
  if (is_live()) {
    check_early_exit(now);
    check_reports(now);
    check_start(now);
    if (stop_ && (all_exited() || all_cleared())) {
      begin_clearing(now, out);
    } else if (!stop_ && decided(now)) {
      judge(now, out);
    } else if (!stop_ && phase_ == RunPhase::kLeaving && all_cleared()) {
      begin_recovery(now, out);
    } else if (!stop_ && all_exited() && !causes_.cause()) {
      on_all_exited(now, out);
    }
  }
  if (phase_ == RunPhase::kRecovering && all_cleared()) on_recovery_cleared(now, out);
  if (phase_ == RunPhase::kClearing && all_cleared()) finish(now, out);
}

/// Nobody has failed. It is a success only when all are done: a rank may have been ended by an agent that was told
/// something else than this machine knows of.
void RunMachine::on_all_exited(TimePoint now, CoordinatorCommands& out) {
  const auto first = [this](auto is_it) { return std::find_if(ranks_.begin(), ranks_.end(), is_it); };
  if (first([](const auto& rank) { return rank.second.left; }) != ranks_.end()) return begin_recovery(now, out);
  const auto undone = first([](const auto& rank) { return !rank.second.done; });
  if (undone == ranks_.end()) {
    if (is_training()) complete_recovery(now, out);
    tell_missing_reports(out);
    return end_run(now, "succeeded", exit_code::kSucceeded, "", out);
  }
  add_failure(now, unwanted_end(undone->first, undone->second.node, undone->second.pid));
  judge(now, out);
}

void RunMachine::on_tick(TimePoint now, CoordinatorCommands& out) {
  if (phase_ == RunPhase::kPlacing && placeless_since_ && now >= *placeless_since_ + definition_.placement_timeout) {
    return end_run(now, "not_placed", exit_code::kNotPlaced,
                   fmt::format("could not be placed within {}: {}", format_duration(definition_.placement_timeout),
                               placement_.reason),
                   out);
  }
  if (phase_ == RunPhase::kWaiting && wait_until_ && now >= *wait_until_) {
    wait_until_.reset();  // The owner offers what is free after this event.
    start_at_capacity_ = true;
    is_queued_ = false;
  }
  if (ask_again_at_ && now >= *ask_again_at_) ask_again(out);
  if (grow_at_ && now >= *grow_at_) {
    grow_at_.reset();
    looks_for_room_ = phase_ == RunPhase::kRunning;
  }
  decide(now, out);
}

void RunMachine::on_restarted(CoordinatorCommands& out) const {
  if (!finished()) record({{"event", "coordinator_restarted"}, {"generation", generation_}}, out);
}

void RunMachine::tell_open(CoordinatorCommands& out) const {
  if (finished()) {
    out.push_back(FinishRun{definition_.id, outcome_});
    return;
  }
  if (!checkpoints_.empty()) out.push_back(coordinator_command::KeepCheckpoints{definition_.id, checkpoints_});
}

std::optional<TimePoint> RunMachine::next_wakeup() const {
  if (finished()) return std::nullopt;
  std::optional<TimePoint> next;
  const auto consider = [&next](std::optional<TimePoint> at) {
    if (at) next = next ? std::min(*next, *at) : *at;
  };
  if (waits_for_room()) consider(ask_again_at_);
  if (phase_ == RunPhase::kPlacing && placeless_since_) consider(*placeless_since_ + definition_.placement_timeout);
  if (phase_ == RunPhase::kWaiting) consider(wait_until_);
  if (phase_ == RunPhase::kPlacing || phase_ == RunPhase::kWaiting) return next;
  if (is_live() && !stop_) consider(causes_.next_wakeup());
  if (phase_ == RunPhase::kStarting && !stop_ && !all_started() && !causes_.cause()) consider(start_by_);
  if (is_live() && !stop_ && first_exit_at_ && is_training()) consider(*first_exit_at_ + kEarlyExitGrace);
  consider(grow_at_);
  return next;
}

// ---- small views ----

void RunMachine::record(nlohmann::ordered_json event, CoordinatorCommands& out) const {
  out.push_back(RecordEvent{definition_.id, std::move(event)});
}

/// When nobody is left to say more, the cause is what is known.
bool RunMachine::decided(TimePoint now) const {
  return causes_.decided(now) || (causes_.cause() && all_exited());
}

bool RunMachine::is_live() const {
  return phase_ == RunPhase::kStarting || phase_ == RunPhase::kRunning || phase_ == RunPhase::kLeaving ||
         phase_ == RunPhase::kStopping;
}

RunMachine::RankRecord* RunMachine::find(Rank rank) {
  const auto place = ranks_.find(rank);
  return place == ranks_.end() ? nullptr : &place->second;
}

WorkersByNode RunMachine::held() const {
  WorkersByNode held;
  held.reserve(nodes_.size());
  for (const auto& [node, record] : nodes_)
    if (const int slots = slots_of(record); slots > 0) held.emplace_hint(held.end(), node, slots);
  return held;
}

int RunMachine::slots_used(const NodeId& node) const {
  const auto place = nodes_.find(node);
  return place == nodes_.end() ? 0 : slots_of(place->second);
}

bool RunMachine::is_clearing(const NodeId& node) const {
  const auto place = nodes_.find(node);
  return phase_ == RunPhase::kClearing && place != nodes_.end() && !place->second.lost && !place->second.cleared;
}

int RunMachine::slots_of(const NodeRecord& node) const {
  if (finished() || node.lost || has_cleared_) return 0;
  return static_cast<int>(node.ranks.size());
}

}  // namespace sgd::core
