"""A coordinator whose state lies on a small disk that somebody has filled: it starts, and runs can be stopped."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LIMIT_S, wait_for
from tls_cluster import TlsCluster


class DiskTest(TlsCluster):
    def setUp(self):
        super().setUp()
        os.mkdir(self.state)
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m,mode=0700", "tmpfs", self.state], capture_output=True, check=False)
        if mounted.returncode != 0:
            self.skipTest("no file system can be mounted here")
        # Cleanups come last in, first out: daemons end before this.
        self._cleanups.insert(1, (subprocess.run, (["umount", "-l", self.state],), {"check": False}))

    def fill(self):
        with open(self.path("state", "full"), "wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        file.write(bytes(size))
                except OSError:
                    pass

    def wait_for_reserve(self):
        wait_for(lambda: os.path.exists(self.path("state", "reserve")), LIMIT_S, "the reserve is there")

    def test_a_full_disk_keeps_nobody_from_stopping_and_starting(self):
        self.start_coordinator()
        there = ("--address", self.address)
        run = self.run_verb("submit", "--detach", "-n", 1, *there, "--", "true").stdout.strip()
        self.wait_for_reserve()
        self.fill()
        self.run_verb("stop", "--now", run, *there)
        row = json.loads(self.run_verb("ps", "--all", "--json", *there).stdout)["runs"][0]
        self.assertEqual(row["state"], "cancelled")
        os.remove(self.path("state", "full"))
        self.run_verb("submit", "--detach", "-n", 1, *there, "--", "true")
        self.wait_for_reserve()
        self.kill(self.daemons[0])
        self.fill()
        port = self.address.rsplit(":", 1)[1]
        self.start("again", "coordinator", "--listen", f"0.0.0.0:{port}", "--state-dir", self.state)
        self.wait_for_words("again", "listening on")
        self.assertEqual(json.loads(self.run_verb("ps", "--all", "--json", *there).stdout)["runs"][0]["state"], "cancelled")
        os.remove(self.path("state", "full"))
        self.run_verb("submit", "--detach", "-n", 1, *there, "--", "true")
        self.wait_for_reserve()


if __name__ == "__main__":
    unittest.main(verbosity=2)
