"""What only a GPU can tell. Not run by any test; figures are of the machine that runs it.

  groups   world 1 through NCCL's init, a sum and an abort, 100 times: times, and growth of memory
  rates    samples/s of the CNN (Fashion-MNIST) and ResNet18, fp32 without TF32 and bf16, one worker a GPU, against DistributedDataParallel
  recovery a rank is killed, 2 n times: to the first step of all ranks, and its phases; against torchrun, whose script saves a file every 50 steps
  kills    a rank is killed, 4 n times: the same weights as undisturbed, with deterministic algorithms
  save     how long checkpoints of a model of 1 GiB (weights and momenta) hold training: on disk, and copies in memory

Ends with 1 where memory has grown over the groups, bits are others after kills, or a run ended before it was killed so often.
"""

import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import gpus
import recovery as host_recovery
from live_run import LiveRun
from measure import BIN_DIR, FASHION, LAUNCHER, LIMIT_S, PEERS_PYTHON, TORCHRUN, arguments, figure, hardware, ratio

PARTS = ("groups", "rates", "recovery", "kills", "save")
SYNTHETIC_SAMPLES = 16384  # 128 steps an epoch: with few, a rate is that of an epoch's first and last step.
EPOCHS_A_KILL = 3  # More than pass between two kills, so that the run outlasts them.
PHASES = ("notice_s", "clear_s", "wait_s", "start_s", "restore_s", "first_step_s")


