#pragma once
// The ledger of one experiment: what its trials have really said and done, and what becomes of them. Its decisions are
// held against those of a scheduler that no coordinator's death has ever disturbed: it is told what is recorded.

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "launcher/core/coordinator_io.hpp"
#include "launcher/tune/experiment_spec.hpp"
#include "launcher/tune/scheduler.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class ExperimentCheck {
 public:
  using Json = nlohmann::ordered_json;

  ExperimentCheck(World& world, const ExperimentPlan& plan);

  /// A line of its own events.
  void on_event(const Json& event);
  /// Its trial `run` begins, or begins again.
  void on_begin(const core::RunDefinition& run);
  /// A line of a trial's, which its own ledger has found true.
  void on_trial_metrics(const RunId& run, const Json& line);
  /// It has given its ranks up.
  void on_trial_paused(const RunId& run);
  /// `is_done`: by itself, with nothing left to do.
  void on_trial_finished(const RunId& run, bool is_done);
  void on_process_start(const RunId& run) const;
  void on_finish(const core::RunOutcome& outcome);
  /// And that is stored.
  void on_stop_requested() { is_stopped_ = is_stopped_ || !finished_; }

  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] bool is_paused(const RunId& run) const { return phase_of(run) == Phase::kPaused; }
  /// It is asked to give its ranks up.
  [[nodiscard]] bool is_pausing(const RunId& run) const { return phase_of(run) == Phase::kPausing; }
  /// Nobody may forget it: it may go on.
  [[nodiscard]] bool may_go_on(const RunId& run) const;
  [[nodiscard]] RunId run_of(tune::TrialId trial) const;

 private:
  enum class Phase { kNone, kRunning, kStopping, kPausing, kPaused, kEnded };
  struct Reported {
    int epoch = 0;
    double value = 0;
  };
  struct Trial {
    Phase phase = Phase::kRunning;
    bool has_place = true;
    bool is_over = true;   ///< Its run has ended, or has not begun.
    bool is_done = false;  ///< And has succeeded.
    std::optional<Phase> interrupted;
    std::deque<Reported> said;  ///< And not told to the experiment yet.
    std::optional<double> best;
    tune::Values values;
    tune::Values next;       ///< After it has taken another one's state.
    bool goes_on = false;    ///< While it is pausing: at once, with that.
    bool is_held = false;    ///< While it is pausing: until what it is to take is stored.
    bool is_taking = false;  ///< While it is pausing: another one's state, and what it says itself counts no more.
    int lives = 0;
  };

  void take(const Json& event, const std::string& what);
  void on_started(tune::TrialId trial, const Json& event);
  void on_report(tune::TrialId trial, Trial& its, const Json& event);
  void on_decided(tune::TrialId trial, Trial& its, const Json& event);
  void on_ended(tune::TrialId trial, Trial& its, const Json& event);
  void on_resumed();
  void expect(tune::Decisions decisions);
  void check_all_decided();
  void drop_silent();
  void check_room() const;
  [[nodiscard]] static bool is_unheard(const Trial& its);
  static void note_pause(Trial& its);
  void on_cloned(tune::TrialId trial, Trial& its, const Json& event);
  [[nodiscard]] bool more_may_come() const;
  [[nodiscard]] Phase phase_of(const RunId& run) const;
  [[nodiscard]] Trial& at(const RunId& run);
  [[nodiscard]] const RunId& id() const { return plan_.definition.id; }

  World& world_;
  const ExperimentPlan& plan_;
  tune::ExperimentSpec spec_;
  std::unique_ptr<tune::Scheduler> rule_;
  std::map<tune::TrialId, Trial> trials_;
  std::deque<tune::Decision> expected_;
  bool asks_for_the_last_ = false;  ///< All trials have begun, and the rule is to be told so once more.
  bool is_stopped_ = false;
  bool finished_ = false;
};

}  // namespace sgd::sim
