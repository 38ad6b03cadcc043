"""Experiments through the real program: trials of a job, the best of them, and what becomes of them when anything is killed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import CONFIGS, LAUNCHER, LaunchTest, read_file, read_lines, wait_for

# Reads its values, and tells how good they are as many programs do: a JSON object as its last line.
SCORED = """
import json, os, sys
lr = float(sys.argv[1])
print("some words")
print(json.dumps({"loss": (lr - 0.3) ** 2, "from_env": float(os.environ["SGD_PARAM_LR"])}))
"""

# Waits for a file, so that a test says when a trial ends.
WAITS = """
import os, sys, time
lr = sys.argv[1]
with open(os.path.join(sys.argv[2], "started-" + lr), "w"): pass
limit = time.monotonic() + 60
while not os.path.exists(os.path.join(sys.argv[2], "go")):
    if time.monotonic() > limit: sys.exit(9)
    time.sleep(0.01)
print('{"loss": %s}' % lr)
"""


def linear(**tune):
    """A training that takes a fraction of a second and gives the same numbers each time."""
    whole = {"parameters": {"training.optimizer.lr": {"loguniform": [0.001, 0.02]}}, "samples": 4, "concurrent": 2,
             "metric": "val_loss", "mode": "min"}
    whole.update(tune)
    return {"name": "linear", "num_workers": 1, "recovery": {"max_failures": 0},
            "training": {"epochs": 3, "batch_size": 32, "shuffle": False, "model": {"type": "linear", "init": "zeros"},
                         "loss": "mse", "dataset": {"type": "linear", "samples": 1000, "validation_samples": 400},
                         "optimizer": {"type": "sgd", "lr": 0.01}},
            "tune": whole}


class TuneCase(LaunchTest):
    def job(self, job, name="job.json"):
        return self.write(name, json.dumps(job))

    def command(self, text, *arguments, **tune):
        whole = {"parameters": {"lr": {"grid": [0.1, 0.3, 0.7]}}, "metric": "loss", "mode": "min", "concurrent": 2}
        whole.update(tune)
        return self.job({"name": "command", "command": [*self.script("trial.py", text), "{lr}", *arguments], "tune": whole})

    def tune(self, *arguments, **keywords):
        launch = self.start("tune", *arguments, run_dir=None, **keywords)
        launch.run_dir = self.path("x")
        return launch

    def tune_to_end(self, *arguments, expect=0, limit_s=120):
        launch = self.tune("--run-dir", self.path("x"), *arguments)
        self.assertEqual(launch.wait(limit_s), expect, launch.said())
        launch.wait_until_gone()
        return launch

    def resume(self, *options, expect=0):
        launch = self.tune("--resume", self.path("x"), *options)
        self.assertEqual(launch.wait(120), expect, launch.said())
        launch.wait_until_gone()
        return launch

    def ask(self, *arguments, expect=0):
        ended = subprocess.run([LAUNCHER, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                               cwd=self.folder, stdin=subprocess.DEVNULL)
        self.assertEqual(ended.returncode, expect, f"{arguments}: {ended.stdout}{ended.stderr}")
        return ended.stdout + ended.stderr

    def trial(self, number, name):
        return self.path("x", "trials", f"{number:04}", name)

    def best(self):
        return json.loads(read_file(self.path("x", "best.json")))

    def table(self):
        rows = json.loads(self.ask("tune", "status", "--json", self.path("x")))["rows"]
        return {row["trial"]: row for row in rows}


class Experiments(TuneCase):
    def test_best_job_alone_gives_the_same_metric_bit_for_bit(self):
        launch = self.tune_to_end(self.job(linear()))
        self.assertIn("val_loss", launch.stdout().decode())
        best = self.best()
        values = {number: row["best"] for number, row in self.table().items()}
        self.assertEqual(len(values), 4)
        self.assertEqual(best["value"], min(values.values()))
        self.assertTrue(os.path.isdir(best["checkpoint"]), best["checkpoint"])
        alone = self.run_to_end(self.write("best_job.json", json.dumps(best["job"])), run_dir="alone")
        lines = [line["val_loss"] for line in alone.metrics("validate")]
        trial = [line["val_loss"] for line in read_lines(self.trial(best["trial"], "metrics.jsonl")) if line["phase"] == "validate"]
        self.assertEqual(lines, trial)
        self.assertIn(best["value"], lines)
        again = self.start(best["folder"] + "/job.json", run_dir="again")
        self.assertEqual(again.wait(), 0, again.said())
        summary = launch.summary()
        self.assertEqual((summary["state"], summary["tune"]["ended"]), ("succeeded", 4))
        self.assertEqual(json.loads(read_file(self.trial(0, "summary.json")))["state"], "succeeded")

    def test_equal_seed_gives_the_same_trials_and_another_one_others(self):
        def values(seed, folder):
            launch = self.tune("--run-dir", self.path(folder), self.job(linear(seed=seed)))
            self.assertEqual(launch.wait(120), 0, launch.said())
            events = read_lines(self.path(folder, "events.jsonl"))
            return [event["parameters"] for event in events if event["event"] == "trial_started"]

        first = values(1, "x")
        self.assertEqual(first, values(1, "y"))
        self.assertNotEqual(first, values(2, "z"))

    def test_commands_take_values_and_their_last_line_counts(self):
        self.tune_to_end(self.command(SCORED))
        self.assertEqual(self.best()["parameters"], {"lr": 0.3})
        self.assertEqual(self.best()["value"], 0.0)
        for number, lr in enumerate([0.1, 0.3, 0.7]):
            (line,) = read_lines(self.trial(number, "metrics.jsonl"))
            self.assertEqual(line["from_env"], lr)
        self.assertIn("lr = 0.3", self.ask("tune", "best", self.path("x")))

    def test_kinds_of_one_optimizer_have_their_own_defaults(self):
        job = linear(parameters={"training.optimizer": {"grid": [{"type": "sgd", "lr": 0.01}, {"type": "adam"}]}})
        self.tune_to_end(self.job(job), "--samples", 1)
        jobs = [json.loads(read_file(self.trial(number, "job.json")))["training"]["optimizer"] for number in (0, 1)]
        self.assertEqual([one["type"] for one in jobs], ["sgd", "adam"])
        self.assertEqual(jobs[1]["lr"], 0.001)

    def test_one_crash_touches_no_other_trial(self):
        text = "import os, signal, sys\nif sys.argv[1] == '0.3': os.kill(os.getpid(), signal.SIGSEGV)\nprint('{\"loss\": 1}')\n"
        launch = self.tune_to_end(self.command(text))
        self.assertEqual({n: row["state"] for n, row in self.table().items()}, {0: "completed", 1: "failed", 2: "completed"})
        self.assertEqual(launch.summary()["failures"], 1)
        self.assertIn("trial 1 failed", launch.stderr())

    def test_all_crashes_fail_the_experiment_with_the_first_cause(self):
        launch = self.tune_to_end(self.command("import sys\nsys.exit(3)\n"), expect=1)
        self.assertIn("all 3 trials have failed", launch.summary()["error"])
        self.assertIn("exit code 3", launch.summary()["error"])

    def test_a_failed_trial_starts_again_as_often_as_it_may(self):
        text = ("import os, sys\nmark = os.path.join(sys.argv[2], 'failed-' + sys.argv[1])\n"
                "if not os.path.exists(mark):\n  open(mark, 'w').close()\n  sys.exit(3)\nprint('{\"loss\": 1}')\n")
        launch = self.tune_to_end(self.command(text, self.folder, max_failures=1))
        self.assertEqual({row["state"] for row in self.table().values()}, {"completed"})
        self.assertEqual(len(launch.events("trial_restarted")), 3)

    def test_a_metric_that_nobody_reports_is_said_early(self):
        launch = self.tune_to_end(self.job(linear(metric="val_acuracy")), expect=1)
        (missing,) = launch.events("metric_missing")
        self.assertIn("val_loss", missing["reported"])
        order = [event["event"] for event in launch.events()]
        self.assertLess(order.index("metric_missing"), order.index("trial_ended"))
        self.assertIn("has reported no \"val_acuracy\"; it has reported:", launch.stderr())

    def test_asha_stops_what_is_worse_and_says_why(self):
        scheduler = {"type": "asha", "max_epochs": 9, "reduction_factor": 3}
        job = linear(parameters={"training.optimizer.lr": {"grid": [0.02, 0.00001, 0.00002, 0.00003]}}, scheduler=scheduler,
                     concurrent=1)
        job["training"]["epochs"] = 9
        launch = self.tune_to_end(self.job(job), "--samples", 1)
        states = {number: (row["state"], row["iteration"]) for number, row in self.table().items()}
        self.assertEqual(states[0], ("completed", 9))
        for number in (1, 2, 3):
            self.assertEqual(states[number][0], "stopped", states)
        decided = [event for event in launch.events("trial_decided") if event["action"] == "stop"]
        self.assertEqual({event["trial"] for event in decided}, {1, 2, 3})
        self.assertTrue(all(event["why"] and event["reason"] for event in decided))

    def test_asha_by_promotion_goes_on_from_checkpoints(self):
        scheduler = {"type": "asha", "max_epochs": 3, "reduction_factor": 3, "mode": "promote"}
        rates = {"training.optimizer.lr": {"grid": [0.02, 0.00001, 0.00002]}}  # The first one has to wait for the others.
        self.tune_to_end(self.job(linear(parameters=rates, scheduler=scheduler, samples=1, concurrent=1)))
        rows = self.table()
        last = [number for number, row in rows.items() if row["iteration"] == 3]
        self.assertEqual(len(last), 1, rows)
        self.assertEqual(sum(1 for row in rows.values() if row["iteration"] == 1), 2)
        events = read_lines(self.trial(last[0], "events.jsonl"))
        self.assertEqual([e["source"] for e in events if e["event"] == "restored"], ["disk"])
        whole = self.run_to_end(self.trial(last[0], "job.json"), run_dir="alone")
        trial = [line["val_loss"] for line in read_lines(self.trial(last[0], "metrics.jsonl")) if line["phase"] == "validate"]
        self.assertEqual(trial, [line["val_loss"] for line in whole.metrics("validate")])


    def test_pbt_goes_on_from_a_better_trial_and_its_job_gives_the_same_alone(self):
        """One trial at a time, so that who is compared with whom does not depend on how fast they are."""
        rates = {"training.optimizer.lr": {"grid": [0.01, 0.00001, 0.00002, 0.00003]}}
        scheduler = {"type": "pbt", "interval_epochs": 2, "mutates": ["training.optimizer.lr"]}
        job = linear(parameters=rates, samples=1, concurrent=1, scheduler=scheduler)
        job["training"]["epochs"] = 8
        launch = self.tune_to_end(self.job(job))
        clone = launch.events("trial_cloned")[0]
        self.assertIn("/trials/0000/checkpoints/", clone["checkpoint"])
        own = self.trial(clone["trial"], "job.json")
        self.assertIn(f"/trials/{clone['trial']:04}/taken/0001/", json.loads(read_file(own))["resume_from"])
        alone = self.run_to_end(own, run_dir="alone")
        lines = read_lines(self.trial(clone["trial"], "metrics.jsonl"))
        after = {line["epoch"]: line["val_loss"] for line in lines if line["phase"] == "validate" and line["generation"] > 1}
        self.assertEqual({line["epoch"]: line["val_loss"] for line in alone.metrics("validate")}, after)
        weights = [read_file(os.path.join(sorted(paths)[-1], "model.safetensors"))
                   for paths in (alone.checkpoints(), [entry.path for entry in os.scandir(self.trial(clone["trial"], "checkpoints"))])]
        self.assertEqual(*weights)


class Interruptions(TuneCase):
    def started(self, launch, count):
        wait_for(lambda: len([n for n in os.listdir(self.folder) if n.startswith("started-")]) >= count or
                 launch.process.poll() is not None, 60, f"{count} trials")

    def test_signal_stops_all_trials_and_resume_goes_on(self):
        launch = self.tune("--run-dir", self.path("x"), self.command(WAITS, self.folder))
        self.started(launch, 2)
        os.kill(launch.process.pid, signal.SIGINT)
        self.assertEqual(launch.wait(), 130, launch.said())
        launch.wait_until_gone()
        self.assertEqual(launch.summary()["state"], "interrupted")
        self.write("go", "")
        resumed = self.resume()
        self.assertEqual({n: row["state"] for n, row in self.table().items()}, {0: "completed", 1: "completed", 2: "completed"})
        self.assertEqual(self.best()["value"], 0.1)
        self.assertEqual(len(resumed.events("trial_started")), 3)
        self.assertEqual(resumed.summary()["state"], "succeeded")

    def test_resume_of_training_goes_on_from_checkpoints_bit_for_bit(self):
        whole = self.tune("--run-dir", self.path("whole"), self.job(linear(seed=3)))
        self.assertEqual(whole.wait(120), 0, whole.said())
        expected = json.loads(read_file(self.path("whole", "best.json")))["value"]
        launch = self.tune("--run-dir", self.path("x"), self.job(linear(seed=3)))
        launch.wait_for_event("trial_report")
        os.kill(launch.process.pid, signal.SIGTERM)
        self.assertIn(launch.wait(), (143, 0), launch.said())
        launch.wait_until_gone()
        if launch.process.returncode == 143:
            self.resume()
        self.assertEqual(self.best()["value"], expected)

    def test_killed_launcher_goes_on_with_the_same_trials(self):
        launch = self.tune("--run-dir", self.path("x"), self.command(WAITS, self.folder))
        self.started(launch, 2)
        os.kill(launch.process.pid, signal.SIGKILL)
        launch.wait_until_gone(10)
        self.write("go", "")
        resumed = self.resume()
        self.assertEqual({n: row["state"] for n, row in self.table().items()}, {0: "completed", 1: "completed", 2: "completed"})
        self.assertEqual([event["trial"] for event in resumed.events("trial_started")], [0, 1, 2])
        self.assertEqual(len(resumed.events("coordinator_restarted")), 1)
        for number in range(3):
            self.assertEqual(len(read_lines(self.trial(number, "metrics.jsonl"))), 1)

    def test_kills_of_the_launcher_change_no_decision(self):
        """One trial at a time; reports that cross a decision are no decisions."""
        def decisions(folder):
            events = read_lines(self.path(folder, "events.jsonl"))
            return [(e["trial"], e["action"], e["iteration"], e["reason"]) for e in events
                    if e["event"] == "trial_decided" and e["reason"] != "not_running"]

        scheduler = {"type": "asha", "reduction_factor": 3, "mode": "promote"}
        job = linear(parameters={"training.optimizer.lr": {"loguniform": [0.00001, 0.02]}}, samples=9, seed=2, concurrent=1,
                     scheduler=scheduler)
        job["training"]["epochs"] = 9
        whole = self.tune("--run-dir", self.path("whole"), self.job(job))
        self.assertEqual(whole.wait(120), 0, whole.said())
        launch = self.tune("--run-dir", self.path("x"), self.job(job))
        for count in (2, 6, 11):
            launch.wait_for_event("trial_report", count=count)
            os.kill(launch.process.pid, signal.SIGKILL)
            launch.wait_until_gone(10)
            launch = self.tune("--resume", self.path("x"))
        self.assertEqual(launch.wait(120), 0, launch.said())
        self.assertEqual(decisions("x"), decisions("whole"))
        values = [json.loads(read_file(self.path(folder, "best.json")))["value"] for folder in ("x", "whole")]
        self.assertEqual(*values)

    def test_killed_rank_is_one_trials_failure(self):
        launch = self.tune("--run-dir", self.path("x"), self.command(WAITS, self.folder))
        self.started(launch, 2)
        (started,) = [e for e in read_lines(self.trial(0, "events.jsonl")) if e["event"] == "worker_started"]
        os.kill(started["pid"], signal.SIGKILL)
        wait_for(lambda: launch.events("trial_ended"), 60, "the trial's end")
        self.write("go", "")
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual({n: row["state"] for n, row in self.table().items()}, {0: "failed", 1: "completed", 2: "completed"})

    def test_more_samples_are_more_trials(self):
        self.tune_to_end(self.job(linear(samples=2)))
        before = self.table()
        self.assertIn("all of its 2 trials have ended", self.ask("tune", "--resume", self.path("x"), expect=2))
        self.resume("--samples", 4)
        after = self.table()
        self.assertEqual(sorted(after), [0, 1, 2, 3])
        self.assertEqual({n: after[n] for n in before}, before)
        self.assertIn("fewer are not possible", self.ask("tune", "--resume", self.path("x"), "--samples", 1, expect=2))

    def test_only_samples_of_an_experiment_may_change(self):
        self.tune_to_end(self.job(linear(samples=1)))
        self.assertIn("fixed", self.ask("tune", "--resume", self.path("x"), "--set", "training.epochs=8", expect=2))
        self.assertIn("no experiment", self.ask("tune", "--resume", self.path("x", "trials", "0000"), expect=2))


# A search program: halves the distance to what has been best so far. `fault`: after so many trials it does that.
SEARCHES = """
import json, sys, time
fault, after = sys.argv[1], int(sys.argv[2])
best, given = (None, 0.9), 0
for text in sys.stdin:
    line = json.loads(text)
    with open(sys.argv[3], "a") as file: file.write(text)
    if line["type"] == "end" and line["value"] is not None and (best[0] is None or line["value"] < best[0]):
        best = (line["value"], best[1])
    if line["type"] == "bye": break
    if line["type"] != "next": continue
    given += len(line.get("given", {}))
    for trial in line["trials"]:
        if str(trial) in line.get("given", {}): continue
        if fault == "dies" and given >= after: sys.exit(3)
        if fault == "hangs" and given >= after: time.sleep(1000)
        if fault == "ends" and given >= after:
            print(json.dumps({"type": "no_more"}), flush=True)
            break
        number = trial + 100 if fault == "lies" and given >= after else trial
        value = 7.5 if fault == "errs" and given >= after else 0.9 / (1 + trial)
        print(json.dumps({"type": "trial", "trial": number, "parameters": {"lr": value}}), flush=True)
        given += 1
