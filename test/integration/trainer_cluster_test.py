"""Programs that train on a cluster: the same calls, with an address; and `run --run-dir` there, by which they read."""

import glob
import json
import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LAUNCHER, LIMIT_S, marked, read_file, read_lines, wait_for
from trainer_test import ClientTest, Program, unittest


class TrainerOnAClusterTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.driver = os.path.join(cls.build("test", "client"), "driver")

    def setUp(self):
        super().setUp()
        self.cluster = Cluster({"n1": 1, "n2": 1})
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__)

    def trainer(self, job, **options):
        program = Program(self.driver, self.folder, {})
        self.addCleanup(program.end)
        program.do("make", {"job": job, "logdir": self.path("logs"), "address": self.cluster.address, **options})
        program.do("start")
        return program

    def line(self, epochs=3, samples=1000):
        return {"name": "line", "num_workers": 2,
                "training": {"epochs": epochs, "batch_size": 32, "shuffle": False, "model": {"type": "linear", "init": "zeros"}, "loss": "mse",
                             "dataset": {"type": "linear", "samples": samples, "validation_samples": 400}, "optimizer": {"type": "sgd", "lr": 0.01}}}

    def run_id(self, number):
        return json.loads(read_file(self.path("logs", f"run_{number:03}", "cluster.json")))["run"]

    def test_epoch_by_epoch(self):
        """The numbers of test/integration/trainer_test.py, and the weights that the cluster has."""
        program = self.trainer(self.line())
        trained = [program.do("train") for _ in range(3)]
        self.assertEqual([line["epoch"] for line in trained], [1, 2, 3])
        for line, expected in zip(trained, (13.30967, 2.01749, 1.64378)):
            self.assertAlmostEqual(line["train_loss"], expected, delta=1e-3)
        self.assertAlmostEqual(program.do("validate")["val_loss"], 2.89575, delta=1e-3)
        newest = program.do("places")["path"]
        self.assertTrue(newest.startswith(self.path("logs", "run_003", "checkpoints")))
        (there,) = glob.glob(os.path.join(self.cluster.run_dir(self.run_id(3)), "checkpoints", os.path.basename(newest), "model.safetensors"))
        self.assertEqual(read_file(os.path.join(newest, "model.safetensors")), read_file(there))
        program.do("save", self.path("best"))
        self.assertIn("it is not the newest checkpoint of a run of the cluster", program.ask("load", self.path("best"))["words"])
        (first,) = glob.glob(self.path("logs", "run_001", "checkpoints", "step-*"))
        program.do("load", first)
        self.assertEqual(program.do("train")["train_loss"], trained[1]["train_loss"])

    def test_a_job_that_begins_with_a_run_of_the_cluster(self):
        program = self.trainer(self.line())
        for _ in range(2):
            program.do("train")
        newest = os.path.basename(program.do("places")["path"])
        for origin in (self.run_id(2), f"{self.run_id(2)}:{newest}"):
            other = self.trainer({**self.line(), "resume_from": origin})
            self.assertEqual(other.do("train")["epoch"], 3)
        self.assertTrue(other.do("places")["run_dir"].endswith("run_004"))

    def test_reports_one_by_one(self):
        program = self.trainer(self.line(epochs=2))
        program.do("run_iterator")
        reports = []
        while (report := program.do("next")) is not None:
            reports.append((report["phase"], report["epoch"]))
        self.assertEqual([one for one in reports if one[0] == "train"], [("train", 1), ("train", 2)])
        self.assertEqual(program.do("get_final_results"), [])

    def test_failures_are_told_in_the_clusters_words(self):
        program = self.trainer(self.line())
        told = program.ask("train", {"training.optimizer.lr": 1e30})
        self.assertEqual((told["error"], told["exit_code"], told["summary"]["state"]), ("TrainingFailed", 1, "failed"))
        self.assertEqual(program.ask("train", {"training.optimizer.lrr": 1})["error"], "JobError")
        self.cluster.kill("coordinator")
        self.assertNotIn("ok", program.ask("train"))
        self.cluster.start_coordinator()
        self.assertEqual(program.do("train")["epoch"], 1)

    def test_a_killed_programs_run_ends_with_a_checkpoint(self):
        program = self.trainer(self.line(samples=20_000_000))
        program.begin("train")
        wait_for(lambda: any(event["event"] == "first_step" for event in read_lines(self.path("logs", "run_001", "events.jsonl"))), LIMIT_S,
                 "the first step to be told here")
        program.process.kill()
        program.process.wait(10)
        wait_for(lambda: not marked(program.mark), LIMIT_S, "the end of what the program has started")
        (finished,) = self.cluster.events(self.run_id(1), "run_finished")
        self.assertEqual(finished["state"], "interrupted")
        self.assertEqual(len(glob.glob(self.path("logs", "run_001", "checkpoints", "step-*"))), 1)

    def run_here(self, *arguments, expect=0):
        done = subprocess.run([LAUNCHER, *arguments], capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=self.folder, stdin=subprocess.DEVNULL,
                              env=self.cluster.environment())
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def test_a_copy_of_what_a_run_leaves(self):
        """It can be read, and gone on from, without the cluster."""
        job = self.write("job.json", json.dumps(self.line(epochs=2)))
        copy = self.path("copy")
        said = self.run_here("run", "--address", self.cluster.address, "--run-dir", copy, job)
        self.assertIn(f"model: {copy}/checkpoints/step-", said)
        there = self.cluster.run_dir(json.loads(read_file(os.path.join(copy, "cluster.json")))["run"])
        for name in ("events.jsonl", "metrics.jsonl", "summary.json", "logs/gen-0001/rank-0001.log"):
            self.assertEqual(read_file(os.path.join(copy, name)), read_file(os.path.join(there, name)), name)
        self.assertEqual(os.stat(copy).st_mode & 0o077, 0, "others may read it")
        self.assertIn("whole", self.run_here("checkpoints", copy))
        self.assertIn("3 epochs", self.run_here("resume", "--set", "training.epochs=3", copy))
        self.assertIn("holds a run", self.run_here("run", "--address", self.cluster.address, "--run-dir", copy, job, expect=2))
        self.assertIn("leave --detach out", self.run_here("run", "--address", self.cluster.address, "--detach", "--run-dir", self.path("b"), job, expect=2))

    def test_a_copy_that_cannot_be_written_is_no_success(self):
        job = self.write("job.json", json.dumps(self.line(epochs=40)))
        done = subprocess.run(["bash", "-c", 'ulimit -f 8; trap "" XFSZ; exec "$@"', "-", LAUNCHER, "run", "--address", self.cluster.address, "--run-dir",
                               self.path("copy"), job], capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd=self.folder,
                              stdin=subprocess.DEVNULL, env=self.cluster.environment())
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("is not whole", done.stderr)


del ClientTest  # Its tests are none of this file.

if __name__ == "__main__":
    unittest.main()
