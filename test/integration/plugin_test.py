"""Jobs with a user's own plug-in, as the launcher sees them: paths, settings checked before anything starts, failures in its code."""

import json
import os
import shutil
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, small_fashion
from harness import BIN_DIR, LaunchTest

PLUGIN = os.path.join(BIN_DIR, "..", "lib", "own_operator.so")


class PluginTest(LaunchTest):
    def job(self, plugin="./mine/own.so", **settings):
        os.makedirs(self.path("mine"), exist_ok=True)
        shutil.copy(PLUGIN, self.path("mine", "own.so"))
        job = image_job(small_fashion(self.path("data"), 2048, 256), epochs=2, operator={"type": "smoothed", **settings})
        del job["training"]["model"]
        job["plugins"] = [plugin]
        return self.write("job.json", json.dumps(job, indent=1))

    def refused(self, path, *arguments):
        launch = self.run_to_end(path, *arguments, expect=2)
        self.assertFalse(os.path.exists(self.path("run")), "something was created")
        return launch.stderr()

    def test_it_trains_from_a_path_beside_the_job_file(self):
        launch = self.run_to_end(self.job(), "--set", "training.operator.hidden=32")
        self.assertEqual(launch.summary()["state"], "succeeded")
        self.assertGreater(launch.metrics("validate")[-1]["val_accuracy"], 0.3)
        with open(self.path("run", "job.json"), encoding="utf-8") as file:
            resolved = json.load(file)
        self.assertEqual(resolved["plugins"], [self.path("mine", "own.so")])
        self.assertEqual(resolved["training"]["operator"],
                         {"type": "smoothed", "hidden": 32, "dropout": 0.2, "smoothing": 0.1, "fail_in": "nothing", "freeze_at": 1000000})

    def test_its_settings_are_checked_like_built_in_ones(self):
        said = self.refused(self.job(hiden=3, dropout=2, fail_in="nowhere"))
        self.assertRegex(said, r'job.json:\d+:\d+: error: unknown key "hiden" in "training.operator" of type "smoothed"; did you mean "hidden"\?')
        self.assertRegex(said, r'job.json:\d+:\d+: error: "training.operator.dropout" must be below 1, got 2')
        self.assertIn('must be "nothing", "setup", "train_batch", "train_epoch" or "validate_batch", got "nowhere"', said)
        said = self.refused(self.job(), "--set", "training.operator.type=smoothd")
        self.assertIn('"training.operator.type" must be "supervised" or "smoothed", got "smoothd"; did you mean "smoothed"?', said)

    def function_job(self, **function):
        return self.write("loop.json", json.dumps({
            "num_workers": 2, "plugins": [os.path.join(os.path.dirname(PLUGIN), "own_data.so")],
            "training": {"epochs": 2, "batch_size": 20, "dataset": {"type": "pairs", "samples": 200},
                         "function": {"type": "pairs_loop", **function}}}))

    def test_what_a_function_returns_is_in_the_summary_by_rank(self):
        launch = self.run_to_end(self.function_job())
        self.assertEqual(launch.summary()["results"], [{"rank": 0, "text": "aaa"}, {"rank": 1, "text": "aaa"}])

    def test_bytes_that_are_no_text_in_what_a_function_returns_are_replaced(self):
        launch = self.run_to_end(self.function_job(letter=255))
        self.assertEqual([result["text"] for result in launch.summary()["results"]], ["\ufffd" * 3] * 2)

    def test_what_a_function_returns_may_not_be_endless(self):
        launch = self.run_to_end(self.function_job(letters=70000), expect=1)
        self.assertRegex(launch.stderr(), r"the function returns 700\d\d bytes of JSON, and at most 65536 can be: save what is large")

    def test_a_data_set_of_its_own_is_checked_like_a_built_in_one(self):
        said = self.refused(self.function_job(), "--set", "training.dataset.samles=4", "--set", "training.function.letters=-1")
        self.assertIn('unknown key "samles" in "training.dataset" of type "pairs"; did you mean "samples"?', said)
        self.assertIn('"training.function.letters" must be at least 0, got -1', said)

    def test_a_plugin_that_is_none(self):
        self.assertRegex(self.refused(self.job("./none.so")), r"job.json:\d+:\d+: error: the plug-in \S+/none.so is not there: build it \(cmake --build build\)")
        self.assertIn("is no library", self.refused(self.job("./job.json")))

    def test_its_mistake_ends_the_run_without_a_retry(self):
        launch = self.run_to_end(self.job(fail_in="train_batch"), expect=1)
        self.assertIn("this batch is odd", launch.stderr())
        self.assertEqual(len(launch.events("worker_started")), 2, "it was tried again")


if __name__ == "__main__":
    unittest.main()
