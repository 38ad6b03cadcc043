"""Population based training of a ResNet18 while its ranks are SIGKILLed at random moments; then the best trial's job, alone and
undisturbed, must give the same value, bit for bit.

Trials run side by side, so who copies whom depends on how fast they are: that is why `best.json` holds a job that says from which state
it begins.
"""

import json
import os
import random
import signal
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LaunchTest, marked, read_file, read_lines
from measure import arguments, table

LIMIT_S = 3000


def job_of(folder, epochs, samples):
    path = os.path.join(folder, "job.json")
    job = {"name": "pbt", "num_workers": 1, "recovery": {"max_failures": "unlimited", "backoff": {"first": "10ms"}},
           "training": {"seed": 1, "epochs": epochs, "batch_size": 32, "model": {"type": "resnet18", "stem": "cifar", "width": 8},
                        "loss": "cross_entropy",
                        "dataset": {"type": "synthetic", "shape": [3, 32, 32], "samples": samples, "validation_samples": 128},
                        "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9}},
           "tune": {"parameters": {"training.optimizer.lr": {"loguniform": [0.0001, 0.5]},
                                   "training.optimizer.momentum": {"uniform": [0.5, 0.99]}},
                    "samples": 4, "seed": 3, "concurrent": 2, "metric": "val_loss", "mode": "min",
                    "scheduler": {"type": "pbt", "interval_epochs": 2, "quantile": 0.5}}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(job, file)
    return path


class Kills(LaunchTest):
    def runTest(self):
        pass


def ranks_of(launch):
    """Of all trials, alive."""
    alive, found = marked(launch.mark), []
    for entry in os.scandir(os.path.join(launch.run_dir, "trials")):
        events = read_lines(os.path.join(entry.path, "events.jsonl"))
        found += [event["pid"] for event in events if event["event"] == "worker_started" and event["pid"] in alive]
    return found


def kill_until_the_end(launch, chance, wanted):
    kills, limit = 0, time.monotonic() + LIMIT_S
    while launch.process.poll() is None and time.monotonic() < limit:
        time.sleep(chance.uniform(0.3, 2.0))
        ranks = ranks_of(launch) if kills < wanted else []
        if not ranks:
            continue
        try:
            os.kill(chance.choice(ranks), signal.SIGKILL)
            kills += 1
        except ProcessLookupError:
            continue
    return kills


def main():
    options = arguments(__doc__.splitlines()[0], epochs={"type": int, "default": 12}, size={"type": int, "default": 512},
                        kills={"type": int, "default": 50})
    if options.quick:
        options.epochs, options.size, options.kills = 6, 128, 5
    case = Kills()
    case.setUp()
    try:
        with tempfile.TemporaryDirectory(prefix="sgd-tune-pbt-") as folder:
            launch = case.start("tune", "--run-dir", os.path.join(folder, "x"), job_of(folder, options.epochs, options.size), run_dir=None)
            launch.run_dir = os.path.join(folder, "x")
            kills = kill_until_the_end(launch, random.Random(5), options.kills)
            if launch.wait(LIMIT_S) != 0:
                raise RuntimeError(launch.said())
            clones = len(launch.events("trial_cloned"))
            best = json.loads(read_file(os.path.join(launch.run_dir, "best.json")))
            path = os.path.join(folder, "best_job.json")
            with open(path, "w", encoding="utf-8") as file:
                json.dump(best["job"], file)
            alone = case.start(path, run_dir=os.path.join(folder, "alone"))
            if alone.wait(LIMIT_S) != 0:
                raise RuntimeError(alone.said())
            values = {line["epoch"]: line["val_loss"] for line in alone.metrics("validate")}
    finally:
        case.doCleanups()
    again = values.get(best["iteration"])
    table("PBT of a ResNet18 under kills", ["kills of ranks", "copies", "best trial", "epoch", "value", "its job alone", "equal"],
          [[kills, clones, best["trial"], best["iteration"], best["value"], again, "yes" if again == best["value"] else "NO"]])
    return 0 if again == best["value"] and kills > 0 and clones > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
