"""A coordinator is SIGKILLed again and again during one run: no step may be lost, no worker started anew, no accepted
submission forgotten.

4 workers of the Fashion-MNIST MLP on three nodes; after each kill the coordinator is started again, and a small run is
submitted. Prints how long a coordinator was away for its agents.
"""

import os
import random
import sqlite3
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from cluster_bench import three_nodes, where, write_job
from harness import LIMIT_S, wait_for
from measure import arguments, table


def kill_once(cluster, run, chance):
    """(the id of a run that was submitted before the kill, seconds until all nodes were connected again)"""
    accepted = cluster.run("submit", "--detach", "-n", 1, "--set", 'placement={"exclude":["n1","n2","n3"]}', "--set",
                           "placement_timeout=1h", "--", "true")
    assert accepted.wait() == 0, accepted.said()
    time.sleep(chance.uniform(0, 0.5))
    began = time.monotonic()
    cluster.kill("coordinator")
    cluster.start_coordinator()
    cluster.wait_for_nodes("n1", "n2", "n3")
    return accepted.said()[1].strip(), time.monotonic() - began


def problems_of(cluster, run, submitted):
    found = []
    epochs = [event["epoch"] for event in cluster.events(run, "epoch_finished")]
    if epochs != list(range(1, len(epochs) + 1)):
        found.append("epochs have a gap or stand twice")
    for name, most in (("worker_started", 4), ("failure", 0), ("restored", 0)):
        count = len(cluster.events(run, name))
        if count > most:
            found.append(f"{count} x {name}")
    known = {row["run"] for row in cluster.ask("ps", "--all")["runs"]}
    if set(submitted) - known:
        found.append(f"{len(set(submitted) - known)} accepted submissions are forgotten")
    wrong = [line for line in cluster.lines(run, "metrics.jsonl") if line["phase"] == "train" and line["num_samples"] != 60000]
    if wrong:
        found.append(f"{len(wrong)} epochs with a wrong number of samples")
    return found


def integrity(cluster):
    stores = [name for name in os.listdir(os.path.join(cluster.folder, "coordinator")) if name.endswith((".db", ".sqlite"))]
    with sqlite3.connect(os.path.join(cluster.folder, "coordinator", stores[0])) as store:
        return store.execute("PRAGMA integrity_check").fetchone()[0]


def main():
    options = arguments(__doc__.splitlines()[0])
    chance = random.Random(7)
    with three_nodes("sgdk") as cluster:
        client = cluster.run(write_job(cluster, epochs=1_000_000))
        run = client.run_id()
        cluster.wait_for_event(run, "first_step")
        submitted, away = [], []
        for number in range(options.n):
            accepted, seconds = kill_once(cluster, run, chance)
            submitted.append(accepted)
            away.append(seconds)
            print(f"{number + 1}: all nodes connected after {1e3 * seconds:.0f} ms", file=sys.stderr, flush=True)
        epochs = len(cluster.events(run, "epoch_finished"))
        wait_for(lambda: len(cluster.events(run, "epoch_finished")) > epochs + 1, LIMIT_S, "two more epochs")
        problems = problems_of(cluster, run, submitted)
        stopped = cluster.run("stop", run)
        if stopped.wait() != 0 or client.wait() != 6:
            problems.append(f"the run does not end as it is asked to: {client.said()}")
        cluster.kill("coordinator")
        verdict = integrity(cluster)
        epochs = len(cluster.events(run, "epoch_finished"))
        about = where(cluster)
    if verdict != "ok":
        problems.append(f"the store: {verdict}")
    table("A coordinator killed during one run", ["kills", "epochs of the run", "away, ms p50", "max", "submissions kept", "problems"],
          [[options.n, epochs, f"{1e3 * statistics.median(away):.0f}", f"{1e3 * max(away):.0f}", len(submitted),
            "; ".join(problems) or "none"]], about)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
