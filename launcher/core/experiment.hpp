#pragma once
// The life of an experiment: a run that has no ranks of its own, but runs below it, its trials. What they report and
// how they end comes in, what is to become of them goes out; the owner (Coordinator) carries it out in the same event,
// so that a replay of the stored events makes the same decisions.
//
//   trial list ──> trials ──start──> child runs ──lines of metrics, ends──> Experiment ──> tune::Scheduler
//                                        ^                                      │
//                                        └──────── stop, pause, resume ─────────┘   each with its reason, as an event
//
//   trial:  (made) ──> running ──its run ends──────────────────────────> ended
//                       │  │ └── stop decided, asked ──> stopping ───────> │
//                       │  └──── pause decided ──> pausing ──> paused ──> stopping
//                       │        exploit decided ────^ at work until the donor's state is stored (HeldCopy)
//                       │                                        │
//                       └<────── the scheduler resumes it <──────┘
//
// Ends when no trial is left and none is to come. It has succeeded when some trial has reported its metric; trials that
// fail are counted, and touch no other one. What was stored by a version whose `tune` this one does not understand
// ends with that as its error, when its trials have ended.

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "launcher/core/experiment_state.hpp"
#include "launcher/core/kept_checkpoints.hpp"
#include "launcher/core/snapshot.hpp"
#include "launcher/tune/experiment_spec.hpp"
#include "launcher/tune/search_protocol.hpp"

namespace sgd::core {

/// Trials of one experiment that may wait for room: its others are no runs yet, whatever "concurrent" says, so that
/// one who submits an experiment fills no queue.
inline constexpr std::int64_t kTrialsWaitingMax = 8;

/// Reports of a trial that were on their way when it was to pause; what is more than that is not heard.
inline constexpr std::size_t kHeldMax = 256;

/// What is to be done with a child.
namespace trial_order {
struct Start {
  RunDefinition run;
};
struct Stop {
  RunId run;
  StopRequest request;
};
/// It saves, gives its ranks up, and waits.
struct Pause {
  RunId run;
  std::string reason;
};
struct Resume {
  RunId run;
};
/// Others may copy the state of this step, and no other one, until the next such order.
struct Compared {
  RunId run;
  std::int64_t step = 0;
};
/// It is to take another one's state, which Experiment::copies() names; when that is stored it gives its ranks up.
struct Exploit {
  RunId run;
};
/// Of one that is paused: it goes on as `run` says, from what it has taken.
struct Clone {
  RunDefinition run;
};
}  // namespace trial_order
using TrialOrder = std::variant<trial_order::Start, trial_order::Stop, trial_order::Pause, trial_order::Resume,
                                trial_order::Compared, trial_order::Exploit, trial_order::Clone>;
using TrialOrders = std::vector<TrialOrder>;

class Experiment : private ExperimentState {
 public:
  using State = ExperimentState;

  /// `definition`: of a job with a `tune` that its submitter has checked.
  Experiment(RunDefinition definition, TimePoint now);
  explicit Experiment(State state);
  Experiment(const Experiment& other) : Experiment(other.state()) {}
  Experiment(Experiment&&) = default;
  Experiment& operator=(const Experiment& other) { return *this = Experiment(other.state()); }
  Experiment& operator=(Experiment&&) = default;
  ~Experiment() = default;

