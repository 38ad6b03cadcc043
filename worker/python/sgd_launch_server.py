"""The fork server of Python scripts: imports once what the ranks of a run need, and forks them.

Started by the keeper of a run as `python3 [options] sgd_launch_server.py command...`, with a SOCK_SEQPACKET socket as
descriptor 3. It speaks the protocol of common/messages/fork_server.hpp: JSON datagrams, a rank's pipe with `fork`, its pidfd with
`forked`. One thread; where another runs after the imports it says so, and ranks are started by exec. Standard library only;
Python 3.8 and newer.
"""

import sys

AT_START_OF_PYTHON = frozenset(sys.modules)  # Of any script, too.

import array  # noqa: E402
import atexit  # noqa: E402
import ctypes  # noqa: E402
import gc  # noqa: E402
import importlib  # noqa: E402
import io  # noqa: E402
import json  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
import socket  # noqa: E402
import threading  # noqa: E402
import time  # noqa: E402

OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))
if getattr(sys.flags, "safe_path", False) or sys.flags.isolated:  # They leave a script's folder out.
    sys.path.insert(0, OWN_FOLDER)
import sgd_launch_preload as preload  # noqa: E402
import sgd_launch_rank as rank  # noqa: E402
import sgd_launch_watch as watch  # noqa: E402
from sgd_launch_source import differs_between_ranks  # noqa: E402

del sys.path[0]  # Its place is the script's; in PYTHONPATH the folder stays.

CONTROL_FD = 3
MESSAGE_BYTES_MAX = 128 << 10
FORK_DEADLINE_S = 5.0
REPARENT_DEADLINE_S = 5.0
EXIT_ENVIRONMENT = 70
PR_SET_PDEATHSIG = 1
CUDA_ERROR_NOT_INITIALIZED = 3

# While modules are imported, unless the user has set them. OpenBLAS keeps threads from the start, which each rank gets back. GPUs
# are counted through NVML: the driver itself, once it is initialised, does not survive a fork.
FORK_SAFE = {"OPENBLAS_NUM_THREADS": "1", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}

# Loaded before any script's own module could hide them.
AT_START = set(sys.modules)
# No script has loaded them.
OWN_MODULES = ("sgd_launch_preload", "sgd_launch_rank", "sgd_launch_reader", "sgd_launch_source", "sgd_launch_watch")
SAVE_DEADLINE_S = 2.0


def thread_count():
    return len(os.listdir("/proc/self/task"))


def has_begun_cuda():
    """As the driver tells that is loaded; libraries load it also to begin nothing."""
    try:
        driver = ctypes.CDLL("libcuda.so.1", mode=os.RTLD_NOLOAD | os.RTLD_NOW)
        return driver.cuDeviceGetCount(ctypes.byref(ctypes.c_int())) != CUDA_ERROR_NOT_INITIALIZED
    except (OSError, AttributeError):
        return False


def holds_gpu():
    """Whether CUDA has begun here. NVML, by which GPUs are counted, opens other files, and outlives a fork."""
    if has_begun_cuda():
        return True
    for entry in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + entry).startswith("/dev/nvidia-uvm"):
                return True
        except OSError:
            pass
    return False


def set_variables(values):
    """Those that are None are not there then."""
    for name, value in values.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


