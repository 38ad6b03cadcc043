"""The backend "sgd" against Gloo under the same unmodified script: samples/s of DistributedDataParallel, and the time of
an all_reduce from 4 B to 64 MiB.
"""

import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import BIN_DIR, FASHION, HERE, TORCHRUN, arguments, figure, json_lines, ratio, run, table, torch_version

SIDES = "gloo", "sgd"
NEVER = "never averaged"
HOST_SIZES = [4, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 16 << 20]
SIZES = [4, 1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 25 << 20, 64 << 20]
# Model, batch of a rank, data, steps of the longer and of the quick form.
TRAININGS = [("mlp", 64, FASHION, 400, 100), ("resnet18", 8, "", 6, 3)]


def ranks(count, side, *words):
    """The JSON lines that `count` ranks print."""
    library = os.path.join(BIN_DIR, "..", "lib", "sgd-launch", "libsgd-collective.so")
    _, said = run([*TORCHRUN, "--standalone", "--nproc-per-node", str(count), os.path.join(HERE, "ddp_backend_rank.py"), side,
                   *map(str, words)], env={"OMP_NUM_THREADS": "1", "SGD_COLLECTIVE_LIBRARY": library})
    return json_lines(said)


def train(options):
    rows = []
    for model, batch, folder, steps, quick_steps in TRAININGS:
        if model not in options.models.split(","):
            continue
        for variant in ("plain", "tuned"):
            rates = {side: [] for side in (*SIDES, NEVER)}
            for _ in range(options.n):
                for side in rates:
                    backend, form = ("gloo", "no_sync") if side == NEVER else (side, variant)
                    lines = ranks(2, backend, "train", model, 3, batch, 0.01, folder, quick_steps if options.quick else steps, 1,
                                  form)
                    rates[side].append(statistics.median(line["samples_per_s"] for line in lines if "samples_per_s" in line))
            rows.append([f"{model}, {batch} a rank, {variant}", figure(rates["sgd"]), figure(rates["gloo"]),
                         ratio(rates["sgd"], rates["gloo"]), figure(rates[NEVER])])
    table("DistributedDataParallel, 2 ranks: samples/s", ["", "sgd", "gloo", "ratio", NEVER], rows,
          f"n = {options.n}, medians of 3 epochs each, PyTorch {torch_version()}. Never averaged: what no backend can pass.")


def exchange(options, count, ours="sgd", sizes=SIZES, where=""):
    times = {side: {size: [] for size in sizes} for side in ("gloo", ours)}
    for _ in range(options.n):
        for side in times:
            lines = ranks(count, side, "messages", ",".join(map(str, sizes)))
            for size, microseconds in lines[-1]["us"].items():
                times[side][int(size)].append(microseconds)
    table(f"all_reduce of float32, {count} ranks{where}: microseconds", ["bytes", "sgd", "gloo", "gloo / sgd"],
          [[f"{size:,}", figure(times[ours][size], 1), figure(times["gloo"][size], 1),
            ratio(times["gloo"][size], times[ours][size], 1)] for size in sizes], f"n = {options.n}.")


def main():
    options = arguments(__doc__.splitlines()[0], only={"choices": ["train", "messages"], "help": "one part"},
                        models={"default": "mlp,resnet18", "help": "those to train"})
    if options.only != "messages":
        train(options)
    if options.only != "train":
        for count in (2, 4):
            exchange(options, count)
        exchange(options, 4, "hosts", HOST_SIZES, ", as two hosts of two")
    return 0


if __name__ == "__main__":
    sys.exit(main())
