"""What a hostile rank can do to its agent: speaks the worker link (common/messages/link.hpp) wrongly, in every way.

Runs as a rank of a command: `python3 rank_attacker.py NUMBER` carries out that attack and prints how it ended; with `--seconds S`
it carries out all of them, one after the other, again and again. Standard library only.
"""

import json
import os
import socket
import sys
import time

LINE_MAX = 64 << 10
WAIT_S = 15.0  # Longer than a link may take for its hello.


class Link:
    """One connection to the agent's socket; hello said already unless `greet` is false."""

    def __init__(self, greet=True, **hello):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(WAIT_S)
        self.socket.connect(os.environ["SGD_LINK"])
        self.rest = b""
        if greet:
            self.say({"type": "hello", "token": os.environ["SGD_TOKEN"], "pid": os.getpid(), "protocol": 1} | hello)

    def say(self, *lines):
        for line in lines:
            self.socket.sendall(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n")
        return self

    def hear(self):
        """The next line, parsed; None at the end of the link."""
        while b"\n" not in self.rest:
            part = self.socket.recv(65536)
            if not part:
                return None
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        return json.loads(line)

    def assigned(self):
        while True:
            line = self.hear()
            if line is None:
                raise ConnectionError("no assignment")
            if line["type"] == "assignment":
                self.about = line
                return self

    def end(self):
        """ "closed" or "reset" when the agent ends the link, "open" when it goes on."""
        try:
            while self.hear() is not None:
                pass
            return "closed"
        except TimeoutError:
            return "open"
        except OSError:
            return "reset"

    def lives(self):
        """The agent still answers on this link: an exchange of a group of this one rank's comes back or nothing closes it."""
        self.socket.settimeout(0.5)
        return self.end()


def report(sequence, metrics, epoch=1):
    return {"type": "report", "key": {"epoch": epoch, "phase": "train", "batch": 0, "sequence": sequence}, "metrics": metrics}


def greeted(*lines):
    """Says hello, then `lines`: does the link live?"""
    def attack():
        link = Link().assigned()
        try:
            link.say(*lines)
        except OSError:
            return "closed"
        return link.lives()
    return attack


def stranger(*lines):
    """Says `lines` in place of a hello: how does it end?"""
    def attack():
        link = Link(greet=False)
        try:
            link.say(*lines)
        except OSError:
            return "closed"
        return link.end()
    return attack


def hello(**fields):
    return {"type": "hello", "token": os.environ.get("SGD_TOKEN", ""), "pid": os.getpid(), "protocol": 1} | fields


def flood(line, count):
    """The same line again and again for at most two seconds."""
    def attack():
        link, until, text = Link().assigned(), time.monotonic() + 2, json.dumps(line).encode() + b"\n"
        link.socket.setblocking(False)
        sent, batch = 0, text * max(1, 65536 // len(text))
        while sent < count * len(text) and time.monotonic() < until:
            try:
                sent += link.socket.send(batch)
            except BlockingIOError:
                time.sleep(0.01)
            except OSError:
                return "closed"
        link.socket.setblocking(True)
        return link.lives()
    return attack


def twice():
    first = Link().assigned()
    second = Link()
    how = second.end()
    return how if first.lives() == "open" else "the first link is gone"


def many_links():
    links = []
    try:
        for _ in range(500):
            links.append(Link(greet=False))
    except OSError:
        return "closed"
    return "closed" if any(link.end() != "open" for link in links[-3:]) else "open"


def drip():
    link = Link(greet=False)
    try:
        for byte in json.dumps(hello()).encode():
            link.socket.send(bytes([byte]))
            time.sleep(0.2)
    except OSError:
        return "closed"
    return link.end()


def never_reads():
    """Asks for more than the socket holds, and never takes an answer."""
    link = Link().assigned()
    link.socket.settimeout(2)
    try:
        for number in range(20_000):
            link.say({"type": "fetch", "path": f"checkpoints/step-{number:012}-gen-0001"})
    except OSError:
        return "closed"
    return "open"


def fetches_what_is_not_there():
    """By the names that checkpoints of its own run have: each would be asked for over the line that all runs of the node share."""
    link = Link().assigned()
    paths = [f"{link.about['run_dir']}/checkpoints/step-{number:012}-gen-0001" for number in range(3000)]
    try:
        link.say(*({"type": "fetch", "path": path} for path in paths))
        told = [link.hear() for _ in paths]
    except OSError:
        return "closed"
    return "open" if all(line and line["type"] == "fetched" and line["error"] for line in told) else "closed: " + json.dumps(told[0])


def half_a_line_for_ever():
    link = Link().assigned().say(b'{"type":"heartbeat","step":')
    return link.lives()


def descriptors():
    """Sends 200 descriptors that nobody asked for."""
    link = Link().assigned()
    for _ in range(200):
        try:
            socket.send_fds(link.socket, [b"\n"], [0])
        except OSError:
            return "closed"
    return link.lives()


OTHER = "A" * 43
NOT_THERE = "checkpoints/step-000000099999-gen-0001"  # Only its own run can be misled by it.
ATTACKS = {
    # Before or in place of a hello: the link ends.
    "a token that is guessed": stranger(hello(token=OTHER)),
    "no token": stranger(hello(token="")),
    "a token that is a number": stranger(hello(token=7)),
    "a token that is null": stranger(hello(token=None)),
    "a token of 60,000 letters": stranger(hello(token="x" * 60_000)),
    "a hello without a token": stranger({"type": "hello"}),
    "a newer link protocol": stranger(hello(protocol=99)),
    "a protocol beyond all numbers": stranger(hello(protocol=2**80)),
    "a heartbeat for a hello": stranger({"type": "heartbeat", "step": 1}),
    "a report for a hello": stranger(report(1, {})),
    "a line that is no JSON": stranger(b"hello\n"),
    "a line that is an array": stranger(b"[1]\n"),
    "zeros": stranger(bytes(4096) + b"\n"),
    "noise": stranger(b"\xff\xfe" * 500 + b"\n"),
    "an empty line": stranger(b"\n"),
    "a line over 64 KiB": stranger(b"x" * (LINE_MAX + 2)),
    "nested a thousand deep": stranger(b'{"type":"hello","token":' + b"[" * 1000 + b"]" * 1000 + b"}\n"),
    "silence": stranger(),
    "a hello byte by byte": drip,
    "a second link with the same token": twice,
    "500 links without a hello": many_links,
    "hello with lines from before its birth": stranger(hello(returns=True, received=2**40)),
    "hello with less than no lines": stranger(hello(returns=True, received=-5)),
    # Behind a hello: the link may end or live, nothing else may happen.
    "an endless line": greeted(b"x" * (4 * LINE_MAX)),
    "half a line": half_a_line_for_ever,
    "a second hello": greeted(hello()),
    "a type that nobody knows": greeted({"type": "launch_missiles"}),
    "a type with an ESC": greeted({"type": "\x1b[2J"}),
    "more acknowledged than sent": greeted({"type": "received", "count": 2**50}),
    "less acknowledged than nothing": greeted({"type": "received", "count": -1}),
    "a step before the first": greeted({"type": "first_step", "step": -7}),
    "a step beyond all numbers": greeted(b'{"type":"first_step","step":99999999999999999999}\n'),
    "a heartbeat of epoch -1": greeted({"type": "heartbeat", "step": -1, "epoch": -1, "phase": "\0", "samples": -5}),
    "a heartbeat with NaN": greeted(b'{"type":"heartbeat","step":1,"loss":NaN}\n'),
    "a heartbeat of 1e999 samples/s": greeted(b'{"type":"heartbeat","step":1,"samples_per_s":1e999}\n'),
    "a report without a key": greeted({"type": "report", "metrics": {}}),
    "a report of a phase that is none": greeted({"type": "report", "key": {"epoch": 1, "phase": "x" * 1000}, "metrics": {}}),
    "a report of epoch 2^31": greeted(report(1, {"loss": 1}, epoch=2**31)),
    "a report with a list of lists": greeted(report(1, {"loss": [[1], {"a": None}]})),
    "a report with ten thousand metrics": greeted(report(1, {f"m{i}": i for i in range(4000)})),
    "a report that was written before": greeted(report(5, {"loss": 1}), report(5, {"loss": 2}), report(1, {"loss": 3})),
    "a checkpoint above the run": greeted({"type": "checkpoint", "path": "../../../etc", "step": 1, "epoch": 1}),
    "a checkpoint with an absolute path": greeted({"type": "checkpoint", "path": "/etc", "step": 1, "epoch": 1}),
    "a checkpoint with a NUL": greeted({"type": "checkpoint", "path": "checkpoints/a\0b", "step": 1}),
    "a checkpoint of less than nothing": greeted({"type": "checkpoint", "path": "checkpoints/step-000000000001-gen-0001", "step": 1, "bytes": -1}),
    "a checkpoint that is not there": greeted({"type": "checkpoint", "path": NOT_THERE, "step": 99999}),
    "a rejected checkpoint of another run": greeted({"type": "checkpoint_rejected", "path": "../other/checkpoints/x", "reason": "\x1b[31m"}),
    "a fetch above the run": greeted({"type": "fetch", "path": "../../../etc/passwd"}),
    "a fetch of everything": never_reads,
    "a fetch of what is not there": fetches_what_is_not_there,
    "an exchange of 60 KB": greeted({"type": "exchange", "key": "big", "value": "v" * 60_000}),
    "an exchange with a key of 60 KB": greeted({"type": "exchange", "key": "k" * 60_000, "value": 1}),
    "a failure with ESC": greeted({"type": "failed", "message": "\x1b]0;owned\x07\x1b[2J", "backtrace": "\x1b[2J" * 100}),
    "a result of 60 KB": greeted({"type": "result", "value": ["r" * 60_000]}),
    "descriptors that nobody wants": descriptors,
    "30,000 heartbeats": flood({"type": "heartbeat", "step": 1, "epoch": 1, "phase": "train"}, 30_000),
    "80,000 facts": flood({"type": "first_step", "step": 1}, 80_000),
    "2,000 reports of 32 KiB": flood(report(1, {"text": "x" * 32_000}), 2_000),
    "2,000 exchanges of 32 KiB": flood({"type": "exchange", "key": "same", "value": "x" * 32_000}, 2_000),
    "2,000 results of 32 KiB": flood({"type": "result", "value": "x" * 32_000}, 2_000),
    "50,000 lines of an unknown type": flood({"type": "?"}, 50_000),
    "50,000 empty lines": flood({}, 50_000),
}


def exchange_keys():
    """A key of its own each time: nothing may be kept for each for ever."""
    link, until = Link().assigned(), time.monotonic() + 2
    link.socket.settimeout(1)
    number = 0
    try:
        while number < 20_000 and time.monotonic() < until:
            number += 1
            link.say({"type": "exchange", "key": f"{number:032}", "value": "x" * 2000})
    except OSError:
        return "closed"
    return link.lives()


ATTACKS["20,000 exchanges, each of a key of its own"] = exchange_keys


def carry_out(name):
    try:
        return ATTACKS[name]()
    except (OSError, ConnectionError) as error:
        return f"closed ({type(error).__name__})"


def main():
    names = list(ATTACKS)
    if sys.argv[1:2] == ["--seconds"]:
        until, count = time.monotonic() + float(sys.argv[2]), 0
        while time.monotonic() < until:
            carry_out(names[count % len(names)])
            count += 1
            print(f"{count} attacks", flush=True)
        return 0
    print(carry_out(names[int(sys.argv[1])]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
