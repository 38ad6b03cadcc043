"""What starting costs: command to the first optimizer step of both ranks, start and exit of `true`, and the
launcher's memory and CPU while workers run, for sgd-launch and for torchrun.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import FASHION, HERE, LAUNCHER, TORCHRUN, Folder, arguments, figure, json_lines, ratio, read_lines, run, table, torch_version

WATCH_S = 5.0


def our_first_step():
    """Seconds from the command to the event that all ranks have finished their first step."""
    with Folder() as folder:
        job = {"name": "start", "num_workers": 2, "checkpoint": {"every": "never"},
               "training": {"seed": 1, "epochs": 1, "batch_size": 128, "model": {"type": "mlp"}, "loss": "cross_entropy",
                            "dataset": {"type": "idx", "path": FASHION}, "optimizer": {"type": "sgd", "lr": 0.01}}}
        path = os.path.join(folder, "job.json")
        with open(path, "w") as file:
            json.dump(job, file)
        begin = time.time()
        run([LAUNCHER, "--run-dir", os.path.join(folder, "run"), path])
        events = read_lines(os.path.join(folder, "run", "events.jsonl"))
    return next(event["time"] for event in events if event["event"] == "first_step") - begin


def their_first_step():
    begin = time.time()
    _, output = run([*TORCHRUN, "--standalone", "--nproc-per-node", "2", os.path.join(HERE, "ddp_train.py"), "mlp", "1", "64",
                     "0.01", FASHION, "3"], env={"OMP_NUM_THREADS": "1"})
    return max(line["first_step"] for line in json_lines(output) if "first_step" in line) - begin


def our_true():
    with Folder() as folder:
        return run([LAUNCHER, "--run-dir", os.path.join(folder, "run"), "-n", "2", "--", "true"])[0]


def their_true():
    return run([*TORCHRUN, "--standalone", "--nproc-per-node", "2", "--no-python", "/bin/true"],
               env={"OMP_NUM_THREADS": "1"})[0]


def watch(command, ready):
    """(resident MiB, percent of a core) of a launcher while its workers only wait."""
    with Folder() as folder:
        process = subprocess.Popen([part.format(folder=folder) for part in command], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL, cwd=folder)
        try:
            deadline = time.monotonic() + 60
            while not ready(process, folder):
                if process.poll() is not None or time.monotonic() > deadline:
                    sys.exit(f"{command[0]} did not start its workers")
                time.sleep(0.05)
            time.sleep(1)  # A measurement's own interval: the launcher settles, then is watched for a fixed time.
            before, begin = cpu_seconds(process.pid), time.monotonic()
            time.sleep(WATCH_S)
            share = (cpu_seconds(process.pid) - before) / (time.monotonic() - begin)
            with open(f"/proc/{process.pid}/status") as status:
                resident = next(int(line.split()[1]) for line in status if line.startswith("VmRSS"))
            return resident / 1024, 100 * share
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(60)


def cpu_seconds(pid):
    """Of all its threads, by the scheduler's own count: ticks are too coarse for a launcher that sleeps."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def children(process, _):
    with open(f"/proc/{process.pid}/task/{process.pid}/children") as file:
        return len(file.read().split()) >= 2


def both_started(_, folder):
    path = os.path.join(folder, "run", "events.jsonl")
    return os.path.exists(path) and open(path).read().count("worker_started") == 2


def measure(options, figures):
    """Of both sides in turn; of ours alone with --peer no."""
    ours_alone = options.peer == "no"
    sides = ((0, our_first_step, our_true, (LAUNCHER, "--run-dir", "{folder}/run", "-n", "2", "--", "sleep", "30"), both_started),
             (1, their_first_step, their_true, (*TORCHRUN, "--standalone", "--nproc-per-node", "2", "--no-python", "/bin/sleep", "30"), children))
    sides = sides[:1] if ours_alone else sides
    for _, first_step, *_ in sides:
        first_step()  # Caches warm; not measured.
    for number in range(options.n):
        for side, first_step, true, command, ready in sides:
            figures["first step"][side].append(first_step())
            figures["true"][side].append(true())
            if number < 3:
                resident, cpu = watch(command, ready)
                figures["resident"][side].append(resident)
                figures["cpu"][side].append(cpu)
        print(f"{number + 1}/{options.n} done", file=sys.stderr)


def main():
    options = arguments(__doc__.splitlines()[0], peer={"default": "yes", "help": "no: without torchrun"})
    run([LAUNCHER, "--version"])
    figures = {name: ([], []) for name in ("first step", "true", "resident", "cpu")}
    measure(options, figures)
    more_true = [our_true() for _ in range(20)] if not options.quick else []
    rows = [[label, figure(ours, digits), figure(theirs, digits) if theirs else "",
             ratio(theirs, ours, 1) if theirs and statistics.median(ours) else ""]
            for label, digits, (ours, theirs) in (
                ("command to first step of both ranks (MLP), s", 3, figures["first step"]),
                ("`true` x 2, start to exit, s", 4, (figures["true"][0] + more_true, figures["true"][1])),
                ("launcher resident while workers run, MiB", 1, figures["resident"]),
                ("launcher's share of a core, %", 3, figures["cpu"]))]
    against = "Without torchrun" if options.peer == "no" else f"alternating; torch {torch_version()}"
    table("Start", ["what", "sgd-launch", "torchrun", "times"], rows, f"n = {options.n}. {against}.")


if __name__ == "__main__":
    main()
