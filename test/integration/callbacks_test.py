"""Callbacks beside the launcher: RaySGD's results.json, CSV, TensorBoard, the terminal. Cases of RaySGD's tests have their names."""

import csv
import io
import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from data import linear_job, write_job
from event_files import event_file, events, tensorboard_reads
from harness import LAUNCHER, LIMIT_S, LaunchTest, read_file, wait_for

SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")
RANK = os.path.join(SUPPORT, "reporting_rank.py")
FILES = [{"type": "json"}, {"type": "csv"}, {"type": "tensorboard"}]
AUTOFILLED = {"_timestamp", "_time_this_iter_s", "_training_iteration"}
DETAILED = {"_date", "_hostname", "_node_ip", "_pid", "_time_total_s"}


def reports_of(folder):
    return [event for event in events(event_file(folder)) if event["scalars"] or event["histograms"]]


def flat(values, front=""):
    """As a CSV row has them: nested ones by their paths, without those that are not there."""
    found = {}
    for key, value in values.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{front}{key}/"))
        elif value is not None:
            found[front + key] = value
    return found


def cell(text):
    try:
        return json.loads(text)
    except ValueError:
        return text


class CallbackTest(LaunchTest):
    def job(self, callbacks, **changes):
        return write_job(self.path("job.json"), {**linear_job(2, **{"epochs": 3, **changes}), "callbacks": callbacks})

    def command_job(self, callbacks, *arguments, **changes):
        command = ["/usr/bin/python3", "-S", RANK, *map(str, arguments)]
        return write_job(self.path("job.json"), {"name": "reports", "num_workers": 1, "command": command, "callbacks": callbacks, **changes})

    def results(self, launch, name="results.json"):
        return json.loads(read_file(os.path.join(launch.run_dir, name)))

    def rows(self, launch):
        return list(csv.DictReader(io.StringIO(read_file(os.path.join(launch.run_dir, "progress.csv")).decode())))

    def check_files(self, launch):
        """Each file has every report of the run once, in their order, and nothing else."""
        metrics = launch.metrics()
        self.assertEqual([line["_training_iteration"] for line in metrics], list(range(1, len(metrics) + 1)))
        self.assertEqual(self.results(launch), [[line] for line in metrics])
        rows = self.rows(launch)
        self.assertEqual([int(row["_training_iteration"]) for row in rows], list(range(1, len(metrics) + 1)))
        for row, line in zip(rows, metrics):
            self.assertEqual({key: cell(value) for key, value in row.items() if value}, flat(line))
        folder = os.path.join(launch.run_dir, "tensorboard")
        reported = reports_of(folder)
        self.assertEqual([event["step"] for event in reported], list(range(1, len(metrics) + 1)))
        for event, line in zip(reported, metrics):
            self.assertEqual(event["time"], line["_timestamp"])
            self.assertEqual(event["scalars"][f"{line['phase']}/step"], line["step"])
        return metrics


