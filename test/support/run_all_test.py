"""The counting of single tests: every way a program can end is counted, and none as nothing."""

import contextlib
import io
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import run_all

ENDS = [
    ("catch2 good", "===\nAll tests passed (57 assertions in 12 test cases)\n", 0, (12, 0)),
    ("catch2 one", "All tests passed (1 assertion in 1 test case)\n", 0, (1, 0)),
    ("catch2 mixed", "test cases:  5 |  3 passed | 2 failed\nassertions: 9 | 7 passed | 2 failed\n", 2, (3, 2)),
    ("catch2 all failed", "test cases: 1 | 1 failed\n", 1, (0, 1)),
    ("catch2 good, then a crash", "All tests passed (5 assertions in 4 test cases)\n", -11, (4, 1)),
    ("unittest good", "....\n---\nRan 4 tests in 0.1s\n\nOK\n", 0, (4, 0)),
    ("unittest mixed", "Ran 9 tests in 0.1s\n\nFAILED (failures=1, errors=2, skipped=1)\n", 1, (5, 3)),
    ("unittest skipped", "Ran 3 tests in 0.1s\n\nOK (skipped=2)\n", 0, (1, 0)),
    ("killed without a summary", "half a li", -9, (0, 1)),
    ("silent success", "", 0, (0, 1)),
    ("ran none", "Ran 0 tests in 0.0s\n\nOK\n", 0, (0, 0)),
]


CATCH2_OUTPUT = """
~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~~
unit_store is a Catch v2.13.10 host application.
Run with -? for options

-------------------------------------------------------------------------------
event store: the
first
-------------------------------------------------------------------------------
../a_test.cpp:12
...............................................................................

../a_test.cpp:15: FAILED:
  CHECK( lives > 5 )
with expansion:
  4 > 5
  due to nothing

===============================================================================
test cases: 9 | 8 passed | 1 failed
"""
UNITTEST_OUTPUT = """F
======================================================================
FAIL: test_it (__main__.Thing)
----------------------------------------------------------------------
Traceback (most recent call last):
  File "a_test.py", line 3, in test_it
    self.assertEqual(1, 2)
AssertionError: 1 != 2 : while it ran

----------------------------------------------------------------------
Ran 1 test in 0.0s

FAILED (failures=1)
"""


class CauseTest(unittest.TestCase):
    def test_who_failed_and_why_is_one_line(self):
        self.assertEqual(run_all.causes(CATCH2_OUTPUT), ["event store: the first: ../a_test.cpp:15: CHECK( lives > 5 ) with expansion: 4 > 5 due to nothing"])
        self.assertEqual(run_all.causes(UNITTEST_OUTPUT), ["test_it: AssertionError: 1 != 2 : while it ran"])
        self.assertEqual(run_all.causes("half a li"), [])

    def test_each_failed_test_counts_once_in_the_list(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, output, expected in [("c", CATCH2_OUTPUT, ["c: event store: the first: ../a_test.cpp:15: CHECK( lives > 5 ) with expansion: 4 > 5 due to nothing"]),
                                           ("u", UNITTEST_OUTPUT, ["u: test_it: AssertionError: 1 != 2 : while it ran"])]:
                script = f"cat <<'END'\n{output}END\nexit 1"
                program = run_all.Program(name, ["/bin/sh", "-c", script], {}, folder, 20.0, 0.0, 1.0)
                with contextlib.redirect_stdout(io.StringIO()):  # Else whoever counts this program's tests would count that one.
                    self.assertEqual(run_all.run_and_tell(program)[1], expected)


class CountTest(unittest.TestCase):
    def test_every_end(self):
        for name, output, status, expected in ENDS:
            with self.subTest(name):
                self.assertEqual(run_all.count(output, status), expected)

    def test_a_program_past_its_limit_is_ended_with_its_children(self):
        with tempfile.TemporaryDirectory() as folder:
            status, output = run_all.run_one(["/bin/sh", "-c", "sleep 1000 & echo $!; wait"], {}, folder, 0.3)
        self.assertNotEqual(status, 0)
        self.assertIn("limit of 0.3 s", output)
        self.assertRegex(output, r"\d+/\d+ sleep 1000 : ")
        child = output.split()[0]
        try:
            with open(f"/proc/{child}/stat") as file:
                state = file.read().rsplit(")", 1)[1].split()[0]
        except OSError:
            state = "gone"
        self.assertIn(state, ("gone", "Z"))


class ScheduleTest(unittest.TestCase):
    def program(self, folder, name, script, cores=1.0):
        return run_all.Program(name, ["/bin/sh", "-c", script], {}, folder, 20.0, 0.0, cores)

    def test_all_run_and_every_end_counts(self):
        good = "echo 'All tests passed (1 assertion in 1 test case)'"
        with tempfile.TemporaryDirectory() as folder:
            programs = [self.program(folder, f"good{number}", good, 0.5) for number in range(5)]
            programs += [self.program(folder, "bad", "exit 1"), self.program(folder, "wants more than there is", good, 8.0),
                         self.program(os.path.join(folder, "nowhere"), "cannot be started", good)]
            passed, failures = run_all.run(programs, 2)
        self.assertEqual(passed, 6)
        self.assertEqual(sorted(failure.split(":")[0] for failure in failures), ["bad", "cannot be started"])

    def test_no_more_at_a_time_than_there_is_room_for(self):
        script = "mkdir there || exit 1; sleep 0.05; rmdir there; echo 'All tests passed (1 assertion in 1 test case)'"
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(run_all.run([self.program(folder, str(number), script, 1.5) for number in range(4)], 2), (4, []))


if __name__ == "__main__":
    unittest.main()
