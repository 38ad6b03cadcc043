"""Collectives between processes of one host through shared memory: the library libsgd-collective.so, without torch.

form() makes a Group out of ranks that have a key-value store in common. Group starts operations on plain addresses,
one at a time and on all ranks in the same order, and advances them until they are done. Nothing is loaded, mapped or
started on import, so a process that has imported this module can fork.
"""

import ctypes
import functools
import json
import os
import secrets
import shutil
import threading
import time

VERSION = 1
DONE, PENDING, FAILED = 0, 1, -1
ALL_REDUCE, REDUCE, BROADCAST, ALL_GATHER, GATHER, SCATTER, REDUCE_SCATTER, ALL_TO_ALL, BARRIER = range(1, 10)
UINT8, INT8, INT16, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64, BOOL = range(10)
SUM, AVERAGE, PRODUCT, MIN, MAX, BIT_AND, BIT_OR, BIT_XOR = range(8)

FILE = "libsgd-collective.so"
OPENED = "opened"
SLICE_US = 100_000  # Of waiting, between two looks of Python at its signals.


class CollectiveError(RuntimeError):
    """An operation did not complete; the group can only be closed."""


class Request(ctypes.Structure):
    """SgdcRequest of sgd_collective.h, with what it points to."""

    _fields_ = [("operation", ctypes.c_uint32), ("type", ctypes.c_uint32), ("reduction", ctypes.c_uint32),
                ("root", ctypes.c_int32), ("count", ctypes.c_uint64), ("inputs", ctypes.c_void_p),
                ("outputs", ctypes.c_void_p), ("input_counts", ctypes.c_void_p), ("output_counts", ctypes.c_void_p)]


@functools.lru_cache(None)
def _pointers(count):
    return ctypes.c_void_p * count


@functools.lru_cache(None)
def _counts(count):
    return ctypes.c_uint64 * count


def make_request(operation, type=UINT8, reduction=SUM, root=0, count=0, inputs=(), outputs=(), input_counts=None,
                 output_counts=None):
    """`inputs` and `outputs` are addresses; `count` elements each, or those of the counts. The caller keeps the memory
    alive until the operation is done."""
    given = _pointers(len(inputs))(*inputs) if inputs else None
    taken = _pointers(len(outputs))(*outputs) if outputs else None
    request = Request(operation, type, reduction, root, count, ctypes.addressof(given) if given else None,
                      ctypes.addressof(taken) if taken else None, None, None)
    request.kept = [given, taken]
    if input_counts is not None:
        request.kept += [_counts(len(input_counts))(*input_counts), _counts(len(output_counts))(*output_counts)]
        request.input_counts, request.output_counts = map(ctypes.addressof, request.kept[2:])
    return request


def divide(rows, splits, size, name):
    """How many rows are for each rank, or of each: equal parts without `splits`. ValueError where they do not fit."""
    splits = list(splits) or [rows // size] * size
    if len(splits) != size or min(splits) < 0 or sum(splits) != rows:
        raise ValueError(f"{name}_split_sizes {splits} do not divide the {rows} rows of the {name} among {size} ranks")
    return splits


def _library_paths():
    named = os.environ.get("SGD_COLLECTIVE_LIBRARY")
    if named:
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    folders = [here]
    # From worker/python of a checkout, and from lib/python3/site-packages or share/sgd-launch of an installation.
    parents = [here]
    for _ in range(4):
        parents.append(os.path.dirname(parents[-1]))
    folders += [os.path.join(parent, "lib", "sgd-launch") for parent in parents]
    folders += [os.path.join(parent, "build", "release", "lib", "sgd-launch") for parent in parents[:3]]
    program = shutil.which("sgd-launch")
    if program:
        folders.append(os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(program))), "lib", "sgd-launch"))
    return [os.path.join(folder, FILE) for folder in folders]


