"""The examples, built outside of the source tree against what `cmake --install` puts somewhere, and run."""

import json
import os
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import small_fashion
from harness import BIN_DIR, LaunchTest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class ExamplesTest(LaunchTest):
    def command(self, *words):
        done = subprocess.run(words, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_own_model(self):
        self.command("cmake", "--install", os.path.dirname(BIN_DIR), "--prefix", self.path("prefix"))
        source = shutil.copytree(os.path.join(ROOT, "worker", "examples", "own_model"), self.path("own_model"))
        self.command("cmake", "-S", source, "-B", source + "/build", f"-DCMAKE_PREFIX_PATH={self.path('prefix')}",
                     "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        self.command("cmake", "--build", source + "/build")
        with open(source + "/job.json", encoding="utf-8") as file:
            job = json.load(file)
        job["training"]["dataset"]["path"] = small_fashion(self.path("data"), 4096, 512)
        with open(source + "/job.json", "w", encoding="utf-8") as file:
            json.dump(job, file)
        os.environ["SGD_WORKER"] = self.path("prefix", "bin", "sgd-worker")
        self.addCleanup(os.environ.pop, "SGD_WORKER")
        launch = self.run_to_end(source + "/job.json")
        self.assertGreater(launch.metrics("validate")[-1]["val_accuracy"], 0.6)


if __name__ == "__main__":
    unittest.main()
