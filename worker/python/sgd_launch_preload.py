"""Which modules a script will need, found without running it: what it imports, and what earlier runs of it have loaded.

Only installed packages and the standard library are preloaded. The script's own modules are read for what they import, and are
imported by each rank itself, so that a changed file is never served stale. Standard library only; Python 3.8 and newer.
"""

import importlib
import importlib.machinery
import importlib.util
import json
import os
import re
import sys
import time

import sgd_launch_rank as rank
from sgd_launch_reader import SOURCE_BYTES_MAX, Reader, installed_folders, is_installed, names_in

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL, which takes as long as all else here.
except ImportError:
    from hashlib import blake2b

LEARNED_MAX = 8000  # Names that are kept of a run.

# They start threads or a driver on import, or keep what a fork takes apart.
# pytest rewrites modules that it imports, its plug-ins among them.
NEVER = {"pytest", "_pytest", "sgl_kernel", "vllm", "jax", "jaxlib", "tensorflow", "horovod", "grpc", "mpi4py", "ray", "pynvml", "cupy", "numba.cuda", "antigravity", "this"}

# What DDP, FSDP and an optimizer's first step import lazily.
LAZY_OF_TORCH = ["torch.distributed", "torch.nn.parallel", "torch.optim", "torch.utils.data", "torch._dynamo", "torch.distributed.tensor",
                 "torch.distributed.fsdp"]
ON_TORCH = {"lightning", "pytorch_lightning", "lightning_fabric", "torchmetrics", "accelerate", "deepspeed"}  # They import it first.
TRAINERS = {"lightning", "pytorch_lightning", "transformers", "accelerate", "deepspeed", "torchrun"}


class Plan:
    """modules: to import, in this order. origins: where the script imports them, by name: (file, line). ignored: kinds of warnings that it
    has ignored before it imports a module, by its name. script: the file that runs. variables: that the script sets before it imports, by name. refusal: why no server can
    serve it, else "". is_named: the modules are the user's. own_names: of modules beside the script, and in folders that it puts in front
    of sys.path. folder: where its own modules lie."""

    def __init__(self):
        self.modules, self.origins, self.ignored = [], {}, {}
        self.script = ""
        self.variables = {}
        self.refusal = ""
        self.is_named = False
        self.own_names = set()
        self.folder = ""


def is_own_module(module, folders):
    """Read from a file that nobody has installed."""
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return (isinstance(origin, str) and os.path.isabs(origin) and not is_installed(origin, folders) and
            os.path.dirname(origin) != os.path.dirname(os.path.abspath(__file__)))


def find_spec(name):
    """As importlib.util.find_spec(), which imports the packages that a module is in: they are the ranks' to run."""
    top, *rest = name.split(".")
    spec = importlib.util.find_spec(top)
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = importlib.machinery.PathFinder.find_spec(f"{spec.name}.{part}", spec.submodule_search_locations)
    return spec


def find_module(name, folder):
    """The file of a module that is run by -m: (path, package), or ("", "")."""
    sys.path.insert(0, folder)
    try:
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = find_spec(name + ".__main__")
    except (ImportError, ValueError, AttributeError):
        spec = None
    finally:
        sys.path.remove(folder)
    is_source = spec is not None and spec.origin and spec.origin.endswith(".py")
    return (spec.origin, spec.parent) if is_source else ("", "")


def make_plan(start, preload, loaded):
    """Returns it, and what is known of earlier runs. start: sgd_launch_rank.Start. preload: "auto" or a list of modules. loaded: at the
    start of any Python."""
    plan = Plan()
    script = start.script
    is_folder = os.path.isdir(script) if script else False
    plan.folder = os.path.realpath(script) if is_folder else os.path.dirname(os.path.realpath(script)) if script else os.getcwd()
    plan.own_names = names_in(plan.folder)
    reader = Reader(plan, loaded)
    path, package = (script, "") if script else find_module(start.module, plan.folder)
    if is_folder:
        path = os.path.join(script, "__main__.py")
    elif script and rank.is_importable(script):
        plan.refusal = "%s is an archive, in which modules of its own may hide others" % script
    elif start.module.split(".")[0] in ("pytest", "_pytest"):
        plan.refusal = "pytest rewrites modules when it imports them, so they must not be there before"
    known = Learned(path, is_shared=bool(start.module) and is_installed(path, reader.folders))
    if path:
        reader.read(path, package)
    if isinstance(preload, list):
        plan.modules, plan.is_named = list(preload), True
        return plan, known
    skipped = NEVER | set(known.threaded)
    for name in reader.wanted:
        if not is_in(name, skipped):
            plan.modules.append(name)
        elif name.split(".")[0] in ON_TORCH and "torch" not in plan.own_names | skipped:
            plan.modules.append("torch")
    plan.origins, plan.script = reader.wanted, path
    if reader.left:
        source, line = reader.ended
        sys.stderr.write("sgd-launch: %s and modules after it are not preloaded, since they may see what line %d of %s does\n" %
                         (reader.left, line, source.path))
    tops = {name.split(".")[0] for name in plan.modules}
    if "torch" in tops and (reader.text_says_distributed or tops & TRAINERS):
        plan.modules += LAZY_OF_TORCH
    if reader.learns:  # Of packages that this run imports in any case: whether it will import others, only running it tells.
        plan.modules += [name for name in known.modules if name.split(".")[0] in tops - plan.own_names]
    plan.modules = [name for name in dict.fromkeys(plan.modules) if not is_in(name, skipped)]
    return plan, known


def is_in(name, names):
    parts = name.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


