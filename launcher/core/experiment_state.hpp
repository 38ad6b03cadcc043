#pragma once
// All that an experiment's machine knows, as a value: a machine made of it goes on as the one that it was taken of. A
// new field belongs into its list in storage/experiment_fields.hpp, which does not compile without it.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "common/base/time.hpp"
#include "launcher/core/coordinator_io.hpp"
#include "launcher/tune/scheduler.hpp"

namespace sgd::core {

enum class TrialPhase {
  kRunning,   ///< Its run waits for room or is at work.
  kStopping,  ///< Its run was asked to end.
  kPausing,   ///< Its run was asked to save and to give its room up.
  kPaused,    ///< Its run has no rank, and waits until it is wanted again.
  kEnded,     ///< Its run is over.
};
[[nodiscard]] const char* name(TrialPhase phase);

/// What a trial was when it had its best value.
struct BestState {
  tune::Values values;
  std::string origin;      ///< As TrialRecord::origin.
  std::string checkpoint;  ///< Absolute; empty: none of that value is kept.
};

/// Reports of a trial whose steps are remembered: so far back a checkpoint's iteration is known by its step.
inline constexpr std::size_t kReportStepsMax = 64;

/// A trial is to go on from another one's state, and that may still be on its way to the disk. Until it is there, or is
/// not waited for any longer, the trial goes on as it is.
struct HeldCopy {
  tune::TrialId donor = 0;
  std::int64_t donor_iteration = 0;  ///< When the donor was compared,
  std::int64_t donor_step = 0;       ///< and its step then; 0: not known.
  std::int64_t donor_clones = 0;     ///< TrialRecord::clones of the donor by then: which of its states is meant.
  std::int64_t iteration = 0;        ///< When the trial itself was compared,
  std::int64_t step = 0;             ///< and its step then.
  TimePoint since;
  Duration limit{0};  ///< After so long it takes what there is, or goes on as it is.
};

/// What is known of a trial as long as it may matter to its experiment.
struct TrialRecord {
  TrialPhase phase = TrialPhase::kRunning;
  tune::Values values;
  std::int64_t reports = 0;             ///< Lines that have the metric.
  std::int64_t iteration = 0;           ///< Of the newest one.
  std::optional<double> value;          ///< The newest that is finite.
  std::optional<double> best;           ///< Of all of them.
  std::int64_t best_iteration = 0;      ///< When that was.
  std::optional<BestState> best_state;  ///< Of before it took another one's state; nothing: it is what it was then.
  tune::Outcome outcome{};              ///< Of one that is stopping or has ended.
  std::string reason;                   ///< Why it stops, waits or has failed.
  std::string checkpoint;               ///< Of one that has ended, absolute: that of its best value where kept.
  double wall_s = 0;                    ///< Of one that has ended.
  std::int64_t failures = 0;            ///< After which it was started again.
  std::int64_t silent_lines = 0;        ///< That have not had the metric.
  std::map<std::int64_t, std::int64_t> steps;  ///< The iteration by step, of newest reports; where others may copy it.
  std::string origin;       ///< With which state it has begun: a donor's, in its own folder; empty: anew.
  std::int64_t clones = 0;  ///< How often it was to take another one's state.
  std::string taken;        ///< While it is pausing: with which state it goes on; empty: its own.
  tune::Values next;        ///< And with which values, then; null: its own.
  bool waits = true;        ///< And whether it waits until it is resumed.
  std::vector<nlohmann::ordered_json> held;  ///< Lines that came after it was to pause: they count when it goes on.
  /// It was ended with the experiment, and goes on with it, as what it was then.
  std::optional<TrialPhase> interrupted;
};

struct ExperimentState {
  RunDefinition definition_;  ///< Its job has a `tune`.
  TimePoint submitted_at_;
  std::optional<TimePoint> resumed_at_;  ///< After it had ended; nothing: it has not yet.
  double worked_s_ = 0;                  ///< Before that.
  /// Those that have not ended, or go on with the experiment; the best one; and all where an ended one may be copied.
  /// Of any other that has begun nothing is kept here: there may be a hundred thousand.
  std::map<tune::TrialId, TrialRecord> trials_;
  std::map<tune::TrialId, HeldCopy> copies_;  ///< Of trials that pause for that, or did when their experiment ended.
  tune::TrialId next_ = 0;                    ///< The trial that is made next.
  std::optional<tune::TrialId> best_;         ///< That has ended and reported the best value.
  std::int64_t at_work_ = 0;                  ///< Counted, as those below.
  std::int64_t paused_ = 0;
  std::int64_t ended_ = 0;
  std::int64_t failed_ = 0;        ///< Of those.
  std::int64_t unplaced_ = 0;      ///< Of those: there was no room for them in time.
  std::string first_error_;        ///< Of the first trial that has failed.
  bool is_metric_known_ = false;   ///< Some line has had it.
  bool is_metric_missed_ = false;  ///< Told already.
  bool has_told_last_ = false;     ///< The scheduler knows that no trial is to come.
  bool is_over_ = false;
  // Of a search program:
  std::set<tune::TrialId> owed_;         ///< Trials that it was asked for, and has not given.
  std::set<tune::TrialId> unmade_;       ///< That nobody owes any more, and that have not begun.
  std::optional<TimePoint> owed_since_;  ///< It has said nothing for so long, and owes something.
  bool no_more_ = false;                 ///< It has said so.
  std::string search_error_;             ///< What it did wrong; empty: nothing.
  std::string search_ended_;             ///< How it has ended after it had given all: no error. Empty: it has not.
  std::optional<StopRequest> stop_;
  RunOutcome outcome_;
  nlohmann::json scheduler_;  ///< Of tune::Scheduler; in a saved state only.
};

}  // namespace sgd::core