@functools.lru_cache(None)
def library():
    """The C library, loaded once. Raises OSError with what to do."""
    paths = _library_paths()
    path = next((path for path in paths if os.path.exists(path)), None)
    if path is None:
        raise OSError(f"{FILE} is not in any of {', '.join(dict.fromkeys(paths))}: build it (ninja sgd_collective_c), or "
                      "set SGD_COLLECTIVE_LIBRARY to its path")
    loaded = ctypes.CDLL(path)
    text, size, group = ctypes.c_char_p, ctypes.c_size_t, ctypes.c_void_p
    for name, result, arguments in (
            ("version", ctypes.c_int, []),
            ("create", ctypes.c_int, [ctypes.c_int, ctypes.c_uint64, text, size]),
            ("open", group, [ctypes.c_int, ctypes.c_uint64, ctypes.c_int, ctypes.c_int,
                             ctypes.POINTER(ctypes.c_int32), ctypes.c_int, text, size]),
            ("set_timeout", None, [group, ctypes.c_int64]),
            ("start", ctypes.c_int, [group, ctypes.POINTER(Request), ctypes.c_int64]),
            ("advance", ctypes.c_int, [group, ctypes.c_int64]),
            ("error", text, [group]),
            ("abort", None, [group, text]),
            ("close", None, [group])):
        function = getattr(loaded, "sgdc_" + name)
        function.restype, function.argtypes = result, arguments
    if loaded.sgdc_version() != VERSION:
        raise OSError(f"{path} is of version {loaded.sgdc_version()}, and this module needs {VERSION}: install both "
                      "from one build")
    return loaded


def create(size, token):
    """The descriptor of a new group's memory."""
    error = ctypes.create_string_buffer(512)
    fd = library().sgdc_create(size, token, error, len(error))
    if fd < 0:
        raise CollectiveError(error.value.decode(errors="replace"))
    return fd


class Group:
    """One rank's end of a group. One thread at a time, but for abort()."""

    def __init__(self, fd, token, rank, pids, own_cores=False):
        self._library = library()
        self.rank, self.size = rank, len(pids)
        error = ctypes.create_string_buffer(512)
        self._handle = self._library.sgdc_open(fd, token, rank, len(pids), (ctypes.c_int32 * len(pids))(*pids),
                                               own_cores, error, len(error))
        if not self._handle:
            raise CollectiveError(error.value.decode(errors="replace"))
        self._start, self._advance = self._library.sgdc_start, self._library.sgdc_advance
        self._timeout_ms = None
        self._closing = threading.Lock()  # Between close() and abort().

    def set_timeout(self, milliseconds):
        if milliseconds != self._timeout_ms:
            self._timeout_ms = milliseconds
            self._library.sgdc_set_timeout(self._handle, milliseconds)

    def start(self, request, microseconds):
        """Whether it is done after at most so much waiting. `request` must be kept until it is."""
        return self._outcome(self._start(self._handle, request, microseconds))

    def advance(self, microseconds):
        return self._outcome(self._advance(self._handle, microseconds))

    def _outcome(self, code):
        if code == FAILED:
            raise CollectiveError(self._library.sgdc_error(self._handle).decode(errors="replace"))
        return code == DONE

    def finish(self):
        """Advances the operation until it is done. Python's signal handlers run meanwhile."""
        while not self.advance(SLICE_US):
            pass

    def run(self, request):
        if not self.start(request, SLICE_US):
            self.finish()

    def abort(self, reason):
        with self._closing:
            if self._handle:
                self._library.sgdc_abort(self._handle, reason.encode())

    def close(self):
        with self._closing:
            handle, self._handle = self._handle, None
            if handle:
                self._library.sgdc_close(handle)


def _host_record():
    """Which processes can share memory: one kernel, one account, one view of processes; and this one's cores."""
    with open("/proc/sys/kernel/random/boot_id") as file:
        boot = file.read().strip()
    return {"host": [boot, os.readlink("/proc/self/ns/pid"), os.geteuid()], "pid": os.getpid(),
            "cores": sorted(os.sched_getaffinity(0)), "version": VERSION}


