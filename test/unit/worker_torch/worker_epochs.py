#!/usr/bin/env python3
"""What an epoch is, and how a job's settings reach the training: shorter epochs, validation now and then, early stop,
groups of parameters, lower precision.

    worker_epochs.py build/bin/sgd-worker [unittest arguments]
"""
import array
import json
import os
import struct
import sys
import unittest

import worker_alone
from worker_alone import FakeAgent, image_job, linear_job, read_tensors, write_images
from worker_loop import loop_job
from worker_plugin import library
from worker_recovery import RecoveryTest, kill_at_step


def numbers(tensor):
    values = array.array("f")
    values.frombytes(tensor[1])
    return values


def short_epochs(epochs=4, steps=200, **changes):
    job = image_job(epochs=epochs)
    job["training"].update({"steps_per_epoch": steps, **changes})
    return job


class Epochs(RecoveryTest):
    def position(self, agent):
        with open(self.checkpoint(agent) + "/state.json", encoding="utf-8") as file:
            return json.load(file)["position"]

    def test_num_steps(self):
        """An epoch ends after so many steps, and the next goes on in the pass."""
        agent = self.train(short_epochs(), 2)
        self.assertEqual([self.metric(agent, epoch, "train", "batch_count") for epoch in (1, 2, 3, 4)], [200] * 4)
        # A pass has 469 batches, the last of 96 samples of both ranks: it is in epoch 3.
        self.assertEqual([2 * self.metric(agent, epoch, "train", "num_samples") for epoch in (1, 2, 3, 4)],
                         [25600, 25600, 25568, 25600])
        self.assertEqual(self.position(agent), {"epoch": 5, "phase": "train", "consumed": (800 - 469) * 128, "pass": 2,
                                                "pass_consumed": 0, "batches": 0})

    def test_without_shuffling_two_halves_are_a_whole(self):
        # 1000 points in batches of 10 and an even number of steps: only where reports are made differs.
        whole = self.train(linear_job(2, 5, epochs=2), 2)
        halves = self.train(linear_job(2, 5, epochs=4, steps_per_epoch=50), 2)
        self.assertEqual(self.weights(whole), self.weights(halves))
        rest = linear_job(2, 5, epochs=1, steps_per_epoch=200)  # Two passes within one epoch.
        self.assertEqual(self.weights(whole), self.weights(self.train(rest, 2)))

    def test_kills_and_stops_change_no_bit(self):
        job = short_epochs()
        job["checkpoint"] = {"every": {"steps": 70}, "keep": 100}
        clean = self.train(job, 2)
        agent = self.agent(job, 2)
        agent.start()
        for at_step in (100, 250, 400, 550):
            self.assertEqual(sorted(kill_at_step(agent, at_step)), [-9, 75])
            agent = self.next_generation(job, agent)
            agent.start()
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(self.weights(clean), self.weights(agent))
        self.assertEqual(self.position(clean), self.position(agent))
        for saved in clean.of_type("checkpoint")[3:-1:4]:  # From disk, in epochs of both passes.
            path = os.path.join(clean.run_dir, saved["path"])
            resumed = self.train(job, 2, generation=9, resume_from=[path])
            self.assertEqual(self.weights(clean), self.weights(resumed), saved)

    def test_a_request_to_leave_at_an_epochs_end_is_met_there(self):
        """It comes behind the last batch and report, so that the epoch's end is the first place to hear of it."""
        fifo = self.dir + "/fifo"
        os.mkfifo(fifo)
        write_images(self.dir, 640)
        job = loop_job("epochs", epochs=3, pause_behind=1, until=fifo)
        job["training"]["dataset"]["path"] = self.dir
        agent = self.agent(job, 2)
        agent.start()
        agent.run(until=lambda a: len(a.of_type("report")) == 2)
        agent.send_all({"type": "stop_at_epoch"})
        agent.run(until=FakeAgent.has_been_read)
        before = len(agent.messages)  # A link obeys what it has read before it tells the next time that it is there.
        agent.run(until=lambda a: all(sum(m["rank"] == rank for m in a.messages[before:]) >= 2 for rank in (0, 1)))
        writer = os.open(fifo, os.O_WRONLY)
        self.addCleanup(os.close, writer)
        self.assertEqual(agent.run(), [76, 76])
        self.assertEqual(self.position(agent)["epoch"], 2)
        self.assertEqual(len(agent.of_type("report")), 2)

    def test_fewer_ranks_finish_the_epoch_with_as_many_steps(self):
        job = short_epochs(epochs=3)
        agent = self.agent(job, 2)
        agent.start()
        kill_at_step(agent, 300)
        alone = self.next_generation(job, agent, ranks=1)
        alone.start()
        self.assertEqual(alone.run(), [0])
        self.assertEqual(self.metric(alone, 2, "train", "batch_count"), 200)
        self.assertEqual(self.metric(alone, 2, "train", "num_samples"), 25600)
        self.assertEqual(self.metric(alone, 3, "train", "num_samples"), 25568)

    def test_an_epoch_that_is_not_validated_has_a_line_without_values(self):
        agent = self.train(linear_job(2, 32, epochs=5, validate_every=2), 2)
        lines = {m["key"]["epoch"]: m["metrics"] for m in agent.of_type("report", 0) if m["key"]["phase"] == "validate"}
        self.assertEqual({epoch: "val_loss" in metrics for epoch, metrics in lines.items()},
                         {1: False, 2: True, 3: False, 4: True, 5: True})
        self.assertEqual(lines[1], {})
        every = self.train(linear_job(2, 32, epochs=5), 2)
        self.assertEqual(self.weights(every), self.weights(agent))


