// Experiment: trials that a search program makes. What the program is to be told follows from the experiment's events
// ("trials_wanted", "trial_report", "trial_ended"), which its shell has anyway; what it says comes in here.

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "launcher/core/experiment.hpp"
#include "launcher/core/run_machine.hpp"

namespace sgd::core {

void Experiment::ask_search(TimePoint now, std::size_t room, CoordinatorCommands& out) {
  std::vector<tune::TrialId> wanted;
  while (takes_search_lines() && !no_more_ && wanted.size() < room && next_ < planned()) wanted.push_back(next_++);
  if (wanted.empty()) return;
  owed_.insert(wanted.begin(), wanted.end());
  if (!owed_since_) owed_since_ = now;
  protocol_->on_asked(wanted);
  record({{"event", "trials_wanted"}, {"trials", wanted}}, out);
}

void Experiment::on_search_said(TimePoint now, const std::string& line, CoordinatorCommands& out, TrialOrders& orders) {
  if (!takes_search_lines()) return;
  const auto said = protocol_->take(line);
  if (!said) return end_search(said.error().message, out);
  if (const auto* trial = std::get_if<tune::Trial>(&said.value())) {
    owed_.erase(trial->id);
    if (stop_)
      unmade_.insert(trial->id);
    else
      start(trial->id, trial->values, out, orders);
  } else if (const auto* kill = std::get_if<tune::KillTrial>(&said.value())) {
    const auto known = trials_.find(kill->trial);
    const bool is_alive = known != trials_.end() && known->second.phase != TrialPhase::kStopping &&
                          known->second.phase != TrialPhase::kEnded;
    if (is_alive) stop(kill->trial, tune::Outcome::kCancelled, tune::kKillReason, {}, out, orders);
  } else {
    no_more_ = true;
    unmade_.merge(owed_);
  }
  owed_since_ = owed_.empty() ? std::nullopt : std::optional(now);
}

/// What it lacks is said with it: a program that has no more to give says so before it ends.
void Experiment::on_search_failed(const std::string& why, CoordinatorCommands& out) {
  if (!more_may_come()) return end_search(why, out);
  const std::string lack = owed_.empty() ? fmt::format("has given {} of {} trials", next_, planned())
                                         : fmt::format("owes trial {}", *owed_.begin());
  end_search(fmt::format("{}; it {}, and has not said \"no_more\"", why, lack), out);
}

/// Trials that it has given go on: what they find is known, and so is that it is not all, unless it has given all.
void Experiment::end_search(const std::string& why, CoordinatorCommands& out) {
  if (!is_readable() || !takes_search_lines()) return;
  const bool has_given_all = !more_may_come();
  (has_given_all ? search_ended_ : search_error_) = why;
  unmade_.merge(owed_);
  owed_since_.reset();
  if (has_given_all) return record({{"event", "search_ended"}, {"why", why}}, out);
  record({{"event", "search_failed"}, {"why", why}}, out);
}

/// Whatever was asked for and has not begun, the next program owes: it is told so by the same events.
void Experiment::reopen_search(TimePoint now) {
  search_error_.clear();
  search_ended_.clear();
  if (!protocol_ || no_more_) return;
  owed_.merge(unmade_);
  owed_since_ = owed_.empty() ? std::nullopt : std::optional(now);
  make_list();
}

std::optional<TimePoint> Experiment::next_wakeup() const {
  if (is_over_ || !owed_since_) return std::nullopt;
  return *owed_since_ + spec_.search.timeout;
}

void Experiment::on_tick(TimePoint now, CoordinatorCommands& out) {
  const auto due = next_wakeup();
  if (!due || now < *due) return;
  if (now - *due > RunMachine::kLateTick) {  // This process stood still, and maybe the program with it.
    owed_since_ = now;
    return;
  }
  end_search(fmt::format("the search program has said nothing for {}, and owes trial {}",
                         format_duration(spec_.search.timeout), *owed_.begin()),
             out);
}

}  // namespace sgd::core
