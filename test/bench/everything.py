"""The model with everything that a checkpoint must hold (test/plugins/everything.cpp), killed at random moments.

It has running statistics, dropout, tied, unused and frozen weights, two optimizers with groups, a scheduler each, accumulation,
clipping, and a tensor that each rank keeps for itself. Killed 50 times it must end with the bits of an undisturbed run, from
memory, from disk alone, and on two hosts that Gloo joins; and with 2, 1 and 2 workers every epoch must have every sample once.
"""

import collections
import hashlib
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_run import LiveRun
from measure import BIN_DIR, FASHION, LAUNCHER, Folder, arguments, table

PLUGIN = os.path.join(BIN_DIR, "..", "lib", "everything.so")
SAMPLES = 60000
KILLS_OF_EPOCH = 4
LIMIT_S = 1200
TIMES = ("_timestamp", "_time_this_iter_s", "samples_per_s", "step_ms", "generation")  # Of lines of metrics.


def job(epochs, **more):
    return {"name": "everything", "num_workers": 2, "plugins": [PLUGIN],
            "recovery": {"max_failures": "unlimited", "cooldown": "500ms", "backoff": {"attempts": 1000}},
            "training": {"seed": 1, "epochs": epochs, "batch_size": 64, "operator": {"type": "everything"}, "gradient_clip": {"norm": 0.5},
                         "dataset": {"type": "idx", "path": FASHION}}, **more}


def end(run):
    """What must not depend on failures: a digest of all tensors, and lines of metrics."""
    run.process.wait(LIMIT_S)
    run.read()
    if run.process.returncode != 0:
        sys.exit(f"the run ended with {run.process.returncode}:\n{run.tail()}")
    newest = max(event["path"] for event in run.events if event["event"] == "checkpoint_saved")
    digest = hashlib.sha256()
    for name in ("model", "optimizer", "ranks"):
        with open(os.path.join(run.directory, newest, name + ".safetensors"), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest(), [{key: value for key, value in line.items() if key not in TIMES} for line in run.metrics()]


def undisturbed(epochs):
    with Folder() as folder, LiveRun(folder, job(epochs)) as run:
        return end(run)


def killed(epochs, kills, chance, *options, **more):
    """(kills, from where it went on, its end)"""
    with Folder() as folder, LiveRun(folder, job(epochs, **more), *options) as run:
        run.wait("first_step")
        done = 0
        while done < kills:
            time.sleep(chance.uniform(0.05, 0.5))
            try:
                run.strike(signal.SIGKILL, chance)
            except (RuntimeError, ProcessLookupError):
                break  # It has ended.
            done += 1
        final = end(run)
        sources = collections.Counter(event["source"] for event in run.events if event["event"] == "recovered")
        return done, ", ".join(f"{name} {count}" for name, count in sorted(sources.items())), final


def resized():
    """(sizes, whether each epoch had every sample once)"""
    with Folder() as folder, LiveRun(folder, job(3)) as run:
        run.wait("first_step")
        for slots in (1, 2):
            time.sleep(1)
            begin = time.time()
            subprocess.run([LAUNCHER, "nodes", run.directory, "set-slots", str(slots)], check=True, stdout=subprocess.DEVNULL, timeout=30)
            run.wait("resized", after=begin)
        _, metrics = end(run)
        sizes = [event["to"] for event in run.events if event["event"] == "resized"]
        counted = [line["num_samples"] for line in metrics if line["phase"] == "train"]
        return " → ".join(map(str, [2, *sizes])), counted == [SAMPLES] * 3


def main():
    options = arguments(__doc__.splitlines()[0], kills={"default": 50, "type": int, "help": "of each run"},
                        seed={"default": 1, "type": int, "help": "of the kills"})
    kills = 4 if options.quick else options.kills
    epochs = max(2, kills // KILLS_OF_EPOCH)
    chance = random.Random(options.seed)
    clean = undisturbed(epochs)
    rows, is_well = [], True
    for name, settings, more in (("memory", (), {}), ("disk alone", (), {"checkpoint": {"every": {"steps": 50}, "memory": False}}),
                                 ("two hosts, Gloo", ("--local-nodes", "2"), {})):
        done, sources, final = killed(epochs, kills, chance, *settings, **more)
        is_well = is_well and final == clean and done == kills
        rows.append([name, epochs, done, sources, "equal" if final == clean else "DIFFERENT"])
        print(f"{name}: {done} kills, {rows[-1][-1]}", file=sys.stderr)
    sizes, is_once = resized()
    rows.append([f"{sizes} workers", 3, 0, "", "every sample once" if is_once else "WRONG NUMBER OF SAMPLES"])
    table("The model with everything, killed", ["", "epochs", "kills", "went on from", "weights, optimizers, tensors of ranks, metrics"], rows)
    return 0 if is_well and is_once else 1


if __name__ == "__main__":
    sys.exit(main())
