"""What a script does until its imports are done, read and not run: the installed modules that it imports, and what it changes before
it reaches them.

Statements are followed in the order in which they run: into the script's own modules where they are imported, into its own functions
where they are called. An import is planned where it runs in any case, or is tried: not behind a condition, in a loop or a function. A
variable that is set to a constant in any case is told. Any other change of variables, of sys.path or of sys.modules before an installed
module is imported is a refusal: what that module would see, only running the script tells. The plan ends where the script does what
modules that are imported later may see: it sets up logging, leaves its folder, sets a seed, changes an installed module. Other
installed functions are taken to change nothing. Standard library only; Python 3.8 and newer.
"""

import ast
import importlib.util
import os
import sys
import sysconfig

import sgd_launch_source as source_of

OWN_FOLDER = os.path.dirname(os.path.abspath(__file__))
OWN_FILES_MAX = 500  # Of a script, read for their imports.
LATE_FILES_MAX = 60  # Whose import is not certain.
SOURCE_BYTES_MAX = 4 << 20
DEPTH_MAX = 40  # Of own modules and functions in each other; what is deeper is read at the end.
RUN_WHEN_MADE = ("__init__", "__new__", "__post_init__", "__call__")  # Where a class is called, or what it has made.


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


class Source:
    """A file that is read. is_ours: it is one of the launcher's. paths: those that its variables hold, None of one that holds several."""

    def __init__(self, path, package, is_script, tree, may_change):
        self.path, self.package, self.is_script = path, package, is_script
        self.names = source_of.Names(tree, may_change)
        self.is_ours = False
        self.paths = {}

    def keep_path(self, node):
        if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
            name, path = node.targets[0].id, source_of.path_of(node.value, self.path, self.paths)
            self.paths[name] = path if self.paths.get(name, path) == path else None

    def forget(self, arguments):
        """What a function is given hides the file's own variables."""
        for one in [*arguments.args, *arguments.kwonlyargs, *getattr(arguments, "posonlyargs", [])]:
            self.paths[one.arg] = None