"""


class Searches(TuneCase):
    """Trials that a program makes: what it is told, and what becomes of the experiment when it does not do its part."""

    def searching(self, fault="none", after=0, text=SCORED, arguments=(), **tune):
        program = self.script("search.py", SEARCHES)
        search = {"type": "exec", "command": [*program, fault, str(after), self.path("told")], "timeout": "2s"}
        return self.command(text, *arguments, parameters={"lr": {"uniform": [0, 1]}}, samples=5, search=search, **tune)

    def told(self, kind):
        return [line for line in read_lines(self.path("told")) if line["type"] == kind]

    def test_a_program_makes_the_trials_and_hears_how_they_end(self):
        launch = self.tune_to_end(self.searching())
        rows = self.table()
        self.assertEqual([rows[n]["parameters"]["lr"] for n in range(5)], [0.9 / (1 + n) for n in range(5)])
        ends = {line["trial"]: line for line in self.told("end")}
        self.assertEqual({n: line["outcome"] for n, line in ends.items()}, {n: "completed" for n in range(5)})
        self.assertEqual({n: line["value"] for n, line in ends.items()}, {n: rows[n]["value"] for n in range(5)})
        self.assertEqual(len(self.told("hello")), 1)
        self.assertEqual(len(self.told("bye")), 1)
        self.assertEqual(launch.summary()["tune"]["ended"], 5)

    def test_no_more_trials_than_the_program_gives(self):
        self.tune_to_end(self.searching("ends", 3))
        self.assertEqual(sorted(self.table()), [0, 1, 2])

    def failed(self, fault, words, trials):
        launch = self.tune_to_end(self.searching(fault, 2, concurrent=1), expect=1)
        self.assertIn(words, launch.summary()["error"])
        self.assertIn(words, launch.stderr())
        self.assertEqual({n: row["state"] for n, row in self.table().items()}, {n: "completed" for n in range(trials)})
        self.assertIsNotNone(self.best()["value"])

    def test_a_program_that_dies(self):
        self.failed("dies", "the search program has ended with exit code 3", 2)

    def test_a_program_that_hangs(self):
        self.failed("hangs", "the search program has said nothing for 2s, and owes trial 2", 2)

    def test_a_program_that_gives_what_was_not_asked_for(self):
        self.failed("lies", "gave trial 102, which was not asked for", 2)

    def test_a_program_that_gives_values_out_of_their_domain(self):
        self.failed("errs", "gave trial 2 wrong values", 2)

    def test_a_program_that_is_not_there(self):
        search = {"type": "exec", "command": ["no-such-search"]}
        job = self.command(SCORED, parameters={"lr": {"uniform": [0, 1]}}, samples=5, search=search)
        said = self.ask("tune", "--run-dir", self.path("x"), job, expect=2)
        self.assertIn("no-such-search", said)
        self.assertFalse(os.path.exists(self.path("x")))

    def test_a_new_program_after_a_kill_is_told_what_was_given(self):
        launch = self.tune("--run-dir", self.path("x"), self.searching(text=WAITS, arguments=[self.folder]))
        wait_for(lambda: len([n for n in os.listdir(self.folder) if n.startswith("started-")]) >= 2, 60, "two trials")
        os.kill(launch.process.pid, signal.SIGKILL)
        launch.wait_until_gone(10)
        self.write("go", "")
        os.rename(self.path("told"), self.path("told-before"))
        self.resume()
        first = self.told("next")[0]
        self.assertEqual(first["given"], {"0": {"lr": 0.9}, "1": {"lr": 0.45}})
        self.assertEqual(sorted(self.table()), [0, 1, 2, 3, 4])


class Refusals(TuneCase):
    """Bad input: all of it at once, exit code 2, nothing made."""

    def refused(self, job, *arguments):
        path = self.job(job) if isinstance(job, dict) else job
        said = self.ask("tune", "--run-dir", self.path("x"), path, *arguments, expect=2)
        self.assertFalse(os.path.exists(self.path("x")), said)
        return said

    def test_unknown_path(self):
        said = self.refused(linear(parameters={"training.optimizer.learning_rate": {"uniform": [0.1, 1]}}))
        self.assertIn("training.optimizer.learning_rate", said)

    def test_empty_domain(self):
        self.assertIn("choice", self.refused(linear(parameters={"training.optimizer.lr": {"choice": []}})))

    def test_missing_mode_and_no_samples_are_told_together(self):
        job = linear(samples=0)
        del job["tune"]["mode"]
        said = self.refused(job)
        self.assertIn("mode", said)
        self.assertIn("tune.samples", said)

    def test_grid_of_a_thousand_million_points(self):
        thousand = list(range(1, 1001))
        job = linear(parameters={f"training.{key}": {"grid": thousand} for key in ("epochs", "batch_size", "seed")}, samples=1)
        self.assertIn("1000000000", self.refused(job))

    def test_conditions_between_keys_are_checked_for_every_trial(self):
        job = linear(parameters={"min_workers": {"grid": [1, 2]}}, samples=1)
        said = self.refused(job)
        self.assertIn("trial 1 (min_workers=2): ", said)

    def test_job_without_tune(self):
        job = linear()
        del job["tune"]
        self.assertIn("has no \"tune\"", self.refused(job))

    def test_run_of_an_experiment(self):
        said = self.ask("run", "--run-dir", self.path("x"), self.job(linear()), expect=2)
        self.assertIn("sgd-launch tune", said)
        self.assertFalse(os.path.exists(self.path("x")))

    def test_missing_program_is_said_once(self):
        job = {"name": "c", "command": ["no-such-program", "{lr}"], "tune": linear()["tune"] | {"parameters": {"lr": {"uniform": [0, 1]}}}}
        self.assertEqual(self.refused(job).count("no-such-program"), 1)

    def test_status_of_a_run_that_is_no_experiment(self):
        job = linear()
        del job["tune"]
        self.run_to_end(self.job(job), run_dir="run")
        self.assertIn("is no experiment", self.ask("tune", "status", self.path("run"), expect=4))


class OnACluster(unittest.TestCase):
    """The same machine in a daemon: its trials run on any node, and a new coordinator goes on with them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-tune-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.cluster = Cluster({"n1": 1, "n2": 1})
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__)

    def experiment(self, text, samples):
        script = os.path.join(self.folder, "trial.py")
        with open(script, "w") as file:
            file.write(text)
        job = {"name": "search", "command": ["/usr/bin/python3", "-S", script, "{lr}", self.folder],
               "tune": {"parameters": {"lr": {"uniform": [0, 1]}}, "samples": samples, "concurrent": 2, "metric": "loss", "mode": "min"}}
        path = os.path.join(self.folder, "job.json")
        with open(path, "w") as file:
            json.dump(job, file)
        return self.cluster.run("tune", path)

    def started(self, count):
        wait_for(lambda: len([n for n in os.listdir(self.folder) if n.startswith("started-")]) >= count, 60, f"{count} trials")

    def test_trials_run_on_all_nodes_and_survive_the_coordinator(self):
        client = self.experiment(WAITS, 4)
        run = client.run_id()
        self.started(2)
        self.cluster.kill("coordinator")
        with open(os.path.join(self.folder, "go"), "w"):
            pass
        self.cluster.start_coordinator()
        self.assertEqual(client.wait(120), 0, client.said())
        self.assertIn("4/4 trials", client.said()[0])
        ends = self.cluster.events(run, "trial_ended")
        self.assertEqual(sorted(event["trial"] for event in ends), [0, 1, 2, 3])
        self.assertEqual([event["trial"] for event in self.cluster.events(run, "trial_started")], [0, 1, 2, 3])
        best = json.loads(read_file(os.path.join(self.cluster.run_dir(run), "best.json")))
        self.assertEqual(best["value"], min(event["best"] for event in ends))
        nodes = {event["node"] for trial in range(4) for event in self.cluster.lines(f"{run}/trials/{trial:04}")
                 if event["event"] == "worker_started"}
        self.assertEqual(nodes, {"n1", "n2"})
        self.assertEqual([row["run"] for row in self.cluster.ask("ps", "--all")["runs"]], [run])

    def test_stop_ends_all_trials(self):
        client = self.experiment(WAITS, 4)
        run = client.run_id()
        self.started(2)
        self.assertEqual(self.cluster.run("stop", run).wait(), 0)
        self.assertEqual(client.wait(120), 6, client.said())
        self.assertEqual({event["state"] for event in self.cluster.events(run, "trial_ended")}, {"cancelled"})
        self.assertEqual(len(self.cluster.events(run, "trial_ended")), 2)

    def test_what_only_a_launcher_can_do_is_refused(self):
        path = os.path.join(self.folder, "job.json")
        job = linear(search={"type": "exec", "command": ["true"]})
        with open(path, "w") as file:
            json.dump(job, file)
        client = self.cluster.run("tune", path)
        self.assertEqual(client.wait(60), 2)
        self.assertIn("tune.search.type", client.said()[0])


class Examples(TuneCase):
    def test_example_with_a_command(self):
        self.tune_to_end(os.path.join(CONFIGS, "tune_command.json"))
        self.assertEqual(len(self.table()), 10)

    def test_example_of_a_grid(self):
        self.tune_to_end(os.path.join(CONFIGS, "tune_grid.json"))
        kinds = {(row["parameters"]["training.optimizer.type"], row["parameters"]["training.optimizer.lr"]) for row in self.table().values()}
        self.assertEqual(len(kinds), 6)


if __name__ == "__main__":
    unittest.main()
