"""The peer of scripts/bench training: one rank of PyTorch DistributedDataParallel, started by torchrun.

Same model, data, batch, optimizer and thread count as our worker. Data lie in memory as float tensors and a batch
is an index gather, the fastest loader PyTorch has. Prints a JSON line per epoch: samples/s over the epoch's steps
of all ranks (in the same window as ours: first to last step of the epoch), and the validation accuracy.

usage: ddp_train.py MODEL EPOCHS BATCH_PER_RANK LR DATA_FOLDER [MAX_STEPS [SEED [VARIANT]]]   (MAX_STEPS 0: all)
VARIANT: plain; tuned (gradients as views of buckets, a static graph, a fused optimizer, ranks bound to cores); no_sync
(gradients are never averaged); single (one process without DistributedDataParallel, all cores, the batch of two ranks).
"""

import contextlib
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


SYNTHETIC_SAMPLES = 1024


def load(folder, split):
    if not folder:
        generator = torch.Generator().manual_seed(1)
        return (torch.randn(SYNTHETIC_SAMPLES, 3, 32, 32, generator=generator),
                torch.randint(10, (SYNTHETIC_SAMPLES,), generator=generator))
    arrays = []
    for name in FILES[split]:
        with gzip.open(os.path.join(folder, name)) as file:
            content = file.read()
        dimensions = content[3]
        sizes = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
        arrays.append(np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(sizes))
    images = torch.from_numpy(arrays[0].astype(np.float32) / 255).unsqueeze(1)
    return images, torch.from_numpy(arrays[1].astype(np.int64))


class Block(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        is_same = stride == 1 and inputs == outputs
        self.shortcut = nn.Identity() if is_same else nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False),
                                                                    nn.BatchNorm2d(outputs))

    def forward(self, x):
        return torch.relu(self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x))))) + self.shortcut(x))


class ResNet18(nn.Sequential):
    """With the stem for images of 32 x 32."""

    def __init__(self):
        layers, width = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
        for outputs, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
            layers += [Block(width, outputs, stride), Block(outputs, outputs, 1)]
            width = outputs
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def make_model(name):
    if name == "mlp":
        return nn.Sequential(nn.Flatten(), nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10))
    if name == "resnet18":
        return ResNet18()
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
    variant = sys.argv[8] if len(sys.argv) > 8 else "plain"
    is_tuned = variant == "tuned"
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    if variant == "single":
        batch *= 2
    else:
        torch.set_num_threads(1)
    if is_tuned:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    torch.manual_seed(seed)
    module = make_model(name)
    model = module if variant == "single" else DistributedDataParallel(module, gradient_as_bucket_view=is_tuned,
                                                                       static_graph=is_tuned)
    optimizer = torch.optim.SGD(model.parameters(), lr=rate, momentum=0.9, fused=is_tuned or None)
    synced = model.no_sync if variant == "no_sync" else contextlib.nullcontext
    loss_of = nn.CrossEntropyLoss()
    images, labels = load(folder, "train")
    for epoch in range(1, epochs + 1):
        order = epoch_indices(len(labels), world, rank, epoch, seed)
        pieces = order.split(batch)[: steps_max or None]
        dist.barrier()
        begin = time.perf_counter()
        for piece in pieces:
            with synced():
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
                line["accuracy"] = accuracy(module, *load(folder, "validation"))
            say(line)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
