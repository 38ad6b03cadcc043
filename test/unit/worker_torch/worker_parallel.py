#!/usr/bin/env python3
"""sgd-worker: what ranks have in common beside gradients, updates that are not finite, half precision, several data sets.

    worker_parallel.py build/bin/sgd-worker [unittest arguments]
"""
import array
import json
import math
import os
import random
import struct
import sys
import unittest

import worker_alone
from worker_alone import image_job, read_tensors, write_images
from worker_loop import loop_job
from worker_plugin import everything_job
from worker_recovery import RecoveryTest, kill_at_step

SAMPLES, NUMBERS, BAD = 1280, 784, 700  # One sample of NaN: in a batch of each epoch.


def write_npy(path, descr, shape, values):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {tuple(shape)}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header)
        array.array({"<f4": "f", "<i8": "q"}[descr], values).tofile(file)


def write_numbers(folder, shape, bad):
    """Two classes that differ in their mean; `bad`: a sample that is not a number."""
    draw = random.Random(5)
    for part, count in (("train", SAMPLES), ("validation", 128)):
        targets = [draw.randrange(2) for _ in range(count)]
        values = [draw.gauss(target, 1) for target in targets for _ in range(math.prod(shape))]
        if bad is not None and part == "train":
            values[bad * math.prod(shape)] = math.nan
        write_npy(f"{folder}/{part}-x.npy", "<f4", (count, *shape), values)
        write_npy(f"{folder}/{part}-y.npy", "<i8", (count,), targets)
    return {"type": "npy", **{part: {"features": f"{folder}/{part}-x.npy", "target": f"{folder}/{part}-y.npy"}
                              for part in ("train", "validation")}}


def floats(tensor):
    shape, data = tensor
    values = array.array("f")
    values.frombytes(data)
    return list(values)


class Parallel(RecoveryTest):
    def state(self, agent):
        with open(self.checkpoint(agent) + "/state.json", encoding="utf-8") as file:
            return json.load(file)

    def all_bits(self, agent):
        folder = self.checkpoint(agent)
        files = [name for name in ("model", "optimizer", "ranks") if os.path.exists(f"{folder}/{name}.safetensors")]
        state = self.state(agent)
        return ({name: read_tensors(f"{folder}/{name}.safetensors") for name in files}, state["optimizers"], state["records"],
                state.get("loss_scale"))

    def tensors(self, agent, file="model"):
        return read_tensors(f"{self.checkpoint(agent)}/{file}.safetensors")

    def killed(self, job, steps, from_disk=False):
        agent = self.agent(job, 2)
        agent.start()
        saved = []
        for at_step in steps:
            self.assertEqual(sorted(kill_at_step(agent, at_step)), [-9, 75])
            saved = [os.path.join(agent.run_dir, m["path"]) for m in reversed(agent.of_type("checkpoint"))] + saved
            agent = self.next_generation(job, agent, resume_from=saved if from_disk else saved[:1])
            agent.start()
        self.assertEqual(agent.run(), [0, 0], agent.of_type("failed"))
        return agent


