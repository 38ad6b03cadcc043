#!/usr/bin/env python3
"""sgd-worker on the GPUs of this machine: for scripts/test --gpu, by hand. What needs two GPUs is left out where there is one.

    worker_gpu.py build/bin/sgd-worker [unittest arguments]
"""
import os
import subprocess
import sys
import unittest

import worker_alone
from worker_alone import image_job
from worker_device import changed, on_device
from worker_recovery import RecoveryTest, kill_at_step


def count():
    try:
        listed = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=60, check=False)
    except FileNotFoundError:
        return 0
    return sum(line.startswith("GPU ") for line in listed.stdout.splitlines())


class Gpu(RecoveryTest):
    FORKED = True
    RANKS = min(count(), 2)

    def job(self, **training):
        return on_device(image_job(workers=self.RANKS, epochs=2), deterministic=True, **training)

    def test_the_part_of_libtorch_is_here(self):
        self.assertEqual(subprocess.run([worker_alone.WORKER, "--check-gpu"], timeout=300, check=False).returncode, 0)

    def test_it_learns_as_the_cpu_does(self):
        for training in ({}, {"precision": "bf16"}, {"precision": "fp16"}):
            with self.subTest(training):
                device = self.train(self.job(**training), self.RANKS, timeout=300)
                host = self.train(changed(self.job(**training), device="cpu"), self.RANKS, timeout=300)
                self.assertAlmostEqual(self.metric(device, 2, "validate", "val_accuracy"), self.metric(host, 2, "validate", "val_accuracy"), delta=0.02)

    def test_ranks_come_from_the_fork_server(self):
        """Which has begun no CUDA: else each would begin anew, and this agent could fork none."""
        self.assertEqual(self.forks().prepare(self.job())["threads"], 1)

    def test_twenty_kills_change_no_bit(self):
        job = on_device(image_job(workers=self.RANKS, epochs=12), deterministic=True)
        clean = self.train(job, self.RANKS, timeout=600)
        agent = self.agent(job, self.RANKS)
        agent.start()
        for kill in range(20):
            kill_at_step(agent, 200 * (kill + 1), rank=kill % self.RANKS)
            agent = self.next_generation(job, agent)
            agent.start()
        self.assertEqual(agent.run(timeout=600), [0] * self.RANKS)
        self.assertEqual(self.weights(clean), self.weights(agent))

    def test_a_checkpoint_of_the_cpu_goes_on_here(self):
        host = self.train(changed(self.job(), device="cpu"), self.RANKS)
        first = os.path.join(host.run_dir, host.of_type("checkpoint")[0]["path"])
        resumed = self.train(self.job(), self.RANKS, timeout=300, generation=2, resume_from=first)
        self.assertEqual(resumed.of_type("ready")[0]["source"], "disk")

    def test_a_hundred_groups_leave_nothing(self):
        program = os.path.join(os.path.dirname(worker_alone.WORKER), "gpu_groups")
        self.assertEqual(subprocess.run([program, "100"], timeout=600, check=False).returncode, 0)


if __name__ == "__main__":
    if not Gpu.RANKS:
        sys.exit("worker_gpu: there is no GPU here that nvidia-smi lists: nothing is tested")
    worker_alone.WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
