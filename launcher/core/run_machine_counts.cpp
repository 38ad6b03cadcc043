// How many ranks and nodes of a generation have come how far: asked after each fact, so counted and not searched.

#include <utility>

#include "launcher/core/run_machine.hpp"

namespace sgd::core {
namespace {

bool is_ready(RankPhase phase) {
  return phase == RankPhase::kReady || phase == RankPhase::kStepping;
}

}  // namespace

/// A state that was saved by an older version lacks these.
void RunMachine::count_ranks() {
  ranks_ready_ = ranks_stepped_ = 0;
  for (const auto& [number, rank] : ranks_) {
    if (is_ready(rank.phase)) ++ranks_ready_;
    if (rank.first_step >= 0) ++ranks_stepped_;
  }
}

bool RunMachine::all_exited() const {
  return !ranks_.empty() && ranks_exited_ == ranks_.size();
}

bool RunMachine::all_cleared() const {
  return !nodes_.empty() && nodes_cleared_ == nodes_.size();
}

bool RunMachine::all_started() const {
  return ranks_started_ == ranks_.size();
}

void RunMachine::set_phase(RankRecord& rank, RankPhase phase) {
  if (is_ready(rank.phase)) --ranks_ready_;
  if (is_ready(phase)) ++ranks_ready_;
  rank.phase = phase;
}

void RunMachine::end_rank(RankRecord& rank) {
  if (!std::exchange(rank.exited, true)) ++ranks_exited_;
}

void RunMachine::clear_node(NodeRecord& node) {
  if (!std::exchange(node.cleared, true)) ++nodes_cleared_;
}

void RunMachine::clear_none_but_lost() {
  nodes_cleared_ = 0;
  for (auto& [id, node] : nodes_) {
    node.cleared = node.lost;
    if (node.lost) ++nodes_cleared_;
  }
}

}  // namespace sgd::core
