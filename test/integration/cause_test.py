"""Which of several failures of a command is named, by what its ranks say of themselves; and what is not started again."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LaunchTest, read_file

# Rank 1 fails, and takes its time to end, or is done; rank 0 misses it, and is gone at once.
SLOW_TO_END = """
import os, sys, threading, time
rank, went, how = int(os.environ["RANK"]), sys.argv[1], sys.argv[2]
if rank == 0:
    while not os.path.exists(went):
        time.sleep(0.01)
    pid = open(went).read()
    while pid and os.path.exists("/proc/" + pid):
        time.sleep(0.01)
    raise ConnectionResetError("Connection closed by peer [127.0.0.1]:29500")
threading.Thread(target=time.sleep, args=(1000,)).start()
if how == "traceback":
    hook = sys.excepthook
    def said(*exception):
        hook(*exception)
        open(went, "w").close()
    sys.excepthook = said
    raise ValueError("loss is NaN")
if how == "half a record":
    with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
        file.write('{"message": {"message": "ValueError: loss is NaN", "extraInfo": {"py_calls')
    open(went, "w").close()
if how == "done":
    with open(went + ".part", "w") as file:
        file.write(str(os.getpid()))
    os.rename(file.name, went)
    os._exit(0)
"""

# Each says ImportError, and none is ended by it.
ASIDES = {"caught": """
import traceback
try:
    import no_such_module
except ImportError:
    traceback.print_exc()
sys.exit(3)
""", "late": """
class Late:
    def __del__(self):
        import no_such_module
keep = Late()
sys.exit(1)
""", "thread": """
import threading
def consume():
    import no_such_module
thread = threading.Thread(target=consume)
thread.start()
thread.join()
os._exit(1)
"""}

# An error, and what comes behind it at the end of the program.
BEHIND = {"thread": """
import threading, time
def consume():
    time.sleep(0.3)
    raise KeyError("queue")
threading.Thread(target=consume).start()
""", "late": """
class Late:
    def __del__(self):
        raise RuntimeError("pool is closed")
keep = Late()
""", "exit": """
import atexit
def close():
    raise OSError("cannot close")
atexit.register(close)
"""}

FAULT = """
import ctypes
def read_nothing():
    ctypes.string_at(0)
