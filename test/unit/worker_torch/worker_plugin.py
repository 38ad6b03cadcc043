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

    def test_an_operation_without_a_deterministic_form_is_refused_where_that_is_asked_for(self):
        job = own_job(epochs=1, model={"type": "two_layers", "hidden": 16, "unpool": True})
        job["training"]["steps_per_epoch"] = 3
        self.train(job, 2)
        job["training"]["deterministic"] = True
        agent = self.agent(job, 2)
        agent.start()
        self.assertEqual(agent.run(), [USER_ERROR, USER_ERROR])
        self.assertIn("max_unpooling2d_forward_out does not have a deterministic implementation", agent.of_type("failed")[0]["message"])

    def test_an_own_model_under_the_built_in_operator(self):
        own = self.train(own_job(epochs=1, model={"type": "two_layers", "hidden": 64}), 2)
        built_in = image_job(epochs=1)
        built_in["training"]["model"] = {"type": "mlp", "hidden": [64]}
        same = self.train(built_in, 2)
        self.assertAlmostEqual(self.metric(own, 1, "train", "train_loss"), self.metric(same, 1, "train", "train_loss"), delta=1e-3)


def pairs_job(workers=2, epochs=3, wrong="", **changes):
    job = image_job(workers=workers, epochs=epochs, batch=20)
    del job["training"]["model"]
    job["plugins"] = [library("own_data")]
    job["training"].update({"operator": {"type": "pairs"}, "dataset": {"type": "pairs", "samples": 1000, "wrong": wrong},
                            "loss": {"type": "scaled"}, **changes})
    return job


class OwnData(RecoveryTest):
    """A data set of a plug-in's with several inputs, its loss, and a model that takes two tensors."""

    def test_multi_input_model(self):
        agent = self.train(pairs_job(epochs=20), 2)
        self.assertEqual(self.metric(agent, 1, "train", "num_samples"), 500)
        first, last = [self.metric(agent, epoch, "validate", "val_loss") for epoch in (1, 20)]
        self.assertLess(last, first / 2)

    def test_kills_change_no_bit_with_or_without_threads(self):
        for threads in (0, 2):
            job = pairs_job(epochs=60, loader={"threads": threads, "prefetch": 3})
            clean = self.train(job, 2)
            agent = self.agent(job, 2)
            agent.start()
            kill_at_step(agent, 200)
            agent = self.next_generation(job, agent)
            agent.start()
            self.assertEqual(agent.run(), [0, 0])
            self.assertEqual(self.weights(clean), self.weights(agent))

    def test_its_settings_and_the_loss_count(self):
        one, other = [self.train(pairs_job(epochs=1), 2) for _ in range(2)]
        self.assertEqual(self.weights(one), self.weights(other))
        for changes in ({"loss": {"type": "scaled", "scale": 2.0}}, {"dataset": {"type": "pairs", "samples": 990}},
                        {"seed": 8}):
            self.assertNotEqual(self.weights(one), self.weights(self.train(pairs_job(epochs=1, **changes), 2)), changes)

    def test_a_loop_of_ones_own_gets_it(self):
        job = pairs_job(epochs=30, steps_per_epoch=70)
        for key in ("operator", "loss", "optimizer"):
            del job["training"][key]
        job["training"]["function"] = {"type": "pairs_loop", "letters": 3}
        clean = self.train(job, 2)
        self.assertEqual([m["metrics"]["batches"] for m in clean.of_type("report", 0)], [70] * 30)
        self.assertEqual({m["rank"]: m["value"] for m in clean.of_type("result")},
                         {rank: {"rank": rank, "text": "aaa"} for rank in (0, 1)})
        agent = self.agent(job, 2)
        agent.start()
        kill_at_step(agent, 100)
        agent = self.next_generation(job, agent)
        agent.start()
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(self.weights(clean), self.weights(agent))

    def validations(self, agent):
        return [m["metrics"] for m in agent.of_type("report", 0) if m["key"]["phase"] == "validate"]

    def test_of_several_only_the_part_that_is_used_needs_samples(self):
        def sets(train, validation):
            job = pairs_job(epochs=1)
            del job["training"]["dataset"]
            job["training"]["datasets"] = {name: {"type": "pairs", "samples": 1000, "wrong": wrong}
                                           for name, wrong in (("train", train), ("validation", validation))}
            return job
        agent = self.train(sets("no validation", "no training"), 2)
        self.assertEqual((self.metric(agent, 1, "train", "num_samples"), self.metric(agent, 1, "validate", "num_samples")), (500, 50))
        agent = self.agent(sets("", "no validation"), 1, forks=None)
        agent.start()
        self.assertEqual(agent.run(), [USER_ERROR])
        self.assertIn("says it has 0 samples to validate on: 1 to", agent.of_type("failed")[0]["message"])

    def test_without_samples_to_validate_on_no_epoch_is_validated(self):
        agent = self.train(pairs_job(epochs=2, wrong="no validation"), 2)
        self.assertEqual(self.validations(agent), [{}, {}])
        early_stop = {"metric": "val_loss", "mode": "min", "patience": 1, "min_delta": 0}
        plateau = {"type": "reduce_on_plateau", "metric": "val_loss"}
        for changes, words in (({"early_stop": early_stop}, '"training.early_stop" needs validation'),
                               ({"scheduler": plateau}, 'the scheduler "reduce_on_plateau" needs validation'),
                               ({"validate_only": True}, '"training.validate_only" needs validation')):
            with self.subTest(words):
                agent = self.agent(pairs_job(wrong="no validation", **changes), 1)
                agent.start()
                self.assertEqual(agent.run(), [CONFIGURATION])
                self.assertIn(words, agent.of_type("failed")[0]["message"])

    def test_what_it_does_wrong_is_said_with_its_name(self):
        for wrong, code, words in (
                ("gather", USER_ERROR, "sample 3 is bad"), ("factory", USER_ERROR, "no pairs today"),
                ("count", USER_ERROR, 'the data set "pairs" says it has 0 samples to train on: 1 to 4294967295 can be'),
                ("rows", USER_ERROR, 'the data set "pairs": gather() was asked for 20 samples, and target has the shape [19, 1]: '
                 "its first size must be the number of samples")):
            agent = self.agent(pairs_job(wrong=wrong), 1, forks=None)
            agent.start()
            self.assertEqual(agent.run(), [code], wrong)
            self.assertIn(words, agent.of_type("failed")[0]["message"])

    def test_a_model_that_takes_another_number_of_tensors_is_named(self):
        job = pairs_job(model={"type": "mlp", "inputs": 1, "outputs": 1})
        del job["training"]["operator"]
        agent = self.agent(job, 1, forks=None)
        agent.start()
        self.assertEqual(agent.run(), [USER_ERROR])
        self.assertIn("takes 1 tensors, and a batch of the data set has 2 beside the target",
                      agent.of_type("failed")[0]["message"])


