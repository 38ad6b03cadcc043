"""The peer of scripts/bench gpu: one rank of PyTorch on a GPU, DistributedDataParallel where there are several, started by torchrun.

Models and data of ddp_train.py. Batches go to the device from pinned memory, TF32 is off. Prints a JSON line: samples/s of all ranks in the last epoch.

usage: gpu_torch.py MODEL EPOCHS BATCH_PER_RANK DATA_FOLDER PRECISION SYNTHETIC_SAMPLES   (these where DATA_FOLDER is "")
"""

import contextlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import ddp_train
from ddp_train import load, make_model


def main():
    name, epochs, batch, folder, precision = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]
    ddp_train.SYNTHETIC_SAMPLES = int(sys.argv[6])
    rank, world, local = (int(os.environ[key]) for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    device = torch.device("cuda", local)
    torch.cuda.set_device(device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    dist.init_process_group("nccl")
    torch.manual_seed(1)
    model = DistributedDataParallel(make_model(name).to(device), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    images, labels = (tensor.pin_memory() for tensor in load(folder, "train"))
    lower = torch.autocast("cuda", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext()
    steps = len(labels) // (batch * world)
    for _ in range(epochs):
        order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(1))
        began = time.monotonic()
        for step in range(steps):
            chosen = order[(step * world + rank) * batch:][:batch]
            features, target = images[chosen].pin_memory().to(device, non_blocking=True), labels[chosen].pin_memory().to(device, non_blocking=True)
            with lower:
                loss = nn.functional.cross_entropy(model(features), target)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.cuda.synchronize()
        seconds = time.monotonic() - began
    if rank == 0:
        print(json.dumps({"samples_per_s": steps * batch * world / seconds, "device": torch.cuda.get_device_name(device)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
