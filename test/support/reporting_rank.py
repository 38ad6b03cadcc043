"""A rank of a command that reports: speaks the worker link (common/messages/link.hpp). Standard library only.

    python3 reporting_rank.py FIRST LAST [--pause S] [--pace FILE] [--wait FILE] [--pad BYTES] [--metrics JSON]

reports FIRST to LAST, each with its number as "loss" and what --metrics adds, and ends; with --wait once FILE is there.
With --pace it reports so many of them as FILE has bytes, and waits for more.
"""

import argparse
import json
import os
import socket
import time


def connect():
    link = socket.socket(socket.AF_UNIX)
    link.connect(os.environ["SGD_LINK"])
    return link


def has_bytes(path, count):
    return os.path.exists(path) and os.path.getsize(path) >= count


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("last", type=int)
    parser.add_argument("--pause", type=float, default=0)
    parser.add_argument("--pace", default="")
    parser.add_argument("--wait", default="")
    parser.add_argument("--pad", type=int, default=0)
    parser.add_argument("--metrics", default="{}")
    options = parser.parse_args()
    link = connect()

    def say(line):
        link.sendall(json.dumps(line).encode() + b"\n")

    say({"type": "hello", "token": os.environ["SGD_TOKEN"], "pid": os.getpid(), "protocol": 1})
    link.recv(1 << 16)  # The assignment.
    more = json.loads(options.metrics)
    for number in range(options.first, options.last + 1):
        while options.pace and not has_bytes(options.pace, number - options.first + 1):
            time.sleep(0.01)
        metrics = {"loss": number, **more}
        if options.pad:
            metrics["text"] = "x" * options.pad
        say({"type": "report", "key": {"epoch": number, "phase": "train", "batch": 0, "sequence": 0}, "step": number,
             "metrics": metrics})
        time.sleep(options.pause)
    while options.wait and not os.path.exists(options.wait):
        time.sleep(0.01)


main()