class Reader:
    """wanted: installed modules, in order. learns: what earlier runs have loaded was loaded with nothing changed before it."""

    def __init__(self, plan, loaded):
        self.plan, self.loaded = plan, loaded
        self.folders = installed_folders()
        self.front, self.back = [(plan.folder, plan.own_names.copy())], []
        self.seen, self.seen_late, self.waiting = set(), set(), []
        self.functions, self.called, self.depth = {}, set(), 0
        self.set_since, self.change = {}, None  # Since the last import: constants, and (source, change) of the first that is none.
        self.may_change = False  # A file that was read has words for it; else there is little to look for.
        self.ended = None  # (source, line) from which on imports are each rank's own.
        self.left = ""  # The first of them.
        self.may_end = False  # As may_change.
        self.ignored_since = []  # Kinds of warnings, since the last import.
        self.is_inside = self.is_caught = False  # In a `with`; in one that takes kinds of warnings back.
        self.place = "", 0  # Of the import that is followed.
        self.wanted = {}  # Ordered: the file and the line of its first import.
        self.learns = True
        self.text_says_distributed = False

    def read(self, path, package):
        if package:
            self.want(package, (), True, False)  # Before a module in it.
        try:
            self.read_file(path, package, True, True, False)
            while self.waiting:
                self.read_file(*self.waiting.pop(0))
        except RecursionError:
            self.plan.refusal = self.plan.refusal or "%s or a module of its own is nested too deep to be read" % path

    def read_file(self, path, package, is_script, is_certain, is_late):
        """Once; and once more, where before it was perhaps imported, or in a function."""
        if path in self.seen or len(self.seen) >= OWN_FILES_MAX:
            return
        if is_late and (path in self.seen_late or len(self.seen_late) >= LATE_FILES_MAX):
            return
        if self.depth >= DEPTH_MAX:
            self.waiting.append((path, package, is_script, False, is_late))
            return
        (self.seen_late if is_late else self.seen).add(path)
        try:
            with open(path, "rb") as file:
                text = file.read(SOURCE_BYTES_MAX)
            tree = ast.parse(text)
        except (OSError, SyntaxError, ValueError):
            return  # The rank says it, in Python's words.
        self.text_says_distributed |= b"distributed" in text or b"DataParallel" in text
        is_ours = os.path.dirname(os.path.abspath(path)) == OWN_FOLDER  # They change nothing.
        may_change = not is_ours and any(word in text for word in source_of.WORDS)
        self.may_change |= may_change
        self.may_end |= not is_ours and any(word in text for word in source_of.WORDS_OF_ENDS)
        source = Source(path, package, is_script, tree, may_change)
        source.is_ours = is_ours
        self.keep_functions(tree, source)
        self.depth += 1
        self.follow(tree.body, source, is_certain, is_late)
        self.depth -= 1

    def keep_functions(self, tree, source):
        for node in source_of.definitions_in(tree.body):
            found = [node]
            if isinstance(node, ast.ClassDef):
                found = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name in RUN_WHEN_MADE]
            self.functions.setdefault(node.name, []).extend((one, source) for one in found)

    # Statements ----------------------------------------------------------------------------------

    def follow(self, body, source, is_certain, is_late):
        """is_certain: they run in any case. is_late: perhaps not at all, or in a function: what they import is not planned."""
        for node in body:
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                source.names.imported.update(alias.asname or alias.name.split(".")[0] for alias in node.names)
            if isinstance(node, ast.Import):
                for alias in node.names:
                    self.place = source.path, node.lineno
                    self.want(alias.name, (), is_certain, is_late)
            elif isinstance(node, ast.ImportFrom):
                base = absolute(node, source.package)
                self.place = source.path, node.lineno
                if base:
                    self.want(base, [alias.name for alias in node.names], is_certain, is_late)
            else:
                self.follow_statement(node, source, is_certain, is_late)

    def follow_statement(self, node, source, is_certain, is_late):
        is_open = self.ended is None and not source.is_ours
        nodes = list(source_of.run_by(node)) if is_open or (self.may_change and not source.is_ours) else ()
        if self.may_change or (self.may_end and is_open):
            for name in source_of.called_by(node, nodes):
                self.follow_calls(name)
        constants = source_of.variables_set_by(node, source.names) if is_certain else None
        if constants is not None:
            for name, value in constants:
                self.set_variable(name, value, node, source)
        else:
            for change in source_of.changes_by(node, nodes, source.names):
                self.note(change, source)
            if self.ended is None:
                self.look_for_end(node, nodes, source, is_certain)
        source.keep_path(node)
        self.follow_bodies(node, source, is_certain, is_late)

    def look_for_end(self, node, nodes, source, is_certain):
        ignored = source_of.ignored_warnings(node) if is_certain and not self.is_inside else None
        end = source_of.end_of_plan(nodes, source.names, self.is_caught)
        if ignored is not None:
            self.ignored_since.append(ignored)
        elif end is not None:
            self.ended = source, end.lineno

    def follow_bodies(self, node, source, is_certain, is_late):
        if isinstance(node, source_of.FUNCTIONS):
            return
        if isinstance(node, ast.If):
            holds = source_of.decided(node.test, source.names, source.is_script, self.value_of)
            for body, when in ((node.body, True), (node.orelse, False)):
                if holds in (None, when):
                    self.follow(body, source, is_certain and holds is not None, is_late or holds is None)
            return
        is_plain = isinstance(node, (ast.With, ast.AsyncWith, ast.ClassDef))
        was = self.is_inside, self.is_caught
        self.is_inside, self.is_caught = self.is_inside or is_plain, self.is_caught or source_of.catches_warnings(node)
        is_perhaps = self.is_caught or not (is_plain or hasattr(node, "finalbody"))
        self.follow(getattr(node, "body", []), source, is_certain and is_plain, is_late or is_perhaps)
        self.is_inside, self.is_caught = was
        for inner in [*getattr(node, "handlers", []), *getattr(node, "cases", [])]:
            self.follow(inner.body, source, False, True)
        self.follow(getattr(node, "orelse", []), source, False, True)
        self.follow(getattr(node, "finalbody", []), source, is_certain, is_late)

    def follow_calls(self, name):
        for function, source in self.functions.get(name, ()):
            key = function, self.change is None and not self.set_since, self.ended is None
            if key in self.called or self.depth >= DEPTH_MAX:
                continue
            self.called.add(key)
            source.forget(function.args)
            self.depth += 1
            self.follow(function.body, source, False, True)
            self.depth -= 1

    # Changes -------------------------------------------------------------------------------------

    def value_of(self, name):
        return self.set_since.get(name, self.plan.variables.get(name, os.environ.get(name)))

    def set_variable(self, name, value, node, source):
        if name is None or value is None:
            self.note(source_of.Change("variable", node, name=name), source)
        elif name not in source_of.OF_A_RANK:
            is_default = isinstance(node, ast.Expr) and node.value.func.attr == "setdefault"
            self.set_since[name] = (is_default and self.value_of(name)) or value

    def note(self, change, source):
        if change.what == "variable" and change.name is not None:
            is_absent = change.removes and self.value_of(change.name) is None
            if change.name in source_of.OF_A_RANK or (is_absent and not source_of.is_of_a_rank(change.name)):
                return
        if change.what == "path" and self.takes_folders(change, source):
            return
        self.change = self.change or (source, change)

    def takes_folders(self, change, source):
        """Whether it is known what they hide. Folders at the end hide no installed module."""
        paths = [source_of.path_of(node, source.path, source.paths) for node in change.folders or ()]
        if not change.is_front:
            self.back += [os.path.abspath(path) for path in paths if path is not None]
            return True
        if change.folders is None or not all(path is not None and self.may_be_in_front(os.path.abspath(path)) for path in paths):
            return False
        for path in map(os.path.abspath, paths):
            names = names_in(path)
            self.front.insert(0, (path, names))
            self.plan.own_names |= names
        return True

    def may_be_in_front(self, path):
        """An archive has modules that are not seen here; a folder of installed ones changes which are found."""
        return (os.path.isdir(path) or not os.path.exists(path)) and not (os.path.realpath(path) + os.sep).startswith(self.folders)

    def reach(self, names, is_late):
        """An installed import: all that was changed before it, it sees."""
        if names[0] in self.loaded or all(name in self.wanted for name in names):
            return
        if self.ended is not None:
            self.left = self.left or ("" if is_late else names[0])
            self.learns = self.learns and self.change is None
            return
        if not is_late:
            self.plan.ignored.setdefault(names[0], []).extend(self.ignored_since)
            self.ignored_since = []
        self.plan.variables.update(self.set_since)
        self.set_since = {}
        if self.change is None:
            return
        if is_late:
            self.learns = False
        else:
            self.plan.refusal = self.plan.refusal or refusal_of(*self.change, names[0])

    # Imports -------------------------------------------------------------------------------------

    def want(self, name, members, is_certain, is_late):
        top = name.split(".")[0]
        if top == "__future__":
            return
        for folder, names in self.front:
            if top in names:
                self.own(folder, name, members, is_certain, is_late)
                return
        try:
            spec = importlib.util.find_spec(top)
        except (ImportError, ValueError, AttributeError):
            spec = None
        if spec is None:
            for folder in self.back:
                self.own(folder, name, members, is_certain, is_late)
        elif is_installed(spec.origin, self.folders):
            wanted = [name, *(name + "." + member for member in members)]  # Members are imported only where they are modules.
            self.reach(wanted, is_late)
            if not is_late and self.ended is None:
                for one in wanted:
                    self.wanted.setdefault(one, self.place)
        elif spec.origin and spec.origin.endswith(".py"):  # An own package elsewhere, as one that is installed to be edited.
            folder = os.path.dirname(spec.origin)
            self.own(os.path.dirname(folder) if spec.submodule_search_locations else folder, name, members, is_certain, is_late)

    def own(self, folder, name, members, is_certain, is_late):
        """Reads a module and the packages that it is in, outer ones first; then members that are modules."""
        if is_late and self.change is not None:
            self.learns = False  # It may import anything.
            return
        parts = name.split(".")
        for count in range(1, len(parts) + 1):
            self.own_file(folder, parts[:count], is_certain, is_late)
        for member in members:
            self.own_file(folder, [*parts, member], is_certain, is_late)

    def own_file(self, folder, parts, is_certain, is_late):
        base = os.path.join(folder, *parts)
        for path, package in ((os.path.join(base, "__init__.py"), parts), (base + ".py", parts[:-1])):
            if os.path.isfile(path):
                self.read_file(path, ".".join(package), False, is_certain, is_late)
                return


def absolute(node, package):
    """The module from which a statement imports."""
    if not node.level:
        return node.module
    parts = package.split(".") if package else []
    parts = parts[:len(parts) - node.level + 1]
    return ".".join(parts + ([node.module] if node.module else []))


def refusal_of(source, change, module):
    where = "line %d%s" % (change.line, "" if source.is_script else " of " + source.path)
    if change.what != "variable":
        fix = "put the folder into PYTHONPATH" if change.what == "path" else "change it after the imports"
        return "%s changes sys.%s before the import of %s, to what only running it tells: %s" % (where, change.what, module, fix)
    verb = "removes" if change.removes else "sets"
    fix = "do that before the run, or after the imports"
    return "%s %s %s before the import of %s, to what only running it tells: %s" % (where, verb, change.name or "variables", module, fix)
