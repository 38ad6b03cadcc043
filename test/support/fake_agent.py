#!/usr/bin/env python3
"""An agent and keeper for tests of sgd-worker alone: starts ranks, speaks the link, decides nothing.

Ranks start as processes of their own, or as children of `sgd-worker --fork-server`. Every line
that a rank sends is kept in `messages` with its rank and arrival time. Standard library only.

    fake_agent.py --worker build/bin/sgd-worker --job resolved.json --ranks 2 --run-dir /tmp/run [--fork-server]
"""
import argparse
import array
import ctypes
import fcntl
import json
import os
import selectors
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time

REGION_BYTES = 64 << 20
PR_SET_CHILD_SUBREAPER = 36


class Rank:
    def __init__(self, rank, token):
        self.rank, self.token = rank, token
        self.sock = self.process = self.pidfd = self.pid = self.exit_code = None
        self.buffer = b""
        self.started = time.monotonic()


def threads(pid):
    """"name: state, where it waits" of each thread of a process, for the words of a wait that was too long."""
    def read(task, name):
        try:
            with open(f"/proc/{pid}/task/{task}/{name}") as file:
                return file.read().strip()
        except OSError:
            return "?"

    try:
        tasks = os.listdir(f"/proc/{pid}/task")
    except OSError:
        return "gone"
    return ["{}: {}, {}, {}".format(read(task, "comm"), read(task, "stat").rpartition(")")[2][1:2], read(task, "wchan"),
                                    read(task, "syscall")[:24]) for task in tasks]


def send_packet(sock, data, fds):
    sock.sendmsg([data], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))])


class ForkServer:
    """`sgd-worker --fork-server` and the keeper's end of its control socket; for one agent after the other."""

    def __init__(self, worker, timeout=60):
        self.control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.prepared_for = None
        self.process = subprocess.Popen([worker, "--fork-server"], preexec_fn=lambda: os.dup2(theirs.fileno(), 3),
                                        pass_fds=(3,), stdin=subprocess.DEVNULL)
        theirs.close()
        self.control.settimeout(timeout)

    def prepare(self, job):
        """Loads what the job needs; returns the answer."""
        self.control.send(json.dumps({"type": "prepare", "job": job}).encode())
        answer = json.loads(self.control.recv(1 << 17) or b'{"type": "closed"}')
        self.prepared_for = json.dumps(job) if answer["type"] == "prepared" else None
        return answer

    def fork(self, settings):
        """(pid, pidfd) of a new rank."""
        send_packet(self.control, json.dumps({"type": "fork", "keeper_pid": os.getpid(), **settings}).encode(),
                    [sys.stderr.fileno()])
        data, fds, _, _ = socket.recv_fds(self.control, 1 << 17, 1)
        answer = json.loads(data)
        if answer["type"] != "forked":
            raise RuntimeError(f"fork failed: {answer}")
        return answer["pid"], fds[0]

    def close(self):
        """Lets it end as it does without its keeper; returns the exit code."""
        self.control.close()
        return self.process.wait(10)