class LayoutTest(CallbackTest):
    def test_json(self):
        """A JSON array after every report, an element a report, each the list of the chosen workers' results."""
        job = self.command_job([{"type": "json"}], 1, 40, "--pause", 0.01, "--pace", self.path("pace"))
        launch = self.start(job)
        path = os.path.join(launch.run_dir, "results.json")

        def has(count):
            text = read_file(path)
            return text and len(json.loads(text)) == count  # Valid at any time.
        for count in (1, 3, 10, 20, 39):
            self.write("pace", count * "x")
            wait_for(lambda count=count: has(count), LIMIT_S, f"{count} reports in results.json")
        self.write("pace", 40 * "x")
        self.assertEqual(launch.wait(), 0, launch.said())
        results = self.results(launch)
        self.assertEqual([len(element) for element in results], [1] * 40)
        self.assertEqual([element[0]["loss"] for element in results], list(range(1, 41)))
        for number, element in enumerate(results, 1):
            self.assertLessEqual(AUTOFILLED, set(element[0]))
            self.assertFalse(DETAILED & set(element[0]))
            self.assertEqual(element[0]["_training_iteration"], number)
            self.assertIsInstance(element[0]["_timestamp"], int)

    def test_json_of_a_training(self):
        launch = self.run_to_end(self.job([{"type": "json", "file": "mine.json", "metrics": ["*_loss"]}]))
        results = self.results(launch, "mine.json")
        self.assertEqual(len(results), 6)
        for element, line in zip(results, launch.metrics()):
            marks = {key: value for key, value in line.items() if key.startswith("_") or key in ("phase", "epoch", "step")}
            self.assertEqual(element, [{**{key: value for key, value in line.items() if key.endswith("_loss")}, **marks}])
        self.assertFalse(os.path.exists(os.path.join(launch.run_dir, "results.json")))

    def test_json_without_reports(self):
        launch = self.run_to_end(write_job(self.path("job.json"), {"command": ["true"], "callbacks": FILES}))
        self.assertEqual(read_file(os.path.join(launch.run_dir, "results.json")), b"[]\n")
        self.assertEqual(read_file(os.path.join(launch.run_dir, "progress.csv")), b"")
        self.assertEqual(reports_of(os.path.join(launch.run_dir, "tensorboard")), [])

    def test_json_of_the_run_before(self):
        """RaySGD's writes results.json anew for each run; what lies at the place is replaced."""
        os.mkdir(self.path("shared"))
        self.write("shared/results.json", "no JSON")
        callbacks = [{"type": "json", "folder": "shared"}]
        for run in ("one", "two"):
            launch = self.run_to_end(self.job(callbacks), run_dir=run)
            self.assertEqual(json.loads(read_file(self.path("shared", "results.json"))), [[line] for line in launch.metrics()])

    def test_TBX(self):
        """Tags ray/sgd/<key>, nested ones joined, a list is a histogram, the step is the iteration."""
        metrics = {"hello": {"world": 3.5}, "list": [1, 2, 2, 5], "text": "x", "empty": [], "nan": None, "yes": True}
        job = self.command_job([{"type": "tensorboard", "prefix": "ray/sgd/"}], 1, 3, "--metrics", json.dumps(metrics))
        launch = self.run_to_end(job)
        folder = os.path.join(launch.run_dir, "tensorboard")
        reported = reports_of(folder)
        self.assertEqual([event["step"] for event in reported], [1, 2, 3])
        tags = {"loss", "hello/world", "yes", "epoch", "step", "generation", "world_size", "_time_this_iter_s"}
        for number, event in enumerate(reported, 1):
            self.assertEqual(set(event["scalars"]), {f"ray/sgd/{tag}" for tag in tags})
            self.assertEqual(event["scalars"]["ray/sgd/loss"], number)
            self.assertEqual(event["scalars"]["ray/sgd/hello/world"], 3.5)
            self.assertEqual(event["histograms"], {"ray/sgd/list": (1, 5, 4)})
        whole = events(event_file(folder))
        self.assertEqual(whole[0]["version"], "brain.Event:2")
        self.assertEqual([event["others"] for event in whole if event["others"]],
                         [["_hparams_/session_start_info"], ["_hparams_/session_end_info"]])

    def test_TBX_read_by_TensorBoard(self):
        launch = self.run_to_end(self.job([{"type": "tensorboard", "step": "epoch"}, {"type": "tensorboard", "folder": "tb", "metrics": ["val_loss"]}]))
        read = tensorboard_reads(os.path.join(launch.run_dir, "tensorboard"))
        if read is None:
            self.skipTest("TensorBoard's package is not installed")
        for phase, key in (("train", "train_loss"), ("validate", "val_loss")):
            expected = [[line.get("epoch", 0), line[key]] for line in launch.metrics(phase)]
            got = read["scalars"][f"{phase}/{key}"]
            self.assertEqual([step for step, _ in got], [step for step, _ in expected])
            for (_, a), (_, b) in zip(got, expected):
                self.assertAlmostEqual(a, b, delta=1e-6 * max(1, abs(b)))
        self.assertEqual(read["hparams"]["optimizer.lr"], 0.01)
        self.assertEqual(read["hparams"]["optimizer.type"], "sgd")
        self.assertEqual(read["hparams"]["num_workers"], 2)
        self.assertEqual(read["status"], 1)
        self.assertEqual(list(tensorboard_reads(self.path("tb"))["scalars"]), ["validate/val_loss"])

    def test_TBX_histograms_read_by_TensorBoard(self):
        metrics = {"list": [0.0, 1.0, 1.0, 3.0]}
        launch = self.run_to_end(self.command_job([{"type": "tensorboard"}], 1, 2, "--metrics", json.dumps(metrics)))
        read = tensorboard_reads(os.path.join(launch.run_dir, "tensorboard"))
        if read is None:
            self.skipTest("TensorBoard's package is not installed")
        histogram = read["histograms"]["train/list"]
        self.assertEqual([step for step, _ in histogram], [1, 2])
        self.assertEqual([sum(bins) for _, bins in histogram], [4, 4])

    def test_print(self):
        """RaySGD's PrintCallback: every report, as JSON with an indent of 4; or as a line."""
        launch = self.run_to_end(self.command_job([{"type": "console", "format": "json", "metrics": ["loss"]}, {"type": "console"}], 1, 2))
        said = launch.stdout().decode()
        self.assertIn('{\n    "phase": "train",\n    "epoch": 1,\n    "loss": 1', said)
        self.assertRegex(said, r"(?m)^report 2  train  epoch 2  step 2  loss 2(\.0)?  generation 1  world_size 1$")


    def test_beside_a_stream_of_JSON(self):
        """Every report is a line of it anyway."""
        launch = self.run_to_end(self.command_job([{"type": "console"}, {"type": "console", "format": "json"}], 1, 2), "--output", "json")
        self.assertEqual([json.loads(line)["loss"] for line in launch.stdout().splitlines()], [1, 2])


