"""Ranks of libsgd-collective.so as forked processes, and operations on arrays of the standard library."""
import array
import ctypes
import fcntl
import os
import pickle
import select
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), *[".."] * 3, "worker", "python"))
import sgd_launch_collective as collective  # noqa: E402

DEADLINE_S = 60
CODES = {collective.UINT8: "B", collective.INT8: "b", collective.INT16: "h", collective.INT32: "i", collective.INT64: "q",
         collective.FLOAT32: "f", collective.FLOAT64: "d"}
FLOATS = collective.FLOAT32, collective.FLOAT64


class FolderStore:
    """What form() needs of a store, by files."""

    def __init__(self, folder):
        self.folder = folder

    def _path(self, key):
        return os.path.join(self.folder, key.replace("/", "~"))

    def set(self, key, text):
        path = self._path(key)
        with open(f"{path}.{os.getpid()}", "w") as file:
            file.write(text)
        os.rename(file.name, path)

    def check(self, keys):
        return all(os.path.exists(self._path(key)) for key in keys)

    def get(self, key):
        with open(self._path(key), "rb") as file:
            return file.read()

    def add(self, key, number):
        with open(self._path(key), "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            total = int(file.read() or 0) + number
            file.truncate(0)
            file.write(str(total))
        return total


class Rank:
    """A forked process that runs a function, and what it gave or raised."""

    def __init__(self, function, *arguments):
        self.read_end, write_end = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self.read_end)
            signal.alarm(DEADLINE_S)
            try:
                outcome = None, function(*arguments)
            except BaseException as error:
                outcome = f"{type(error).__name__}: {error}", None
            with os.fdopen(write_end, "wb") as file:
                file.write(pickle.dumps(outcome))
            os._exit(0)
        os.close(write_end)

    def outcome(self):
        """The error's text and the value; (None, None) of a killed one."""
        content = b""
        while select.select([self.read_end], [], [], DEADLINE_S)[0] and (more := os.read(self.read_end, 1 << 16)):
            content += more
        os.close(self.read_end)
        os.waitpid(self.pid, 0)
        return pickle.loads(content) if content else (None, None)


def address(buffer):
    return ctypes.addressof((ctypes.c_char * max(1, len(buffer) * buffer.itemsize)).from_buffer(buffer)) if len(buffer) else 0


def values_of(kind, rank, count):
    """Small whole numbers, whose sums every type holds; in a float also fractions."""
    fraction = 0.25 if kind in FLOATS else 0
    return array.array(CODES[kind], [(7 * i + 3 * rank) % 5 + (fraction and fraction * rank) for i in range(count)])


def zeros(kind, count):
    return array.array(CODES[kind], bytes(count * array.array(CODES[kind]).itemsize))


def run(group, operation, kind, inputs=(), outputs=(), **more):
    count = more.pop("count", len((list(inputs) + list(outputs) + [()])[0]))
    group.run(collective.make_request(operation, kind, count=count, inputs=[address(one) for one in inputs],
                                      outputs=[address(one) for one in outputs], **more))


class RanksTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)

    def start(self, size, function, **more):
        def rank_main(rank):
            group = collective.form(FolderStore(self.folder.name), rank, size, DEADLINE_S)
            if isinstance(group, str):
                return group
            return function(group, **more)

        return [Rank(rank_main, rank) for rank in range(size)]

    def values(self, ranks):
        values = []
        for rank in ranks:
            error, value = rank.outcome()
            self.assertIsNone(error)
            values.append(value)
        return values
