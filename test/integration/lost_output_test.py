"""Lines of a worker that do not reach its log: a full disk on its node, a program that makes the folder of logs anew. What can be kept is
kept, and what is lost is said to whoever started the run, not in the log of some agent alone."""

import contextlib
import os
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LaunchTest, fill_disk, mount_disk, read_file, wait_for

# As scripts do before they start TensorBoard; some go on for longer than a keeper waits before it makes the file again.
ANEW = "echo before; rm -rf {logs}; mkdir {logs}; echo after{wait}; echo end"
REPLACED = "echo before; rm -rf {logs}; touch {logs}; echo after"
WORDS = ("before", "after", "end")


class LostOutputTest(LaunchTest):
    def test_a_log_that_the_command_has_removed_is_there(self):
        for number, wait in enumerate(("", "; sleep 1.5")):
            with self.subTest(wait=wait):
                name = f"run{number}"
                command = ANEW.format(logs=self.path(name, "logs"), wait=wait)
                launch = self.run_to_end("-n", 1, "--", "sh", "-c", command, run_dir=name)
                self.assertEqual(launch.log(0).decode().split(), list(WORDS))
                self.assertEqual(launch.events("output_dropped"), [])

    def test_a_log_that_cannot_be_made_again_is_told_of_once(self):
        launch = self.run_to_end("-n", 1, "--", "sh", "-c", REPLACED.format(logs=self.path("run", "logs")))
        dropped, = launch.events("output_dropped")
        self.assertEqual((dropped["rank"], dropped["bytes"]), (0, len("before\nafter\n")))
        self.assertEqual(launch.stderr().count("of output dropped: log file "), 1, launch.stderr())
        self.assertIn("was removed or replaced while its worker ran", launch.stderr())
        asked = self.run_to_end("logs", self.path("run"), run_dir=None)
        self.assertIn("of output dropped: log file ", asked.stderr())

    def test_a_run_that_was_removed_does_not_come_back(self):
        launch = self.start("-n", 1, "--", "sh", "-c", f"echo x; rm -rf {self.path('run')}; sleep 1.5; echo y")
        launch.wait()
        self.assertFalse(os.path.exists(self.path("run", "logs")))


class LostOutputOnNodesTest(unittest.TestCase):
    def end(self, cluster, *command):
        """(lines, what is said beside them) of a run that succeeds."""
        client = cluster.run("-n", 1, "--no-prefix", "--", *command)
        self.assertEqual(client.wait(), 0, client.said())
        said, lines = client.said()
        return lines.split("\n")[:-1], said, client.run_id()

    def test_a_log_that_the_command_has_removed_comes(self):
        with Cluster({"n1": 1}) as cluster:
            for wait in ("", "; sleep 1.5"):
                with self.subTest(wait=wait):
                    lines, said, run = self.end(cluster, "sh", "-c", ANEW.format(logs="logs", wait=wait))
                    self.assertEqual(lines, list(WORDS))
                    self.assertNotIn("output dropped", said)
                    self.assertEqual(read_file(os.path.join(cluster.run_dir(run), "logs", "gen-0001", "rank-0000.log")).decode().split(), list(WORDS))

    def test_a_log_that_cannot_be_made_again_is_told_of(self):
        with Cluster({"n1": 1}) as cluster:
            _, said, run = self.end(cluster, "sh", "-c", REPLACED.format(logs="logs"))
            self.assertIn("warning: rank 0 on n1: ", said)
            self.assertIn("was removed or replaced while its worker ran", said)
            asked = subprocess.run([cluster.launcher, "logs", run], env=cluster.environment(address=True), cwd=cluster.folder, stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True, check=True)
            self.assertIn("warning: rank 0 on n1: ", asked.stderr)

    def test_a_journal_that_was_given_up_is_written_again_for_the_next_run(self):
        with tempfile.TemporaryDirectory(prefix="sgd-full-test-") as folder, contextlib.ExitStack() as ends:
            state = os.path.join(folder, "agent-n1")
            ends.callback(mount_disk(state, "4m"))
            with Cluster({"n1": 8}, folder=folder) as cluster:
                stays = cluster.run("-n", 1, "--", "sleep", "1000")
                cluster.wait_for_event(stays.run_id(), "worker_started")
                for number in range(5):  # The agent may give room back that it has kept.
                    fill_disk(os.path.join(state, f"full{number}"))
                    cluster.run("-n", 1, "--", "true")
                    with contextlib.suppress(AssertionError):
                        wait_for(lambda: "no next life of this agent can take over" in cluster.log_of("n1"), 5, "the journal to be given up")
                        break
                self.assertIn("no next life of this agent can take over", cluster.log_of("n1"))
                for name in os.listdir(state):
                    if name.startswith("full"):
                        os.unlink(os.path.join(state, name))
                client = cluster.run("-n", 1, "--", "sleep", "3")
                wait_for(lambda: "the next life of this agent can take over again" in cluster.log_of("n1"), 30, "the journal, within its minute")
                self.assertEqual(client.wait(), 0, client.said())

    def test_a_full_disk_of_a_node_is_told_to_who_started_the_run(self):
        with tempfile.TemporaryDirectory(prefix="sgd-full-test-") as folder, contextlib.ExitStack() as ends:
            state = os.path.join(folder, "agent-n1")
            ends.callback(mount_disk(state, "2m"))
            with Cluster({"n1": 1}, folder=folder) as cluster:
                fill_disk(os.path.join(state, "full"))
                # More than the file system holds: the agent may give room back that it has kept.
                lines, said, run = self.end(cluster, "seq", "-f", "result %.0f", "300000")
                self.assertLess(len(lines), 300000)
                self.assertRegex(said, r"warning: rank 0 on n1: [\d,]+ lines? \([\d,]+ bytes\) of output dropped: log file .*: No space left on device")
                told = cluster.events(run, "output_dropped")
                self.assertEqual(sum(event["lines"] for event in told) + len(lines), 300000, told)


if __name__ == "__main__":
    unittest.main()
