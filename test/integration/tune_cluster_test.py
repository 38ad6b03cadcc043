"""Experiments on a cluster whose nodes have disks of their own: what trials copy of each other travels."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LAUNCHER, LIMIT_S, read_file, read_lines
from tuning import linear


def validation(folder, first_generation=1):
    return {line["epoch"]: line["val_loss"] for line in read_lines(os.path.join(folder, "metrics.jsonl"))
            if line["phase"] == "validate" and line["generation"] >= first_generation}


class TuneClusterTest(unittest.TestCase):
    def write(self, cluster, job):
        path = os.path.join(cluster.folder, "job.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(job, file)
        return path

    def test_pbt_copies_what_has_come_and_its_job_gives_the_same_alone(self):
        """One trial at a time, as in the test on one machine."""
        rates = {"training.optimizer.lr": {"grid": [0.01, 0.00001, 0.00002, 0.00003]}}
        scheduler = {"type": "pbt", "interval_epochs": 2, "mutates": ["training.optimizer.lr"]}
        job = linear(parameters=rates, samples=1, concurrent=1, scheduler=scheduler)
        job["training"]["epochs"] = 8
        with Cluster({"n1": 1, "n2": 1}) as cluster:
            client = cluster.run("tune", self.write(cluster, job))
            run = client.run_id()
            client.wait_and_say(0)
            cloned = [event for event in cluster.events(run, "trial_cloned") if event["checkpoint"]]
            self.assertTrue(cloned)
            self.assertIn("/trials/0000/checkpoints/", cloned[0]["checkpoint"])
            trial = os.path.join(cluster.run_dir(run), "trials", f"{cloned[0]['trial']:04}")
            begun = [event for event in read_lines(os.path.join(trial, "events.jsonl")) if event["event"] == "restored"][0]
            self.assertEqual(begun["source"], "disk", begun)
            self.assertIn("/taken/", json.loads(read_file(os.path.join(trial, "job.json")))["resume_from"])
            alone = os.path.join(cluster.folder, "alone")
            done = subprocess.run([LAUNCHER, "run", "--run-dir", alone, os.path.join(trial, "job.json")], capture_output=True, text=True,
                                  timeout=LIMIT_S, check=False, cwd=cluster.folder, stdin=subprocess.DEVNULL, env=cluster.environment())
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            again, whole = validation(alone), validation(trial, begun["generation"])
            self.assertTrue(again)
            self.assertEqual(again, {epoch: value for epoch, value in whole.items() if epoch in again})


if __name__ == "__main__":
    unittest.main()
