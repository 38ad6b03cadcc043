"""Experiments of tests: trials that take a moment, and what is asked of their folder."""

import json
import os
import subprocess

from harness import LAUNCHER, LaunchTest, read_file

# Reads its values, and tells how good they are as many programs do: a JSON object as its last line.
SCORED = """
import json, os, sys
lr = float(sys.argv[1])
print("some words")
print(json.dumps({"loss": (lr - 0.3) ** 2, "from_env": float(os.environ["SGD_PARAM_LR"])}))
"""

# Waits for a file, so that a test says when a trial ends.
WAITS = """
import os, sys, time
lr = sys.argv[1]
with open(os.path.join(sys.argv[2], "started-" + lr), "w"): pass
limit = time.monotonic() + 60
while not os.path.exists(os.path.join(sys.argv[2], "go")):
    if time.monotonic() > limit: sys.exit(9)
    time.sleep(0.01)
print('{"loss": %s}' % lr)
"""

# Keeps its state, two epochs long until it is told to stop, then two more. What it has begun with goes to who copies it.
KEEPS = """
import sys, time
import sgd_launch
state = sgd_launch.State(step=0, epoch=0, begun_with=float(sys.argv[1]))
state.restore()
while state.epoch < 4:
    state.step += 1
    state.epoch += 1
    sgd_launch.report(loss=state.begun_with, begun_with=state.begun_with)
    state.commit()
    limit = time.monotonic() + 60
    while not sgd_launch.should_stop() and state.epoch == 2:
        if time.monotonic() > limit: sys.exit(9)
        time.sleep(0.01)
    if state.epoch == 2: break
"""


def linear(**tune):
    """A training that takes a fraction of a second and gives the same numbers each time."""
    whole = {"parameters": {"training.optimizer.lr": {"loguniform": [0.001, 0.02]}}, "samples": 4, "concurrent": 2,
             "metric": "val_loss", "mode": "min"}
    whole.update(tune)
    return {"name": "linear", "num_workers": 1, "recovery": {"max_failures": 0},
            "training": {"epochs": 3, "batch_size": 32, "shuffle": False, "model": {"type": "linear", "init": "zeros"},
                         "loss": "mse", "dataset": {"type": "linear", "samples": 1000, "validation_samples": 400},
                         "optimizer": {"type": "sgd", "lr": 0.01}},
            "tune": whole}


def copying():
    """Trials that copy each other, one at a time; one of milliseconds would be at its end before the order to copy arrives."""
    rates = {"training.optimizer.lr": {"grid": [0.001, 1e-6, 2e-6, 3e-6]}}
    job = linear(parameters=rates, samples=1, concurrent=1, scheduler={"type": "pbt", "interval_epochs": 2, "mutates": ["training.optimizer.lr"]})
    job["training"]["epochs"] = 8
    job["training"]["dataset"]["samples"] = 20_000
    return job


class TuneCase(LaunchTest):
    def job(self, job, name="job.json"):
        return self.write(name, json.dumps(job))

    def command(self, text, *arguments, **tune):
        whole = {"parameters": {"lr": {"grid": [0.1, 0.3, 0.7]}}, "metric": "loss", "mode": "min", "concurrent": 2}
        whole.update(tune)
        return self.job({"name": "command", "command": [*self.script("trial.py", text), "{lr}", *arguments], "tune": whole})

    def tune(self, *arguments, **keywords):
        launch = self.start("tune", *arguments, run_dir=None, **keywords)
        launch.run_dir = self.path("x")
        return launch

    def tune_to_end(self, *arguments, expect=0, limit_s=120):
        launch = self.tune("--run-dir", self.path("x"), *arguments)
        self.assertEqual(launch.wait(limit_s), expect, launch.said())
        launch.wait_until_gone()
        return launch

    def resume(self, *options, expect=0):
        launch = self.tune("--resume", self.path("x"), *options)
        self.assertEqual(launch.wait(120), expect, launch.said())
        launch.wait_until_gone()
        return launch

    def ask(self, *arguments, expect=0):
        ended = subprocess.run([LAUNCHER, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                               cwd=self.folder, stdin=subprocess.DEVNULL)
        self.assertEqual(ended.returncode, expect, f"{arguments}: {ended.stdout}{ended.stderr}")
        return ended.stdout + ended.stderr

    def trial(self, number, name):
        return self.path("x", "trials", f"{number:04}", name)

    def best(self):
        return json.loads(read_file(self.path("x", "best.json")))

    def table(self):
        rows = json.loads(self.ask("tune", "status", "--json", self.path("x")))["rows"]
        return {row["trial"]: row for row in rows}
