"""Kill to first step: a random rank of a training MLP is killed, and the time until all ranks have made a step again.

Both sides: 2 ranks, the same model, data and batch. sgd-launch as it is by default (fork server, copies in memory),
once more without the fork server, once with all state on disk only, once with a model of 33 million parameters, which with
their momenta are 256 MiB of state; torchrun with --max-restarts at its best setting
(TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, --monitor-interval 0.1), its script saving a checkpoint to a file every 50 steps
and resuming from it. Sides alternate. Times are those of kill() and of the last rank's first step, on one clock.
"""

import os
import random
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_run import LiveRun, mlp_job
from measure import FASHION, HERE, TORCHRUN, Folder, arguments, json_lines, table, torch_version

KILLS_A_RUN = 10
LARGE = "sgd-launch, 256 MiB of state"
CHANCE = random.Random(7)


def large_job():
    """784*5400 + 5400*5400 + 5400*10 weights; one sample a rank, so that the step is no more than a pass over them."""
    job = mlp_job(100000, checkpoint={"every": "never"})
    job["training"].update({"model": {"type": "mlp", "hidden": [5400, 5400]}, "batch_size": 2})
    return job


def ours(kills, seconds, job):
    """Times from kill to first step of all ranks."""
    times = []
    with Folder() as folder, LiveRun(folder, job) as run:
        run.wait("first_step")
        for _ in range(kills):
            time.sleep(CHANCE.uniform(*seconds))
            times.append(run.strike(signal.SIGKILL, CHANCE))
    return times


def first_steps(path, after):
    """Per rank the time of its first step after `after`."""
    found = {}
    with open(path) as file:
        for line in json_lines(file.read()):
            if "first_step" in line and line["first_step"] > after:
                found.setdefault(line["rank"], line)
    return found


def wait_first_steps(process, path, after, ranks, limit_s=60):
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        found = first_steps(path, after)
        if len(found) == ranks:
            return found
        if process.poll() is not None:
            raise RuntimeError(f"torchrun ended with {process.returncode}")
        time.sleep(0.02)
    raise TimeoutError(f"torchrun did not come back within {limit_s} s")


def theirs(kills, seconds, ranks=2, more=()):
    """As `ours`, of torchrun; `more`: further arguments of ddp_resume.py."""
    times = []
    with Folder() as folder:
        path = os.path.join(folder, "output")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        with open(path, "w") as output:
            process = subprocess.Popen([*TORCHRUN, "--standalone", "--nproc-per-node", str(ranks), "--max-restarts", "1000",
                                        "--monitor-interval", "0.1", os.path.join(HERE, "ddp_resume.py"), FASHION,
                                        os.path.join(folder, "checkpoint.pt"), *more],
                                       stdout=output, stderr=subprocess.DEVNULL, env=environment, start_new_session=True)
            try:
                begin = 0.0
                for _ in range(kills):
                    found = wait_first_steps(process, path, begin, ranks)
                    time.sleep(CHANCE.uniform(*seconds))
                    begin = time.time()
                    os.kill(found[CHANCE.choice(sorted(found))]["pid"], signal.SIGKILL)
                    found = wait_first_steps(process, path, begin, ranks)
                    times.append(max(line["first_step"] for line in found.values()) - begin)
            finally:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait(10)
                for line in first_steps(path, 0).values():
                    subprocess.run(["pkill", "-9", "-f", os.path.join(folder, "checkpoint.pt")], check=False)
    return times


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def row(name, times, peer):
    milliseconds = [1e3 * seconds for seconds in times]
    cells = [f"{statistics.median(milliseconds):,.0f}", f"{percentile(milliseconds, 0.99):,.0f}",
             f"{min(milliseconds):,.0f}", f"{max(milliseconds):,.0f}", str(len(times))]
    return [name, *cells, f"{statistics.median(peer) / statistics.median(times):.0f} x" if peer else ""]


def main():
    options = arguments(__doc__.splitlines()[0], peer={"default": "yes", "help": "no: without torchrun"})
    kills = 3 if options.quick else max(options.n, 5)
    sides = {"sgd-launch": {}, "sgd-launch, checkpoints on disk only": {"checkpoint": {"every": {"steps": 50}, "memory": False}},
             "sgd-launch without fork server": {"fork_server": False}}
    times = {name: [] for name in [*sides, LARGE, "torchrun"]}
    while len(times["sgd-launch"]) < kills:
        batch = min(KILLS_A_RUN, kills - len(times["sgd-launch"]))
        for name, settings in sides.items():
            times[name] += ours(batch, (0.3, 1.0), mlp_job(100000, **settings))
        if len(times[LARGE]) < max(kills // 5, 5):
            times[LARGE] += ours(min(batch, 5), (4.0, 6.0), large_job())
        if options.peer == "yes" and len(times["torchrun"]) < max(kills // 2, 3):
            times["torchrun"] += theirs(min(batch, 5), (1.0, 2.0))
        print(", ".join(f"{name} {statistics.median(values) * 1e3:.0f} ms ({len(values)})" for name, values in times.items() if values),
              file=sys.stderr)
    rows = [row(name, values, times["torchrun"]) for name, values in times.items() if values]
    table("Kill of a random rank to the first step of all ranks, 2 ranks, Fashion-MNIST MLP, ms",
          ["side", "p50", "p99", "min", "max", "n", "torchrun's p50 over this"], rows,
          f"torch {torch_version()}; sides alternate." if times["torchrun"] else "Without torchrun.")


if __name__ == "__main__":
    main()
