"""A new run that begins with the state of another one: `resume_from`."""

import json
import os
import re
import shutil
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from data import linear_job
from harness import LaunchTest, read_file

SAMPLES = 64000


def job_of(epochs, **parts):
    job = linear_job(workers=2, epochs=epochs, dataset={"type": "linear", "samples": SAMPLES, "validation_samples": 100},
                     optimizer={"type": "sgd", "lr": 0.001, "momentum": 0.9})
    return {**job, **parts}


def newest(run_dir):
    folder = os.path.join(run_dir, "checkpoints")
    return os.path.join(folder, max(os.listdir(folder), key=lambda name: name.rpartition("gen-")[2] + name))


def weights(run_dir):
    return read_file(os.path.join(newest(run_dir), "model.safetensors"))


def files_of(folder):
    return {path: read_file(path) for path in sorted(os.path.join(at, name) for at, _, names in os.walk(folder) for name in names)}


class ResumeFromTest(LaunchTest):
    def job(self, epochs, name="job.json", **parts):
        return self.write(name, json.dumps(job_of(epochs, **parts), indent=1))

    def train(self, epochs, run_dir, expect=0, **parts):
        return self.run_to_end(self.job(epochs, **parts), run_dir=run_dir, expect=expect)

    def interrupted(self, run_dir, **parts):
        """A run that was stopped in the middle of its epoch, which it returns."""
        launch = self.start(self.job(3, **parts), run_dir=run_dir)
        launch.wait_for_event("first_step")
        launch.process.send_signal(signal.SIGINT)
        self.assertEqual(launch.wait(), 130, launch.said())
        state = json.loads(read_file(os.path.join(newest(launch.run_dir), "state.json")))
        self.assertGreater(state["position"]["consumed"], 0, "it stopped at an epoch's boundary")
        return state["position"]["epoch"]

    def refused(self, words, resume_from, **parts):
        """Nothing is made, and the value's place is said."""
        path = self.job(4, resume_from=resume_from, **parts)
        launch = self.run_to_end(path, run_dir="refused", expect=2)
        line = next(number for number, text in enumerate(read_file(path).decode().splitlines(), 1) if "resume_from" in text)
        self.assertRegex(launch.stderr(), rf"job\.json:{line}:\d+: error: \"resume_from\".*{words}")
        self.assertFalse(os.path.exists(self.path("refused")))

    def check_events(self, launch, from_path):
        [begun] = launch.events("run_begun_from")
        self.assertEqual(begun["from"], from_path)
        self.assertEqual(begun["run"], os.path.basename(launch.run_dir))
        self.assertEqual([event["event"] for event in launch.events()][:2], ["run_begun_from", "run_started"])
        restored = launch.events("restored")[0]
        self.assertEqual((restored["step"], restored["source"]), (begun["step"], "disk"))

    def test_it_ends_as_a_run_that_never_stopped(self):
        straight = self.train(4, "straight")
        former = self.train(2, "former")
        before = files_of(former.run_dir)
        launch = self.train(4, "run", resume_from="./former")
        self.assertEqual(weights(launch.run_dir), weights(straight.run_dir))
        self.assertEqual([line["epoch"] for line in launch.metrics("validate")], [3, 4])
        self.assertEqual([line["_training_iteration"] for line in launch.metrics()], [1, 2, 3, 4])
        self.check_events(launch, newest(former.run_dir))
        self.assertEqual(files_of(former.run_dir), before, "the other run stays as it is")
        self.assertEqual(launch.summary()["epochs"], 4)
        self.assertIn("begins with step", launch.stderr())
        shutil.rmtree(former.run_dir)
        further = self.run_to_end("resume", "--set", "training.epochs=5", launch.run_dir, run_dir=None)
        further.run_dir = launch.run_dir
        self.assertEqual([line["epoch"] for line in further.metrics("validate")], [3, 4, 5])

    def test_a_run_by_name_a_folder_beside_the_job_and_a_checkpoint(self):
        first = self.run_to_end(self.job(1), run_dir=None)
        [name] = [one for one in os.listdir(self.path("runs")) if one != "latest"]
        first.run_dir = self.path("runs", name)
        origin = newest(first.run_dir)
        shutil.copytree(origin, self.path("moved"))
        for value, expected in ((name[:-1], origin), (origin + "/", origin), ("moved", self.path("moved")), (f"runs/{name}", origin)):
            with self.subTest(value=value):
                launch = self.train(2, f"from-{value.strip('/').replace('/', '-')}", resume_from=value)
                self.check_events(launch, expected)
                self.assertEqual([line["epoch"] for line in launch.metrics("validate")], [2])
                job = json.loads(read_file(os.path.join(launch.run_dir, "job.json")))
                self.assertEqual(job["resume_from"], expected)

    def test_in_the_middle_of_an_epoch_no_sample_is_lost(self):
        straight = self.train(3, "straight")
        epoch = self.interrupted("former")
        launch = self.train(3, "run", resume_from="former")
        self.assertEqual(weights(launch.run_dir), weights(straight.run_dir))
        self.assertEqual([line["epoch"] for line in launch.metrics("validate")], list(range(epoch, 4)))
        self.assertEqual(launch.metrics("train")[0]["num_samples"], SAMPLES)
        path = self.write("seed.json", json.dumps(job_of(3, resume_from="former")))
        said = self.run_to_end(path, "--set", "training.seed=2", run_dir="other", expect=2).stderr()
        self.assertIn(f"in the middle of epoch {epoch}", said)
        self.assertFalse(os.path.exists(self.path("other")))

    def test_what_cannot_be_begun_from_is_said_and_nothing_starts(self):
        former = self.train(2, "former")
        self.refused("no run \"nowhere\"", "nowhere")
        self.refused("does not exist", "no/where")
        self.write("file", "")
        self.refused("is not a folder", "file")
        os.mkdir(self.path("empty"))
        self.refused("neither a checkpoint nor a run", "empty")
        os.makedirs(self.path("young", "checkpoints"))
        self.refused("has no checkpoint", "young")
        self.refused("training.optimizer.type was sgd and is adam", "former",
                     training={**job_of(4)["training"], "optimizer": {"type": "adam"}})
        self.refused("nothing to train: all 2 epochs are trained; --set training.epochs=5", "former", training=job_of(2)["training"])
        model = os.path.join(newest(former.run_dir), "model.safetensors")
        content = read_file(model)
        with open(model, "wb") as file:
            file.write(content[:-1] + bytes([content[-1] ^ 1]))
        self.refused("model.safetensors is damaged", newest(former.run_dir))

    def test_a_command_finds_where_it_is_to_begin(self):
        former = self.train(2, "former")
        script = 'case "$SGD_RESUME_FROM" in */command/checkpoints/*) test -f "$SGD_RESUME_FROM/manifest.json" ;; *) exit 9 ;; esac'
        launch = self.run_to_end("--set", f"resume_from={newest(former.run_dir)}", "--", "sh", "-c", script, run_dir="command")
        self.assertEqual(launch.events("run_begun_from")[0]["from"], newest(former.run_dir))

    def test_of_a_run_the_newest_whole_one(self):
        former = self.train(2, "former")
        damaged = newest(former.run_dir)
        os.remove(os.path.join(damaged, "optimizer.safetensors"))
        launch = self.train(3, "run", resume_from="former")
        self.assertIn(damaged, launch.stderr())
        self.assertEqual([event["path"] for event in launch.events("checkpoint_rejected")], [damaged])
        self.assertEqual([line["epoch"] for line in launch.metrics("validate")], [2, 3])
        for name in os.listdir(os.path.join(former.run_dir, "checkpoints")):
            os.remove(os.path.join(former.run_dir, "checkpoints", name, "model.safetensors"))
        self.refused("has no whole checkpoint", "former")

    def test_a_failure_before_its_own_first_checkpoint_goes_back_there(self):
        former = self.train(1, "former")
        parts = {"resume_from": "former", "checkpoint": {"every": "never", "memory": False}, "recovery": {"max_failures": 3}}
        straight = self.train(3, "straight")
        launch = self.start(self.job(3, **parts))
        launch.wait_for_event("first_step")
        os.kill(launch.rank_pids()[1], signal.SIGKILL)
        self.assertEqual(launch.wait(), 0, launch.said())
        step = json.loads(read_file(os.path.join(newest(former.run_dir), "manifest.json")))["step"]
        self.assertEqual([event["step"] for event in launch.events("restored")], [step, step])
        self.assertEqual([line["epoch"] for line in launch.metrics("validate")], [2, 3])
        values = [line["val_loss"] for line in straight.metrics("validate")]
        self.assertEqual([line["val_loss"] for line in launch.metrics("validate")], values[1:])

    def test_a_killed_launcher_goes_on_from_there(self):
        self.train(1, "former")
        launch = self.start(self.job(3, resume_from="former", checkpoint={"every": "never"}))
        launch.wait_for_event("first_step")
        launch.process.kill()
        launch.wait_until_gone()
        shutil.rmtree(self.path("former"))
        resumed = self.run_to_end("resume", launch.run_dir, run_dir=None)
        resumed.run_dir = launch.run_dir
        self.assertEqual([line["epoch"] for line in resumed.metrics("validate")], [2, 3])
        said = self.run_to_end("resume", "--set", "resume_from=x", "--set", "training.epochs=4", launch.run_dir, run_dir=None, expect=2).stderr()
        self.assertIn("is for a new run", said)
        shutil.rmtree(os.path.join(launch.run_dir, "checkpoints"))
        said = self.run_to_end("resume", "--set", "training.epochs=9", launch.run_dir, run_dir=None, expect=2).stderr()
        self.assertIn("training must not start from the beginning", said)

    def test_on_a_cluster_by_a_runs_name(self):
        os.mkdir(self.path("cluster"))
        with Cluster({"n1": 1, "n2": 1}, folder=self.path("cluster")) as cluster:
            first = cluster.run(self.job(2))
            former = first.run_id()
            self.assertEqual(first.wait(), 0, first.said())
            before = files_of(cluster.run_dir(former))
            client = cluster.run(self.job(4, resume_from=former[:-2]))
            run = client.run_id()
            self.assertEqual(client.wait(), 0, client.said())
            self.assertNotEqual(run, former)
            epochs = [line["epoch"] for line in cluster.lines(run, "metrics.jsonl") if line["phase"] == "validate"]
            self.assertEqual(epochs, [3, 4])
            [begun] = cluster.events(run, "run_begun_from")
            self.assertEqual(os.path.dirname(begun["from"]), os.path.join(cluster.run_dir(former), "checkpoints"))
            self.assertEqual(cluster.events(run, "restored")[0]["step"], begun["step"])
            self.assertEqual({path: text for path, text in files_of(cluster.run_dir(former)).items() if "nodes.jsonl" not in path},
                             {path: text for path, text in before.items() if "nodes.jsonl" not in path})
            self.assertEqual(json.loads(read_file(os.path.join(cluster.run_dir(run), "job.json")))["resume_from"], former)
            straight = cluster.run(self.job(4))
            whole = straight.run_id()
            self.assertEqual(straight.wait(), 0, straight.said())
            self.assertEqual(weights(cluster.run_dir(run)), weights(cluster.run_dir(whole)))
            for value, words in (("/etc", "is a path"), ("nobody", 'no run "nobody" on the cluster')):
                said = cluster.run(self.job(4, resume_from=value)).wait_and_say(2)
                self.assertTrue(re.search(rf"\"resume_from\".*{words}", said), said)
            said = cluster.run(self.job(2, resume_from=former)).wait_and_say(2)
            self.assertIn("nothing to train: all 2 epochs are trained", said)


