"""The peer of scripts/bench training: one rank of PyTorch DistributedDataParallel, started by torchrun.

Same model, data, batch, optimizer and thread count as our worker. Data lie in memory as float tensors and a batch
is an index gather, the fastest loader PyTorch has. Prints a JSON line per epoch: samples/s over the epoch's steps
of all ranks (in the same window as ours: first to last step of the epoch), and the validation accuracy.

usage: ddp_train.py MODEL EPOCHS BATCH_PER_RANK LR DATA_FOLDER [MAX_STEPS [SEED]]   (MAX_STEPS 0: all)
"""

import gzip
import json
import os
import struct
import sys
import time

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FILES = {"train": ("train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"),
         "validation": ("t10k-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz")}


def load(folder, split):
    arrays = []
    for name in FILES[split]:
        with gzip.open(os.path.join(folder, name)) as file:
            content = file.read()
        dimensions = content[3]
        sizes = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
        arrays.append(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(sizes))
    images = torch.from_numpy(arrays[0].astype(np.float32) / 255).unsqueeze(1)
    return images, torch.from_numpy(arrays[1].astype(np.int64))


def make_model(name):
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                         nn.Linear(64 * 12 * 12, 128), nn.ReLU(), nn.Linear(128, 10))


def epoch_indices(count, world, rank, epoch, seed):
    """DistributedSampler's order, without its cost."""
    generator = torch.Generator().manual_seed(1000 * seed + epoch)
    order = torch.randperm(count, generator=generator)
    padded = -(-count // world) * world
    order = torch.cat([order, order[: padded - count]])
    return order[rank:padded:world]


def accuracy(model, images, labels):
    model.eval()
    with torch.no_grad():
        right = sum((model(images[i : i + 500]).argmax(1) == labels[i : i + 500]).sum().item()
                    for i in range(0, len(labels), 500))
    model.train()
    return right / len(labels)


def say(line):
    """One write a line: ranks share a pipe."""
    os.write(1, (json.dumps(line) + "\n").encode())


def main():
    name, epochs, batch, rate, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
    steps_max = int(sys.argv[6]) if len(sys.argv) > 6 else 0
    seed = int(sys.argv[7]) if len(sys.argv) > 7 else 1
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(seed)
    model = DistributedDataParallel(make_model(name))
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9)
    loss_of = nn.CrossEntropyLoss()
    images, labels = load(folder, "train")
    for epoch in range(1, epochs + 1):
        order = epoch_indices(len(labels), world, rank, epoch, seed)
        pieces = order.split(batch)[: steps_max or None]
        dist.barrier()
        begin = time.perf_counter()
        for piece in pieces:
            loss = loss_of(model(images[piece]), labels[piece])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            if epoch == 1 and piece is pieces[0]:
                say({"rank": rank, "first_step": time.time()})
        dist.barrier()
        seconds = time.perf_counter() - begin
        if rank == 0:
            samples = world * sum(len(piece) for piece in pieces)
            line = {"epoch": epoch, "samples_per_s": samples / seconds, "step_ms": 1000 * seconds / len(pieces)}
            if epoch == epochs and not steps_max:
                line["accuracy"] = accuracy(model.module, *load(folder, "validation"))
            say(line)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
