"""`sgd-launch tune plot` and `tune export`: what is made of an experiment's trials, read by programs that are not ours."""

import csv
import json
import os
import struct
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from event_files import tensorboard_reads
from harness import read_file, read_lines
from tuning import SCORED, TuneCase, linear


class TuneViews(TuneCase):
    def names(self, folder):
        return sorted(os.listdir(self.path(folder)))

    def test_plot_shows_curves_and_parameters(self):
        self.tune_to_end(self.job(linear()))
        text = self.ask("tune", "plot", self.path("x"))
        self.assertIn("val_loss of 4 trials: best ", text)
        self.assertIn(f"(trial {self.best()['trial']})", text)
        self.assertIn("val_loss over training.optimizer.lr: best at ", text)
        image = self.ask("tune", "plot", "--png", self.path("trials.png"), self.path("x")).strip()
        self.assertEqual(image, self.path("trials.png"))
        self.assertEqual(struct.unpack(">II", read_file(image)[16:24]), (960, 520))

    def test_ray_layout(self):
        self.tune_to_end(self.job(linear()))
        self.assertEqual(self.ask("tune", "export", "--to", self.path("ray"), self.path("x")).strip(), self.path("ray"))
        self.assertEqual(self.names("ray"), [f"trial_{number:04}" for number in range(4)])
        for number in range(4):
            mine = [line for line in read_lines(self.trial(number, "metrics.jsonl")) if line["phase"] == "validate"]
            results = read_lines(self.path("ray", f"trial_{number:04}", "result.json"))
            self.assertEqual([line["val_loss"] for line in results], [line["val_loss"] for line in mine])
            self.assertEqual([line["training_iteration"] for line in results], list(range(1, len(mine) + 1)))
            self.assertEqual([line["done"] for line in results], [False] * (len(mine) - 1) + [True])
            self.assertIn("train_loss", results[0])
            with open(self.path("ray", f"trial_{number:04}", "progress.csv"), encoding="utf-8", newline="") as file:
                rows = list(csv.DictReader(file))
            self.assertEqual([float(row["val_loss"]) for row in rows], [line["val_loss"] for line in mine])
            params = json.loads(read_file(self.path("ray", f"trial_{number:04}", "params.json")))
            self.assertEqual(results[0]["config"], params)
            self.assertEqual(float(rows[0]["config/training.optimizer.lr"]), params["training.optimizer.lr"])

    def test_one_table(self):
        self.tune_to_end(self.command(SCORED))
        path = self.ask("tune", "export", "--layout", "csv", "--to", self.path("t"), self.path("x")).strip()
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual([(row["trial"], row["state"], float(row["lr"])) for row in rows],
                         [("0", "completed", 0.1), ("1", "completed", 0.3), ("2", "completed", 0.7)])
        self.assertEqual(float(rows[1]["best"]), 0.0)

    def test_event_files_have_parameters_and_values(self):
        self.tune_to_end(self.job(linear()))
        self.ask("tune", "export", "--layout", "tensorboard", "--to", self.path("tb"), self.path("x"))
        self.assertEqual(self.names("tb"), [f"trial_{number:04}" for number in range(4)])
        read = tensorboard_reads(self.path("tb", "trial_0002"))
        if read is None:
            self.skipTest("no TensorBoard here")
        optimizer = json.loads(read_file(self.trial(2, "job.json")))["training"]["optimizer"]
        self.assertEqual(read["hparams"]["optimizer.lr"], optimizer["lr"])
        self.assertEqual(len(read["scalars"]["validate/val_loss"]), 3)
        self.assertIsNotNone(read["status"])

    def test_what_is_refused(self):
        self.tune_to_end(self.command(SCORED))
        self.assertIn("tune export needs --to DIR", self.ask("tune", "export", self.path("x"), expect=2))
        self.assertIn('expected ray, tensorboard or csv, got "wandb"',
                      self.ask("tune", "export", "--layout", "wandb", "--to", self.path("t"), self.path("x"), expect=2))
        launch = self.run_to_end(self.write("plain.json", json.dumps({"command": ["true"]})), run_dir="plain")
        for verb in (["plot"], ["best"], ["export", "--to", self.path("t")]):
            self.assertIn("is not an experiment", self.ask("tune", *verb, launch.run_dir, expect=4))
        os.mkdir(self.path("early"))
        early = self.write("early/events.jsonl", json.dumps({"event": "experiment_started", "metric": "loss", "mode": "min"}) + "\n")
        for layout in ("csv", "ray", "tensorboard"):
            self.assertIn("no trial has started yet",
                          self.ask("tune", "export", "--layout", layout, "--to", self.path("none"), os.path.dirname(early), expect=4))
        self.assertFalse(os.path.exists(self.path("none")))
        self.assertIn("Not a directory", self.ask("tune", "export", "--to", self.path("plain.json", "t"), self.path("x"), expect=1))


if __name__ == "__main__":
    unittest.main()
