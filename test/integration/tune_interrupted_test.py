"""Experiments that a search program makes are stopped and go on: the program hears the end of each trial once."""

import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import CACHE, ROOT, read_lines, wait_for
from tuning import WAITS, TuneCase

# As Optuna, it takes nothing more of a trial that has finished.
STRICT = """
import json, sys
ended = set()
for text in sys.stdin:
    line = json.loads(text)
    with open(sys.argv[1], "a") as file: file.write(text)
    if line["type"] in ("report", "end") and line["trial"] in ended: sys.exit(f"trial {line['trial']} has already finished")
    if line["type"] == "end": ended.add(line["trial"])
    if line["type"] != "next": continue
    for trial in line["trials"]:
        if str(trial) in line.get("given", {}): continue
        print(json.dumps({"type": "trial", "trial": trial, "parameters": {"lr": 0.9 / (1 + trial)}}), flush=True)
"""

OPTUNA_PYTHON = os.environ.get("SGD_TUNE_PYTHON") or os.path.join(CACHE, "tune", "bin", "python3")


def has_optuna():
    return os.access(OPTUNA_PYTHON, os.X_OK) and subprocess.run([OPTUNA_PYTHON, "-c", "import optuna"], capture_output=True).returncode == 0


class Interrupted(TuneCase):
    def stopped_and_resumed(self, program):
        """Twice: who goes on is told what was said before, too. The experiment's folder is that of the last end."""
        search = {"type": "exec", "command": program, "timeout": "50s"}
        job = self.command(WAITS, self.folder, parameters={"lr": {"uniform": [0, 1]}}, samples=4, concurrent=2, search=search)
        launch = self.tune("--run-dir", self.path("x"), job)
        for _ in range(2):
            wait_for(lambda: len(self.started()) >= 2, 60, "two trials")
            launch.process.send_signal(signal.SIGINT)
            self.assertEqual(launch.wait(60), 128 + signal.SIGINT, launch.said())
            launch.wait_until_gone()
            for name in self.started():
                os.remove(self.path(name))
            launch = self.tune("--resume", self.path("x"))
        self.write("go", "")
        self.assertEqual(launch.wait(120), 0, launch.said())
        launch.wait_until_gone()
        self.assertEqual({n: row["state"] for n, row in self.table().items()}, {n: "completed" for n in range(4)})
        self.assertEqual(launch.events("search_failed"), [])

    def started(self):
        return [name for name in os.listdir(self.folder) if name.startswith("started-")]

    def test_a_program_hears_one_end_of_a_trial_that_was_interrupted(self):
        self.stopped_and_resumed([*self.script("strict.py", STRICT), self.path("told")])
        lines = read_lines(self.path("told"))
        last = max(index for index, line in enumerate(lines) if line["type"] == "hello")
        for told in (lines[:last], lines[last:]):
            self.assertEqual([line for line in told if line["type"] == "end" and line["outcome"] == "cancelled"], [])
        self.assertEqual(sorted(line["trial"] for line in lines[last:] if line["type"] == "end"), [0, 1, 2, 3])

    @unittest.skipUnless(has_optuna(), "no Python with optuna: scripts/setup --tuners installs one, or $SGD_TUNE_PYTHON names it")
    def test_optuna_goes_on(self):
        self.stopped_and_resumed([OPTUNA_PYTHON, os.path.join(ROOT, "scripts", "optuna_search.py")])

    @unittest.skipUnless(has_optuna(), "no Python with optuna: scripts/setup --tuners installs one, or $SGD_TUNE_PYTHON names it")
    def test_optuna_takes_no_notice_of_what_comes_after_an_end(self):
        """Other launchers say so: an experiment of theirs is gone on with."""
        end = {"type": "end", "trial": 0, "outcome": "cancelled", "iteration": 1, "value": 0.5}
        said = [{"type": "hello", "version": 1, "metric": "loss", "mode": "min", "seed": 1, "parameters": {"lr": {"uniform": [0, 1]}}, "trials": 2},
                {"type": "next", "trials": [0]}, end, {"type": "report", "trial": 0, "iteration": 2, "value": 0.25},
                {**end, "outcome": "completed"}, {"type": "next", "trials": [1]}, {"type": "bye"}]
        ended = subprocess.run([OPTUNA_PYTHON, os.path.join(ROOT, "scripts", "optuna_search.py")], capture_output=True, text=True, timeout=60,
                               input="".join(json.dumps(line) + "\n" for line in said), check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual([json.loads(line)["trial"] for line in ended.stdout.splitlines()], [0, 1])


if __name__ == "__main__":
    unittest.main()
