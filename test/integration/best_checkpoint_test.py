"""The best checkpoints by a metric stay beside the newest: over the launcher's and the coordinator's end, here and on a cluster."""

import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from data import linear_job
from harness import BIN_DIR, LAUNCHER, LaunchTest, read_lines, wait_for

LIBRARIES = os.path.join(BIN_DIR, "..", "lib")

# The loss falls from epoch to epoch: the highest is the first one's, which would be long gone as one of the newest.
KEEP = {"latest": 1, "best": {"metric": "val_loss", "mode": "max", "n": 1}}
SAMPLES = 64000


def best_job(epochs, workers=2, keep=None):
    job = linear_job(workers=workers, epochs=epochs,
                     dataset={"type": "linear", "samples": SAMPLES, "validation_samples": 100}, optimizer={"type": "sgd", "lr": 0.0001})
    return {**job, "checkpoint": {"keep": keep or KEEP}}


def expected(run_dir):
    """Paths of the best and of the newest that was saved, by the lines of the run."""
    values = {line["step"]: line["val_loss"] for line in read_lines(os.path.join(run_dir, "metrics.jsonl")) if line["phase"] == "validate"}
    saved = [event for event in read_lines(os.path.join(run_dir, "events.jsonl")) if event["event"] == "checkpoint_saved"]
    best = max((event for event in saved if event["step"] in values), key=lambda event: values[event["step"]])
    return [best["path"], saved[-1]["path"]]


def kept(run_dir):
    return sorted(f"checkpoints/{name}" for name in os.listdir(os.path.join(run_dir, "checkpoints")))


class BestCheckpointTest(LaunchTest):
    def job(self, epochs):
        return self.write("job.json", json.dumps(best_job(epochs)))

    def check_kept(self, launch):
        best, newest = expected(launch.run_dir)
        self.assertNotEqual(best, newest)
        self.assertEqual(kept(launch.run_dir), sorted([best, newest]))
        [told] = launch.summary()["best_checkpoints"]
        self.assertEqual((told["path"], told["metric"]), (best, "val_loss"))
        said = subprocess.run([LAUNCHER, "checkpoints", "--json", launch.run_dir], capture_output=True, text=True, timeout=60, check=True)
        shown = json.loads(said.stdout)
        self.assertEqual(shown["metric"], "val_loss")
        self.assertEqual([(one["path"], one["is_best"]) for one in shown["checkpoints"]], [(newest, False), (best, True)])
        self.assertEqual(shown["checkpoints"][1]["value"], told["value"])
        table = subprocess.run([LAUNCHER, "checkpoints", launch.run_dir], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertRegex(table, rf"{best} .* {told['value']:.6g}  whole, best\n")

    def test_the_best_and_the_newest_stay(self):
        launch = self.run_to_end(self.job(5))
        self.check_kept(launch)
        saved = launch.events("checkpoint_saved")
        self.assertTrue(any("val_loss" in event.get("metric", {}) for event in saved), saved)

    def test_a_function_that_trains_nothing_keeps_its_best(self):
        """What it saves has the value of the report before it, and not of the next one."""
        for prepares in (False, True):
            for mode, value, saved in (("min", 0, 1), ("max", 10, 5)):
                with self.subTest(prepares=prepares, mode=mode):
                    job = {"name": "own", "num_workers": 2, "plugins": [os.path.join(LIBRARIES, "own_loop.so")],
                           "training": {"function": {"type": "iterations", "prepares": prepares}},
                           "checkpoint": {"keep": {"latest": 1, "best": {"metric": "sum", "mode": mode}}}}
                    launch = self.run_to_end(self.write("own.json", json.dumps(job)), run_dir=f"{prepares}-{mode}")
                    [best] = launch.summary()["best_checkpoints"]
                    self.assertEqual(best["value"], value)
                    with open(os.path.join(launch.run_dir, best["path"], "state.json"), encoding="utf-8") as file:
                        self.assertEqual(json.load(file)["shared"]["saved"], {"next": saved})

    def test_a_killed_launcher_forgets_nothing(self):
        launch = self.start(self.job(1000))
        launch.wait_for_event("checkpoint_saved", count=4)
        launch.process.kill()
        launch.wait_until_gone()
        done = len(launch.events("epoch_finished"))
        best = expected(launch.run_dir)[0]
        resumed = self.run_to_end("resume", "--set", f"training.epochs={done + 4}", launch.run_dir, run_dir=None)
        resumed.run_dir = launch.run_dir
        self.check_kept(resumed)
        self.assertEqual(expected(launch.run_dir)[0], best)

    def test_resume_may_look_at_another_metric(self):
        launch = self.run_to_end(self.job(3))
        low = json.dumps({"latest": 1, "best": {"metric": "train_loss", "mode": "max"}})
        resumed = self.run_to_end("resume", "--set", "training.epochs=5", "--set", f"checkpoint.keep={low}", launch.run_dir, run_dir=None)
        resumed.run_dir = launch.run_dir
        [told] = resumed.summary()["best_checkpoints"]
        self.assertEqual(told["metric"], "train_loss")
        self.assertIn(told["value"], [line["train_loss"] for line in resumed.metrics("train")])

    def test_a_metric_that_nobody_reports_is_told(self):
        job = best_job(2, keep={"best": {"metric": "val_lss", "mode": "min"}})
        launch = self.run_to_end(self.write("job.json", json.dumps(job)))
        self.assertEqual(launch.stderr().count('no report has a number "val_lss"'), 1, launch.stderr())
        self.assertEqual(launch.summary()["best_checkpoints"], [])


    def test_a_killed_coordinator_forgets_nothing(self):
        """The nodes share nothing with it: checkpoints come over the network, and go there and on the nodes."""
        path = self.write("job.json", json.dumps(best_job(8, workers=4)))
        os.mkdir(self.path("cluster"))
        with Cluster({"n1": 2, "n2": 2}, folder=self.path("cluster")) as cluster:
            client = cluster.run(path)
            run = client.run_id()
            cluster.wait_for_event(run, "checkpoint_saved", 3)
            cluster.kill("coordinator", signal.SIGKILL)
            cluster.start_coordinator()
            self.assertEqual(client.wait(), 0, client.said())
            run_dir = cluster.run_dir(run)
            best, newest = expected(run_dir)
            wait_for(lambda: kept(run_dir) == sorted({best, newest}), 10, f"{best} and {newest} alone")
            listed = cluster.ask("checkpoints", run)["checkpoints"]
            self.assertEqual([one["path"] for one in listed if one["is_best"]], [best])


if __name__ == "__main__":
    unittest.main()
