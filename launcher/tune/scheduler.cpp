#include "launcher/tune/scheduler.hpp"

#include <cmath>
#include <limits>
#include <utility>

#include "common/base/assert.hpp"

namespace sgd::tune {

const char* word_of(Outcome outcome) {
  switch (outcome) {
    case Outcome::kCompleted:
      return "completed";
    case Outcome::kStopped:
      return "stopped";
    case Outcome::kFailed:
      return "failed";
    case Outcome::kCancelled:
      return "cancelled";
  }
  SGD_ASSERT(false);
}

void Scheduler::enter(Member& member, Phase phase) {
  --counted(member.phase);
  ++counted(phase);
  member.phase = phase;
}

/// Nothing is kept of it here: there may be a hundred thousand.
void Scheduler::leave(TrialId trial, Outcome outcome) {
  const auto leaver = members_.find(trial);
  SGD_ASSERT(leaver != members_.end());
  --counted(leaver->second.phase);
  members_.erase(leaver);
  ended(trial, outcome);
}

void Scheduler::add_trial(TrialId trial, const Values& values) {
  SGD_ASSERT(trial >= 0 && members_.try_emplace(trial).second);
  ++running_;
  more_may_come_ = true;
  added(trial, values);
}

Decisions Scheduler::on_report(const Report& given) {
  Report report = given;
  if (!std::isfinite(report.value)) report.value = std::numeric_limits<double>::quiet_NaN();
  const auto found = members_.find(report.trial);
  Decision decision{.trial = report.trial, .iteration = report.iteration};
  if (found == members_.end() || found->second.phase != Phase::kRunning) {
    decision.action = found == members_.end() ? Action::kStop : Action::kPause;
    decision.reason = Reason::kNotRunning;
    return {decision};
  }
  Member& reporter = found->second;
  if (report.iteration <= reporter.iteration) {
    decision.reason = Reason::kRepeated;
    return {decision};
  }
  reporter.iteration = report.iteration;
  decision = reported(report);
  SGD_ASSERT(decision.trial == report.trial && decision.action != Action::kResume);
  if (decision.action == Action::kExploit) reporter.iteration = decision.donor_iteration;
  if (decision.action == Action::kPause || decision.waits) enter(reporter, Phase::kPaused);
  if (decision.action == Action::kStop) leave(report.trial, Outcome::kStopped);
  return settle({std::move(decision)});
}

Decisions Scheduler::on_end(TrialId trial, Outcome outcome) {
  if (!members_.contains(trial)) return {};
  leave(trial, outcome);
  return settle({});
}

Decisions Scheduler::on_no_more_trials() {
  more_may_come_ = false;
  return settle({});
}

Decisions Scheduler::settle(Decisions decisions) {
  for (Decision& decision : settled()) {
    SGD_ASSERT(decision.action == Action::kStop && members_.at(decision.trial).phase == Phase::kPaused);
    leave(decision.trial, Outcome::kStopped);
    // The trial that the event was about has one decision, the last one.
    if (!decisions.empty() && decisions.front().trial == decision.trial)
      decisions.front() = std::move(decision);
    else
      decisions.push_back(std::move(decision));
  }
  return decisions;
}

std::optional<Decision> Scheduler::next_paused(bool others_wait) const {
  if (paused_ == 0) return std::nullopt;
  auto decision = chosen(others_wait);
  SGD_ASSERT(!decision || decision->action == Action::kResume);
  return decision;
}

void Scheduler::on_resumed(TrialId trial) {
  Member& one = members_.at(trial);
  SGD_ASSERT(one.phase == Phase::kPaused);
  enter(one, Phase::kRunning);
  resumed(trial);
}

void Scheduler::on_values(TrialId trial, const Values& values) {
  if (members_.contains(trial)) values_set(trial, values);
}

void Scheduler::on_copied(TrialId trial, std::int64_t iteration, std::int64_t step) {
  const auto found = members_.find(trial);
  if (found == members_.end()) return;
  found->second.iteration = iteration;
  copied(trial, iteration, step);
}

nlohmann::json Scheduler::state() const {
  nlohmann::json members = nlohmann::json::array();
  for (const auto& [trial, one] : members_) members.push_back({trial, static_cast<int>(one.phase), one.iteration});
  return {{"members", std::move(members)}, {"more_may_come", more_may_come_}, {"own", own_state()}};
}

bool Scheduler::take_state(const nlohmann::json& state) {
  constexpr int kEnded = 2;  // A state of before has those, too.
  SGD_ASSERT(members_.empty());
  for (const nlohmann::json& one : state.at("members")) {
    const auto phase = one.at(1).get<int>();
    if (phase < 0 || phase > kEnded) return false;
    if (phase == kEnded) continue;
    const Member read{static_cast<Phase>(phase), one.at(2).get<std::int64_t>()};
    if (!members_.emplace(one.at(0).get<TrialId>(), read).second) return false;
    ++counted(read.phase);
  }
  more_may_come_ = state.at("more_may_come").get<bool>();
  return restore(state.at("own"));
}

}  // namespace sgd::tune
