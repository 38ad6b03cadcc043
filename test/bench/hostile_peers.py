"""One kind of hostile peer of a coordinator, until it is ended: `hostile_peers.py KIND ADDRESS FOLDER RUN PAUSE`. Prints how many attacks it has made.

FOLDER holds eva/identity (a client) and n2/identity (a node whose agent never comes). PAUSE: seconds between two attacks of one peer;
with 0 each of its connections sends until it is ended, too.
"""

import itertools
import os
import random
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import attacker
from attacker import CHUNK, HELLO, frame

CLIENT = (HELLO, {"type": "client", "version": "x"})
STATE = {"type": "node_state", "node": "n2", "incarnation": 7, "slots": 0, "is_new_link": True}
FILES = {"type": "files", "node": "n2", "incarnation": 7}
BATCH = 200
LONG_S = 5.0  # Without a pause one connection sends for so long.


class Wire(attacker.Wire):
    """From an address of its own kind, as from another machine."""

    def __init__(self, address, identity=None, tls=True):
        super().__init__(address, identity, tls, source=f"127.0.9.{1 + list(KINDS).index(sys.argv[1])}")


def identity(folder, name):
    return os.path.join(folder, name, "identity", "identity.pem")


def push(wire, begin, flood, seconds=1.0):
    """Sends until all is sent, the other side has ended, or takes nothing for so long."""
    wire.socket.settimeout(seconds)
    wire.send(*begin, *flood)
    until = time.monotonic() + LONG_S
    batch = b"".join(part if isinstance(part, bytes) else frame(part) for part in flood)
    while is_restless and flood and time.monotonic() < until:
        wire.socket.sendall(batch)


def request(**more):
    return {"type": "request", "id": 1} | more


def client(address, folder, run):
    """Questions without end, answers not taken; jobs by the hundred; what is malformed."""
    floods = [request(request="ps", all=True), request(request="nodes"), request(request="job", run=run), request(request="status", run=run),
              request(request="checkpoints", run=run), request(request="x" * 4000), {"type": "follow", "id": 1, "run": run, "logs": True, "events": True},
              request(request="submit", job={"command": ["true"]}), request(request="stop", run=run), frame(b"[" * 5000), frame(b"x", CHUNK)]
    with Wire(address, identity(folder, "eva")) as wire:
        push(wire, CLIENT, [random.choice(floods)] * BATCH)


def submitter(address, folder, _):
    """Jobs that will never be placed, as many as it is let."""
    with Wire(address, identity(folder, "eva")) as wire:
        wire.socket.settimeout(2)
        wire.send(*CLIENT, request(request="job", run=""))
        job = wire.read_until("answer").get("job")
        if job is None:
            return
        wanted = job | {"num_workers": 50_000, "name": "flood", "priority": random.choice([0, 1, 10**6])}
        for _ in range(20):
            wire.send(request(request="submit", job=wanted))
            wire.read_until("answer")


def node(address, folder, run):
    """Facts that are none of its own, states by the thousand, exchanges of nobody."""
    fact = {"type": "fact", "incarnation": 7, "sequence": 1, "run": run, "generation": 1, "body": {"type": "worker_exited", "rank": 0, "exit_code": 1}}
    floods = [fact, fact | {"run": "nobody"}, STATE, {"type": "beat"},
              {"type": "exchange_put", "run": run, "generation": 1, "rank": 0, "key": "k", "value": "x" * 30_000},
              {"type": "progress", "run": run, "generation": 1, "rank": 0, "heartbeat": {"step": 10**9}}]
    with Wire(address, identity(folder, "n2")) as wire:
        push(wire, [HELLO, STATE], [random.choice(floods)] * BATCH)


def files(address, folder, run):
    """Chunks of nothing, last ones again and again, files of another node's run."""
    put = {"type": "put", "run": run, "file": "logs/gen-0001/rank-0000.log", "offset": 0, "bytes": 0, "crc32c": 0, "last": True}
    floods = [put, put | {"run": "nobody"}, put | {"file": "../x"}, {"type": "get", "run": run, "path": "checkpoints/step-000000000001-gen-0001"},
              {"type": "all_sent", "run": run}, {"type": "checkpoint_done", "run": run, "path": "checkpoints/step-000000000001-gen-0001"}]
    with Wire(address, identity(folder, "n2")) as wire:
        push(wire, [HELLO, FILES], [random.choice(floods)] * BATCH * 10)


def stranger(address, _, __):
    """Without a certificate: noise, half handshakes, joins with guessed tokens."""
    kind = random.randrange(4)
    if kind == 0:
        with Wire(address, tls=False) as wire:
            push(wire, [os.urandom(4096)], [])
    elif kind == 1:
        with Wire(address) as wire:
            push(wire, [HELLO, {"type": "join", "token": "sgd-join-" + "A" * 104, "csr": ""}], [])
    elif kind == 2:
        with Wire(address) as wire:
            push(wire, [frame(b"", length=0xFFFFFFFF)], [])
    else:
        wires = [Wire(address, tls=False) for _ in range(50)]
        time.sleep(0.2)
        for wire in wires:
            wire.raw.close()


KINDS = {"client": client, "submitter": submitter, "node": node, "files": files, "stranger": stranger}


is_restless = False


def main():
    global is_restless
    attack, pause = KINDS[sys.argv[1]], float(sys.argv[5])
    is_restless = pause == 0
    for count in itertools.count(1):
        try:
            attack(*sys.argv[2:5])
        except (OSError, AssertionError):  # Ended, refused, reset: what an attacker must expect.
            pass
        if count % 10 == 0:
            print(count, flush=True)
        time.sleep(pause)


if __name__ == "__main__":
    main()
