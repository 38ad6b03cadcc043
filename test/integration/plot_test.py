"""`sgd-launch plot` and `metrics -f`: curves of a run, here and on a cluster."""

import json
import os
import subprocess
import sys
import unittest
import zlib
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from data import linear_job, write_job
from event_files import event_file, events
from harness import LAUNCHER, LIMIT_S, LaunchTest, read_file

RANK = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "reporting_rank.py")


class PlotTest(LaunchTest):
    def verb(self, *arguments, expect=0, **environment):
        env = {key: value for key, value in os.environ.items() if not key.startswith(("LC_", "LANG", "SGD_"))}
        ended = subprocess.run([LAUNCHER, *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                               stdin=subprocess.DEVNULL, cwd=self.folder, env={**env, **environment})
        self.assertEqual(ended.returncode, expect, ended.stdout + ended.stderr)
        return ended.stdout if expect == 0 else ended.stderr

    def test_curves_in_the_terminal(self):
        launch = self.run_to_end(write_job(self.path("job.json"), linear_job(epochs=4)))
        text = self.verb("plot", launch.run_dir, COLUMNS="60", LC_ALL="C")
        self.assertTrue(text.isascii())
        self.assertIn("train_loss: ", text)
        self.assertIn("val_loss: ", text)
        self.assertIn("after 4 reports", text)
        self.assertNotIn("last_train_loss", text)
        lines = text.splitlines()
        self.assertEqual(max(map(len, lines)), 60)
        self.assertTrue(any(line.count("*") > 5 for line in lines))
        dots = self.verb("plot", launch.run_dir, "val_loss", "--over", "epoch", COLUMNS="60", LC_ALL="C.UTF-8")
        self.assertTrue(any("\u2800" < letter < "\u2900" for letter in dots))
        self.assertNotIn("train_loss", dots)
        self.assertIn(" epoch ", dots)

    def test_png(self):
        launch = self.run_to_end(write_job(self.path("job.json"), linear_job(epochs=4)))
        path = self.path("curves.png")
        self.assertEqual(self.verb("plot", launch.run_dir, "train_loss", "--png", "curves.png").strip(), path)
        image = read_file(path)
        self.assertTrue(image.startswith(b"\x89PNG\r\n\x1a\n"))
        self.assertEqual((int.from_bytes(image[16:20], "big"), int.from_bytes(image[20:24], "big")), (960, 260))
        pixels = b""
        at = 8
        while at < len(image):
            length, kind = int.from_bytes(image[at : at + 4], "big"), image[at + 4 : at + 8]
            self.assertEqual(zlib.crc32(image[at + 4 : at + 8 + length]), int.from_bytes(image[at + 8 + length : at + 12 + length], "big"))
            pixels += image[at + 8 : at + 8 + length] if kind == b"IDAT" else b""
            at += 12 + length
        self.assertEqual(len(zlib.decompress(pixels)), 260 * (1 + 3 * 960))
        self.assertIn("missing/x.png", self.verb("plot", launch.run_dir, "--png", "missing/x.png", expect=1))

    def test_metrics_that_are_not_known(self):
        launch = self.run_to_end(write_job(self.path("job.json"), linear_job(epochs=1)))
        said = self.verb("plot", launch.run_dir, "vall_loss", expect=2)
        self.assertTrue(said.endswith('no metric "vall_loss"; did you mean "val_loss"?\n'), said)
        said = self.verb("plot", launch.run_dir, "perplexity", expect=2)
        self.assertIn('no metric "perplexity": known are ', said)
        for name in ("train_loss", "val_loss", "train/num_samples", "validate/num_samples"):
            self.assertIn(name, said)
        self.assertIn("expected one of step, epoch, iteration, time", self.verb("plot", launch.run_dir, "--over", "steps", expect=2))
        launch = self.run_to_end("--", "true", run_dir="silent")
        self.assertIn("has reported no number yet", self.verb("plot", launch.run_dir, expect=4))

    def test_metrics_are_followed(self):
        job = {"name": "reports", "num_workers": 1, "command": ["/usr/bin/python3", "-S", RANK, "1", "30", "--pause", "0.02"]}
        launch = self.start(write_job(self.path("job.json"), job))
        launch.wait_for_event("worker_started")
        text = self.verb("metrics", "-f", launch.run_dir)
        self.assertEqual(text.encode(), read_file(os.path.join(launch.run_dir, "metrics.jsonl")))
        self.assertEqual(text.count("\n"), 30)
        self.assertEqual(launch.wait(), 0)

    def check_forms(self, export, metrics):
        """`metrics --to DIR --as FORM`, twice: what is there is not doubled."""
        for form, name in (("json", "results.json"), ("csv", "progress.csv"), ("tensorboard", ""), ("tensorboard", "")):
            export(form)
            self.assertTrue(os.path.exists(self.path("out", name)), form)
        self.assertEqual(json.loads(read_file(self.path("out", "results.json"))), [[line] for line in metrics])
        self.assertEqual(read_file(self.path("out", "progress.csv")).count(b"\n"), 1 + len(metrics))
        reports = [event for event in events(event_file(self.path("out"))) if event["scalars"]]
        self.assertEqual([event["step"] for event in reports], list(range(1, 1 + len(metrics))))

    def test_metrics_in_the_form_of_other_tools(self):
        launch = self.run_to_end(write_job(self.path("job.json"), linear_job(epochs=3)))
        self.check_forms(lambda form: self.verb("metrics", "--to", "out", "--as", form, launch.run_dir), launch.metrics())
        self.assertIn("expected tensorboard, csv or json", self.verb("metrics", "--to", "out", "--as", "xml", launch.run_dir, expect=2))
        self.assertIn("--as needs --to DIR", self.verb("metrics", "--as", "csv", launch.run_dir, expect=2))

    def test_on_a_cluster(self):
        os.mkdir(self.path("tmp"))
        with Cluster({"n1": 1}) as cluster, mock.patch.dict(os.environ, TMPDIR=self.path("tmp")):
            client = cluster.run("-n", 1, write_job(self.path("job.json"), linear_job(epochs=3)))
            client.wait_and_say(0)
            self.check_forms(lambda form: self.assertEqual(cluster.run("metrics", "--to", self.path("out"), "--as", form, client.run_id()).wait(), 0),
                             cluster.lines(client.run_id(), "metrics.jsonl"))
            plot = cluster.run("plot", client.run_id(), "val_loss")
            self.assertEqual(plot.wait(), 0, plot.said())
            self.assertIn("val_loss: ", plot.said()[1])
            left = cluster.run("plot", client.run_id(), "loss")
            self.assertIn("known are ", left.wait_and_say(2))
            self.assertEqual(os.listdir(self.path("tmp")), [], "fetched files are left")


if __name__ == "__main__":
    unittest.main()
