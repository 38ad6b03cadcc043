#!/usr/bin/env python3
"""sgd-worker on a device, with a stand-in for the GPU: the host's memory, treated as a device's, and a library of ours
with NCCL's interface. What is trained must have the bits of a run on the CPU, however often ranks are killed.

    worker_device.py build/bin/sgd-worker [unittest arguments]
"""
import copy
import json
import os
import signal
import subprocess
import sys
import unittest
from unittest import mock

import worker_alone
import worker_recovery
from worker_alone import ForkServer, image_job, linear_job, write_images
from worker_plugin import library
from worker_recovery import RecoveryTest, kill_at_step

STAND_IN = "SGD_DEVICE_STAND_IN"
NCCL = "SGD_NCCL_LIBRARY"


def on_device(job, **training):
    job = copy.deepcopy(job)
    job["training"].update({"device": "cuda", **training})
    return job


def changed(job, **training):
    job = copy.deepcopy(job)
    job["training"].update(training)
    return job


class DeviceTest(RecoveryTest):
    FORKED = True

    @classmethod
    def setUpClass(cls):
        worker_alone.WORKER = worker_alone.WORKER or worker_recovery.WORKER
        os.environ[STAND_IN] = "1"
        os.environ[NCCL] = os.path.join(os.path.dirname(worker_alone.WORKER), "..", "lib", "libfake_nccl.so")

    def data(self, count=640):
        write_images(self.dir, count)
        return self.dir

    def same_on_both(self, job, ranks=2):
        """Trains on the CPU and on the device; returns both."""
        host, device = self.train(job, ranks), self.train(on_device(job), ranks)
        self.assertEqual(self.weights(host), self.weights(device))
        for epoch in range(1, job["training"]["epochs"] + 1):
            for phase, name in (("train", "train_loss"), ("validate", "val_loss"), ("validate", "val_accuracy")):
                self.assertEqual(self.metric(host, epoch, phase, name), self.metric(device, epoch, phase, name))
        return host, device


class Bits(DeviceTest):
    def test_sgd(self):
        path = self.data(320)
        for more in ({}, {"momentum": 0.9, "nesterov": True, "weight_decay": 1e-3}):
            with self.subTest(more):
                self.same_on_both(changed(image_job(path=path, batch=32, epochs=2), optimizer={"type": "sgd", "lr": 0.05, **more}))

    def test_optimizers_with_roots(self):
        """LibTorch's square roots of the stand-in come from MKL, whose last bit may be another one."""
        path = self.data(320)
        for optimizer in ({"type": "adam", "lr": 1e-3, "weight_decay": 1e-3}, {"type": "adamw", "lr": 1e-3, "amsgrad": True},
                          {"type": "rmsprop", "lr": 1e-3, "centered": True, "momentum": 0.5}, {"type": "adagrad", "lr": 1e-2}):
            with self.subTest(optimizer):
                job = changed(image_job(path=path, batch=32), optimizer=optimizer)
                host, device = self.train(job, 2), self.train(on_device(job), 2)
                self.assertAlmostEqual(self.metric(host, 1, "train", "train_loss"), self.metric(device, 1, "train", "train_loss"), places=4)

    def test_models_with_statistics(self):
        """Running means and variances are rank 0's on every rank, and saved."""
        for parallel in ({}, {"broadcast_buffers": False}):
            with self.subTest(parallel):
                job = image_job(path=self.data(96), batch=16, model="resnet18")
                self.same_on_both(changed(job, data_parallel=parallel) if parallel else job)

    def test_one_to_three_ranks_with_and_without_nccl(self):
        path = self.data(360)
        for ranks, backend in ((1, "auto"), (2, "gloo"), (3, "auto")):
            with self.subTest(ranks=ranks, backend=backend):
                job = image_job(workers=ranks, path=path, batch=24 * ranks, model="cnn")
                self.same_on_both(changed(job, backend=backend), ranks)

    def test_lower_precision_limits_and_accumulation(self):
        path = self.data(320)
        for training in ({"precision": "bf16"}, {"precision": "fp16"}, {"gradient_clip": {"value": 0.01}},
                         {"gradient_accumulation": 3}):
            with self.subTest(training):
                self.same_on_both(changed(image_job(path=path, batch=32), **training))

    def test_a_limited_norm(self):
        """It is summed in another order, so the last bits may differ."""
        job = changed(image_job(path=self.data(), batch=32), gradient_clip={"norm": 0.1})
        host, device = self.train(job, 2), self.train(on_device(job), 2)
        self.assertAlmostEqual(self.metric(host, 1, "validate", "val_loss"), self.metric(device, 1, "validate", "val_loss"), places=5)


