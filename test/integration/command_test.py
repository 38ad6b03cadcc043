"""Any command under supervision: exit codes, the torchrun environment, and output that is never lost or torn."""

import json
import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LaunchTest, command_of, parent_of, read_file, resident_bytes, wait_for

MIB = 1 << 20

PRINT_ENVIRONMENT = """
import json, os
print(json.dumps(dict(os.environ)), flush=True)
"""

# Lines of 80 bytes with their rank and number; the second argument ends the process by SIGKILL after the last.
MANY_LINES = """
import os, signal, sys
rank, count = int(os.environ["RANK"]), int(sys.argv[1])
block = []
for number in range(count):
    block.append(f"{rank} {number:07} ".ljust(79, "x") + "\\n")
    if len(block) == 1000:
        sys.stdout.write("".join(block))
        block = []
sys.stdout.flush()
if len(sys.argv) > 2:
    os.kill(os.getpid(), signal.SIGKILL)
"""

FLOOD = """
import os, sys
block = b"y" * (1 << 20)
left = int(sys.argv[1])
while left:
    part = memoryview(block)[:left]
    left -= os.write(1, part)
"""


class CommandTest(LaunchTest):
    def test_true_succeeds_and_false_fails(self):
        self.run_to_end("-n", 2, "--", "true", run_dir="good")
        failed = self.run_to_end("-n", 2, "--", "false", run_dir="bad", expect=1)
        self.assertIn("exit code 1", failed.stderr())
        self.assertEqual(failed.summary()["state"], "failed")
        self.assertEqual(failed.summary()["exit_code"], 1)

    def test_events_and_summary_of_a_command(self):
        launch = self.run_to_end("-n", 3, "--", "true")
        names = [event["event"] for event in launch.events()]
        self.assertEqual(names[0], "run_started")
        self.assertEqual(names[-1], "run_finished")
        self.assertEqual(names.count("worker_started"), 3)
        self.assertEqual(names.count("worker_exited"), 3)
        self.assertEqual({e["rank"]: e["exit_code"] for e in launch.events("worker_exited")}, {0: 0, 1: 0, 2: 0})
        times = [event["time"] for event in launch.events()]
        self.assertEqual(times, sorted(times))
        self.assertEqual(launch.summary()["state"], "succeeded")
        self.assertEqual(launch.summary()["world_size"], 3)

    def test_environment_is_torchruns(self):
        launch = self.run_to_end("-n", 2, "--", *self.script("show.py", PRINT_ENVIRONMENT), env={"MY_OWN": "kept"})
        ranks = [json.loads(launch.log(rank)) for rank in (0, 1)]
        for rank, env in enumerate(ranks):
            expected = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                        "GROUP_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_RANK": str(rank), "ROLE_NAME": "default",
                        "ROLE_WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "0",
                        "TORCHELASTIC_USE_AGENT_STORE": "False", "MY_OWN": "kept"}
            self.assertEqual({key: env.get(key) for key in expected}, expected)
            self.assertGreater(int(env["MASTER_PORT"]), 0)
            self.assertIn("MASTER_ADDR", env)
            self.assertIn("TORCHELASTIC_MAX_RESTARTS", env)
            self.assertIn("TORCHELASTIC_ERROR_FILE", env)
            self.assertTrue(env["TORCHELASTIC_RUN_ID"])
        self.assertEqual(ranks[0]["MASTER_PORT"], ranks[1]["MASTER_PORT"])

    def test_torchrun_spellings(self):
        launch = self.run_to_end("--nproc-per-node", 2, "--", *self.script("show.py", PRINT_ENVIRONMENT))
        self.assertEqual(json.loads(launch.log(1))["WORLD_SIZE"], "2")

    def test_a_rank_has_null_stdin_and_none_of_our_descriptors(self):
        text = "import os\nprint(sorted(os.listdir('/proc/self/fd'), key=int), os.readlink('/proc/self/fd/0'))\n"
        launch = self.run_to_end("-n", 1, "--", *self.script("fds.py", text))
        # The fourth is the folder being listed.
        self.assertEqual(launch.log(0).decode().split("\n")[0], "['0', '1', '2', '3'] /dev/null")

    def test_output_has_rank_prefixes_and_whole_lines(self):
        count = 200_000
        launch = self.run_to_end("-n", 2, "--", *self.script("lines.py", MANY_LINES), count)
        expected = {rank: [f"{rank} {n:07} ".ljust(79, "x").encode() for n in range(count)] for rank in (0, 1)}
        for rank in (0, 1):
            self.assertTrue(launch.log(rank).splitlines() == expected[rank], f"log of rank {rank} differs")
        shown = {0: [], 1: []}
        for line in launch.stdout().splitlines():
            prefix, _, rest = line.partition(b": ")
            shown[int(prefix)].append(rest)
        for rank in (0, 1):
            self.assertTrue(shown[rank] == expected[rank], f"console of rank {rank}: {len(shown[rank])} lines")

    def test_nothing_is_lost_when_killed_right_after_the_last_write(self):
        count = 20_000
        launch = self.run_to_end("-n", 2, "--", *self.script("lines.py", MANY_LINES), count, "die", expect=1)
        self.assertIn("signal 9 (SIGKILL)", launch.stderr())
        first = launch.events("failure")[0]["rank"]
        lines = launch.log(first).splitlines()
        self.assertEqual(len(lines), count)
        self.assertEqual(lines[-1], f"{first} {count - 1:07} ".ljust(79, "x").encode())

    def test_a_flood_without_newline_costs_no_memory(self):
        size = 256 * MIB
        launch = self.start("-n", 1, "--", *self.script("flood.py", FLOOD), size)
        highest = {}

        def ended():
            for pid in launch.pids():
                if os.path.basename((command_of(pid) or [""])[0]) == "sgd-launch":
                    highest[pid] = max(highest.get(pid, 0), resident_bytes(pid, "VmHWM"))
            return launch.process.poll() is not None

        wait_for(ended, 120, "the end of the flood")
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertTrue(highest, "no process of sgd-launch was seen")
        for pid, peak in highest.items():
            self.assertLess(peak, 64 * MIB, f"process {pid}")
        self.assertEqual(launch.log(0).count(b"y"), size)

    @unittest.skipIf("SGD_SANITIZED" in os.environ, "of programs as they are: a sanitizer keeps books of its own")
    def test_launcher_is_small_while_workers_run(self):
        launch = self.start("-n", 2, "--", "sleep", 1000)
        launch.wait_for_event("worker_started", count=2)
        self.assertLess(resident_bytes(launch.process.pid), 20 * MIB)

    def test_exit_of_a_grandchild_that_holds_the_pipe_is_not_awaited(self):
        text = "import os\nif os.fork() == 0:\n    os.setsid()\n    os.execvp('sleep', ['sleep', '1000'])\n"
        begin = time.monotonic()
        self.run_to_end("-n", 1, "--", *self.script("leave.py", text), limit_s=20)
        self.assertLess(time.monotonic() - begin, 20)

    def test_ranks_are_children_of_the_keeper_not_of_the_launcher(self):
        launch = self.start("-n", 2, "--", "sleep", 1000)
        launch.wait_for_event("worker_started", count=2)
        parents = {parent_of(pid) for pid in launch.rank_pids().values()}
        self.assertEqual(len(parents), 1)
        (keeper,) = parents
        self.assertNotEqual(keeper, launch.process.pid)
        self.assertEqual(parent_of(keeper), launch.process.pid)
        self.assertNotIn(b"torch", read_file(f"/proc/{keeper}/maps"))


if __name__ == "__main__":
    unittest.main()