class Server:
    def __init__(self):
        self.socket = socket.socket(fileno=CONTROL_FD)
        self.socket.set_inheritable(False)
        self.start = None
        self.plan = None
        self.learned = None
        self.backend = ""
        self.stamps = {}, {}
        self.watch = watch.Watch()
        self.set_by_modules = {}  # Variables, when they were imported; None: taken away.

    def receive(self):
        """One message and its descriptors; (None, []) when the keeper is gone."""
        room = socket.CMSG_SPACE(8 * array.array("i").itemsize)
        data, ancillary, _, _ = self.socket.recvmsg(MESSAGE_BYTES_MAX, room, socket.MSG_CMSG_CLOEXEC)
        descriptors = array.array("i")
        for level, kind, payload in ancillary:
            if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
                descriptors.frombytes(payload[:len(payload) - len(payload) % descriptors.itemsize])
        return (json.loads(data) if data else None), list(descriptors)

    def reply(self, message, descriptor=-1):
        data = json.dumps(message).encode()
        ancillary = [] if descriptor < 0 else [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [descriptor]))]
        self.socket.sendmsg([data], ancillary)

    def serve(self):
        """Until the keeper is gone: None. In a rank: what it is to run."""
        while True:
            try:
                message, descriptors = self.receive()
                if message is None:
                    return None
                if message["type"] == "prepare":
                    self.reply(self.prepare(message["job"], descriptors))
                elif message["type"] == "fork":
                    born = self.fork(message, descriptors)
                    if born is not None:
                        return born
            except OSError:
                return None  # The keeper is gone; so is the need for ranks.

    # Preparation ---------------------------------------------------------------------------------

    def prepare(self, job, descriptors=()):
        """Also of a server that was held ready before there was a run: it takes over the run's environment, folder and log, and looks
        whether what it has imported still fits."""
        if "environment" in job:
            return self.prepare_again(job, descriptors)
        reason = self.import_for(job)
        self.stamps = preload.file_stamps(), preload.folder_stamps()
        return {"type": "prepared", "threads": thread_count(), "reason": reason}

    def prepare_again(self, job, descriptors):
        for descriptor in descriptors:
            os.dup2(descriptor, 1)
            os.dup2(descriptor, 2)
            os.close(descriptor)
        # Set by the interpreter itself at its start, where the locale is C.
        coerced = {name: os.environ[name] for name in ("LC_CTYPE",) if name in os.environ}
        os.environ.clear()
        os.environ.update({**coerced, **job["environment"]})
        set_variables(self.set_by_modules)
        os.chdir(job["workdir"])
        changed = preload.what_changed(*self.stamps)
        if not changed and self.watch.read_there and os.getcwd() != self.watch.folder:
            changed = "it was started in another folder, and a module has read %s there" % self.watch.read_there
        if changed:
            return {"type": "prepared", "threads": thread_count(), "reason": changed}
        variables = self.plan.variables
        reason = self.import_for(job)
        if not reason and self.plan.variables != variables:
            reason = "the script sets other variables before its imports"
        return {"type": "prepared", "threads": thread_count(), "reason": reason}

    def import_for(self, job):
        """Returns why ranks cannot be forked off for this job, or ""."""
        importlib.invalidate_caches()
        self.start = rank.Start(job["command"])
        self.backend = job.get("backend", "")
        began = time.monotonic()
        self.plan, self.learned = preload.make_plan(self.start, job.get("preload", "auto"), AT_START_OF_PYTHON)
        reason = self.plan.refusal or self.load()
        gc.collect()
        rank.keep_files()
        gc.freeze()
        sys.stderr.write("sgd-launch: %d modules loaded in %.2f s%s\n" % (len(sys.modules), time.monotonic() - began, reason and ": " + reason))
        sys.stderr.flush()
        return reason

    def load(self):
        """Imports what is planned. Returns why ranks cannot be forked off, or ""."""
        if thread_count() > 1:  # No module is to blame.
            return "a thread runs at the start of Python already (of a sitecustomize, a usercustomize or a .pth file)"
        if holds_gpu():
            return "a GPU is open at the start of Python already (of a sitecustomize, a usercustomize or a .pth file)"
        variables = {name: value for name, value in FORK_SAFE.items() if name not in os.environ}
        variables.update(self.plan.variables)
        variables.update((name, None) for name in os.environ if differs_between_ranks(name) and name != "CUDA_VISIBLE_DEVICES")
        before = {name: os.environ.get(name) for name in variables}
        set_variables(variables)
        start = dict(os.environ)
        if not rank.is_main_waiting:  # What modules keep of it becomes the script's.
            rank.fresh_main(self.start)
            rank.is_main_waiting = True
        gc.disable()  # What modules make at import stays: to look through it again and again takes a fifth of the time.
        try:
            with self.watch:
                failed, troubled, trouble = preload.import_all(self.plan, self.trouble)
        finally:
            gc.enable()
            set_variables(before)
        self.set_by_modules.update((name, os.environ.get(name)) for name in {*start, *os.environ} - {*before}
                                   if os.environ.get(name) != start.get(name))
        for name, error in failed:
            sys.stderr.write("sgd-launch: not preloaded: %s: %s\n" % (name, error))
        if failed and self.plan.is_named:
            return "%s, which is named to be preloaded: %s" % failed[0]
        if troubled:
            self.watch.remove_temporary()
            self.learned.threaded = sorted(set(self.learned.threaded) | {troubled})
            self.learned.save()
            return "importing %s %s%s" % (troubled, trouble, "" if self.plan.is_named else " (it is left out from the next run on)")
        hidden = sorted(name for name in self.plan.own_names if name in sys.modules and name not in AT_START_OF_PYTHON)
        if hidden:
            is_beside = preload.names_in(self.plan.folder).issuperset(hidden)
            where = "beside the script" if is_beside else "in a folder that the script puts into sys.path"
            return "%s %s hides a module of that name that is preloaded" % (", ".join(hidden), where)
        return ""

    def trouble(self):
        """Why what has been imported cannot be forked, or ""."""
        if thread_count() > 1:
            return "starts a thread"
        if holds_gpu():
            return "opens a GPU"
        return self.watch.trouble()

    # Forking -------------------------------------------------------------------------------------

    def fork(self, settings, descriptors):
        """Replies to the keeper. Returns what to run in the rank, None in the server."""
        failure = {"type": "fork_failed", "generation": settings["generation"], "rank": settings["rank"]}
        pidfd = -1
        try:
            if thread_count() != 1:
                raise OSError(11, "the fork server has %d threads, so it cannot fork" % thread_count())
            pid, pidfd = self.fork_twice(settings, descriptors)
            if pid == 0:
                return Born(self, settings)
            self.reply({"type": "forked", "generation": settings["generation"], "rank": settings["rank"], "pid": pid}, pidfd)
        except OSError as error:
            failure.update(error=error.errno or 5, message="cannot fork: %s" % (error.strerror or error))
            self.reply(failure)
        finally:
            if pidfd >= 0:
                os.close(pidfd)
            for descriptor in descriptors:
                if descriptor > 2:
                    try:
                        os.close(descriptor)
                    except OSError:
                        pass  # The rank has moved it.
        return None

    def fork_twice(self, settings, descriptors):
        """Returns (pid, pidfd) of the rank, or (0, -1) in it. The middle process lives until its pidfd is here, so that its number
        is not reused before."""
        mine, theirs = socket.socketpair()
        middle = os.fork()
        if middle == 0:
            self.be_middle(settings, descriptors, mine, theirs)
            return 0, -1
        with mine:
            theirs.close()
            mine.settimeout(FORK_DEADLINE_S)
            pid, pidfd = 0, -1
            try:
                answer = mine.recv(16)
                pid = int(answer) if answer else 0
                if pid > 0 and hasattr(os, "pidfd_open"):
                    pidfd = os.pidfd_open(pid)
            except (OSError, ValueError):
                os.kill(middle, signal.SIGKILL)
        os.waitpid(middle, 0)
        if pid <= 0:
            raise OSError(-pid or 110, "no answer from the middle process" if pid == 0 else os.strerror(-pid))
        return pid, pidfd

    def be_middle(self, settings, descriptors, mine, theirs):
        """Returns in the rank only."""
        mine.close()
        middle = os.getpid()
        try:
            pid = os.fork()
        except OSError as error:
            theirs.sendall(b"%d" % -error.errno)
            os._exit(0)
        if pid > 0:
            try:
                theirs.sendall(b"%d" % pid)
                theirs.recv(1)  # Ends with the server's end of the pair.
            finally:
                os._exit(0)
        theirs.close()
        try:
            become_rank(settings, descriptors, middle)
        except BaseException as error:
            os.write(2, ("sgd-launch: cannot start rank %s: %s\n" % (settings["rank"], error)).encode())
            os._exit(EXIT_ENVIRONMENT)
        self.socket.close()


