"""Cases of RaySGD's and Ray Train's own tests, each under its name, on the real programs. README.md of this folder says where the others are.

`worker/examples/raysgd/ported.cpp` has the training functions of their guides, test/plugins/ what they test beside.
"""

import json
import math
import os
import re
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, linear_job, read_safetensors, small_fashion, write_job
from harness import BIN_DIR, LAUNCHER, LIMIT_S, LaunchTest, read_file

LIBRARIES = os.path.join(BIN_DIR, "..", "lib")


class Case(LaunchTest):
    def train(self, job, *options, run_dir="run", expect=0):
        return self.run_to_end(write_job(self.path("job.json"), job), *options, run_dir=run_dir, expect=expect)

    def function(self, name, *options, library="ported", workers=2, run_dir="run", expect=0, **settings):
        """A run of a training function of a plug-in."""
        job = {"name": name, "num_workers": workers, "plugins": [os.path.join(LIBRARIES, library + ".so")],
               "training": {"function": {"type": name, **settings}}}
        return self.train(job, *options, run_dir=run_dir, expect=expect)

    def scores(self, workers, run_dir="run", changes=None, **settings):
        """A run of the operator with metrics of its own."""
        job = linear_job(workers, model={"type": "linear", "init": "zeros"}, operator={"type": "scores", **settings}, **(changes or {}))
        job["plugins"] = [os.path.join(LIBRARIES, "ported.so")]
        return self.train(job, run_dir=run_dir)

    def resume(self, launch, *options):
        again = self.run_to_end("resume", launch.run_dir, *options, run_dir=None)
        again.run_dir = launch.run_dir
        return again

    def state(self, launch):
        return json.loads(read_file(os.path.join(launch.checkpoints()[-1], "state.json")))

    def tensors(self, launch):
        return read_safetensors(os.path.join(launch.checkpoints()[-1], "model.safetensors"))


