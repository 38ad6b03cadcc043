"""A run seen from another terminal: status, logs and stop over its control socket, however the run is named."""

import json
import os
import socket
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LAUNCHER, LaunchTest, wait_for

SPEAK = """
import os, time
print("hello from", os.environ["RANK"], flush=True)
time.sleep(1000)
"""


class ControlTest(LaunchTest):
    def ask(self, *arguments, expect=0):
        ended = subprocess.run([LAUNCHER, *arguments], capture_output=True, text=True, timeout=20, cwd=self.folder,
                               stdin=subprocess.DEVNULL)
        self.assertEqual(ended.returncode, expect, f"{arguments}: {ended.stdout}{ended.stderr}")
        return ended.stdout

    def speaking(self, **keywords):
        """A run in the test's folder that waits; without a run directory of its own it lies in runs/."""
        launch = self.start("-n", 2, "--", *self.script("speak.py", SPEAK), **keywords)
        wait_for(lambda: launch.stdout().count(b"hello") == 2, 20, "both ranks")
        return launch

    def run_id(self):
        return os.path.basename(os.path.realpath(self.path("runs", "latest")))

    def test_status_by_every_name(self):
        self.speaking(run_dir=None)
        run = self.run_id()
        for name in ([], [run], [run[:-2]], [os.path.join("runs", run)], [self.path("runs", "latest")]):
            with self.subTest(name=name):
                status = json.loads(self.ask("status", "--json", *name))
                self.assertEqual(status["run"], run)
                self.assertEqual(len(status["ranks"]), 2)
        text = self.ask("status")
        self.assertIn(run, text)

    def test_logs_of_a_living_and_of_a_finished_run(self):
        launch = self.speaking(run_dir=None)
        said = self.ask("logs")
        self.assertIn("hello from 0", said)
        self.assertIn("hello from 1", said)
        self.ask("stop")
        self.assertEqual(launch.wait(20), 6, launch.said())
        self.assertIn("hello from 1", self.ask("logs"))

    def test_stop_cancels_the_run(self):
        launch = self.speaking()
        self.ask("stop", self.path("run"))
        self.assertEqual(launch.wait(20), 6, launch.said())
        launch.wait_until_gone()
        self.assertEqual(launch.summary()["state"], "cancelled")
        status = json.loads(self.ask("status", "--json", self.path("run")))
        self.assertIn("cancelled", json.dumps(status))

    def test_unknown_run_is_four(self):
        self.ask("status", "no-such-run", expect=4)
        self.ask("stop", "no-such-run", expect=4)
        self.ask("status", expect=4)

    def test_stop_of_a_finished_run_says_so(self):
        self.run_to_end("-n", 1, "--", "true")
        ended = subprocess.run([LAUNCHER, "stop", self.path("run")], capture_output=True, text=True, timeout=20)
        self.assertEqual(ended.returncode, 0)
        self.assertIn("not running", ended.stdout + ended.stderr)

    def test_socket_is_the_owners_alone(self):
        self.speaking()
        path = os.path.realpath(self.path("run", "control.sock"))
        self.assertEqual(os.stat(path).st_uid, os.getuid())
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o077, 0)

    def test_requests_that_make_no_sense_are_answered_and_harm_nothing(self):
        launch = self.speaking()
        path = os.path.realpath(self.path("run", "control.sock"))
        for request in ('{"request":5}', '{"request":"stop","grace_s":"long"}', '{"request":"stop","at_once":[1]}',
                        '{"request":"set_slots"}', '{"request":"set_slots","slots":1.5}', '{"request":"fly"}', "5", "{",
                        '{"request":"set_slots","slots":99999999999999999999}', '{"request":"set_slots","slots":1,"node":7}'):
            with self.subTest(request=request), socket.socket(socket.AF_UNIX) as client:
                client.settimeout(20)
                client.connect(path)
                client.sendall(request.encode() + b"\n")
                with client.makefile() as answers:
                    answer = json.loads(answers.readline())
                self.assertFalse(answer["ok"])
                self.assertTrue(answer["error"])
        self.assertEqual(len(json.loads(self.ask("status", "--json", self.path("run")))["ranks"]), 2)
        self.assertIsNone(launch.process.poll())

    def test_latest_points_to_the_newest(self):
        self.run_to_end("-n", 1, "--", "true", run_dir=None)
        first = self.run_id()
        self.run_to_end("-n", 1, "--", "true", run_dir=None)
        self.assertNotEqual(self.run_id(), first)
        self.assertEqual(len(os.listdir(self.path("runs"))), 3)


if __name__ == "__main__":
    unittest.main()
