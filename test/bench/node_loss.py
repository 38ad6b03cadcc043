"""A node is lost: from then to the first step of the ranks that are left, at their smaller size.

4 workers of the Fashion-MNIST MLP on three nodes (2, 1 and 1) without a shared folder. All processes of a node are
killed, its agent and workers are frozen, or its link goes down; it comes back and the run grows again before the next fault.
"""

import os
import random
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_bench import NODES, NodeFault, three_nodes, where, write_job
from harness import LIMIT_S, wait_for
from measure import arguments, table

FAULTS = {"killed": "agent, keepers and workers SIGKILLed", "frozen": "agent and workers SIGSTOPped", "link": "link down"}


def first_step_after(cluster, run, generation, is_right):
    def found():
        last = cluster.events(run, "first_step")[-1]
        return last["generation"] > generation and is_right(last) and last
    return wait_for(found, LIMIT_S, f"a step after generation {generation}: {cluster.lines(run)[-5:]}")


def growth_s(cluster, run, step):
    """From the boundary at which the run grew: the newest checkpoint before the new generation's start."""
    saved = [event["time"] for event in cluster.events(run, "checkpoint_saved") if event["generation"] < step["generation"]]
    return step["time"] - saved[-1]


def measure(cluster, run, kind, chance):
    """(seconds to the first step without the node, seconds from the boundary to the first step with it)"""
    fault = NodeFault(cluster, kind, chance.choice(list(NODES)))
    cluster.ask("nodes", "undrain", fault.name)  # Else a node that is lost this often is left alone as unstable.
    generation = cluster.generation(run)
    began = time.time()
    fault.begin(run)
    small = first_step_after(cluster, run, generation, lambda step: step["world_size"] < 4)
    fault.end()
    grown = first_step_after(cluster, run, small["generation"], lambda step: step["world_size"] == 4)
    print(f"{fault.name} {kind}: {1e3 * (small['time'] - began):.0f} ms to a step of {small['world_size']}; grown again "
          f"{1e3 * growth_s(cluster, run, grown):.0f} ms after the boundary", file=sys.stderr, flush=True)
    return small["time"] - began, growth_s(cluster, run, grown)


def main():
    options = arguments(__doc__.splitlines()[0], faults={"default": ",".join(FAULTS)})
    chance = random.Random(5)
    with three_nodes("sgdb") as cluster:
        kinds = [kind for kind in options.faults.split(",") if cluster.network or kind != "link"]
        losses, growths = {kind: [] for kind in kinds}, []
        run = cluster.run(write_job(cluster, epochs=1_000_000)).run_id()
        cluster.wait_for_event(run, "first_step")
        for _ in range(options.n):
            for kind in kinds:
                loss, growth = measure(cluster, run, kind, chance)
                losses[kind].append(1e3 * loss)
                growths.append(1e3 * growth)
    rows = [[what, *figures(losses[kind])] for kind, what in FAULTS.items() if kind in kinds]
    rows.append(["the node is back: boundary to first step with it", *figures(growths)])
    table("A lost node of three, 4 ranks: to the first step of the ranks that are left, ms", ["fault", "p50", "min", "max", "n"],
          rows, where(cluster))


def figures(values):
    return [f"{value:,.0f}" for value in (statistics.median(values), min(values), max(values))] + [len(values)]


if __name__ == "__main__":
    main()