class ValidateTest(LaunchTest):
    """`sgd-launch validate`: what saved weights are worth, in a run of its own."""

    def setUp(self):
        super().setUp()
        self.trained = self.run_to_end(self.write("job.json", json.dumps(job_of(3))), run_dir="trained")

    def validate(self, what, to, *arguments, expect=0):
        launch = self.run_to_end("validate", what, "--run-dir", self.path(to), *arguments, run_dir=None, expect=expect)
        launch.run_dir = self.path(to)
        return launch

    def test_of_a_run_and_of_each_checkpoint(self):
        before = files_of(self.trained.run_dir)
        folder = os.path.join(self.trained.run_dir, "checkpoints")
        of_epoch = {line["epoch"]: line["val_loss"] for line in self.trained.metrics("validate")}
        for number, what in enumerate([self.trained.run_dir] + [os.path.join(folder, name) for name in sorted(os.listdir(folder))]):
            launch = self.validate(what, f"validated-{number}")
            line, = launch.metrics()
            self.assertEqual(line["val_loss"], of_epoch[line["epoch"]])
            self.assertEqual(launch.summary()["state"], "succeeded")
        self.assertEqual(files_of(self.trained.run_dir), before)

    def test_with_other_data_and_metrics_and_another_number_of_workers(self):
        launch = self.validate(self.trained.run_dir, "other", "--set", "training.dataset.validation_samples=50",
                               "--set", 'training.metrics=["mae"]', "--num-workers", 1)
        line, = launch.metrics()
        self.assertEqual(line["num_samples"], 50)
        self.assertIn("val_mae", line)

    def test_the_latest_run_stays_the_one_that_was_trained(self):
        self.run_to_end(self.path("job.json"), run_dir=None)
        latest = os.readlink(self.path("runs", "latest"))
        launch = self.run_to_end("validate", "latest", run_dir=None)
        self.assertIn(f"runs/{latest}/checkpoints/", launch.stderr())
        self.assertEqual(os.readlink(self.path("runs", "latest")), latest)

    def test_what_is_no_run_is_said(self):
        launch = self.run_to_end("validate", self.path("nowhere"), run_dir=None, expect=4)
        self.assertIn("no run", launch.stderr())


if __name__ == "__main__":
    unittest.main()
