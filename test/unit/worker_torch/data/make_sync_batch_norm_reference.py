#!/usr/bin/env python3
"""Writes sync_batch_norm_reference.json: what PyTorch does in some steps, for sync_batch_norm_test.cpp.

    scripts/setup --peers && PEERS/bin/python3 test/unit/worker_torch/data/make_sync_batch_norm_reference.py

SyncBatchNorm runs on GPUs only. What it computes is BatchNorm of the batches of all ranks together, with the gradients of the
mean of the ranks' losses: that is trained here, in one process and in double. Weights and data are those of make_model_reference.py.
"""
import json
import os

import torch
from make_model_reference import classes, fill, numbers
from torch import nn
from torch.nn import functional

STEPS, LR, SAMPLES, CLASSES = 50, 0.05, 6, 3
IMAGES, TARGETS = 1000, 2000


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(2, 4, 3)
        self.norm = nn.BatchNorm2d(4)
        self.fc1 = nn.Linear(36, 5)
        self.plain = nn.BatchNorm1d(5, affine=False)
        self.fc2 = nn.Linear(5, CLASSES)

    def forward(self, images):
        hidden = functional.relu(self.norm(self.conv(images)))
        return self.fc2(torch.tanh(self.plain(self.fc1(hidden.flatten(1)))))


def main():
    net = Net().double()
    fill(net)
    optimizer = torch.optim.SGD(net.parameters(), lr=LR)
    losses = []
    for step in range(STEPS):
        images = numbers(IMAGES + step, (SAMPLES, 2, 5, 5)) * 3 + 1
        loss = functional.cross_entropy(net(images), classes(TARGETS + step, (SAMPLES,), CLASSES))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    tensors = {name: tensor.double().flatten().tolist() for name, tensor in net.state_dict().items()}
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sync_batch_norm_reference.json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"losses": losses, "tensors": tensors}, file, indent=1)
        file.write("\n")


if __name__ == "__main__":
    main()