class Learned:
    """What earlier runs of a script have loaded, kept by interpreter and script. modules: names. threaded: modules that start
    threads when they are imported, make what ranks would share, or ask for what is a rank's own. is_shared: the file is an installed
    module's, which runs other things in each project: then no modules are kept."""

    def __init__(self, path, is_shared=False):
        self.modules, self.threaded, self.is_shared = [], [], is_shared
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        what = "\0".join([sys.executable, sys.version, os.path.realpath(path)])
        name = blake2b(what.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest()
        # Without a home "~" stays what it is: nothing is kept then, least of all below the working directory.
        self.path = "" if base.startswith("~") or not path else os.path.join(base, "sgd-launch", "preload", name + ".json")
        self.exists = False
        try:
            with open(self.path, "rb") as file:
                known = json.loads(file.read(SOURCE_BYTES_MAX))
            self.modules = [name for name in known["modules"] if isinstance(name, str) and not is_shared][:LEARNED_MAX]
            self.threaded = [name for name in known["threaded"] if isinstance(name, str)][:LEARNED_MAX]
            self.exists = True
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def save(self):
        """A folder that cannot be written to is no reason to fail: the next run learns again."""
        if not self.path:
            return
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            # Not by tempfile, which takes half as long to import as Python to start.
            temporary = "%s.%d-%d" % (self.path, os.getpid(), time.monotonic_ns())
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                modules = [] if self.is_shared else self.modules[:LEARNED_MAX]
                json.dump({"modules": modules, "threaded": self.threaded[:LEARNED_MAX]}, file)
            os.replace(temporary, self.path)
        except OSError:
            pass


def loaded_installed(folders):
    """Names of installed modules that are loaded, in the order in which they were."""
    names = []
    for name, module in list(sys.modules.items()):
        if name.startswith(("__main__", "__mp_main__", "sgd_launch")):
            continue
        spec = getattr(module, "__spec__", None)
        if spec is not None and spec.name == name and is_installed(spec.origin, folders):
            names.append(name)
    return names


def stamp_of(path):
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def file_stamps():
    """Files that are loaded, modules and libraries, and how to see that they have changed."""
    paths = {getattr(getattr(module, "__spec__", None), "origin", None) for module in list(sys.modules.values())}
    try:
        with open("/proc/self/maps", "rb") as file:
            paths.update(os.fsdecode(line.split(None, 5)[5].rstrip(b"\n")) for line in file if line.count(b"/") and b" r-x" in line)
    except (OSError, IndexError):
        pass
    return {path: stamp_of(path) for path in paths if isinstance(path, str) and os.path.isabs(path)}


def what_is_installed(folder):
    """Names that an import may find there, or a package's metadata tells."""
    try:
        return names_in(folder) | {name for name in os.listdir(folder) if name.endswith((".dist-info", ".egg-info", ".egg-link", ".pth"))}
    except OSError:
        return set()


def folder_stamps():
    """Folders in which modules are looked for, and how to see that one was added or taken away: a module that was imported may have done
    without it. Other files come and go there."""
    return {folder: (stamp_of(folder), what_is_installed(folder)) for folder in sys.path if os.path.isabs(folder)}


def what_changed(files, folders):
    """In words, or "" where all is as it was."""
    for path, stamp in files.items():
        if stamp_of(path) != stamp:
            return "%s has changed since it was imported" % path
    for folder, (stamp, names) in folders.items():
        if stamp_of(folder) != stamp and what_is_installed(folder) != names:
            return "modules were added to %s, or taken away, since it was looked through" % folder
    return ""


def import_as_script(name, plan):
    """From a frame that is named as the script's own statement, which warnings point to."""
    path, line = plan.origins.get(name) or ("", 0)
    if not path:
        importlib.import_module(name)
        return
    is_script = path == plan.script
    path = rank.absolute(path)
    variables = {"__name__": "__main__" if is_script else os.path.splitext(os.path.basename(path))[0], "__file__": path}
    exec(compile("\n" * (line - 1) + "import " + name, path, "exec", dont_inherit=True), variables)


def ignore_warnings(calls):
    """Returns what that has added to the filters."""
    import warnings
    before = list(warnings.filters)
    for function, arguments, words in calls:
        try:
            getattr(warnings, function)(*arguments, **words)
        except (TypeError, ValueError, AssertionError, re.error):
            pass  # The rank says it.
    return [one for one in warnings.filters if one not in before]


def import_all(plan, trouble):
    """Imports what is planned. Returns as import_each() does."""
    added = []
    try:
        return import_each(plan, trouble, added)
    finally:
        warnings, linecache = sys.modules.get("warnings"), sys.modules.get("linecache")
        for one in added:
            if one in warnings.filters:
                warnings.filters.remove(one)
        for path, _ in set(plan.origins.values()) if linecache else ():  # A rank may run a file that has changed since.
            linecache.cache.pop(rank.absolute(path), None)


def import_each(plan, trouble, added):
    """Imports what can be imported. trouble(): why what is imported cannot be forked, or "". Returns (module, its error) of those that
    cannot be imported, the first that brought trouble, and which: of a package that came with it, the package, since each other module
    of it would do the same."""
    failed = []
    for name in plan.modules:
        if plan.ignored.get(name):
            added += ignore_warnings(plan.ignored[name])
        parent, _, last = name.rpartition(".")
        if name in sys.modules or (parent in sys.modules and hasattr(sys.modules[parent], last)):
            continue
        if parent and parent in sys.modules and not hasattr(sys.modules[parent], "__path__"):
            continue
        parts = name.split(".")
        came = next((".".join(parts[:count]) for count in range(1, len(parts)) if ".".join(parts[:count]) not in sys.modules), name)
        try:
            import_as_script(name, plan)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # A module may do anything, SystemExit too; the rank will see it again.
            failed.append((name, "%s: %s" % (type(error).__name__, error)))
        what = trouble()
        if what:
            return failed, came, what
    return failed, "", ""
