"""A worker that stops its keeper, which is its parent and of its own user: the run ends all the same, and when it is told to."""

import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LIMIT_S, LaunchTest, parent_of, process_state, wait_for

STOPS = "kill -STOP $PPID; exit 1"
# What the keeper is told reaches it in the moments between.
STOPS_ON = "[ $RANK = 0 ] && while :; do kill -STOP $PPID; done; exec sleep 1000"
WARNING = "its keeper was stopped by a signal (SIGSTOP)"
END_S = 20.0  # A keeper that cannot end a worker has 70 s.


class StoppedKeeperTest(LaunchTest):
    def test_its_end_is_heard(self):
        launch = self.run_to_end("-n", 1, "--", "bash", "-c", STOPS, expect=1)
        self.assertIn(WARNING, launch.stderr())
        self.assertEqual(launch.events("worker_exited")[0]["exit_code"], 1)

    def test_a_run_ends_when_it_is_told_to(self):
        for name, script in (("once", STOPS_ON.replace("while :; do kill -STOP $PPID; done", "kill -STOP $PPID")), ("again", STOPS_ON)):
            with self.subTest(name):
                launch = self.start("--set", "stop.grace=2s", "-n", 2, "--", "bash", "-c", script, run_dir=name)
                rank = launch.wait_for_event("worker_started")[0]["pid"]
                if name == "again":
                    wait_for(lambda: process_state(parent_of(rank)) == "T", LIMIT_S, "the keeper to be stopped")
                launch.process.send_signal(signal.SIGTERM)
                launch.process.send_signal(signal.SIGTERM)
                self.assertEqual(launch.wait(END_S), 128 + signal.SIGTERM, launch.said())
                launch.wait_until_gone()

    def test_a_time_limit_holds(self):
        launch = self.start("--set", "stop.grace=1s", "--timeout", "2s", "-n", 1, "--", "bash", "-c", "trap '' TERM; " + STOPS_ON, run_dir="run")
        self.assertNotEqual(launch.wait(END_S), 0)
        launch.wait_until_gone()


class StoppedKeeperOnNodesTest(unittest.TestCase):
    def test_its_end_is_heard_and_a_stop_is_obeyed(self):
        with Cluster({"n1": 2}) as cluster:
            client = cluster.run("-n", 1, "--", "bash", "-c", STOPS)
            self.assertEqual(client.wait(), 1, client.said())
            self.assertIn(WARNING, cluster.log_of("n1"))
            client = cluster.run("-n", 2, "--", "bash", "-c", STOPS_ON)
            cluster.wait_for_event(client.run_id(), "worker_started")
            subprocess.run([cluster.launcher, "stop", "--now", client.run_id()], env=cluster.environment(address=True), cwd=cluster.folder,
                           stdin=subprocess.DEVNULL, timeout=LIMIT_S, check=True)
            self.assertNotEqual(client.wait(END_S), 0)
            wait_for(lambda: not cluster.kept("n1"), END_S, "nothing of the run to be left")


if __name__ == "__main__":
    unittest.main()
