"""Training speed: our worker against PyTorch DistributedDataParallel, and against our own rate without gradient sync.

Both sides: 2 ranks, one thread each, the same model, data, batch and optimizer, the same LibTorch. Samples/s are
those of whole epochs after the first, as each side reports them; a process that has just started is not measured.
Sides alternate, so that a slow minute of the machine hits both.
"""

import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import FASHION, HERE, LAUNCHER, TORCHRUN, Folder, arguments, figure, json_lines, ratio, read_lines, run, table, torch_version

RANKS = 2
BATCH_PER_RANK = 64
RATE = 0.01


def write_job(folder, model, epochs, workers, seed):
    job = {"name": f"bench-{model}", "num_workers": workers, "checkpoint": {"every": "never"},
           "training": {"seed": seed, "epochs": epochs, "batch_size": BATCH_PER_RANK * workers, "model": {"type": model},
                        "loss": "cross_entropy", "dataset": {"type": "idx", "path": FASHION},
                        "optimizer": {"type": "sgd", "lr": RATE, "momentum": 0.9}}}
    path = os.path.join(folder, "job.json")
    with open(path, "w") as file:
        json.dump(job, file)
    return path


def steady(lines):
    """Samples/s of the epochs after the first."""
    rates = [line["samples_per_s"] for line in lines if line["epoch"] > 1] or [line["samples_per_s"] for line in lines]
    return statistics.median(rates)


def ours(model, epochs, workers=RANKS, affinity=None, seed=1):
    """(samples/s, validation accuracy) of one run of sgd-launch."""
    with Folder() as folder:
        directory = os.path.join(folder, "run")
        run([LAUNCHER, "--run-dir", directory, write_job(folder, model, epochs, workers, seed)], affinity=affinity)
        metrics = read_lines(os.path.join(directory, "metrics.jsonl"))
    accuracy = [line["val_accuracy"] for line in metrics if line["phase"] == "validate"][-1]
    return steady([line for line in metrics if line["phase"] == "train"]), accuracy


def ours_without_sync(model, epochs):
    """Sum of two independent one-worker runs at once, each on a core of its own."""
    from concurrent.futures import ThreadPoolExecutor

    cores = sorted(os.sched_getaffinity(0))[:RANKS]
    with ThreadPoolExecutor(RANKS) as pool:
        return sum(rate for rate, _ in pool.map(lambda core: ours(model, epochs, 1, {core}), cores))


def theirs(model, epochs, seed=1):
    _, output = run([*TORCHRUN, "--standalone", "--nproc-per-node", str(RANKS), os.path.join(HERE, "ddp_train.py"), model,
                     str(epochs), str(BATCH_PER_RANK), str(RATE), FASHION, "0", str(seed)], env={"OMP_NUM_THREADS": "1"})
    lines = [line for line in json_lines(output) if "samples_per_s" in line]
    return steady(lines), lines[-1]["accuracy"]


def main():
    options = arguments(__doc__.splitlines()[0], models={"default": "mlp,cnn", "help": "which models"})
    rows = []
    for model in options.models.split(","):
        # An MLP's epoch takes under a second, a CNN's half a minute.
        epochs = (3 if options.quick else 5) if model == "mlp" else (1 if options.quick else 2)
        samples, peer, alone, accuracy, peer_accuracy = [], [], [], [], []
        for number in range(options.n):
            for rates, accuracies, side in ((samples, accuracy, ours), (peer, peer_accuracy, theirs)):
                rate, right = side(model, epochs)
                rates.append(rate)
                accuracies.append(right)
            alone.append(ours_without_sync(model, epochs))
            print(f"{model} {number + 1}/{options.n}: sgd-launch {samples[-1]:,.0f}, DDP {peer[-1]:,.0f}, "
                  f"without sync {alone[-1]:,.0f} samples/s", file=sys.stderr)
        rows.append([model, figure(samples), figure(peer), ratio(samples, peer), figure(alone), ratio(samples, alone),
                     f"{figure(accuracy, 4)} / {figure(peer_accuracy, 4)} after {epochs} epochs"])
    table(f"Training, {RANKS} ranks, {BATCH_PER_RANK} samples per rank, SGD with momentum, samples/s",
          ["model", "sgd-launch", "PyTorch DDP (gloo)", "ratio", "without gradient sync", "of that", "accuracy"], rows,
          f"n = {options.n}, alternating; torch {torch_version()}, one thread per rank.")


if __name__ == "__main__":
    main()
