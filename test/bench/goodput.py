"""Goodput: steps that count while a random rank is killed again and again, as a share of the undisturbed rate.

Each side trains the same MLP on 2 ranks for the same time, alternating. A step counts once, however often it was made:
the share is (step reached with kills) / (step reached without), both from the first step on.
"""

import os
import random
import signal
import statistics
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_run import LiveRun, mlp_job
from measure import Folder, arguments, table

CHANCE = random.Random(11)


def steps(seconds, interval):
    """Steps made in `seconds` with a kill every `interval` seconds (0: none), as the last heartbeats and reports say."""
    with Folder() as folder, LiveRun(folder, mlp_job(1000000, checkpoint={"every": {"seconds": 5}})) as run:
        begin = run.wait("first_step")["time"]
        kills = 0
        while time.time() < begin + seconds:
            next_kill = begin + (kills + 1) * interval if interval else begin + seconds
            time.sleep(max(0.0, min(next_kill, begin + seconds) - time.time()))
            if not interval or time.time() >= begin + seconds:
                continue
            run.read()
            if run.ranks:
                os.kill(run.ranks[CHANCE.choice(sorted(run.ranks))], signal.SIGKILL)
                kills += 1
        # Asked to stop, all ranks end at one step and save it: that is the count.
        stopped = time.time()
        run.process.send_signal(signal.SIGTERM)
        run.process.wait(60)
        run.read()
        last = max(event["step"] for event in run.events if event["event"] == "checkpoint_saved")
        return last / (stopped - begin)


def main():
    options = arguments(__doc__.splitlines()[0], intervals={"default": "60,15,2", "help": "seconds between kills"},
                        kills={"default": 8, "type": int, "help": "kills a run"})
    rows = []
    for interval in (float(text) for text in options.intervals.split(",")):
        seconds = 6 if options.quick else (options.kills + 0.5) * interval
        shares = []
        for number in range(options.n if interval < 10 else max(1, options.n // 3)):
            order = [0, interval] if number % 2 == 0 else [interval, 0]
            rates = {one: steps(seconds, one) for one in order}
            shares.append(100 * rates[interval] / rates[0])
            print(f"a kill each {interval:g} s: {shares[-1]:.2f} %", file=sys.stderr)
        rows.append([f"{interval:g} s", f"{statistics.median(shares):.2f} %", f"{min(shares):.2f} %", f"{max(shares):.2f} %", len(shares)])
    table("Useful steps against the undisturbed run, 2 ranks, Fashion-MNIST MLP", ["SIGKILL each", "share", "min", "max", "n"], rows,
          "Each run and its undisturbed one follow each other.")


if __name__ == "__main__":
    main()
