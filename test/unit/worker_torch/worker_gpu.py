#!/usr/bin/env python3
"""sgd-worker on the GPUs of this machine: for scripts/test --gpu, by hand. One GPU is enough: two ranks share it where
sums are made on the host, and where NCCL takes them for ranks of two hosts.

    worker_gpu.py build/bin/sgd-worker [unittest arguments]
"""
import os
import signal
import subprocess
import sys
import time
import unittest

import worker_alone  # With it test/support.
import gpus
from worker_alone import image_job
from worker_device import changed, on_device
from worker_recovery import RecoveryTest, kill_at_step


class Gpu(RecoveryTest):
    FORKED = True
    RANKS = min(len(gpus.listed()), 2)

    def job(self, **training):
        return on_device(image_job(workers=self.RANKS, epochs=2), deterministic=True, **training)

    def train_on_host(self, job, ranks, **options):
        """In processes of their own: a fork server is for jobs of one device."""
        return self.train(changed(job, device="cpu"), ranks, timeout=300, forks=None, **options)

    def test_the_part_of_libtorch_is_here(self):
        self.assertEqual(subprocess.run([worker_alone.WORKER, "--check-gpu"], timeout=300, check=False).returncode, 0)

    def test_it_learns_as_the_cpu_does(self):
        for training in ({}, {"precision": "bf16"}, {"precision": "fp16"}):
            with self.subTest(training):
                device = self.train(self.job(**training), self.RANKS, timeout=300)
                host = self.train_on_host(self.job(**training), self.RANKS)
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
        host = self.train_on_host(self.job(), self.RANKS)
        first = os.path.join(host.run_dir, host.of_type("checkpoint")[0]["path"])
        resumed = self.train(self.job(), self.RANKS, timeout=300, generation=2, resume_from=first)
        self.assertEqual(resumed.of_type("ready")[0]["source"], "disk")

    def test_a_hundred_groups_leave_nothing(self):
        program = os.path.join(os.path.dirname(worker_alone.WORKER), "gpu_groups")
        self.assertEqual(subprocess.run([program, "100"], timeout=600, check=False).returncode, 0)


class Pair(RecoveryTest):
    """Two ranks of one node, on one GPU, whose gradients meet in the host's memory."""

    FORKED = True
    NODES = 1
    BACKEND = "shm"
    KILLS = 20

    def environment(self, rank, usual):
        del rank
        return usual

    def job(self, **training):
        return on_device(image_job(epochs=4), deterministic=True, backend=self.BACKEND, **training)

    def agent(self, job, ranks, **options):
        made = super().agent(job, ranks, nodes=self.NODES, **options)
        usual = made.environment
        made.environment = lambda rank: self.environment(rank, usual(rank))
        return made

    def test_kills_change_no_bit(self):
        clean = self.train(self.job(), 2, timeout=300)
        agent = self.agent(self.job(), 2)
        agent.start()
        for kill in range(self.KILLS):
            kill_at_step(agent, 1800 // self.KILLS * (kill + 1), rank=kill % 2)
            agent = self.next_generation(self.job(), agent)
            agent.start()
        self.assertEqual(agent.run(timeout=300), [0, 0])
        self.assertEqual(self.weights(clean), self.weights(agent))

    def test_a_frozen_peer_is_left_within_a_second(self):
        agent = self.agent(self.job(), 2)
        agent.start()
        agent.run(until=lambda a: any(m["step"] > 50 for m in a.of_type("heartbeat")), timeout=120)
        os.kill(agent.ranks[1].pid, signal.SIGSTOP)
        agent.run(until=lambda a: any(m.get("waiting") for m in a.of_type("heartbeat", 0)[-2:]), timeout=60)
        asked = time.monotonic()
        agent.send(0, {"type": "abort", "generation": agent.generation})
        agent.run(until=lambda a: a.ranks[0].exit_code is not None, timeout=60)
        took = time.monotonic() - asked
        print(f"a frozen peer was left after {1000 * took:.0f} ms", file=sys.stderr)
        self.assertLess(took, 1)
        self.assertEqual(agent.ranks[0].exit_code, 75)


class NcclPair(Pair):
    """Two ranks that NCCL joins: it takes them for ranks of two hosts, each with a GPU of its own."""

    NODES = 2
    BACKEND = "auto"
    KILLS = 5

    def environment(self, rank, usual):
        return {**usual, "NCCL_HOSTID": f"host-{rank.rank}", "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1"}

    def test_it_learns_as_sums_on_the_host_do(self):
        device = self.train(self.job(), 2, timeout=300)
        host = self.train(changed(self.job(), device="cpu"), 2, timeout=300, forks=None)
        self.assertAlmostEqual(self.metric(device, 4, "validate", "val_accuracy"), self.metric(host, 4, "validate", "val_accuracy"), delta=0.02)

    def test_two_ranks_of_one_host_on_one_gpu_are_refused(self):
        job = self.job()
        agent = RecoveryTest.agent(self, job, 2)
        agent.start()
        codes = agent.run(timeout=120)
        self.assertNotIn(0, codes)
        self.assertIn(2, codes)  # Final: NCCL would refuse them again.


if __name__ == "__main__":
    if not Gpu.RANKS:
        sys.exit("worker_gpu: there is no GPU here that nvidia-smi lists: nothing is tested")
    worker_alone.WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
