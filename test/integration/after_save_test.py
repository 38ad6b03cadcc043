"""A program that is run after each checkpoint: once, one at a time, and whatever it does training goes on."""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import linear_job, write_job
from harness import LIMIT_S, LaunchTest, command_of, read_file, read_lines, wait_for

SAMPLES = 64000

# One line a turn: what it was told, and whether the checkpoint is there at its end.
NOTES = """
import json, os, sys, time
time.sleep(float(sys.argv[2]))
told = {key[4:].lower(): value for key, value in os.environ.items() if key.startswith("SGD_")}
told["is_there"] = os.path.exists(os.path.join(told["checkpoint"], "manifest.json"))
with open(sys.argv[1], "a") as file:
    file.write(json.dumps(told) + "\\n")
print("noted", told["step"])
"""
FAILS = "import os, sys\nprint('no room for', os.environ['SGD_STEP'])\nsys.exit(3)\n"
STAYS = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(601)"], start_new_session=True)
time.sleep(600)
"""


class AfterSaveTest(LaunchTest):
    def job(self, command, epochs=3, keep=10, timeout="1m"):
        job = linear_job(2, epochs=epochs, dataset={"type": "linear", "samples": SAMPLES, "validation_samples": 100})
        job["checkpoint"] = {"keep": keep, "after_save": {"command": command, "timeout": timeout}}
        return write_job(self.path("job.json"), job)

    def noting(self, takes_s=0.0):
        return [*self.script("notes.py", NOTES), self.path("notes.jsonl"), str(takes_s)]

    def notes(self):
        return read_lines(self.path("notes.jsonl"))

    def check_all_had_it(self, launch):
        saved = launch.events("checkpoint_saved")
        self.assertGreater(len(saved), 1)
        self.assertEqual([note["checkpoint"] for note in self.notes()], [os.path.join(launch.run_dir, event["path"]) for event in saved])
        self.assertEqual([(note["step"], note["epoch"]) for note in self.notes()], [(str(event["step"]), str(event["epoch"])) for event in saved])
        self.assertTrue(all(note["is_there"] for note in self.notes()), self.notes())
        self.assertEqual([(event["path"], event["state"]) for event in launch.events("after_save")], [(event["path"], "done") for event in saved])

    def test_each_checkpoint_once_and_what_it_is_told(self):
        launch = self.run_to_end(self.job(self.noting()))
        self.check_all_had_it(launch)
        self.assertEqual({note["run"] for note in self.notes()}, {"run"})
        self.assertIn(b"noted ", read_file(os.path.join(launch.run_dir, "callbacks", "after-save.log")))
        self.assertNotIn("warning", launch.stderr())

    def test_a_list_is_a_command(self):
        job = linear_job(1, epochs=1)
        job["checkpoint"] = {"after_save": self.noting()}
        launch = self.run_to_end(write_job(self.path("job.json"), job))
        self.assertEqual([event["state"] for event in launch.events("after_save")], ["done"])
        job["checkpoint"] = {"after_save": ["./missing"]}
        said = self.run_to_end(write_job(self.path("job.json"), job), run_dir="other", expect=2).stderr()
        self.assertIn("checkpoint.after_save: ", said)
        self.assertFalse(os.path.exists(self.path("other")))

    def test_its_failure_is_told_and_training_goes_on(self):
        launch = self.run_to_end(self.job(self.script("fails.py", FAILS)))
        self.assertEqual(launch.summary()["state"], "succeeded")
        told = launch.events("after_save")
        self.assertEqual({event["state"] for event in told}, {"failed"})
        self.assertEqual(len(told), len(launch.events("checkpoint_saved")))
        self.assertIn("exit code 3", told[0]["message"])
        self.assertEqual(launch.stderr().count("warning: checkpoint.after_save of "), len(told))
        self.assertIn(b"no room for", read_file(os.path.join(launch.run_dir, "callbacks", "after-save.log")))

    def test_one_that_does_not_end_is_ended_with_all_it_has_started(self):
        launch = self.run_to_end(self.job(self.script("stays.py", STAYS), epochs=1, timeout="300ms"))
        self.assertEqual([event["state"] for event in launch.events("after_save")], ["timed_out"])
        self.assertIn("is not done in 300ms", launch.stderr())

    def test_what_waits_is_not_removed_and_goes_afterwards(self):
        launch = self.run_to_end(self.job(self.noting(0.5), epochs=5, keep=1))
        self.check_all_had_it(launch)
        self.assertEqual(launch.checkpoints(), [os.path.join(launch.run_dir, launch.events("checkpoint_saved")[-1]["path"])])

    def test_a_killed_launcher_leaves_none_behind_and_resume_makes_up(self):
        launch = self.start(self.job(self.noting(1.0), epochs=1000))
        launch.wait_for_event("after_save")
        launch.wait_for_event("checkpoint_saved", count=3)
        launch.process.kill()
        launch.wait_until_gone(10)
        epochs = len(launch.events("epoch_finished"))
        resumed = self.run_to_end("resume", "--set", f"training.epochs={epochs + 1}", launch.run_dir, run_dir=None)
        resumed.run_dir = launch.run_dir
        saved = [event["path"] for event in resumed.events("checkpoint_saved")]
        had = [os.path.relpath(note["checkpoint"], launch.run_dir) for note in self.notes()]
        there = [os.path.relpath(path, launch.run_dir) for path in resumed.checkpoints()]
        self.assertEqual(set(had) & set(there), set(saved) & set(there), "all that are there have had their turn")
        told = [event["path"] for event in resumed.events("after_save")]
        self.assertEqual(len(told), len(set(told)))

    def test_a_signal_ends_the_wait_at_the_end(self):
        launch = self.start(self.job(self.script("stays.py", STAYS), epochs=1, timeout="5m"))
        wait_for(lambda: "waiting for what checkpoint.after_save runs" in launch.stderr(), LIMIT_S, "the run's end")
        launch.process.send_signal(signal.SIGINT)
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertIn("1 checkpoint had no turn; resume makes up for it", launch.stderr())
        wait_for(lambda: not launch.alive(), 15, f"the end of {[command_of(pid)[:3] for pid in launch.alive()]}")


if __name__ == "__main__":
    unittest.main()
