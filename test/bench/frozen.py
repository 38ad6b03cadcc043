"""Frozen ranks: how long until one that SIGSTOP holds is found, replaced, and all ranks have made a step; and false alarms.

With the default heartbeat, and with a time-out of one second: a random rank of a training MLP (2 ranks) is stopped. Then
the same job, with the time-out of one second, trains for minutes beside a busy loop on every core: no rank may be taken for
frozen, and no step be made twice.
"""

import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_run import LiveRun, mlp_job
from measure import Folder, arguments, figure, table

CHANCE = random.Random(13)
SHORT = {"timeout": "1s"}


def stops(count, **parts):
    """Seconds from SIGSTOP to the first step of all ranks, `count` times in one run."""
    times = []
    with Folder() as folder, LiveRun(folder, mlp_job(1000000, **parts)) as run:
        run.wait("first_step")
        for _ in range(count):
            time.sleep(CHANCE.uniform(0.5, 1.5))
            times.append(run.strike(signal.SIGSTOP, CHANCE))
    return times


def alarms(minutes):
    """(failures, steps) of a run beside a busy loop per core."""
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in os.sched_getaffinity(0)]
    try:
        with Folder() as folder, LiveRun(folder, mlp_job(1000000, heartbeat=SHORT)) as run:
            run.wait("first_step")
            time.sleep(minutes * 60)
            run.process.send_signal(signal.SIGTERM)
            run.process.wait(60)
            run.read()
            steps = max(event["step"] for event in run.events if event["event"] == "checkpoint_saved")
            return sum(event["event"] == "failure" for event in run.events), steps
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()


def main():
    options = arguments(__doc__.splitlines()[0], minutes={"default": 10.0, "type": float, "help": "beside the busy loops"})
    rows = [["the default heartbeat", figure(stops(options.n), 2), options.n],
            ["a time-out of 1 s", figure(stops(options.n, heartbeat=SHORT), 2), options.n]]
    table("SIGSTOP of a random rank to the first step of all ranks, 2 ranks, Fashion-MNIST MLP, s", ["with", "time", "n"], rows)
    minutes = 0.1 if options.quick else options.minutes
    failures, steps = alarms(minutes)
    print(f"\n{minutes:g} minutes beside a busy loop on each core, time-out 1 s: {failures} false alarms, {steps:,} steps")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
