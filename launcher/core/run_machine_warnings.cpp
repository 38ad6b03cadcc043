// What RunMachine tells and does nothing about: nobody is to read the same thing again and again.

#include <utility>

#include "launcher/core/run_machine.hpp"

namespace sgd::core {

/// Told once a generation: who meant it reads it once, who did not finds the key and the ranks.
void RunMachine::note_mismatch(const link::ReportKey& key, const KeyMismatch& mismatch, CoordinatorCommands& out) {
  if (mismatches_told_.size() >= kMismatchesMax || !mismatches_told_.insert(key.phase + " " + mismatch.key).second)
    return;
  record({{"event", "report_mismatch"},
          {"generation", generation_},
          {"epoch", key.epoch},
          {"phase", key.phase},
          {"key", mismatch.key},
          {"ranks", mismatch.without}},
         out);
}

/// Told once, until another one is the slowest: it is no failure, and nothing is done about it.
void RunMachine::note_straggler(int epoch, const Straggler& found, CoordinatorCommands& out) {
  if (std::exchange(straggler_, found.rank) == found.rank) return;
  record({{"event", "straggler"},
          {"generation", generation_},
          {"epoch", epoch},
          {"rank", found.rank},
          {"node", ranks_.at(found.rank).node},
          {"own_ms", found.own_ms},
          {"others_ms", found.others_ms}},
         out);
}

/// Once when it begins, and once with the rest at the rank's end: its node says no more than that.
void RunMachine::note_dropped(const NodeId& node, const cluster::OutputDropped& dropped, CoordinatorCommands& out) {
  const bool is_full = drops_told_.size() >= kDroppersMax && !drops_told_.contains(dropped.rank);
  if (is_full || find(dropped.rank) == nullptr || drops_told_[dropped.rank]++ >= kDropsMax) return;
  record({{"event", "output_dropped"},
          {"generation", generation_},
          {"rank", dropped.rank},
          {"node", node},
          {"lines", dropped.lines},
          {"bytes", dropped.bytes},
          {"reason", dropped.reason}},
         out);
}

}  // namespace sgd::core
