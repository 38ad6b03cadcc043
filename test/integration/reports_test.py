"""What a run's lines of metrics have of its workers' reports, by the job's "report"."""

import json
import os
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LaunchTest

LINEAR = {"num_workers": 2,
          "training": {"epochs": 2, "batch_size": 40, "loss": "mse", "model": {"type": "linear", "init": "zeros"},
                       "dataset": {"type": "linear", "samples": 1000, "validation_samples": 400}}}
BASIC = {"_timestamp", "_time_this_iter_s", "_training_iteration"}
DETAILED = {"_date", "_hostname", "_node_ip", "_pid", "_time_total_s"}


class ReportsTest(LaunchTest):
    def lines(self, **report):
        job = {**LINEAR, **({"report": report} if report else {})}
        launch = self.run_to_end(self.write("job.json", json.dumps(job)))
        self.assertEqual(launch.summary()["state"], "succeeded")
        return launch.metrics()

    def test_reduce_result(self):
        for line in self.lines(workers="list"):
            samples = 500 if line["phase"] == "train" else 200
            loss = "train_loss" if line["phase"] == "train" else "val_loss"
            self.assertNotIn(loss, line)
            self.assertEqual([worker["num_samples"] for worker in line["workers"]], [samples, samples])
            self.assertNotEqual(line["workers"][0][loss], line["workers"][1][loss])
            for worker in line["workers"]:
                self.assertLessEqual(BASIC, set(worker))
                self.assertFalse(DETAILED & set(worker))

    def test_all_workers_beside_the_reduced_values(self):
        for line in self.lines(workers="all"):
            loss = "train_loss" if line["phase"] == "train" else "val_loss"
            self.assertAlmostEqual(line[loss], sum(worker[loss] for worker in line["workers"]) / 2, places=12)
            self.assertEqual(line["num_samples"], 1000 if line["phase"] == "train" else 400)

    def test_rank_0_alone_and_reduced(self):
        line = self.lines(workers="rank0")[0]
        self.assertEqual(line["num_samples"], 500)
        self.assertNotIn("workers", line)

    def test_detailed_keys(self):
        lines = self.lines(workers=[1], detailed=True)
        for line in lines:
            self.assertLessEqual(BASIC | DETAILED, set(line))
            self.assertEqual(len(line["workers"]), 1)
            self.assertLessEqual(BASIC | DETAILED, set(line["workers"][0]))
            self.assertNotEqual(line["_pid"], line["workers"][0]["_pid"])
            self.assertTrue(re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d", line["_date"]), line["_date"])
            self.assertTrue(line["_hostname"])
        totals = [line["_time_total_s"] for line in lines]
        self.assertEqual(totals, sorted(totals))
        self.assertAlmostEqual(totals[-1], sum(line["_time_this_iter_s"] for line in lines), places=6)

    def test_basic_keys_without_it(self):
        for line in self.lines():
            self.assertLessEqual(BASIC, set(line))
            self.assertFalse(DETAILED & set(line))


if __name__ == "__main__":
    unittest.main()
