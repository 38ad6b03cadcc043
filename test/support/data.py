"""Data and files of the tests: small real data sets in IDX form, job files, and a reader of safetensors."""

import array
import functools
import gzip
import json
import os
import struct

from harness import FASHION

SPLITS = {"train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
          "validation": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")}


@functools.lru_cache(maxsize=8)
def read_idx(path):
    """(sizes, bytes) of an IDX file of bytes, gzip or plain."""
    with (gzip.open if path.endswith(".gz") else open)(path, "rb") as file:
        content = file.read()
    dimensions = content[3]
    sizes = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
    return sizes, content[4 + 4 * dimensions :]


def idx_bytes(sizes, content):
    return struct.pack(f">HBB{len(sizes)}I", 0, 8, len(sizes), *sizes) + content


def small_fashion(folder, train, validation):
    """The first images of Fashion-MNIST as plain IDX files."""
    os.makedirs(folder, exist_ok=True)
    for split, count in (("train", train), ("validation", validation)):
        for name in SPLITS[split]:
            sizes, content = read_idx(os.path.join(FASHION, name + ".gz"))
            item = len(content) // sizes[0]
            with open(os.path.join(folder, name), "wb") as file:
                file.write(idx_bytes((count, *sizes[1:]), content[: count * item]))
    return folder


def image_job(data, **changes):
    """A job that trains on images, as a dictionary; `changes` go into its training part."""
    training = {"seed": 1, "epochs": 2, "batch_size": 64, "model": {"type": "mlp"}, "loss": "cross_entropy",
                "dataset": {"type": "idx", "path": data}, "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9}}
    training.update(changes)
    return {"name": "images", "num_workers": 2, "training": training}


def linear_job(workers=1, **changes):
    """A job that needs no data and takes milliseconds an epoch; `changes` go into its training part."""
    training = {"seed": 1, "epochs": 2, "batch_size": 32, "model": {"type": "linear"}, "loss": "mse",
                "dataset": {"type": "linear", "samples": 1000, "validation_samples": 100}, "optimizer": {"type": "sgd", "lr": 0.01}}
    training.update(changes)
    return {"name": "linear", "num_workers": workers, "training": training}


def write_job(path, job):
    with open(path, "w") as file:
        json.dump(job, file, indent=1)
    return path


def read_safetensors(path):
    """{name: (shape, values)} of a file of 32-bit floats, by the format's own description."""
    with open(path, "rb") as file:
        content = file.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        values = array.array("f" if entry["dtype"] == "F32" else "B")
        values.frombytes(content[8 + length + begin : 8 + length + end])
        tensors[name] = (entry["shape"], values)
    return tensors