  /// Error: its `tune` makes no sense to this version, which may be another one than that of its submission.
  [[nodiscard]] static Result<tune::ExperimentSpec> spec_of(const RunDefinition& definition);
  [[nodiscard]] State state() const;
  [[nodiscard]] const RunDefinition& definition() const { return definition_; }
  [[nodiscard]] bool finished() const { return is_over_; }
  [[nodiscard]] const RunOutcome& outcome() const { return outcome_; }
  [[nodiscard]] RunSnapshot snapshot(TimePoint now) const;
  [[nodiscard]] RunId run_of(tune::TrialId trial) const;
  /// A trial's run, as it is to be started.
  [[nodiscard]] Result<RunDefinition> definition_of(tune::TrialId trial) const;
  /// Nothing for a run that is none of its trials, or one of which nothing is kept.
  [[nodiscard]] std::optional<tune::TrialId> trial_of(const RunId& run) const;
  /// A program makes its trials, and more may come.
  [[nodiscard]] bool takes_search_lines() const {
    return protocol_ && !is_over_ && search_error_.empty() && search_ended_.empty();
  }
  /// Its search program is not heard any more: on_resumed() gives another one a hearing.
  [[nodiscard]] bool has_failed_search() const { return !search_error_.empty(); }
  /// It has begun, and may have ended.
  [[nodiscard]] bool has_trial(tune::TrialId trial) const {
    return trial >= 0 && trial < next_ && !owed_.contains(trial) && !unmade_.contains(trial);
  }
  /// It is to have ranks, or to get another one's state and then to have some.
  [[nodiscard]] bool wants(tune::TrialId trial) const {
    const TrialPhase phase = trials_.at(trial).phase;
    return phase == TrialPhase::kRunning || phase == TrialPhase::kPausing;
  }
  /// Of one that has begun and is not forgotten.
  [[nodiscard]] const TrialRecord& record_of(tune::TrialId trial) const { return trials_.at(trial); }
  /// By trial: what is to be taken, and is not yet.
  [[nodiscard]] const std::map<tune::TrialId, HeldCopy>& copies() const { return copies_; }
  /// It has a copy that may be made now; one that was stopped with its experiment has not until it goes on.
  [[nodiscard]] bool may_copy(tune::TrialId trial) const {
    return is_readable() && copies_.contains(trial) && trials_.at(trial).phase == TrialPhase::kPausing;
  }
  /// What the donor itself is to take is meant, and it has not got that yet.
  [[nodiscard]] bool is_second_hand(const HeldCopy& copy) const;
  /// Who waits for the state that `donor` has before it takes another one's.
  [[nodiscard]] std::vector<tune::TrialId> copiers_of(tune::TrialId donor) const;

  /// What is known of a trial's run that has ended: it may go on from there, or others from its state.
  [[nodiscard]] bool may_need(const RunId& run) const;

  void begin(CoordinatorCommands& out);
  /// Many trials may begin in one event: then it is worth a look at all nodes how many have room.
  [[nodiscard]] bool may_begin_many() const;
  /// Trials that there is room for. `waiting`: children of it that wait for room. `room`: so many more have a place for
  /// sure, as far as that is known.
  void advance(TimePoint now, std::size_t waiting, std::int64_t room, CoordinatorCommands& out, TrialOrders& orders);
  /// A line of metrics of its child.
  void on_line(const coordinator_command::RecordMetrics& told, CoordinatorCommands& out, TrialOrders& orders);
  /// What its child has printed last is no line of metrics.
  void on_line_refused(const RunId& run, const std::string& why, CoordinatorCommands& out) const;
  void on_paused(const RunId& run, CoordinatorCommands& out, TrialOrders& orders);
  /// `run` is to take the state of `donor`, and goes on without what it has saved. Where its best checkpoint is to go,
  /// so that it stays; empty: it is not that of the trial's best value, or the donor has had a better one.
  [[nodiscard]] std::string keep_best(const RunId& run, const RunId& donor, const ScoredCheckpoint& best);
  /// An Exploit is being carried out, and waits at most `limit`.
  void on_held(const RunId& run, TimePoint now, Duration limit);
  /// When the first copy is not waited for any longer.
  [[nodiscard]] std::optional<TimePoint> next_copy() const;
  /// It is made now, or never.
  HeldCopy end_copy(tune::TrialId trial);
  /// Where it is to take its next state.
  [[nodiscard]] std::string taken_folder(tune::TrialId trial) const;
  /// Its copy has ended. `from`: the donor's checkpoint, and where it is now; empty: there was none, and the trial goes
  /// on as it is.
  void on_taken(tune::TrialId trial, const HeldCopy& copy, const std::string& from, const std::string& to,
                CoordinatorCommands& out);
  void on_ended(const RunId& run, const RunOutcome& outcome, CoordinatorCommands& out, TrialOrders& orders);
  void on_stop(TimePoint now, const StopRequest& request, CoordinatorCommands& out, TrialOrders& orders);
  /// Of its search program.
  void on_search_said(TimePoint now, const std::string& line, CoordinatorCommands& out, TrialOrders& orders);
  /// It has ended, or cannot be heard any more.
  void on_search_failed(const std::string& why, CoordinatorCommands& out);
  void on_tick(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] std::optional<TimePoint> next_wakeup() const;
  /// It goes on with the trials that were ended with it, or has more of them from now on. `samples`: 0: as before.
  /// Another search program may do better than the one before.
  void on_resumed(TimePoint now, std::int64_t samples, CoordinatorCommands& out, TrialOrders& orders);
  /// Why that would change nothing; empty: it would.
  [[nodiscard]] std::string why_not_resumed(std::int64_t samples) const;
  /// Of a machine that was made of a state.
  void tell_open(CoordinatorCommands& out) const;
  void on_restarted(TimePoint now, CoordinatorCommands& out, TrialOrders& orders);

