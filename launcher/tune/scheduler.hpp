#pragma once
// Which trials go on. A scheduler is a pure machine: trials, reports and ends come in as events, decisions go out, and
// its whole state can be written and read again, after which it decides as if nothing had been. Time is no input;
// chance follows from the seed. The same events in the same order give the same decisions.
//
//            add_trial                    kStop decided, or on_end
//   (none) ────────────> running ─────────────────────────────────────> ended
//                         │  ^ on_resumed (next_paused() chose it)        ^
//           kPause decided v  │                                           │ kStop decided later (halved, not promoted)
//                          paused ────────────────────────────────────────┘
//
// What every scheduler answers, so that none decides it by accident:
//   a report of a trial that is paused or ended   the same action again, kNotRunning (it crossed the order on its way)
//   a report that is not newer than the last one  kContinue, kRepeated: a trial that goes on from a checkpoint reports
//   again a report that skips iterations                it stands for those that it skips no number (NaN) is worse than
//   every number; see each scheduler a trial that fails or is cancelled            leaves: what it has reported stays
//   in the comparisons of others
// As long as a trial is paused, another one runs, or next_paused() has one, or new trials may come; so an experiment
// whose trials have all ended or paused, and that has called on_no_more_trials(), can always go on or is over.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "launcher/tune/decision.hpp"
#include "launcher/tune/trial.hpp"

namespace sgd::tune {

struct Report {
  TrialId trial = 0;
  std::int64_t iteration = 0;  ///< Epochs of training, or reports of a command; from 1.
  double value = 0;            ///< The experiment's metric; may be NaN or infinite.
  bool others_wait = false;    ///< Trials that have not begun wait for room.
  std::int64_t step = 0;       ///< Of the run, at this report.
};

enum class Outcome {
  kCompleted,  ///< It ended by itself, or by the experiment's own bound ("stop").
  kStopped,    ///< By the scheduler.
  kFailed,     ///< With no failure left that it may have.
  kCancelled,  ///< By a person or by the search program.
};

[[nodiscard]] const char* word_of(Outcome outcome);

class Scheduler {
 public:
  Scheduler() = default;
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;
  virtual ~Scheduler() = default;

  /// A trial starts. Its id is new.
  void add_trial(TrialId trial, const Values& values);
  /// Of a trial that was added. The first decision is about it.
  [[nodiscard]] Decisions on_report(const Report& report);
  /// A trial's last run is over; for a failed one that is to start again, not yet. Decisions are about others.
  [[nodiscard]] Decisions on_end(TrialId trial, Outcome outcome);
  /// None will be added, as it seems now. An add_trial afterwards (more samples were asked for) means that more may
  /// come until this is said again.
  [[nodiscard]] Decisions on_no_more_trials();
  /// The paused trial that is to go on now; nothing: a new one may start. `others_wait`: trials that have not begun
  /// wait for room. Changes nothing: call it whenever there is room, and on_resumed() when it was given the room.
  [[nodiscard]] std::optional<Decision> next_paused(bool others_wait) const;
  void on_resumed(TrialId trial);
  /// What `trial` has from now on, where that is not what a kExploit said (the donor's checkpoint was gone).
  void on_values(TrialId trial, const Values& values);
  /// How far `trial` really is after a kExploit: the donor's checkpoint may have been an older or a newer one than that
  /// which was compared, or gone.
  void on_copied(TrialId trial, std::int64_t iteration, std::int64_t step);

  /// Everything, for restore_scheduler. Grows with the trials that have not ended, and with the values that the rule
  /// compares: keep it from time to time, and the events since.
  [[nodiscard]] nlohmann::json state() const;
  /// Of one that nothing has happened to. False, or an exception of the JSON library's: the state makes no sense.
  [[nodiscard]] bool take_state(const nlohmann::json& state);

 protected:
  enum class Phase { kRunning, kPaused };
  struct Member {
    Phase phase = Phase::kRunning;
    std::int64_t iteration = 0;  ///< Of its newest report; 0: none yet.
  };
  /// Trials that were added and have not ended.
  [[nodiscard]] const std::map<TrialId, Member>& members() const { return members_; }
  /// Trials that run, and that wait.
  [[nodiscard]] std::size_t running() const { return running_; }
  [[nodiscard]] std::size_t paused() const { return paused_; }
  [[nodiscard]] bool more_may_come() const { return more_may_come_; }

 private:
  virtual void added(TrialId trial, const Values& values) = 0;
  /// Of a running trial, newer than its last one; the decision about it.
  virtual Decision reported(const Report& report) = 0;
  /// Its end was decided here (kStopped), or it ended by itself; called once.
  virtual void ended(TrialId trial, Outcome outcome) = 0;
  /// Paused trials whose end is decided now, after any event; they count as ended then.
  virtual Decisions settled() = 0;
  virtual std::optional<Decision> chosen(bool others_wait) const = 0;
  virtual void resumed(TrialId trial) = 0;
  virtual void values_set(TrialId trial, const Values& values) = 0;
  /// Of rules that copy.
  virtual void copied(TrialId, std::int64_t /*iteration*/, std::int64_t /*step*/) {}
  virtual nlohmann::json own_state() const = 0;
  /// What own_state() gave, after members() are known; false when it makes no sense.
  virtual bool restore(const nlohmann::json& state) = 0;

  [[nodiscard]] std::size_t& counted(Phase phase) { return phase == Phase::kRunning ? running_ : paused_; }
  void enter(Member& member, Phase phase);
  void leave(TrialId trial, Outcome outcome);
  Decisions settle(Decisions decisions);

  std::map<TrialId, Member> members_;
  std::size_t running_ = 0;
  std::size_t paused_ = 0;
  bool more_may_come_ = true;
};

}  // namespace sgd::tune
