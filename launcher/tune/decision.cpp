#include "launcher/tune/decision.hpp"

#include <cmath>

#include <fmt/format.h>

#include "common/base/assert.hpp"

namespace sgd::tune {
namespace {

/// As JSON writes it: the shortest digits that mean the same number.
std::string digits(const std::optional<double>& number) {
  return number ? nlohmann::json(*number).dump() : "no number";
}

std::string trials_of(const Decision& decision) {
  return fmt::format("{} trial{}", decision.others, decision.others == 1 ? "" : "s");
}

}  // namespace

const char* word_of(Action action) {
  switch (action) {
    case Action::kContinue:
      return "continue";
    case Action::kStop:
      return "stop";
    case Action::kPause:
      return "pause";
    case Action::kResume:
      return "resume";
    case Action::kExploit:
      return "exploit";
  }
  SGD_ASSERT(false);
}

const char* word_of(Reason reason) {
  switch (reason) {
    case Reason::kNoRule:
      return "no_rule";
    case Reason::kBetweenRungs:
      return "between_rungs";
    case Reason::kFirstAtRung:
      return "first_at_rung";
    case Reason::kAmongBest:
      return "among_best";
    case Reason::kBelowBound:
      return "below_bound";
    case Reason::kNotANumber:
      return "not_a_number";
    case Reason::kMaxEpochs:
      return "max_epochs";
    case Reason::kWaitsAtRung:
      return "waits_at_rung";
    case Reason::kPromoted:
      return "promoted";
    case Reason::kNotPromoted:
      return "not_promoted";
    case Reason::kHalved:
      return "halved";
    case Reason::kTooFewTrials:
      return "too_few_trials";
    case Reason::kWarmUp:
      return "warm_up";
    case Reason::kBetweenIntervals:
      return "between_intervals";
    case Reason::kAboveMedian:
      return "above_median";
    case Reason::kBelowMedian:
      return "below_median";
    case Reason::kInTheMiddle:
      return "in_the_middle";
    case Reason::kAmongTop:
      return "among_top";
    case Reason::kAmongBottom:
      return "among_bottom";
    case Reason::kTurn:
      return "turn";
    case Reason::kRepeated:
      return "repeated";
    case Reason::kNotRunning:
      return "not_running";
  }
  SGD_ASSERT(false);
}

std::string in_words(const Decision& decision) {
  const std::string value = digits(decision.value);
  const std::string bound = digits(decision.bound);
  const std::string at = fmt::format("epoch {}", decision.iteration);
  switch (decision.reason) {
    case Reason::kNoRule:
      return "every trial runs to its end";
    case Reason::kBetweenRungs:
      return fmt::format("{} is between two rungs", at);
    case Reason::kFirstAtRung:
      return fmt::format("{} is the first at the rung of {}", value, at);
    case Reason::kAmongBest:
      return fmt::format("{} is not worse than {}, the bound of {} at the rung of {}", value, bound,
                         trials_of(decision), at);
    case Reason::kBelowBound:
      return fmt::format("{} is worse than {}, the bound of {} at the rung of {}", value, bound, trials_of(decision),
                         at);
    case Reason::kNotANumber:
      return fmt::format("the metric is no number at {}", at);
    case Reason::kMaxEpochs:
      return fmt::format("{} is the last that a trial may have", at);
    case Reason::kWaitsAtRung:
      return fmt::format("{} waits for others at the rung of {}", value, at);
    case Reason::kPromoted:
      return fmt::format("{} is among the best of {} at the rung of {}", value, trials_of(decision), at);
    case Reason::kNotPromoted:
      return fmt::format("{} is not among the best of {} at the rung of {}", value, trials_of(decision), at);
    case Reason::kHalved:
      return fmt::format("{} is not among the best of its bracket's {} at the rung of {}", value, trials_of(decision),
                         at);
    case Reason::kTooFewTrials:
      return fmt::format("only {} to compare with at {}", trials_of(decision), at);
    case Reason::kWarmUp:
      return fmt::format("{} is too early for a decision", at);
    case Reason::kBetweenIntervals:
      return fmt::format("{} is between two decisions", at);
    case Reason::kAboveMedian:
      return fmt::format("its best, {}, is not worse than {}, the median of {} at {}", value, bound,
                         trials_of(decision), at);
    case Reason::kBelowMedian:
      return fmt::format("its best, {}, is worse than {}, the median of {} at {}", value, bound, trials_of(decision),
                         at);
    case Reason::kInTheMiddle:
      return fmt::format("{} is neither among the best nor among the worst of {} at {}", value, trials_of(decision),
                         at);
    case Reason::kAmongTop:
      return fmt::format("{} is among the best of {} at {}", value, trials_of(decision), at);
    case Reason::kAmongBottom:
      return fmt::format("{} is among the worst of {} at {}, and trial {} among the best", value, trials_of(decision),
                         at, decision.donor.value_or(0));
    case Reason::kTurn:
      return fmt::format("of those that wait it is furthest behind, at {}", at);
    case Reason::kRepeated:
      return fmt::format("{} was reported before", at);
    case Reason::kNotRunning:
      return "its end or pause was decided before this report came";
  }
  SGD_ASSERT(false);
}

nlohmann::json to_json(const Decision& decision) {
  const auto number = [](double value) { return std::isfinite(value) ? nlohmann::json(value) : nlohmann::json(); };
  nlohmann::json out{{"trial", decision.trial},
                     {"action", word_of(decision.action)},
                     {"reason", word_of(decision.reason)},
                     {"iteration", decision.iteration}};
  if (decision.value) out["value"] = number(*decision.value);
  if (decision.bound) out["bound"] = number(*decision.bound);
  if (decision.others > 0) out["others"] = decision.others;
  if (decision.waits) out["waits"] = true;
  if (decision.donor) {
    out["donor"] = *decision.donor;
    out["donor_iteration"] = decision.donor_iteration;
    out["values"] = decision.values;
    out["changes"] = decision.changes;
  }
  return out;
}

}  // namespace sgd::tune
