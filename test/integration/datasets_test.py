"""Data sets of files and numbers through the real programs: what they train, what a kill must not change, and what is
refused before training."""

import os
import random
import signal
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, small_fashion, write_job
from harness import LaunchTest, read_file

TRANSFORMS = [{"type": "random_crop", "padding": 2}, {"type": "horizontal_flip"},
              {"type": "normalize", "mean": [0.286], "std": [0.353]}, {"type": "cutout", "size": 8}]


def npy_bytes(descr, shape, payload):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    return b"\x93NUMPY\x01\0" + struct.pack("<H", len(header)) + header.encode() + payload


def points(count, chance):
    """Points of a plane, and the class of each: on which side of a line it lies."""
    rows = [(chance.uniform(-1, 1), chance.uniform(-1, 1)) for _ in range(count)]
    return rows, [int(x + 2 * y > 0.1) for x, y in rows]


class DatasetsTest(LaunchTest):
    def job_on(self, dataset, **changes):
        training = {"dataset": dataset, "model": {"type": "linear", "inputs": 2, "outputs": 2}, "epochs": 8, "batch_size": 32}
        training.update(changes)
        return write_job(self.path("job.json"), image_job("unused", **training))

    def accuracy(self, dataset, **changes):
        launch = self.run_to_end(self.job_on(dataset, **changes), run_dir="run-" + dataset["type"])
        return launch.metrics("validate")[-1]["val_accuracy"]

    def write_points(self):
        chance = random.Random(1)
        for split, count in (("train-1", 300), ("train-2", 340), ("test", 200)):
            rows, classes = points(count, chance)
            lines = [f"{x},{y},{kind},{side}" for (x, y), kind, side in zip(rows, "ab" * count, classes)]
            self.write(f"{split}.csv", "x,y,kind,side\n" + "\n".join(lines) + "\n")
            self.write(f"{split}-x.npy", npy_bytes("<f8", f"({count}, 2)", struct.pack(f"<{2 * count}d", *sum(rows, ()))))
            self.write(f"{split}-y.npy", npy_bytes("|u1", f"({count},)", bytes(classes)))

    def test_csv_and_npy_train(self):
        self.write_points()
        csv = {"type": "csv", "train": "train-*.csv", "validation": "test.csv",
               "columns": {"features": ["x", 1], "target": "side"}, "filter": {"column": "kind", "op": "==", "value": "a"}}
        self.assertGreater(self.accuracy(csv), 0.9)
        npy = {"type": "npy", "train": {"features": "train-1-x.npy", "target": "train-1-y.npy"},
               "validation": {"features": "test-x.npy", "target": "test-y.npy"}}
        self.assertGreater(self.accuracy(npy), 0.9)

    def test_without_data_to_validate_on_no_epoch_is_validated(self):
        self.write_points()
        csv = {"type": "csv", "train": "train-*.csv", "columns": {"features": ["x", 1], "target": "side"}}
        for name, given in (("dataset", csv), ("datasets", {"train": csv})):
            with self.subTest(name):
                training = {"model": {"type": "linear", "inputs": 2, "outputs": 2}, "epochs": 2, "batch_size": 32, name: given}
                job = image_job("unused", **training)
                if name == "datasets":
                    del job["training"]["dataset"]
                launch = self.run_to_end(write_job(self.path(name + ".json"), job), run_dir=name)
                self.assertEqual([line["epoch"] for line in launch.metrics("validate")], [1, 2])
                self.assertFalse([key for line in launch.metrics("validate") for key in line if key.startswith("val_") or key == "num_samples"])
                self.assertEqual(launch.summary()["epochs"], 2)

    def test_synthetic_trains(self):
        synthetic = {"type": "synthetic", "shape": [64], "classes": 4, "samples": 2000, "validation_samples": 400}
        self.assertGreater(self.accuracy(synthetic, model={"type": "linear", "inputs": 64, "outputs": 4}), 0.8)

    def test_numbers_are_learnt(self):
        synthetic = {"type": "synthetic", "shape": [4], "targets": "numbers", "samples": 2000, "validation_samples": 400}
        launch = self.run_to_end(self.job_on(synthetic, loss="mse", model={"type": "linear", "inputs": 4, "outputs": 1}))
        self.assertLess(launch.metrics("validate")[-1]["val_loss"], 1e-3)

    def test_cifar_trains_on_images_of_three_channels(self):
        chance = random.Random(2)
        for name, count in (("a.bin", 64), ("b.bin", 64), ("test.bin", 40)):
            labels = [chance.randrange(10) for _ in range(count)]
            self.write(name, b"".join(bytes([label]) + bytes([label * 25]) * 3072 for label in labels))
        cifar = {"type": "cifar", "train": ["a.bin", "b.bin"], "validation": "test.bin", "transforms": [{"type": "horizontal_flip"}]}
        launch = self.run_to_end(self.job_on(cifar, model={"type": "cnn", "channels": [4, 4], "hidden": 16}, epochs=2))
        self.assertEqual([line["num_samples"] for line in launch.metrics("train")], [128, 128])
        losses = [line["train_loss"] for line in launch.metrics("train")]
        self.assertLess(losses[1], losses[0])

    def test_transformed_images_are_the_same_after_a_kill(self):
        """And other images than without transforms, or with another seed."""
        data = small_fashion(self.path("data"), 4000, 500)
        dataset = {"type": "idx", "path": data, "transforms": TRANSFORMS}

        def weights(launch):
            return read_file(os.path.join(launch.checkpoints()[-1], "model.safetensors"))

        undisturbed = self.run_to_end(self.job_on(dataset, model={"type": "mlp"}, epochs=4), run_dir="undisturbed")
        plain = self.run_to_end(self.job_on({"type": "idx", "path": data}, model={"type": "mlp"}, epochs=4), run_dir="plain")
        self.assertFalse(weights(undisturbed) == weights(plain))
        killed = self.start(self.job_on(dataset, model={"type": "mlp"}, epochs=4), run_dir="killed")
        killed.wait_for_event("epoch_finished")
        os.kill(killed.rank_pids()[1], signal.SIGKILL)
        self.assertEqual(killed.wait(), 0, killed.said())
        self.assertEqual(len(killed.events("recovered")), 1)
        self.assertTrue(weights(undisturbed) == weights(killed), "a kill changes what is learnt from transformed images")

    def test_bad_data_is_refused_before_training(self):
        self.write("test.csv", "x,y,side\n1,2,0\n")
        csv = {"type": "csv", "train": "bad.csv", "validation": "test.csv", "columns": {"target": "side"}}
        for text, words in (("x,y,side\n1,2,0\n1,,1\n", ['bad.csv:3: "y" is missing']),
                            ("x,y,side\n1,2,0\n1,2\n", ["bad.csv:3: 2 fields, expected 3"]),
                            ("x,y,side\n1,2,7\n", ['bad.csv:2: "side" is 7, expected 0..1'])):
            with self.subTest(text=text):
                self.write("bad.csv", text)
                launch = self.run_to_end(self.job_on(csv), run_dir="run-" + str(len(os.listdir(self.folder))), expect=1)
                for word in words:
                    self.assertIn(word, launch.stderr())
                self.assertEqual(launch.events("first_step"), [])
        self.write("bad.csv", "x,y\n1,2\n")
        launch = self.run_to_end(self.job_on(csv), run_dir="unstarted", expect=2)
        self.assertIn('bad.csv:1: no column "side" in its header', launch.stderr())
        self.assertFalse(os.path.exists(self.path("unstarted")), "what the launcher sees starts nothing")


if __name__ == "__main__":
    unittest.main()
