"""One rank of scripts/bench python_ranks, under sgd-launch and under torchrun: DistributedDataParallel with an MLP and Adam over Gloo.

Keeps its state by sgd_launch.State where there is a launcher for it, else by a file every 50 steps. Says when its first
step is done, and trains until it is killed.

usage: python_rank.py CHECKPOINT
"""

import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SAVE_EVERY = 50


def say(**values):
    os.write(1, (json.dumps({"pid": os.getpid(), "rank": dist.get_rank(), **values}) + "\n").encode())


def main():
    checkpoint = sys.argv[1]
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    network = nn.Sequential(nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.Adam(network.parameters())
    step, state = 0, None
    if "SGD_LINK" in os.environ:
        import sgd_launch
        state = sgd_launch.State(model=network, optimizer=optimizer, step=0)
        state.restore()
        step = state.step
    elif os.path.exists(checkpoint):
        saved = torch.load(checkpoint)
        network.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        step = saved["step"]
    model = DistributedDataParallel(network)
    begun_at = step
    while True:
        optimizer.zero_grad()
        model(torch.randn(64, 784)).square().mean().backward()
        optimizer.step()
        step += 1
        if step == begun_at + 1:
            say(first_step=time.time(), step=step)
        if state is not None:
            state.step = step
            state.commit()
        elif step % SAVE_EVERY == 0 and dist.get_rank() == 0:
            torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, checkpoint + ".tmp")
            os.replace(checkpoint + ".tmp", checkpoint)


if __name__ == "__main__":
    main()
