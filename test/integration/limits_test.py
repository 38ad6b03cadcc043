"""Ranks that use up memory, processes or descriptors: they are stopped, it is said why, and the launcher lives.

Names in brackets are rows of the list of failure modes. Limits are control groups: these tests need to be allowed to make one.
"""

import json
import os
import resource
import signal
import socket
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cgroup import Group
from harness import AGENT, CONFIGS, GONE_LIMIT_S, LIMIT_S, LaunchTest, wait_for

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


class ShellLimit:
    """What `ulimit` does before a launch."""

    def __init__(self, kind, value):
        self.kind, self.value = kind, value

    def enter(self):
        resource.setrlimit(self.kind, (self.value, self.value))


def processor_s(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


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

    def test_out_of_memory_is_the_first_line_of_a_run_that_failed(self):
        group = self.group("memory", 300 * MIB)
        command = [*self.script("leak.py", LEAK), self.path("mark")]
        launch = self.run_to_end("-n", 2, "--", *command, group=group, limit_s=60, expect=1)
        self.assertIn("run failed: signal 9 (SIGKILL), rank 1: out of memory: the kernel killed it at the limit of 300 MiB", launch.stderr())

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
        self.assertEqual(launch.wait(), 130, launch.said())
        launch.wait_until_gone()
        wait_for(lambda: not group.pids(), GONE_LIMIT_S, lambda: f"the end of {group.pids()}")

    def test_a_run_begins_when_there_is_room_for_a_process(self):
        """[12] Nobody's run ends because somebody else had all processes for a moment."""
        group = self.group("pids", 1)
        launch = self.start("-n", 2, "--", "sh", "-c", "echo rank $RANK", group=group)
        wait_for(lambda: "its keeper waits to be started" in launch.stderr() or launch.process.poll() is not None, 30, "no room for a keeper")
        group.limit(200)
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual(sorted(launch.stdout().splitlines()), [b"0: rank 0", b"1: rank 1"])
        self.assertEqual(launch.events("failure"), [])

    def test_a_launcher_that_is_told_to_end_waits_for_no_room(self):
        group = self.group("pids", 1)
        launch = self.start("-n", 2, "--", "true", group=group)
        wait_for(lambda: "its keeper waits to be started" in launch.stderr() or launch.process.poll() is not None, 30, "no room for a keeper")
        launch.process.send_signal(signal.SIGINT)
        self.assertEqual(launch.wait(), 130, launch.said())

    def test_a_limit_on_the_size_of_files_is_a_full_disk(self):
        """`ulimit -f`: a log that may not grow ends neither its keeper nor the launcher."""
        words = ("--redirects", 3, "--", "sh", "-c", "i=0; while [ $i -lt 10000 ]; do echo a line of output $i; i=$((i+1)); done")
        launch = self.run_to_end("-n", 1, *words, group=ShellLimit(resource.RLIMIT_FSIZE, 64 << 10))
        self.assertEqual(launch.events("failure"), [])
        self.assertIn("of output dropped: ", launch.stderr())
        self.assertIn("File too large", launch.stderr())

    def test_memory_that_ranks_share_counts_as_a_file(self):
        launch = self.run_to_end(os.path.join(CONFIGS, "fashion_mnist.json"), expect=1, group=ShellLimit(resource.RLIMIT_FSIZE, 300 << 10))
        self.assertIn("File too large: raise the limit on the size of files (ulimit -f)", launch.stderr())

    def test_a_quota_of_the_cores_counts_where_cores_are_counted(self):
        """`docker run --cpus`, the CPU limit of a pod: all cores are seen, and there were as many workers."""
        group = self.group("cpu", 50_000)
        launch = self.run_to_end("-n", "cpu", "--", "echo", "a worker", group=group)
        self.assertEqual(launch.stdout(), b"0: a worker\n")
        self.assertIn("warning: 1 worker of 1 cpu within a quota of 0.5 CPUs (control group): the kernel holds up its steps", launch.stderr())

    def test_an_agent_offers_what_its_quota_leaves(self):
        words = ("--join", "unix:" + self.path("none.sock"), "--name", "pod", "--state-dir", self.path("agent"))
        agent = self.start(*AGENT, *words, run_dir=None, group=self.group("cpu", 150_000))
        wait_for(lambda: "node pod: 1 slot" in agent.said() and "1 slots" not in agent.said(), LIMIT_S, "the agent's slots")
        agent.process.send_signal(signal.SIGTERM)
        self.assertEqual(agent.wait(), 0)

    def test_limits_of_the_shell_are_said_before_anything_is_made(self):
        launch = self.run_to_end("-n", 2, "--", "true", expect=2, group=ShellLimit(resource.RLIMIT_NOFILE, 16))
        self.assertIn("only 16 files may be open (ulimit -n), and 2 workers here need 72: ulimit -n 1024", launch.stderr())
        launch = self.run_to_end(os.path.join(CONFIGS, "fashion_mnist.json"), expect=2, group=ShellLimit(resource.RLIMIT_AS, 600 * MIB))
        self.assertIn("only 600 MiB of address space (ulimit -v)", launch.stderr())
        self.assertFalse(os.path.exists(self.path("run")))

    def test_more_logs_than_a_process_may_have_open_are_shown(self):
        self.run_to_end("-n", 1, "--", "echo", "line")
        for generation in range(2, 101):
            os.mkdir(self.path("run", "logs", f"gen-{generation:04}"))
            self.write(f"run/logs/gen-{generation:04}/rank-0000.log", "line\n")
        asked = self.run_to_end("logs", self.path("run"), run_dir=None, group=ShellLimit(resource.RLIMIT_NOFILE, 64))
        self.assertEqual(asked.stdout(), b"0: line\n" * 100)

    def test_a_launcher_that_has_no_descriptor_for_a_while_answers_afterwards(self):
        """[12] Its sockets are not dead for the run's life, and it does not spin meanwhile."""
        launch = self.start("-n", 1, "--", "sleep", "1000")
        launch.wait_for_event("worker_started")
        pid = launch.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, before[1]))  # The three of the shell are open.
        used = processor_s(pid)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(os.readlink(self.path("run", "control.sock")))
            client.sendall(b'{"request":"status"}\n')
            client.settimeout(1)
            with self.assertRaises(TimeoutError):
                client.recv(1)
            self.assertLess(processor_s(pid) - used, 0.5)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, before)
            client.settimeout(30)
            with client.makefile() as answers:
                self.assertTrue(json.loads(answers.readline())["ok"])
        launch.process.send_signal(signal.SIGINT)
        self.assertEqual(launch.wait(), 130)

    def test_used_up_descriptors_fail_the_rank_alone(self):
        """[12]"""
        launch = self.run_to_end("-n", 1, "--", *self.script("open.py", DESCRIPTORS), expect=1)
        self.assertIn("(exit code 1)", launch.stderr())
        self.assertIn("Too many open files", launch.stderr())


if __name__ == "__main__":
    unittest.main()