class ResultsTest(Case):
    def test_single_step(self):
        """An epoch of one step; the next one goes on with the next batch."""
        dataset = {"type": "linear", "samples": 64, "validation_samples": 32}
        launch = self.train(linear_job(1, epochs=2, steps_per_epoch=1, dataset=dataset))
        for line in launch.metrics("train"):
            self.assertEqual((line["batch_count"], line["num_samples"], line["train_loss"]), (1, 32, line["last_train_loss"]))
        whole = self.train(linear_job(1, epochs=1, dataset=dataset), run_dir="whole")
        self.assertEqual(self.tensors(launch), self.tensors(whole))
        self.assertEqual([line["batch_count"] for line in launch.metrics("validate")], [1, 1])

    def test_split_batch(self):
        """21 on 2 workers are 10 each, with a warning; 21 on one."""
        dataset = {"type": "linear", "samples": 600, "validation_samples": 20}
        for workers, batches in ((2, 30), (1, 29)):
            with self.subTest(workers=workers):
                launch = self.train(linear_job(workers, epochs=1, batch_size=21, dataset=dataset), run_dir=f"run-{workers}")
                warned = "Changing batch size from 21 to 20 to evenly distribute batches across 2 workers." in launch.stderr()
                self.assertEqual(warned, workers == 2)
                line = launch.metrics("train")[0]
                self.assertEqual((line["batch_count"], line["num_samples"]), (batches, 600))

    def test_split_batch_smaller_than_the_workers(self):
        self.assertIn("must be at least", self.train(linear_job(2, batch_size=1), expect=2).stderr())

    def test_metrics(self):
        """The mean of a metric by samples, and its last value; the mean of both workers."""
        for workers, sizes in ((1, [32] * 31 + [8]), (2, [16] * 31 + [4])):
            with self.subTest(workers=workers):
                launch = self.scores(workers, run_dir=f"run-{workers}", changes={"epochs": 1})
                line = launch.metrics("train")[0]
                self.assertEqual((line["batch_count"], line["num_samples"], line["last_score"]), (32, 1000, 31))
                self.assertAlmostEqual(line["score"], sum(i * size for i, size in enumerate(sizes)) / sum(sizes), places=12)
                line = launch.metrics("validate")[0]
                self.assertEqual((line["batch_count"], line["num_samples"], line["last_score"]), (4, 100, 3))

    def test_metrics_nan(self):
        """NaN in one batch: the mean is NaN, which is null in JSON; the last value stays."""
        line = self.scores(2, changes={"epochs": 1}, no_score_in=3).metrics("train")[0]
        self.assertIsNone(line["score"])
        self.assertEqual(line["last_score"], 31)
        self.assertTrue(math.isfinite(line["train_loss"]))

    def test_metrics_nan_in_the_last_batch(self):
        line = self.scores(2, changes={"epochs": 1}, no_score_in=31).metrics("train")[0]
        self.assertEqual((line["score"], line["last_score"]), (None, None))

    def test_reduce_result(self):
        """Of a function's reports: the list of the workers' in rank order, or one mean."""
        listed = self.function("accuracy", "--set", "report.workers=list", run_dir="list").metrics()[0]["workers"]
        self.assertEqual(len(listed), 2)
        reduced = self.function("accuracy", run_dir="reduced").metrics()[0]
        self.assertAlmostEqual(reduced["accuracy"], sum(worker["accuracy"] for worker in listed) / 2, places=12)

    def test_enable_reproducibility(self):
        """Twice the same numbers."""
        runs = [self.function("train_simple", run_dir=name, num_epochs=30).metrics() for name in ("one", "two")]
        losses = [[line["loss"] for line in metrics] for metrics in runs]
        self.assertEqual(losses[0], losses[1])
        self.assertLess(losses[0][-1], losses[0][0])

    def test_dataset(self):
        """An identity is learnt from CSV files: 1-128-1, f(0.5) in [0.4, 0.6]."""
        for name, count in (("train", 6400), ("validation", 100)):
            self.write(f"{name}.csv", "x,y\n" + "".join(f"{i / count},{i / count}\n" for i in range(count)))
        job = linear_job(2, epochs=5, batch_size=32, model={"type": "mlp", "inputs": 1, "hidden": [128], "outputs": 1}, optimizer={"type": "sgd", "lr": 0.1},
                         dataset={"type": "csv", "train": "train.csv", "validation": "validation.csv", "targets": "numbers",
                                  "columns": {"features": ["x"], "target": "y"}})
        layers = sorted(self.tensors(self.train(job)).items())
        (first_bias, first), (last_bias, last) = [(bias[1], weight[1]) for (_, bias), (_, weight) in zip(layers[::2], layers[1::2])]
        hidden = [max(0, 0.5 * weight + bias) for weight, bias in zip(first, first_bias)]
        output = sum(value * weight for value, weight in zip(hidden, last)) + last_bias[0]
        self.assertTrue(0.4 <= output <= 0.6, output)


class SchedulerTest(Case):
    def learning_rate(self, run_dir, frequency, **settings):
        scheduler = {"type": "step", "step_size": 1, "gamma": 0.1, **({"frequency": frequency} if frequency else {})}
        launch = self.scores(1, run_dir=run_dir, changes={"epochs": 3, "batch_size": 500, "scheduler": scheduler}, **settings)
        (part,) = self.state(launch)["optimizers"]
        return part["groups"][0]["now"]["lr"]

    def test_scheduler_freq(self):
        """StepLR(1, 0.1), 3 epochs of 2 batches, from 0.01: after epochs, batches, calls; no frequency is "epoch"."""
        for frequency, settings, steps in (("epoch", {}, 3), ("batch", {}, 6), ("manual", {"steps_scheduler": True}, 6), ("manual", {}, 0), (None, {}, 3)):
            with self.subTest(frequency=frequency, settings=settings):
                run_dir = f"{frequency}-{len(settings)}"
                self.assertAlmostEqual(self.learning_rate(run_dir, frequency, **settings) / 10 ** -(2 + steps), 1, places=6)

    def test_scheduler_freq_that_is_none(self):
        job = linear_job(1, scheduler={"type": "step", "step_size": 1, "frequency": "sometimes"})
        self.assertIn('must be "epoch", "batch" or "manual"', self.train(job, expect=2).stderr())


