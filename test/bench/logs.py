"""Output of ranks: 2 x 200,000 lines of 80 bytes through sgd-launch (also with --tee 3), with no launcher at all, and
through torchrun --tee 3. Time from start to exit, and whether a line was lost.
"""

import glob
import os
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from measure import LAUNCHER, TORCHRUN, Folder, arguments, figure, ratio, run, table, torch_version

LINES = 200_000
RANKS = 2
PROGRAM = f"""
import os, sys
rank = os.environ.get("RANK", "0")
for begin in range(0, {LINES}, 1000):
    sys.stdout.write("".join((rank + f" {{n:07}} ").ljust(79, "x") + "\\n" for n in range(begin, begin + 1000)))
"""


def count_lines(path):
    with open(path, "rb") as file:
        return sum(1 for line in file if len(line.rstrip(b"\n")) >= 79)


def plain(folder, command):
    begin = time.perf_counter()
    files = [open(os.path.join(folder, f"rank-{rank}"), "wb") for rank in range(RANKS)]
    ranks = [subprocess.Popen(command, stdout=file, env={**os.environ, "RANK": str(rank)}) for rank, file in enumerate(files)]
    for rank in ranks:
        rank.wait(120)
    return time.perf_counter() - begin, [count_lines(file.name) for file in files]


def ours(folder, command):
    with open(os.path.join(folder, "console"), "wb") as console:
        seconds, _ = run([LAUNCHER, "--run-dir", os.path.join(folder, "run"), "-n", str(RANKS), "--", *command], stdout=console)
    return seconds, [count_lines(path) for path in glob.glob(os.path.join(folder, "run", "logs", "gen-0001", "rank-*.log"))]


def teed(folder, command):
    """torchrun's option, by us: files of each stream and the console."""
    logs = os.path.join(folder, "logs")
    with open(os.path.join(folder, "console"), "wb") as console:
        seconds, _ = run([LAUNCHER, "--run-dir", os.path.join(folder, "run"), "-n", str(RANKS), "--tee", "3", "--log-dir", logs, "--", *command],
                         stdout=console)
    return seconds, [count_lines(path) for path in glob.glob(os.path.join(logs, "**", "stdout.log"), recursive=True)]


def theirs(folder, command):
    with open(os.path.join(folder, "console"), "wb") as console:
        seconds, _ = run([*TORCHRUN, "--standalone", "--nproc-per-node", str(RANKS), "--tee", "3", "--log-dir",
                          os.path.join(folder, "logs"), "--no-python", *command], stdout=console, env={"OMP_NUM_THREADS": "1"})
    return seconds, [count_lines(path) for path in glob.glob(os.path.join(folder, "logs", "**", "stdout.log"), recursive=True)]


def main():
    options = arguments(__doc__.splitlines()[0])
    results = {side: ([], set()) for side in (plain, ours, teed, theirs)}
    for _ in range(options.n):
        for side, (seconds, lines) in results.items():
            with Folder() as folder:
                program = os.path.join(folder, "program.py")
                with open(program, "w") as file:
                    file.write(PROGRAM)
                taken, counts = side(folder, ["/usr/bin/python3", program])
            seconds.append(taken)
            lines.add(sum(counts))
    base = results[plain][0]
    rows = [[name, figure(results[side][0], 2), ratio(results[side][0], base), str(RANKS * LINES - min(results[side][1]))]
            for name, side in (("no launcher", plain), ("sgd-launch, log files and console", ours), ("sgd-launch --tee 3", teed),
                               ("torchrun --tee 3", theirs))]
    table(f"Logs, {RANKS} x {LINES:,} lines of 80 bytes, s", ["what", "seconds", "times plain", "lines lost"], rows,
          f"n = {options.n}, alternating; torch {torch_version()}.")


if __name__ == "__main__":
    main()