read_nothing()
"""


class CauseTest(LaunchTest):
    def fail_with(self, command, *options, expect=1, ranks=2, run_dir="run", **keywords):
        return self.run_to_end("-n", ranks, *options, "--", *command, run_dir=run_dir, expect=expect, **keywords)

    def test_what_a_rank_has_said_outranks_its_peers_loss(self):
        for how in ("traceback", "half a record"):
            launch = self.fail_with([*self.script("slow.py", SLOW_TO_END), self.path("said-" + how), how], run_dir=how.replace(" ", "-"))
            self.assertIn("run failed: rank 1: ValueError: loss is NaN", launch.stderr())
            self.assertEqual(launch.events("failure")[0]["rank"], 1)
            self.assertRegex(launch.stderr(), r"when:    20\d\d-\d\d-\d\d \d\d:\d\d:\d\d")

    def test_a_rank_that_left_while_others_waited_is_named(self):
        launch = self.fail_with([*self.script("slow.py", SLOW_TO_END), self.path("go"), "done"])
        self.assertIn("rank 0: ConnectionResetError: Connection closed by peer", launch.stderr())
        self.assertIn("rank 1 had ended with exit code 0 by then", launch.stderr())

    def test_an_exception_is_shown_with_its_frames_once(self):
        launch = self.fail_with(self.script("raise.py", "def step():\n    raise ValueError('loss is NaN')\nstep()\n"), ranks=1)
        block = launch.stderr()[launch.stderr().index("run failed"):]
        self.assertTrue(block.startswith("run failed: rank 0: ValueError: loss is NaN (exit code 1)"), block)
        self.assertIn("in step", block)
        self.assertEqual(block.count("ValueError: loss is NaN"), 2, block)  # The first line, and under its frames.
        self.assertEqual(launch.summary()["cause"]["error"]["type"], "ValueError")

    def test_a_message_of_several_lines_is_shown_whole(self):
        text = 'raise RuntimeError("Error(s) in loading:\\n\\tMissing key(s): \\"a.weight\\".\\n\\tsize mismatch for b")\n'
        record = "import json, os, sys\nwith open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as file:\n" \
                 "    json.dump({'message': {'message': 'RuntimeError: Error(s) in loading:\\n\\tMissing key(s): \"a.weight\".\\n" \
                 "\\tsize mismatch for b'}}, file)\nsys.exit(1)\n"
        for name, script in (("raised", text), ("record", record)):
            outer = self.path(name + ".json")
            launch = self.fail_with(self.script(name + ".py", script), ranks=1, run_dir=name, env={"TORCHELASTIC_ERROR_FILE": outer})
            block = launch.stderr()[launch.stderr().index("run failed"):]
            self.assertTrue(block.startswith("run failed: rank 0: RuntimeError: Error(s) in loading: (exit code 1)"), block)
            self.assertIn('    | RuntimeError: Error(s) in loading:\n    | \tMissing key(s): "a.weight".\n    | \tsize mismatch for b\n  retried:',
                          block)
            self.assertNotIn("\n", launch.events("failure")[0]["message"])
            self.assertNotIn("\n", launch.summary()["error"])
            self.assertIn("\tsize mismatch for b", json.loads(read_file(outer))["message"]["message"])

    def test_a_fault_shows_its_line_of_python(self):
        launch = self.fail_with(self.script("fault.py", FAULT), ranks=1)
        self.assertIn("signal 11 (SIGSEGV), rank 0", launch.stderr())
        self.assertIn("in read_nothing", launch.stderr()[launch.stderr().index("run failed"):])

    def test_what_a_restart_cannot_mend_ends_the_run(self):
        for name, command, said in (("syntax", self.script("syntax.py", "def (:\n"), "SyntaxError"),
                                    ("import", self.script("import.py", "import no_such_module\n"), "No module named 'no_such_module'"),
                                    ("missing", ["/usr/bin/python3", self.path("none.py")], "can't open file"),
                                    ("module", ["/usr/bin/python3", "-m", "no_such_module"], "No module named no_such_module")):
            launch = self.fail_with(command, "--max-failures", 5, ranks=1, run_dir=name)
            self.assertIn(said, launch.stderr()[launch.stderr().index("run failed"):])
            self.assertEqual([event["restart"] for event in launch.events("failure")], [False], name)

    def test_an_import_that_has_worked_before_is_tried_again(self):
        text = "import os\ncount = int(os.environ['TORCHELASTIC_RESTART_COUNT'])\nif count == 0:\n    raise ValueError('bad sample')\n" \
               "if count == 1:\n    import no_such_module\n"
        launch = self.fail_with(self.script("hiccup.py", text), "--max-restarts", 2, ranks=1, expect=0)
        self.assertEqual([event["restart"] for event in launch.events("failure")], [True, True])
        self.assertIn("no_such_module", launch.events("failure")[1]["message"])

    def test_an_import_that_has_not_ended_the_rank_is_tried_again(self):
        again = "import os, sys\nif os.environ['TORCHELASTIC_RESTART_COUNT'] != '0':\n    os._exit(0)\n"
        for name, text in ASIDES.items():
            for preload in ("auto", "none"):
                launch = self.fail_with(["/usr/bin/python3", self.write(name + ".py", again + text)], "--max-failures", 1, "--preload",
                                        preload, ranks=1, run_dir=name + preload, expect=0)
                self.assertEqual([event["restart"] for event in launch.events("failure")], [True], name)
                self.assertRegex(launch.log(0, 1).decode(), "(Import|ModuleNotFound)Error: ", name)

    def test_what_comes_behind_an_error_is_not_its_cause(self):
        for name, text in BEHIND.items():
            for preload in ("auto", "none"):
                launch = self.fail_with(["/usr/bin/python3", self.write(name + ".py", text + "raise ValueError('loss is NaN')\n")],
                                        "--preload", preload, ranks=1, run_dir=name + preload)
                self.assertIn("run failed: rank 0: ValueError: loss is NaN (exit code 1)", launch.stderr())

    def test_the_same_error_at_the_same_time_is_not_tried_for_ever(self):
        launch = self.fail_with(self.script("raise.py", "raise ValueError('bad sample')\n"), "--max-failures", 100, ranks=1, expect=7,
                           limit_s=60)
        self.assertEqual(len(launch.events("failure")), 3)
        self.assertIn("a restart does not fix it", launch.summary()["error"])
        self.assertEqual(len(launch.events("backoff")), 1)
        self.assertEqual(launch.events("backoff")[0]["reason"], "it fails soon after each start")

    def test_a_command_is_started_again_and_nobody_claims_that_it_has_recovered(self):
        text = "import os, sys\nif not os.path.exists(sys.argv[1]):\n    open(sys.argv[1], 'w').close()\n    sys.exit(3)\n"
        launch = self.fail_with([*self.script("twice.py", text), self.path("went")], "--max-failures", 1, ranks=1, expect=0)
        self.assertIn("started again after", launch.stderr())
        self.assertEqual(len(launch.events("restarted")), 1)
        self.assertEqual(launch.events("recovered"), [])

    def test_a_launcher_around_this_one_is_told(self):
        record = self.path("outer.json")
        self.fail_with(self.script("raise.py", "raise ValueError('loss is NaN')\n"), ranks=1, env={"TORCHELASTIC_ERROR_FILE": record})
        said = json.loads(read_file(record))["message"]
        self.assertEqual((said["message"], said["errorCode"]), ("ValueError: loss is NaN", 1))
        self.assertIn("Traceback", said["extraInfo"]["py_callstack"])
        self.assertGreater(int(said["extraInfo"]["timestamp"]), 1_700_000_000)


if __name__ == "__main__":
    unittest.main()
