"""Built-in models through the real programs: the jobs of configs/, tokens, weights of a file, and what is refused."""

import json
import os
import random
import re
import signal
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, read_safetensors, small_fashion, write_job
from harness import LaunchTest, read_file

CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "configs")
TEXT = {"type": "transformer", "vocabulary": 128, "embedding": 16, "layers": 1, "heads": 2, "feedforward": 32}


def config(name):
    with open(os.path.join(CONFIGS, name), encoding="utf-8") as file:
        return json.loads(re.sub(r"^\s*//.*$", "", file.read(), flags=re.MULTILINE))


def weights(launch):
    return os.path.join(launch.checkpoints()[-1], "model.safetensors")


class ModelsTest(LaunchTest):
    def job(self, name="job.json", **changes):
        return write_job(self.path(name), image_job("unused", **changes))

    def learns(self, job, least):
        launch = self.run_to_end(write_job(self.path(job["name"] + ".json"), job), run_dir=job["name"])
        losses = [line["val_loss"] for line in launch.metrics("validate")]
        self.assertLess(losses[-1], least)
        return launch

    def test_language_model_of_bytes(self):
        """As in configs/, for an epoch: far better than a guess among 256 bytes (5.5), and each token counts for accuracy. Other
        texts are learnt sooner by what it has learnt."""
        job = config("language_model.json")
        job["training"]["epochs"] = 1
        launch = self.learns(job, 3.2)
        self.assertGreater(launch.metrics("validate")[-1]["val_accuracy"], 0.15)
        tuning = os.path.join(CONFIGS, "text_tuning.json")
        losses = []
        for name, options in (("anew", ()), ("tuned", ("--set", f"training.model.weights={weights(launch)}"))):
            trained = self.run_to_end(tuning, "--set", "training.epochs=1", *options, run_dir=name)
            losses.append(trained.metrics("validate")[-1]["val_loss"])
        self.assertLess(losses[1], losses[0] - 1)

    def test_residual_network_of_configs(self):
        job = config("resnet18.json")
        job["training"]["model"]["width"] = 4
        job["training"]["dataset"].update(samples=256, validation_samples=128, shape=[3, 16, 16])
        job["training"].update(epochs=2, batch_size=32)
        launch = self.learns(job, 3.0)
        names = read_safetensors(weights(launch))
        self.assertIn("layer2.0.downsample.1.running_mean", names)
        self.assertEqual(names["conv1.weight"][0], [4, 3, 3, 3])

    def test_lenet_of_configs(self):
        job = config("lenet.json")
        job["training"]["dataset"]["path"] = small_fashion(self.path("data"), 6000, 500)
        self.assertGreater(self.learns(job, 1.5).metrics("validate")[-1]["val_accuracy"], 0.4)

    def test_a_kill_changes_no_bit_of_a_transformer_with_dropout(self):
        self.write("text", "".join(random.Random(1).choice("abcdefgh ") for _ in range(20000)))
        data = {"type": "tokens", "dtype": "u8", "length": 16, "train": "text", "validation": "text"}
        job = self.job(model={**TEXT, "tied": True}, dataset=data, optimizer={"type": "adamw"}, epochs=8)  # So that the kill comes before the end.
        undisturbed = self.run_to_end(job, run_dir="undisturbed")
        killed = self.start(job, run_dir="killed")
        killed.wait_for_event("epoch_finished")
        os.kill(killed.rank_pids()[1], signal.SIGKILL)
        self.assertEqual(killed.wait(), 0, killed.said())
        self.assertEqual(len(killed.events("recovered")), 1)
        self.assertTrue(read_file(weights(undisturbed)) == read_file(weights(killed)), "a kill changes what is learnt")

    def test_classes_of_rows_of_tokens(self):
        chance = random.Random(3)
        for name, count in (("train.csv", 600), ("test.csv", 200)):
            rows = [[chance.randrange(5, 20) for _ in range(8)] for _ in range(count)]
            for row in rows:  # The class is which of two tokens is somewhere in the row.
                row[chance.randrange(8)] = chance.randrange(2)
            lines = [",".join(map(str, row + [int(1 in row)])) for row in rows]
            self.write(name, "a,b,c,d,e,f,g,h,y\n" + "\n".join(lines) + "\n")
        data = {"type": "csv", "train": "train.csv", "validation": "test.csv", "columns": {"target": "y"}}
        model = {**TEXT, "vocabulary": 20, "task": "classification", "outputs": 2, "dropout": 0}
        job = self.job(model=model, dataset=data, optimizer={"type": "adam", "lr": 0.01}, epochs=6)
        self.assertGreater(self.run_to_end(job).metrics("validate")[-1]["val_accuracy"], 0.9)

    def test_training_goes_on_from_weights_of_another_run(self):
        """With a zero rate the model stays what the file says; a wrong file ends the run before its first step."""
        data = {"type": "synthetic", "shape": [3, 8, 8], "samples": 64, "validation_samples": 32}
        model = {"type": "resnet18", "stem": "cifar", "width": 2}
        first = self.run_to_end(self.job(model=model, dataset=data), run_dir="first")
        again = {**model, "weights": weights(first)}
        frozen = {"model": again, "dataset": data, "optimizer": {"type": "sgd", "lr": 0}, "epochs": 1}
        kept = read_safetensors(weights(self.run_to_end(self.job(**frozen), run_dir="kept")))
        for name, (_, values) in read_safetensors(weights(first)).items():
            if "running" not in name and "num_batches" not in name:
                self.assertEqual(values, kept[name][1], name)
        other = self.job(model={**again, "outputs": 12}, dataset=data)
        launch = self.run_to_end(other, run_dir="other", expect=2)
        self.assertIn("tensor fc.weight has shape [10, 16], expected [12, 16]", launch.stderr())
        self.assertEqual(launch.events("first_step"), [])
        self.write("script.pt", "no archive")
        launch = self.run_to_end(self.job(model={"type": "torchscript", "file": "script.pt"}, dataset=data), run_dir="script", expect=2)
        self.assertIn("script.pt cannot be loaded", launch.stderr())

    def test_losses_with_options_train(self):
        data = {"type": "synthetic", "shape": [6], "targets": "numbers", "samples": 512, "validation_samples": 128}
        model = {"type": "linear", "inputs": 6, "outputs": 1}
        for name, loss in (("huber", {"type": "huber", "delta": 0.5}), ("smooth_l1", "smooth_l1")):
            launch = self.run_to_end(self.job(model=model, dataset=data, loss=loss), run_dir=name)
            first, last = [line["val_loss"] for line in launch.metrics("validate")]
            self.assertLess(last, first)


if __name__ == "__main__":
    unittest.main()
