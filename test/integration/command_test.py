"""Any command under supervision: exit codes, the torchrun environment, and output that is never lost or torn."""

import fcntl
import json
import os
import pty
import re
import signal
import subprocess
import sys
import termios
import time
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LAUNCHER, LIMIT_S, MARK, LaunchTest, command_of, parent_of, read_file, read_lines, resident_bytes, wait_for

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


class Terminal:
    """sgd-launch in a session with a terminal of its own, in the foreground or in the background."""

    def __init__(self, test, *arguments, background=False, kind="xterm"):
        self.master, slave = pty.openpty()
        mark = uuid.uuid4().hex

        def enter():
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
            if background:
                signal.signal(signal.SIGTTOU, signal.SIG_IGN)
                child = os.fork()
                if child != 0:  # The leader stays in front, as a shell does.
                    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
                os.setpgid(0, 0)

        environment = {**os.environ, MARK: mark, "COLUMNS": "80", "TERM": kind}
        self.process = subprocess.Popen([LAUNCHER, "--run-dir", test.path("terminal"), *map(str, arguments)], stdin=slave,
                                        stdout=slave, stderr=slave, env=environment, start_new_session=True, preexec_fn=enter)
        os.close(slave)
        os.set_blocking(self.master, False)
        self.seen = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(LIMIT_S)
        os.close(self.master)

    def wait_for(self, text):
        def arrived():
            try:
                self.seen += os.read(self.master, 1 << 16)
            except (BlockingIOError, OSError):
                pass
            return text in self.seen

        wait_for(arrived, LIMIT_S, lambda: f"{text} on the terminal, which shows {self.seen}")


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
                        "GROUP_RANK": "0", "NODE_RANK": "0", "GROUP_WORLD_SIZE": "1", "ROLE_RANK": str(rank), "ROLE_NAME": "default",
                        "ROLE_WORLD_SIZE": "2", "TORCHELASTIC_RESTART_COUNT": "0",
                        "TORCHELASTIC_USE_AGENT_STORE": "False", "MY_OWN": "kept"}
            self.assertEqual({key: env.get(key) for key in expected}, expected)
            self.assertGreater(int(env["MASTER_PORT"]), 0)
            self.assertIn("MASTER_ADDR", env)
            self.assertIn("TORCHELASTIC_MAX_RESTARTS", env)
            self.assertIn("TORCHELASTIC_ERROR_FILE", env)
            self.assertTrue(env["TORCHELASTIC_RUN_ID"])
        self.assertEqual(ranks[0]["MASTER_PORT"], ranks[1]["MASTER_PORT"])

    def test_hundreds_of_thousands_of_bytes_of_arguments_reach_every_rank(self):
        words = [f"{number:05}".ljust(100, "x") for number in range(2400)]
        count = "import os, sys\nprint(len(sys.argv) - 1, sum(map(len, sys.argv[1:])), sys.argv[-1][:5], len(os.environ['LONG']))\n"
        script = self.write("count.py", count)
        for name, command in (("exec", self.script("plain.py", count)), ("forked", ["/usr/bin/python3", script])):
            launch = self.run_to_end("-n", 2, "--", *command, *words, run_dir=name, env={"LONG": "y" * 100_000})
            self.assertEqual([launch.log(rank).decode() for rank in (0, 1)], ["2400 240000 02399 100000\n"] * 2)
        # Each is more than a message to the fork server holds, and less than what an exec takes.
        big = {"BIG": "y" * 100_000, "MORE": "y" * 40_000}
        for name, word, variables in (("long environment", "x", big), ("long word", "x" * 130_500, {"LONG": "y"})):
            job = {"command": ["/usr/bin/python3", script, word], "num_workers": 2, "env": {"LONG": "y", **variables}}
            launch = self.run_to_end(self.write("long.json", json.dumps(job)), run_dir=name.replace(" ", "-"))
            self.assertEqual([launch.log(rank).decode() for rank in (0, 1)], [f"1 {len(word)} {word[:5]} 1\n"] * 2)
            self.assertEqual(launch.stderr().count("ranks are started by exec, not by fork: their arguments and environment"), 1, name)
        refused = self.run_to_end("-n", 2, "--", *self.script("plain.py", count), *words, *words[:300], run_dir="more", expect=2)
        self.assertIn("pass what is long in a file that the program reads", refused.stderr())

    def test_ranks_go_first_where_memory_is_short(self):
        text = "import time\nwhile open('/proc/self/oom_score_adj').read() != '500\\n':\n    time.sleep(0.01)\n"
        for number, command in enumerate((self.script("plain.py", text), ["/usr/bin/python3", self.path("plain.py")])):  # By exec, and forked.
            self.run_to_end("-n", 1, "--timeout", "20s", "--", *command, run_dir=f"run{number}")

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

    def test_streams_are_kept_apart(self):
        text = "import sys\nprint('for stdout', flush=True)\nprint('for stderr', file=sys.stderr)\n"
        launch = self.run_to_end("-n", 1, "--", *self.script("both.py", text))
        self.assertEqual(launch.stdout(), b"0: for stdout\n")
        self.assertIn("\n0: for stderr\n", launch.stderr())
        self.assertEqual(sorted(launch.log(0).splitlines()), [b"for stderr", b"for stdout"])

    def test_rank_0_reads_our_standard_input_and_nobody_else(self):
        text = "import os, sys\nprint(os.environ['RANK'], repr(sys.stdin.read()))\n"
        with open(self.write("input", "one\ntwo\n"), "rb") as given:
            launch = self.run_to_end("-n", 2, "--", *self.script("read.py", text), stdin=given)
        self.assertEqual(launch.log(0), b"0 'one\\ntwo\\n'\n")
        self.assertEqual(launch.log(1), b"1 ''\n")
        with open(self.path("input"), "rb") as given:
            launch = self.run_to_end("-n", 1, "--set", "process.terminal=none", "--", *self.script("read.py", text), stdin=given,
                                     run_dir="deaf")
        self.assertEqual(launch.log(0), b"0 ''\n")

    def test_equal_lines_are_folded_and_files_keep_each(self):
        text = "import os, sys, time\nopen(sys.argv[1] + os.environ['RANK'], 'w').close()\n" \
               "while not all(os.path.exists(sys.argv[1] + str(r)) for r in range(4)):\n    time.sleep(0.001)\n" \
               "print('the same', flush=True)\nprint('rank', os.environ['RANK'], flush=True)\n"
        alone = self.run_to_end("-n", 4, "--no-fold", "--", *self.script("same.py", text), self.path("a"), run_dir="alone")
        self.assertEqual(alone.stdout().count(b"the same"), 4)
        # While its launcher is held all of them write: how far apart they do is the machine's business.
        launch = self.start("-n", 4, "--", *self.script("held.py", text.replace("range(4)", "range(5)")), self.path("b"))
        wait_for(lambda: all(os.path.exists(self.path(f"b{rank}")) for rank in range(4)), LIMIT_S, "four ranks")
        launch.process.send_signal(signal.SIGSTOP)
        self.write("b4", "")
        wait_for(lambda: all(launch.log(rank).count(b"\n") == 2 for rank in range(4)), LIMIT_S, "what they write")
        launch.process.send_signal(signal.SIGCONT)
        self.assertEqual(launch.wait(), 0, launch.said())
        folded = [line for line in launch.stdout().decode().splitlines() if "the same" in line]
        self.assertLess(len(folded), 4, launch.stdout())
        self.assertTrue(any(re.search("[×x][2-4]: ", line) for line in folded), folded)  # Also where one came later than lines wait for each other.
        for rank in range(4):
            self.assertEqual(launch.log(rank), f"the same\nrank {rank}\n".encode())
            self.assertIn(f"{rank}: rank {rank}\n".encode(), launch.stdout())

    def test_a_bar_is_one_line_here_and_whole_in_the_file(self):
        text = "import sys\nfor part in range(0, 101, 10):\n    sys.stderr.write(f'\\r{part:3}%')\n    sys.stderr.flush()\n" \
               "sys.stderr.write('\\n')\nsys.stdout.write('data\\rkept\\n')\n"
        launch = self.run_to_end("-n", 1, "--", *self.script("bar.py", text))
        self.assertIn("0: 100%\n", launch.stderr())
        self.assertNotIn("50%\r", launch.stderr())
        self.assertEqual(launch.stdout(), b"0: data\rkept\n")
        self.assertEqual(launch.log(0).count(b"\r"), 12)

    def test_bars_and_questions_are_live_on_a_terminal(self):
        """The line has no end until the test has seen it."""
        text = "import os, sys, time\nsys.stderr.write('\\r 30% of it')\nsys.stderr.flush()\n" \
               "while not os.path.exists(sys.argv[1]):\n    time.sleep(0.01)\nsys.stderr.write('\\r100%\\n')\n" \
               "print('hello', input('Name? '))\n"
        with Terminal(self, "-n", 1, "--", *self.script("live.py", text), self.path("go")) as terminal:
            terminal.wait_for(b"0:  30% of it")
            open(self.path("go"), "w").close()
            terminal.wait_for(b"0: 100%")
            terminal.wait_for(b"0: Name? ")
            os.write(terminal.master, b"Ada\n")
            terminal.wait_for(b"hello Ada")
            self.assertEqual(terminal.process.wait(LIMIT_S), 0)

    def test_a_terminal_that_nobody_reads_holds_up_no_run(self):
        """As behind an ssh connection that hangs: it has room for a few bytes of what is written, and for no more."""
        with Terminal(self, "-n", 1, "--", *self.script("lines.py", MANY_LINES), 60_000):
            wait_for(lambda: any(event["event"] == "run_finished" for event in read_lines(self.path("terminal", "events.jsonl"))),
                     LIMIT_S, "the end of the run")

    def test_a_dumb_terminal_gets_no_escape_sequence(self):
        """Frames of bars come as lines there, a failure without colour, and nothing of a rank steers the terminal from a block of ours."""
        text = "import sys\nsys.stderr.write('\\r 30% of it')\nsys.stderr.flush()\nsys.stdin.readline()\nsys.exit('no more')\n"
        with Terminal(self, "-n", 1, "--", *self.script("fail.py", text), kind="dumb") as terminal:
            terminal.wait_for(b"0:  30% of it")
            os.write(terminal.master, b"\n")
            terminal.wait_for(b"next:    sgd-launch logs")
            self.assertEqual(terminal.process.wait(LIMIT_S), 1)
            self.assertNotIn(b"\x1b", terminal.seen)

    def test_a_failure_shows_escape_sequences_of_a_rank_as_text(self):
        text = "import sys\nsys.stderr.write('\\x1b]0;mine\\x07\\x1b[2Jwiped\\n')\nsys.exit(3)\n"
        launch = self.run_to_end("-n", 1, "--", *self.script("fail.py", text), expect=1)
        block = launch.stderr()[launch.stderr().index("run failed"):]
        self.assertIn("    | \\x1b]0;mine\\x07\\x1b[2Jwiped", block)
        self.assertNotIn("\x1b", block)

    def test_who_stands_in_the_background_does_not_read_the_terminal(self):
        text = "import sys\nprint(repr(sys.stdin.read()), flush=True)\n"
        with Terminal(self, "-n", 1, "--", *self.script("read.py", text), background=True) as terminal:
            terminal.wait_for(b"0: ''")
            self.assertEqual(terminal.process.wait(LIMIT_S), 0)

    def test_every_rank_has_a_terminal_where_that_is_asked_for(self):
        text = "import os, sys\nprint(os.isatty(1), os.isatty(2), flush=True)\nprint(os.environ['RANK'], repr(sys.stdin.read()))\n"
        with open(self.write("input", "typed\nand more"), "rb") as given:
            launch = self.run_to_end("-n", 2, "--set", "process.terminal=all", "--", *self.script("show.py", text), stdin=given)
        self.assertEqual(launch.log(0), b"True True\n0 'typed\\nand more'\n")
        self.assertEqual(launch.log(1), b"True True\n1 ''\n")
        with Terminal(self, "-n", 1, "--set", "process.terminal=all", "--", *self.script("show.py", text)) as terminal:
            terminal.wait_for(b"0: True True")
            os.write(terminal.master, b"Ada\n\x04")
            terminal.wait_for(b"0: 0 'Ada\\n'")
            self.assertEqual(terminal.process.wait(LIMIT_S), 0)

    def test_lines_as_json_and_with_the_time(self):
        text = "import sys\nprint('a')\nprint('b', file=sys.stderr)\n"
        launch = self.run_to_end("-n", 1, "--output", "json", "--", *self.script("two.py", text))
        lines = sorted((json.loads(line) for line in launch.stdout().splitlines()), key=lambda line: line["text"])
        self.assertEqual([(line["rank"], line["stream"], line["text"]) for line in lines], [(0, "stdout", "a"), (0, "stderr", "b")])
        self.assertLess(abs(lines[0]["time"] - time.time()), 60)
        launch = self.run_to_end("-n", 1, "--timestamps", "--set", "process.prefix=<${local_rank}|${stream}> ", "--",
                                 *self.script("two.py", text), run_dir="stamped")
        self.assertRegex(launch.stdout(), rb"^\d\d:\d\d:\d\d\.\d{3} <0\|stdout> a\n$")

    def test_files_and_what_is_shown_as_torchrun_has_it(self):
        text = "import os, sys\nprint('loss', os.environ['RANK'])\nprint('Error', os.environ['RANK'], file=sys.stderr)\n"
        rules = {"redirects": "3", "tee": "1:1", "log_dir": self.path("logs"), "rendezvous_id": "job", "stdout_filters": ["loss 0"]}
        options = [part for key, value in rules.items() for part in ("--set", f"process.{key}={json.dumps(value)}")]
        launch = self.run_to_end("-n", 2, "--no-fold", *options, "--", *self.script("two.py", text))
        self.assertEqual(launch.stdout(), b"1: loss 1\n")
        self.assertNotIn("Error", launch.stderr())
        (folder,) = [os.path.join(self.path("logs"), name) for name in os.listdir(self.path("logs"))]
        self.assertTrue(os.path.basename(folder).startswith("job_"))
        for rank in (0, 1):
            place = os.path.join(folder, "attempt_0", str(rank))
            self.assertEqual(read_file(os.path.join(place, "stdout.log")), f"loss {rank}\n".encode())
            self.assertEqual(read_file(os.path.join(place, "stderr.log")), f"Error {rank}\n".encode())
            self.assertEqual(sorted(launch.log(rank).splitlines()), [f"Error {rank}".encode(), f"loss {rank}".encode()])
        self.assertEqual(read_file(os.path.join(folder, "attempt_0", "filtered_stdout.log")), b"[default0]:loss 0\n")

    def test_a_flood_without_newline_costs_no_memory(self):
        size = 128 * MIB
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
        launch = self.run_to_end("-n", 1, "--", *self.script("leave.py", text))
        self.assertRegex(launch.stderr(), r"sgd-launch: warning: 1 process that workers had left behind was ended: sleep \(pid \d+\)\n")

    def test_of_many_processes_that_are_left_behind_some_are_named(self):
        launch = self.run_to_end("-n", 1, "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 1000 & done")
        self.assertRegex(launch.stderr(), r"10 processes that workers had left behind were ended: (sleep \(pid \d+\), ){8}and 2 more\n")

    def test_a_helper_that_ends_with_its_rank_is_not_spoken_of(self):
        text = "import os\nread, write = os.pipe()\nif os.fork() == 0:\n    os.setsid()\n    os.close(write)\n    os.read(read, 1)\n    os._exit(0)\n"
        launch = self.run_to_end("-n", 2, "--", *self.script("helper.py", text))
        self.assertNotIn("left behind", launch.stderr())

    def test_without_prefixes_a_long_line_is_one_line(self):
        text = "import json, os, sys\nif os.environ['RANK'] == '0':\n    sys.stdout.write(json.dumps(list(range(100_000))) + '\\n')\n" \
               "else:\n    for number in range(2000):\n        print('other', number, flush=True)\n"
        launch = self.run_to_end("-n", 2, "--no-prefix", "--", *self.script("long.py", text))
        lines = launch.stdout().decode().splitlines()
        self.assertEqual([line for line in lines if line.startswith("other")], [f"other {number}" for number in range(2000)])
        (whole,) = [line for line in lines if not line.startswith("other")]
        self.assertEqual(json.loads(whole), list(range(100_000)))
        launch = self.run_to_end("-n", 1, "--", *self.script("long.py", text), run_dir="prefixed")
        self.assertTrue(all(line.startswith("0: ") for line in launch.stdout().decode().splitlines()))
        self.assertIn(b" [line goes on]\n", launch.stdout())

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
