"""A rank of a command that says COUNT reports of about BYTES each over its link, and comes back to it when its agent has died:
`python3 returning_rank.py COUNT BYTES END`. What the agent has not said that it has is said again; before the last one it waits
for the file END. Standard library only."""

import collections
import json
import os
import socket
import sys
import time

WAIT_S = 120.0  # For the next agent.
WINDOW = 64  # Lines that may be under way.


class Link:
    def __init__(self):
        self.kept = collections.deque()
        self.sent = 0
        self.has = 0  # Of our lines, the agent.
        self.got = 0  # Of its lines, we.
        self.socket, self.rest = None, b""

    def connect(self):
        until = time.monotonic() + WAIT_S
        while True:
            self.socket, self.rest = socket.socket(socket.AF_UNIX), b""
            self.socket.settimeout(WAIT_S)
            try:
                self.socket.connect(os.environ["SGD_LINK"])
                self.put({"type": "hello", "token": os.environ["SGD_TOKEN"], "pid": os.getpid(), "protocol": 1, "returns": True,
                          "received": self.got})
                while self.hear() != "received":
                    pass
                for line in list(self.kept):
                    self.socket.sendall(line)
                return
            except OSError:
                self.socket.close()
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)

    def put(self, message):
        self.socket.sendall(json.dumps(message).encode() + b"\n")

    def hear(self):
        """Takes one line of the agent: its type."""
        while b"\n" not in self.rest:
            part = self.socket.recv(65536)
            if not part:
                raise ConnectionError("the agent has gone")
            self.rest += part
        line, _, self.rest = self.rest.partition(b"\n")
        message = json.loads(line)
        if message["type"] == "received":
            while self.has < message["count"]:
                self.kept.popleft()
                self.has += 1
        elif message["type"] not in ("fetching", "dropped"):
            self.got += 1
        return message["type"]

    def say(self, message):
        line = json.dumps(message).encode() + b"\n"
        self.kept.append(line)
        self.sent += 1
        self.drain(line, WINDOW)

    def drain(self, line, most):
        """Until no more than `most` lines are under way; a link that is lost is made again, with all that it lacks."""
        try:
            if line:
                self.socket.sendall(line)
            while len(self.kept) > most:
                self.hear()
        except OSError:
            self.socket.close()
            self.connect()
            self.drain(b"", most)


def main():
    count, size = int(sys.argv[1]), int(sys.argv[2])
    link = Link()
    link.connect()
    for number in range(1, count + 1):
        while number == count and not os.path.exists(sys.argv[3]):
            time.sleep(0.02)
        link.say({"type": "report", "key": {"epoch": 1, "phase": "train", "batch": 0, "sequence": number},
                  "metrics": {"n": number, "pad": "x" * size}})
    link.drain(b"", 0)


if __name__ == "__main__":
    main()