class Creators(RecoveryTest):
    """RaySGD's creators in place of an operator."""

    def job(self, name, **training):
        job = image_job(epochs=2)
        del job["training"]["model"]
        job["plugins"] = [library("creators")]
        job["training"].update({"operator": {"type": name}, **training})
        return job

    def test_all_four_and_a_kill_changes_no_bit(self):
        job = self.job("all_created")
        del job["training"]["optimizer"]
        clean = self.train(job, 2)
        self.assertGreater(self.metric(clean, 2, "validate", "val_accuracy"), 0.7)
        with open(self.checkpoint(clean) + "/state.json", encoding="utf-8") as file:
            part, = json.load(file)["optimizers"]
        self.assertEqual((part["type"], part["groups"][0]["made"]["momentum"]), ("sgd", 0.9))
        self.assertAlmostEqual(part["groups"][0]["now"]["lr"], 0.05 / 4)
        agent = self.agent(job, 2)
        agent.start()
        self.assertEqual(sorted(kill_at_step(agent, 100)), [-9, 75])
        agent = self.next_generation(job, agent)
        agent.start()
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(self.weights(clean), self.weights(agent))

    def test_what_has_no_creator_the_job_says(self):
        agent = self.train(self.job("model_created", optimizer={"type": "adam"}, scheduler={"type": "step", "step_size": 1}), 2)
        self.assertIn("1.weight", read_tensors(self.checkpoint(agent) + "/model.safetensors"))
        self.assertIn("1.weight.exp_avg", read_tensors(self.checkpoint(agent) + "/optimizer.safetensors"))
        twice = self.train(self.job("loss_created", epochs=1), 1)
        self.assertGreater(self.metric(twice, 1, "train", "train_loss"), 1.0)


def everything_job(epochs=3, workers=2, **changes):
    job = image_job(workers=workers, epochs=epochs)
    del job["training"]["model"]
    job["plugins"] = [library("everything")]
    job["training"]["operator"] = {"type": "everything"}
    job["training"]["gradient_clip"] = {"norm": 0.5}
    for key in ("optimizer", "scheduler"):
        job["training"].pop(key, None)
    job["training"].update(changes)
    return job