class LifeTest(CallbackTest):
    """Reports are in each file once, whatever ends."""

    def test_ranks_that_are_killed(self):
        launch = self.start(self.job(FILES, dataset={"type": "linear", "samples": 200000, "validation_samples": 1000}, epochs=6),
                            "--num-workers", 1, "--max-failures", "unlimited")
        for generation in (1, 2, 3):
            launch.wait_for_event("first_step", count=generation)
            os.kill(launch.events("worker_started")[-1]["pid"], signal.SIGKILL)
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual(len(self.check_files(launch)), 12)

    def test_a_launcher_that_is_killed_and_resume(self):
        job = self.job(FILES, dataset={"type": "linear", "samples": 400000, "validation_samples": 1000}, epochs=5)
        launch = self.start(job, "--num-workers", 1)
        for life in range(3):
            wait_for(lambda: len(launch.metrics()) > 2 * life, LIMIT_S, "reports")
            launch.process.kill()
            launch.wait()
            launch.wait_until_gone(10)
            # What a kill at another moment leaves.
            with open(event_file(os.path.join(launch.run_dir, "tensorboard")), "r+b") as file:
                file.truncate(os.path.getsize(file.name) - 5)
            with open(os.path.join(launch.run_dir, "progress.csv"), "ab") as file:
                file.write(b"train,5,0.")
            run_dir = launch.run_dir
            launch = self.start("resume", run_dir, run_dir=None)
            launch.run_dir = run_dir
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual(len(self.check_files(launch)), 10)

    def test_a_run_that_is_resumed_with_more_epochs(self):
        launch = self.run_to_end(self.job(FILES))
        again = self.run_to_end("resume", launch.run_dir, "--set", "training.epochs=5", run_dir=None)
        again.run_dir = launch.run_dir
        self.assertEqual(len(self.check_files(again)), 10)

    def test_a_folder_that_cannot_be_written(self):
        """Said with its file; the run goes on, and what is missing is told at its end."""
        self.write("blocked", "")
        launch = self.run_to_end(self.job([{"type": "csv", "folder": "blocked/here"}, {"type": "json"}]))
        said = launch.stderr()
        self.assertEqual(said.count("it is tried again, and the run goes on"), 1, said)
        self.assertIn("not all of the run's 6 reports are in", said)
        self.assertEqual(self.results(launch), [[line] for line in launch.metrics()])

    def test_a_terminal_that_is_not_read(self):
        """Limit kWaitingBytesMax: reports are left out and counted, and the run is over in time."""
        job = self.command_job([{"type": "console"}], 1, 100, "--pad", 30000)
        with subprocess.Popen([LAUNCHER, "--run-dir", self.path("run"), job], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              stdin=subprocess.DEVNULL, cwd=self.folder) as process:
            self.addCleanup(process.kill)
            wait_for(lambda: read_file(self.path("run", "summary.json")), LIMIT_S, "the run's end")
            out, err = process.communicate(timeout=LIMIT_S)
        printed = out.count(b"\nreport ") + out.startswith(b"report ")
        self.assertRegex(err.decode(), rf"callback console: {100 - printed} reports were not printed")
        self.assertLess(printed, 60)
        self.assertGreater(printed, 10)


