// What RunMachine does when something has failed or the size is to change: judge, clear, count, wait, start again.

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "common/base/assert.hpp"
#include "common/exit_codes.hpp"
#include "launcher/core/failure_of.hpp"
#include "launcher/core/run_machine.hpp"

namespace sgd::core {

using Event = nlohmann::ordered_json;

namespace {

/// Like no other size: whether two generations had the same one cannot be said.
constexpr int kUnknownSize = -1;

}  // namespace

/// The cause is known: is there to be another generation?
void RunMachine::judge(TimePoint now, CoordinatorCommands& out) {
  Failure cause = *causes_.cause();
  if (const std::string left = who_left(cause); !left.empty())
    cause.message += (cause.message.empty() ? "" : "; ") + left;
  ++outcome_.failures;
  outcome_.cause = cause;
  outcome_.generation = generation_;
  Event event = {{"event", "failure"}, {"generation", generation_}, {"kind", name(cause.kind)}};
  event["rank"] = cause.rank >= 0 ? Event(cause.rank) : Event(nullptr);
  event["node"] = cause.node;
  event["message"] = words(cause);
  if (!cause.gpu.empty()) event["device"] = cause.gpu;
  EndedGeneration ended;
  ended.was_started = was_started_;
  ended.is_first = is_first_start();
  ended.step = steps_told_;
  if (was_started_ && started_at_) ended.lived = now - *started_at_;
  ended.has_run = !is_training() && ranks_started_ > 0;
  const RetryVerdict verdict = budget_.on_failure(cause, ended);
  event["restart"] = verdict.restart;
  record(std::move(event), out);
  if (!verdict.restart) {
    const std::string why = verdict.why.empty() ? "" : "; " + verdict.why;
    return end_run(now, "failed", verdict.exit_code, words(cause) + why, out);
  }
  note_gpu_fault(cause, out);
  if (verdict.delay > Duration::zero()) {
    wait_until_ = now + verdict.delay;
    start_at_capacity_ = false;
    record({{"event", "backoff"},
            {"generation", generation_},
            {"attempt", was_started_ ? budget_.quick_crashes() : budget_.attempts()},
            {"delay_s", to_seconds(verdict.delay)},
            {"kind", "failed_start"},
            {"reason", was_started_ ? "it fails soon after each start" : "start failed"}},
           out);
  }
  resize_reason_ = "failure: " + words(cause);
  recovery_.begin(now, cause);
  begin_recovery(now, out);
}

/// The start of a command was judged as failed, since no rank was known to have been executed; now one is.
void RunMachine::count_late_start(TimePoint now, CoordinatorCommands& out) {
  const auto& cause = causes_.cause();
  const bool was_judged = phase_ == RunPhase::kRecovering && leave_ == Leave::kNo && cause && !was_started_;
  if (is_training() || !was_judged || cause->is_of_node()) return;
  const RetryVerdict verdict = budget_.on_late_start();
  if (!verdict.restart) end_run(now, "failed", verdict.exit_code, words(*cause) + "; " + verdict.why, out);
}

/// Its place is wanted, and no failure of it was judged: that it has started well counts, too, when it is heard only
/// now.
bool RunMachine::is_cleared_unfailed() const {
  const bool was_judged = outcome_.cause && outcome_.generation == generation_;
  return phase_ == RunPhase::kRecovering && !was_judged;
}

/// Of a failure that follows a peer's, where none has failed: a rank that ended as if all were done is missed by the
/// others.
std::string RunMachine::who_left(const Failure& cause) const {
  if (is_training() || !cause.is_secondary()) return {};
  std::set<Rank> left;
  for (const auto& [number, rank] : ranks_)
    if (rank.done) left.insert(number);
  if (left.empty()) return {};
  return fmt::format("rank{} {} had ended with exit code 0 by then, and others waited for {}",
                     left.size() == 1 ? "" : "s", fmt::join(left, ", "), left.size() == 1 ? "it" : "them");
}

void RunMachine::begin_recovery(TimePoint now, CoordinatorCommands& out) {
  before_ = placement_;
  if (was_started_ || trained_.world_size == 0) trained_ = placement_;
  clear_generation(now, out);
}

/// All that is left of the generation is killed and reaped, on behalf of the next one.
void RunMachine::clear_generation(TimePoint now, CoordinatorCommands& out) {
  phase_ = RunPhase::kRecovering;
  has_cleared_ = false;
  want_generation(now, next_generation());
  clear_none_but_lost();
  send_desired(cluster::Want::kClear, out);
  if (all_cleared()) on_recovery_cleared(now, out);
}

/// The store has lost its end: `node` holds a generation that this machine knows nothing of. Whoever runs in it, there
/// or elsewhere, is ended, and what comes next is newer than anything that anybody holds.
void RunMachine::adopt(TimePoint now, const NodeId& node, Generation held, CoordinatorCommands& out) {
  const std::string reason =
      fmt::format("{} holds a generation {} that is not known here, where {} is the newest: the store has lost its end",
                  node, held, desired_generation_);
  out.push_back(coordinator_command::Warn{definition_.id, reason});
  nodes_[node].lost = false;  // It answers, and is waited for.
  has_cleared_ = false;
  if (phase_ == RunPhase::kClearing || stop_) {
    begin_clearing(now, out);
  } else if (is_live()) {
    add_failure(now, node_failure(node, reason, 0));
    judge(now, out);
  } else {
    clear_generation(now, out);
  }
  trained_.world_size = kUnknownSize;
}

/// Nothing runs: slots of the killed ranks count as free from here. What is free the coordinator knows, which
/// offers it after this event.
void RunMachine::on_recovery_cleared(TimePoint now, CoordinatorCommands& out) {
  SGD_ASSERT(phase_ == RunPhase::kRecovering && all_cleared());  // Else slots of ranks that live would be given away.
  if (copies_are_ahead())
    for (const auto& [node, record] : nodes_) keepers_from_[node] = next_generation();
  recovery_.cleared(now);
  phase_ = RunPhase::kWaiting;
  has_cleared_ = true;
  if (wait_until_ && now >= *wait_until_) wait_until_.reset();  // The clearing took longer: it is its turn at once.
  start_at_capacity_ = !wait_until_;
  is_queued_ = false;
  if (is_paused_) note_paused(out);
}

/// A lost node or keeper has taken a report along that all other ranks have made: what they hold in memory may be of a
/// time after it, and its line of metrics would be missing for ever.
bool RunMachine::copies_are_ahead() const {
  const bool any_lost = std::any_of(nodes_.begin(), nodes_.end(), [](const auto& node) { return node.second.lost; });
  return is_training() && (any_lost || has_lost_words_) && reducer_.has_pending();
}

/// Only nodes that could not begin with it have room, ever. They are asked once more after the delay of a start that
/// failed; but what has never run anywhere has most likely asked for what is not there.
void RunMachine::on_no_other_node(TimePoint now, CoordinatorCommands& out) {
  refusing_.clear();
  const bool has_never_run = generation_ - first_generation_ < refusals();
  if (has_never_run)
    end_run(now, "failed", exit_code::kFailed, words(*outcome_.cause) + "; worker start-up failed", out);
}

/// The nodes that could begin with it are busy, for hours maybe, and those that could not may have been mended.
void RunMachine::ask_again(CoordinatorCommands& out) {
  ask_again_at_.reset();
  if (!waits_for_room() || refusing_.empty()) return;
  record({{"event", "asking_again"},
          {"generation", generation_},
          {"nodes", fmt::format("{}", fmt::join(refusing_, ", "))}},
         out);
  looks_for_room_ = true;
  refusing_.clear();
  budget_.on_ask_again();
}

void RunMachine::wait_for_slots(TimePoint now, CoordinatorCommands& out) {
  const std::optional<Duration> delay = budget_.on_no_capacity();
  if (!delay) {
    return end_run(
        now, "failed", exit_code::kExhausted,
        fmt::format("no capacity after {} attempts: {}{}", budget_.attempts(), placement_.reason, without_gpus()), out);
  }
  wait_until_ = now + *delay;
  record({{"event", "backoff"},
          {"generation", generation_},
          {"attempt", budget_.attempts()},
          {"delay_s", to_seconds(*delay)},
          {"kind", "no_capacity"},
          {"reason", placement_.reason + without_gpus()}},
         out);
}

/// Training on a drained node moves at its next boundary; a command has none, and stays.
void RunMachine::consider_leaving(CoordinatorCommands& out) {
  if (phase_ != RunPhase::kRunning || !is_training() || stop_ || leave_ != Leave::kNo) return;
  for (const auto& [node, view] : views_)
    if (view.is_drained && nodes_.contains(node)) return leave_at_boundary(node + " is drained", out);
}

/// Below num_workers and with room for more: the ranks are asked to leave, at the next boundary or now.
void RunMachine::consider_growth(TimePoint now, CoordinatorCommands& out) {
  if (!may_grow() || offered_.growth < 1) return;
  if (grow_at_ && now < *grow_at_) return;
  if (grows_at_once()) return leave_at_once("capacity is back", out);
  leave_at_boundary("capacity is back", out);
}

void RunMachine::leave_at_boundary(std::string reason, CoordinatorCommands& out) {
  leave_ = Leave::kAtBoundary;
  resize_reason_ = std::move(reason);
  send_desired(cluster::Want::kLeave, out);
}

void RunMachine::leave_at_once(std::string reason, CoordinatorCommands& out) {
  leave_ = Leave::kNow;
  resize_reason_ = std::move(reason);
  phase_ = RunPhase::kLeaving;
  send_desired(cluster::Want::kStop, out);
}

void RunMachine::on_slots_lost(TimePoint now, const NodeId& node, const std::string& reason, CoordinatorCommands& out) {
  if (!nodes_.contains(node) || stop_ || (phase_ != RunPhase::kStarting && phase_ != RunPhase::kRunning)) return;
  if (phase_ == RunPhase::kRunning) return leave_at_once(reason, out);
  resize_reason_ = reason;
  leave_ = Leave::kNow;
  begin_recovery(now, out);
}

void RunMachine::on_node_lost(TimePoint now, const NodeId& node, const std::string& reason, double silent_s,
                              CoordinatorCommands& out) {
  const auto place = nodes_.find(node);
  if (finished() || place == nodes_.end() || place->second.lost) return;
  lose_node(now, node, reason, silent_s, out);
  decide(now, out);
}

void RunMachine::lose_node(TimePoint now, const NodeId& node, const std::string& reason, double silent_s,
                           CoordinatorCommands& out) {
  NodeRecord& lost = nodes_.at(node);
  lost.lost = true;
  views_.erase(node);
  clear_node(lost);
  keepers_from_[node] = next_generation();  // What it reports from here on is refused.
  record({{"event", "node_lost"}, {"generation", generation_}, {"node", node}, {"reason", reason}}, out);
  if (!is_live()) return;
  for (const Rank rank : lost.ranks) {
    end_rank(ranks_.at(rank));
    set_phase(ranks_.at(rank), RankPhase::kExited);
  }
  add_failure(now, node_failure(node, reason, silent_s));
}

/// Survivors miss a peer, and a node's link is closed: that node is gone, and nobody waits for its silence. The link
/// may be seen to close when the run recovers, or ends, already from what the survivors said.
void RunMachine::note_peer_loss(TimePoint now, CoordinatorCommands& out) {
  if (!causes_.cause() || !causes_.cause()->misses_peer()) return;
  for (const auto& [node, record] : nodes_) {
    const auto view = views_.find(node);
    if (record.lost || record.cleared || view == views_.end() || !view->second.is_closed || !is_missed(node)) continue;
    return lose_node(now, node, "its link is closed, and its ranks are missed by their peers", 0, out);
  }
}

/// By a rank of another node; its own ranks may miss somebody else.
bool RunMachine::is_missed(const NodeId& node) const {
  return std::any_of(ranks_.begin(), ranks_.end(),
                     [&](const auto& rank) { return rank.second.missed_peer && rank.second.node != node; });
}

/// An agent that was told to start ranks says nothing of them: another start may find it willing, or go elsewhere.
void RunMachine::check_start(TimePoint now) {
  if (phase_ != RunPhase::kStarting || stop_ || all_started() || causes_.cause() || now < start_by_) return;
  if (now - start_by_ > kLateTick) {  // This process stood still, and maybe the ranks with it.
    start_by_ = now + start_time();
    return;
  }
  for (const auto& [number, rank] : ranks_)
    if (rank.pid == 0 && !rank.exited) return add_failure(now, not_started(number, rank.node, start_time()));
}

/// One rank of a training group has ended as if all were done, and the others go on: never a silent success.
void RunMachine::check_early_exit(TimePoint now) {
  if (!is_training() || stop_ || !first_exit_at_ || all_exited() || now < *first_exit_at_ + kEarlyExitGrace) return;
  for (const auto& [number, rank] : ranks_) {
    if (!rank.done) continue;
    cluster::WorkerExited exited;
    exited.rank = number;
    exited.pid = rank.pid;
    exited.exit_code = 0;
    exited.message = fmt::format("ended {} ago while other ranks go on", format_duration(kEarlyExitGrace));
    Failure failure = failure_of(rank.node, exited, true);
    return add_failure(now, std::move(failure));
  }
}

/// All ranks have ended as if all were done, and one has reported what another has not: a line is missing.
void RunMachine::check_reports(TimePoint now) {
  if (!is_training() || stop_ || !all_exited() || causes_.cause()) return;
  const auto is_done = [](const auto& rank) { return rank.second.done && !rank.second.left; };
  if (!std::all_of(ranks_.begin(), ranks_.end(), is_done)) return;
  if (const auto unequal = reducer_.unequal())
    add_failure(now, protocol_failure(unequal->rank, ranks_.at(unequal->rank).node, unequal->message));
}

/// A command's work is done, whatever it has reported: that lines are missing is said, and is no failure.
void RunMachine::tell_missing_reports(CoordinatorCommands& out) const {
  const auto unequal = is_training() ? std::nullopt : reducer_.unequal();
  if (!unequal) return;
  record({{"event", "reports_missing"},
          {"generation", generation_},
          {"rank", unequal->rank},
          {"message", unequal->message}},
         out);
}

void RunMachine::note_started() {
  was_started_ = true;
  budget_.on_first_step();
  if (!refusing_.empty()) looks_for_room_ = true;  // They were out when it was offered room last.
  refusing_.clear();
}

/// The new generation trains: one line says what the recovery cost and what was lost.
void RunMachine::complete_recovery(TimePoint now, CoordinatorCommands& out) {
  if (!recovery_.pending()) return;
  record(recovery_.finish(now, generation_, placement_.world_size, is_same_shape()), out);
}

/// Equal world size and ranks per node: then the arithmetic of every step is the same, bit for bit.
bool RunMachine::is_same_shape() const {
  if (trained_.world_size != placement_.world_size || trained_.nodes.size() != placement_.nodes.size()) return false;
  for (std::size_t index = 0; index < trained_.nodes.size(); ++index)
    if (trained_.nodes[index].ranks != placement_.nodes[index].ranks) return false;
  return true;
}

/// What is promised of the steps to come: those of a run that nothing happened to. A run that goes on after its end may
/// have got other settings, or its former shape may not be known.
bool RunMachine::is_bit_exact() const {
  if (definition_.past && generation_ == first_generation_ && !definition_.past->is_same_job) return false;
  return is_same_shape();
}

/// Among them the newest that has come from its node.
std::vector<std::string> RunMachine::checkpoints_to_try() const {
  std::vector<std::string> paths;
  for (auto path = checkpoints_.rbegin(); path != checkpoints_.rend() && paths.size() < kCheckpointsMax; ++path)
    paths.push_back(*path);
  const std::string stored = newest_stored(arrivals_);
  if (!stored.empty() && std::find(paths.begin(), paths.end(), stored) == paths.end()) paths.back() = stored;
  for (std::string& path : paths) path = path.starts_with('/') ? path : definition_.run_dir + "/" + path;
  return paths;
}

}  // namespace sgd::core
