"""The peer of scripts/bench recovery: one rank of a training script that resumes, started by torchrun --max-restarts.

Saves model, optimizer and step to a file every 50 steps (rank 0, under a temporary name, then renamed) and begins from
that file when it is there. Says when its first step is done.

usage: ddp_resume.py DATA_FOLDER CHECKPOINT [MODEL [cuda]]
"""

import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from ddp_train import load, make_model, say

SAVE_EVERY = 50
BATCH = 64


def main():
    folder, checkpoint = sys.argv[1:3]
    name = sys.argv[3] if len(sys.argv) > 3 else "mlp"
    on_gpu = sys.argv[4:] == ["cuda"]
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    torch.set_num_threads(1)
    dist.init_process_group("nccl" if on_gpu else "gloo")
    rank = dist.get_rank()
    torch.manual_seed(1)
    network = make_model(name).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    step = 0
    if os.path.exists(checkpoint):
        state = torch.load(checkpoint, map_location=device)
        network.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    model = DistributedDataParallel(network)
    loss_of = nn.CrossEntropyLoss()
    images, labels = load(folder, "train")
    first = True
    while True:
        piece = torch.randint(0, len(labels), (BATCH,))
        loss = loss_of(model(images[piece].to(device)), labels[piece].to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        if first:
            loss.item()  # A device works behind the script: it has made the step when this is known.
            say({"rank": rank, "pid": os.getpid(), "first_step": time.time(), "step": step})
            first = False
        if step % SAVE_EVERY == 0 and rank == 0:
            torch.save({"model": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, checkpoint + ".tmp")
            os.replace(checkpoint + ".tmp", checkpoint)


if __name__ == "__main__":
    main()
