#!/usr/bin/env python3
"""`sgd-worker --config job.json`: one rank without a launcher is the rank of a run of one.

    worker_config.py build/bin/sgd-worker [unittest arguments]
"""
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import unittest

WORKER = ""
FASHION = os.environ.get("SGD_FASHION_MNIST") or "/usr/share/datasets/fashion-mnist"
LIMIT_S = 60
CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "..", "configs")
LINEAR = os.path.join(CONFIGS, "linear.json")


class Config(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.mkdir(os.path.join(self.folder, "tmp"))

    def start(self, *words):
        return subprocess.Popen([WORKER, "--config", *words], cwd=self.folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                stdin=subprocess.DEVNULL, env={**os.environ, "TMPDIR": os.path.join(self.folder, "tmp")})

    def run_config(self, *words, expect=0):
        """(reports, what is said)"""
        process = self.start(*words)
        self.addCleanup(process.kill)
        out, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, expect, out + err)
        self.assertEqual(os.listdir(os.path.join(self.folder, "tmp")), [])
        return [json.loads(line) for line in out.splitlines()], err

    def checkpoints(self, name):
        return sorted(os.listdir(os.path.join(self.folder, "runs", name, "checkpoints")))

    def test_it_trains(self):
        reports, said = self.run_config(LINEAR)
        self.assertEqual([(report["epoch"], report["phase"]) for report in reports],
                         [(epoch, phase) for epoch in (1, 2, 3) for phase in ("train", "validate")])
        self.assertAlmostEqual(reports[4]["train_loss"], 1.64378, delta=1e-3)
        self.assertAlmostEqual(reports[5]["val_loss"], 2.89575, delta=1e-3)
        self.assertIn(f"one rank of {LINEAR}, files in {self.folder}/runs/linear-alone-1", said)
        self.assertEqual(said.count("sgd-worker: saved "), 3)
        self.assertEqual(len(self.checkpoints("linear-alone-1")), 3)

    def test_its_folder_is_closed_whatever_the_umask(self):
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        self.run_config(LINEAR, "--set", "training.epochs=1")
        self.assertEqual(stat.S_IMODE(os.stat(os.path.join(self.folder, "runs", "linear-alone-1")).st_mode), 0o700)

    def test_the_newest_checkpoints_are_kept(self):
        said = self.run_config(LINEAR, "--set", "training.epochs=5", "--set", "checkpoint.keep=2")[1]
        self.assertEqual(said.count("sgd-worker: saved "), 5)
        kept = self.checkpoints("linear-alone-1")
        self.assertEqual(kept, ["step-000000000128-gen-0001", "step-000000000160-gen-0001"])
        self.assertNotIn("does not follow", said)
        # The newest one is whole, and one that is gone on from is no part of the next run.
        newest = os.path.join("runs", "linear-alone-1", "checkpoints", kept[1])
        said = self.run_config(LINEAR, "--set", "training.epochs=8", "--set", "checkpoint.keep=1", "--resume-from", newest)[1]
        self.assertIn("goes on from step 160", said)
        self.assertEqual(self.checkpoints("linear-alone-2"), ["step-000000000256-gen-0001"])
        self.assertEqual(self.checkpoints("linear-alone-1"), kept)

    def test_keys_that_need_a_launcher_are_named(self):
        with open(LINEAR) as file:
            job = json.loads("".join(line.split("//")[0] for line in file))
        job["training"]["epochs"] = 1
        job["callbacks"] = [{"type": "json"}]
        job["checkpoint"] = {"keep": {"best": {"metric": "val_loss", "mode": "min"}}, "after_save": {"command": ["true"]}}
        path = os.path.join(self.folder, "job.json")
        with open(path, "w") as file:
            json.dump(job, file)
        said = self.run_config(path)[1]
        self.assertEqual(said.count('--config does not follow "checkpoint.keep.best", "checkpoint.after_save", "callbacks": run'), 1, said)

    def test_it_goes_on_from_a_checkpoint(self):
        self.run_config(LINEAR)
        newest = os.path.join("runs", "linear-alone-1", "checkpoints", self.checkpoints("linear-alone-1")[1])
        reports, said = self.run_config(LINEAR, "--resume-from", newest)
        self.assertEqual([report["epoch"] for report in reports], [3, 3])
        self.assertAlmostEqual(reports[1]["val_loss"], 2.89575, delta=1e-3)
        self.assertIn("goes on from step 64", said)
        self.assertEqual(len(self.checkpoints("linear-alone-2")), 1)

    def test_it_goes_on_from_the_job_s_checkpoint(self):
        self.run_config(LINEAR)
        checkpoints = os.path.join(self.folder, "runs", "linear-alone-1", "checkpoints")
        first, second = self.checkpoints("linear-alone-1")[:2]
        job = ("--set", f"resume_from={checkpoints}/{second}")
        reports, said = self.run_config(LINEAR, *job)
        self.assertEqual([report["epoch"] for report in reports], [3, 3])
        self.assertIn("goes on from step 64", said)
        said = self.run_config(LINEAR, *job, "--resume-from", os.path.join(checkpoints, first))[1]
        self.assertIn("goes on from step 32", said)
        said = self.run_config(LINEAR, "--set", "resume_from=linear-alone-1", expect=2)[1]
        self.assertIn('"resume_from": linear-alone-1 is no checkpoint', said)

    def test_a_signal_stops_it_with_a_checkpoint(self):
        process = self.start(LINEAR, "--set", "training.epochs=1000000", "--set", "checkpoint.every=never")
        self.addCleanup(process.kill)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 76, err)
        self.assertIn("stopping with a checkpoint, at most 30s; once more to end at once", err)
        self.assertEqual(err.count("sgd-worker: saved "), 1, err)

    def test_a_plug_in_s_model_trains(self):
        job = os.path.join(self.folder, "job.json")
        with open(job, "w") as file:
            json.dump({"name": "own", "plugins": [os.path.join(os.path.dirname(WORKER), "..", "lib", "plain_models.so")], "training": {
                "epochs": 1, "steps_per_epoch": 5, "batch_size": 32, "model": {"type": "plain_mlp"}, "loss": "cross_entropy",
                "optimizer": {"type": "sgd", "lr": 0.01}, "dataset": {"type": "idx", "path": FASHION}}}, file)
        reports, _ = self.run_config(job)
        self.assertEqual([report["phase"] for report in reports], ["train", "validate"])

    def test_a_data_file_that_is_cut_while_it_is_in_use_is_named(self):
        text, job = (os.path.join(self.folder, name) for name in ("text", "job.json"))
        with open(text, "wb") as file:
            file.write(bytes(1 << 16))
        with open(job, "w") as file:
            json.dump({"name": "text", "checkpoint": {"every": "never"}, "training": {
                "epochs": 1000000, "steps_per_epoch": 5, "batch_size": 32, "optimizer": {"type": "sgd", "lr": 0.01}, "loss": "cross_entropy",
                "model": {"type": "transformer", "embedding": 4, "layers": 1, "heads": 1, "feedforward": 4},
                "dataset": {"type": "tokens", "train": text, "validation": text, "dtype": "u8", "length": 64}}}, file)
        process = self.start(job)
        self.addCleanup(process.kill)
        process.stdout.readline()
        os.truncate(text, 1)
        _, err = process.communicate(timeout=LIMIT_S)
        self.assertEqual(process.returncode, 1, err)
        self.assertIn(f"sgd-worker: data file {text} has been cut while it was in use", err)

    def test_what_is_wrong_is_said(self):
        os.makedirs(os.path.join(self.folder, "full", "of"))
        command = os.path.join(self.folder, "command.json")
        with open(command, "w") as file:
            json.dump({"name": "c", "command": ["true"]}, file)
        for words, said in [((), "--config needs a job file"), (("none.json",), "none.json: error: cannot open"),
                            ((LINEAR, "--set", "training.epocs=1"), 'did you mean "epochs"?'), ((LINEAR, "--set", "x"), "--set needs PATH=VALUE"),
                            ((LINEAR, "--run-dir"), "--run-dir needs a value"), ((LINEAR, "--run-dir", "full"), "full is not empty"),
                            ((LINEAR, "--resume-from", "full"), "full is no checkpoint"), ((LINEAR, "more.json"), 'not "more.json"'),
                            ((command,), "names a command")]:
            self.assertIn(said, self.run_config(*words, expect=2)[1])
        self.assertFalse(os.path.exists(os.path.join(self.folder, "runs")))


if __name__ == "__main__":
    WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
