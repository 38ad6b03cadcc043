"""Training speed: our worker and PyTorch DistributedDataParallel, each plain, tuned, and without averaging gradients.

Both sides: 2 ranks, one thread each, the same model, data, batch and optimizer, the same LibTorch. Samples/s are
those of whole epochs after the first, as each side reports them; a process that has just started is not measured.
All forms run in turns, so that a slow minute of the machine hits each.
"""

import json
import os
import statistics
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import (BIN_DIR, FASHION, HERE, LAUNCHER, TORCHRUN, Folder, arguments, figure, json_lines, ratio, read_lines, run, table,
                     torch_version)

RANKS = 2
BATCH_PER_RANK = 64
RATE = 0.01
PLAIN_MODELS = os.path.join(BIN_DIR, "..", "lib", "plain_models.so")


def data_of(model):
    if model == "resnet18":
        return {"type": "synthetic", "shape": [3, 32, 32], "classes": 10, "samples": 1024, "validation_samples": 64}
    return {"type": "idx", "path": FASHION}


def write_job(folder, model, epochs, workers, seed, training):
    settings = {"type": model, "stem": "cifar", "outputs": 10} if model == "resnet18" else {"type": model}
    job = {"name": f"bench-{model}", "num_workers": workers, "checkpoint": {"every": "never"},
           "training": {"seed": seed, "epochs": epochs, "batch_size": BATCH_PER_RANK * workers, "model": settings,
                        "loss": "cross_entropy", "dataset": data_of(model),
                        "optimizer": {"type": "sgd", "lr": RATE, "momentum": 0.9}, **training}}
    if "model" in training:
        job["plugins"] = [PLAIN_MODELS]
    path = os.path.join(folder, "job.json")
    with open(path, "w") as file:
        json.dump(job, file)
    return path


def steady(lines):
    """Samples/s of the epochs after the first."""
    rates = [line["samples_per_s"] for line in lines if line["epoch"] > 1] or [line["samples_per_s"] for line in lines]
    return statistics.median(rates)


def ours(model, epochs, workers=RANKS, affinity=None, seed=1, training=None):
    """(samples/s, validation accuracy) of one run of sgd-launch."""
    with Folder() as folder:
        directory = os.path.join(folder, "run")
        run([LAUNCHER, "--run-dir", directory, write_job(folder, model, epochs, workers, seed, training or {})], affinity=affinity)
        metrics = read_lines(os.path.join(directory, "metrics.jsonl"))
    accuracy = [line["val_accuracy"] for line in metrics if line["phase"] == "validate"][-1]
    return steady([line for line in metrics if line["phase"] == "train"]), accuracy


def ours_in_bf16(model, epochs):
    return ours(model, epochs, training={"precision": "bf16"})


def ours_with_plain_operations(model, epochs):
    return ours(model, epochs, training={"model": {"type": f"plain_{model}"}})


def ours_without_sync(model, epochs):
    """Sum of two independent one-worker runs at once, each on a core of its own."""
    from concurrent.futures import ThreadPoolExecutor

    cores = sorted(os.sched_getaffinity(0))[:RANKS]
    with ThreadPoolExecutor(RANKS) as pool:
        both = list(pool.map(lambda core: ours(model, epochs, 1, {core}), cores))
    return sum(rate for rate, _ in both), both[0][1]


def theirs(model, epochs, seed=1, variant="plain"):
    ranks = 1 if variant == "single" else RANKS
    folder = "" if model == "resnet18" else FASHION
    _, output = run([*TORCHRUN, "--standalone", "--nproc-per-node", str(ranks), os.path.join(HERE, "ddp_train.py"), model,
                     str(epochs), str(BATCH_PER_RANK), str(RATE), folder, "0", str(seed), variant],
                    env={} if variant == "single" else {"OMP_NUM_THREADS": "1"})
    lines = [line for line in json_lines(output) if "samples_per_s" in line]
    return steady(lines), lines[-1]["accuracy"]


def forms_of(model):
    """Name to what runs it; the first is what the others are compared with."""
    forms = {"PyTorch DDP (gloo)": theirs}
    for variant, name in (("tuned", "PyTorch DDP, tuned"), ("no_sync", "PyTorch DDP, no_sync"), ("single", "one PyTorch process")):
        forms[name] = lambda model, epochs, variant=variant: theirs(model, epochs, variant=variant)
    forms["sgd-launch"] = ours
    forms["sgd-launch, bf16"] = ours_in_bf16
    if model != "resnet18":
        forms["sgd-launch, plain LibTorch"] = ours_with_plain_operations
    forms["sgd-launch, no sync"] = ours_without_sync
    return forms


def main():
    options = arguments(__doc__.splitlines()[0], models={"default": "mlp,cnn,resnet18", "help": "which models"},
                        only={"default": "", "help": "forms whose names contain this, beside DDP's"})
    for model in options.models.split(","):
        # An MLP's epoch takes under a second, a CNN's half a minute.
        epochs = (3 if options.quick else 5) if model == "mlp" else (1 if options.quick else 2)
        forms = {name: form for number, (name, form) in enumerate(forms_of(model).items()) if number == 0 or options.only in name}
        rates, accuracies = {name: [] for name in forms}, {name: [] for name in forms}
        for number in range(options.n):
            for name, form in forms.items():
                rate, right = form(model, epochs)
                rates[name].append(rate)
                accuracies[name].append(right)
                print(f"{model} {number + 1}/{options.n}: {name}: {rate:,.0f} samples/s, accuracy {right:.4f}", file=sys.stderr)
        first = next(iter(forms))
        has_accuracy = model != "resnet18"  # Of samples that are noise, nothing is learnt.
        table(f"Training {model}, {RANKS} ranks, {BATCH_PER_RANK} samples per rank, SGD with momentum, {epochs} epochs",
              ["", "samples/s", "of DDP's", "accuracy"],
              [[name, figure(rates[name]), ratio(rates[name], rates[first]), figure(accuracies[name], 4) if has_accuracy else "-"]
               for name in forms], f"n = {options.n}, in turns; torch {torch_version()}, one thread per rank.")


if __name__ == "__main__":
    main()
