#pragma once
// Who may submit: the quota's answer beside a count that asks nothing of the core. Both are made when something is
// decided; after the coordinator's death both begin with what was stored.

#include <map>
#include <set>
#include <string>

#include "launcher/core/coordinator.hpp"
#include "test/sim/run_state.hpp"
#include "test/sim/world.hpp"

namespace sgd::sim {

class QuotaCheck {
 public:
  QuotaCheck(World& world, const std::map<RunId, RunState>& runs) : world_(world), runs_(runs) {}

  void forget() { live_.clear(); }
  void on_submitted(const RunId& run) { live_.emplace(run, true); }
  void on_first_start(const RunId& run) { live_[run] = false; }
  void on_finished(const RunId& run) { live_.erase(run); }
  /// Whether its owner may have one more run now.
  [[nodiscard]] bool takes(const core::Coordinator& coordinator, const RunPlan& plan) const;
  [[nodiscard]] bool refuses(const RunId& run) const { return refused_.contains(run); }

 private:
  World& world_;
  const std::map<RunId, RunState>& runs_;
  std::map<RunId, bool> live_;  ///< And whether it has never started.
  mutable std::set<RunId> refused_;
};

}  // namespace sgd::sim
