"""Collectives: Gloo alone, shared memory alone, and both composed by declaring the ranks of one machine to be on two
hosts. Whatever carries the gradients, the training is the same.
"""

import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, read_safetensors, small_fashion, write_job
from harness import LaunchTest, read_file


class CompositionTest(LaunchTest):
    def setUp(self):
        super().setUp()
        self.data = small_fashion(self.path("data"), 1024, 256)

    def weights(self, name, workers, options=(), **changes):
        job = write_job(self.path(f"{name}.json"), image_job(self.data, epochs=1, **changes))
        launch = self.run_to_end("--num-workers", workers, *options, job, run_dir=name)
        self.assertEqual(launch.summary()["world_size"], workers)
        return os.path.join(launch.checkpoints()[-1], "model.safetensors")

    def assert_close(self, left, right, delta):
        ours, theirs = read_safetensors(left), read_safetensors(right)
        self.assertEqual(ours.keys(), theirs.keys())
        self.assertTrue(ours)
        for name, (shape, values) in ours.items():
            self.assertEqual(shape, theirs[name][0])
            widest = max(abs(a - b) for a, b in zip(values, theirs[name][1]))
            self.assertLess(widest, delta, name)

    def test_two_ranks_on_two_hosts(self):
        shared = self.weights("shm", 2, backend="shm")
        gloo = self.weights("gloo", 2, backend="gloo")
        apart = self.weights("apart", 2, options=("--local-nodes", 2))
        # A sum of two numbers has one order.
        self.assertTrue(read_file(shared) == read_file(gloo), "gloo differs from shm")
        self.assertTrue(read_file(shared) == read_file(apart), "two hosts differ from one")

    def test_four_ranks_on_two_hosts(self):
        together = self.weights("together", 4)
        apart = self.weights("apart", 4, options=("--local-nodes", 2))
        again = self.weights("again", 4, options=("--local-nodes", 2))
        self.assert_close(together, apart, 1e-4)
        self.assertTrue(read_file(apart) == read_file(again), "two runs on two hosts differ")

    def test_a_node_without_a_worker_holds_nobody_up(self):
        for nodes, workers, command, code, words in ((2, 1, "true", 0, "finished in"), (3, 2, "false", 1, "run failed: ")):
            with self.subTest(command=command):
                launch = self.run_to_end("--local-nodes", nodes, "-n", workers, "--", command, expect=code, run_dir=command)
                self.assertIn(words, launch.stderr())
                self.assertEqual(launch.summary()["exit_code"], code)
        job = write_job(self.path("job.json"), image_job(self.data, epochs=1))
        launch = self.run_to_end("--local-nodes", 2, "-n", 1, job, run_dir="training")
        self.assertIn("finished in", launch.stderr())


if __name__ == "__main__":
    unittest.main()
