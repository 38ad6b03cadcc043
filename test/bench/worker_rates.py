#!/usr/bin/env python3
"""Samples per second of sgd-worker alone: two ranks that average gradients, against two single ranks side by side.

The second is what the same cores do without any exchange, so the ratio is the cost of being two. No launcher takes part;
scripts/bench training compares with PyTorch.

    worker_rates.py build/release/bin/sgd-worker [mlp|cnn] [rounds]
"""
import os
import statistics
import sys
import tempfile
import threading

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from fake_agent import FakeAgent

DATA = "/usr/share/datasets/fashion-mnist"
BATCH_PER_RANK = 64


def job(model, ranks):
    # A single rank has the same number of steps: half the samples would be another epoch, so it is stopped by time.
    return {"name": "rates", "num_workers": ranks, "checkpoint": {"every": "never"},
            "training": {"seed": 1, "epochs": 3 if model == "mlp" else 1, "batch_size": BATCH_PER_RANK * ranks,
                         "model": {"type": model}, "dataset": {"type": "idx", "path": DATA},
                         "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9}}}


def train(worker, model, ranks, cores, results):
    """Runs one group on `cores`; adds (samples/s of all ranks, median step in ms) of its last epoch."""
    with tempfile.TemporaryDirectory() as folder:
        agent = FakeAgent(worker, job(model, ranks), ranks, folder)
        agent.cores = lambda: cores
        try:
            agent.start()
            if any(agent.run(timeout=600)):
                raise RuntimeError(f"a rank failed: {agent.of_type('failed')}")
            last = [m["metrics"] for m in agent.of_type("report") if m["key"]["phase"] == "train"][-ranks:]
            results.append((sum(m["samples_per_s"] for m in last), last[0]["step_ms"]["median"]))
        finally:
            agent.close()


def main():
    worker, models, rounds = sys.argv[1], sys.argv[2:3] or ["mlp", "cnn"], int((sys.argv[3:4] or ["3"])[0])
    cores = sorted(os.sched_getaffinity(0))[:2]
    for model in models:
        together, apart = [], []
        for _ in range(rounds):
            train(worker, model, 2, cores, together)
            pair = []
            threads = [threading.Thread(target=train, args=(worker, model, 1, [core], pair)) for core in cores]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
            apart.append((sum(rate for rate, _ in pair), statistics.mean(step for _, step in pair)))
        rate, alone = (statistics.median(one[0] for one in runs) for runs in (together, apart))
        step, step_alone = (statistics.median(one[1] for one in runs) for runs in (together, apart))
        print(f"{model}: 2 ranks {rate:,.0f} samples/s (step {step:.3f} ms), without exchange {alone:,.0f} "
              f"({step_alone:.3f} ms), ratio {rate / alone:.3f} (by median step {step_alone / step:.3f})", flush=True)


if __name__ == "__main__":
    main()
