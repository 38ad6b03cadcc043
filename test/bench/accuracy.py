"""Validation accuracy after the same epochs: our worker against PyTorch DistributedDataParallel.

Both sides: 2 ranks, the same model, data, batch, rate and optimizer; initial weights and order differ, being drawn
by different generators. So seeds are compared as two samples: means, ranges and the standard error of the difference.
"""

import math
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import arguments, figure, table, torch_version
from training import BATCH_PER_RANK, RANKS, RATE, ours, theirs


def error_of_difference(one, other):
    return math.sqrt(statistics.variance(one) / len(one) + statistics.variance(other) / len(other))


def main():
    options = arguments(__doc__.splitlines()[0], models={"default": "mlp,cnn", "help": "which models"},
                        epochs={"default": 5, "type": int, "help": "epochs of a run"})
    rows = []
    for model in options.models.split(","):
        one, other = [], []
        for seed in range(1, max(options.n, 2) + 1):
            one.append(ours(model, options.epochs, seed=seed)[1])
            other.append(theirs(model, options.epochs, seed)[1])
            print(f"{model} seed {seed}: sgd-launch {one[-1]:.4f}, DDP {other[-1]:.4f}", file=sys.stderr)
        difference = statistics.mean(one) - statistics.mean(other)
        rows.append([model, figure(one, 4), figure(other, 4), f"{statistics.mean(one):.4f}", f"{statistics.mean(other):.4f}",
                     f"{100 * difference:+.2f} ± {100 * error_of_difference(one, other):.2f} points"])
    table(f"Validation accuracy after {options.epochs} epochs, {RANKS} ranks, {BATCH_PER_RANK} samples per rank, SGD {RATE} with momentum",
          ["model", "sgd-launch", "PyTorch DDP", "mean", "mean of DDP", "difference ± standard error"], rows,
          f"n = {len(one)} seeds; torch {torch_version()}.")


if __name__ == "__main__":
    main()
