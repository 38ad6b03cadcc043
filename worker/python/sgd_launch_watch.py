"""What installed modules do while the fork server imports them, where an import by each rank itself would do something else: they ask
for a variable of their rank, make files that ranks would share, read the folder in which the server was started, write something, seed
random numbers. Standard library only; Python 3.8 and newer.
"""

import os
import stat
import sys

import sgd_launch_rank as rank
from sgd_launch_reader import installed_folders
from sgd_launch_source import differs_between_ranks

MAY_SHARE = "torch.distributed.nn.jit.instantiator"  # Older torch reads its folder when this is imported, and then no more.
TEMPORARY_MAX = 1000  # Of temporary files that modules make at their import.
WRITTEN_BYTES_MAX = 64 << 10  # Of what they write.
BLOCKS_DRAWN_MAX = 1000  # Of 624 numbers: who has drawn more has set a seed.
BLOCK_BYTES = 4 * 624
SOURCES = (".py", ".pyc", ".so")
OF_PACKAGES = (".egg-info", ".dist-info")


def is_made_by(module):
    """Whether it is being run."""
    frame = sys._getframe()
    while frame is not None and frame.f_globals.get("__name__") != module:
        frame = frame.f_back
    return frame is not None


class Variables(os._Environ):
    """What os.environ is meanwhile, so that whoever holds it is heard, too. Who goes through all variables finds none of a rank, and
    is not heard: most look for names of their own."""

    asked = []

    def __getitem__(self, name):
        if isinstance(name, str) and differs_between_ranks(name) and self.is_asked_by_other(name):
            self.asked.append(name)
        return super().__getitem__(name)

    def is_asked_by_other(self, name):
        """The launcher's modules look again in each rank, and so does torch for GPUs, whenever somebody asks whether there are any."""
        frame = sys._getframe()
        while frame is not None and frame.f_globals.get("__name__") in ("os", "_collections_abc", "collections.abc", __name__):
            frame = frame.f_back
        asker = frame.f_globals.get("__name__") or "" if frame is not None else ""
        return not asker.startswith("sgd_launch") and not (name == "CUDA_VISIBLE_DEVICES" and asker.split(".")[0] == "torch")


class Watch:
    def __init__(self):
        self.is_on = False
        self.temporary = []  # Paths of files and folders that modules have made.
        self.folder, self.read_there = "", ""  # Where the server was started, and what modules have read below it.
        self.written = Written()
        self.generators = Generators()
        sys.addaudithook(self.hear)  # For good: ranks have it, too, at rest.

    def __enter__(self):
        self.folder = self.folder or os.getcwd()
        self.elsewhere = tuple({*installed_folders(), *(os.path.realpath(one) + os.sep for one in (sys.prefix, sys.base_prefix))})
        # A home in it has files that are read from everywhere.
        self.is_above_home = (os.path.expanduser("~") + os.sep).startswith(self.folder.rstrip(os.sep) + os.sep)
        Variables.asked.clear()
        if type(os.environ) is os._Environ:
            os.environ.__class__ = Variables
        self.generators.begin()
        self.written.begin()
        self.is_on = True

    def __exit__(self, *_):
        self.is_on = False
        self.written.end()
        self.generators.end()
        if type(os.environ) is Variables:
            os.environ.__class__ = os._Environ

    def hear(self, event, arguments):
        if not self.is_on:
            return
        if event == "open" and not self.read_there:
            self.hear_open(arguments[0])
        elif event in ("tempfile.mkdtemp", "tempfile.mkstemp") and len(self.temporary) < TEMPORARY_MAX and not is_made_by(MAY_SHARE):
            self.temporary += [path for path in arguments[:1] if isinstance(path, str)]

    def hear_open(self, path):
        try:  # What is raised here, the import would meet.
            path = os.fsdecode(path)
            if path.endswith(SOURCES) or (self.is_above_home and os.path.isabs(path)):
                return
            path = os.path.normpath(os.path.join(self.folder, path))
            is_below = path.startswith(self.folder.rstrip(os.sep) + os.sep) and not os.path.dirname(path).endswith(OF_PACKAGES)
            if is_below and not os.path.realpath(path).startswith(self.elsewhere):
                self.read_there = path
        except (TypeError, ValueError, OSError):
            pass  # A descriptor, or no path at all.

    def trouble(self):
        """Why ranks must import themselves what has been imported, or ""."""
        if Variables.asked:
            return "reads %s, which each rank has of its own" % Variables.asked[0]
        path = next((path for path in self.temporary if os.path.lexists(path)), "")
        return "makes %s, which ranks would share" % path if path else ""

    def remove_temporary(self):
        import shutil
        for path in self.temporary:
            shutil.rmtree(path, ignore_errors=True)
            try:
                os.unlink(path)
            except OSError:
                pass  # It was a folder, or its module has removed it.