class BatchNormOverRanks(Parallel):
    def test_statistics_are_of_all_samples_and_kills_change_no_bit(self):
        job = everything_job(epochs=2, data_parallel={"sync_batchnorm": True})
        clean = self.train(job, 2)
        own = self.train(everything_job(epochs=2), 2)
        self.assertNotEqual(self.tensors(clean), self.tensors(own))  # It is in force.
        self.assertEqual(self.all_bits(clean), self.all_bits(self.killed(job, (60, 400))))
        job["training"]["backend"] = "gloo"
        self.assertEqual(self.tensors(clean)["body.norm.running_var"], self.tensors(self.train(job, 2, nodes=2))["body.norm.running_var"])

    def test_a_validation_that_is_left_in_the_middle_ends_where_training_goes_on(self):
        write_images(self.dir, 640)
        weights = {}
        for look in ("never", "to the end", "for a while"):
            job = loop_job("epochs", epochs=1, look=look)
            job["training"].update({"dataset": {"type": "idx", "path": self.dir}, "data_parallel": {"sync_batchnorm": True}})
            weights[look] = self.weights(self.train(job, 2))
        self.assertEqual(len(set(weights.values())), 1, weights)

    def test_two_ranks_train_as_one_does(self):
        """With the same samples a step; what differs is the order of sums."""
        first = {}
        for ranks in (1, 2):
            job = image_job(workers=ranks, epochs=1)
            job["training"].update({"model": {"type": "resnet18", "stem": "cifar", "width": 4, "outputs": 10}, "steps_per_epoch": 4,
                                    "batch_size": 32, "shuffle": False, "data_parallel": {"sync_batchnorm": True}, "validate_every": 9})
            job["training"]["optimizer"] = {"type": "sgd", "lr": 0.01}
            first[ranks] = self.tensors(self.train(job, ranks, timeout=120))
        for name, one in first[1].items():
            if name.endswith("num_batches_tracked"):
                continue
            for a, b in zip(floats(one), floats(first[2][name])):
                self.assertAlmostEqual(a, b, delta=2e-4 * max(1, abs(a)), msg=name)


class OwnBuffers(Parallel):
    def test_each_rank_keeps_its_own_through_kills(self):
        job = everything_job(epochs=2, data_parallel={"broadcast_buffers": False})
        clean = self.train(job, 2)
        ranks = self.tensors(clean, "ranks")
        self.assertNotEqual(ranks["rank-0000/buffer/body.norm.running_mean"], ranks["rank-0001/buffer/body.norm.running_mean"])
        self.assertEqual(ranks["rank-0000/buffer/body.norm.running_mean"], self.tensors(clean)["body.norm.running_mean"])
        self.assertEqual(self.all_bits(clean), self.all_bits(self.killed(job, (60, 400))))

    def test_from_disk_and_with_another_number_of_ranks(self):
        job = everything_job(epochs=2, data_parallel={"broadcast_buffers": False})
        job["checkpoint"] = {"every": {"steps": 100}, "keep": 100, "memory": False}
        clean = self.train(job, 2)
        self.assertEqual(self.all_bits(clean), self.all_bits(self.killed(job, (250,), from_disk=True)))
        path = os.path.join(clean.run_dir, clean.of_type("checkpoint")[1]["path"])
        for ranks in (1, 3):
            self.train({**job, "num_workers": ranks}, ranks, generation=5, resume_from=path)


