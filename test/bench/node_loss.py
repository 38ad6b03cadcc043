"""Agent and workers of a node SIGKILLed: from the kill to the first step of the ranks that are left, at their smaller size.

Three nodes, 4 workers of the Fashion-MNIST MLP (2, 1 and 1). The killed node comes back and the run grows again before the
next kill.
"""

import json
import os
import random
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LIMIT_S, wait_for
from live_run import mlp_job
from measure import arguments, table


def main():
    options = arguments(__doc__.splitlines()[0])
    chance = random.Random(5)
    with tempfile.TemporaryDirectory() as folder, Cluster({"n1": 2, "n2": 1, "n3": 1}) as cluster:
        job = mlp_job(1000000, num_workers=4, recovery={"cooldown": "100ms", "scale_up": "checkpoint"},
                      checkpoint={"every": {"seconds": 1}})
        path = os.path.join(folder, "job.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(job, file)
        client = cluster.run(path)
        run = client.run_id()
        cluster.wait_for_event(run, "first_step")
        times, growths = [], []
        for number in range(options.n):
            name = chance.choice(["n1", "n2", "n3"])
            generation = cluster.events(run, "first_step")[-1]["generation"]
            killed = time.time()
            cluster.kill(name)

            def stepped(before=generation):
                last = cluster.events(run, "first_step")[-1]
                return last["generation"] > before and last

            step = wait_for(stepped, LIMIT_S, "a step of the ranks that are left")
            times.append(1e3 * (step["time"] - killed))
            print(f"{number}: {name} {times[-1]:.0f} ms, {step['world_size']} workers", file=sys.stderr, flush=True)
            cluster.start_agent(name)
            wait_for(lambda: cluster.events(run, "first_step")[-1]["world_size"] == 4, LIMIT_S, "the run to grow")
        ordered = sorted(times)
        table("A node's agent and workers killed, to the first step of the others, ms", ["side", "p50", "max", "n"],
              [["sgd-launch", f"{statistics.median(ordered):.0f}", f"{ordered[-1]:.0f}", len(ordered)]],
              "Three agents on one machine, over loopback.")


if __name__ == "__main__":
    main()
