#!/usr/bin/env python3
"""Python scripts on the GPUs of this machine, one rank each: for scripts/test --gpu, by hand.

    gpu_python.py [unittest arguments]
"""

import os
import random
import re
import signal
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import gpus
import harness
from harness import CACHE, ROOT, wait_for

PEERS_PYTHON = os.environ.get("SGD_PEERS_PYTHON") or os.path.join(CACHE, "peers", "bin", "python3")
MODULES = os.path.join(ROOT, "worker", "python")
DEVICE = os.environ.get("SGD_GPU_TEST_DEVICE") or "cuda"
KILLS = 5
LIMIT_S = 240

# With numbers of every kind that a copy has to keep: weights, momenta, statistics, random states of the host and the device.
TRAIN = """
import hashlib, os, sys
print("torch was there:", "torch" in sys.modules, flush=True)
import torch, torch.distributed as dist, torch.nn as nn
import sgd_launch
device = sys.argv[2]
if device == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.use_deterministic_algorithms(True)
torch.manual_seed(1)
dist.init_process_group("nccl" if device == "cuda" else "gloo")
layers = nn.Sequential(nn.Linear(512, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Dropout(0.2), nn.Linear(1024, 10)).to(device)
model = nn.parallel.DistributedDataParallel(layers)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.manual_seed(100 + dist.get_rank())
state = sgd_launch.State(model=model, optimizer=optimizer, step=0)
print("restored", state.restore(), state.step, flush=True)
while state.step < int(sys.argv[1]):
    loss = model(torch.randn(64, 512, device=device)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    state.step += 1
    state.commit()
text = b"".join(value.cpu().numpy().tobytes() for value in model.state_dict().values())
print("end", state.step, hashlib.sha256(text).hexdigest(), flush=True)
print("commits took", state.commit_cost, flush=True)
dist.destroy_process_group()
"""

SHOW = """
import os, torch
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
value = (torch.ones(4, device="cuda") * 2).sum().item()
print("saw", os.environ["LOCAL_RANK"], torch.cuda.device_count(), torch.cuda.current_device(), value, flush=True)
"""


def count():
    return len(gpus.listed())


class GpuPython(harness.LaunchTest):
    def begin(self, name, script, *arguments, options=("--nproc-per-node", "auto")):
        path = self.write(name + ".py", script)
        env = {"PYTHON_EXEC": PEERS_PYTHON, "PYTHONPATH": MODULES, "OMP_NUM_THREADS": "1", "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        return self.start("--max-restarts", 100, *options, path, *arguments, env=env, run_dir=name)

    def finish(self, launch):
        self.assertEqual(launch.wait(LIMIT_S), 0, launch.said())
        return launch.stdout().decode()

    def test_every_gpu_has_a_rank(self):
        for options in (("--nproc-per-node", "auto"), ("--nproc-per-node", "gpu"), ("-n", count(), "--set", "per_worker.gpus=1")):
            for preload in ("auto", "none"):
                with self.subTest(options=options, preload=preload):
                    name = f"show{len(os.listdir(self.folder))}"
                    said = self.finish(self.begin(name, SHOW, options=(*options, "--preload", preload)))
                    found = sorted(int(rank) for rank in re.findall(r"saw (\d+) \d+ \1 8\.0", said))
                    self.assertEqual(found, list(range(count())), said)

    def test_ranks_are_forked_with_torch_and_begin_cuda_themselves(self):
        self.finish(self.begin("first", TRAIN, 20, DEVICE))  # What it imports is known from here on.
        self.assertIn("torch was there: True", self.finish(self.begin("second", TRAIN, 20, DEVICE)))

    def test_kills_change_no_bit(self):
        calm = self.finish(self.begin("calm", TRAIN, 6000, DEVICE))
        launch = self.begin("killed", TRAIN, 6000, DEVICE)
        chance = random.Random(3)
        for kill in range(KILLS):
            launch.wait_for_event("worker_started", LIMIT_S, count=(kill + 1) * max(count(), 1))
            wait_for(lambda: launch.stdout().decode().count("restored") >= (kill + 1) * max(count(), 1), LIMIT_S, "ranks that have begun")
            time.sleep(chance.uniform(0.5, 1.0))  # Of training, so that something would be lost.
            os.kill(chance.choice(sorted(launch.rank_pids().values())), signal.SIGKILL)
        said = self.finish(launch)
        self.assertIn("restored memory", said)
        self.assertEqual(set(re.findall(r"end \d+ (\w+)", calm)), set(re.findall(r"end \d+ (\w+)", said)))


if __name__ == "__main__":
    if not count() and DEVICE == "cuda":
        sys.exit("gpu_python: there is no GPU here that nvidia-smi lists: nothing is tested")
    unittest.main()