class Written:
    """What imports write to standard output and standard error, which is the server's log."""

    def __init__(self):
        self.text = b""
        self.kept, self.file, self.from_byte = [], -1, 0

    def begin(self):
        flush()
        status = os.fstat(2)
        self.from_byte = status.st_size
        if stat.S_ISREG(status.st_mode) and os.path.samestat(status, os.fstat(1)):
            return  # A log that is read where imports kill the server, so it stays where it is.
        self.from_byte = 0
        self.file = os.memfd_create("sgd-launch") if hasattr(os, "memfd_create") else -1
        self.kept = [(number, os.dup(number)) for number in (1, 2)] if self.file >= 0 else []
        for number, _ in self.kept:
            os.dup2(self.file, number)

    def end(self):
        flush()
        new = b""
        try:
            file = self.file if self.file >= 0 else os.open("/proc/self/fd/2", os.O_RDONLY | os.O_CLOEXEC)
            new = os.pread(file, WRITTEN_BYTES_MAX, self.from_byte)
            os.close(file)
        except OSError:
            pass  # Then it is in the log alone.
        for number, kept in self.kept:
            os.dup2(kept, number)
            os.close(kept)
        if self.kept:
            os.write(2, new)
        self.kept, self.file = [], -1
        self.text = (self.text + new)[:WRITTEN_BYTES_MAX]


def flush():
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # A module has closed it, or put another one there.


class Generators:
    """Random numbers of the whole process. A rank begins with others, as a process that has just been started; but where a module has
    set a seed when it was imported, that holds in each rank. What a module has only drawn is no seed."""

    def __init__(self):
        self.at_import, self.seeded = {}, {}
        self.finders = []

    def begin(self):
        for name in ("random", "numpy.random", "torch"):
            if name in sys.modules:
                self.note(name)
            elif name not in self.at_import:
                self.finders.append(rank.AfterImport(name, lambda name=name: self.note(name)))
        sys.meta_path[:0] = self.finders

    def note(self, name):
        self.at_import.setdefault(name, state_of(name))

    def end(self):
        sys.meta_path[:] = [finder for finder in sys.meta_path if finder not in self.finders]
        self.finders = []
        self.seeded = {name: state_of(name) for name in self.at_import if name in sys.modules and self.is_seeded(name)}

    def is_seeded(self, name):
        begin, now = self.at_import[name], state_of(name)
        if begin is None or now is None or name == "torch":
            return begin != now
        return not is_later(name, begin, now)

    def renew(self):
        """In a rank. Python's own is seeded anew by each fork."""
        if "random" in self.seeded:
            sys.modules["random"].setstate(self.seeded["random"])
        if "numpy.random" in sys.modules and "numpy.random" not in self.seeded:
            sys.modules["numpy.random"].seed()
        generator = getattr(sys.modules.get("torch"), "default_generator", None)
        if generator is not None and "torch" not in self.seeded:
            generator.seed()


def state_of(name):
    """None where there is none. Of torch's it is the seed: what is drawn does not change that."""
    module = sys.modules[name]
    if name == "torch":
        generator = getattr(module, "default_generator", None)
        return None if generator is None else generator.initial_seed()
    return module.getstate() if name == "random" else module.get_state()


def is_later(name, begin, now):
    """Whether drawing leads from one state to the other. Both generators are Mersenne twisters: 624 words, which change all at once."""
    if name == "random":
        one = sys.modules["random"].Random()
        one.setstate(begin)
        words, draw = lambda state: state[1][:-1], lambda: one.getrandbits(8 * BLOCK_BYTES)
        state = one.getstate
    else:
        if begin[0] != "MT19937" or now[0] != "MT19937":
            return False
        one = sys.modules["numpy.random"].RandomState()
        one.set_state(begin)
        words, draw, state = lambda state: state[1].tobytes(), lambda: one.bytes(BLOCK_BYTES), one.get_state
    wanted = words(now)
    for _ in range(BLOCKS_DRAWN_MAX):
        if words(state()) == wanted:
            return True
        draw()
    return False
