"""Training on two ranks beside PyTorch's DistributedDataParallel: the same model, batches and settings end in the same weights,
running statistics and unused parameters, and a checkpoint opens in Python. Where there is a Python with torch.
"""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, read_safetensors, small_fashion, write_job
from harness import BIN_DIR, CACHE, LaunchTest, read_file

PEERS_PYTHON = os.environ.get("SGD_PEERS_PYTHON") or os.path.join(CACHE, "peers", "bin", "python3")
PLUGIN = os.path.join(BIN_DIR, "..", "lib", "own_operator.so")
SAMPLES, BATCH, SEED, HIDDEN = 1920, 64, 1, 48
SGD = {"lr": 0.05, "momentum": 0.9, "weight_decay": 0.001}

# The model of test/plugins/own_operator.cpp.
NET = """
import json, sys
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(784, %(HIDDEN)d)
        self.norm = nn.BatchNorm1d(%(HIDDEN)d)
        self.last = nn.Linear(%(HIDDEN)d, 10)
        self.spare = nn.Linear(3, 3)

    def forward(self, images):
        return self.last(torch.relu(self.norm(self.first(images))))

def read_images(folder, split):
    with open(f"{folder}/{split}-images-idx3-ubyte", "rb") as images, open(f"{folder}/{split}-labels-idx1-ubyte", "rb") as labels:
        pixels, classes = bytearray(images.read()[16:]), bytearray(labels.read()[8:])
    return torch.frombuffer(pixels, dtype=torch.uint8).reshape(-1, 784).float() / 255, torch.frombuffer(classes, dtype=torch.uint8).long()

torch.set_num_threads(1)
torch.manual_seed(%(SEED)d)
net = Net()
""" % globals()

# Rank r takes the samples r, r + 2, r + 4, ..., as without shuffling.
TRAIN = NET + """
import torch.distributed as dist
dist.init_process_group("gloo")
images, labels = read_images(sys.argv[1], "train")
model = nn.parallel.DistributedDataParallel(net, find_unused_parameters=True)
optimizer = torch.optim.SGD(model.parameters(), **json.loads(sys.argv[2]))
for begin in range(0, len(labels), %(BATCH)d):
    own = slice(begin + dist.get_rank(), begin + %(BATCH)d, 2)
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(images[own]), labels[own], label_smoothing=0.1).backward()
    optimizer.step()
if dist.get_rank() == 0:
    with open(sys.argv[3], "w") as file:
        json.dump({name: tensor.flatten().tolist() for name, tensor in net.state_dict().items()}, file)
dist.destroy_process_group()
""" % globals()

VALIDATE = NET + """
with open(sys.argv[2], "rb") as file:
    content = file.read()
data = 8 + int.from_bytes(content[:8], "little")
tensors = {}
for name, one in json.loads(content[8:data]).items():
    if name != "__metadata__":
        begin, end = one["data_offsets"]
        kind = {"F32": torch.float32, "I64": torch.int64}[one["dtype"]]
        tensors[name] = torch.frombuffer(bytearray(content[data + begin : data + end]), dtype=kind).reshape(one["shape"])
net.load_state_dict(tensors)  # Every name, and no other.
net.eval()
images, labels = read_images(sys.argv[1], "t10k")
with torch.no_grad():
    print(json.dumps(net(images).argmax(1).eq(labels).double().mean().item()))
"""


def has_torch():
    find = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"  # An import would take seconds.
    return os.path.exists(PEERS_PYTHON) and subprocess.run([PEERS_PYTHON, "-c", find], capture_output=True, check=False).returncode == 0


@unittest.skipUnless(has_torch(), f"{PEERS_PYTHON} has no torch")
class DdpParityTest(LaunchTest):
    def setUp(self):
        super().setUp()
        self.data = small_fashion(self.path("data"), SAMPLES, 400)
        job = image_job(self.data, seed=SEED, epochs=1, batch_size=BATCH, shuffle=False, optimizer={"type": "sgd", **SGD},
                        operator={"type": "smoothed", "hidden": HIDDEN, "dropout": 0, "smoothing": 0.1})
        del job["training"]["model"]
        job["plugins"] = [PLUGIN]
        self.ours = self.run_to_end(write_job(self.path("job.json"), job), run_dir="ours")
        self.model = os.path.join(self.ours.checkpoints()[-1], "model.safetensors")

    def test_weights_buffers_and_what_is_unused(self):
        told = self.path("theirs.json")
        self.run_to_end("-n", 2, "--", PEERS_PYTHON, self.write("train.py", TRAIN), self.data, json.dumps(SGD), told, run_dir="theirs")
        theirs, ours = json.loads(read_file(told)), read_safetensors(self.model)
        self.assertEqual(set(theirs), set(ours))
        batches, = theirs.pop("norm.num_batches_tracked")
        self.assertEqual((batches, int.from_bytes(ours["norm.num_batches_tracked"][1].tobytes(), "little")), (SAMPLES // BATCH,) * 2)
        for name, values in theirs.items():
            largest = max(abs(value) for value in values)
            for mine, other in zip(ours[name][1], values):
                self.assertAlmostEqual(mine, other, delta=1e-6 * max(1, largest), msg=name)

    def test_a_checkpoint_opens_in_python(self):
        done = subprocess.run([PEERS_PYTHON, self.write("validate.py", VALIDATE), self.data, self.model], capture_output=True, text=True, timeout=120, check=True)
        self.assertAlmostEqual(json.loads(done.stdout), self.ours.metrics("validate")[-1]["val_accuracy"], places=12)


if __name__ == "__main__":
    unittest.main()
