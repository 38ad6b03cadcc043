"""`training.metrics` of the real programs: exact over ranks, after a kill and a change of size, as NumPy has them."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, linear_job, small_fashion, write_job
from harness import LaunchTest, TESTS_PYTHON

FORWARD = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "numpy_forward.py")
OF_CLASSES = ["accuracy", {"type": "top_k", "k": 3, "on": "both"}, "precision", "recall", "f_beta", "confusion_matrix", "perplexity"]


class MetricsTest(LaunchTest):
    def image_run(self, run_dir="run", workers=2, **changes):
        data = small_fashion(self.path("data"), 1200, 301)
        job = image_job(data, metrics=OF_CLASSES, epochs=1, **changes)
        job["num_workers"] = workers
        return self.run_to_end(write_job(self.path("job.json"), job), run_dir=run_dir)

    def test_values_are_of_all_samples(self):
        launch = self.image_run()
        line = launch.metrics("validate")[-1]
        matrix = line["val_confusion_matrix"]
        self.assertEqual(sum(map(sum, matrix)), line["num_samples"])
        self.assertEqual(line["val_accuracy"], sum(matrix[i][i] for i in range(10)) / line["num_samples"])
        weights = os.path.join(launch.checkpoints()[-1], "model.safetensors")
        ended = subprocess.run([TESTS_PYTHON, FORWARD, weights, self.path("data")], capture_output=True, text=True, timeout=120)
        theirs = json.loads(ended.stdout)
        self.assertAlmostEqual(line["val_accuracy"], theirs["accuracy"], delta=1e-2)  # 301 do not divide: one counts twice.
        self.assertIn("train_top_3", launch.metrics("train")[-1])
        self.assertGreaterEqual(line["val_top_3"], line["val_accuracy"])

    def test_numbers(self):
        job = linear_job(workers=2, metrics=["r2", "mae", "mse"])
        line = self.run_to_end(write_job(self.path("job.json"), job)).metrics("validate")[-1]
        self.assertAlmostEqual(line["val_mse"], line["val_loss"], places=5)
        self.assertLess(line["val_r2"], 1)

    def test_a_scheduler_follows_one(self):
        scheduler = {"type": "reduce_on_plateau", "metric": "val_r2", "mode": "max", "patience": 0}
        job = linear_job(workers=2, metrics=["r2"], scheduler=scheduler, epochs=3)
        launch = self.run_to_end(write_job(self.path("job.json"), job))
        with open(os.path.join(launch.checkpoints()[-1], "state.json"), encoding="utf-8") as file:
            state = json.load(file)["optimizers"][0]["schedulers"][0]
        self.assertEqual(state["count"], 3)

    def test_a_report_that_no_line_takes_is_an_error_of_the_job(self):
        """Each list of 256 classes fits, two dozen of them do not: said once, with what is large, and nothing is tried again."""
        metrics = [{"type": "confusion_matrix", "matrix": False}] + [{"type": "f_beta", "beta": beta, "average": "per_class"} for beta in range(1, 25)]
        data = {"type": "synthetic", "shape": [32], "classes": 256, "samples": 8192, "validation_samples": 4096}
        job = linear_job(model={"type": "linear", "inputs": 32, "outputs": 256}, loss="cross_entropy", batch_size=64, dataset=data,
                         optimizer={"type": "sgd", "lr": 0.5}, metrics=metrics)
        launch = self.run_to_end(write_job(self.path("job.json"), job), expect=1)
        self.assertRegex(launch.stderr(), r"the report of epoch 1's validation has \d{5} bytes, at most 65536 can be: the largest values are "
                                          r"val_(iou|class_accuracy|f\d+_per_class), val_\w+, val_\w+; of metrics take")
        self.assertEqual(len(launch.events("worker_started")), 1)

    def test_profile_has_the_keys_of_raysgd(self):
        launch = self.run_to_end(write_job(self.path("job.json"), linear_job(workers=2, profile=True)))
        train, validate = launch.metrics("train")[-1]["profile"], launch.metrics("validate")[-1]["profile"]
        self.assertEqual(sorted(train), ["mean_apply_s", "mean_fwd_s", "mean_grad_s", "mean_train_epoch_s"])
        self.assertEqual(sorted(validate), ["mean_eval_fwd_s", "mean_validation_s"])
        self.assertTrue(all(value >= 0 for value in [*train.values(), *validate.values()]), (train, validate))


if __name__ == "__main__":
    unittest.main()
