#include "test/sim/faults.hpp"

#include <algorithm>
#include <array>
#include <csignal>

#include "common/exit_codes.hpp"

namespace sgd::sim {

using std::chrono::milliseconds;
using std::chrono::seconds;

void Faults::begin() {
  for (std::size_t fault = 0; fault < kFaults; ++fault)
    if (world_.plan.per_minute[fault] > 0) plan_next(static_cast<Fault>(fault));
  stop_experiments();
  if (world_.plan.drains_for_good)
    world_.queue.after(world_.plan.trouble - seconds(1),
                       [this] { cluster_.drain_until_done(world_.chance.pick(cluster_.nodes()).id(), true, true); });
  world_.queue.after(world_.plan.trouble, [this] {
    world_.calm = true;
    world_.say("-- calm --");
  });
}

void Faults::plan_next(Fault fault) {
  const double rate = world_.plan.per_minute[static_cast<std::size_t>(fault)];
  world_.queue.after(world_.chance.until_next(rate), [this, fault] {
    if (world_.calm) return;
    if (inject(fault)) world_.count(fault);
    plan_next(fault);
  });
}

bool Faults::inject(Fault fault) {
  switch (fault) {
    case Fault::kKillRank:
    case Fault::kKillNodeRanks:
    case Fault::kFreezeRank:
    case Fault::kStallRank:
    case Fault::kExitUserError:
    case Fault::kExitEnvironment:
    case Fault::kExitPeerLost:
    case Fault::kExitOther:
      return to_rank(fault);
    case Fault::kBreakLink:
    case Fault::kPartition:
      return to_link(fault);
    case Fault::kNodeCrash:
    case Fault::kAgentRestart:
    case Fault::kLateAgent:
      return to_node(fault);
    case Fault::kNodeGone:
      return end_a_node();
    case Fault::kKeeperDeath:
    case Fault::kForkServerDeath:
      return to_keeper(fault);
    case Fault::kSlots:
      return change_slots();
    case Fault::kDamageCheckpoint: {
      auto run = cluster_.runs().begin();
      std::advance(run, world_.chance.between(0, static_cast<int>(cluster_.runs().size()) - 1));
      return run->second.disk.damage_newest();
    }
    case Fault::kLateCoordinator:
      if (cluster_.coordinator_paused()) return false;
      world_.say("coordinator stands still");
      cluster_.pause_coordinator(world_.chance.spread_between(milliseconds(50), seconds(15)));
      return true;
    case Fault::kCoordinatorCrash:
      return cluster_.crash_coordinator(false);
    case Fault::kTailLoss:
      return cluster_.crash_coordinator(true);
    case Fault::kUserStop:
      return stop_a_run();
    case Fault::kNodeOrder:
      return give_order();
    case Fault::kTwin:
      return cluster_.send_twin(world_.chance.pick(cluster_.nodes()));
    case Fault::kPreemption: {
      Node& node = world_.chance.pick(cluster_.nodes());
      if (!node.is_up() || node.paused()) return false;
      node.preempt();
      return true;
    }
    case Fault::kSlowStart:
    case Fault::kCrashAtStart:
    case Fault::kFailWrite:
    case Fault::kBrokenGpu:
      return false;  // Happen to what starts or writes.
  }
  return false;
}

Worker* Faults::any_worker() {
  std::vector<Worker*> alive;
  for (auto& [id, run] : cluster_.runs()) alive.insert(alive.end(), run.alive.begin(), run.alive.end());
  return alive.empty() ? nullptr : world_.chance.pick(alive);
}

bool Faults::to_rank(Fault fault) {
  Worker* worker = any_worker();
  if (worker == nullptr) return false;
  // Nothing could tell a command that stands still from one that works.
  const bool is_command = !worker->run().plan.definition.job.training;
  if (is_command && (fault == Fault::kFreezeRank || fault == Fault::kStallRank)) return false;
  world_.say("{}: {}, pid {}", worker->node().id(), name(fault), worker->identity().pid);
  switch (fault) {
    case Fault::kKillNodeRanks: {
      const std::vector<Worker*> alive = worker->run().alive;
      for (Worker* other : alive)
        if (&other->node() == &worker->node()) other->end(-1, SIGKILL, false);
      return true;
    }
    case Fault::kFreezeRank:
      worker->freeze();
      return true;
    case Fault::kStallRank:
      worker->stall();
      return true;
    case Fault::kExitUserError:
      worker->end(worker_exit::kUserError, 0, false);
      return true;
    case Fault::kExitEnvironment:
      worker->end(worker_exit::kEnvironment, 0, false);
      return true;
    case Fault::kExitPeerLost:
      worker->end(worker_exit::kPeerLost, 0, false);
      return true;
    case Fault::kExitOther:
      worker->end(3, 0, false);
      return true;
    default:
      break;
  }
  static constexpr std::array kSignals = {SIGKILL, SIGKILL, SIGKILL, SIGSEGV, SIGABRT};
  worker->end(-1, world_.chance.pick(kSignals), false);
  return true;
}

bool Faults::to_link(Fault fault) {
  Node& node = world_.chance.pick(cluster_.nodes());
  if (!node.is_up() || !node.wire().is_healthy()) return false;
  if (fault == Fault::kBreakLink) {
    node.wire().break_now();
    return true;
  }
  const auto direction = world_.chance.with(0.5) ? Wire::Direction::kUp : Wire::Direction::kDown;
  node.wire().partition(direction, world_.chance.spread_between(milliseconds(100), kHealing));
  return true;
}

bool Faults::to_node(Fault fault) {
  Node& node = world_.chance.pick(cluster_.nodes());
  if (!node.is_up() || node.paused()) return false;
  if (fault == Fault::kLateAgent) {
    world_.say("{}: agent stands still", node.id());
    node.pause(world_.chance.spread_between(milliseconds(50), seconds(15)));
    return true;
  }
  if (fault == Fault::kNodeCrash) {
    node.crash();
    world_.queue.after(world_.chance.spread_between(seconds(1), kHealing), [&node] { node.boot(); });
  } else if (world_.chance.with(0.5)) {
    node.kill_agent();
    world_.queue.after(world_.chance.spread_between(milliseconds(10), seconds(12)), [&node] { node.take_over(); });
  } else {
    node.end_agent();
    world_.queue.after(world_.chance.between(milliseconds(500), seconds(3)), [&node] { node.boot(); });
  }
  return true;
}

bool Faults::to_keeper(Fault fault) {
  Node& node = world_.chance.pick(cluster_.nodes());
  if (node.keepers().empty()) return false;
  Keeper* keeper = node.keepers().begin()->second;
  if (!keeper->alive()) return false;
  world_.say("{}: {}", node.id(), name(fault));
  if (fault == Fault::kForkServerDeath) return keeper->kill_fork_server();
  keeper->die(milliseconds(5));
  return true;
}

/// Once, whatever else happens; nobody has to wait for it.
void Faults::stop_experiments() {
  for (const ExperimentPlan& plan : world_.plan.experiments) {
    if (!plan.stops) continue;
    const Duration until = plan.submit_after + world_.chance.spread_between(seconds(1), seconds(60));
    world_.queue.after(until, [this, &plan] {
      const RunId& id = plan.definition.id;
      world_.say("{}: stop requested", id);
      core::StopRequest request;
      request.at_once = world_.chance.with(0.3);
      cluster_.stop_experiment(id, request);
      if (plan.goes_on) cluster_.resume_when_ended(id);
    });
  }
}

bool Faults::stop_a_run() {
  auto run = cluster_.runs().begin();
  std::advance(run, world_.chance.between(0, static_cast<int>(cluster_.runs().size()) - 1));
  if (run->second.check.finished()) return false;
  core::StopRequest request;
  request.why = world_.chance.with(0.5) ? core::StopRequest::Why::kCancelled : core::StopRequest::Why::kSignal;
  request.signal = request.why == core::StopRequest::Why::kSignal ? SIGINT : 0;
  request.at_once = world_.chance.with(0.3);
  world_.say("{}: stop requested{}", run->first, request.at_once ? ", at once" : "");
  cluster_.stop_run(run->second, request);
  return true;
}

/// Whatever is ordered is undone before all is well.
bool Faults::give_order() {
  const NodeId node = world_.chance.pick(cluster_.nodes()).id();
  using Kind = core::NodeOrder::Kind;
  const Duration length = world_.chance.spread_between(milliseconds(100), kHealing);
  if (world_.chance.with(0.3)) {
    if (!cluster_.order(node, {Kind::kSetSlots, world_.chance.between(0, 4)})) return false;
    world_.queue.after(length, [this, node] { reset_slots(node); });
    return true;
  }
  if (!cluster_.order(node, {Kind::kDrain, -1})) return false;
  world_.queue.after(length, [this, node, removes = world_.chance.with(0.3)] {
    if (removes) (void)cluster_.order(node, {Kind::kRemove, -1});
    cluster_.drain_until_done(node, false);
  });
  return true;
}

/// Drained before or not; at least one node stays.
bool Faults::end_a_node() {
  Node& node = world_.chance.pick(cluster_.nodes());
  const auto is_there = [](const Node& one) { return !one.is_gone(); };
  if (node.is_gone() || std::count_if(cluster_.nodes().begin(), cluster_.nodes().end(), is_there) < 2) return false;
  Duration until{0};
  if (world_.chance.with(0.5)) {
    (void)cluster_.order(node.id(), {core::NodeOrder::Kind::kDrain, -1});
    until = world_.chance.spread_between(milliseconds(100), seconds(20));
  }
  world_.queue.after(until, [&node, is_crash = world_.chance.with(0.5)] { node.go_for_good(is_crash); });
  if (world_.chance.with(0.3)) return true;
  world_.queue.after(until + world_.chance.spread_between(milliseconds(50), seconds(20)),
                     [this, &node] { cluster_.remove_until_done(node.id()); });
  return true;
}

void Faults::reset_slots(const NodeId& node) {
  if (cluster_.coordinator_alive() && !cluster_.known().at(node).ordered) return;
  (void)cluster_.order(node, {core::NodeOrder::Kind::kSetSlots, -1});
  world_.queue.after(milliseconds(500), [this, node] { reset_slots(node); });
}

bool Faults::change_slots() {
  Node& node = world_.chance.pick(cluster_.nodes());
  if (!node.is_up() || node.slots() == 0) return false;
  const int before = node.slots();
  const int fewer = world_.chance.between(0, before - 1);
  node.set_slots(fewer);
  world_.queue.after(world_.chance.spread_between(milliseconds(100), kHealing),
                     [&node, lost = before - fewer] { node.set_slots(node.slots() + lost); });
  return true;
}

}  // namespace sgd::sim
