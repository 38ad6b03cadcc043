"""Ranks that use up memory, processes or descriptors: they are stopped, it is said why, and the launcher lives.

Names in brackets are rows of the list of failure modes. Limits are control groups: these tests need to be allowed to make one.
"""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cgroup import Group
from harness import LaunchTest, wait_for

MIB = 1 << 20

# Rank 1 wants more than there is, once; a restart finds its mark.
LEAK = """
import os, sys
if os.environ["RANK"] == "1" and not os.path.exists(sys.argv[1]):
    open(sys.argv[1], "w").close()
    held = []
    while True:
        held.append(bytearray(b"x" * (8 << 20)))
"""

FORK_BOMB = """
import os, time
while True:
    try:
        os.fork()
    except OSError:
        time.sleep(0.01)
"""

DESCRIPTORS = """
import os
held = []
while True:
    held.append(os.open("/dev/null", os.O_RDONLY))
"""


class LimitsTest(LaunchTest):
    def group(self, controller, limit):
        group = Group(controller, limit)
        if group.folder is None:
            self.skipTest(f"no control group for {controller} can be made here")
        self.addCleanup(group.remove)
        return group

    def test_out_of_memory_is_said_and_the_run_goes_on(self):
        """[3] [12]"""
        group = self.group("memory", 300 * MIB)
        command = [*self.script("leak.py", LEAK), self.path("mark")]
        launch = self.run_to_end("-n", 2, "--max-failures", 3, "--", *command, group=group, limit_s=60)
        failure, = launch.events("failure")
        self.assertIn("signal 9 (SIGKILL), rank 1: out of memory: the kernel killed it at the limit of 300 MiB",
                      failure["message"])
        self.assertEqual(len(launch.events("worker_started")), 4)

    def test_a_killed_rank_is_not_said_to_lack_memory(self):
        """[3]"""
        group = self.group("memory", 300 * MIB)
        launch = self.start("-n", 1, "--", "sleep", "1000", group=group)
        launch.wait_for_event("worker_started")
        os.kill(launch.events("worker_started")[0]["pid"], signal.SIGKILL)
        launch.wait_for_event("failure")
        self.assertEqual(launch.events("failure")[0]["message"], "signal 9 (SIGKILL), rank 0")

    def test_a_fork_bomb_is_cleared(self):
        """[12] No process can be started any more, and the launcher clears all that were."""
        group = self.group("pids", 200)
        launch = self.start("-n", 2, "--", *self.script("bomb.py", FORK_BOMB), group=group)
        wait_for(lambda: len(group.pids()) >= 190, 30, "the fork bomb")
        launch.process.send_signal(signal.SIGINT)
        self.assertEqual(launch.wait(30), 130, launch.said())
        launch.wait_until_gone()
        self.assertEqual(group.pids(), [])

    def test_used_up_descriptors_fail_the_rank_alone(self):
        """[12]"""
        launch = self.run_to_end("-n", 1, "--", *self.script("open.py", DESCRIPTORS), expect=1)
        self.assertIn("exit code 1, rank 0", launch.stderr())
        self.assertIn("Too many open files", launch.stderr())


if __name__ == "__main__":
    unittest.main()