 private:
  [[nodiscard]] bool is_readable() const { return unreadable_.empty(); }
  void read_spec();
  void find_unmade();
  void drop_if_done(tune::TrialId trial);
  void forget_interrupted(tune::TrialId trial);
  [[nodiscard]] bool may_copy_ended() const { return spec_.scheduler.type == "pbt"; }
  [[nodiscard]] std::string misfit_of(std::int64_t samples) const;
  [[nodiscard]] bool more_may_come() const;
  [[nodiscard]] tune::TrialId planned() const;
  void make_list();
  void ask_search(TimePoint now, std::size_t room, CoordinatorCommands& out);
  void reopen_search(TimePoint now);
  void end_search(const std::string& why, CoordinatorCommands& out);
  [[nodiscard]] bool is_better(double left, double right) const;
  [[nodiscard]] std::string run_dir_of(tune::TrialId trial) const;
  [[nodiscard]] Result<job::JobSpec> job_of(tune::TrialId trial, const tune::Values& values,
                                            const std::string& origin) const;
  [[nodiscard]] static BestState best_state_of(const TrialRecord& its);
  void start(tune::TrialId trial, tune::Values values, CoordinatorCommands& out, TrialOrders& orders);
  void stop(tune::TrialId trial, tune::Outcome outcome, std::string reason, const StopRequest& request,
            CoordinatorCommands& out, TrialOrders& orders);
  void exploit(const tune::Decision& decision, TrialOrders& orders);
  void note_step(TrialRecord& its, std::int64_t step) const;
  [[nodiscard]] static std::int64_t iteration_of(const TrialRecord& donor, const HeldCopy& copy,
                                                 const std::string& checkpoint);
  void obey(const tune::Decisions& decisions, CoordinatorCommands& out, TrialOrders& orders);
  /// Whether a trial's line counts now, when it goes on, or not at all.
  enum class Delivery { kNow, kLater, kNever };
  [[nodiscard]] static Delivery delivery_of(const TrialRecord& its);
  void deliver(tune::TrialId trial, const nlohmann::ordered_json& line, CoordinatorCommands& out, TrialOrders& orders);
  void deliver_held(tune::TrialId trial, CoordinatorCommands& out, TrialOrders& orders);
  void take_held(tune::TrialId trial, CoordinatorCommands& out, TrialOrders& orders);
  [[nodiscard]] Status become_clone(tune::TrialId trial, TrialOrders& orders);
  void take_line(tune::TrialId trial, const nlohmann::ordered_json& line, CoordinatorCommands& out,
                 TrialOrders& orders);
  void note_missing(tune::TrialId trial, const nlohmann::ordered_json& lines, CoordinatorCommands& out);
  [[nodiscard]] bool may_restart(const TrialRecord& trial, const RunOutcome& outcome) const;
  void restart(tune::TrialId trial, const std::string& error, CoordinatorCommands& out, TrialOrders& orders);
  void note_best(tune::TrialId trial, CoordinatorCommands& out);
  void end_trial(tune::TrialId trial, tune::Outcome outcome, std::string reason, CoordinatorCommands& out,
                 TrialOrders& orders);
  void end_if_done(TimePoint now, CoordinatorCommands& out);
  void finish(TimePoint now, CoordinatorCommands& out);
  [[nodiscard]] double wall_s(TimePoint now) const;
  void record(nlohmann::ordered_json event, CoordinatorCommands& out) const;

  tune::ExperimentSpec spec_;                     ///< Of the job.
  std::optional<tune::TrialList> list_;           ///< Of spec_; nothing: a search program makes the trials.
  std::optional<tune::SearchProtocol> protocol_;  ///< With that one.
  std::unique_ptr<tune::Scheduler> rule_;
  /// Why nothing of that is there: what another version has stored. It ends its trials, decides nothing, and fails.
  std::string unreadable_;
};

/// A job of an experiment, and not of one run.
[[nodiscard]] bool is_experiment(const job::JobSpec& job);

}  // namespace sgd::core
