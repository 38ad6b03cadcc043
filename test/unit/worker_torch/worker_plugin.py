#!/usr/bin/env python3
"""sgd-worker with a user's own model and operator, built against the public headers alone.

    worker_plugin.py build/bin/sgd-worker [unittest arguments]
"""
import json
import os
import shutil
import subprocess
import sys
import unittest

import worker_alone
from worker_alone import image_job, read_tensors
from worker_recovery import RecoveryTest, kill_at_step

CONFIGURATION, USER_ERROR = 2, 1


def library(name):
    return os.path.join(os.path.dirname(worker_alone.WORKER), "..", "lib", name + ".so")


def own_job(plugin=None, epochs=2, workers=2, model=None, **operator):
    job = image_job(workers=workers, epochs=epochs)
    job["plugins"] = [plugin or library("own_operator")]
    if model:
        job["training"]["model"] = model
    else:
        del job["training"]["model"]
        job["training"]["operator"] = {"type": "smoothed", **operator}
    return job


class OwnOperator(RecoveryTest):
    def test_it_trains_with_its_settings(self):
        agent = self.train(own_job(epochs=1, hidden=48), 2)
        self.assertGreater(self.metric(agent, 1, "validate", "val_accuracy"), 0.7)
        tensors = read_tensors(self.checkpoint(agent) + "/model.safetensors")
        self.assertEqual(tensors["first.weight"][0], [48, 784])
        self.assertIn("norm.running_mean", tensors)

    def test_kills_change_no_bit_of_weights_and_running_statistics(self):
        job = own_job()
        clean = self.train(job, 2)
        agent = self.agent(job, 2)
        agent.start()
        for at_step in (100, 500):
            self.assertEqual(sorted(kill_at_step(agent, at_step)), [-9, 75])
            agent = self.next_generation(job, agent)
            agent.start()
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(agent.of_type("ready")[0]["source"], "memory")
        self.assertEqual(self.weights(clean), self.weights(agent))

    def test_what_gets_no_gradient_stays_as_it_is(self):
        job = own_job(epochs=2, freeze_at=300)
        job["training"]["optimizer"] = {"type": "adam", "weight_decay": 0.01}
        job["checkpoint"] = {"every": {"steps": 150}, "keep": 100}
        clean = self.train(job, 2)
        saved = [read_tensors(os.path.join(clean.run_dir, m["path"]) + "/model.safetensors") for m in clean.of_type("checkpoint")]
        steps = [m["step"] for m in clean.of_type("checkpoint")]
        frozen = saved[steps.index(300)]
        for name in ("spare.weight", "spare.bias"):
            self.assertEqual(saved[0][name], saved[-1][name])
        self.assertNotEqual(saved[0]["first.weight"], frozen["first.weight"])
        self.assertEqual(frozen["first.weight"], saved[-1]["first.weight"])
        self.assertNotEqual(frozen["last.weight"], saved[-1]["last.weight"])
        agent = self.agent(job, 2)
        agent.start()
        for at_step in (100, 400):
            kill_at_step(agent, at_step)
            agent = self.next_generation(job, agent)
            agent.start()
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(self.weights(clean), self.weights(agent))
        resumed = self.train(job, 2, generation=9, resume_from=os.path.join(clean.run_dir, clean.of_type("checkpoint")[2]["path"]))
        self.assertEqual(self.weights(clean), self.weights(resumed))

    def test_two_nodes_and_one_end_with_the_same_bits(self):
        job = own_job(epochs=1)
        job["training"]["backend"] = "gloo"
        self.assertEqual(self.weights(self.train(job, 2)), self.weights(self.train(job, 2, nodes=2)))

    def test_an_own_model_under_the_built_in_operator(self):
        own = self.train(own_job(epochs=1, model={"type": "two_layers", "hidden": 64}), 2)
        built_in = image_job(epochs=1)
        built_in["training"]["model"] = {"type": "mlp", "hidden": [64]}
        same = self.train(built_in, 2)
        self.assertAlmostEqual(self.metric(own, 1, "train", "train_loss"), self.metric(same, 1, "train", "train_loss"), delta=1e-3)


class Mistakes(RecoveryTest):
    FORKED = False

    def failure(self, job, code, ranks=2):
        agent = self.agent(job, ranks)
        agent.start()
        codes = agent.run()
        self.assertIn(code, codes)
        self.assertTrue(set(codes) <= {code, 75}, codes)
        return agent.of_type("failed")[0]["message"]

    def test_what_its_code_throws_is_said(self):
        self.assertIn("setup does not like this", self.failure(own_job(fail_in="setup"), USER_ERROR))
        self.assertIn("this batch is odd", self.failure(own_job(fail_in="train_batch"), USER_ERROR))

    def test_settings_that_do_not_fit(self):
        self.assertIn('unknown key "hiden"', self.failure(own_job(hiden=3), CONFIGURATION))
        self.assertIn('must be below 1', self.failure(own_job(dropout=1), CONFIGURATION))
        job = own_job()
        job["training"]["operator"]["type"] = "smooth"
        self.assertIn('did you mean "smoothed"?', self.failure(job, CONFIGURATION))

    def test_libraries_that_are_none(self):
        self.assertIn("/nowhere.so is not there", self.failure(own_job("/nowhere.so"), CONFIGURATION))
        self.assertIn("is no library", self.failure(own_job(os.path.abspath(__file__)), CONFIGURATION))
        self.assertIn("registers nothing", self.failure(own_job(shutil.which("true")), CONFIGURATION))
        other = self.dir + "/other.so"
        with open(library("own_operator"), "rb") as file:
            data = file.read()
        with open(other, "wb") as file:
            file.write(data.replace(b"sgd-plugin-abi: API 1", b"sgd-plugin-abi: API 9"))
        said = self.failure(own_job(other), CONFIGURATION)
        self.assertRegex(said, r"was built for API 9, LibTorch [\d.]+.*this worker is API 1, LibTorch [\d.]+")
        with open(other, "wb") as file:  # A tag that is too long.
            file.write(b"\x7fELF sgd-plugin-abi: " + b"x" * 300 + b"\0")
        self.assertIn("registers nothing", self.failure(own_job(other), CONFIGURATION))

    def test_what_is_registered_wrongly(self):
        said = self.failure(own_job(library("registers_twice")), CONFIGURATION)
        for part in ('"nothing": it is registered twice', '"supervised": a built-in one has this name',
                     '"odd": its properties: a default does not fit: "rate" must be at least 1'):
            self.assertIn(part, said)


class Schema(unittest.TestCase):
    def test_it_is_printed(self):
        said = subprocess.run([worker_alone.WORKER, "--schema", library("own_operator")], capture_output=True, check=True, timeout=60)
        registered = json.loads(said.stdout)
        self.assertEqual(registered["operator"]["smoothed"]["hidden"]["default"], 64)
        self.assertEqual(list(registered["model"]), ["two_layers"])


if __name__ == "__main__":
    worker_alone.WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
