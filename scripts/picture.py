#!/usr/bin/env python3
"""The README's picture: a training in a real terminal, one of whose workers is killed, as an SVG.

    scripts/picture.py PROGRAM > launcher/run.svg        PROGRAM is sgd-launch; more words go to it as options of the run

Python's standard library only.
"""

import html
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
COLUMNS = 100
LIMIT_S = 300
KILLED_FROM_STEP = 1500
COLORS = {"31": "#f47067", "33": "#daaa3f"}


class Screen:
    """What a terminal shows of a program's output: lines of (letter, colour); knows what sgd-launch writes, and no more."""

    def __init__(self):
        self.lines, self.row, self.column, self.color = [[]], 0, 0, ""

    def take(self, text):
        for token in re.findall(r"\x1b\[[\d;]*[A-Za-z]|.|\n", text, re.S):
            if token == "\n":
                self.row, self.column = self.row + 1, 0
                if self.row == len(self.lines):
                    self.lines.append([])
            elif token == "\r":
                self.column = 0
            elif token.startswith("\x1b["):
                self.obey(token[2:-1], token[-1])
            else:
                line = self.lines[self.row]
                line[self.column:self.column + 1] = [(token, self.color)]
                self.column += 1

    def obey(self, numbers, letter):
        if letter == "K":
            del self.lines[self.row][self.column:]
        elif letter == "A":
            self.row = max(0, self.row - int(numbers or 1))
        elif letter == "m":
            self.color = COLORS.get(numbers, "")


def record(program, options):
    """The run's output, and the one rank's end by SIGKILL, as a person would have made it."""
    master, slave = pty.openpty()
    command = [program, "-n", "2", "job.json", *options]
    with tempfile.TemporaryDirectory(prefix="sgd-picture-") as folder:
        job = {"name": "fashion", "training": {"epochs": 6, "batch_size": 64, "model": {"type": "mlp"}, "loss": "cross_entropy",
                                               "dataset": {"type": "idx", "path": "/usr/share/datasets/fashion-mnist"},
                                               "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9}}}
        with open(os.path.join(folder, "job.json"), "w", encoding="utf-8") as file:
            json.dump(job, file)
        subprocess.run(["stty", "cols", str(COLUMNS), "rows", "40"], stdin=slave, check=True)
        environment = {**os.environ, "TERM": "xterm-256color"}
        process = subprocess.Popen(command, cwd=folder, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True)
        os.close(slave)
        said, killed, begun = b"", False, time.monotonic()
        while time.monotonic() - begun < LIMIT_S:
            if select.select([master], [], [], 0.05)[0]:
                try:
                    said += os.read(master, 1 << 16)
                except OSError:  # Nobody has the other end any more.
                    break
            killed = killed or kill_a_worker(program, folder)
        code = process.wait(LIMIT_S)
    if code != 0 or not killed:
        sys.exit(f"picture: the run ended with {code}{'' if killed else ' before a worker was killed'}:\n{said.decode(errors='replace')}")
    return "$ sgd-launch -n 2 job.json\n" + said.decode("utf-8", "replace").replace("\r\n", "\n")


def kill_a_worker(program, folder):
    """Whether rank 1 has come far enough to be killed."""
    asked = subprocess.run([program, "status", "--json"], cwd=folder, capture_output=True, text=True, check=False)
    status = json.loads(asked.stdout) if asked.returncode == 0 else {}
    ranks = {rank["rank"]: rank for rank in status.get("ranks", [])}
    if 1 not in ranks or ranks[1].get("step", 0) < KILLED_FROM_STEP:
        return False
    os.kill(ranks[1]["pid"], signal.SIGKILL)
    return True


def wrapped(lines):
    """As the terminal breaks them."""
    for line in lines:
        for begin in range(0, max(len(line), 1), COLUMNS):
            yield line[begin:begin + COLUMNS]


def spans(line):
    """The line's letters in SVG, a span a colour."""
    text = ""
    for color, letters in group(line):
        shown = html.escape(letters, quote=False)
        text += f'<tspan fill="{color}">{shown}</tspan>' if color else shown
    return text


def group(line):
    found = []
    for letter, color in line:
        if found and found[-1][0] == color:
            found[-1] = (color, found[-1][1] + letter)
        else:
            found.append((color, letter))
    return found


def drawn(screen):
    lines = list(wrapped(screen.lines))
    while lines and not lines[-1]:
        lines.pop()
    height, width = 20 * len(lines) + 32, round(8.4 * COLUMNS) + 32
    rows = "\n".join(f'<text x="16" y="{30 + 20 * row}" xml:space="preserve">{spans(line)}</text>' for row, line in enumerate(lines))
    return f"""<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}">
<title>A training run with sgd-launch; one worker is killed and replaced. Made by scripts/picture.py.</title>
<rect width="{width}" height="{height}" rx="8" fill="#22272e"/>
<g font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, Consolas, monospace" font-size="14" fill="#cdd9e5">
{rows}
</g>
</svg>
"""


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    screen = Screen()
    screen.take(record(os.path.abspath(arguments[0]), arguments[1:]))
    print(drawn(screen), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
