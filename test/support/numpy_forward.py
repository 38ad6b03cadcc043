"""A forward pass of our models by numpy alone, on weights opened by Python's safetensors.

Run as: numpy_forward.py MODEL.safetensors DATA_FOLDER. Prints {"loss", "accuracy"} on the validation images. Kept
independent of the worker on purpose: it shares no code with what it judges.
"""

import json
import os
import sys

import numpy as np
from safetensors.numpy import load_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from data import SPLITS, read_idx


def relu(values):
    return np.maximum(values, 0)


def affine(values, tensors, name):
    return values @ tensors[name + ".weight"].T + tensors[name + ".bias"]


def convolve(images, tensors, name):
    """A 3x3 convolution without padding; images are n x channels x rows x columns."""
    windows = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(2, 3))
    summed = np.einsum("nchwij,ocij->nohw", windows, tensors[name + ".weight"], optimize=True)
    return summed + tensors[name + ".bias"][:, None, None]


def max_pool(images):
    count, channels, rows, columns = images.shape
    return images[:, :, : rows // 2 * 2, : columns // 2 * 2].reshape(count, channels, rows // 2, 2, columns // 2, 2).max((3, 5))


def logits(tensors, images):
    if "conv1.weight" in tensors:
        values = relu(convolve(images[:, None], tensors, "conv1"))
        values = max_pool(relu(convolve(values, tensors, "conv2"))).reshape(len(images), -1)
        return affine(relu(affine(values, tensors, "fc1")), tensors, "fc2")
    values = images.reshape(len(images), -1)
    layers = sorted({name.split(".")[0] for name in tensors}, key=lambda name: int(name[2:]))
    for layer in layers[:-1]:
        values = relu(affine(values, tensors, layer))
    return affine(values, tensors, layers[-1])


def main():
    tensors = {name: value.astype(np.float64) for name, value in load_file(sys.argv[1]).items()}
    sizes, pixels = read_idx(os.path.join(sys.argv[2], SPLITS["validation"][0]))
    images = np.frombuffer(pixels, np.uint8).reshape(sizes).astype(np.float64) / 255
    labels = np.frombuffer(read_idx(os.path.join(sys.argv[2], SPLITS["validation"][1]))[1], np.uint8)
    output = logits(tensors, images)
    shifted = output - output.max(1, keepdims=True)
    log_probability = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    loss = -log_probability[np.arange(len(labels)), labels].mean()
    print(json.dumps({"loss": float(loss), "accuracy": float((output.argmax(1) == labels).mean())}))


if __name__ == "__main__":
    main()
