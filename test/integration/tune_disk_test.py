"""An experiment on a disk that is full, for good: it can be stopped, although its store takes no event any more."""

import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LAUNCHER, marked, read_file, wait_for
from tuning import TuneCase

MARK = "SGD_TUNE_DISK_MARK"

# Takes whatever room there is, again and again, and goes on for ever.
FILLS = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
with open(os.path.join(sys.argv[2], "full-" + str(os.getpid())), "wb", buffering=0) as file:
    while True:
        for size in (4096, 1):
            try:
                while True: file.write(bytes(size))
            except OSError: pass
        open(os.path.join(sys.argv[3], "filled"), "w").close()
        time.sleep(0.02)
"""


@unittest.skipUnless(os.geteuid() == 0, "needs root for a file system of its own")
class TuneDiskTest(TuneCase):
    def start_here(self, *words):
        """On a small disk of its own, which is there for these processes alone."""
        small = f'mount -t tmpfs -o size=1200k none "{self.path("disk")}" && exec "$@"'
        os.makedirs(self.path("disk"), exist_ok=True)
        self.errors = open(self.path("errors"), "wb")
        self.addCleanup(self.errors.close)
        process = subprocess.Popen(["unshare", "-m", "sh", "-c", small, "sh", LAUNCHER, *words], cwd=self.folder, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.DEVNULL, stderr=self.errors, env={**os.environ, MARK: self.folder})
        self.addCleanup(self.end, process)
        wait_for(lambda: os.path.exists(self.path("filled")) or process.poll() is not None, 60, lambda: f"a full disk: {self.said()}")
        self.assertIsNone(process.poll(), self.said())
        return process

    def end(self, process):
        process.kill()
        process.wait()
        for pid in marked(self.folder, MARK):
            os.kill(pid, signal.SIGKILL)

    def said(self):
        return read_file(self.path("errors")).decode(errors="replace")

    def wait_until_all_have_gone(self):
        wait_for(lambda: not marked(self.folder, MARK), 30, lambda: f"the trials to end: {marked(self.folder, MARK)}")

    def tune_here(self, **job):
        path = self.job({"name": "full", "command": [*self.script("trial.py", FILLS), "{lr}", self.path("disk"), self.folder], **job,
                         "tune": {"parameters": {"lr": {"grid": [0.1, 0.3]}}, "metric": "loss", "mode": "min", "concurrent": 1}})
        return self.start_here("tune", "--run-dir", self.path("disk", "x"), path)

    def test_a_second_signal_ends_it(self):
        process = self.tune_here()
        process.send_signal(signal.SIGTERM)
        wait_for(lambda: "the stop waits for room in the store" in self.said(), 60, lambda: f"the wait to be said: {self.said()}")
        self.assertIsNone(process.poll())
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 1, self.said())
        self.assertIn("the last events are not stored: ", self.said())
        self.assertIn("sgd-launch tune --resume disk/x", self.said())
        self.wait_until_all_have_gone()

    def test_so_does_the_end_of_its_time(self):
        process = self.tune_here(stop={"grace": "1s"})
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(60), 1, self.said())
        self.assertIn("the last events are not stored: ", self.said())
        self.wait_until_all_have_gone()

    def test_a_run_alone_ends_with_a_second_signal(self):
        command = [*self.script("trial.py", FILLS), "0.1", self.path("disk"), self.folder]
        process = self.start_here("--run-dir", self.path("disk", "x"), self.job({"name": "full", "command": command}))
        for _ in range(2):
            process.send_signal(signal.SIGTERM)
            wait_for(lambda: "stopping" in self.said(), 60, "the first signal to be taken")
        self.assertNotEqual(process.wait(60), 0, self.said())
        self.wait_until_all_have_gone()


if __name__ == "__main__":
    unittest.main()