def become_rank(settings, descriptors, middle):
    """Parent, group, signals, descriptors, environment and cores, as an exec by the keeper would give them."""
    end = time.monotonic() + REPARENT_DEADLINE_S
    while os.getppid() == middle:
        if time.monotonic() > end:
            raise OSError(110, "the keeper has not taken the rank")
        os.sched_yield()
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != settings["keeper_pid"]:
        os._exit(EXIT_ENVIRONMENT)  # It died before its death could be announced.
    os.setpgid(0, 0)
    sys.stdout.flush()
    sys.stderr.flush()
    null = os.open("/dev/null", os.O_RDWR)
    os.dup2(null, 0)
    os.close(null)
    if descriptors:
        os.dup2(descriptors[0], 1)
        os.dup2(descriptors[1] if len(descriptors) > 1 else descriptors[0], 2)
        if len(descriptors) > 2:
            os.dup2(descriptors[2], 0)
    for descriptor in descriptors:
        if descriptor > 2:
            os.close(descriptor)
    os.environ.update(settings["env"])
    if settings.get("cpus"):
        os.sched_setaffinity(0, settings["cpus"])


def renew(stream, descriptor):
    """Opens it anew, and it stays the object that modules may hold: Python has kept of the server's own file that one can seek in it,
    and whoever wraps `stream.buffer` would be told so of the rank's pipe."""
    if type(stream) is not io.TextIOWrapper or stream.closed or stream.fileno() != descriptor:
        return  # Of a sitecustomize.
    is_raw = isinstance(stream.buffer, io.RawIOBase)
    buffer = open(descriptor, "wb" if stream.writable() else "rb", buffering=0 if is_raw else -1, closefd=False)
    (buffer if is_raw else buffer.raw).name = stream.name
    stream.__init__(buffer, stream.encoding, stream.errors, "\n", stream.line_buffering, stream.write_through)