class Batches(DeviceTest):
    def test_those_of_a_stream_that_a_function_validates_on_are_on_the_device(self):
        job = linear_job(2, 10, epochs=1, function={"type": "stream_loop"}, dataset={"type": "divided_stream"})
        for key in ("model", "loss", "optimizer"):
            del job["training"][key]
        job["plugins"] = [library("own_stream")]
        for one, is_moved in ((job, False), (on_device(job), True)):
            self.assertEqual([m["metrics"]["all_moved"] for m in self.train(one, 2).of_type("report")], [is_moved] * 2)


class Refused(DeviceTest):
    FORKED = False

    def test_batch_normalization_over_all_ranks(self):
        agent = self.agent(on_device(image_job(path=self.data(96)), data_parallel={"sync_batchnorm": True}), 1)
        agent.start()
        self.assertEqual(agent.run(), [2])
        self.assertIn('"training.data_parallel.sync_batchnorm" is for the CPU', agent.of_type("failed")[0]["message"])


class Failures(DeviceTest):
    def test_kills_change_no_bit(self):
        job = image_job(epochs=2)
        clean = self.train(job, 2)
        agent = self.agent(on_device(job), 2)
        agent.start()
        for number, at_step in enumerate((100, 350, 600)):
            self.assertEqual(sorted(kill_at_step(agent, at_step, rank=number % 2, copied=True)), [-9, 75])
            agent = self.next_generation(on_device(job), agent)
            agent.start()
            agent.run(until=lambda a: len(a.of_type("ready")) == 2)
            for ready in agent.of_type("ready"):
                self.assertEqual(ready["source"], "memory")
                self.assertGreater(ready["step"], 0)
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(self.weights(clean), self.weights(agent))
        self.assert_same_epochs(clean, agent, [2])

    def test_checkpoints_go_from_one_to_the_other(self):
        """A run that begins on the CPU ends on the device, and the other way round, with the bits of one that stays."""
        job = changed(image_job(path=self.data(), batch=32, epochs=3), optimizer={"type": "sgd", "lr": 0.05, "momentum": 0.9})
        job["checkpoint"] = {"every": "epoch", "keep": 5}
        clean = self.train(job, 2)
        first = self.checkpoint_of_epoch(clean, 1)
        for second in (on_device(job), job):
            before = clean if second is not job else self.train(on_device(job), 2)
            resumed = self.train(second, 2, generation=2, resume_from=self.checkpoint_of_epoch(before, 1))
            self.assertEqual(self.weights(clean), self.weights(resumed))
        self.assertTrue(os.path.exists(first))

    def checkpoint_of_epoch(self, agent, epoch):
        return os.path.join(agent.run_dir, agent.of_type("checkpoint")[epoch - 1]["path"])

    def test_a_rollback(self):
        job = changed(linear_job(2, 32), on_nan="rollback", optimizer={"type": "sgd", "lr": 0.01})
        self.same_on_both(job)

    def ended(self, knobs, seconds=20):
        """Exit codes and what was said, of two ranks that find such a library."""
        job = on_device(image_job(epochs=2))
        job["heartbeat"]["stall_timeout"] = "2s"
        code = ("import json, os, sys; sys.path[:0] = json.loads(sys.argv[1]); os.environ.update(json.loads(sys.argv[2]))\n"
                "from fake_agent import FakeAgent\n"
                "agent = FakeAgent(sys.argv[3], json.loads(sys.argv[4]), 2, sys.argv[5])\n"
                "agent.start(); codes = agent.run(timeout=float(sys.argv[6])); agent.close(); print(json.dumps(codes))\n")
        done = subprocess.run([sys.executable, "-c", code, json.dumps(sys.path), json.dumps(knobs), worker_alone.WORKER, json.dumps(job),
                               f"{self.dir}/ended-{len(os.listdir(self.dir))}", str(seconds)],
                              capture_output=True, text=True, timeout=seconds + 30)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    def test_a_library_that_does_not_fit_ends_the_run_with_words(self):
        for knobs, words in (({NCCL: "/nowhere/libnccl.so.2"}, "/nowhere/libnccl.so.2: cannot open shared object file"),
                             ({"FAKE_NCCL_VERSION": "21200"}, "is NCCL 2.12.0, and 2.19.0 is the least")):
            with self.subTest(words):
                codes, said = self.ended(knobs)
                self.assertEqual(codes, [2, 2])
                self.assertIn(words, said)
                self.assertIn("scripts/setup --cuda", said)

    def test_a_group_that_fails_is_a_lost_peer(self):
        for knobs in ({"FAKE_NCCL_ERROR_AFTER": "5"}, {"FAKE_NCCL_HANG_AFTER": "5"}, {"FAKE_NCCL_HANG_INIT": "1"}):
            with self.subTest(knobs):
                self.assertEqual(self.ended(knobs)[0], [75, 75])

    def test_a_frozen_peer_is_left_at_an_abort(self):
        agent = self.agent(on_device(image_job(epochs=50)), 2)
        agent.start()
        agent.run(until=lambda a: any(m["step"] > 50 for m in a.of_type("heartbeat")))
        os.kill(agent.ranks[1].pid, signal.SIGSTOP)
        agent.run(until=lambda a: any(m.get("waiting") for m in a.of_type("heartbeat", 0)[-2:]))
        agent.send(0, {"type": "abort", "generation": agent.generation})
        agent.run(until=lambda a: a.ranks[0].exit_code is not None)
        self.assertEqual(agent.ranks[0].exit_code, 75)


