"""resume with values changed: in the middle of an epoch the order of its samples must stay, and what is promised is true."""

import json
import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import linear_job
from harness import LaunchTest, read_file

SAMPLES = 64000


class ResumeChangesTest(LaunchTest):
    def interrupted(self, **checkpoint):
        """A run that was stopped in the middle of its epoch."""
        job = linear_job(workers=2, epochs=2, dataset={"type": "linear", "samples": SAMPLES, "validation_samples": 100})
        launch = self.start(self.write("job.json", json.dumps({**job, **checkpoint})))
        launch.wait_for_event("first_step")
        launch.process.send_signal(signal.SIGINT)
        self.assertEqual(launch.wait(), 130, launch.said())
        state = json.loads(read_file(os.path.join(launch.checkpoints()[-1], "state.json")))
        self.assertGreater(state["position"]["consumed"], 0, "it stopped at an epoch's boundary")
        return state["position"]["epoch"]

    def resume(self, *arguments, expect=0):
        launch = self.run_to_end("resume", self.path("run"), *arguments, run_dir=None, expect=expect)
        launch.run_dir = self.path("run")
        return launch

    def test_the_order_of_samples_stays_until_the_epoch_ends(self):
        epoch = self.interrupted()
        for change in ("training.seed=2", "training.shuffle=false", 'training.dataset={"type":"linear","samples":64001}',
                       "training.dataset.samples=32000"):
            with self.subTest(change=change):
                before = read_file(self.path("run", "job.json"))
                said = self.resume("--set", change, expect=2).stderr()
                self.assertIn(f"in the middle of epoch {epoch}", said)
                self.assertIn(f"--set training.epochs={epoch}", said)
                self.assertEqual(read_file(self.path("run", "job.json")), before, "nothing is touched")

    def test_what_it_says_to_do_works(self):
        epoch = self.interrupted()
        self.resume("--set", f"training.epochs={epoch}")
        launch = self.resume("--set", f"training.epochs={epoch + 1}", "--set", "training.seed=2")
        self.assertEqual([one["bit_exact"] for one in launch.events("restored")], [True, False])

    def test_what_may_change_in_the_middle(self):
        self.interrupted()
        launch = self.resume("--set", "training.batch_size=64", "--set", "training.epochs=2")
        self.assertEqual([one["bit_exact"] for one in launch.events("restored")], [False])
        self.assertEqual([line["num_samples"] for line in launch.metrics("train")], [SAMPLES, SAMPLES])

    def test_another_number_of_workers_is_not_bit_exact(self):
        self.interrupted()
        launch = self.resume("-n", "1", "--set", "training.batch_size=32")
        self.assertEqual([one["bit_exact"] for one in launch.events("restored")], [False])

    def test_status_tells_of_the_whole_run(self):
        self.interrupted()
        before = json.loads(read_file(self.path("run", "summary.json")))["wall_s"]
        launch = self.resume()
        summary = launch.summary()
        events = launch.events()
        legs = [event["time"] for event in events if event["event"] in ("run_started", "run_resumed", "run_finished")]
        self.assertAlmostEqual(summary["wall_s"], legs[1] - legs[0] + legs[3] - legs[2], delta=2)
        self.assertGreater(summary["wall_s"], before)
        status = self.run_to_end("status", self.path("run"), run_dir=None).stdout().decode()
        self.assertRegex(status, r"metrics +epoch 2/2  train_loss [\d.e-]+  lr .*\nmetrics +epoch 2/2  val_loss [\d.e-]+")


if __name__ == "__main__":
    unittest.main()
