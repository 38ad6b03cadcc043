"""What was asked to be kept and is not: a run without its last state on disk is no success, and says so."""

import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import linear_job
from harness import BIN_DIR, LAUNCHER, LaunchTest


class SavingTest(LaunchTest):
    def start_without_room(self, job):
        """Its checkpoints/ gives way to a file in front of the first worker: no save can work from then on."""
        there = self.path("run", "checkpoints")
        worker = self.write("worker", f"#!/bin/sh\n[ ! -d {there} ] || {{ mv {there} {self.path('aside')}; echo in the way > {there}; }}\n"
                                      f"exec {os.path.join(BIN_DIR, 'sgd-worker')} \"$@\"\n")
        os.chmod(worker, 0o755)
        return self.start(self.write("job.json", json.dumps(job)), env={"SGD_WORKER": worker})

    def test_success_needs_the_last_state(self):
        launch = self.start_without_room(linear_job(epochs=30, dataset={"type": "linear", "samples": 20000, "validation_samples": 10}))
        self.assertEqual(launch.wait(), 1, launch.said())
        summary = launch.summary()
        self.assertEqual((summary["state"], summary["exit_code"], summary["epochs"]), ("failed", 1, 30))
        self.assertRegex(summary["error"], r"^trained to the end, but the state of step \d+ could not be saved: .*checkpoints")
        self.assertIn(summary["error"], launch.stderr())
        self.assertIn("sgd-launch resume", launch.stderr())
        self.assertTrue(launch.events("checkpoint_failed"))

    def test_it_goes_on_when_there_is_room_again(self):
        launch = self.start_without_room(linear_job(epochs=30, dataset={"type": "linear", "samples": 20000, "validation_samples": 10}))
        self.assertEqual(launch.wait(), 1, launch.said())
        os.remove(self.path("run", "checkpoints"))
        os.rename(self.path("aside"), self.path("run", "checkpoints"))
        resumed = self.run_to_end("resume", self.path("run"), run_dir=None)
        self.assertIn("  model: ", resumed.stderr())

    def test_a_stop_that_could_not_save(self):
        launch = self.start_without_room(linear_job(epochs=100000))
        launch.wait_for_event("first_step")
        launch.process.send_signal(signal.SIGINT)
        self.assertEqual(launch.wait(), 1, launch.said())
        self.assertRegex(launch.summary()["error"], r"^stopped by signal 2 \(SIGINT\), but the state of step \d+ could not be saved: ")

    @unittest.skipUnless(os.geteuid() == 0, "needs root for a file system of its own")
    def test_a_disk_that_is_full(self):
        """Really: what is small goes on it, a checkpoint does not."""
        disk = self.path("disk")
        os.mkdir(disk)
        job = linear_job(model={"type": "mlp", "inputs": 1, "hidden": [512, 512], "outputs": 1}, optimizer={"type": "sgd", "lr": 1e-6})
        self.write("job.json", json.dumps(job))
        small = f'mount -t tmpfs -o size=600k none "{disk}" && exec "$@"'
        ended = subprocess.run(["unshare", "-m", "sh", "-c", small, "sh", LAUNCHER, "--run-dir", os.path.join(disk, "run"),
                                self.path("job.json")], capture_output=True, text=True, timeout=60, cwd=self.folder)
        self.assertEqual(ended.returncode, 1, ended.stderr)
        self.assertRegex(ended.stderr, r"could not be saved: .*No space left on device")

    def test_never_says_that_nothing_was_kept(self):
        job = {**linear_job(), "checkpoint": {"every": "never"}}
        launch = self.run_to_end(self.write("job.json", json.dumps(job)))
        self.assertRegex(launch.stderr(), r"finished in .*\n  model: not kept, no checkpoint was saved")


if __name__ == "__main__":
    unittest.main()
