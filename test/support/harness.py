"""What the integration tests stand on: the real programs, started in a folder of their own, watched with deadlines.

Nothing here sleeps for a fixed time: every wait names its condition and its limit. Every process of a launch
carries a mark in its environment, so that leftovers are found however they were re-parented, and only ours.
"""

import contextlib
import json
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
import uuid

# Whoever starts tests in a script's background ignores them, and so would every program here.
for _of_terminal in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(_of_terminal) == signal.SIG_IGN:
        signal.signal(_of_terminal, signal.SIG_DFL)

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BIN_DIR = os.path.abspath(os.environ.get("SGD_BIN_DIR") or os.path.join(ROOT, "build", "release", "bin"))
LAUNCHER = os.path.join(BIN_DIR, "sgd-launch")
CONFIGS = os.path.join(ROOT, "configs")


def _cache():
    """As scripts/common.sh has it: what root installs serves other accounts, too, which may not enter its home."""
    own = os.environ.get("XDG_CACHE_HOME")
    if not own and os.geteuid() == 0 and not os.stat(os.path.expanduser("~")).st_mode & 1:
        own = "/var/cache"
    return os.path.join(own or os.path.expanduser("~/.cache"), "sgd-launch")


CACHE = os.environ.get("SGD_CACHE") or _cache()
TESTS_PYTHON = os.environ.get("SGD_TESTS_PYTHON") or os.path.join(CACHE, "python", "bin", "python3")
FASHION = os.environ.get("SGD_FASHION_MNIST") or "/usr/share/datasets/fashion-mnist"

AGENT = ["agent", "--allow-root" if os.geteuid() == 0 else "--jobs-share-account"]
LIMIT_S = 60.0        # For a run that should take a few seconds: wide, so that a busy machine fails no test.
GONE_LIMIT_S = 2.0    # How long anything of a run may outlive its launcher.
MARK = "SGD_TEST_MARK"
PORTS_FROM = 10_000


def mount_disk(place, size):
    """A file system of its own at `place`, of so many bytes ("2m"); its end, as a function. Skips the test where none can be mounted."""
    os.makedirs(place, exist_ok=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=0700", "tmpfs", place], capture_output=True, check=False)
    if done.returncode != 0:
        raise unittest.SkipTest("no file system can be mounted here")
    return lambda: subprocess.run(["umount", "-l", place], check=False)


def fill_disk(path):
    """A file that takes what room there is, to the last byte."""
    with open(path, "wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                pass


def wait_for(condition, limit_s, what):
    """The first true value of condition(); fails the test, naming `what`, when the limit passes.

    `what` is a text, or a function that makes it of what is there then.
    What has taken long is asked for less often, so that waiting takes little from what is waited for.
    """
    begin = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - begin
        if waited > limit_s:
            raise AssertionError(f"waited {limit_s:g} s for {what() if callable(what) else what}")
        time.sleep(min(0.1, max(0.003, waited / 50)))


def read_file(path):
    """Bytes of a file, empty when it is not there."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except OSError:
        return b""


def free_port():
    """One that no connection is given by itself until somebody listens there: it is below those, where there is room."""
    given = int(read_file("/proc/sys/net/ipv4/ip_local_port_range").split()[0])
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("0.0.0.0", random.randrange(PORTS_FROM, given) if given > PORTS_FROM else 0))
            return probe.getsockname()[1]


def read_lines(path):
    """Every JSON line of a file that is complete; a line that does not parse fails the test."""
    text = read_file(path).decode()
    return [json.loads(line) for line in text[: text.rfind("\n") + 1].splitlines()]


# What libraries say in their exceptions, the runtime of one that nobody took, and what is said in place of one.
LIBRARY_TEXT = re.compile(r"\[json\.exception|terminate called|what\(\):|filesystem error:|basic_string|vector::|std::\w+_error|boost::|"
                          r"\bstoi\b|map::at|bad_(?:alloc|variant|optional|function|any|cast)|AddressSanitizer|runtime error:|assertion failed|"
                          r"met a fault of its own")


def library_text(text):
    """The line of `text` that a library wrote for programmers; None: there is none."""
    return next((line for line in text.splitlines() if LIBRARY_TEXT.search(line)), None)


def process_state(pid):
    """The letter of a process's state, empty when it is gone."""
    stat = read_file(f"/proc/{pid}/stat").decode(errors="replace")
    return stat[stat.rfind(")") + 2 :][:1]


def parent_of(pid):
    stat = read_file(f"/proc/{pid}/stat").decode(errors="replace")
    fields = stat[stat.rfind(")") + 2 :].split()
    return int(fields[1]) if len(fields) > 1 else 0


def command_of(pid):
    return [part.decode(errors="replace") for part in read_file(f"/proc/{pid}/cmdline").split(b"\0")[:-1]]


def children_of(pid, word):
    """Ids of living processes right below `pid` whose command has `word` in it."""
    children = [int(name) for name in os.listdir("/proc") if name.isdigit() and parent_of(name) == pid]
    return [child for child in children if any(word in part for part in command_of(child)) and process_state(child) not in ("Z", "X", "")]


def resident_bytes(pid, field="VmRSS"):
    """A memory figure of /proc/PID/status: VmRSS now, VmHWM the highest so far."""
    for line in read_file(f"/proc/{pid}/status").decode().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    return 0


def marked(mark, variable=MARK, whole=True):
    """Ids of all living processes that descend from a launch, found by its mark in their environment; or by its beginning."""
    wanted = f"{variable}={mark}".encode()
    found = []
    for name in os.listdir("/proc"):
        entries = read_file(f"/proc/{name}/environ").split(b"\0") if name.isdigit() else []
        if wanted in entries or (not whole and any(entry.startswith(wanted) for entry in entries)):
            if process_state(name) not in ("Z", "X", ""):
                found.append(int(name))
    return sorted(found)


class Launch:
    """One running sgd-launch: its output in files, its processes by mark, its run directory."""

    def __init__(self, arguments, folder, run_dir=None, env=None, cwd=None, group=None, stdin=subprocess.DEVNULL):
        self.mark = uuid.uuid4().hex
        self.run_dir = run_dir
        self._stdout = os.path.join(folder, f"stdout-{self.mark[:8]}")
        self._stderr = os.path.join(folder, f"stderr-{self.mark[:8]}")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "SGD_", "OMP_"))}
        environment.update({MARK: self.mark, **(env or {})})
        self.started = time.monotonic()
        with open(self._stdout, "wb") as out, open(self._stderr, "wb") as err:
            self.process = subprocess.Popen([LAUNCHER, *arguments], stdin=stdin, stdout=out, stderr=err,
                                            cwd=cwd or folder, env=environment, start_new_session=True,
                                            preexec_fn=group.enter if group else None)

    def wait(self, limit_s=LIMIT_S):
        """The exit code, negative for a signal, as subprocess has it."""
        try:
            return self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"sgd-launch still runs after {limit_s:g} s; it wrote:\n{self.said()}") from None

    def stdout(self):
        return read_file(self._stdout)

    def stderr(self):
        return read_file(self._stderr).decode(errors="replace")

    def said(self):
        return self.stdout().decode(errors="replace")[-4000:] + self.stderr()[-4000:]

    def events(self, name=None):
        events = read_lines(os.path.join(self.run_dir, "events.jsonl"))
        return [event for event in events if name in (None, event["event"])]

    def metrics(self, phase=None):
        lines = read_lines(os.path.join(self.run_dir, "metrics.jsonl"))
        return [line for line in lines if phase in (None, line["phase"])]

    def summary(self):
        return json.loads(read_file(os.path.join(self.run_dir, "summary.json")))

    def log(self, rank, generation=1):
        return read_file(os.path.join(self.run_dir, "logs", f"gen-{generation:04}", f"rank-{rank:04}.log"))

    def checkpoints(self):
        """Checkpoint folders, oldest first."""
        folder = os.path.join(self.run_dir, "checkpoints")
        return [os.path.join(folder, name) for name in sorted(os.listdir(folder)) if name.startswith("step-")]

    def pids(self):
        return marked(self.mark)

    def rank_pids(self):
        """Process ids by rank, once every rank of the run has started."""
        return {event["rank"]: event["pid"] for event in self.events("worker_started")}

    def wait_for_event(self, name, limit_s=LIMIT_S, count=1):
        """The first `count` events of a name; fails when the launcher ends before."""

        def seen():
            found = self.events(name)
            if len(found) >= count:
                return found[:count]
            if self.process.poll() is not None and len(self.events(name)) < count:
                raise AssertionError(f"sgd-launch ended with {self.process.returncode} before {name}:\n{self.said()}")
            return None

        return wait_for(seen, limit_s, f"event {name}")

    def wait_until_gone(self, limit_s=GONE_LIMIT_S):
        """No process of the launch is left, the launcher included."""
        wait_for(lambda: not self.alive(), limit_s, f"the end of {[(p, command_of(p)[:3]) for p in self.alive()]}")

    def alive(self):
        self.process.poll()
        return self.pids()

    def kill_all(self):
        """For clean-up only: SIGKILL to everything that carries the mark."""
        deadline = time.monotonic() + 10
        while self.alive() and time.monotonic() < deadline:
            for pid in self.alive():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    pass
        self.process.wait(10)


