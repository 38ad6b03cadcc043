"""Runs a Python script in this process as `python3 script.py` would: the right __main__, sys.argv and sys.path, tracebacks
without a frame of ours, the same exit status. Standard library only; Python 3.8 and newer.

By itself, `python3 sgd_launch_rank.py [--backend NAME] -- script.py ...` does that for a script which is started by exec.
"""

import atexit
import ctypes
import gc
import io
import os
import signal
import sys
import threading
import types
from _weakref import ref

OWN_FILE = __file__
EXIT_NOT_FLUSHED = 120  # Of the interpreter, where standard output takes no more.
FILES_MAX = 10000  # Open ones, that are flushed at the end.
OUR_THREADS = "sgd-"  # So their names begin: they use nothing of a script's.
PR_SET_MM, PR_SET_MM_MAP = 35, 14
title_room = []  # Begin and end of this process's arguments, as it was started with them.
files_before = []  # Weak references to those that were open in the server.
is_main_waiting = False  # There is a fresh __main__.


class Start:
    """What is run: options of the interpreter, then a script or a module, and its arguments."""

    def __init__(self, command):
        self.options, self.script, self.module, self.arguments = [], "", "", []
        words = list(command[1:])
        while words and words[0].startswith("-") and words[0] != "-m":
            self.options.append(words.pop(0))
            if self.options[-1] in ("-X", "-W") and words:
                self.options.append(words.pop(0))
        if words and words[0] == "-m":
            self.module, self.arguments = words[1], words[2:]
        elif words:
            self.script, self.arguments = words[0], words[1:]
        self.command = list(command)


class MemoryMap(ctypes.Structure):
    """struct prctl_mm_map, of linux/prctl.h."""
    _fields_ = [(name, ctypes.c_uint64) for name in (
        "start_code", "end_code", "start_data", "end_data", "start_brk", "brk", "start_stack", "arg_start", "arg_end", "env_start",
        "env_end", "auxv")] + [("auxv_size", ctypes.c_uint32), ("exe_fd", ctypes.c_uint32)]


def set_title(words):
    """Overwrites this process's arguments, as `ps`, `pkill -f` and psutil read them. Cut to the room that there is."""
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = list(map(int, file.read().rpartition(b")")[2].split()[1:]))
        begin, end = title_room[:] = title_room or fields[44:46]
        text = b"".join(word.encode("utf-8", "surrogateescape") + b"\0" for word in words)
        if 0 < begin < end:
            room = end - begin
            ctypes.memmove(begin, text[:room - 1].ljust(room, b"\0"), room)
            end_arguments_at(begin + min(len(text), room), fields)
    except (OSError, ValueError, IndexError, AttributeError):
        pass  # A name for people.