class NotFinite(Parallel):
    def job(self, on_nan, model=None, shape=(NUMBERS,), **changes):
        job = everything_job(epochs=3, batch_size=32, on_nan=on_nan, dataset=write_numbers(self.dir, shape, BAD), **changes)
        if model:
            del job["training"]["operator"], job["plugins"]
            job["training"]["model"] = model
        job["checkpoint"] = {"every": {"steps": 7}, "keep": 100}
        return job

    def end_of(self, job):
        """An agent whose ranks have ended as a launcher ends them: the others are aborted when the first has failed."""
        agent = self.agent(job, 2)
        agent.start()
        agent.run(until=lambda a: any(rank.exit_code is not None for rank in a.ranks))
        agent.send_all({"type": "abort", "generation": agent.generation})
        agent.run()
        return agent

    def test_rollback_goes_back_to_the_newest_checkpoint_and_on_with_the_next_batch(self):
        job = self.job("rollback")
        job["training"]["epochs"] = 6  # So that no kill comes behind the end.
        clean = self.train(job, 2)
        for epoch in range(1, 7):
            self.assertEqual(self.metric(clean, epoch, "train", "rollbacks"), 1)
            self.assertEqual(self.metric(clean, epoch, "train", "num_samples"), SAMPLES / 2)
        self.assertEqual(self.state(clean)["step"], 6 * SAMPLES // 32)
        for file in ("model", "ranks"):
            for name, tensor in self.tensors(clean, file).items():
                if not name.endswith("num_batches_tracked"):
                    self.assertTrue(all(map(math.isfinite, floats(tensor))), name)  # What each rank keeps of its own, too.
        self.assertEqual(self.all_bits(clean), self.all_bits(self.killed(job, (25, 70))))

    def test_a_report_has_what_was_left_out_before_a_failure(self):
        job = self.job("rollback", model={"type": "mlp", "inputs": NUMBERS, "hidden": [8], "outputs": 2}, shuffle=False)
        clean = self.train(job, 2)
        behind = next(m for m in clean.of_type("checkpoint") if m["step"] > BAD // 32 + 1)
        self.assertLess(behind["step"], SAMPLES // 32)
        resumed = self.train(job, 2, generation=5, resume_from=os.path.join(clean.run_dir, behind["path"]))
        for agent in (clean, resumed):
            for epoch in (1, 2, 3):
                for name in ("rollbacks", "skipped_updates"):
                    self.assertEqual(self.metric(agent, epoch, "train", name), 1)

    def test_a_rank_whose_own_loss_is_finite_is_not_the_cause(self):
        """Sample i is of rank i % 2 where nothing is shuffled."""
        job = self.job("stop", model={"type": "mlp", "inputs": NUMBERS, "hidden": [8], "outputs": 2}, shuffle=False)
        agent = self.end_of(job)
        self.assertEqual([rank.exit_code for rank in agent.ranks], [1, 75])
        failed, = agent.of_type("failed")
        self.assertEqual(failed["rank"], BAD % 2)
        self.assertIn(f"the loss is not finite at step {BAD // 32 + 1} on rank {BAD % 2}: ", failed["message"])

    def test_rollback_without_a_checkpoint_ends_as_stop_does(self):
        job = self.job("rollback")
        job["checkpoint"] = {"every": "epoch"}
        agent = self.end_of(job)
        self.assertEqual(sorted(rank.exit_code for rank in agent.ranks), [1, 75])
        said = agent.of_type("failed")[0]["message"]
        self.assertRegex(said, r"the loss is not finite at step \d+ on ranks? [01]")
        self.assertIn("there is no checkpoint yet to go back to", said)

    def test_what_skip_leaves_out_leaves_nothing_in_running_statistics(self):
        job = self.job("skip", model={"type": "resnet18", "stem": "cifar", "width": 4, "outputs": 2}, shape=(1, 8, 8),
                       optimizer={"type": "sgd", "lr": 0.01})
        agent = self.train(job, 2, timeout=120)
        for name, tensor in self.tensors(agent).items():
            if not name.endswith("num_batches_tracked"):
                self.assertTrue(all(map(math.isfinite, floats(tensor))), name)
        self.assertEqual(self.metric(agent, 3, "train", "skipped_updates"), 1)
        self.assertTrue(math.isfinite(self.metric(agent, 3, "validate", "val_loss")))


class HalfPrecision(Parallel):
    def test_it_learns_as_fp32_does_and_kills_change_no_bit(self):
        accuracy = {}
        for precision in ("fp32", "fp16"):
            job = image_job(epochs=2)
            job["training"].update({"precision": precision, "steps_per_epoch": 60, "batch_size": 64})
            clean = self.train(job, 2, timeout=300)
            accuracy[precision] = self.metric(clean, 2, "validate", "val_accuracy")
        self.assertGreater(accuracy["fp32"], 0.6)
        self.assertAlmostEqual(accuracy["fp32"], accuracy["fp16"], delta=0.05)
        self.assertEqual(self.state(clean)["loss_scale"]["value"], self.metric(clean, 2, "train", "loss_scale"))
        self.assertEqual(self.all_bits(clean), self.all_bits(self.killed(job, (30,))))


class ChannelsLast(Parallel):
    """A memory format changes roundings and nothing else."""

    def job(self, **changes):
        job = image_job(epochs=2)
        job["training"].update({"model": {"type": "resnet18", "stem": "cifar", "width": 4, "outputs": 10}, "batch_size": 32, "steps_per_epoch": 12,
                                "optimizer": {"type": "sgd", "lr": 0.001},  # Roundings do not grow.
                                "dataset": {"type": "synthetic", "shape": [3, 8, 8], "samples": 400, "validation_samples": 64}, **changes})
        return job

    def test_results_are_near_and_kills_change_no_bit(self):
        plain, clean = (self.train(self.job(memory_format=name), 2) for name in ("contiguous", "channels_last"))
        for epoch in (1, 2):
            losses = [self.metric(agent, epoch, "validate", "val_loss") for agent in (plain, clean)]
            self.assertAlmostEqual(*losses, delta=0.02)
        self.assertEqual(self.all_bits(clean), self.all_bits(self.killed(self.job(memory_format="channels_last"), (4,))))

    def test_samples_that_are_no_images_are_refused(self):
        agent = self.agent(self.job(memory_format="channels_last", model={"type": "mlp", "inputs": 5, "outputs": 10}, dataset={"type": "synthetic", "shape": [5]}), 2)
        agent.start()
        self.assertEqual(agent.run(), [2, 2])
        self.assertIn("a batch has 2 dimensions", agent.of_type("failed")[0]["message"])


class SeveralDataSets(Parallel):
    def sets(self):
        for name in ("a", "b"):
            os.makedirs(f"{self.dir}/{name}", exist_ok=True)
        write_images(f"{self.dir}/a", 256)
        write_images(f"{self.dir}/b", 128)
        return {"train": {"type": "idx", "path": f"{self.dir}/a"}, "validation": {"type": "idx", "path": worker_alone.FASHION},
                "noise": {"type": "idx", "path": f"{self.dir}/b"}}

    def test_an_operator_trains_on_one_and_validates_on_another(self):
        job = image_job()
        del job["training"]["dataset"]
        job["training"]["datasets"] = self.sets()
        agent = self.train(job, 2)
        self.assertEqual(self.metric(agent, 1, "train", "num_samples"), 128)
        self.assertEqual(self.metric(agent, 1, "validate", "num_samples"), 5000)

    def test_a_set_says_its_own_part_alone(self):
        files = write_numbers(self.dir, (2,), None)
        job = image_job(epochs=1)
        del job["training"]["dataset"]
        job["training"].update({"model": {"type": "mlp", "inputs": 2, "outputs": 2}, "datasets": {
            "train": {"type": "npy", "train": files["train"]}, "validation": {"type": "npy", "validation": files["validation"]}}})
        agent = self.train(job, 2)
        self.assertEqual(self.metric(agent, 1, "train", "num_samples"), SAMPLES / 2)
        self.assertEqual(self.metric(agent, 1, "validate", "num_samples"), 64)

    def test_a_function_asks_for_others_by_name(self):
        for name, code, words in (("noise", 0, ""), ("nois", 2, 'has no "nois", which its code asks for: it has "noise", "train", "validation"')):
            job = loop_job("epochs", epochs=1, validates_on=name)
            del job["training"]["dataset"]
            job["training"]["datasets"] = self.sets()
            agent = self.agent(job, 2)
            agent.start()
            self.assertEqual(set(agent.run()) - {75}, {code})
            if words:
                self.assertIn(words, agent.of_type("failed")[0]["message"])

    def test_shapes_that_differ_are_told(self):
        job = image_job(epochs=1)
        del job["training"]["dataset"]
        sets = {}
        for name, numbers in (("train", 3), ("validation", 4)):
            os.makedirs(f"{self.dir}/{name}")
            sets[name] = {"type": "npy", name: write_numbers(f"{self.dir}/{name}", (numbers,), None)[name]}
        job["training"].update({"model": {"type": "mlp", "inputs": 3, "outputs": 2}, "datasets": sets})
        agent = self.agent(job, 1, forks=None)
        agent.start()
        self.assertEqual(agent.run(), [1])
        self.assertIn('samples of "validation" have shape 4, those of "train" have shape 3', agent.of_type("failed")[0]["message"])


if __name__ == "__main__":
    worker_alone.WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
