"""Training on real data: reference numbers, equal results, and files that others can read."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, read_safetensors, small_fashion, write_job
from harness import CONFIGS, FASHION, TESTS_PYTHON, LaunchTest, read_file

FORWARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "numpy_forward.py")
TRAIN_KEYS = {"epoch", "batch_count", "num_samples", "train_loss", "last_train_loss"}
VALIDATION_KEYS = {"batch_count", "num_samples", "val_loss", "last_val_loss", "val_accuracy", "last_val_accuracy"}
COMMON_KEYS = {"phase", "step", "generation", "world_size", "_timestamp", "_time_this_iter_s", "_training_iteration"}

# (workers, batch of one worker) -> batches, {epoch: (train_loss, val_loss, w, b)}: y = 2x + 5, SGD 0.01 from zero.
LINEAR = {
    (1, 32): (32, {1: (13.30967, 4.36208, 2.36146, 1.38800), 2: (2.01749, 3.55408, 2.32627, 1.73965),
                   3: (1.64378, 2.89575, 2.29450, 2.05706)}),
    (2, 16): (32, {1: (13.30967, 4.36208, 2.36146, 1.38800), 2: (2.01749, 3.55408, 2.32627, 1.73965),
                   3: (1.64378, 2.89575, 2.29450, 2.05706)}),
    (2, 32): (16, {1: (22.76095, 5.26804, 2.39674, 1.03218), 3: (2.73219, 4.11989, 2.35081, 1.49125)}),
    (1, 4): (250, {1: (2.64580, 0.98009, 2.17127, 3.28808), 3: (0.07361, 0.18220, 2.07385, 4.26189)}),
}


class LinearTest(LaunchTest):
    def linear(self, workers, batch, run_dir):
        return self.run_to_end("--num-workers", workers, "--set", f"training.batch_size={workers * batch}",
                               "--set", "training.epochs=3", os.path.join(CONFIGS, "linear.json"), run_dir=run_dir)

    def test_reference_table(self):
        for (workers, batch), (batches, epochs) in LINEAR.items():
            with self.subTest(workers=workers, batch=batch):
                launch = self.linear(workers, batch, f"run-{workers}-{batch}")
                train, validation = launch.metrics("train"), launch.metrics("validate")
                self.assertEqual([line["epoch"] for line in train], [1, 2, 3])
                self.assertEqual(len(launch.checkpoints()), 3)
                for epoch, (train_loss, val_loss, weight, bias) in epochs.items():
                    self.assertEqual(train[epoch - 1]["batch_count"], batches)
                    self.assertAlmostEqual(train[epoch - 1]["train_loss"], train_loss, delta=1e-3)
                    self.assertAlmostEqual(validation[epoch - 1]["val_loss"], val_loss, delta=1e-3)
                    tensors = read_safetensors(os.path.join(launch.checkpoints()[epoch - 1], "model.safetensors"))
                    values = {len(shape): values[0] for shape, values in tensors.values()}
                    self.assertAlmostEqual(values[2], weight, delta=1e-3)
                    self.assertAlmostEqual(values[1], bias, delta=1e-3)

    def test_one_worker_and_two_agree(self):
        one, two = self.linear(1, 32, "one"), self.linear(2, 16, "two")
        for key, phase in (("train_loss", "train"), ("val_loss", "validate")):
            left = [line[key] for line in one.metrics(phase)]
            right = [line[key] for line in two.metrics(phase)]
            self.assertEqual((len(left), len(right)), (3, 3))
            for a, b in zip(left, right):
                self.assertAlmostEqual(a, b, delta=1e-5)


class ImageTest(LaunchTest):
    def image_run(self, run_dir="run", data=None, expect=0, options=(), **changes):
        data = data or small_fashion(self.path("data"), 2000, 500)
        job = write_job(self.path("job.json"), image_job(data, **changes))
        return self.run_to_end("--num-workers", 2, *options, job, run_dir=run_dir, expect=expect)

    def test_files_of_a_run(self):
        launch = self.image_run()
        train, validation = launch.metrics("train"), launch.metrics("validate")
        self.assertEqual([line["epoch"] for line in train], [1, 2])
        self.assertEqual(len(validation), 2)
        for line in train:
            self.assertLessEqual(TRAIN_KEYS | COMMON_KEYS | {"samples_per_s", "step_ms"}, set(line))
            self.assertEqual(line["num_samples"], 2000)
            self.assertEqual(line["world_size"], 2)
            self.assertGreater(line["samples_per_s"], 0)
        for line in validation:
            self.assertLessEqual(VALIDATION_KEYS | COMMON_KEYS, set(line))
            self.assertEqual(line["num_samples"], 500)
        iterations = [line["_training_iteration"] for line in launch.metrics()]
        self.assertEqual(iterations, sorted(iterations))
        names = [event["event"] for event in launch.events()]
        for name, count in (("worker_started", 2), ("worker_ready", 2), ("first_step", 1), ("checkpoint_saved", 2),
                            ("epoch_finished", 2), ("worker_exited", 2), ("run_finished", 1)):
            self.assertEqual(names.count(name), count, name)
        summary = launch.summary()
        self.assertEqual((summary["state"], summary["exit_code"], summary["epochs"]), ("succeeded", 0, 2))
        self.assertEqual(summary["steps"], 2 * 32)
        self.assertEqual(summary["metrics"]["validate"]["val_accuracy"], validation[-1]["val_accuracy"])
        resolved = json.loads(read_file(os.path.join(launch.run_dir, "job.json")))
        self.assertTrue(os.path.isabs(resolved["training"]["dataset"]["path"]))

    def test_two_runs_are_bit_equal(self):
        first = self.image_run(run_dir="first")
        second = self.image_run(run_dir="second", data=self.path("data"))
        other = self.image_run(run_dir="other", data=self.path("data"), seed=2)
        weights = [read_file(os.path.join(run.checkpoints()[-1], "model.safetensors")) for run in (first, second, other)]
        self.assertGreater(len(weights[0]), 100_000)
        self.assertTrue(weights[0] == weights[1], "two runs of one seed differ")
        self.assertFalse(weights[0] == weights[2], "two seeds give the same weights")

    def forward(self, launch, data):
        """What numpy and Python's safetensors make of the newest checkpoint on the validation images."""
        weights = os.path.join(launch.checkpoints()[-1], "model.safetensors")
        ended = subprocess.run([TESTS_PYTHON, FORWARD, weights, data], capture_output=True, text=True, timeout=120)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        return json.loads(ended.stdout)

    def check_against_numpy(self, model):
        data = small_fashion(self.path("data"), 1000, 300)
        launch = self.image_run(data=data, model={"type": model}, epochs=1, batch_size=50)
        ours, theirs = launch.metrics("validate")[-1], self.forward(launch, data)
        self.assertAlmostEqual(ours["val_loss"], theirs["loss"], delta=1e-4)
        self.assertAlmostEqual(ours["val_accuracy"], theirs["accuracy"], delta=1e-6)

    def test_numpy_agrees_on_the_mlp(self):
        self.check_against_numpy("mlp")

    def test_numpy_agrees_on_the_cnn(self):
        self.check_against_numpy("cnn")

    def test_whole_fashion_mnist(self):
        launch = self.image_run(data=FASHION, epochs=2, batch_size=128)
        self.assertEqual([line["num_samples"] for line in launch.metrics("train")], [60000, 60000])
        self.assertGreater(launch.metrics("validate")[-1]["val_accuracy"], 0.80)
        losses = [line["train_loss"] for line in launch.metrics("train")]
        self.assertLess(losses[1], losses[0])

    def test_batch_that_does_not_divide_is_a_warning(self):
        launch = self.image_run(batch_size=65, epochs=1)
        self.assertIn("65", launch.stderr())
        self.assertEqual(launch.metrics("train")[0]["batch_count"], 32)

    def test_adam_and_a_scheduler(self):
        launch = self.image_run(optimizer={"type": "adam", "lr": 0.001},
                                scheduler={"type": "step", "step_size": 1, "gamma": 0.5, "frequency": "epoch"})
        losses = [line["train_loss"] for line in launch.metrics("train")]
        self.assertLess(losses[1], losses[0])

    def test_main_job_file(self):
        data = small_fashion(self.path("data"), 600, 200)
        launch = self.run_to_end("--num-workers", 2, "--set", f"training.dataset.path={data}", "--set", "training.epochs=1",
                                 os.path.join(CONFIGS, "fashion_mnist.json"))
        self.assertEqual(launch.summary()["state"], "succeeded")

    def test_job_file_can_be_overridden_by_any_json(self):
        data = small_fashion(self.path("data"), 600, 200)
        launch = self.run_to_end("--num-workers", 2, "--set", f"training.dataset.path={data}", "--set", "training.epochs=1",
                                 "--set", 'training.model={"type":"mlp","hidden":[16]}',
                                 os.path.join(CONFIGS, "fashion_mnist.json"))
        tensors = read_safetensors(os.path.join(launch.checkpoints()[-1], "model.safetensors"))
        self.assertIn([16, 784], [shape for shape, _ in tensors.values()])


if __name__ == "__main__":
    unittest.main()
