"""Which modules a script will need, found without running it: what it imports, and what earlier runs of it have loaded.

Only installed packages and the standard library are preloaded. The script's own modules are read for what they import, and are
imported by each rank itself, so that a changed file is never served stale. Standard library only; Python 3.8 and newer.
"""

import ast
import importlib
import importlib.machinery
import importlib.util
import json
import os
import sys
import sysconfig
import time

import sgd_launch_rank as rank

try:
    from _blake2 import blake2b  # hashlib loads OpenSSL, which takes as long as all else here.
except ImportError:
    from hashlib import blake2b

OWN_FILES_MAX = 500  # Of a script, read for their imports.
LEARNED_MAX = 8000  # Names that are kept of a run.
SOURCE_BYTES_MAX = 4 << 20

# They start threads or a driver on import, or keep what a fork takes apart.
NEVER = {"sgl_kernel", "vllm", "jax", "jaxlib", "tensorflow", "horovod", "grpc", "mpi4py", "ray", "pynvml", "cupy", "numba.cuda", "antigravity", "this"}

# What DDP, FSDP and an optimizer's first step import lazily.
LAZY_OF_TORCH = ["torch.distributed", "torch.nn.parallel", "torch.optim", "torch.utils.data", "torch._dynamo", "torch.distributed.tensor",
                 "torch.distributed.fsdp"]
TRAINERS = {"lightning", "pytorch_lightning", "transformers", "accelerate", "deepspeed", "torchrun"}

# Each rank has its own, whatever the script sets: nothing reads them at import.
OF_A_RANK = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES"}


class Plan:
    """modules: to import, in this order. variables: that the script sets before it imports, by name. refusal: why no server can
    serve it, else "". is_named: the modules are the user's. own_names: names of modules beside the script. folder: where its own modules lie."""

    def __init__(self):
        self.modules = []
        self.variables = {}
        self.refusal = ""
        self.is_named = False
        self.own_names = set()
        self.folder = ""


def installed_folders():
    """Folders whose modules somebody has installed."""
    paths = sysconfig.get_paths()
    folders = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    for entry in sys.path:
        if os.path.basename(entry) in ("site-packages", "dist-packages", "lib-dynload"):
            folders.add(entry)
    return tuple(os.path.realpath(folder) + os.sep for folder in folders)


def is_installed(origin, folders):
    return origin in ("built-in", "frozen") or (origin is not None and os.path.realpath(origin).startswith(folders))


def is_own_module(module, folders):
    """Read from a file that nobody has installed."""
    origin = getattr(getattr(module, "__spec__", None), "origin", None)
    return (isinstance(origin, str) and os.path.isabs(origin) and not is_installed(origin, folders) and
            os.path.dirname(origin) != os.path.dirname(os.path.abspath(__file__)))


def names_in(folder):
    """Modules that lie in a folder: they hide installed ones of the same name."""
    names = set()
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError:
        return names
    for entry in entries:
        if entry.name.endswith((".py", ".so")):
            names.add(entry.name.split(".")[0])
        elif os.path.isfile(os.path.join(entry.path, "__init__.py")):
            names.add(entry.name)
    return names


def is_for_type_checkers(node):
    test = node.test
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING")


def module_level(body):
    """Statements that run when a module is imported, but for the bodies of functions and classes."""
    for node in body:
        if isinstance(node, ast.If) and is_for_type_checkers(node):
            yield from module_level(node.orelse)
            continue
        yield node
        for field in ("body", "orelse", "finalbody"):
            if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                yield from module_level(getattr(node, field, []))
        for handler in getattr(node, "handlers", []):
            yield from module_level(handler.body)


def is_environ(node):
    return isinstance(node, ast.Attribute) and node.attr == "environ" or isinstance(node, ast.Name) and node.id == "environ"


