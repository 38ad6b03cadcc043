"""Programs as callbacks: every report and event as a line on their standard input, whatever they do with it."""

import os
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import linear_job, write_job
from harness import LIMIT_S, LaunchTest, read_file, read_lines, wait_for

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "reporting_rank.py")

# Keeps each line as it comes, behind those of programs before it.
KEEPER = """
import sys
with open(sys.argv[1], "a") as file:
    for line in sys.stdin:
        file.write(line)
        file.flush()
"""
# In front of it: takes its time.
SLOW = """
import os, sys, time
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""
# Reads nothing, and neither does what it has started.
DEAF = """
import subprocess, sys, time
subprocess.Popen([sys.executable, "-S", "-c", "import time; time.sleep(600)"], start_new_session=True)
open(sys.argv[1], "w").close()
time.sleep(600)
"""
# Reads everything, and does not end.
STAYS = """
import sys, time
for line in sys.stdin:
    pass
time.sleep(600)
"""


class ExecTest(LaunchTest):
    def callback(self, name, text, *arguments, **options):
        return {"type": "exec", "command": [*self.script(name, text), *map(str, arguments)], **options}

    def job(self, callbacks, *arguments, **changes):
        command = ["/usr/bin/python3", "-S", RANK, *map(str, arguments)]
        return write_job(self.path("job.json"), {"name": "reports", "num_workers": 1, "command": command, "callbacks": callbacks, **changes})

    def given(self, name="given.jsonl"):
        """What the program had: runs, numbers of reports, numbers of events."""
        lines = read_lines(self.path(name))
        return ([line for line in lines if line["type"] == "run"], [line for line in lines if line["type"] == "report"],
                [line for line in lines if line["type"] == "event"])

    def check_given(self, launch):
        runs, reports, events = self.given()
        self.assertEqual([line["line"] for line in reports], list(range(1, len(launch.metrics()) + 1)))
        self.assertEqual([line["line"] for line in events], list(range(1, len(launch.events()) + 1)))
        for given, line in [*zip(reports, launch.metrics()), *zip(events, launch.events())]:
            self.assertEqual({key: value for key, value in given.items() if key not in ("type", "line")}, line)
        return runs

    def test_every_line_and_who_the_run_is(self):
        launch = self.run_to_end(self.job([self.callback("keeper.py", KEEPER, self.path("given.jsonl"))], 1, 50))
        (run,) = self.check_given(launch)
        self.assertEqual(run["run"], os.path.basename(launch.run_dir))
        self.assertEqual(run["run_dir"], launch.run_dir)
        self.assertEqual(run["job"]["name"], "reports")
        self.assertEqual(len(launch.metrics()), 50)
        self.assertEqual(launch.stderr().count("warning"), 0, launch.stderr())

    def test_a_keeper_that_is_killed_takes_nothing_of_others_along(self):
        """Neither this program nor the keeper of another node, which are the same launcher's."""
        waits = self.script("waits.py", "import os, sys, time\nwhile not os.path.exists(sys.argv[1]):\n    time.sleep(0.01)\n")
        job = write_job(self.path("job.json"), {"num_workers": 2, "command": [*waits, self.path("end")],
                                                "callbacks": [self.callback("keeper.py", KEEPER, self.path("given.jsonl"))]})
        launch = self.start(job, "--local-nodes", 2, "--max-failures", 1)
        launch.wait_for_event("worker_started", count=2)
        keepers = [pid for pid in launch.pids() if read_file(f"/proc/{pid}/cmdline").split(b"\0")[1:2] == [b"keeper"]]
        self.assertEqual(len(keepers), 2)
        os.kill(keepers[0], signal.SIGKILL)
        launch.wait_for_event("worker_started", count=4)
        self.assertTrue(os.path.exists(f"/proc/{keepers[1]}"))
        self.write("end", "")
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual(launch.summary()["failures"], 1)
        self.check_given(launch)

    def test_what_it_has_asked_for(self):
        callback = self.callback("keeper.py", KEEPER, self.path("given.jsonl"), events=False, metrics=["loss"])
        self.run_to_end(self.job([callback], 1, 3, "--metrics", '{"other": 1}'))
        _, reports, events = self.given()
        self.assertEqual(events, [])
        self.assertEqual([(line["loss"], "other" in line) for line in reports], [(1, False), (2, False), (3, False)])

    def test_over_restarts_of_ranks_kills_of_the_launcher_and_resume(self):
        keeper = self.callback("keeper.py", KEEPER, self.path("given.jsonl"))
        training = linear_job(1, epochs=6, dataset={"type": "linear", "samples": 200000, "validation_samples": 1000})
        launch = self.start(write_job(self.path("job.json"), {**training, "callbacks": [keeper]}), "--max-failures", "unlimited")
        launch.wait_for_event("first_step")
        os.kill(launch.events("worker_started")[-1]["pid"], signal.SIGKILL)
        for life in range(2):
            wait_for(lambda: len(launch.metrics()) > 2 * life + 1, LIMIT_S, "reports")
            launch.process.kill()
            launch.wait()
            launch.wait_until_gone(15)
            run_dir = launch.run_dir
            launch = self.start("resume", run_dir, run_dir=None)
            launch.run_dir = run_dir
        self.assertEqual(launch.wait(3 * LIMIT_S), 0, launch.said())
        launch.wait_until_gone()
        self.assertEqual(len(self.check_given(launch)), 3)
        self.assertEqual(len(launch.metrics()), 12)

    def test_one_that_ends(self):
        """Told at once with its exit code and where its words are, and how much it has missed at the end."""
        callback = self.callback("ends.py", "import sys\nprint('no key')\nsys.stdin.readline()\nsys.exit(3)\n")
        launch = self.start(self.job([callback], 1, 5, "--wait", self.path("end")))
        wait_for(lambda: "exit code 3 before the run's end" in launch.stderr(), LIMIT_S, "the program's end")
        self.assertIsNone(launch.process.poll())
        open(self.path("end"), "w", encoding="utf-8").close()
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertRegex(launch.stderr(), r"callback exec \(/usr/bin/python3\): exit code 3 before the run's end; what it wrote is in "
                                          r".*/callbacks/exec-0\.log; the run goes on without it")
        self.assertRegex(launch.stderr(), r"callback exec .*: \d+ of \d+ lines were not given to it")
        self.assertIn(b"no key", read_file(os.path.join(launch.run_dir, "callbacks", "exec-0.log")))
        self.assertEqual(len(launch.metrics()), 5)

    def test_one_that_ended_and_is_started_anew(self):
        """`resume` with a program that works gives it what the first one has not read: here all but the lines that it took."""
        self.script("keeper.py", KEEPER)
        callback = self.callback("program.py", "import os, sys\nos.read(0, 1)\nsys.exit(1)\n")
        job = self.job([callback], 1, 5)
        launch = self.run_to_end(job)
        self.assertIn("lines were not given to it", launch.stderr())
        self.script("program.py", "import sys\nsys.argv[1:] = [%r]\n%s" % (self.path("given.jsonl"), KEEPER))
        again = self.run_to_end("resume", launch.run_dir, run_dir=None)
        again.run_dir = launch.run_dir
        _, reports, events = self.given()
        self.assertEqual([line["line"] for line in reports], list(range(1, len(again.metrics()) + 1)))
        self.assertEqual([line["line"] for line in events], list(range(1, len(again.events()) + 1)))

    def test_one_that_reads_nothing(self):
        """Ended after its time-out with all that it has started; the run has not waited for it."""
        callback = self.callback("deaf.py", DEAF, self.path("deaf"), timeout="1s")
        launch = self.start(self.job([callback], 1, 300, "--pad", 8000, "--wait", self.path("end")))
        wait_for(lambda: len(launch.metrics()) == 300, LIMIT_S, "300 reports")
        wait_for(lambda: "has read nothing for 1s, and is ended; the run goes on without it" in launch.stderr(), LIMIT_S, "its end")
        wait_for(lambda: not [pid for pid in launch.pids() if "time.sleep(600)" in self.words(pid) or "deaf.py" in self.words(pid)],
                 LIMIT_S, "the end of what it has started")
        open(self.path("end"), "w", encoding="utf-8").close()
        self.assertEqual(launch.wait(), 0, launch.said())
        launch.wait_until_gone()
        self.assertRegex(launch.stderr(), r"\d+ of 3\d\d lines were not given to it")

    @staticmethod
    def words(pid):
        return read_file(f"/proc/{pid}/cmdline").decode(errors="replace")

    def test_one_that_does_not_end(self):
        callback = self.callback("stays.py", STAYS, timeout="1s")
        begin = time.monotonic()
        launch = self.run_to_end(self.job([callback], 1, 3))
        self.assertIn("is not done 1s after the run, and is ended", launch.stderr())
        self.assertGreater(time.monotonic() - begin, 1)

    def test_one_that_is_stopped(self):
        """Frozen by a signal: as one that reads nothing."""
        callback = self.callback("keeper.py", KEEPER, self.path("given.jsonl"), timeout="1s")
        launch = self.start(self.job([callback], 1, 300, "--pad", 8000, "--pace", self.path("pace"), "--wait", self.path("end")))
        wait_for(lambda: read_file(self.path("given.jsonl")), LIMIT_S, "the program")
        pid = next(pid for pid in launch.pids() if "keeper.py" in self.words(pid) and "callback" not in self.words(pid))
        os.kill(pid, signal.SIGSTOP)
        self.write("pace", 300 * "x")  # More than it has room for where it does not read.
        wait_for(lambda: "has read nothing for 1s" in launch.stderr(), LIMIT_S, "its end")
        open(self.path("end"), "w", encoding="utf-8").close()
        self.assertEqual(launch.wait(), 0, launch.said())

    def test_no_orphan_of_a_launcher_that_is_killed(self):
        callback = self.callback("deaf.py", DEAF, self.path("deaf"))
        launch = self.start(self.job([callback], 1, 3, "--wait", self.path("end")))
        wait_for(lambda: os.path.exists(self.path("deaf")), LIMIT_S, "the program")
        launch.process.kill()
        launch.wait()
        launch.wait_until_gone(12)

    def test_ctrl_c_twice_does_not_wait_for_it(self):
        callback = self.callback("stays.py", STAYS, timeout="10m")
        launch = self.start(self.job([callback], 1, 3))
        wait_for(lambda: "waiting for programs of callbacks" in launch.stderr(), LIMIT_S, "the run's end")
        launch.process.send_signal(signal.SIGINT)
        self.assertEqual(launch.wait(), 0, launch.said())
        launch.wait_until_gone(12)

    def test_a_slow_one_holds_nothing_up(self):
        """It has all lines in the end, though the run was over long before."""
        launch = self.start(self.job([self.callback("slow.py", SLOW + KEEPER, self.path("given.jsonl"), self.path("go"))], 1, 100))
        wait_for(lambda: read_file(os.path.join(launch.run_dir, "summary.json")), LIMIT_S, "the run's end")
        self.assertLess(len(self.given()[1]), 100)
        self.write("go", "")
        self.assertEqual(launch.wait(), 0, launch.said())
        self.check_given(launch)

    def test_a_program_that_is_missing(self):
        launch = self.start(self.job([{"type": "exec", "command": ["no-such-program"]}], 1, 2))
        self.assertEqual(launch.wait(), 2, launch.said())
        self.assertRegex(launch.stderr(), r"callbacks\[0\]\.command.*no-such-program")
        self.assertFalse(os.path.exists(launch.run_dir))


if __name__ == "__main__":
    unittest.main()