def job(workers, model, dataset, batch, epochs, precision="fp32", **more):
    return {"name": "gpu", "num_workers": workers, "recovery": {"max_failures": "unlimited"}, "checkpoint": more.pop("checkpoint", {"every": "never"}),
            "training": {"seed": 1, "epochs": epochs, "batch_size_per_worker": batch, "model": model, "dataset": dataset, "loss": "cross_entropy",
                         "device": "cuda", "precision": precision, "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9}, **more}}


def lines(folder, name):
    try:
        with open(os.path.join(folder, "run", name), encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.endswith("\n")]
    except FileNotFoundError:
        return []


class Run:
    def __init__(self, described, folder):
        self.folder = folder
        path = os.path.join(folder, "job.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(described, file)
        self.process = subprocess.Popen([LAUNCHER, "--run-dir", os.path.join(folder, "run"), path], cwd=folder, stdout=subprocess.DEVNULL)

    def events(self, name):
        return [event for event in lines(self.folder, "events.jsonl") if event["event"] == name]

    def wait(self):
        if self.process.wait(LIMIT_S) != 0:
            raise SystemExit(f"sgd-launch ended with {self.process.returncode}")


def ours(described):
    with tempfile.TemporaryDirectory() as folder:
        Run(described, folder).wait()
        return [line for line in lines(folder, "metrics.jsonl") if line["phase"] == "train"][-1]["samples_per_s"]


def theirs(model, epochs, batch, folder, precision, workers):
    command = [*TORCHRUN, "--standalone", f"--nproc-per-node={workers}", os.path.join(os.path.dirname(os.path.abspath(__file__)), "gpu_torch.py"),
               model, str(epochs), str(batch), folder, precision, str(SYNTHETIC_SAMPLES)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=True)
    return json.loads(ended.stdout.splitlines()[-1])["samples_per_s"]


def rates(options, workers):
    synthetic = {"type": "synthetic", "shape": [3, 32, 32], "targets": "classes", "classes": 10, "samples": SYNTHETIC_SAMPLES}
    for name, dataset, folder, batch in (("cnn", {"type": "idx", "path": FASHION}, FASHION, 256), ("resnet18", synthetic, "", 128)):
        for precision in ("fp32", "bf16"):
            pairs = [(ours(job(workers, {"type": name}, dataset, batch, 4, precision)), theirs(name, 4, batch, folder, precision, workers))
                     for _ in range(options.n)]
            mine, other = (statistics.median(side) for side in zip(*pairs))
            print(f"{name} {precision}: {mine:,.0f} samples/s, DistributedDataParallel {other:,.0f}, ratio {mine / other:.2f} (medians of {options.n})",
                  flush=True)


def newest(folder):
    """Bytes of the last checkpoint's weights and optimizer."""
    last = sorted(os.listdir(os.path.join(folder, "run", "checkpoints")))[-1]
    content = b""
    for name in ("model.safetensors", "optimizer.safetensors"):
        with open(os.path.join(folder, "run", "checkpoints", last, name), "rb") as file:
            content += file.read()
    return content


def recovery(options, workers):
    described = job(workers, {"type": "cnn"}, {"type": "idx", "path": FASHION}, 64, 100000, checkpoint={"every": "never"})
    described["recovery"]["backoff"] = {"attempts": 1000}
    chance = random.Random(7)
    mine, events = [], []
    with tempfile.TemporaryDirectory() as folder, LiveRun(folder, described) as run:
        run.wait("first_step")
        for _ in range(2 * options.n):
            time.sleep(chance.uniform(0.5, 1.0))
            mine.append(run.strike(signal.SIGKILL, chance))
            events.append(run.wait("recovered", after=time.time() - mine[-1]))
    other = host_recovery.theirs(options.n, (1.0, 2.0), workers, ("cnn", "cuda"))
    phases = ", ".join(f"{name[:-2]} {statistics.median(event[name] for event in events) * 1000:.0f}" for name in PHASES)
    print(f"kill to first step: {figure([1000 * value for value in mine])} ms of {len(mine)} ({phases}); "
          f"torchrun {figure([1000 * value for value in other])} ms of {len(other)}, {ratio(other, mine, 1)} times as long", flush=True)


def kills(options, workers):
    wanted = 4 * options.n
    described = job(workers, {"type": "cnn"}, {"type": "idx", "path": FASHION}, 64, 4 + EPOCHS_A_KILL * wanted, deterministic=True,
                    checkpoint={"every": "epoch", "keep": 1})
    with tempfile.TemporaryDirectory() as calm, tempfile.TemporaryDirectory() as folder:
        Run(described, calm).wait()
        run = Run(described, folder)
        killed = 0
        while killed < wanted and run.process.poll() is None:
            begun = len(run.events("first_step"))
            if begun <= killed:
                time.sleep(0.05)
                continue
            generation = run.events("first_step")[-1]["generation"]
            pid = next(event["pid"] for event in run.events("worker_started") if event["generation"] == generation)
            time.sleep(0.5)
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue  # The run has ended, or is about to start again by itself.
            killed += 1
        run.wait()
        is_same = newest(calm) == newest(folder)
        print(f"{killed} kills: {'the same bits as undisturbed' if is_same else 'OTHER BITS THAN UNDISTURBED'}", flush=True)
    if not is_same or killed < wanted:
        sys.exit(f"gpu: kills: {killed} of {wanted}, {'the same' if is_same else 'other'} bits")


def save(options, workers):
    hidden = 11_200  # 134 million weights, with a momentum each: 1 GiB.
    layers, data = {"type": "mlp", "hidden": [hidden, hidden]}, {"type": "idx", "path": FASHION}
    described = job(workers, layers, data, 64, 1, checkpoint={"every": {"steps": 200}, "keep": 1})
    with tempfile.TemporaryDirectory() as folder:
        run = Run(described, folder)
        run.wait()
        stalls = [event["stall_s"] * 1000 for event in run.events("checkpoint_saved")]
        print(f"save of 1 GiB: training was held for {statistics.median(stalls):.1f} ms (median of {len(stalls)}, at most {max(stalls):.1f})", flush=True)
    sides = [[ours(job(workers, layers, data, 64, 2, checkpoint={"every": "never", "memory": is_kept})) for _ in range(min(options.n, 3))]
             for is_kept in (True, False)]
    print(f"copies of it in memory: {ratio(*sides)} of the samples/s without", flush=True)


def groups(options, workers):
    del workers
    if subprocess.run([os.path.join(BIN_DIR, "gpu_groups"), "20" if options.quick else "100"], check=False).returncode != 0:
        sys.exit("gpu: groups have failed")


def main():
    options = arguments(__doc__, only={"default": ",".join(PARTS), "help": "parts, with commas"})
    found = gpus.listed()
    if not found:
        sys.exit("gpu: there is no GPU here that nvidia-smi lists: nothing is measured")
    print(f"{hardware()}; {len(found)} GPUs: {found[0]}; PyTorch's side by {PEERS_PYTHON}", flush=True)
    for part in options.only.split(","):
        if part not in PARTS:
            sys.exit(f"gpu: no part is named {part}: {', '.join(PARTS)}")
        {"groups": groups, "rates": rates, "recovery": recovery, "kills": kills, "save": save}[part](options, len(found))


if __name__ == "__main__":
    main()