class FakeAgent:
    def __init__(self, worker, job, ranks, run_dir, generation=1, resume_from=(), cpus=1, bind=True, quiet=True,
                 after=None, with_memory=True, nodes=1, forks=None, job_of=None):
        """`after`: the agent of the generation before, all exited; its keepers' memory is taken over. `nodes`: 1, or
        as many as ranks, each then on a node of its own with memory of its own. `forks`: where ranks come from,
        instead of being processes that begin anew; who gives it ends it. `job_of`: the job of a rank, where they do not
        all have `job`."""
        self.worker, self.job, self.world_size, self.run_dir = worker, job, ranks, os.path.abspath(run_dir)
        self.generation, self.cpus, self.bind, self.quiet = generation, cpus, bind, quiet
        self.resume_from = [resume_from] if isinstance(resume_from, str) else list(resume_from)
        os.makedirs(self.run_dir, exist_ok=True)
        self.dir = tempfile.TemporaryDirectory(prefix="sgd-agent-")
        self.path = os.path.join(self.dir.name, "link")
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(self.path)
        self.listener.listen(64)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listener, selectors.EVENT_READ, self._accept)
        self.region = os.dup(after.region) if after else os.memfd_create("region")
        if not after:
            os.ftruncate(self.region, REGION_BYTES)
        self.nodes, self.with_memory = nodes, with_memory
        self.memories = [os.dup(after.memories[node]) if after else os.memfd_create("memory") for node in range(nodes)]
        self.memory = self.memories[0]
        self.ranks = [Rank(rank, f"token-{generation}-{rank}") for rank in range(ranks)]
        self.exchanges, self.messages, self.hooks = {}, [], []
        self.forks = forks
        self.job_of = job_of or (lambda rank: job)
        self.fetch = FakeAgent.no_such_checkpoint
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    # Starting ------------------------------------------------------------------------------

    def environment(self, rank):
        return {"SGD_LINK": self.path, "SGD_TOKEN": rank.token}

    def start(self):
        """All ranks: forks where there is a server for them, else processes of their own."""
        if self.forks and self.forks.prepared_for != json.dumps(self.job):
            answer = self.forks.prepare(self.job)
            if answer["type"] != "prepared":
                raise RuntimeError(f"not prepared: {answer}")
        for rank in self.ranks:
            rank.started = time.monotonic()
            cores = self.share(rank.rank) if self.bind and len(self.cores()) >= self.world_size else set()
            if self.forks:
                rank.pid, pidfd = self.forks.fork({"generation": self.generation, "rank": rank.rank, "cpus": sorted(cores),
                                                   "env": self.environment(rank), "threads": self.cpus})
            else:
                rank.process = subprocess.Popen([self.worker], env={**os.environ, **self.environment(rank)},
                                                stdin=subprocess.DEVNULL)
                rank.pid, pidfd = rank.process.pid, os.pidfd_open(rank.process.pid)
                if cores:
                    os.sched_setaffinity(rank.pid, cores)
            self._watch(rank, pidfd)

    def cores(self):
        return sorted(os.sched_getaffinity(0))

    def share(self, rank):
        cores = self.cores()
        per = max(1, len(cores) // self.world_size)
        return set(cores[rank * per:(rank + 1) * per])

    # Running -------------------------------------------------------------------------------

    def run(self, until=None, timeout=60):
        """Serves until `until(self)` holds, or all ranks have exited; returns the exit codes by rank."""
        end = time.monotonic() + timeout
        while not (until(self) if until else self.all_exited()):
            left = end - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"the fake agent waited {timeout} s; ranks: "
                                   f"{[(rank.rank, rank.pid, rank.exit_code, threads(rank.pid)) for rank in self.ranks]}")
            for key, _ in self.selector.select(left):
                key.data(key.fileobj)
        return [rank.exit_code for rank in self.ranks]

    def no_such_checkpoint(self, message):
        """What `fetch` is until a test gives another one: called with this agent and the rank's message."""
        self.send(message["rank"], {"type": "fetched", "path": message["path"], "error": "no such checkpoint", "missing": True})

    def all_exited(self):
        return all(rank.exit_code is not None for rank in self.ranks)

    def send(self, rank, message):
        try:
            self.ranks[rank].sock.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # The rank is gone; its exit code says so.

    def send_all(self, message):
        for rank in self.ranks:
            if rank.sock:
                self.send(rank.rank, message)

    def has_been_read(self):
        """All that was sent, by every rank."""
        return not any(struct.unpack("i", fcntl.ioctl(rank.sock, termios.TIOCOUTQ, bytes(4)))[0] for rank in self.ranks)

    def of_type(self, kind, rank=None):
        return [m for m in self.messages if m["type"] == kind and (rank is None or m["rank"] == rank)]

    def close(self):
        for rank in self.ranks:
            if rank.pid and rank.exit_code is None:
                signal.pidfd_send_signal(rank.pidfd, signal.SIGKILL)
                rank.process.wait() if rank.process else os.waitpid(rank.pid, 0)
        os.close(self.region)
        for memory in self.memories:
            os.close(memory)
        self.listener.close()
        self.dir.cleanup()

    # Inside --------------------------------------------------------------------------------

    def _watch(self, rank, pidfd):
        rank.pidfd = pidfd
        self.selector.register(pidfd, selectors.EVENT_READ, lambda _: self._exited(rank))

    def _exited(self, rank):
        self.selector.unregister(rank.pidfd)
        if rank.process:
            rank.exit_code = rank.process.wait()
        else:
            _, status = os.waitpid(rank.pid, 0)
            rank.exit_code = os.waitstatus_to_exitcode(status)
        if rank.sock:
            self._read(rank)  # What it wrote before its end.

    def _accept(self, listener):
        sock, _ = listener.accept()
        hello = {"rank": None}
        data = b""
        while not data.endswith(b"\n"):
            data += sock.recv(65536)
        hello = json.loads(data.split(b"\n")[0])
        rank = next(r for r in self.ranks if r.token == hello["token"])
        rank.sock = sock
        self._note(rank, hello)
        node = rank.rank if self.nodes > 1 else 0
        assignment = {"type": "assignment", "run": "test", "generation": self.generation, "rank": rank.rank,
                      "local_rank": rank.rank if self.nodes == 1 else 0, "world_size": self.world_size,
                      "local_world_size": self.world_size // self.nodes, "node_rank": node, "node_count": self.nodes,
                      "bind_address": "127.0.0.1", "run_dir": self.run_dir,
                      "resume_from": self.resume_from, "cpus": self.cpus, "config": self.job_of(rank.rank)}
        descriptors = [self.region] + [self.memories[node]] * self.with_memory
        send_packet(sock, json.dumps(assignment).encode() + b"\n", descriptors)
        self.selector.register(sock, selectors.EVENT_READ, lambda _: self._read(rank))

    def _read(self, rank):
        if rank.sock is None:  # Its end, which the same moment has brought, was read before.
            return
        try:
            data = rank.sock.recv(1 << 20, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return
        except ConnectionError:
            data = b""
        if not data:
            self.selector.unregister(rank.sock)
            rank.sock.close()
            rank.sock = None
            return
        *lines, rank.buffer = (rank.buffer + data).split(b"\n")
        for line in lines:
            self._note(rank, json.loads(line))

    def _note(self, rank, message):
        message["rank"], message["at"] = rank.rank, time.monotonic() - rank.started
        message["time"] = time.monotonic()
        self.messages.append(message)
        if not self.quiet and message["type"] not in ("heartbeat", "hello"):
            print(json.dumps(message), flush=True)
        if message["type"] == "fetch":
            self.fetch(self, message)
        if message["type"] == "exchange":
            values = self.exchanges.setdefault(message["key"], {})
            values[rank.rank] = message["value"]
            if len(values) == self.world_size:
                for one, value in sorted(values.items()):
                    self.send_all({"type": "exchange", "key": message["key"], "rank": one, "count": self.world_size,
                                   "value": value})
        for hook in self.hooks:
            hook(self, message)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worker", required=True)
    parser.add_argument("--job", required=True, help="a resolved job file")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--run-dir", required=True)
    parser.add_argument("--fork-server", action="store_true")
    parser.add_argument("--generation", type=int, default=1)
    parser.add_argument("--resume-from", default=[], nargs="*")
    parser.add_argument("--no-bind", action="store_true")
    parser.add_argument("--timeout", type=float, default=600)
    args = parser.parse_args()
    with open(args.job) as file:
        job = json.load(file)
    forks = ForkServer(args.worker) if args.fork_server else None
    agent = FakeAgent(args.worker, job, args.ranks, args.run_dir, args.generation, args.resume_from,
                      bind=not args.no_bind, quiet=False, forks=forks)
    try:
        if forks:
            print(json.dumps(forks.prepare(job)))
        began = time.monotonic()
        agent.start()
        codes = agent.run(timeout=args.timeout)
        firsts = agent.of_type("first_step")
        if firsts:
            print(f"start to last first step: {max(m['time'] for m in firsts) - began:.4f} s")
        print(f"exit codes {codes}")
        return max(codes)
    finally:
        agent.close()
        if forks:
            forks.close()


if __name__ == "__main__":
    sys.exit(main())