class ClusterCallbackTest(CallbackTest):
    def test_files_in_the_coordinators_folder(self):
        """Over kills of the coordinator; the terminal is where the run is followed."""
        with Cluster({"n1": 1}) as cluster:
            job = self.command_job([*FILES, {"type": "console", "metrics": ["loss"]}], 1, 60, "--pause", 0.02)
            client = cluster.run("-n", 1, job)
            run = client.run_id()
            for count in (10, 30):
                wait_for(lambda: len(cluster.lines(run, "metrics.jsonl")) >= count, LIMIT_S, "reports")
                cluster.kill("coordinator")
                cluster.start_coordinator()
            client.wait_and_say(0)
            launch = type("Run", (), {"run_dir": cluster.run_dir(run), "metrics": lambda _: cluster.lines(run, "metrics.jsonl")})()
            wait_for(lambda: len(json.loads(read_file(os.path.join(launch.run_dir, "results.json")) or "[]")) == 60, LIMIT_S, "60 results")
            wait_for(lambda: len(events(event_file(os.path.join(launch.run_dir, "tensorboard")))) >= 63, LIMIT_S, "60 events")
            self.assertEqual(len(self.check_files(launch)), 60)
            lines = [line for line in client.said()[1].splitlines() if line.startswith("report ")]
            self.assertEqual([line.split()[1] for line in lines], [str(number) for number in range(1, 61)])

    def test_lines_of_ranks_are_shown_as_here(self):
        """JSON, with reports in the same stream; the time in front, and the job's prefix."""
        with Cluster({"n1": 1}) as cluster:
            job = self.command_job([{"type": "console"}], 1, 2)
            client = cluster.run("-n", 1, "--output", "json", job)
            client.wait_and_say(0)
            self.assertEqual([json.loads(line)["loss"] for line in client.said()[1].splitlines()], [1, 2])
            client = cluster.run("-n", 1, "--output", "json", "--", "sh", "-c", "echo a; printf b >&2")
            client.wait_and_say(0)
            lines = [json.loads(line) for line in client.said()[1].splitlines()]
            self.assertEqual(sorted((line["rank"], line["text"]) for line in lines), [(0, "a"), (0, "b")])
            client = cluster.run("-n", 1, "--timestamps", "--set", "process.prefix=<${local_rank}> ", "--", "echo", "a")
            client.wait_and_say(0)
            self.assertRegex(client.said()[1], r"^\d\d:\d\d:\d\d\.\d{3} <0> a\n$")

    def test_what_a_coordinator_refuses(self):
        with Cluster({"n1": 1}) as cluster:
            job = self.command_job([{"type": "exec", "command": ["cat"]}, {"type": "json", "folder": "/tmp"}], 1, 2)
            said = cluster.run("-n", 1, job).wait_and_say(2)
            self.assertRegex(said, r"job\.json:\d+:\d+: error: \"callbacks\[0\]\.type\" \"exec\" is for a run on this machine")
            self.assertRegex(said, r"job\.json:\d+:\d+: error: \"callbacks\[1\]\.folder\" is for a run on this machine")
            self.assertIn("sgd-launch metrics -f RUN | PROGRAM", said)


if __name__ == "__main__":
    unittest.main()