class Spread(list):
    """In place of a Group: the ranks of each host, where they are on several and some host has several; and a word that no
    other group has used in the store."""

    word = ""


def _plan(records):
    """What rank 0 decides, and the descriptor that it holds until all have opened it, or None."""
    first, hosts = records[0], {}
    for rank, record in enumerate(records):
        hosts.setdefault(json.dumps(record["host"]), []).append(rank)
        if record["version"] != first["version"]:
            return {"refused": f"rank {rank} has another version of sgd-launch than rank 0"}, None
    if len(hosts) == len(records) > 1:
        return {"refused": "each rank is on a host, in a container or under an account of its own"}, None
    if len(hosts) > 1:
        return {"hosts": list(hosts.values()), "word": secrets.token_hex(8)}, None
    token = secrets.randbits(64)
    try:
        fd = create(len(records), token)
    except (CollectiveError, OSError) as error:
        return {"refused": str(error)}, None
    cores = set().union(*(record["cores"] for record in records))
    ranks = max(len(records), int(os.environ.get("LOCAL_WORLD_SIZE") or 0))
    return {"token": token, "fd": fd, "pids": [record["pid"] for record in records],
            "own_cores": len(cores) >= ranks}, fd


def _open(plan, rank, own_fd):
    if own_fd is not None:
        return Group(own_fd, plan["token"], rank, plan["pids"], plan["own_cores"])
    fd = os.open(f"/proc/{plan['pids'][0]}/fd/{plan['fd']}", os.O_RDWR | os.O_CLOEXEC)
    try:
        return Group(fd, plan["token"], rank, plan["pids"], plan["own_cores"])
    finally:
        os.close(fd)


def _get(store, key, rank, deadline):
    """The value that `rank` gives. Polls: a store that waits keeps other threads of this process from using it."""
    pause = 0.0002
    while not store.check([key]):
        if time.monotonic() > deadline:
            raise CollectiveError(f"forming a group: nothing from rank {rank} ({key})")
        time.sleep(pause)
        pause = min(2 * pause, 0.01)
    return store.get(key).decode()


def form(store, rank, size, timeout_s):
    """A Group of all ranks, a Spread, or a text that says why they cannot share memory; all get the same.

    `store` has set(key, text), get(key) -> bytes, check([key]) and add(key, number) -> sum. A store may serve one group
    after the other, and outlive an attempt of torchrun. Raises CollectiveError, which names the rank that has not come.
    """
    deadline = time.monotonic() + timeout_s
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") or "0"
    prefix = f"sgd/{attempt}/{size}/"
    prefix += f"{(store.add(prefix + 'joined', 1) - 1) // size}/"
    store.set(f"{prefix}host/{rank}", json.dumps(_host_record()))
    own_fd = None
    if rank == 0:
        plan, own_fd = _plan([json.loads(_get(store, f"{prefix}host/{other}", other, deadline)) for other in range(size)])
        store.set(prefix + "plan", json.dumps(plan))
    else:
        plan = json.loads(_get(store, prefix + "plan", 0, deadline))
    if "refused" in plan:
        return plan["refused"]
    if "hosts" in plan:
        spread = Spread(plan["hosts"])
        spread.word = plan["word"]
        return spread
    group, problem = None, ""
    try:
        group = _open(plan, rank, own_fd)
    except (CollectiveError, OSError) as error:
        problem = f"rank {rank}: {error}"
    store.set(f"{prefix}opened/{rank}", problem or OPENED)
    if rank == 0:
        problems = [_get(store, f"{prefix}opened/{other}", other, deadline) for other in range(size)]
        store.set(prefix + "verdict", next((text for text in problems if text != OPENED), OPENED))
        os.close(own_fd)
    verdict = _get(store, prefix + "verdict", 0, deadline)
    if verdict == OPENED:
        return group
    if group is not None:
        group.close()
    return verdict