class Driver(DeviceTest):
    def threads_with(self, **knobs):
        preloaded = os.path.join(os.path.dirname(worker_alone.WORKER), "..", "lib", "libfake_driver.so")
        with mock.patch.dict(os.environ, {"LD_PRELOAD": preloaded, **knobs}):
            server = ForkServer(worker_alone.WORKER)
        self.addCleanup(server.close)
        return server.prepare(on_device(linear_job(1, 32)))["threads"]

    def test_ranks_are_forked_where_the_driver_is_loaded_and_not_begun(self):
        self.assertEqual(self.threads_with(), 1)

    def test_none_is_forked_from_a_process_that_has_begun_cuda(self):
        self.assertGreater(self.threads_with(FAKE_CUDA_BEGUN="1"), 1)


class WithoutCuda(unittest.TestCase):
    def test_what_is_missing_is_said(self):
        """LibTorch here is the part for the CPU; with the other one this says that it is there."""
        environment = {name: value for name, value in os.environ.items() if name != STAND_IN}
        done = subprocess.run([worker_alone.WORKER, "--check-gpu"], env=environment, capture_output=True, text=True, timeout=120)
        if done.returncode == 0:
            self.skipTest("LibTorch's CUDA part is here")
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r"LibTorch's CUDA part cannot be opened: lib\S+: cannot open shared object file.*scripts/setup --cuda")


if __name__ == "__main__":
    worker_alone.WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
