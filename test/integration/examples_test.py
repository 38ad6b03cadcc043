"""The examples, built outside of the source tree against what `cmake --install` puts somewhere, and run."""

import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import small_fashion
from ddp_parity_test import PEERS_PYTHON, has_torch
from harness import BIN_DIR, LaunchTest, read_file

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class ExamplesTest(LaunchTest):
    def command(self, *words):
        done = subprocess.run(words, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def setUp(self):
        super().setUp()
        self.command("cmake", "--install", os.path.dirname(BIN_DIR), "--prefix", self.path("prefix"))
        os.environ["SGD_WORKER"] = self.path("prefix", "bin", "sgd-worker")
        self.addCleanup(os.environ.pop, "SGD_WORKER")

    def build(self, name):
        """Outside of the tree."""
        source = shutil.copytree(os.path.join(ROOT, "worker", "examples", name), self.path(name), ignore=shutil.ignore_patterns("build"))
        self.command("cmake", "-S", source, "-B", source + "/build", f"-DCMAKE_PREFIX_PATH={self.path('prefix')}",
                     "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache")
        self.command("cmake", "--build", source + "/build")
        return source

    def run_example(self, name, samples, workers=2, **training):
        """Built, and trained on a part of the data."""
        source = self.build(name)
        with open(source + "/job.json", encoding="utf-8") as file:
            job = json.load(file)
        job["training"]["dataset"]["path"] = small_fashion(self.path("data"), samples, 512)
        job["training"].update(training)
        job["num_workers"] = workers
        with open(source + "/job.json", "w", encoding="utf-8") as file:
            json.dump(job, file)
        return self.run_to_end(source + "/job.json")

    def test_own_model(self):
        launch = self.run_example("own_model", 4096)
        self.assertGreater(launch.metrics("validate")[-1]["val_accuracy"], 0.6)

    def test_own_stream(self):
        """Each line once, over kills of both ranks, and to the same bits."""
        source = self.build("own_stream")
        for file, count in (("train", 20_000), ("validation", 400)):
            xs = [i % 1000 / 100 for i in range(count)]
            self.write(os.path.join(source, file + ".txt"), "".join(f"{x} {2 * x + 5}\n" for x in xs))
        plain = self.run_to_end(source + "/job.json")
        self.assertEqual([line["num_samples"] for line in plain.metrics()], [20_000, 400] * 3)
        self.assertLess(plain.metrics("validate")[-1]["val_loss"], 0.01)
        killed = self.start(source + "/job.json", run_dir="killed")
        for count in (1, 2):
            killed.wait_for_event("first_step", count=count)
            try:
                os.kill([event for event in killed.events("worker_started") if event["rank"] == count - 1][-1]["pid"], signal.SIGKILL)
            except ProcessLookupError:
                break
        self.assertEqual(killed.wait(), 0, killed.said())
        self.assertEqual([line["num_samples"] for line in killed.metrics()], [20_000, 400] * 3)
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(*(read_file(os.path.join(launch.checkpoints()[-1], name)) for launch in (plain, killed)))
        self.write(os.path.join(source, "train.txt"), "1 2\n3 x\n")
        self.assertIn("train.txt: a line behind byte 0 is no two numbers", self.run_to_end(source + "/job.json", run_dir="bad", expect=1).stderr())

    def test_own_worker(self):
        launch = self.run_example("own_worker", 4096)
        self.assertGreater(launch.metrics("validate")[-1]["val_accuracy"], 0.6)
        program = self.path("own_worker", "build", "my-worker")
        with open(self.path("run", "job.json"), encoding="utf-8") as file:
            resolved = json.load(file)
        self.assertEqual(resolved["worker"], program)
        self.assertEqual(resolved["training"]["operator"], {"type": "created", "hidden": 128, "lr": 0.05})
        listed = subprocess.run([program, "--list", "operators", "--json"], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertIn("created", listed)
        # By an option, from the folder where the user is; settings are checked, and failures restart it.
        with open(self.path("own_worker", "job.json"), encoding="utf-8") as file:
            job = json.load(file)
        del job["worker"]
        job["training"].update({"epochs": 200, "operator": {"type": "created", "hiden": 3}})
        bare = self.write("bare.json", json.dumps(job))
        self.assertIn('unknown key "hiden" in "training.operator" of type "created"; did you mean "hidden"?',
                      self.run_to_end("--worker", program, bare, run_dir="refused", expect=2).stderr())
        job["training"]["operator"] = {"type": "created"}
        bare = self.write("bare.json", json.dumps(job))
        self.assertIn('"training.operator.type" must be', self.run_to_end(bare, run_dir="unknown", expect=2).stderr())
        self.assertIn("did you mean", self.run_to_end("--worker", program[:-1], bare, run_dir="missing", expect=2).stderr())
        launch = self.start("--worker", program, "--local-nodes", 2, bare, run_dir="killed")
        launch.wait_for_event("first_step")
        victim = [event for event in launch.events("worker_started") if event["rank"] == 1][-1]["pid"]
        self.assertEqual(os.readlink(f"/proc/{victim}/exe"), program)
        os.kill(victim, signal.SIGKILL)
        launch.wait_for_event("first_step", count=2)

    def test_dcgan(self):
        launch = self.run_example("dcgan", 1024, epochs=1, batch_size=64)
        first = launch.metrics("train")[0]
        self.assertTrue(0 < first["loss_d"] < 2 and 0 < first["loss_g"] < 10, first)
        self.assertGreater(launch.metrics("validate")[0]["real_is_real"], launch.metrics("validate")[0]["fake_is_real"])

    @unittest.skipUnless(has_torch(), f"{PEERS_PYTHON} has no torch")
    def test_dcgan_has_the_losses_of_pytorch(self):
        """Of 20 steps. Roundings grow from step to step: in double precision PyTorch's own differ by 0.0015 at the end."""
        steps, batch_size, samples = 20, 32, 640
        launch = self.run_example("dcgan", samples, epochs=steps, steps_per_epoch=1, batch_size=batch_size, validate_every=steps, shuffle=False,
                                  workers=1, seed=1)
        ours = [(line["loss_d"], line["loss_g"]) for line in launch.metrics("train")]
        script = os.path.join(ROOT, "test", "support", "dcgan_steps.py")
        done = subprocess.run([PEERS_PYTHON, script, self.path("data"), "1", "16", str(batch_size), str(steps)], capture_output=True, text=True,
                              timeout=120, check=True)
        theirs = [json.loads(line) for line in done.stdout.splitlines()]
        self.assertEqual(len(ours), len(theirs))
        for step, (mine, other) in enumerate(zip(ours, theirs)):
            for value, expected in zip(mine, other):
                self.assertAlmostEqual(value, expected, delta=0.005 if step else 1e-5, msg=f"step {step + 1}")


if __name__ == "__main__":
    unittest.main()
