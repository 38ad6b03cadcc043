#pragma once
// Watches the queue: who starts although others wait in front of it, and who grows. What is free is read from
// the coordinator's nodes after each of its answers, when everybody has taken what he gets.

#include <map>
#include <set>

#include "launcher/core/coordinator.hpp"
#include "test/sim/room.hpp"
#include "test/sim/run_state.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class PassCheck {
 public:
  PassCheck(World& world, std::map<RunId, RunState>& runs) : world_(world), runs_(runs) {}

  /// What was decided last may not have been stored: it counts from here.
  void forget() {
    submitted_.clear();
    passed_by_.clear();
    startable_since_.clear();
    paused_.clear();
  }
  void on_submitted(const RunId& run) { submitted_.try_emplace(run, ++submissions_); }
  /// A trial, which may have been one before.
  void on_begun(const RunId& run) {
    submitted_[run] = ++submissions_;
    passed_by_.erase(run);
    startable_since_.erase(run);
    paused_.erase(run);
  }
  /// It wants no room until it is resumed; then it goes on, which is no first start.
  void on_paused(const RunId& run) {
    submitted_.erase(run);
    paused_.insert(run);
  }
  void on_resumed(const RunId& run) { paused_.erase(run); }
  /// Its first generation was placed: nothing that waits in front of it is held up for longer than the limit.
  void on_first_start(const core::Coordinator& coordinator, const RunId& run);
  /// It is to leave at the next boundary because there is room for more: no waiting run may use that room.
  void on_growth(const core::Coordinator& coordinator, const RunId& run) const;
  /// A run that waits for its first start, and nobody waits in front of it.
  [[nodiscard]] bool is_first(const core::Coordinator& coordinator, const RunId& run) const;

 private:
  [[nodiscard]] const job::JobSpec& job_of(const RunId& run) const;
  [[nodiscard]] int least_of(const RunId& run) const;
  [[nodiscard]] bool waits(const core::Coordinator& coordinator, const RunId& run) const;
  [[nodiscard]] bool is_before(const RunId& a, const RunId& b) const;
  [[nodiscard]] bool is_of_another(const RunId& a, const RunId& b) const;
  /// What there is now, without what `without` have of it.
  [[nodiscard]] std::map<NodeId, Ground> grounds(const core::Coordinator& coordinator,
                                                 const std::set<RunId>& without) const;

  World& world_;
  std::map<RunId, RunState>& runs_;
  std::map<RunId, int> submitted_;
  int submissions_ = 0;
  std::set<RunId> paused_;
  std::map<RunId, std::set<RunId>> passed_by_;
  std::map<RunId, TimePoint> startable_since_;  ///< At the latest.
};

}  // namespace sgd::sim
