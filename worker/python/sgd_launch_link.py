"""A Python rank's link to its agent: lines of JSON over a Unix socket (common/messages/link.hpp of sgd-launch).

Made at the first use, once a process; importing starts nothing. Without the launcher, and in children that a rank has
forked, there is none. Knows nothing of states.
"""
import atexit
import collections
import json
import os
import select
import socket
import sys
import threading
import time

_LINE_BYTES_MAX = 64 << 10
_OUTBOX_BYTES_MAX = 8 << 20  # Lines that the agent has not taken yet.
_SEND_WAIT_S = 60.0
_END_WAIT_S = 10.0


def warn(text):
    print(f"sgd_launch: {text}", file=sys.stderr, flush=True)


def line_of(message):
    """As UTF-8, whatever is in its texts: of a line that is none the agent closes the link."""
    return json.dumps(message, ensure_ascii=False).encode("utf-8", "replace") + b"\n"


def seconds(text):
    """Of a job's duration: "500ms", "10s", "5m", "1h"."""
    for unit, factor in (("ms", 1e-3), ("s", 1.0), ("m", 60.0), ("h", 3600.0)):
        if text.endswith(unit):
            return float(text[:-len(unit)]) * factor
    return float(text)


class Link:
    """One daemon thread reads the agent's lines and says heartbeats; other threads leave lines in an outbox of bounded size."""

    def __init__(self):
        self.pid, self.changed = os.getpid(), threading.Condition()  # It guards all below.
        self.away_s = float(os.environ.get("SGD_AGENT_WAIT") or 0)  # How long an agent that has died is waited for.
        self.outbox, self.kept, self.kept_bytes = bytearray(), collections.deque(), 0
        self.has = self.got = self.told = 0  # Counted lines: of ours, the agent; of its lines, we; what we have said of that.
        self.rest, self.descriptors, self.greeting = b"", [], False
        self.assignment, self.memory_fd, self.closed, self.is_ending = None, None, "", False
        self.exchanges, self.fetched = {}, {}
        self.beat = {"type": "heartbeat", "step": 0, "epoch": 0, "phase": "start", "loss": 0.0, "watched": False}
        self.calls, self.stop_before, self.stop_by, self.interval_s = 0, None, 0.0, 0.5
        self._open()
        threading.Thread(target=self._run, name="sgd-launch-link", daemon=True).start()
        atexit.register(self.finish)
        self.wait(lambda: self.assignment, 10.0, lambda: "the agent's assignment")
        self.rank, self.world = self.assignment["rank"], self.assignment["world_size"]
        self.interval_s = seconds(self.assignment["config"]["heartbeat"]["interval"])
        self.patience_s = seconds(self.assignment["config"]["heartbeat"]["stall_timeout"])

    def _open(self):
        """Connects and says hello; OSError where no agent listens."""
        link = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        link.connect(os.environ["SGD_LINK"])
        hello = {"type": "hello", "token": os.environ["SGD_TOKEN"], "pid": self.pid, "protocol": 1,
                 "returns": self.away_s > 0, "received": self.got}
        link.sendall(line_of(hello))
        link.setblocking(False)
        with self.changed:
            self.socket, self.rest, self.descriptors, self.greeting = link, b"", [], self.away_s > 0
            self.outbox.clear()

    def _run(self):
        poll_at, lost_at = 0.0, None
        while not self.is_ending:
            try:
                if lost_at is not None:
                    self._open()
                    lost_at = None
                now = time.monotonic()
                if now >= poll_at:
                    poll_at = now + self.interval_s
                    self._heartbeat()
                poll = select.poll()
                poll.register(self.socket, select.POLLIN | (select.POLLOUT if self.outbox else 0))
                if poll.poll(max(0.0, poll_at - now) * 1e3):
                    self._read()
                with self.changed:
                    self._flush()
            except OSError as error:
                lost_at = lost_at or time.monotonic()
                if time.monotonic() - lost_at >= self.away_s or self.closed:
                    return self._end(self.closed or f"the link to the agent is closed: {error}")
                time.sleep(0.02)

    def _end(self, reason):
        with self.changed:
            self.closed, self.is_ending = reason, True
            self.socket.close()
            self.changed.notify_all()

    def _heartbeat(self):
        with self.changed:
            if not self.outbox and not self.greeting:
                self.outbox += line_of(self.beat)

    def set_watched(self, on):
        """Said at once: also a rank that stands still in the next moment is found."""
        self.beat["watched"] = on
        self._heartbeat()
        try:
            with self.changed:
                self._flush()
        except OSError:
            pass  # The link's thread finds the same.

    def _flush(self):
        while self.outbox:
            try:
                del self.outbox[:self.socket.send(self.outbox)]
            except BlockingIOError:
                return
            self.changed.notify_all()

    def _read(self):
        try:
            data, descriptors, _, _ = socket.recv_fds(self.socket, 1 << 16, 8, socket.MSG_CMSG_CLOEXEC)
        except BlockingIOError:
            return
        if not data:
            raise ConnectionError("the agent has closed it")
        self.descriptors += descriptors
        *lines, self.rest = (self.rest + data).split(b"\n")
        with self.changed:
            for line in lines:
                self._take(json.loads(line))
            if self.away_s > 0 and self.told != self.got and not self.greeting:
                self.told = self.got
                self.outbox += line_of({"type": "received", "count": self.got})
            self.changed.notify_all()

    def _take(self, message):
        kind = message["type"]
        self.got += kind not in ("received", "fetching", "dropped")
        if kind == "assignment":
            # The first is the shared region. To a rank that is back both are sent again.
            if self.assignment is None and len(self.descriptors) > 1:
                self.memory_fd = self.descriptors.pop(1)
            while self.descriptors:
                os.close(self.descriptors.pop())
            self.assignment = message
        elif kind == "exchange":
            self.exchanges.setdefault(message["key"], {})[message["rank"]] = message["value"]
        elif kind == "fetched":
            self.fetched[message["path"]] = message.get("error", "")
        elif kind == "stop":
            self.stop_by = time.monotonic() + message["deadline_s"]  # Whoever asks again may give another time.
            if self.stop_before is not None:
                return
            # Promised to all: this rank passes no call of should_stop() from that one on before it knows the last one.
            self.stop_before = self.calls + 1
            self._keep({"type": "exchange", "key": "sgd_launch/stop", "value": self.stop_before})
        elif kind == "received":
            while self.has < message["count"] and self.kept:
                self.kept_bytes -= len(self.kept.popleft())
                self.has += 1
            if self.greeting:
                self.greeting = False
                self.outbox += b"".join(self.kept)
        elif kind == "dropped":
            self.closed = f"the agent has closed the link: {message.get('reason', '')}"

    def _keep(self, message):
        """With the lock held. A line that counts: kept, where the agent may come back, until it has it."""
        line = line_of(message)
        if len(line) > _LINE_BYTES_MAX:
            raise ValueError(f"sgd_launch: a {message['type']} of {len(line)} bytes; a line of the link has at most 64 KiB")
        if self.away_s > 0:
            self.kept.append(line)
            self.kept_bytes += len(line)
        if not self.greeting:
            self.outbox += line

    def put(self, message):
        """Leaves a line for the agent; waits only while more than 8 MiB lie there."""
        with self.changed:
            if self.closed:
                return
            full = lambda: max(self.kept_bytes, len(self.outbox)) >= _OUTBOX_BYTES_MAX and not self.closed
            if full() and not self.changed.wait_for(lambda: not full(), _SEND_WAIT_S):
                raise TimeoutError(f"sgd_launch: the agent has read nothing for {_SEND_WAIT_S:.0f} s")
            self._keep(message)
            try:
                if not self.greeting:
                    self._flush()
            except OSError:
                pass  # The link's thread finds the same.

    def hand_over(self):
        """Waits until what was left for the agent is in its hands: they keep it when this process is killed."""
        with self.changed:
            self.changed.wait_for(lambda: self.closed or self.greeting or not self.outbox, _SEND_WAIT_S)

    def finish(self):
        """At the end of the process: what was left for the agent reaches it."""
        if self.pid == os.getpid():
            with self.changed:
                self.changed.wait_for(lambda: self.closed or not (self.outbox or self.kept), _END_WAIT_S)

    def wait(self, found, deadline_s, whom):
        """What `found()` gives once it is not None; TimeoutError names `whom()`, ConnectionError why the link is closed."""
        with self.changed:
            if not self.changed.wait_for(lambda: found() is not None or self.closed, deadline_s):
                raise TimeoutError(f"sgd_launch: waited {deadline_s:.0f} s for {whom()}")
            if found() is None:
                raise ConnectionError(f"sgd_launch: {self.closed}")
            return found()

    def values(self, key):
        """All ranks' values of an exchange in rank order; None while one is missing. With the lock held."""
        values = self.exchanges.get(key, {})
        return [values[rank] for rank in range(self.world)] if len(values) == self.world else None

    def give(self, key, value):
        self.put({"type": "exchange", "key": "sgd_launch/" + key, "value": value})

    def take(self, key, whom, deadline_s=None):
        """All ranks' values, once all have given theirs; `whom()` names those that have not."""
        return self.wait(lambda: self.values("sgd_launch/" + key), deadline_s or self.patience_s, whom)

    def fetch(self, path):
        """Has the agent bring a checkpoint that is on another node; the reason why not, or ""."""
        self.put({"type": "fetch", "path": path})
        return self.wait(lambda: self.fetched.get(path), self.patience_s, lambda: f"checkpoint {path} from another node")


_process, _process_lock = None, threading.Lock()


def link():
    """This process's link; None without the launcher, where it refuses us, and in a child that a rank has forked."""
    global _process
    if _process is not None and not isinstance(_process, str):
        return _process if _process.pid == os.getpid() and not _process.closed else None
    if _process is not None or "SGD_LINK" not in os.environ:
        return None
    with _process_lock:
        if _process is None:
            try:
                _process = Link()
            except (OSError, ValueError) as error:
                _process = str(error)
                warn(f"goes on without the launcher: {error}")
    return link()


def _after_fork():
    """In a child: the link is its parent's, which ends with the parent and not with the child."""
    global _process_lock
    _process_lock = threading.Lock()
    if isinstance(_process, Link) and not _process.closed:
        os.close(_process.socket.detach())


os.register_at_fork(after_in_child=_after_fork)