class Everything(RecoveryTest):
    """Running statistics, dropout, tied, unused and frozen weights, two optimizers, schedulers, accumulation, own state."""

    def state(self, agent):
        with open(self.checkpoint(agent) + "/state.json", encoding="utf-8") as file:
            return json.load(file)

    def all_bits(self, agent):
        folder = self.checkpoint(agent)
        tensors = {name: read_tensors(f"{folder}/{name}.safetensors") for name in ("model", "optimizer", "ranks")}
        return tensors, self.state(agent)["optimizers"], self.state(agent)["records"]

    def test_kills_change_no_bit(self):
        job = everything_job()
        clean = self.train(job, 2)
        agent = self.agent(job, 2)
        agent.start()
        sources = set()
        for at_step in (40, 130, 290, 500):
            self.assertEqual(sorted(kill_at_step(agent, at_step, copied=True)), [-9, 75])
            agent = self.next_generation(job, agent)
            agent.start()
            agent.run(until=lambda a: len(a.of_type("ready")) == 2)
            sources.add(agent.of_type("ready")[0]["source"])
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(sources, {"memory"})
        self.assertEqual(self.all_bits(clean), self.all_bits(agent))

    def test_from_disk_alone_and_over_two_nodes(self):
        job = everything_job(epochs=2)
        job["checkpoint"] = {"every": {"steps": 100}, "keep": 100, "memory": False}
        clean = self.train(job, 2)
        agent = self.agent(job, 2)
        agent.start()
        kill_at_step(agent, 250)
        paths = [os.path.join(agent.run_dir, m["path"]) for m in reversed(agent.of_type("checkpoint"))]
        agent = self.next_generation(job, agent, resume_from=paths)
        agent.start()
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(agent.of_type("ready")[0]["source"], "disk")
        self.assertEqual(self.all_bits(clean), self.all_bits(agent))
        job["training"]["backend"] = "gloo"
        self.assertEqual(self.all_bits(clean), self.all_bits(self.train(job, 2, nodes=2)))

    def test_what_a_checkpoint_holds(self):
        clean = self.train(everything_job(epochs=1), 2)
        tensors, optimizers, records = self.all_bits(clean)
        for name in ("body.in.weight", "body.norm.running_mean", "body.spare.weight", "head.weight"):
            self.assertIn(name, tensors["model"])
        self.assertEqual(tensors["model"]["body.mix.weight"], tensors["model"]["body.again.weight"])
        self.assertIn("body.in.weight.max_exp_avg_sq", tensors["optimizer"])
        self.assertIn("head.bias.momentum_buffer", tensors["optimizer"])
        self.assertNotIn("head.bias.exp_avg", tensors["optimizer"])
        self.assertNotEqual(tensors["ranks"]["rank-0000/seen"], tensors["ranks"]["rank-0001/seen"])
        self.assertEqual([o["name"] for o in optimizers], ["body", "head"])
        body, head = optimizers
        self.assertEqual(body["batches"], (head["batches"] + 2) // 3)
        self.assertEqual(head["batches"], self.state(clean)["step"])
        self.assertEqual([g["made"]["weight_decay"] for g in body["groups"]], [0.01, 0])
        self.assertLess(body["groups"][0]["now"]["lr"], body["groups"][0]["made"]["lr"])

    def test_another_number_of_ranks_goes_on(self):
        job = everything_job(epochs=2)
        job["checkpoint"] = {"every": {"steps": 100}, "keep": 100}
        two = self.train(job, 2)
        path = os.path.join(two.run_dir, two.of_type("checkpoint")[1]["path"])
        one = self.train(everything_job(epochs=2, workers=1), 1, generation=5, resume_from=path)
        self.assertEqual(self.metric(one, 1, "train", "num_samples"), 2 * self.metric(two, 1, "train", "num_samples"))


class SeveralOptimizers(RecoveryTest):
    FORKED = False

    def train_mistaken(self, mistake, **changes):
        job = everything_job(epochs=1, **changes)
        job["plugins"] = [library("two_optimizers")]
        job["training"]["operator"] = {"type": "mistaken", "mistake": mistake}
        agent = self.agent(job, 2)
        agent.start()
        codes = agent.run()
        self.assertTrue(set(codes) <= {USER_ERROR, CONFIGURATION, 75}, codes)
        return agent.of_type("failed")[0]["message"]

    def test_mistakes_are_named(self):
        for mistake, words in {
                "same model name": 'two models are named "first"',
                "not registered": "of no registered model: register the model with setup.model()",
                "lbfgs": "LBFGS, which evaluates the loss several times",
                "class of its own": "is of a class of its own",
                "of two": "parameter first.weight is of two optimizers",
                "bad scheduler": 'got "steep"; did you mean "step"?',
                "minimize": "minimize() is for one optimizer, and there are 2",
                "unknown to update": "an optimizer is used that is not registered",
                "one rank updates": "the ranks came to different collectives"}.items():
            with self.subTest(mistake):
                self.assertIn(words, self.train_mistaken(mistake))
        self.assertIn("for 1000 batches there have been gradients that no update has taken", self.train_mistaken("forgets one", batch_size=16))
        self.assertIn('its operator makes its own optimizers', self.train_mistaken("nothing", scheduler={"type": "step", "step_size": 2}))


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
        self.assertIn("train_epoch() has ended before add()", self.failure(own_job(fail_in="train_epoch"), USER_ERROR))
        self.assertRegex(self.failure(own_job(fail_in="validate_batch"), USER_ERROR), r"^in validation after step \d+: no batch of these$")

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
            file.write(data.replace(b"sgd-plugin-abi: API 5", b"sgd-plugin-abi: API 9"))
        said = self.failure(own_job(other), CONFIGURATION)
        self.assertRegex(said, r"was built for API 9, LibTorch [\d.]+.*this worker is API 5, LibTorch [\d.]+")
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
        said = subprocess.run([worker_alone.WORKER, "--schema", library("own_loop")], capture_output=True, check=True, timeout=60)
        self.assertEqual(sorted(json.loads(said.stdout)["function"]), ["accumulating", "clipping", "epochs", "iterations", "own_data", "reporting", "small_products", "turns"])


if __name__ == "__main__":
    worker_alone.WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