def end_arguments_at(end, fields):
    """Else what is left of the room is read as many empty ones, as it is where the kernel refuses. fields: of proc_pid_stat(5), from
    the fourth on."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.sbrk.restype = ctypes.c_void_p
    of_map = MemoryMap(fields[22], fields[23], fields[41], fields[42], fields[43], libc.sbrk(0), fields[24], fields[44], end, *fields[46:48],
                       0, 0, 0xffffffff)
    libc.prctl(PR_SET_MM, ctypes.c_ulong(PR_SET_MM_MAP), ctypes.byref(of_map), ctypes.c_ulong(ctypes.sizeof(of_map)), ctypes.c_ulong(0))


def write_all(descriptor, data):
    try:
        while data:
            data = data[os.write(descriptor, data):]
    except OSError:
        pass  # Nobody reads it.


def absolute(script):
    """As the interpreter names it in __file__ and tracebacks: since 3.9 below the working directory, with dots kept."""
    return os.path.join(os.getcwd(), script) if sys.version_info >= (3, 9) else script


def leaves_folder_out():
    """Whether the interpreter puts no folder of a script in front of sys.path."""
    return getattr(sys.flags, "safe_path", False) or bool(sys.flags.isolated)


def is_importable(script):
    """A folder or an archive, whose __main__ is what runs."""
    for hook in sys.path_hooks:
        try:
            hook(script)
            return True
        except ImportError:
            pass
    return False


def fresh_main(start):
    """A __main__ in which nothing has run yet, and sys.argv, as modules find them that the script imports."""
    main = types.ModuleType("__main__")
    main.__builtins__ = sys.modules["builtins"]
    main.__annotations__ = {}
    if start.script and not is_importable(start.script):
        main.__file__ = absolute(start.script)
    sys.modules["__main__"] = main
    sys.argv = [start.script or "-m"] + start.arguments
    return main


def set_up_main(start):
    """A fresh __main__, or the one that modules have found which were imported before; sys.argv and sys.path as the
    interpreter makes them."""
    main = sys.modules["__main__"] if is_main_waiting else fresh_main(start)
    sys.argv = [start.script or "-m"] + start.arguments
    if hasattr(sys, "orig_argv"):
        sys.orig_argv = list(start.command)
    if start.script and is_importable(start.script):
        sys.path.insert(0, absolute(start.script))
    elif not leaves_folder_out():
        sys.path.insert(0, os.path.dirname(os.path.realpath(start.script)) if start.script else os.getcwd())
    return main


def run_script(start):
    main = set_up_main(start)
    if start.module:
        import runpy
        runpy._run_module_as_main(start.module)  # As -m does, frames of runpy in tracebacks included.
        return
    path = absolute(start.script)
    if is_importable(start.script):
        import runpy
        runpy._run_module_as_main("__main__", alter_argv=False)
        return
    from importlib.machinery import SourceFileLoader, SourcelessFileLoader
    is_compiled = path.endswith(".pyc")
    main.__file__ = path
    main.__cached__ = None
    main.__spec__ = None
    main.__loader__ = (SourcelessFileLoader if is_compiled else SourceFileLoader)("__main__", path)
    try:
        with open(start.script, "rb") as file:
            source = file.read()
    except OSError as error:
        complain("%s: can't open file %r: [Errno %d] %s\n" % (sys.executable, os.path.abspath(start.script), error.errno, error.strerror))
        raise SystemExit(2) from None
    code = main.__loader__.get_code("__main__") if is_compiled else compile(source, path, "exec", dont_inherit=True)
    variables = main.__dict__
    del main, source, path
    exec(code, variables)


def without_our_frames(traceback):
    while traceback is not None and traceback.tb_frame.f_code.co_filename == OWN_FILE:
        traceback = traceback.tb_next
    return traceback


def flush(name):
    """sys.stdout or sys.stderr, which a script may have closed, deleted, or replaced by None."""
    stream = getattr(sys, name, None)
    if stream is not None and not getattr(stream, "closed", False):
        stream.flush()


def complain(text):
    """On standard error, whatever a script has made of sys.stderr."""
    try:
        sys.stderr.write(text)
    except Exception:
        try:
            os.write(2, text.encode("utf-8", "backslashreplace"))
        except OSError:
            pass


def status_of(stop):
    """Of a SystemExit, as the interpreter has it."""
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xff if -1 << 63 <= stop.code < 1 << 63 else 0xff
    complain("%s\n" % (stop.code,))
    return 1


def report(kind, value, traceback):
    """By the script's own hook, as the interpreter does. Returns the exit status."""
    try:
        getattr(sys, "excepthook", sys.__excepthook__)(kind, value, traceback)
    except SystemExit as stop:
        return status_of(stop)
    except BaseException as error:
        error.__traceback__ = without_our_frames(error.__traceback__)
        complain("Error in sys.excepthook:\n")
        sys.__excepthook__(type(error), error, error.__traceback__)
        complain("\nOriginal exception was:\n")
        sys.__excepthook__(kind, value, traceback)
    return -signal.SIGINT if issubclass(kind, KeyboardInterrupt) else 1


def run(start):
    """Runs it. Returns its exit status; -SIGINT where Ctrl-C has ended it."""
    try:
        run_script(start)
        return 0
    except SystemExit as stop:
        return status_of(stop)
    except BaseException as error:
        error.__traceback__ = without_our_frames(error.__traceback__)
        kind, value, traceback = type(error), error, error.__traceback__
    try:
        flush("stdout")
    except Exception:
        pass
    sys.last_type, sys.last_value, sys.last_traceback = kind, value, traceback
    status = report(kind, value, traceback)
    sys.last_value = sys.last_traceback = None  # Else they keep what the script's functions held.
    return status


def finish(status, is_own):
    """Ends this process as processes of multiprocessing end: threads are waited for, exit handlers run, what the script and its own
    modules hold is let go, files are flushed. Only modules that `is_own(name)` are taken apart: all of them take a second and more."""
    flushed = []
    for step in (threading._shutdown, atexit._run_exitfuncs, lambda: flushed.append(flush_streams()), lambda: let_go(is_own), flush_files,
                 lambda: flushed.append(all(flushed) and flush_streams()), lambda: ctypes.CDLL(None).fflush(None)):
        try:
            step()
        except BaseException as error:  # Ctrl-C while a thread is waited for, too: what is left of the end is done.
            complain("sgd-launch: while the process ends: %s: %s\n" % (type(error).__name__, error))
    if status >= 0 and not all(flushed):
        status = EXIT_NOT_FLUSHED
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)


def flush_streams():
    """False where that fails; of standard output it is said as the interpreter does."""
    is_done = True
    try:
        flush("stdout")
    except Exception as error:
        is_done = False
        complain("Exception ignored in: %r\n%s: %s\n" % (sys.stdout, type(error).__name__, error))
    try:
        flush("stderr")
    except Exception:
        is_done = False
    return is_done


