#include "test/sim/run_check.hpp"

#include <algorithm>

#include "common/exit_codes.hpp"
#include "launcher/core/run_machine.hpp"
#include "test/sim/log.hpp"
#include "worker/core/sampler.hpp"

namespace sgd::sim {

using cluster::Want;

// ---- generations and places ----

RunCheck::Told RunCheck::on_desired(const NodeId& node, const cluster::DesiredRun& desired, bool is_drained) {
  const bool is_end = desired.want == Want::kClear || desired.want == Want::kGone;
  const bool may_skip = is_end ? !job().training && !has_forgotten() : !job().training || has_forgotten();
  if (may_skip && desired.generation > generation_ + 1) skip_to(desired.generation - 1);
  if (desired.generation == restarted_at_ + 1 && !(is_end && has_forgotten())) skip_to(restarted_at_);
  if (is_end) {
    // A node that comes back with something old is told apart from the run itself.
    if (desired.generation > generation_ + 1 && !has_forgotten())
      violated("{}: {} is told to clear generation {}, the newest is {}", job().name, node, desired.generation,
               generation_);
    if (places_.contains(node)) wants_[node] = desired.want;
    return {};
  }
  if (finished_) violated("{}: {} is told to run something after the end", job().name, node);
  const bool is_new = desired.generation != generation_;
  if (is_new) start(desired);
  const auto [place, is_first] = places_.try_emplace(node, desired.ranks);
  if (is_first && refusing_.contains(node) && !has_forgotten())
    violated("{}: {} is asked once more, and could not begin with it before", job().name, node);
  const auto same = [](const cluster::RankPlace& a, const cluster::RankPlace& b) {
    return a.rank == b.rank && a.local_rank == b.local_rank;
  };
  if (!is_first &&
      !std::equal(place->second.begin(), place->second.end(), desired.ranks.begin(), desired.ranks.end(), same))
    violated("{}: {} is told two sets of ranks in generation {}", job().name, node, generation_);
  if (desired.world_size != world_size_) violated("{}: two world sizes in generation {}", job().name, generation_);
  if (desired.want == Want::kLeave && !is_leaving_) {
    is_leaving_ = true;
    // A record that was made up for after a restart is later than what it tells of.
    // And both by as much as it takes to store them.
    const Duration late = world_.plan.commit == Duration{0} ? Duration{0} : Log::kEventMost;
    const TimePoint earliest = resized_at_.value_or(TimePoint{}) + job().recovery.cooldown - late;
    if (!is_drained && resized_at_ && restarted_at_ == 0 && world_.queue.now() < earliest)
      violated("{}: scale-up {} s after a resize", job().name, to_seconds(world_.queue.now() - *resized_at_));
  }
  wants_[node] = desired.want;
  return {is_new, is_first};
}

/// A generation of a command whose port had not been reserved when it ended: no node has been told to run it.
void RunCheck::skip_to(Generation generation) {
  if (generation <= generation_) return;
  generation_ = generation;
  places_.clear();
  wants_.clear();
}

void RunCheck::begin_again(Generation past) {
  finished_ = is_leaving_ = is_stop_requested_ = false;
  skip_to(past);
  first_generation_ = past + 1;
  world_size_ = leaves_in_vain_ = 0;
  resized_at_.reset();
  places_.clear();
  wants_.clear();
  refusing_.clear();
  budget_.begin_again(first_generation_);
}

void RunCheck::on_tail_lost(Generation generation, bool is_finished) {
  forgotten_ = std::max({forgotten_, generation_, Generation{1}});
  finished_ = finished_ && is_finished;
  generation_ = generation > 0 ? generation - 1 : 0;
  world_size_ = 0;
  resized_at_.reset();
  restarted_at_ = 0;
  is_leaving_ = false;
  places_.clear();
  wants_.clear();
  std::erase_if(lost_, [&](const auto& lost) { return lost.second > generation; });
}

/// What was is over, and told: ends that come later are nobody's any more.
void RunCheck::check_exits() const {
  if (has_forgotten()) return;
  for (const auto& [rank, node] : open_) {
    const auto keeper = keepers_lost_.lower_bound({node, rank.first});
    const bool is_untold = keeper != keepers_lost_.end() && keeper->first == node;
    if (!is_untold && !was_lost(node, rank.first))
      violated("{}: the end of rank {} of generation {} on {} is not recorded", job().name, rank.second, rank.first,
               node);
  }
}

void RunCheck::start(const cluster::DesiredRun& desired) {
  check_exits();
  if (desired.generation != generation_ + 1)
    violated("{}: generation {} after {}", job().name, desired.generation, generation_);
  generation_ = desired.generation;
  const int size = desired.world_size;
  const bool is_strict = generation_ == first_generation_ && !job().elastic_start;
  if (size > job().num_workers || size < (is_strict ? job().num_workers : job().min_workers))
    violated("{}: world size {} in generation {}", job().name, size, generation_);
  if (world_size_ != 0 && size != world_size_) resized_at_ = world_.queue.now();
  leaves_in_vain_ = world_.calm && is_leaving_ && size == world_size_ ? leaves_in_vain_ + 1 : 0;
  if (leaves_in_vain_ > kVainMost) violated("{}: leaves again and again, and goes on in its size", job().name);
  world_size_ = world_sizes_[generation_] = size;
  is_leaving_ = false;
  places_.clear();
  wants_.clear();
  check_resume(desired);
  if (!has_forgotten()) budget_.on_start(generation_, size);  // Nor is it told what has failed since.
}

void RunCheck::check_resume(const cluster::DesiredRun& desired) const {
  if (has_forgotten()) return;
  check_stored(desired);
  if (checkpoints_.empty()) return;
  if (desired.resume_from.empty() || !desired.resume_from.front().ends_with(checkpoints_.back()))
    violated("{}: generation {} is not given the newest checkpoint {}", job().name, generation_, checkpoints_.back());
}

void RunCheck::on_checkpoint_stored(const std::string& path) {
  stored_.insert(path);
  drop_older();
}

/// They need not be kept any more.
void RunCheck::drop_older() {
  const auto newest = std::find_if(accepted_.rbegin(), accepted_.rend(),
                                   [this](const std::string& path) { return stored_.contains(path); });
  if (newest != accepted_.rend()) accepted_.erase(accepted_.begin(), newest.base() - 1);
}

/// The newest that no lost node takes with it.
void RunCheck::check_stored(const cluster::DesiredRun& desired) const {
  if (accepted_.empty() || accepted_.size() > core::kArrivalsMax || !stored_.contains(accepted_.front())) return;
  const bool is_given = std::any_of(desired.resume_from.begin(), desired.resume_from.end(),
                                    [this](const std::string& path) { return path.ends_with(accepted_.front()); });
  if (!is_given)
    violated("{}: generation {} is not given {}, which no lost node takes with it", job().name, generation_,
             accepted_.front());
}

void RunCheck::check_ranks() const {
  std::vector<int> seen(static_cast<std::size_t>(world_size_), 0);
  for (const auto& [node, ranks] : places_) {
    int local = 0;
    for (const cluster::RankPlace& place : ranks) {
      if (place.rank < 0 || place.rank >= world_size_ || seen[static_cast<std::size_t>(place.rank)]++ != 0 ||
          place.local_rank != local++)
        violated("{}: rank {} of generation {} on {} is not dense", job().name, place.rank, generation_, node);
    }
  }
  if (std::count(seen.begin(), seen.end(), 1) != world_size_)
    violated("{}: generation {} lacks ranks", job().name, generation_);
}

void RunCheck::check_rules(const NodeId& node, const NodePlan& plan, std::size_t ranks) const {
  const job::PlacementRules& rules = job().placement;
  if (rules.max_per_node > 0 && ranks > static_cast<std::size_t>(rules.max_per_node))
    violated("{}: {} ranks on {}, at most {} are allowed", job().name, ranks, node, rules.max_per_node);
  if (std::find(rules.exclude.begin(), rules.exclude.end(), node) != rules.exclude.end())
    violated("{}: ranks on {}, which it excludes", job().name, node);
  const auto zone = rules.labels.find("zone");
  if (zone != rules.labels.end() && zone->second != plan.zone)
    violated("{}: ranks on {} in {}, {} is wanted", job().name, node, plan.zone, zone->second);
}

bool RunCheck::was_lost(const NodeId& node, Generation generation) const {
  const auto place = lost_.lower_bound({node, generation});
  return place != lost_.end() && place->first == node;
}

std::optional<int> RunCheck::wanted_on(const NodeId& node) const {
  const auto place = places_.find(node);
  if (finished_ || place == places_.end() || was_lost(node, generation_)) return 0;
  const Want want = wants_.at(node);
  if (want == Want::kClear || want == Want::kGone) return std::nullopt;
  return static_cast<int>(place->second.size());
}

bool RunCheck::is_elsewhere(const NodeId& node, Rank rank) const {
  return std::any_of(places_.begin(), places_.end(), [&](const auto& place) {
    const auto is_it = [rank](const cluster::RankPlace& one) { return one.rank == rank; };
    return place.first != node && std::any_of(place.second.begin(), place.second.end(), is_it);
  });
}

// ---- events ----

void RunCheck::on_event(const nlohmann::ordered_json& event) {
  const std::string& what = event.at("event").get_ref<const std::string&>();
  if (finished_) violated("{}: {} after the end", job().name, what);
  world_.say("{}: {}", job().name, world_.verbose ? event.dump() : "");
  if (what == "node_lost") lost_.emplace(event.at("node").get<NodeId>(), event.at("generation").get<Generation>());
  if (what == "failure") check_cause(event);
  if (what == "worker_started") open_[{event.at("generation"), event.at("rank")}] = event.at("node");
  note_refusal(event);
  if (what == "paused") {
    is_leaving_ = false;
    leaves_in_vain_ = 0;
  }
  if (what == "worker_exited") open_.erase({event.at("generation"), event.at("rank")});
  if (what == "checkpoint_saved") {
    const std::string& path = event.at("path").get_ref<const std::string&>();
    std::erase(checkpoints_, path);
    checkpoints_.push_back(path);
    std::erase(accepted_, path);
    accepted_.push_back(path);
    drop_older();
    if (checkpoints_.size() > static_cast<std::size_t>(job().checkpoint.keep)) checkpoints_.erase(checkpoints_.begin());
  }
  if (what == "checkpoint_rejected") on_rejected(event.at("path"));
  if (has_forgotten()) return;
  if (what == "epoch_finished" && event.at("epoch") != position_ / 2)
    violated("{}: epoch {} is finished after {} lines of metrics", job().name, event.at("epoch").dump(), lines_);
  budget_.on_event(event, what == "failure" && is_final(event));
}

/// A node that could not begin with it is asked again when no other one could, ever, or its ranks have run since.
void RunCheck::note_refusal(const nlohmann::ordered_json& event) {
  const std::string& what = event.at("event").get_ref<const std::string&>();
  if (what == "failure" && event.at("kind") == "node_refused") refusing_.insert(event.at("node"));
  const bool is_asked_again = what == "asking_again" || (what == "backoff" && event.at("kind") == "no_capacity");
  if (what == "worker_started" || is_asked_again) refusing_.clear();
}

void RunCheck::on_rejected(const std::string& path) {
  const auto is_that = [&](const std::string& known) { return path.ends_with(known); };
  std::erase_if(checkpoints_, is_that);
  std::erase_if(accepted_, is_that);
}

/// Of the rank that a failure blames; nothing: no rank, or it has not ended.
const ProcessEnd* RunCheck::end_of(const nlohmann::ordered_json& failure) const {
  if (failure.at("rank").is_null()) return nullptr;
  const auto end = ends_.find({failure.at("generation").get<Generation>(), failure.at("rank").get<Rank>()});
  return end == ends_.end() ? nullptr : &end->second;
}

/// A code that says that another start would end the same way.
bool RunCheck::is_final(const nlohmann::ordered_json& failure) const {
  if (!job().training || failure.value("kind", "") != "exit_code") return false;
  const ProcessEnd* end = end_of(failure);
  return end != nullptr && (end->exit_code == worker_exit::kUserError || end->exit_code == worker_exit::kConfiguration);
}

/// Whoever is blamed must have ended by himself, or never have started.
void RunCheck::check_cause(const nlohmann::ordered_json& event) const {
  if (world_.plan.trouble == Duration{0}) violated("{}: failure without a fault: {}", job().name, event.dump());
  const std::string kind = event.at("kind");
  if (event.at("rank").is_null() || (kind != "signal" && kind != "exit_code") || has_forgotten()) return;
  const ProcessEnd* end = end_of(event);
  const auto generation = event.at("generation").get<Generation>();
  if (end == nullptr && (never_started_.contains({generation, event.at("rank").get<Rank>()}) ||
                         without_port_.contains({generation, event.at("node").get<NodeId>()})))
    return;
  if (end == nullptr) violated("{}: blamed, and alive: {}", job().name, event.dump());
  if (end->is_order) violated("{}: blamed, and killed by us: {}", job().name, event.dump());
  if (kind == "signal" && end->signal == 0)
    violated("{}: blamed for a signal that it never got: {}", job().name, event.dump());
}

// ---- metrics and samples ----

/// The history that led to this report has consumed each sample once, but for the padding of its end.
void RunCheck::on_phase_done(Generation generation, const Point& point) {
  const std::int64_t samples = point.validating ? plan_.validation_samples : plan_.train_samples;
  std::vector<int> used(static_cast<std::size_t>(samples), 0);
  std::int64_t position = 0;
  std::int64_t total = 0;
  for (const Stretch& stretch : point.stretches) {
    const worker::Sampler order(job().training->seed, point.epoch, samples, stretch.world_size,
                                job().training->shuffle);
    if (stretch.from != position)
      violated("{}: samples {} to {} are missing or twice", job().name, position, stretch.from);
    for (; position < stretch.to; ++position)
      if (position < samples) ++used[static_cast<std::size_t>(order.at(position))];
    total += stretch.to - stretch.from;
    if (stretch.to - samples >= stretch.world_size) violated("{}: more padding than ranks", job().name);
  }
  if (std::count(used.begin(), used.end(), 1) != samples) violated("{}: not every sample was used once", job().name);
  samples_[{generation, point.epoch, point.validating}] = total;
}

void RunCheck::on_metrics(const nlohmann::ordered_json& line) {
  if (finished_) violated("{}: metrics after the end", job().name);
  if (has_forgotten()) return;
  const int epoch = line.at("epoch");
  const bool validating = line.at("phase") == "validate";
  if (epoch != position_ / 2 + 1 || validating != (position_ % 2 == 1))
    violated("{}: line {} of metrics is epoch {} {}", job().name, lines_ + 1, epoch, line.at("phase").dump());
  ++lines_;
  ++position_;
  if (line.at("_training_iteration") != lines_) violated("{}: iteration {}", job().name, line.dump());
  const Generation generation = line.at("generation");
  if (line.at("train_loss") != static_cast<double>(generation))
    violated("{}: reports of several generations in one line: {}", job().name, line.dump());
  if (line.at("world_size") != world_sizes_.at(generation))
    violated("{}: wrong world size: {}", job().name, line.dump());
  const auto samples = samples_.find({generation, epoch, validating});
  if (samples == samples_.end()) violated("{}: a line that nobody has reported: {}", job().name, line.dump());
  if (line.at("num_samples") != samples->second)
    violated("{}: {} samples, counted {}", job().name, samples->second, line.dump());
}

// ---- the end ----

void RunCheck::on_finish(const core::RunOutcome& outcome) {
  if (finished_) violated("{}: finished twice", job().name);
  finished_ = true;
  check_exits();
  world_.say("{}: {} with {}: {}", job().name, outcome.state, outcome.exit_code, outcome.error);
  const int code = outcome.exit_code;
  if (outcome.state == "succeeded") {
    if (code != exit_code::kSucceeded) violated("{}: succeeded with exit code {}", job().name, code);
    return check_success();
  }
  if (outcome.state == "failed") {
    if (code == exit_code::kFailed || code == exit_code::kUsage || code == exit_code::kExhausted) return;
  } else if (outcome.state == "not_placed") {
    if (code == exit_code::kNotPlaced && generation_ < first_generation_) return;
  } else if (is_stop_requested_) {
    if (outcome.state == "cancelled" && code == exit_code::kCancelled) return;
    if (outcome.state == "interrupted" && code > exit_code::kSignalBase) return;
  }
  violated("{}: state {} with exit code {} in generation {}", job().name, outcome.state, code, generation_);
}

void RunCheck::check_success() const {
  if (job().training && !has_forgotten() && position_ != 2 * job().training->epochs)
    violated("{}: succeeded after {} lines of metrics", job().name, lines_);
  for (Rank rank = 0; rank < world_size_; ++rank) {
    const auto end = ends_.find({generation_, rank});
    if (end == ends_.end() || end->second.exit_code != 0)
      violated("{}: succeeded, and rank {} has not", job().name, rank);
  }
}

}  // namespace sgd::sim
