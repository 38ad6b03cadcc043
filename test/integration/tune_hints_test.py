"""What an experiment advises can be done, and gives what it says."""

import csv
import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LAUNCHER, ROOT, read_file
from tuning import KEEPS, SCORED, TuneCase

# The worse one has the best value of all before it takes the state of the better one.
BEST_FIRST = KEEPS.replace("loss=state.begun_with,", "loss=0.0 if state.begun_with == 0.7 and state.epoch == 1 else state.begun_with,")

GIVES_TWO = """
import json, sys
for text in sys.stdin:
    line = json.loads(text)
    if line["type"] != "next": continue
    for trial in line["trials"]:
        answer = {"type": "trial", "trial": trial, "parameters": {"lr": 0.1 + trial}} if trial < 2 else {"type": "no_more"}
        print(json.dumps(answer), flush=True)
        if trial >= 2: break
"""


class Hints(TuneCase):
    def advised(self, text):
        """What is behind "again", as somebody would type it."""
        (line,) = [line for line in text.splitlines() if line.startswith("again ")]
        return line.split(None, 1)[1]

    def test_the_best_one_again_is_the_one_that_had_the_best_value(self):
        scheduler = {"type": "pbt", "interval_epochs": 2, "quantile": 0.5, "mutates": ["lr"]}
        path = self.command(BEST_FIRST, parameters={"lr": {"grid": [0.1, 0.7]}}, concurrent=1, scheduler=scheduler)
        job = json.loads(read_file(path))
        job["env"] = {"PYTHONPATH": os.path.join(ROOT, "worker", "python")}
        launch = self.tune_to_end(self.job(job))
        self.assertEqual([event["trial"] for event in launch.events("trial_cloned")], [1])
        best = self.best()
        self.assertEqual((best["trial"], best["value"], best["parameters"]), (1, 0.0, {"lr": 0.7}))
        self.assertEqual(json.loads(self.ask("tune", "best", "--job", self.path("x"))), best["job"])
        self.assertEqual(self.table()[1]["best_parameters"], {"lr": 0.7})
        row = next(line for line in launch.stdout().decode().splitlines() if line.startswith("1 *"))
        self.assertEqual(row.split()[3], "0.7")
        advised = self.advised(self.ask("tune", "best", self.path("x")))
        self.assertNotIn("trials/0001/job.json", advised)
        self.assertIn("the best one again: sgd-launch tune best --job x > best_job.json && sgd-launch best_job.json", launch.stderr())
        makes, runs = advised.split(" && ")  # Alone it would wait for an experiment that stops it.
        ended = subprocess.run(["/bin/sh", "-c", makes.replace("sgd-launch ", f"'{LAUNCHER}' ")], cwd=self.folder, capture_output=True,
                               text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)
        self.assertEqual((ended.returncode, runs), (0, "sgd-launch best_job.json"), ended.stderr)
        self.assertEqual(json.loads(read_file(self.path("best_job.json"))), best["job"])
        self.ask("plan", self.path("best_job.json"))

    def test_the_best_one_again_is_its_folder_where_that_says_the_same(self):
        launch = self.tune_to_end(self.command(SCORED))
        self.assertTrue(self.advised(self.ask("tune", "best", self.path("x"))).endswith("x/trials/0001/job.json"))
        self.assertIn("the best one again: sgd-launch x/trials/0001/job.json", launch.stderr())

    def test_an_experiment_whose_trials_have_failed_is_done(self):
        self.tune_to_end(self.command("import sys\nsys.exit(3)\n"), expect=1)
        said = self.ask("status", self.path("x"))
        self.assertIn("state      failed", said)
        self.assertNotIn("next ", said)
        self.assertIn("all of its 3 trials have ended", self.ask("tune", "--resume", self.path("x"), expect=2))

    def test_no_more_samples_are_advised_where_a_program_has_no_more(self):
        search = {"type": "exec", "command": self.script("search.py", GIVES_TWO)}
        job = self.command(SCORED, parameters={"lr": {"uniform": [0, 2]}}, samples=5, concurrent=1, search=search)
        self.tune_to_end(job)
        self.assertEqual(sorted(self.table()), [0, 1])
        said = self.ask("tune", "--resume", self.path("x"), expect=2)
        self.assertIn('all of its 2 trials have ended, and its search program has said "no_more"', said)
        self.assertNotIn("--samples", said)
        self.assertIn("it makes no trials for more samples", self.ask("tune", "--resume", self.path("x"), "--samples", 9, expect=2))

    def test_who_names_the_folder_of_an_experiment_is_told_how_it_goes_on(self):
        job = self.command(SCORED)
        self.tune_to_end(job)
        said = self.ask("tune", "--run-dir", self.path("x"), job, expect=2)
        self.assertIn(f"holds an experiment: sgd-launch tune --resume {self.path('x')} continues it", said)

    def test_parameters_that_are_called_as_columns_have_columns_of_their_own(self):
        self.tune_to_end(self.command(SCORED, parameters={"lr": {"grid": [0.3]}, "state": {"grid": ["solid"]}, "best": {"grid": [7]}}))
        path = self.ask("tune", "export", "--layout", "csv", "--to", self.path("t"), self.path("x")).strip()
        with open(path, encoding="utf-8", newline="") as file:
            (row,) = csv.DictReader(file)
        self.assertEqual((row["state"], row["config/state"], float(row["best"]), row["config/best"]), ("completed", "solid", 0.0, "7"))

    def test_a_metric_inside_of_another_value_is_found(self):
        text = "import json, sys\nprint(json.dumps({'val': {'loss': (float(sys.argv[1]) - 0.3) ** 2}}))\n"
        self.tune_to_end(self.command(text, metric="val/loss"))
        self.assertEqual(self.best()["parameters"], {"lr": 0.3})


if __name__ == "__main__":
    unittest.main()
