// A run as seen from outside.

#include <algorithm>

#include "launcher/core/run_machine.hpp"

namespace sgd::core {

/// What the run waits for, or why it is in its phase.
std::string RunMachine::reason() const {
  if (is_paused_ && (phase_ == RunPhase::kWaiting || phase_ == RunPhase::kPlacing)) return "paused: " + resize_reason_;
  switch (phase_) {
    case RunPhase::kPlacing:
      return offered_.reason;
    case RunPhase::kWaiting:
      return start_at_capacity_ ? offered_.reason : "start failed; " + resize_reason_;
    case RunPhase::kStarting:
      return exchange_.waiting();
    case RunPhase::kLeaving:
    case RunPhase::kRecovering:
      return resize_reason_;
    case RunPhase::kRunning:
      return leave_ == Leave::kNo ? "" : resize_reason_;
    case RunPhase::kStopping:
    case RunPhase::kClearing:
    case RunPhase::kFinished:
      break;
  }
  return outcome_.error;
}

RunSnapshot RunMachine::snapshot(TimePoint now, Ranks ranks) const {
  RunSnapshot shot;
  shot.run = definition_.id;
  shot.name = definition_.job.name;
  shot.phase = phase_;
  shot.owner = definition_.owner;
  shot.priority = definition_.priority;
  shot.generation = generation_;
  shot.num_workers = definition_.job.num_workers;
  shot.world_size = placement_.world_size;
  shot.epochs = definition_.job.training ? definition_.job.training->epochs : 0;
  shot.epochs_done = outcome_.epochs;
  shot.failures = outcome_.failures;
  shot.wall_s = finished() ? outcome_.wall_s : to_seconds(now - submitted_at_);
  shot.checkpoint = outcome_.checkpoint;
  shot.gpus_left_out = gpus_left_out();
  if (shot.gpus_left_out.size() > kShownGpusMax) shot.gpus_left_out.resize(kShownGpusMax);
  shot.reason = reason();
  bool is_first = true;
  int with_loss = 0;
  for (const auto& [number, rank] : ranks_) {
    const link::Heartbeat& heard = rank.heartbeat;
    if (is_first) shot.activity = heard.phase;
    shot.step = is_first ? heard.step : std::min(shot.step, heard.step);
    shot.epoch = std::max(shot.epoch, heard.epoch);
    shot.samples_per_s += heard.samples_per_s;
    if (rank.heartbeat_at) {
      shot.loss += heard.loss;
      ++with_loss;
    }
    if (rank.phase == RankPhase::kReady || rank.phase == RankPhase::kStepping) ++shot.ready;
    is_first = false;
    if (ranks == Ranks::kLeftOut) continue;
    RankSnapshot row;
    row.rank = number;
    row.node = rank.node;
    row.pid = rank.pid;
    row.phase = rank.phase;
    row.step = heard.step;
    row.epoch = heard.epoch;
    row.activity = heard.phase;
    row.loss = heard.loss;
    row.samples_per_s = heard.samples_per_s;
    row.gpu = heard.gpu;
    if (rank.heartbeat_at) row.heartbeat_age_s = to_seconds(now - *rank.heartbeat_at);
    shot.ranks.push_back(std::move(row));
  }
  if (with_loss > 0) shot.loss /= with_loss;
  // Ranks that are not kept, or have said nothing yet, have made no step less than those before them.
  if (finished() || with_loss == 0) {
    shot.step = outcome_.steps;
    shot.epoch = outcome_.epochs;
  }
  return shot;
}

}  // namespace sgd::core
