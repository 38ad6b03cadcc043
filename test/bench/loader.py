#!/usr/bin/env python3
"""scripts/bench loader: samples/s of our data sets on one core and on two, against PyTorch's DataLoader with the same transforms.

Both sides in one run, alternating; each repetition is a process that gives the median of its epochs. The images are those of
Fashion-MNIST: as they are, and as a file in CIFAR-10's format (three channels of 32 x 32, made by repeating and padding).
"""

import gzip
import os
import statistics
import sys

from measure import BIN_DIR, FASHION, HERE, PEERS_PYTHON, Folder, arguments, figure, json_lines, ratio, run, table

BENCH = os.path.join(BIN_DIR, "loader_bench")
FILE_SAMPLES = 10000
EPOCHS = 5


def cifar_file(path, samples):
    """Images of 28 x 28 grey pixels in the middle of 3 x 32 x 32."""
    def content(name, header):
        with gzip.open(os.path.join(FASHION, name)) as file:
            return file.read()[header:]
    images, labels = content("train-images-idx3-ubyte.gz", 16), content("train-labels-idx1-ubyte.gz", 8)
    with open(path, "wb") as file:
        for number in range(samples):
            image = images[784 * number : 784 * (number + 1)]
            rows = b"".join(bytes(2) + image[28 * row : 28 * (row + 1)] + bytes(2) for row in range(28))
            file.write(labels[number : number + 1] + (bytes(64) + rows + bytes(64)) * 3)
    return path


def rate(command, cores):
    _, said = run([str(word) for word in command], affinity=cores)
    return statistics.median(json_lines(said)[-1]["samples_per_s"])


def main():
    options = arguments(__doc__.splitlines()[0], peer={"choices": ["yes", "no"], "default": "yes", "help": "measure PyTorch, too"})
    cores = sorted(os.sched_getaffinity(0))
    one, two = set(cores[:1]), set(cores[:2])
    epochs = 1 if options.quick else EPOCHS
    with Folder() as folder:
        file = cifar_file(os.path.join(folder, "train.bin"), FILE_SAMPLES)
        peer = os.path.join(HERE, "torch_loader.py")
        sides = {"plain": ([BENCH, "idx", FASHION, epochs], one),
                 "ours": ([BENCH, "cifar", file, 0, epochs], one), "theirs": ([PEERS_PYTHON, peer, file, 0, epochs], one),
                 "ours2": ([BENCH, "cifar", file, 2, epochs], two), "theirs2": ([PEERS_PYTHON, peer, file, 2, epochs], two)}
        if options.peer == "no":
            sides = {name: side for name, side in sides.items() if "theirs" not in name}
        rates = {name: [] for name in sides}
        for _ in range(options.n):
            for name, (command, allowed) in sides.items():
                rates[name].append(rate(command, allowed))

    def row(what, ours, theirs=None):
        known = theirs in rates
        return [what, figure(rates[ours]), figure(rates[theirs]) if known else "", ratio(rates[ours], rates[theirs]) if known else ""]
    table("Batches of 128, shuffled: samples/s", ["", "ours", "DataLoader", "ratio"],
          [row("Fashion-MNIST, one core", "plain"),
           row("CIFAR format, crop, flip, normalize, cutout; one core, no workers", "ours", "theirs"),
           row("the same; two cores, two workers or threads", "ours2", "theirs2")],
          f"n = {options.n}, medians of {epochs} epochs each.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