def constant(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def variable_set_by(node):
    """(name, value) of a variable that a statement sets; None of either where only running it tells; None: it sets none."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Subscript) and is_environ(node.targets[0].value):
        place = node.targets[0].slice
        place = getattr(place, "value", place) if place.__class__.__name__ == "Index" else place  # Python 3.8.
        return constant(place), constant(node.value)
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr == "setdefault" and is_environ(call.func.value) and len(call.args) == 2:
        name = constant(call.args[0])
        return name, os.environ.get(name, constant(call.args[1])) if name else None
    if call.func.attr == "putenv" and len(call.args) == 2:
        return constant(call.args[0]), constant(call.args[1])
    if call.func.attr == "update" and is_environ(call.func.value):
        return None, None
    return None


class Reader:
    """Reads a script and its own modules, breadth first."""

    def __init__(self, plan):
        self.plan = plan
        self.folders = installed_folders()
        self.waiting = []
        self.seen = set()
        self.wanted = {}  # Ordered.
        self.text_says_distributed = False

    def read(self, path, package):
        self.waiting.append((path, package, True))
        while self.waiting and len(self.seen) < OWN_FILES_MAX:
            file, package, is_script = self.waiting.pop(0)
            if file not in self.seen:
                self.seen.add(file)
                self.read_file(file, package, is_script)

    def read_file(self, path, package, is_script):
        try:
            with open(path, "rb") as file:
                source = file.read(SOURCE_BYTES_MAX)
            tree = ast.parse(source)
        except (OSError, SyntaxError, ValueError):
            return  # The rank says it, in Python's words.
        self.text_says_distributed |= b"distributed" in source or b"DataParallel" in source
        nodes = list(module_level(tree.body))
        if is_script:
            self.read_variables(nodes)
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.want(alias.name)
            elif isinstance(node, ast.ImportFrom):
                base = self.absolute(node, package)
                if base:
                    self.want(base, [alias.name for alias in node.names])

    def absolute(self, node, package):
        if not node.level:
            return node.module
        parts = package.split(".") if package else []
        parts = parts[:len(parts) - node.level + 1]
        return ".".join(parts + ([node.module] if node.module else []))

    def read_variables(self, nodes):
        last = max((i for i, node in enumerate(nodes) if isinstance(node, (ast.Import, ast.ImportFrom))), default=-1)
        for node in nodes[:last]:
            found = variable_set_by(node)
            if found is None or found[0] in OF_A_RANK:
                continue
            name, value = found
            if name is None or value is None:
                self.plan.refusal = "line %d sets %s before the last import, to what only running it tells" % (node.lineno, name or "variables")
                return
            self.plan.variables[name] = value

    def want(self, name, members=()):
        top = name.split(".")[0]
        if top in self.plan.own_names:
            self.own(os.path.join(self.plan.folder, *name.split(".")), name, members)
            return
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError, AttributeError):
            return
        if spec is None:
            return
        if is_installed(spec.origin, self.folders):
            self.wanted[name] = None
            for member in members:
                self.wanted[name + "." + member] = None  # Imported only where it is a module.
        elif spec.origin and spec.origin.endswith(".py"):  # An own package elsewhere, as one that is installed to be edited.
            base = os.path.dirname(spec.origin) if spec.submodule_search_locations else spec.origin[:-3]
            self.own(os.path.join(base, *name.split(".")[1:]), name, members)

    def own(self, base, name, members):
        for path, package in ((base + ".py", name.rpartition(".")[0]), (os.path.join(base, "__init__.py"), name)):
            if os.path.isfile(path):
                self.waiting.append((path, package, False))
        for member in members:
            path = os.path.join(base, member + ".py")
            if os.path.isfile(path):
                self.waiting.append((path, name, False))


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


def make_plan(start, preload):
    """start: sgd_launch_rank.Start. preload: "auto" or a list of modules."""
    plan = Plan()
    script = start.script
    is_folder = os.path.isdir(script) if script else False
    plan.folder = os.path.realpath(script) if is_folder else os.path.dirname(os.path.realpath(script)) if script else os.getcwd()
    plan.own_names = names_in(plan.folder)
    reader = Reader(plan)
    path, package = (script, "") if script else find_module(start.module, plan.folder)
    if is_folder:
        path = os.path.join(script, "__main__.py")
    elif script and rank.is_importable(script):
        plan.refusal = "%s is an archive, in which modules of its own may hide others" % script
    if path:
        reader.read(path, package)
    if isinstance(preload, list):
        plan.modules, plan.is_named = list(preload), True
        return plan
    plan.modules = list(reader.wanted)
    tops = {name.split(".")[0] for name in plan.modules}
    if "torch" in tops and (reader.text_says_distributed or tops & TRAINERS):
        plan.modules += LAZY_OF_TORCH
    known = Learned(start)
    plan.modules += known.modules
    skipped = NEVER | set(known.threaded)
    plan.modules = [name for name in dict.fromkeys(plan.modules) if not is_in(name, skipped)]
    return plan


def is_in(name, names):
    parts = name.split(".")
    return any(".".join(parts[:count]) in names for count in range(1, len(parts) + 1))


class Learned:
    """What earlier runs of a script have loaded, kept by interpreter and script. modules: names. threaded: modules that start
    threads when they are imported."""

    def __init__(self, start):
        self.modules, self.threaded = [], []
        base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
        what = "\0".join([sys.executable, sys.version, os.path.realpath(start.script) if start.script else start.module])
        self.path = os.path.join(base, "sgd-launch", "preload", blake2b(what.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest() + ".json")
        self.exists = False
        try:
            with open(self.path, "rb") as file:
                known = json.loads(file.read(SOURCE_BYTES_MAX))
            self.modules = [name for name in known["modules"] if isinstance(name, str)][:LEARNED_MAX]
            self.threaded = [name for name in known["threaded"] if isinstance(name, str)][:LEARNED_MAX]
            self.exists = True
        except (OSError, ValueError, KeyError, TypeError):
            pass

    def save(self):
        """A folder that cannot be written to is no reason to fail: the next run learns again."""
        try:
            os.makedirs(os.path.dirname(self.path), exist_ok=True)
            # Not by tempfile, which takes half as long to import as Python to start.
            temporary = "%s.%d-%d" % (self.path, os.getpid(), time.monotonic_ns())
            with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                json.dump({"modules": self.modules[:LEARNED_MAX], "threaded": self.threaded[:LEARNED_MAX]}, file)
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


def first_changed(stamps):
    """A file that is another one than when it was loaded, or None."""
    return next((path for path, stamp in stamps.items() if stamp_of(path) != stamp), None)


def import_all(names, thread_count):
    """Imports what can be imported. Returns (module, its error) of those that cannot, and the first that started a thread: of a package
    that came with it, the package, since each other module of it would do the same."""
    failed = []
    for name in names:
        parent, _, last = name.rpartition(".")
        if name in sys.modules or (parent in sys.modules and hasattr(sys.modules[parent], last)):
            continue
        if parent and parent in sys.modules and not hasattr(sys.modules[parent], "__path__"):
            continue
        parts = name.split(".")
        came = next((".".join(parts[:count]) for count in range(1, len(parts)) if ".".join(parts[:count]) not in sys.modules), name)
        try:
            importlib.import_module(name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # A module may do anything, SystemExit too; the rank will see it again.
            failed.append((name, "%s: %s" % (type(error).__name__, error)))
        if thread_count() > 1:
            return failed, came
    return failed, ""
