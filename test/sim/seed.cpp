#include "test/sim/seed.hpp"

#include "test/sim/cluster.hpp"
#include "test/sim/faults.hpp"
#include "test/sim/liveness.hpp"

namespace sgd::sim {
namespace {

using std::chrono::seconds;

/// One seed in four is played until all runs have ended.
bool plays_to_the_end(const Plan& plan) {
  return plan.seed % 4 == 0 || !plan.experiments.empty() || plan.trouble == Duration{0};
}

Duration longest_run(const Plan& plan) {
  Duration longest{0};
  for (const RunPlan& run : plan.runs) {
    const int epochs = run.definition.job.training ? run.definition.job.training->epochs : 1;
    longest += Liveness::bound(run, 0) + Liveness::longest_epoch(run) * (epochs + 1);
  }
  for (const ExperimentPlan& experiment : plan.experiments) {
    RunPlan trial = experiment.trial;
    trial.definition = experiment.definition;
    const int epochs = trial.definition.job.training->epochs;
    const Duration one = Liveness::bound(trial, 0) + Liveness::longest_epoch(trial) * (epochs + 1);
    longest += one * 2 * experiment.definition.base->given.at("tune").at("samples").get<int>();
  }
  return longest;
}

void play(World& world) {
  Cluster cluster(world);
  Faults faults(world, cluster);
  Liveness liveness(world, cluster);
  faults.begin();
  TimePoint look = world.begin + world.plan.trouble + seconds(1);
  bool is_well = false;
  while (!world.queue.empty()) {
    world.queue.step();
    if (world.queue.now() < look) continue;
    look = world.queue.now() + seconds(1);
    is_well = is_well || liveness.all_well();
    if (!is_well) continue;
    if (liveness.all_finished() || !plays_to_the_end(world.plan)) return;
    if (world.queue.now() > world.begin + world.plan.trouble + longest_run(world.plan))
      violated("not all runs have ended after {} s", world.elapsed_s());
  }
}

}  // namespace

SeedResult play(std::uint64_t seed, bool verbose) {
  SeedResult result;
  const Plan plan = make_plan(seed);
  if (verbose) std::fputs(describe(plan).c_str(), stdout);
  World world(plan, verbose);
  try {
    play(world);
  } catch (const Violation& violation) {
    result.violation = fmt::format("at {:.3f} s: {}", world.elapsed_s(), violation.what());
  }
  result.simulated_s = world.elapsed_s();
  result.events = world.queue.done();
  result.injected = world.injected;
  return result;
}

}  // namespace sgd::sim
