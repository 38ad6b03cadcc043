"""How much an experiment costs that has many short trials: no-op trials a second with their records; memory and CPU time of the launcher
(coordinator and agent) as their number grows; and what trials of one second take beyond their second."""

import json
import os
import re
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LAUNCHER
from measure import arguments, cpu_seconds, figure, table

SECOND = "sleep 1; echo '{\"loss\": {x}}'"
NOTHING = "echo '{\"loss\": {x}}'"


def resident_mib(pid):
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        return int(re.search(r"VmHWM:\s+(\d+) kB", file.read())[1]) / 1024


def tune(folder, name, script, samples, concurrent):
    """(wall seconds, peak MiB of the launcher, its CPU seconds)."""
    path = os.path.join(folder, name + ".json")
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"name": name, "num_workers": 1, "command": ["/bin/sh", "-c", script], "report": {"last_line": True},
                   "tune": {"parameters": {"x": {"uniform": [0, 1]}}, "samples": samples, "concurrent": concurrent, "metric": "loss",
                            "mode": "min"}}, file)
    begin, memory, cpu = time.monotonic(), 0.0, 0.0
    with subprocess.Popen([LAUNCHER, "tune", "--run-dir", os.path.join(folder, name), path], cwd=folder, stdin=subprocess.DEVNULL,
                          stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        os.set_blocking(process.stderr.fileno(), False)
        said = b""
        while process.poll() is None:
            said += process.stderr.read() or b""
            try:
                memory, cpu = resident_mib(process.pid), cpu_seconds(process.pid)
            except (OSError, TypeError, ValueError):
                pass  # It has ended meanwhile.
            time.sleep(0.02)
    if process.returncode != 0:
        raise RuntimeError(said.decode(errors="replace"))
    return time.monotonic() - begin, memory, cpu


def main():
    options = arguments(__doc__.splitlines()[0], most={"type": int, "default": 4000}, concurrent={"type": int, "default": 8})
    with tempfile.TemporaryDirectory(prefix="sgd-tune-rate-") as folder:
        samples = 50 if options.quick else 200
        rates = [samples / tune(folder, f"noop-{number}", NOTHING, samples, options.concurrent)[0] for number in range(options.n)]
        table("No-op trials", ["trials", "at once", "trials/s"], [[samples, options.concurrent, figure(rates)]])
        trials = 4 if options.quick else 20
        beyond = [tune(folder, f"second-{number}", SECOND, trials, 2)[0] / (trials / 2) - 1 for number in range(options.n)]
        table("Trials of one second, two at once", ["trials", "% beyond their second"], [[trials, figure([100 * one for one in beyond], 1)]])
        rows = []
        number = samples
        while number <= (samples if options.quick else options.most):
            took, memory, cpu = tune(folder, f"many-{number}", NOTHING, number, options.concurrent)
            rows.append([number, f"{number / took:.0f}", f"{memory:.0f}", f"{1000 * cpu / number:.2f}"])
            number *= 2 if number >= 500 else 5
        table("More of them", ["trials", "trials/s", "peak MiB", "ms CPU of the launcher a trial"], rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