class LaunchTest(unittest.TestCase):
    """A test with a folder of its own; whatever it started is ended with it."""

    maxDiff = 4000

    def setUp(self):
        if not os.access(LAUNCHER, os.X_OK):
            self.fail(f"{LAUNCHER} is not built: scripts/test builds it, or set SGD_BIN_DIR")
        self.folder = tempfile.mkdtemp(prefix="sgd-test-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, content):
        with open(self.path(name), "wb" if isinstance(content, bytes) else "w") as file:
            file.write(content)
        return self.path(name)

    def script(self, name, text):
        """A Python program of the test, as the command to run it."""
        return ["/usr/bin/python3", "-S", self.write(name, text)]

    def start(self, *arguments, run_dir="run", env=None, cwd=None, group=None, stdin=subprocess.DEVNULL):
        """sgd-launch with --run-dir in the test's folder; None leaves the option away. `group`: see cgroup.py."""
        options = [] if run_dir is None else ["--run-dir", self.path(run_dir)]
        launch = Launch([*options, *map(str, arguments)], self.folder, run_dir and self.path(run_dir), env, cwd, group,
                        stdin)
        self.addCleanup(self.refuse_library_text, launch)
        self.addCleanup(launch.kill_all)
        return launch

    def refuse_library_text(self, launch):
        """Of all that a person reads of any run: no exception of a library."""
        said = launch.stdout().decode(errors="replace") + launch.stderr()
        if launch.run_dir:
            for name in ("events.jsonl", "summary.json"):
                said += read_file(os.path.join(launch.run_dir, name)).decode(errors="replace")
        self.assertIsNone(library_text(said))

    def run_to_end(self, *arguments, expect=0, limit_s=LIMIT_S, **keywords):
        """Starts, waits, checks the exit code and that nothing is left."""
        launch = self.start(*arguments, **keywords)
        code = launch.wait(limit_s)
        self.assertEqual(code, expect, launch.said())
        launch.wait_until_gone()
        return launch