def give_openblas_its_threads():
    """As many as it would have started by itself."""
    if "OPENBLAS_NUM_THREADS" in os.environ:
        return
    try:
        with open("/proc/self/maps") as file:
            paths = {line.split()[-1] for line in file if "openblas" in line and ".so" in line}
        cores = len(os.sched_getaffinity(0))
        wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
        threads = min(cores, int(wanted)) if wanted.isdigit() and int(wanted) > 0 else cores
        for path in paths if threads > 1 else ():
            library = ctypes.CDLL(path)
            for name in ("scipy_openblas_set_num_threads64_", "scipy_openblas_set_num_threads", "openblas_set_num_threads64_",
                         "openblas_set_num_threads"):
                if hasattr(library, name):
                    getattr(library, name)(threads)
                    break
    except OSError:
        pass  # It works with one thread, too.


def in_time(action, limit_s):
    """Runs it beside this thread, which waits so long and no longer: a home on a disk that hangs must hold no rank."""
    thread = threading.Thread(target=action, name="sgd-launch-learned", daemon=True)
    thread.start()
    thread.join(limit_s)


class Born:
    """A rank, with all that the server knew at its birth."""

    def __init__(self, server, settings):
        command = settings.get("argv") or server.start.command
        self.start = rank.Start(command)
        self.learned, self.backend, self.watch = server.learned, server.backend, server.watch
        self.is_first = settings["env"].get("LOCAL_RANK") == "0"

    def run(self):
        rank.set_title(self.start.command)
        for descriptor, stream in enumerate((sys.stdin, sys.stdout, sys.stderr)):
            renew(stream, descriptor)
        for stream in (sys.stdout, sys.stderr):
            if stream.isatty():
                stream.reconfigure(line_buffering=True)
        give_openblas_its_threads()
        if hasattr(threading.main_thread(), "_set_native_id"):  # Python 3.11 keeps that of the process that has forked.
            threading.main_thread()._set_native_id()
        if "logging" in sys.modules:  # The time from which its records count, which is the process's own.
            logging = sys.modules["logging"]
            logging._startTime = time.time_ns() if isinstance(getattr(logging, "_startTime", 0.0), int) else time.time()
        if "multiprocessing.process" in sys.modules:  # It keeps the folder in which the server was.
            sys.modules["multiprocessing.process"].ORIGINAL_DIR = os.getcwd()
        self.watch.generators.renew()
        if self.is_first:
            rank.write_all(2, self.watch.written.text)  # Of one rank: each would have written the same.
            self.learn_later()
        rank.use_backend(self.backend)
        for name in OWN_MODULES:
            sys.modules.pop(name, None)
        folders = preload.installed_folders()
        rank.finish(rank.run(self.start), lambda name: preload.is_own_module(sys.modules.get(name), folders))

    def learn_later(self):
        """What the script has loaded is kept at its first optimizer step, since it may be killed later, and at its end."""
        own_pid = os.getpid()
        known = set(self.learned.modules) | AT_START

        def learn(*_):
            if os.getpid() != own_pid:
                return
            new = [name for name in preload.loaded_installed(preload.installed_folders()) if name not in known]
            if new:
                known.update(new)
                self.learned.modules += new
                in_time(self.learned.save, SAVE_DEADLINE_S)

        atexit.register(learn)
        optimizer = sys.modules.get("torch.optim.optimizer")
        if not self.learned.exists and hasattr(optimizer, "register_optimizer_step_post_hook"):
            steps = iter((True,))
            optimizer.register_optimizer_step_post_hook(lambda *_: learn() if next(steps, False) else None)


def main():
    rank.set_title(["sgd-launch", "fork server of"] + sys.argv[1:])
    born = Server().serve()
    if born is None:
        os._exit(0)  # Taking all those modules apart would be for nothing.
    born.run()


if __name__ == "__main__":
    main()