class SavingTest(Case):
    def test_save_and_restore(self):
        """What two workers have saved, one and three begin with, to the bit."""
        saved = self.train(linear_job(2, epochs=2))
        file = os.path.join(saved.checkpoints()[-1], "model.safetensors")
        for workers in (1, 3):
            with self.subTest(workers=workers):
                job = linear_job(workers, epochs=1, model={"type": "linear", "weights": file}, optimizer={"type": "sgd", "lr": 0})
                self.assertEqual(self.tensors(self.train(job, run_dir=f"run-{workers}")), self.tensors(saved))

    def test_iterable_model(self):
        """A model that is a list of its parts as well is one model. An optimizer that is one is of a class of its own, and refused."""
        for workers in (1, 2):
            with self.subTest(workers=workers):
                job = linear_job(workers, epochs=6, operator={"type": "list_created"})
                del job["training"]["model"]
                job["plugins"] = [os.path.join(LIBRARIES, "creators.so")]
                launch = self.train(job, run_dir=f"run-{workers}")
                for phase, key in (("train", "train_loss"), ("validate", "val_loss")):
                    losses = [line[key] for line in launch.metrics(phase)]
                    self.assertLessEqual(losses[5], losses[2])
                self.assertEqual(set(self.tensors(launch)), {"0.weight", "0.bias"})
                self.assertEqual(len(self.state(launch)["optimizers"]), 1)
                job["training"]["operator"]["type"] = "listed_optimizer_created"
                del job["training"]["optimizer"]
                self.assertIn("is of a class of its own; those that are known are", self.train(job, run_dir=f"refused-{workers}", expect=1).stderr())

    def test_multi_model(self):
        """Two models, two optimizers, a scheduler each: all are in a checkpoint, on one worker and on two."""
        data = small_fashion(self.path("data"), 512, 64)
        for workers in (1, 2):
            with self.subTest(workers=workers):
                job = image_job(data, epochs=1, operator={"type": "everything"})
                del job["training"]["model"], job["training"]["optimizer"]
                job.update(num_workers=workers, plugins=[os.path.join(LIBRARIES, "everything.so")])
                launch = self.train(job, run_dir=f"run-{workers}")
                names = set(self.tensors(launch))
                self.assertLessEqual({"body.in.weight", "body.norm.running_mean", "head.weight"}, names)
                parts = {part["name"]: part for part in self.state(launch)["optimizers"]}
                self.assertEqual(sorted(parts), ["body", "head"])
                self.assertEqual({name: len(part["schedulers"]) for name, part in parts.items()}, {"body": 2, "head": 1})  # One a group.
                self.assertIn("val_accuracy", launch.metrics("validate")[0])

    def test_checkpoint(self):
        """Five saves: the newest has epoch 4 and model 10."""
        launch = self.function("checkpoints")
        self.assertEqual(self.state(launch)["shared"]["saved"], {"epoch": 4, "model": 10})
        self.assertEqual([line["model"] for line in launch.metrics()], [0, 1, 3, 6, 10])

    def test_load_checkpoint(self):
        """A function begins with what was saved last, with weights and optimizer, and reports count on."""
        launch = self.resume(self.function("checkpoints"), "--set", "training.function.num_epochs=7")
        self.assertEqual(self.state(launch)["shared"]["saved"], {"epoch": 6, "model": 21})
        self.assertEqual([line["_training_iteration"] for line in launch.metrics()], list(range(1, 8)))
        clean = self.function("toy", workers=1, run_dir="clean", num_epochs=9)
        resumed = self.resume(self.function("toy", workers=1, run_dir="toy", num_epochs=4), "--set", "training.function.num_epochs=9")
        self.assertEqual([line["loss"] for line in resumed.metrics()], [line["loss"] for line in clean.metrics()])
        self.assertEqual(self.tensors(resumed), self.tensors(clean))

    def test_keep_latest_checkpoint(self):
        """The newest N stay, the last one always; "never" keeps none."""
        for keep, epochs in ((1, [5]), (2, [4, 5]), (9, [1, 2, 3, 4, 5])):
            with self.subTest(keep=keep):
                launch = self.train({**linear_job(1, epochs=5), "checkpoint": {"keep": keep}}, run_dir=f"run-{keep}")
                steps = [int(re.search(r"step-(\d+)-gen-0001$", path).group(1)) for path in launch.checkpoints()]
                self.assertEqual(steps, [32 * epoch for epoch in epochs])
        none = self.train({**linear_job(1), "checkpoint": {"every": "never"}}, run_dir="none")
        self.assertEqual((none.checkpoints(), none.summary()["checkpoint"]), ([], None))
        self.assertIn("must be at least 1", self.train({**linear_job(1), "checkpoint": {"keep": 0}}, run_dir="zero", expect=2).stderr())

    def test_multiple_run(self):
        """Each run has a folder of its own, and `runs/latest` leads to the newest."""
        folders = []
        for _ in range(2):
            self.train(linear_job(1, epochs=1), run_dir=None)
            folders.append(os.path.realpath(self.path("runs", "latest")))
            self.assertLessEqual({"job.json", "events.jsonl", "metrics.jsonl", "summary.json", "checkpoints", "logs"}, set(os.listdir(folders[-1])))
        self.assertNotEqual(*folders)
        self.assertRegex(os.path.basename(folders[1]), r"^linear-\d{8}-\d{6}-[0-9a-f]{4}$")