def flush_files():
    """What installed modules hold open, too: its end would write what is in the buffers, and this process ends without it. Returns the
    files. Those of frozen objects are known before: to look through all that was imported takes a rank a tenth of a second."""
    objects = gc.get_objects()
    kinds = {kind for kind in set(map(type, objects)) if issubclass(kind, io._io._IOBase)}  # No __class__ of an object is asked.
    streams = getattr(sys, "stdout", None), getattr(sys, "stderr", None)
    files = [one for one in objects if type(one) in kinds and all(one is not stream for stream in streams)][:FILES_MAX]
    files += [file for file in (known() for known in files_before) if file is not None]
    del objects
    for file in files:
        try:
            if not file.closed and file.writable():
                file.flush()
        except Exception:
            pass  # As at the end of an interpreter.
    return files


def keep_files():
    """Before what is there is frozen and ranks are forked off: else each of them would write what is in the buffers."""
    files_before[:] = [ref(file) for file in flush_files() if type(file).__weakrefoffset__]


def runs_other_threads():
    """Daemons, which run on while the script's variables are taken away."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return any(ident != threading.get_ident() and not names.get(ident, "").startswith(OUR_THREADS) for ident in sys._current_frames())


def let_go(is_own):
    """__main__ first, then the script's other modules: objects go before the functions and modules that their __del__ may use. Where other
    threads still use them, they stay: at the end of an interpreter such threads run no more."""
    if runs_other_threads():
        return
    kinds = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, type)
    others = [name for name in reversed(list(sys.modules)) if name != "__main__" and is_own(name)]
    for names in (["__main__"], others):
        for keep in (kinds, ()):
            for name in names:
                module = sys.modules.get(name)
                variables = vars(module) if isinstance(module, types.ModuleType) else {}
                for key, value in list(variables.items()):
                    if not key.startswith("__") and not isinstance(value, keep):
                        variables[key] = None
                value = None
            gc.collect()  # Not for each of them: it looks at all that is there.


class AfterImport:
    """Finds modules as the finders behind it do, and calls `then()` once the module `name` has been imported; where its
    package is being imported, too, once that is done: until then a package is half there. Then it takes itself away."""

    def __init__(self, name, then):
        self.name, self.then, self.running = name, then, 0

    def find_spec(self, name, path=None, target=None):
        finders = list(sys.meta_path)
        if name not in (self.name, self.name.partition(".")[0]) or self not in finders:
            return None
        for finder in finders[finders.index(self) + 1:]:
            spec = finder.find_spec(name, path, target) if hasattr(finder, "find_spec") else None
            if spec is not None:
                self.watch(spec.loader)
                return spec
        return None

    def watch(self, loader):
        """Whoever asks for a spec need not import the module: only what the loader does counts."""
        if isinstance(loader, type) or not hasattr(loader, "__dict__") or "exec_module" in vars(loader):
            return

        def exec_module(module):
            del loader.exec_module
            self.running += 1
            try:
                loader.exec_module(module)
            finally:
                self.running -= 1
            if not self.running and self.name in sys.modules and self in sys.meta_path:
                sys.meta_path.remove(self)
                self.then()

        loader.exec_module = exec_module


def use_backend(name):
    """torch.distributed sums in shared memory where the script names gloo. Where torch is not there yet, the script's own
    import of it comes first: torch reads variables then, which the script may set before."""
    if name == "sgd" and "torch" in sys.modules:
        install_backend()
    elif name == "sgd":
        sys.meta_path.insert(0, AfterImport("torch.distributed", install_backend_or_end))


def install_backend():
    own_folder = os.path.dirname(os.path.abspath(OWN_FILE))
    sys.path.insert(0, own_folder)
    try:
        import sgd_launch_ddp
    finally:
        sys.path.remove(own_folder)
    sgd_launch_ddp.install(replace="gloo")


def install_backend_or_end():
    """Inside the script's import of torch, whose errors a script may catch: this one ends the rank."""
    try:
        install_backend()
    except Exception:
        sys.excepthook(*sys.exc_info())
        raise SystemExit(1) from None


def main():
    words = sys.argv[1:]
    backend = ""
    if words[:1] == ["--backend"]:
        backend, words = words[1], words[2:]
    start = Start(getattr(sys, "orig_argv", [sys.executable])[:1] + words[1:])
    use_backend(backend)
    if not leaves_folder_out():
        del sys.path[0]  # Ours: its place is the script's.
    status = run(start)
    if status < 0:
        finish(status, lambda name: False)
    sys.exit(status)


if __name__ == "__main__":
    main()
