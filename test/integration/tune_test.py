"""Experiments through the real program: trials of a job, the best of them, and what becomes of them when anything is killed."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import CONFIGS, LAUNCHER, ROOT, read_file, read_lines, wait_for
from tuning import KEEPS, SCORED, WAITS, TuneCase, copying, linear


def change_store(path, old, new):
    """Wherever the text stands in it."""
    store = sqlite3.connect(path)
    tables = [name for name, in store.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    for table in tables:
        for column in [row[1] for row in store.execute(f"PRAGMA table_info({table})")]:
            store.execute(f"UPDATE {table} SET {column} = replace({column}, ?, ?) WHERE instr({column}, ?) > 0", (old, new, old))
    store.commit()
    store.close()


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

    def test_commands_start_where_the_launcher_was_started(self):
        python = self.script("trial.py", SCORED)[0]
        grid = {"parameters": {"lr": {"grid": [0.1, 0.3]}}, "metric": "loss", "mode": "min"}
        self.tune_to_end(self.job({"command": [python, "trial.py", "{lr}"], "tune": grid}))
        self.assertEqual(self.best()["parameters"], {"lr": 0.3})
        # Its job alone does so too, wherever somebody is.
        os.mkdir(self.path("elsewhere"))
        ended = subprocess.run([LAUNCHER, self.path("x", "trials", "0001", "job.json")], capture_output=True, text=True, timeout=60,
                               cwd=self.path("elsewhere"), stdin=subprocess.DEVNULL)
        self.assertEqual(ended.returncode, 0, ended.stderr)

    def test_of_what_a_trial_prints_the_last_line_counts_and_no_older_one(self):
        """One that has diverged is no better for what it said before."""
        text = ("import json, sys\nprint(json.dumps({'loss': 0.01}))\n"
                "last = {'0.1': {'loss': float('nan')}, '0.3': {'loss': 0.2, 'rest': 'x' * 9000}, '0.7': {'loss': 0.7, 'rest': 'x' * 5000}}\n"
                "print(json.dumps(last[sys.argv[1]]))\n")
        launch = self.tune_to_end(self.command(text))
        self.assertEqual({n: row["best"] for n, row in self.table().items()}, {0: None, 1: None, 2: 0.7})
        self.assertEqual(self.best()["trial"], 2)
        (refused,) = launch.events("last_line_refused")
        self.assertEqual((refused["trial"], refused["why"]), (1, "it is longer than 8 KiB"))
        self.assertIn("trial 1: what it printed last is no line of metrics: it is longer than 8 KiB", launch.stderr())

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
        job = linear(parameters={"training.optimizer.lr": {"grid": [0.001, 1e-6, 2e-6, 3e-6]}}, scheduler=scheduler, concurrent=1)
        job["training"]["epochs"] = 9
        job["training"]["dataset"]["samples"] = 40_000  # A trial of milliseconds would be at its end before its stop arrives.
        launch = self.tune_to_end(self.job(job), "--samples", 1)
        states = {number: (row["state"], row["iteration"]) for number, row in self.table().items()}
        self.assertEqual(states[0], ("completed", 9))
        for number in (1, 2, 3):
            self.assertEqual(states[number][0], "stopped", states)
        decided = [event for event in launch.events("trial_decided") if event["action"] == "stop"]
        reasons = {event["trial"]: event["reason"] for event in decided}
        self.assertEqual(reasons.pop(0), "max_epochs")  # It has had all that a trial may have.
        self.assertEqual(reasons, {1: "below_bound", 2: "below_bound", 3: "below_bound"})
        self.assertTrue(all(event["why"] for event in decided))

    def test_asha_by_promotion_goes_on_from_checkpoints(self):
        scheduler = {"type": "asha", "max_epochs": 3, "reduction_factor": 3, "mode": "promote"}
        rates = {"training.optimizer.lr": {"grid": [0.001, 1e-8, 2e-8]}}  # The first one has to wait for the others.
        job = linear(parameters=rates, scheduler=scheduler, samples=1, concurrent=1)
        job["training"]["dataset"]["samples"] = 300_000  # A trial of milliseconds would be at its end before its pause arrives.
        launch = self.tune_to_end(self.job(job))
        resumed = [event["trial"] for event in launch.events("trial_decided") if event["action"] == "resume"]
        self.assertEqual(resumed, [0])
        self.assertEqual(self.table()[0]["iteration"], 3)
        events = read_lines(self.trial(0, "events.jsonl"))
        self.assertEqual([e["source"] for e in events if e["event"] == "restored"], ["disk"])
        whole = self.run_to_end(self.trial(0, "job.json"), run_dir="alone")
        trial = [line["val_loss"] for line in read_lines(self.trial(0, "metrics.jsonl")) if line["phase"] == "validate"]
        self.assertEqual(trial, [line["val_loss"] for line in whole.metrics("validate")])

    def test_pbt_goes_on_from_a_better_trial_and_its_job_gives_the_same_alone(self):
        """One trial at a time, so that who is compared with whom does not depend on how fast they are."""
        job = copying()
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


    def test_pbt_gives_the_same_twice(self):
        """What is copied is the state that was compared, and not how far its donor has come since."""
        job = copying()
        told = []
        for folder in ("x", "y"):
            launch = self.tune("--run-dir", self.path(folder), self.job(job))
            self.assertEqual(launch.wait(120), 0, launch.said())
            events = read_lines(self.path(folder, "events.jsonl"))
            steps = {line["step"]: line["epoch"] for line in read_lines(self.path(folder, "trials", "0000", "metrics.jsonl"))
                     if line["phase"] == "validate"}
            clones = [event["checkpoint"] for event in events if event["event"] == "trial_cloned"]
            self.assertTrue(clones)
            for name in clones:
                if "/trials/0000/" in name:
                    self.assertEqual(steps[int(name.split("/step-")[1].split("-")[0])] % 2, 0, name)
            told.append([(event["trial"], event["value"]) for event in events if event["event"] == "trial_report"])
        self.assertEqual(*told)

    def test_pbt_copies_what_a_python_command_has_saved(self):
        module = os.path.join(ROOT, "worker", "python")
        scheduler = {"type": "pbt", "interval_epochs": 2, "quantile": 0.5, "mutates": ["lr"]}
        path = self.command(KEEPS, parameters={"lr": {"grid": [0.1, 0.7]}}, concurrent=1, scheduler=scheduler)
        job = json.loads(read_file(path))
        job["env"] = {"PYTHONPATH": module}
        launch = self.tune_to_end(self.job(job))
        (clone,) = launch.events("trial_cloned")
        self.assertEqual(clone["trial"], 1)
        self.assertIn("/trials/0000/checkpoints/step-000000000002-", clone["checkpoint"])
        lines = read_lines(self.trial(1, "metrics.jsonl"))
        self.assertEqual([(line["begun_with"], line["step"]) for line in lines], [(0.7, 1), (0.7, 2), (0.1, 3), (0.1, 4)])
        self.assertEqual([row["state"] for row in self.table().values()], ["completed", "completed"])
        again = self.start(self.trial(1, "job.json"), run_dir="again")
        self.assertEqual(again.wait(), 0, again.said())
        self.assertEqual([(line["begun_with"], line["step"]) for line in again.metrics()], [(0.1, 3), (0.1, 4)])


class LiveTrials(TuneCase):
    """They have no launcher of their own: that of their experiment answers for them."""

    def test_status_logs_and_stop_of_a_live_trial(self):
        launch = self.tune("--run-dir", self.path("x"), self.command("print('begun', flush=True)\n" + WAITS, self.folder))
        wait_for(lambda: all(os.path.exists(self.path("started-" + lr)) for lr in ("0.1", "0.3")) or
                 launch.process.poll() is not None, 60, "two trials")
        status = json.loads(self.ask("status", "--json", self.path("x", "trials", "0000")))
        self.assertIn(status["state"], ("starting", "running"))
        self.assertEqual(status["run_dir"], self.path("x", "trials", "0000"))
        logs = self.start("logs", "-f", self.path("x", "trials", "0001"), run_dir=None)
        wait_for(lambda: b"begun" in logs.stdout(), 60, "what it has printed")
        self.assertIn("stopped", self.ask("stop", self.path("x", "trials", "0000")))
        self.assertIsNone(logs.process.poll())
        self.write("go", "")
        self.assertEqual(logs.wait(), 0, logs.said())
        self.assertIn('{"loss": 0.3}', logs.stdout().decode())
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual({n: row["state"] for n, row in self.table().items()}, {0: "cancelled", 1: "completed", 2: "completed"})
        self.assertIn("is not running", self.ask("stop", self.path("x", "trials", "0001"), expect=3))

    def test_a_trial_without_a_place_is_placing_and_why_is_said(self):
        launch = self.tune("--run-dir", self.path("x"), "-n", 2, "--slots", 1, "--quiet", self.command(WAITS, self.folder))
        wait_for(lambda: "2 slots wanted, 1 free on 1 node" in launch.stderr() or
                 launch.process.poll() is not None, 60, "the reason")
        self.assertIsNone(launch.process.poll(), launch.said())
        self.assertEqual(self.table()[0]["state"], "placing")
        said = self.ask("tune", "status", self.path("x"))
        self.assertNotIn("at work", said)
        self.assertIn(" placing", said)
        os.kill(launch.process.pid, signal.SIGINT)
        self.assertEqual(launch.wait(), 130, launch.said())
        launch.wait_until_gone()
        self.assertNotIn("placing", {row["state"] for row in self.table().values()})

    def test_one_that_was_made_behind_a_link_goes_on(self):
        os.mkdir(self.path("real"))
        os.symlink("real", self.path("link"))
        made = self.tune("--run-dir", self.path("link", "y"), self.job(linear(samples=1)))
        self.assertEqual(made.wait(120), 0, made.said())
        for samples, folder in ((2, "link"), (3, "real")):
            resumed = self.tune("--resume", self.path(folder, "y"), "--samples", samples)
            self.assertEqual(resumed.wait(120), 0, resumed.said())
        self.assertEqual(len(json.loads(self.ask("tune", "status", "--json", self.path("real", "y")))["rows"]), 3)
        os.rename(self.path("real", "y"), self.path("elsewhere"))
        self.assertIn("move it back there", self.ask("tune", "--resume", self.path("elsewhere"), "--samples", 4, expect=2))


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

    def test_all_trials_stop_with_the_program_that_started_them(self):
        heard, held = os.pipe()
        launch = self.tune("--run-dir", self.path("x"), "--lifeline", 0, self.command(WAITS, self.folder), stdin=heard)
        os.close(heard)
        self.started(launch, 2)
        os.close(held)
        self.assertEqual(launch.wait(), 129, launch.said())
        launch.wait_until_gone()
        self.assertEqual(launch.summary()["state"], "interrupted")

    def test_one_that_was_stopped_with_nothing_left_to_do_is_done_when_it_goes_on(self):
        """Its trial has reached its bound, and is ending."""
        text = ("import os, signal, sys, time\nimport sgd_launch\n"
                "for number in (signal.SIGINT, signal.SIGTERM): signal.signal(number, signal.SIG_IGN)\n"
                "sgd_launch.report(loss=0.1)\n") + WAITS
        job = json.loads(read_file(self.command(text, self.folder, parameters={"lr": {"grid": [0.1]}}, stop={"loss": 0.5})))
        job["env"] = {"PYTHONPATH": os.path.join(ROOT, "worker", "python")}
        launch = self.tune("--run-dir", self.path("x"), self.job(job))
        launch.wait_for_event("trial_stopping")
        os.kill(launch.process.pid, signal.SIGINT)
        wait_for(lambda: "stopping all trials" in launch.stderr(), 60, "the signal to be heard")
        self.write("go", "")
        self.assertEqual(launch.wait(), 130, launch.said())
        launch.wait_until_gone()
        self.assertEqual({row["state"] for row in self.table().values()}, {"completed"})
        resumed = self.resume()
        self.assertEqual(resumed.summary()["state"], "succeeded")
        self.assertEqual(len(resumed.events("trial_ended")), 1)
        self.assertIn("all of its 1 trials have ended", self.ask("tune", "--resume", self.path("x"), expect=2))

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
            self.assertIn("to go on from there: sgd-launch tune --resume", launch.stderr())
            self.resume()
        self.assertEqual(self.best()["value"], expected)

    def test_killed_launcher_goes_on_with_the_same_trials(self):
        launch = self.tune("--run-dir", self.path("x"), self.command(WAITS, self.folder))
        self.started(launch, 2)
        os.kill(launch.process.pid, signal.SIGKILL)
        launch.wait_until_gone(10)
        self.assertIn("its launcher was killed, and its trials with it; to go on: sgd-launch tune --resume", self.ask("tune", "status", self.path("x")))
        self.write("go", "")
        resumed = self.resume()
        self.assertEqual(json.loads(self.ask("tune", "status", "--json", self.path("x")))["state"], "succeeded")
        self.assertEqual({n: row["state"] for n, row in self.table().items()}, {0: "completed", 1: "completed", 2: "completed"})
        self.assertEqual([event["trial"] for event in resumed.events("trial_started")], [0, 1, 2])
        self.assertEqual(len(resumed.events("coordinator_restarted")), 1)
        for number in range(3):
            self.assertEqual(len(read_lines(self.trial(number, "metrics.jsonl"))), 1)

    def test_one_of_another_version_fails_with_words(self):
        launch = self.tune("--run-dir", self.path("x"), self.command(WAITS, self.folder, scheduler={"type": "median"}))
        self.started(launch, 2)
        os.kill(launch.process.pid, signal.SIGKILL)
        launch.wait_until_gone(10)
        change_store(self.path("x", "state", "coordinator.db"), '"median"', '"bohb"')
        resumed = self.resume(expect=2)
        self.assertIn("submitted to another version of sgd-launch, and this one refuses it: ", resumed.stderr())
        self.assertIn('"bohb"', resumed.summary()["error"])
        again = self.ask("tune", "--resume", self.path("x"), expect=2)
        self.assertIn("submitted to another version", again)

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
        job["training"]["dataset"]["samples"] = 50_000  # A trial of milliseconds would be at its end before its pause arrives.
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
        (started,) = wait_for(lambda: [e for e in read_lines(self.trial(0, "events.jsonl")) if e["event"] == "worker_started"], 60, "its event")
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
        self.assertIn('--resume: error: no run "nope"', self.ask("tune", "--resume", "nope", expect=4))


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

    def test_a_word_for_the_number_of_workers(self):
        said = self.refused(linear(), "--num-workers", "xpu")
        self.assertIn("there is no way to count XPUs", said)
        self.assertEqual(said.count("error:"), 1, said)

    def test_run_of_an_experiment(self):
        said = self.ask("run", "--run-dir", self.path("x"), self.job(linear()), expect=2)
        self.assertIn("sgd-launch tune", said)
        self.assertFalse(os.path.exists(self.path("x")))

    def test_what_the_schema_and_what_the_experiment_says_is_told_together(self):
        job = linear(samples=0, parameters={"training.optimizer.lrr": {"uniform": [0, 1]}, "training.seed": {"loguniform": [9, 1]}})
        said = self.refused(job)
        for words in ("tune.samples", "training.optimizer.lrr", "training.seed"):
            self.assertIn(words, said)

    def test_other_verbs_leave_an_experiment_as_it_is(self):
        self.tune_to_end(self.job(linear(samples=1)))
        before = read_file(self.path("x", "summary.json"))
        for words in (["resume", self.path("x")], ["validate", self.path("x")], ["plan", self.path("x", "job.json")]):
            with self.subTest(words):
                self.assertIn("sgd-launch tune starts them, and continues them with --resume", self.ask(*words, expect=2))
        self.assertEqual(read_file(self.path("x", "summary.json")), before)

    def test_status_says_where_the_best_checkpoint_is_and_how_the_experiment_goes_on(self):
        job = linear(samples=2, concurrent=1)
        job["training"]["epochs"] = 1_000_000
        launch = self.tune("--run-dir", self.path("x"), self.job(job))
        wait_for(lambda: any(event["event"] == "checkpoint_saved" for event in read_lines(self.trial(0, "events.jsonl")))
                 if os.path.exists(self.trial(0, "events.jsonl")) else launch.process.poll() is not None, 60, "a checkpoint")
        launch.process.send_signal(signal.SIGINT)
        self.assertEqual(launch.wait(120), 130, launch.said())
        said = self.ask("status", self.path("x"))
        for line in said.splitlines():
            if line.startswith("checkpoint "):
                self.assertTrue(os.path.isdir(line.split()[1]), said)
        following = said.splitlines()[-1].split()
        self.assertEqual(following[:4], ["next", "sgd-launch", "tune", "--resume"], said)
        resumed = self.tune("--resume", following[4], "--timeout", "1s")
        self.assertEqual(resumed.wait(120), 124, resumed.said())

    def test_missing_program_is_said_once(self):
        job = {"name": "c", "command": ["no-such-program", "{lr}"], "tune": linear()["tune"] | {"parameters": {"lr": {"uniform": [0, 1]}}}}
        self.assertEqual(self.refused(job).count("no-such-program"), 1)

    def test_status_of_a_run_that_is_no_experiment(self):
        job = linear()
        del job["tune"]
        self.run_to_end(self.job(job), run_dir="run")
        self.assertIn("is not an experiment", self.ask("tune", "status", self.path("run"), expect=4))


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
