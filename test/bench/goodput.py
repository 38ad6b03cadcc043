"""Goodput: steps that count while a random rank is killed again and again, as a share of the undisturbed rate.

Each side trains the same MLP on 2 ranks for the same time, alternating. A step counts once, however often it was made:
the share is (step reached with kills) / (step reached without), both from the first step on. A machine whose speed drifts
by a percent between two runs moves that by a percent; so the table also has what the recoveries of the run themselves say:
one less (the time from kill to step, and that of steps made twice) / (all time).
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
    """(steps a second, share of the time that was not lost) in `seconds` with a kill every `interval` seconds (0: none)."""
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
        took = stopped - begin
        lost = sum(event["total_s"] + event.get("redone", 0) * took / last for event in run.events if event["event"] == "recovered")
        return last / took, 1 - lost / took


def main():
    options = arguments(__doc__.splitlines()[0], intervals={"default": "60,15,2", "help": "seconds between kills"},
                        kills={"default": 8, "type": int, "help": "kills a run"})
    rows = []
    for interval in (float(text) for text in options.intervals.split(",")):
        seconds = 6 if options.quick else (options.kills + 0.5) * interval
        shares, kept = [], []
        for number in range(options.n if interval < 10 else max(1, options.n // 3)):
            order = [0, interval] if number % 2 == 0 else [interval, 0]
            rates = {one: steps(seconds, one) for one in order}
            shares.append(100 * rates[interval][0] / rates[0][0])
            kept.append(100 * rates[interval][1])
            print(f"a kill each {interval:g} s: {shares[-1]:.2f} %, by its recoveries {kept[-1]:.2f} %", file=sys.stderr)
        rows.append([f"{interval:g} s", f"{statistics.median(shares):.2f} %", f"{min(shares):.2f} %", f"{max(shares):.2f} %",
                     f"{statistics.median(kept):.2f} %", f"{min(kept):.2f} %", len(shares)])
    table("Useful steps against the undisturbed run, 2 ranks, Fashion-MNIST MLP", ["SIGKILL each", "share", "min", "max", "by its recoveries", "min", "n"], rows,
          "Each run and its undisturbed one follow each other.")


if __name__ == "__main__":
    main()
