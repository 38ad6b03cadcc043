#pragma once
// What a scheduler decides, with its reason: typed for tests and events, a sentence for people.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/tune/trial.hpp"

namespace sgd::tune {

enum class Action {
  kContinue,  ///< The trial goes on; also where nothing was to be decided.
  kStop,      ///< The trial ends here, as done.
  kPause,     ///< It saves a checkpoint, ends its workers and waits.
  kResume,    ///< It goes on from its newest checkpoint. Only from Scheduler::next_paused().
  kExploit,   ///< It goes on from a checkpoint of the donor's with `values`, in place of its own.
};

enum class Reason {
  kNoRule,            ///< This scheduler stops nothing.
  kBetweenRungs,      ///< Nothing is decided at this iteration.
  kFirstAtRung,       ///< There is nobody to compare with.
  kAmongBest,         ///< At least as good as the bound.
  kBelowBound,        ///< Worse than the bound.
  kNotANumber,        ///< The metric is no number.
  kMaxEpochs,         ///< It has had all that a trial may have.
  kWaitsAtRung,       ///< Whether it goes on depends on others.
  kPromoted,          ///< It is one of the best at its rung.
  kNotPromoted,       ///< Nobody is left who could make room for it.
  kHalved,            ///< Its bracket goes on without it.
  kTooFewTrials,      ///< Fewer trials have ended than the rule wants.
  kWarmUp,            ///< Too early.
  kBetweenIntervals,  ///< Nothing is decided at this iteration.
  kAboveMedian,       ///< Its best is at least the median's.
  kBelowMedian,       ///< Its best is worse than the median.
  kInTheMiddle,       ///< Neither one of the best nor one of the worst of the population.
  kAmongTop,          ///< One of the best of the population: others may copy it.
  kAmongBottom,       ///< One of the worst of the population: it copies a better one.
  kTurn,              ///< It is the one of the population that is furthest behind.
  kRepeated,          ///< A report that is not newer than the last one counts once.
  kNotRunning,        ///< A report that came after the decision about its trial.
};

struct Decision {
  TrialId trial = 0;
  Action action = Action::kContinue;
  Reason reason = Reason::kNoRule;
  std::int64_t iteration = 0;     ///< At which it was decided: the rung, or the report's.
  std::optional<double> value{};  ///< What was compared; not set when it was no number.
  std::optional<double> bound{};  ///< With what.
  std::int64_t others = 0;        ///< How many trials the bound comes from.
  bool waits = false;  ///< Others wait for its place: with kPause why, with kExploit it goes on when it is resumed.
  bool may_be_copied = false;  ///< The state that this report is of: its checkpoint is to be kept until the next one.
  std::optional<TrialId> donor{};      ///< With kExploit.
  std::int64_t donor_iteration = 0;    ///< With kExploit: when the donor was compared: the copy is of that state,
  std::int64_t donor_step = 0;         ///< which is of this step, where that is stored (Scheduler::on_copied).
  Values values{};                     ///< With kExploit: all of the trial's values from now on; else null.
  std::vector<std::string> changes{};  ///< With kExploit: how they differ from the donor's: "lr * 0.8".
};

/// The first is about the trial that the event was about, where it was about one; the others about other, paused
/// trials. No trial has two.
using Decisions = std::vector<Decision>;

[[nodiscard]] const char* word_of(Action action);
/// "below_bound": the reason in events and status.
[[nodiscard]] const char* word_of(Reason reason);
/// A sentence without full stop: "0.61 is worse than 0.73, the bound of 12 earlier trials at epoch 9".
[[nodiscard]] std::string in_words(const Decision& decision);
/// For events.jsonl, without what is not set; no number is null.
[[nodiscard]] nlohmann::json to_json(const Decision& decision);

}  // namespace sgd::tune