class ValidateOnly(RecoveryTest):
    def test_it_tells_what_the_weights_of_a_checkpoint_are_worth_and_changes_nothing(self):
        trained = self.train(linear_job(2, 16, epochs=2), 2)
        job = linear_job(2, 16, epochs=2, validate_only=True)
        again = self.agent(job, 2, generation=5, resume_from=[self.checkpoint(trained)])
        again.start()
        self.assertEqual(again.run(), [0, 0])
        self.assertEqual({(m["key"]["epoch"], m["key"]["phase"]) for m in again.of_type("report")}, {(2, "validate")})
        self.assertEqual(self.metric(again, 2, "validate", "val_loss"), self.metric(trained, 2, "validate", "val_loss"))
        self.assertEqual(again.of_type("checkpoint"), [])
        # Of a checkpoint inside an epoch, whose sums are of other metrics.
        job_of_metrics = linear_job(2, 16, epochs=20, metrics=[{"type": "mae", "on": "both"}])
        job_of_metrics["checkpoint"] = {"every": {"steps": 10}, "keep": 100}
        measured = self.train(job_of_metrics, 2)
        # A slow disk leaves some out.
        inside = next(saved for saved in measured.of_type("checkpoint") if saved["step"] % 32 != 0)
        other = linear_job(2, 16, epochs=20, validate_only=True, metrics=["r2"])
        validated = self.train(other, 2, generation=5, resume_from=[os.path.join(measured.run_dir, inside["path"])])
        self.assertLess(self.metric(validated, inside["step"] // 32 + 1, "validate", "val_r2"), 1)
        untrained = self.train(job, 2)
        self.assertEqual(self.metric(untrained, 1, "validate", "num_samples"), 200)
        self.assertEqual(untrained.of_type("checkpoint"), [])


class EarlyStop(RecoveryTest):
    def job(self):
        # The rate is far too large from the second epoch on: the loss of validation gets worse.
        return linear_job(2, 16, epochs=20, early_stop={"metric": "val_loss", "mode": "min", "patience": 3, "min_delta": 0},
                          scheduler={"type": "step", "step_size": 1, "gamma": 1e-9})

    def reasons(self, agent):
        return {m["key"]["epoch"]: m["metrics"]["early_stop"] for m in agent.of_type("report", 0)
                if "early_stop" in m["metrics"]}

    def test_training_ends_as_done_and_says_why(self):
        agent = self.train(self.job(), 2)
        epochs = [m["key"]["epoch"] for m in agent.of_type("report", 0) if m["key"]["phase"] == "validate"]
        reasons = self.reasons(agent)
        self.assertEqual(list(reasons), [epochs[-1]])
        self.assertLess(epochs[-1], 20)
        self.assertRegex(reasons[epochs[-1]], r"val_loss has not got better than [0-9.]+ \(epoch \d+\) in 3 validations")
        # Asked to go on, it finds that it is over, and trains nothing.
        again = self.agent(self.job(), 2, generation=5, resume_from=[self.checkpoint(agent)])
        again.start()
        self.assertEqual(again.run(), [0, 0])
        self.assertEqual(again.of_type("report"), [])

    def test_a_kill_changes_neither_when_nor_why(self):
        job = short_epochs(epochs=30, steps=200, early_stop={"metric": "val_loss", "mode": "min", "patience": 2, "min_delta": 0.05})
        clean = self.train(job, 2)
        agent = self.agent(job, 2)
        agent.start()
        kill_at_step(agent, 250)
        agent = self.next_generation(job, agent)
        agent.start()
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(self.reasons(clean), self.reasons(agent))
        self.assertEqual(self.weights(clean), self.weights(agent))

    def test_it_looks_at_the_mean_that_is_reported(self):
        """31 samples to validate on: one of three ranks has one more than the others, so ranks count by samples."""
        job = linear_job(3, 10, epochs=1, early_stop={"metric": "val_loss", "mode": "min", "patience": 3, "min_delta": 0},
                         operator={"type": "ledger", "folder": self.dir}, dataset={"type": "divided_stream", "validation_samples": 31})
        del job["training"]["model"]
        job["plugins"] = [library("own_stream")]
        agent = self.train(job, 3)
        reports = [m["metrics"] for m in agent.of_type("report") if m["key"]["phase"] == "validate"]
        self.assertEqual(sorted(report["num_samples"] for report in reports), [10, 10, 11])
        with open(self.checkpoint(agent) + "/state.json", encoding="utf-8") as file:
            bits = json.load(file)["early_stop"]["best_bits"]
        mean = sum(report["val_loss"] * report["num_samples"] for report in reports) / 31
        self.assertAlmostEqual(struct.unpack("<d", struct.pack("<Q", bits))[0], mean, delta=1e-12)
        self.assertNotAlmostEqual(mean, sum(report["val_loss"] for report in reports) / 3, delta=1e-9)

    def judged(self, infinite=False, **early_stop):
        job = linear_job(2, 16, epochs=20, operator={"type": "judged", "infinite": infinite},
                         early_stop={"mode": "min", "patience": 2, "min_delta": 0, **early_stop})
        job["plugins"] = [library("own_data")]
        return job

    def test_it_looks_at_what_the_operators_own_validation_returns(self):
        for metric, best in (("score", "1.5"), ("val_loss", "7")):
            with self.subTest(metric):
                self.assertEqual(self.reasons(self.train(self.judged(metric=metric), 2)),
                                 {3: f"{metric} has not got better than {best} (epoch 1) in 2 validations"})
        agent = self.agent(self.judged(metric="scores"), 2)
        agent.start()
        self.assertTrue(set(agent.run()) <= {1, 75})
        self.assertIn("set it to one of val_loss, val_accuracy, score", agent.of_type("failed")[0]["message"])

    def test_an_infinite_value_of_one_rank_is_not_hidden(self):
        agent = self.train(self.judged(metric="score", mode="max", infinite=True), 2)
        self.assertEqual([m["metrics"]["score"] for m in agent.of_type("report", 1) if m["key"]["phase"] == "validate"],
                         [2, "Infinity", "Infinity"])
        self.assertEqual(self.reasons(agent), {3: "score has not got better than 1.5 (epoch 1) in 2 validations"})

    def test_a_metric_that_validation_lacks_is_an_error_with_those_it_has(self):
        job = linear_job(1, 32, early_stop={"metric": "val_los", "mode": "min", "patience": 1, "min_delta": 0})
        agent = self.agent(job, 1)
        agent.start()
        self.assertEqual(agent.run(), [1])
        self.assertIn('training.early_stop.metric is "val_los", which validation does not measure: set it to one of '
                      "val_loss, val_accuracy", agent.of_type("failed")[0]["message"])


class Groups(RecoveryTest):
    def test_parameters_have_the_settings_of_the_first_group_that_names_them(self):
        job = image_job(epochs=1)
        job["checkpoint"] = {"every": {"steps": 100}, "keep": 100}
        job["training"]["optimizer"] = {"type": "adamw", "lr": 0.001, "groups": [
            {"parameters": ["fc1.weight"], "lr": 0}, {"parameters": ["*.bias"], "weight_decay": 0}]}
        agent = self.train(job, 2)
        saved = [read_tensors(os.path.join(agent.run_dir, m["path"]) + "/model.safetensors") for m in agent.of_type("checkpoint")]
        self.assertEqual(saved[0]["fc1.weight"], saved[-1]["fc1.weight"])
        self.assertNotEqual(saved[0]["fc2.weight"], saved[-1]["fc2.weight"])
        self.assertNotEqual(saved[0]["fc1.bias"], saved[-1]["fc1.bias"])

    def test_a_decay_for_some_is_no_decay_for_the_rest(self):
        job = linear_job(1, 50, epochs=1)
        job["training"]["optimizer"] = {"type": "sgd", "lr": 0.0, "weight_decay": 0.0, "groups": [
            {"parameters": ["linear.w?ight"], "lr": 0.01, "weight_decay": 0.5}]}
        tensors = read_tensors(self.checkpoint(self.train(job, 1)) + "/model.safetensors")
        weight, bias = numbers(tensors["linear.weight"])[0], numbers(tensors["linear.bias"])[0]
        # Gradient descent by hand: twenty batches of fifty points of y = 2x + 5; the bias stays.
        expected = 0.0
        for batch in range(20):
            xs = [10 * i / 1000 for i in range(50 * batch, 50 * batch + 50)]
            gradient = sum(2 * (expected * x + bias - (2 * x + 5)) * x for x in xs) / 50
            expected -= 0.01 * (gradient + 0.5 * expected)
        self.assertAlmostEqual(weight, expected, places=4)

    def test_a_pattern_that_names_nothing_is_an_error_with_names_that_there_are(self):
        job = image_job()
        job["training"]["optimizer"]["groups"] = [{"parameters": ["*.bias"]}, {"parameters": ["head.*"], "lr": 1}]
        agent = self.agent(job, 1)
        agent.start()
        self.assertEqual(agent.run(), [2])
        self.assertIn('"training.optimizer.groups[1].parameters": "head.*" names no parameter of its own; there are '
                      "fc1.weight, fc1.bias, fc2.weight, fc2.bias, fc3.weight and 1 more", agent.of_type("failed")[0]["message"])


class LowerPrecision(RecoveryTest):
    def test_bf16_learns_as_fp32_does_and_weights_stay_fp32(self):
        with open("/proc/cpuinfo") as file:
            is_fast = "bf16" in file.read()  # Else convolutions in bf16 take minutes.
        for model in ("mlp", "cnn") if is_fast else ("mlp",):
            with self.subTest(model=model):
                accuracy = {}
                for precision in ("fp32", "bf16"):
                    job = image_job(model=model)
                    job["training"].update({"precision": precision, "steps_per_epoch": 100, "batch_size": 64})
                    agent = self.train(job, 2, timeout=300)  # Without instructions for bf16 a CPU is slow.
                    accuracy[precision] = self.metric(agent, 1, "validate", "val_accuracy")
                    weights = read_tensors(self.checkpoint(agent) + "/model.safetensors")
                    self.assertTrue(all(len(data) == 4 * count(shape) for shape, data in weights.values()))
                self.assertGreater(accuracy["fp32"], 0.6)
                self.assertAlmostEqual(accuracy["fp32"], accuracy["bf16"], delta=0.05)

    def test_kills_change_no_bit(self):
        job = image_job(epochs=2)
        job["training"].update({"precision": "bf16", "steps_per_epoch": 300})
        clean = self.train(job, 2)
        exact = self.train({**job, "training": {**job["training"], "precision": "fp32"}}, 2)
        self.assertNotEqual(self.weights(clean), self.weights(exact))  # It is in force.
        agent = self.agent(job, 2)
        agent.start()
        kill_at_step(agent, 100)
        agent = self.next_generation(job, agent)
        agent.start()
        agent.run(until=lambda a: len(a.of_type("ready")) == 2)
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(self.weights(clean), self.weights(agent))


def count(shape):
    product = 1
    for size in shape:
        product *= size
    return product


if __name__ == "__main__":
    worker_alone.WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