class DrivenTest(Case):
    """Cases of a program that drives a trainer: here it drives a run by verbs, and its reports are read as they come."""

    def turns(self, **settings):
        job = {"name": "turns", "num_workers": 2, "plugins": [os.path.join(LIBRARIES, "own_loop.so")],
               "training": {"function": {"type": "turns", **settings}}}
        return write_job(self.path("job.json"), job)

    def reader(self, launch):
        """Of its reports, while it lives and until it ends."""
        launch.wait_for_event("worker_started")
        reader = subprocess.Popen([LAUNCHER, "metrics", "-f", launch.run_dir], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.addCleanup(reader.stdout.close)
        self.addCleanup(reader.wait)
        self.addCleanup(reader.kill)
        return reader

    def pause(self):
        os.mkfifo(self.path("go on"))
        return self.path("go on")

    def go_on(self):
        self.addCleanup(os.close, os.open(self.path("go on"), os.O_RDWR))

    def returned(self, turns):
        return [{"rank": rank, "turns": turns} for rank in (0, 1)]

    def test_apply_all_workers(self):
        """A function runs on each worker, and all that is returned comes back, in rank order."""
        launch = self.run_to_end(self.turns(count=0))
        self.assertEqual(launch.summary()["results"], self.returned(0))

    def test_run_iterator(self):
        """Reports come one by one, while the run goes on; then there are no more, and what was returned is there."""
        launch = self.start(self.turns(pause_at=2, until=self.pause()))
        reader = self.reader(launch)
        self.assertEqual([json.loads(reader.stdout.readline())["index"] for _ in range(2)], [0, 1])
        self.assertFalse(os.path.exists(os.path.join(launch.run_dir, "summary.json")))
        self.go_on()
        self.assertEqual([json.loads(line)["index"] for line in reader.stdout], [2])
        self.assertEqual((reader.wait(LIMIT_S), launch.wait()), (0, 0))
        self.assertEqual(launch.summary()["results"], self.returned(3))

    def test_run_iterator_returns(self):
        """What is returned does not need anybody who reads the reports."""
        launch = self.run_to_end(self.turns())
        self.assertEqual(launch.summary()["results"], self.returned(3))

    def test_run_iterator_error(self):
        """A reader has all reports until the error, and ends with the run, which has no results and says why."""
        launch = self.start(self.turns(pause_at=2, until=self.pause(), fails=True))
        reader = self.reader(launch)
        self.assertEqual(json.loads(reader.stdout.readline())["index"], 0)
        self.go_on()
        self.assertEqual([json.loads(line)["index"] for line in reader.stdout], [1, 2])
        self.assertEqual((reader.wait(LIMIT_S), launch.wait()), (0, 1))
        self.assertIn("not all is well after the last turn", launch.stderr())
        self.assertFalse(launch.summary().get("results"))

    def test_no_exhaust(self):
        """Who reads one report and goes keeps nobody from the end."""
        launch = self.start(self.turns(count=2000, pause_at=2, until=self.pause()))
        reader = self.reader(launch)
        self.assertEqual(json.loads(reader.stdout.readline())["index"], 0)
        reader.stdout.close()
        self.go_on()
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual(launch.summary()["results"], self.returned(2000))
        reader.wait(LIMIT_S)  # It has noticed, too.

    def test_dead_trainer(self):
        """A run that has ended takes no order, and says so."""
        launch = self.run_to_end(self.turns())
        summary = launch.summary()
        for options in ((), ("--now",)):
            self.assertIn("is not running", self.run_to_end("stop", *options, launch.run_dir, run_dir=None, expect=3).stderr())
        self.assertEqual(launch.summary(), summary)


class MismatchTest(Case):
    def mistaken(self, mistake, *words, workers=2):
        launch = self.function("iterations", library="own_loop", workers=workers, mistake=mistake, expect=1)
        for one in words:
            self.assertIn(one, launch.stderr())
        self.assertEqual(len(launch.events("worker_started")), workers, "it was tried again")

    def test_mismatch_report(self):
        self.mistaken("reports more", "the ranks do not report and save alike", "rank 1 comes to report 3")

    def test_mismatch_checkpoint(self):
        self.mistaken("ends early", "rank 0 comes to save_checkpoint", "rank 1 comes to the end of the function")

    def test_mismatch_checkpoint_report(self):
        self.mistaken("does not save", "rank 0 comes to save_checkpoint", "rank 1 comes to report 3")

    def test_user_error(self):
        self.mistaken("throws", "the loop does not like this")

    def test_run_after_user_error(self):
        """A run that has failed leaves nothing in the way of the next."""
        self.mistaken("throws", "the loop does not like this", workers=1)
        self.function("iterations", library="own_loop", workers=1, run_dir="next")


class FailureTest(Case):
    def test_worker_kill(self):
        """A rank is killed after report 4: each report is there once, and iterations count on."""
        launch = self.function("iterations", library="own_loop", mistake="dies")
        self.assertEqual([line["i"] for line in launch.metrics()], [0, 1, 2, 3, 4])
        self.assertEqual([line["_training_iteration"] for line in launch.metrics()], [1, 2, 3, 4, 5])
        self.assertEqual(launch.summary()["failures"], 1)

    def test_worker_kill_checkpoint(self):
        """It goes on from what was saved last: the sum is that of a run that nothing happened to."""
        launch = self.function("iterations", library="own_loop", mistake="dies", run_dir="killed")
        clean = self.function("iterations", library="own_loop", run_dir="clean")
        self.assertEqual([line["sum"] for line in launch.metrics()], [line["sum"] for line in clean.metrics()])
        self.assertEqual(self.state(launch)["shared"]["saved"], {"next": 5})

    def test_torch_linear_failure(self):
        """Weights, Adam and reports of a function with data of its own are those of a run without the kill."""
        runs = [self.function("own_data", library="own_loop", run_dir=f"dies-{dies}", dies=dies, steps=2000) for dies in (False, True)]
        self.assertEqual(self.tensors(runs[0]), self.tensors(runs[1]))
        losses = [[line["loss"] for line in run.metrics()] for run in runs]
        self.assertEqual(losses[0], losses[1])

    def test_max_failures(self):
        """N failures are N restarts; what fails each time has failed for good then."""
        command = ["/bin/sh", "-c", "kill -9 $$"]
        launch = self.train({"command": command, "recovery": {"max_failures": 2}}, expect=7)
        self.assertEqual((len(launch.events("failure")), len(launch.events("worker_started"))), (3, 3))


if __name__ == "__main__":
    unittest.main()
