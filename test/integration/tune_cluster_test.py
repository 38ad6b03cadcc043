"""Experiments on a cluster whose nodes have disks of their own: what trials copy of each other travels."""

import glob
import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LAUNCHER, LIMIT_S, read_file, read_lines, wait_for
from tuning import copying, linear


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
        job = copying()
        with Cluster({"n1": 1, "n2": 1}) as cluster:
            client = cluster.run("tune", self.write(cluster, job))
            run = client.run_id()
            self.assertEqual(client.wait(2 * LIMIT_S), 0, client.said())
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
            self.check_on_cluster(cluster, f"{run}.{cloned[0]['trial']:04}", trial, again)

    def check_on_cluster(self, cluster, trial, folder, expected):
        """The same once more, from a trial's checkpoint by its name: the coordinator has it."""
        with open(os.path.join(folder, "job.json"), encoding="utf-8") as file:
            job = json.load(file)
        name = job["resume_from"].rsplit("/", 1)[1]
        path = self.write(cluster, dict(job, resume_from=f"{trial}:{name}"))
        client = cluster.run("run", path)
        run = client.run_id()
        client.wait_and_say(0)
        self.assertEqual(validation(cluster.run_dir(run)), expected)
        self.assertIn("/taken/", cluster.events(run, "run_begun_from")[0]["from"])
        for wrong, words in ((f"{trial}:step-000000000001-gen-0001", "does not exist"), (f"{trial}:nothing", "is no checkpoint's name"),
                             ("nobody:" + name, 'no run "nobody"')):
            refused = cluster.run("run", self.write(cluster, dict(job, resume_from=wrong)))
            self.assertNotEqual(refused.wait(), 0)
            self.assertIn(words, refused.said()[0])

    def tune(self, cluster, *arguments, expect=0):
        client = cluster.run("tune", *arguments)
        self.assertEqual(client.wait(), expect, client.said())
        return client.said()

    def test_one_whose_trials_have_no_place_says_why(self):
        with Cluster({"n1": 1}) as cluster:
            client = cluster.run("tune", "-n", 2, "--quiet", self.write(cluster, linear()))
            wait_for(lambda: "sgd-launch: waiting: " in client.said()[0] or client.process.poll() is not None, LIMIT_S, "the reason")
            self.assertIn("2 slots wanted, 1 free on 1 node", client.said()[0])
            client.process.send_signal(signal.SIGINT)
            self.assertEqual(client.wait(), 130, client.said())

    def test_one_that_was_stopped_goes_on_and_gets_more_samples(self):
        """In its own folder, across a new life of the coordinator; and it is seen from any machine."""
        job = linear(parameters={"training.optimizer.lr": {"uniform": [0.001, 0.01]}}, samples=3, concurrent=1)
        job["training"]["epochs"] = 40
        with Cluster({"n1": 1}) as cluster:
            client = cluster.run("tune", self.write(cluster, job))
            run = client.run_id()
            wait_for(lambda: cluster.events(run, "trial_report"), LIMIT_S, "a trial's first report")
            client.process.send_signal(signal.SIGINT)
            self.assertEqual(client.wait(), 130, client.said())
            cluster.kill("coordinator")
            cluster.start_coordinator()
            told, _ = self.tune(cluster, "--resume", run)
            self.assertIn(f"experiment {run} goes on", told)
            last = {event["trial"]: event["state"] for event in cluster.events(run, "trial_ended")}
            self.assertEqual(last, dict.fromkeys(range(3), "completed"))
            self.tune(cluster, "--resume", run, "--samples", 4)
            self.assertEqual(len(cluster.events(run, "trial_started")), 4)
            refused, _ = self.tune(cluster, "--resume", run, expect=2)
            self.assertIn("all of its 4 trials have ended", refused)
            refused, _ = self.tune(cluster, "--resume", run, "--samples", 10**9, expect=2)
            self.assertIn("samples", refused)
            self.check_views(cluster, run)

    def test_one_that_goes_on_is_live_in_the_next_life_of_the_coordinator_too(self):
        job = linear(parameters={"training.optimizer.lr": {"uniform": [0.001, 0.01]}}, samples=1, concurrent=1)
        with Cluster({"n1": 1}) as cluster:
            first = cluster.run("tune", self.write(cluster, job))
            run = first.run_id()
            first.wait_and_say(0)
            cluster.kill("n1")
            again = cluster.run("tune", "--resume", run, "--samples", 2)
            # From there on it waits for a coordinator that is lost.
            wait_for(lambda: f"experiment {run} goes on" in again.said()[0], LIMIT_S, lambda: f"the command to follow it: {again.said()}")
            cluster.wait_for_event(run, "experiment_resumed")
            cluster.kill("coordinator")
            cluster.start_coordinator()
            self.assertEqual([row["run"] for row in cluster.ask("ps")["runs"]], [run])
            cluster.start_agent("n1")
            again.wait_and_say(0)
            self.assertEqual(len(cluster.events(run, "trial_ended")), 2)
            self.assertEqual(len(cluster.events(run, "run_finished")), 2)

    def check_views(self, cluster, run):
        """What its folder says, asked of the coordinator."""
        there = cluster.run_dir(run)
        table = json.loads(self.tune(cluster, "status", "--json", run)[1])
        self.assertEqual(table["state"], "succeeded")
        self.assertEqual([row["state"] for row in table["rows"]], ["completed"] * 4)
        best = json.loads(read_file(os.path.join(there, "best.json")))
        self.assertEqual(json.loads(self.tune(cluster, "best", "--json", run)[1]), best)
        _, said = self.tune(cluster, "best")
        self.assertIn(f"sgd-launch tune best --job {run}", said)
        trial = os.path.join(there, "trials", f"{best['trial']:04}")
        self.assertEqual(json.loads(self.tune(cluster, "best", "--job", run)[1]), json.loads(read_file(os.path.join(trial, "job.json"))))
        get = next(line for line in said.splitlines() if line.startswith("checkpoint ")).split()[2:]
        fetched = cluster.run(*get[:-1], os.path.join(cluster.folder, "weights"))
        self.assertEqual(fetched.wait(), 0, fetched.said())
        for verb in ("pin", "remove"):
            refused = cluster.run("runs", verb, f"{run}.0000")
            self.assertEqual(refused.wait(), 3, refused.said())
            self.assertIn(f"kept and removed with its experiment: name {run}", refused.said()[0])
        self.assertTrue(self.tune(cluster, "plot", run)[1])
        for layout in ("ray", "tensorboard", "csv"):
            self.tune(cluster, "export", "--layout", layout, "--to", os.path.join(cluster.folder, layout), run)
        rows = [len(read_lines(path)) for path in glob.glob(os.path.join(cluster.folder, "ray", "*", "result.json"))]
        self.assertEqual(rows, [40] * 4)


if __name__ == "__main__":
    unittest.main()
