#!/usr/bin/env python3
"""The backend "sgd" of torch.distributed under PyTorch's own DistributedDataParallel, FSDP2 and checkpoints, beside
Gloo. Needs a Python with PyTorch, $SGD_PEERS_PYTHON or that of scripts/setup --peers; is skipped without one.
"""
import contextlib
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
RANK = os.path.join(ROOT, "test", "support", "ddp_rank.py")
DEADLINE_S = 300


def python_with_torch():
    python = os.environ.get("SGD_PEERS_PYTHON") or os.path.join(os.environ.get("SGD_CACHE", "/var/cache/sgd-launch"),
                                                               "peers", "bin", "python3")
    probe = "import torch.distributed as dist; assert hasattr(dist.Work, 'get_future') and dist.is_gloo_available()"
    try:
        works = subprocess.run([python, "-c", probe], capture_output=True, timeout=DEADLINE_S).returncode == 0
    except OSError:
        works = False
    return python if works else None


PYTHON = python_with_torch()
LIBRARY = os.path.join(os.environ["SGD_BIN_DIR"], "..", "lib", "sgd-launch", "libsgd-collective.so")


def run_ranks(size, backend, case, more=()):
    """(exit codes, JSON lines by rank, stderr of all); the code of a rank that was not done in time is -9."""
    with socket.socket() as kept, tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as files:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # Rank 0 may listen there all the same, and nobody else is given it.
        kept.bind(("127.0.0.1", 0))
        port = kept.getsockname()[1]
        ranks, streams = [], []
        for rank in range(size):
            environment = dict(os.environ, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(size),
                               LOCAL_WORLD_SIZE=str(size), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port),
                               OMP_NUM_THREADS="1", GLOO_SOCKET_IFNAME="lo",
                               PYTHONPATH=os.path.join(ROOT, "worker", "python"), SGD_COLLECTIVE_LIBRARY=LIBRARY, **dict(more))
            streams.append([files.enter_context(open(os.path.join(folder, f"{name}.{rank}"), "w+", encoding="utf-8"))
                            for name in ("out", "err")])
            ranks.append(subprocess.Popen([PYTHON, RANK, backend, case, folder], env=environment, stdout=streams[-1][0],
                                          stderr=streams[-1][1]))
        end = time.monotonic() + DEADLINE_S
        for rank in ranks:
            try:
                rank.wait(max(1, end - time.monotonic()))
            except subprocess.TimeoutExpired:
                rank.kill()
                rank.wait()
        texts = [[pathlib.Path(stream.name).read_text(encoding="utf-8") for stream in pair] for pair in streams]
    lines = [json.loads(out.splitlines()[-1]) if out else None for out, _ in texts]
    return [rank.returncode for rank in ranks], lines, "".join(error for _, error in texts)


@unittest.skipIf(PYTHON is None, "no Python with PyTorch: scripts/setup --peers installs one")
class DdpBackendTest(unittest.TestCase):
    def run_well(self, size, backend, case):
        codes, lines, errors = run_ranks(size, backend, case)
        self.assertEqual(codes, [0] * size, errors)
        return lines, errors

    def test_training_has_the_bits_of_gloo(self):
        ours, _ = self.run_well(2, "sgd", "features")
        peers, _ = self.run_well(2, "gloo", "features")
        for mine, theirs in zip(ours, peers):
            for what, digest in theirs["results"].items():
                self.assertEqual(mine["results"][what], digest, what)

    def test_operations(self):
        lines, errors = self.run_well(3, "sgd", "operations")
        self.assertEqual([line["backend"] for line in lines], ["SgdBackend"] * 3)
        self.assertEqual(errors.count("go through Gloo"), 1, errors)  # The sparse tensor.

    def test_a_script_that_says_nothing_has_it_instead_of_gloo(self):
        lines, _ = self.run_well(2, "instead", "operations")
        self.assertEqual([line["backend"] for line in lines], ["SgdBackend"] * 2)

    def test_a_killed_rank_raises_in_the_others(self):
        codes, lines, errors = run_ranks(3, "sgd", "death")
        self.assertEqual(codes, [0, -9, 0], errors)
        for rank in (0, 2):
            self.assertIn("rank 1 (process ", lines[rank]["error"])
            self.assertIn("has ended", lines[rank]["error"])

    def test_every_type_and_reduction(self):
        for size, backend in ((3, "sgd"), (4, "hosts"), (3, "hosts")):
            lines, _ = self.run_well(size, backend, "reductions")
            self.assertTrue(all(line["done"] > 90 for line in lines), lines)

    def test_operations_between_hosts(self):
        for size in (3, 4):
            lines, errors = self.run_well(size, "hosts", "operations")
            self.assertEqual([line["backend"] for line in lines], ["HostsBackend"] * size)
            self.assertEqual(errors.count("uses Gloo: each rank is on a host"), 1, errors)  # One of the first and the last rank.

    def test_training_between_hosts_has_the_same_bits_on_all_ranks(self):
        lines, _ = self.run_well(4, "hosts", "features")
        for what in ("join", "no_sync", "fsdp2"):  # Others have the running means of a rank's own batches.
            self.assertEqual({line["results"][what] for line in lines}, {lines[0]["results"][what]}, what)

    def test_a_killed_rank_raises_on_all_hosts(self):
        for dies in (1, 2):  # The last rank of a host, and the first of one.
            codes, lines, errors = run_ranks(4, "hosts", "death", {"SGD_TEST_DIES": str(dies)})
            self.assertEqual(codes, [-9 if rank == dies else 0 for rank in range(4)], errors)
            for line in lines[:dies] + lines[dies + 1:]:
                self.assertRegex(line["error"], rf"rank {dies} \(process \d+\) has ended")

    def test_a_killed_host_raises_on_the_others(self):
        codes, lines, errors = run_ranks(3, "hosts", "death", {"SGD_TEST_DIES": "2"})
        self.assertEqual(codes, [0, 0, -9], errors)
        for line in lines[:2]:
            self.assertIn("rank 0 has lost another host", line["error"])

    def test_ranks_of_hosts_of_their_own_use_gloo_and_say_so_once(self):
        lines, errors = self.run_well(2, "sgd", "elsewhere")
        self.assertEqual([line["sum"] for line in lines], [[2, 2, 2]] * 2)
        self.assertEqual(errors.count("uses Gloo: each rank is on a host"), 1, errors)


if __name__ == "__main__":
    sys.exit(unittest.main())
