"""A soak: a cluster that works for hours under a fault each 20 s. Every run must end right, and daemons must not grow.

Three nodes, 4 workers. One after the other, runs of the Fashion-MNIST MLP are submitted and followed; beside them small
commands. Faults: SIGKILL of a rank, of an agent, of all of a node, of the coordinator; a node frozen or without link for
8 s; slots that change. At the end faults stop and what runs must end with 0, every epoch once, every sample of every epoch
once. Memory and descriptors of a daemon are compared between its first minute and its end, in each of its lives; in the
second half the coordinator and one agent are not killed, so that one life of each is as long as that half.
"""

import collections
import contextlib
import os
import random
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from chaos import state_of
from cluster_bench import NODES, NodeFault, three_nodes, where, write_job
from measure import arguments, table

SETTLED_S = 30   # A daemon's memory and descriptors are compared from so long after its start on.
AWAY_S = 8
GROWN_KIB = 8192
GROWN_DESCRIPTORS = 32
SAMPLES = 60_000
SPARED = "n1"
EPOCHS = 25      # Of one training run: some minutes under faults.


class Lives:
    """(resident KiB, descriptors) of each life of each daemon: when it had settled, and last."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.seen = {}

    def look(self):
        for name, process in [("coordinator", self.cluster.coordinator), *self.cluster.agents.items()]:
            with contextlib.suppress(OSError):
                state, now = state_of(process.pid), time.monotonic()
                life = self.seen.setdefault((name, process.pid), {"began": now})
                if now - life["began"] >= SETTLED_S:
                    life.setdefault("first", state)
                    life["last"] = state
                    life["long_s"] = now - life["began"]

    def grown(self):
        return [f"{name} grew from {life['first']} to {life['last']} (KiB, descriptors) in {life['long_s']:.0f} s"
                for (name, _), life in self.seen.items() if "first" in life
                and (life["last"][0] > life["first"][0] + GROWN_KIB or life["last"][1] > life["first"][1] + GROWN_DESCRIPTORS)]

    def longest(self, name):
        lives = [life for (who, _), life in self.seen.items() if who == name and "first" in life]
        return max(lives, key=lambda life: life["long_s"], default=None)


class Faults:
    def __init__(self, cluster, chance):
        self.cluster, self.chance, self.count = cluster, chance, collections.Counter()
        self.spared = False  # The coordinator and the agent of SPARED: they are not killed.

    def ranks(self, run):
        started = {event["rank"]: event["pid"] for event in self.cluster.events(run, "worker_started")}
        gone = {event["pid"] for event in self.cluster.events(run, "worker_exited")}
        return [pid for pid in started.values() if pid not in gone]

    def kill_rank(self, run):
        for pid in self.chance.sample(self.ranks(run), min(1, len(self.ranks(run)))):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_coordinator(self, _):
        self.cluster.kill("coordinator")
        time.sleep(self.chance.choice([0, 0, 1, 3]))
        self.cluster.start_coordinator()

    def lose_node(self, kind, run):
        name = self.chance.choice([name for name in NODES if not (self.spared and kind in ("killed", "agent") and name == SPARED)])
        if self.cluster.events(run, "first_step"):
            fault = NodeFault(self.cluster, kind, name)
            fault.begin(run)
            time.sleep(AWAY_S if kind in ("frozen", "link") else self.chance.uniform(0, 3))
            fault.end()
        self.cluster.ask("nodes", "undrain", name)

    def change_slots(self, _):
        name = self.chance.choice(list(NODES))
        self.cluster.ask("nodes", "set-slots", self.chance.choice([0, 1, 2]), "--node", name)
        time.sleep(2)
        self.cluster.ask("nodes", "set-slots", NODES[name], "--node", name)

    def one(self, run):
        kinds = {"rank killed": self.kill_rank, "coordinator killed": self.kill_coordinator, "slots": self.change_slots,
                 "agent killed": lambda run: self.lose_node("agent", run), "node killed": lambda run: self.lose_node("killed", run),
                 "node frozen": lambda run: self.lose_node("frozen", run)}
        if self.cluster.network:
            kinds["link down"] = lambda run: self.lose_node("link", run)
        if self.spared:
            del kinds["coordinator killed"]
        kind = self.chance.choice(list(kinds))
        print(f"{time.strftime('%X')} {kind}", file=sys.stderr, flush=True)
        kinds[kind](run)
        self.count[kind] += 1


def problems_of(cluster, client, run, epochs):
    found = []
    if client.wait(600) != 0:
        found.append(f"{run} ended with {client.process.returncode}: {client.said()[0][-600:]}")
    finished = [event["epoch"] for event in cluster.events(run, "epoch_finished")]
    if finished != list(range(1, epochs + 1)):
        found.append(f"{run}: epochs are not 1..{epochs} once each: {len(finished)} of them")
    # Each division of what is left of an epoch is padded to the same number for every rank, as RaySGD's is.
    most = SAMPLES + (sum(NODES.values()) - 1) * (1 + len(cluster.events(run, "resized")))
    wrong = [f"{line['num_samples']} in epoch {line['epoch']} of generation {line['generation']} with {line['world_size']} ranks"
             for line in cluster.lines(run, "metrics.jsonl") if line["phase"] == "train" and not SAMPLES <= line["num_samples"] <= most]
    if wrong:
        found.append(f"{run}: wrong numbers of samples: " + ", ".join(wrong))
    return found


def soak(cluster, seconds, pace_s, chance):
    faults, lives, problems = Faults(cluster, chance), Lives(cluster), []
    path, runs, until = write_job(cluster, EPOCHS), 0, time.monotonic() + seconds
    client = run = None
    due = time.monotonic()
    while due < until:
        if client is None:
            client = cluster.run(path)
            run = client.run_id()
        due = max(due + chance.uniform(0.5, 1.5) * pace_s, time.monotonic())
        time.sleep(max(0, due - time.monotonic()))
        lives.look()
        faults.spared = due > until - seconds / 2
        if client.process.poll() is None:
            faults.one(run)
            continue
        problems += problems_of(cluster, client, run, EPOCHS)
        runs, client = runs + 1, None
    if client is not None:
        problems += problems_of(cluster, client, run, EPOCHS)
        runs += 1
    lives.look()
    return runs, faults.count, lives, problems + lives.grown()


def main():
    options = arguments(__doc__.splitlines()[0], minutes={"default": 120.0, "type": float, "help": "of faults"},
                        pace={"default": 20.0, "type": float, "help": "seconds between faults, about"},
                        seed={"default": 1, "type": int, "help": "of the faults"})
    minutes = 2.0 if options.quick else options.minutes
    with three_nodes("sgds") as cluster:
        runs, count, lives, problems = soak(cluster, 60 * minutes, options.pace, random.Random(options.seed))
        about = where(cluster)
    table("Soak of a cluster", ["minutes", "runs", "faults", "problems"], [[f"{minutes:g}", runs, sum(count.values()), len(problems)]],
          about + " " + ", ".join(f"{what} {number}" for what, number in sorted(count.items())) + ".")
    table("The longest life of a daemon", ["daemon", "seconds", "MiB", "descriptors"],
          [[name, f"{life['long_s']:.0f}", f"{life['first'][0] / 1024:.1f} -> {life['last'][0] / 1024:.1f}", f"{life['first'][1]} -> {life['last'][1]}"]
           for name in ["coordinator", *NODES] if (life := lives.longest(name))])
    for problem in problems:
        print(f"- {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
