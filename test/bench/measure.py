"""What the benchmarks share: starting both sides, the hardware line, and a table of medians, ranges and ratios."""

import argparse
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
BIN_DIR = os.environ.get("SGD_BIN_DIR") or os.path.join(ROOT, "build", "release", "bin")
LAUNCHER = os.path.join(BIN_DIR, "sgd-launch")
PEERS_PYTHON = os.environ.get("SGD_PEERS_PYTHON") or os.path.join(
    os.environ.get("SGD_CACHE") or os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "sgd-launch"),
    "peers", "bin", "python3")
TORCHRUN = [PEERS_PYTHON, "-m", "torch.distributed.run"]
FASHION = "/usr/share/datasets/fashion-mnist"
LIMIT_S = 900


def arguments(description, **more):
    parser = argparse.ArgumentParser(description=description, allow_abbrev=False)
    parser.add_argument("--n", type=int, default=5, help="repetitions of each side, alternating")
    parser.add_argument("--quick", action="store_true", help="one short repetition, to see that it works")
    for name, options in more.items():
        parser.add_argument(f"--{name}", **options)
    parsed = parser.parse_args()
    if parsed.quick:
        parsed.n = 1
    return parsed


def cpu_seconds(pid):
    """That a process has used with all its threads, those that have ended included."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def hardware():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")),
                 platform.machine())
    return f"{len(os.sched_getaffinity(0))} cores, {model}, Linux {platform.release()}"


def torch_version():
    ended = subprocess.run([PEERS_PYTHON, "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True,
                           timeout=120, check=True)
    return ended.stdout.strip()


class Folder:
    """A scratch folder for one measurement."""

    def __enter__(self):
        self.path = tempfile.mkdtemp(prefix="sgd-bench-")
        return self.path

    def __exit__(self, *_):
        shutil.rmtree(self.path, ignore_errors=True)


def run(command, env=None, stdout=subprocess.PIPE, affinity=None, limit_s=LIMIT_S):
    """(seconds, standard output) of a command that must succeed."""
    begin = time.perf_counter()
    ended = subprocess.run(command, stdout=stdout, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=limit_s,
                           env={**os.environ, **(env or {})},
                           preexec_fn=(lambda: os.sched_setaffinity(0, affinity)) if affinity else None)
    seconds = time.perf_counter() - begin
    if ended.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {ended.returncode}:\n{ended.stderr.decode(errors='replace')[-3000:]}")
    return seconds, (ended.stdout or b"").decode(errors="replace")


def json_lines(text):
    """The JSON objects among the lines of a text; other lines are narration."""
    found = []
    for line in text.splitlines():
        begin = line.find("{")
        if begin >= 0 and line.rstrip().endswith("}"):
            try:
                found.append(json.loads(line[begin:]))
            except ValueError:
                continue
    return found


def read_lines(path):
    with open(path) as file:
        return [json.loads(line) for line in file]


def figure(values, digits=0):
    """Median [min-max]."""
    return f"{statistics.median(values):,.{digits}f} [{min(values):,.{digits}f}-{max(values):,.{digits}f}]"


def ratio(ours, theirs, digits=2):
    return f"{statistics.median(ours) / statistics.median(theirs):.{digits}f}"


def table(title, head, rows, note=""):
    """A small table that is also Markdown."""
    widths = [max(len(str(row[column])) for row in [head, *rows]) for column in range(len(head))]
    print(f"\n## {title}")
    print(f"{hardware()}. Medians [min-max].{' ' + note if note else ''}\n")
    for number, row in enumerate([head, *rows]):
        print("| " + " | ".join(str(cell).ljust(width) for cell, width in zip(row, widths)) + " |")
        if number == 0:
            print("|" + "|".join("-" * (width + 2) for width in widths) + "|")
    sys.stdout.flush()
