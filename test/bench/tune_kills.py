"""SIGKILL of an experiment's launcher (coordinator and agent), a keeper, a trial's rank and the search program, in turn.

One trial at a time, so that who is compared with whom follows from the job alone: the decisions, the trials' parameters
and the best trial must be those of the same experiment undisturbed. ASHA by promotion, so that trials pause and go on;
the next trials follow from how those before have ended. After the launcher was killed, --resume goes on. An experiment
that is over begins anew with another seed, until N kills are done.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LaunchTest, children_of, command_of, marked, read_file, read_lines
from measure import arguments, table

KINDS = ("launcher", "keeper", "rank", "search")

SEARCHES = """
import json, random, sys
best, values, seed = None, {}, 0
for text in sys.stdin:
    line = json.loads(text)
    if line["type"] == "hello": seed = line["seed"]
    if line["type"] == "end" and line["value"] is not None and (best is None or line["value"] < best[0]):
        best = (line["value"], values[line["trial"]])
    if line["type"] == "bye": break
    if line["type"] != "next": continue
    for trial, its in line.get("given", {}).items(): values[int(trial)] = its["training.optimizer.lr"]
    for trial in line["trials"]:
        if trial in values: continue
        around = 10 ** random.Random(f"{seed} {trial}").uniform(-4.5, -2.7)
        values[trial] = around if best is None else (around * best[1] ** 2) ** (1 / 3)
        print(json.dumps({"type": "trial", "trial": trial, "parameters": {"training.optimizer.lr": values[trial]}}), flush=True)
"""


def job_of(folder, seed, samples, epoch_samples):
    search = os.path.join(folder, "search.py")
    with open(search, "w", encoding="utf-8") as file:
        file.write(SEARCHES)
    path = os.path.join(folder, f"job-{seed}.json")
    job = {"name": "linear", "num_workers": 1, "recovery": {"max_failures": "unlimited"},
           "training": {"epochs": 9, "batch_size": 32, "shuffle": False, "model": {"type": "linear", "init": "zeros"}, "loss": "mse",
                        "dataset": {"type": "linear", "samples": epoch_samples, "validation_samples": 400},
                        "optimizer": {"type": "sgd", "lr": 0.01}},
           "tune": {"parameters": {"training.optimizer.lr": {"loguniform": [0.00001, 0.002]}}, "samples": samples, "seed": seed,
                    "concurrent": 1, "metric": "val_loss", "mode": "min",
                    "search": {"type": "exec", "command": ["/usr/bin/python3", "-S", search]},
                    "scheduler": {"type": "asha", "reduction_factor": 3, "mode": "promote"}}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(job, file)
    return path


def result_of(run_dir):
    """What is the same whatever was killed. Trials that one decision ends do so in the order in which their ranks are gone."""
    events = read_lines(os.path.join(run_dir, "events.jsonl"))
    best = json.loads(read_file(os.path.join(run_dir, "best.json")))
    return {"trials": [(e["trial"], e["parameters"]) for e in events if e["event"] == "trial_started"],
            "decisions": [(e["trial"], e["action"], e["iteration"], e["reason"], e.get("value")) for e in events
                          if e["event"] == "trial_decided"],
            "ends": sorted((e["trial"], e["state"], e["iteration"], e["value"]) for e in events if e["event"] == "trial_ended"),
            "best": (best["trial"], best["value"], best["parameters"])}


class Experiment:
    def __init__(self, case, folder, name):
        self.case, self.run_dir = case, os.path.join(folder, name)
        self.launch = None

    def start(self, *arguments):
        self.launch = self.case.start("tune", *arguments, run_dir=None)
        self.launch.run_dir = self.run_dir

    def to_end(self):
        if self.launch.wait(300) != 0:
            raise RuntimeError(self.launch.said())

    def victim(self, kind):
        pids = {"launcher": [self.launch.process.pid], "search": children_of(self.launch.process.pid, "search.py")}
        if kind in pids:
            return pids[kind]
        below = marked(self.launch.mark)
        if kind == "keeper":
            return [pid for pid in below if any("keeper" in part for part in command_of(pid))]
        trials = sorted(entry.path for entry in os.scandir(os.path.join(self.run_dir, "trials")))
        events = read_lines(os.path.join(trials[-1], "events.jsonl")) if trials else []
        return [event["pid"] for event in events if event["event"] == "worker_started" and event["pid"] in below]

    def kill(self, kind):
        """False: there was none."""
        pids = self.victim(kind)
        if not pids:
            return False
        try:
            os.kill(pids[-1], signal.SIGKILL)
        except ProcessLookupError:
            return False
        if kind == "launcher":
            self.launch.wait_until_gone(10)
            if self.launch.process.returncode == 0:
                return False  # It was over.
            self.start("--resume", self.run_dir)
        return True


class Kills(LaunchTest):
    def runTest(self):
        pass


def disturbed(case, folder, job, chance, done, wanted, counts):
    experiment = Experiment(case, folder, f"killed-{done}")
    experiment.start("--run-dir", experiment.run_dir, job)
    while experiment.launch.process.poll() is None and sum(counts.values()) < wanted:
        time.sleep(chance.uniform(0.05, 0.8))
        kind = KINDS[sum(counts.values()) % len(KINDS)]
        # A trial may be between two of its processes, or there is no trial just now.
        limit = time.monotonic() + 10
        while experiment.launch.process.poll() is None and time.monotonic() < limit:
            if experiment.kill(kind):
                counts[kind] += 1
                print(f"{sum(counts.values())}: {kind}", file=sys.stderr, flush=True)
                break
            time.sleep(0.01)
    experiment.to_end()
    return result_of(experiment.run_dir)


def main():
    options = arguments(__doc__.splitlines()[0], samples={"type": int, "default": 12}, size={"type": int, "default": 50_000})
    if options.quick:
        options.n = 8
    case = Kills()
    case.setUp()
    counts = dict.fromkeys(KINDS, 0)
    chance = random.Random(11)
    problems, rounds, decisions = [], 0, 0
    try:
        with tempfile.TemporaryDirectory(prefix="sgd-tune-kills-") as folder:
            while sum(counts.values()) < options.n:
                rounds += 1
                job = job_of(folder, rounds, options.samples, options.size)
                whole = Experiment(case, folder, f"whole-{rounds}")
                whole.start("--run-dir", whole.run_dir, job)
                whole.to_end()
                expected = result_of(whole.run_dir)
                decisions += len(expected["decisions"])
                found = disturbed(case, folder, job, chance, rounds, options.n, counts)
                problems += [f"experiment {rounds}: {key}: {found[key]} in place of {expected[key]}" for key in expected
                             if found[key] != expected[key]]
    finally:
        case.doCleanups()
    for problem in problems:
        print(problem, file=sys.stderr)
    table("An experiment whose parts are killed in turn", ["kills", *KINDS, "experiments", "decisions", "others than undisturbed"],
          [[sum(counts.values()), *counts.values(), rounds, decisions, len(problems)]])
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
