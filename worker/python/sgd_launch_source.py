"""What single statements of a script tell without being run: which variable they set, what they change of sys.path and sys.modules,
which folder an expression names, whether a condition holds. Pure but for the environment and the working directory, which are those
of the run. Standard library only; Python 3.8 and newer.
"""

import ast
import builtins
import os
import re

# Each rank has its own, whatever the script sets, and a module that asks for one at import is not preloaded. PYTHONHASHSEED is read at
# the start of Python alone.
OF_A_RANK = {"RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED"}
FRONTS_OF_A_RANK = ("SGD_", "TORCHELASTIC_", "GROUP_", "ROLE_")
GROUPS_OF_A_RANK = {"GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_NAME", "ROLE_RANK", "ROLE_WORLD_SIZE"}

CHANGE_A_MAPPING = {"setdefault", "pop", "popitem", "clear", "update", "__setitem__", "__delitem__", "__ior__"}
CHANGE_A_LIST = {"append", "extend", "insert", "remove", "pop", "clear", "reverse", "sort", "__setitem__", "__delitem__", "__iadd__"}
SET_VARIABLES = {"putenv", "unsetenv", "load_dotenv"}  # Functions, by their last name.
REMOVE = {"pop", "unsetenv", "__delitem__"}
# A file without one of them changes nothing that is looked for here.
WORDS = (b"environ", b"putenv", b"unsetenv", b"load_dotenv", b"addsitedir", b"sys.path", b"sys.modules", b"from sys")
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)
# What modules see, or do, that are imported behind a call of these; so do changes of what an installed module has, and random seeds.
FILTERS = {"filterwarnings", "simplefilter", "resetwarnings"}
END_A_PLAN = FILTERS | {"chdir", "fchdir", "basicConfig", "dictConfig", "fileConfig", "captureWarnings", "set_default_dtype",
                        "set_default_tensor_type", "set_default_device", "setlocale"}
SEEDS = re.compile(r"(^|_)seeds?(_|$)", re.IGNORECASE)
# A file without one of them has no function that ends a plan.
WORDS_OF_ENDS = (*(word.encode() for word in sorted(END_A_PLAN)), b"seed", b"Seed", b"SEED")
BODIES = ("body", "orelse", "finalbody", "handlers", "cases")


class Change:
    """what: "variable", "path" or "modules". name: of the variable, None where it is not told. folders: expressions of those that sys.path
    is given, None where they are not told. is_front: they come before others."""

    def __init__(self, what, node, name=None, folders=None, is_front=True, removes=False):
        self.what, self.line, self.name = what, node.lineno, name
        self.folders, self.is_front, self.removes = folders, is_front, removes


class Names:
    """What a file calls os.environ, sys.path and sys.modules, and what it has imported so far."""

    def __init__(self, tree, may_change):
        self.environ, self.path, self.modules = {"environ"}, set(), set()
        self.imported = set()
        for node in ast.walk(tree) if may_change else ():
            if isinstance(node, ast.ImportFrom) and node.module in ("os", "sys"):
                for alias in node.names:
                    if alias.name in ("environ", "path", "modules") and (alias.name == "environ") == (node.module == "os"):
                        getattr(self, alias.name).add(alias.asname or alias.name)
            elif isinstance(node, ast.Assign) and self.is_environ(node.value):
                self.environ.update(target.id for target in node.targets if isinstance(target, ast.Name))

    def is_environ(self, node):
        return isinstance(node, ast.Attribute) and node.attr == "environ" or isinstance(node, ast.Name) and node.id in self.environ

    def is_of_sys(self, node, what):
        if isinstance(node, ast.Name):
            return node.id in getattr(self, what)
        return isinstance(node, ast.Attribute) and node.attr == what and isinstance(node.value, ast.Name) and node.value.id.strip("_") == "sys"

    def what(self, node):
        if self.is_environ(node):
            return "variable"
        return next((what for what in ("path", "modules") if self.is_of_sys(node, what)), "")


def is_of_a_rank(name):
    return name in OF_A_RANK or name.startswith(FRONTS_OF_A_RANK)


def differs_between_ranks(name):
    """What the launcher sets for each of them. GROUP_NAME may be the user's own."""
    return name != "PYTHONHASHSEED" and is_of_a_rank(name) and not (name.startswith(("GROUP_", "ROLE_")) and name not in GROUPS_OF_A_RANK)


def root_name(node):
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def catches_warnings(node):
    """Kinds of warnings that are set in it hold until its end."""
    return any(last_name(getattr(item.context_expr, "func", None)) == "catch_warnings" for item in getattr(node, "items", ()))


def end_of_plan(nodes, names, is_caught):
    """The node of a statement for which modules that are imported behind it are left to each rank, or None. nodes: run_by() of it.
    is_caught: see catches_warnings()."""
    for node in nodes:
        if isinstance(node, ast.Call):
            function = last_name(node.func)
            is_set = function == "setattr" and node.args and root_name(node.args[0]) in names.imported
            if (function in END_A_PLAN and not (is_caught and function in FILTERS)) or is_set or SEEDS.search(function):
                return node
        elif isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            if root_name(node) in names.imported and not names.what(node.value if isinstance(node, ast.Subscript) else node):
                return node
    return None


def ignored_warnings(statement):
    """(function, arguments, words) of a call that has warnings ignored, and does nothing else; None of another statement."""
    call = statement.value if isinstance(statement, ast.Expr) else None
    if not isinstance(call, ast.Call) or last_name(call.func) not in FILTERS:
        return None
    arguments = [plain(node) for node in call.args]
    words = {word.arg: plain(word.value) for word in call.keywords}
    is_plain = None not in arguments and None not in words and None not in words.values()
    return (last_name(call.func), arguments, words) if is_plain and "ignore" in (words.get("action"), *arguments[:1]) else None


def plain(node):
    """A text, a number or a kind of warning; None of anything else."""
    if isinstance(node, ast.Constant):
        return node.value
    kind = getattr(builtins, node.id, None) if isinstance(node, ast.Name) else None
    return kind if isinstance(kind, type) and issubclass(kind, Warning) else None


def constant(node):
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else None


def place_of(node):
    """What is between the brackets."""
    place = node.slice
    return getattr(place, "value", place) if place.__class__.__name__ == "Index" else place  # Python 3.8.


def last_name(node):
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def run_by(node):
    """The nodes that run with a statement: not what is in functions that it defines, and not the statements in it."""
    waiting = [node]
    while waiting:
        one = waiting.pop()
        yield one
        skipped = BODIES if isinstance(one, (ast.stmt, *FUNCTIONS)) else ()
        for field, value in ast.iter_fields(one):
            if field not in skipped:
                waiting += [child for child in (value if isinstance(value, list) else [value]) if isinstance(child, ast.AST)]


def definitions_in(body):
    """Functions and classes, whatever they are in."""
    waiting = list(body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            yield node
        for field in BODIES:
            waiting += getattr(node, field, ())


def variables_set_by(node, names):
    """[(name, value)] of a statement that does nothing but set variables; None of either where only running it tells. None: another one."""
    if isinstance(node, ast.Assign):
        if all(isinstance(target, ast.Subscript) and names.is_environ(target.value) for target in node.targets):
            return [(constant(place_of(target)), constant(node.value)) for target in node.targets]
        return None
    call = node.value if isinstance(node, ast.Expr) else None
    if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
        return None
    if call.func.attr == "putenv" and len(call.args) == 2:
        return [(constant(call.args[0]), constant(call.args[1]))]
    if not names.is_environ(call.func.value):
        return None
    if call.func.attr == "setdefault" and len(call.args) == 2:
        name = constant(call.args[0])
        return [(name, os.environ.get(name, constant(call.args[1])) if name else None)]
    return updated_by(call) if call.func.attr == "update" else None


def updated_by(call):
    found = [(word.arg, constant(word.value)) for word in call.keywords]
    for argument in call.args:
        if not isinstance(argument, ast.Dict):
            return [(None, None)]
        found += [(constant(key) if key else None, constant(value)) for key, value in zip(argument.keys, argument.values)]
    return found


def changes_by(statement, nodes, names):
    """What a statement changes. nodes: run_by() of it."""
    if isinstance(statement, ast.AugAssign) and names.is_of_sys(statement.target, "path"):
        return [Change("path", statement, folders=elements(statement.value), is_front=False)]
    found = []
    for node in nodes:
        if isinstance(node, ast.Call):
            found += change_by_call(node, names)
        elif isinstance(node, (ast.Subscript, ast.Attribute)) and isinstance(node.ctx, (ast.Store, ast.Del)):
            what = names.what(node.value if isinstance(node, ast.Subscript) else node)
            name = constant(place_of(node)) if isinstance(node, ast.Subscript) else None
            found += [Change(what, node, name=name, removes=isinstance(node.ctx, ast.Del))] if what else []
        elif isinstance(node, ast.AugAssign) and names.what(node.target):
            found.append(Change(names.what(node.target), node))
    return found


def change_by_call(node, names):
    function = last_name(node.func)
    first = constant(node.args[0]) if node.args else None
    if function in SET_VARIABLES:
        return [Change("variable", node, name=first, removes=function in REMOVE)]
    if function == "addsitedir":
        return [Change("path", node, folders=node.args[:1], is_front=False)]
    if function == "dict" and isinstance(node.func, ast.Attribute) and node.args and (first == "os.environ" or names.is_environ(node.args[0])):
        return [Change("variable", node)]  # mock.patch.dict.
    what = names.what(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    if what == "path" and function in CHANGE_A_LIST:
        folders = {"append": node.args[:1], "insert": node.args[1:2], "extend": elements(node.args[0]) if node.args else None}.get(function)
        return [Change("path", node, folders=folders, is_front=function == "insert" or folders is None)]
    if what in ("variable", "modules") and function in CHANGE_A_MAPPING:
        return [Change(what, node, name=first, removes=function in REMOVE)]
    return []


def elements(node):
    return node.elts if isinstance(node, (ast.List, ast.Tuple)) else [node]


def called_by(statement, nodes):
    """Last names of what a statement calls, or hands over to be called. nodes: run_by() of it."""
    decorators = getattr(statement, "decorator_list", [])
    found = [last_name(node) for node in decorators]
    for node in nodes:
        if isinstance(node, ast.Call):
            found.append(last_name(node.func))
            found += [last_name(value) for value in [*node.args, *(word.value for word in node.keywords)]]
    return [name for name in found if name]


def decided(test, names, is_script, value_of):
    """Whether a condition holds, None where only running it tells. value_of(name): of a variable, or None."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        inner = decided(test.operand, names, is_script, value_of)
        return None if inner is None else not inner
    if last_name(test) == "TYPE_CHECKING":
        return False
    if isinstance(test, ast.Constant):
        return bool(test.value)
    if not isinstance(test, ast.Compare) or len(test.ops) != 1:
        return None
    left, operator, right = test.left, test.ops[0], test.comparators[0]
    if "__name__" in (last_name(left), last_name(right)) and "__main__" in (constant(left), constant(right)):
        return is_script if isinstance(operator, ast.Eq) else not is_script if isinstance(operator, ast.NotEq) else None
    name = constant(left)
    if isinstance(operator, (ast.In, ast.NotIn)) and names.is_environ(right) and name and not is_of_a_rank(name):
        return (value_of(name) is not None) == isinstance(operator, ast.In)
    return None


def join(*parts):
    return os.path.join(*parts)


# Of os.path, of pathlib, and of what makes a text of a path.
OF_PATHS = {"dirname": os.path.dirname, "abspath": os.path.abspath, "realpath": os.path.realpath, "normpath": os.path.normpath,
            "expanduser": os.path.expanduser, "join": join, "joinpath": join, "Path": join, "PurePath": join, "str": str, "fspath": str,
            "as_posix": str, "resolve": os.path.realpath, "absolute": os.path.abspath, "getcwd": os.getcwd, "cwd": os.getcwd}
METHODS = {"joinpath", "resolve", "absolute", "as_posix", "expanduser"}


def path_of(node, file, known):
    """The path that an expression names, None where only running it tells. known: paths of the file's variables."""
    if isinstance(node, ast.Constant):
        return constant(node)
    if isinstance(node, ast.Name):
        return file if node.id == "__file__" else known.get(node.id)
    if isinstance(node, ast.Attribute):
        if node.attr in ("pardir", "curdir"):
            return getattr(os, node.attr)
        inner = path_of(node.value, file, known) if node.attr == "parent" else None
        return None if inner is None else os.path.dirname(inner) or "."
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Div, ast.Add)):
        parts = [path_of(one, file, known) for one in (node.left, node.right)]
        return None if None in parts else join(*parts) if isinstance(node.op, ast.Div) else "".join(parts)
    if isinstance(node, ast.JoinedStr):
        parts = [path_of(getattr(one, "value", one) if isinstance(one, ast.FormattedValue) else one, file, known) for one in node.values]
        return None if None in parts or any(getattr(one, "format_spec", None) for one in node.values) else "".join(parts)
    if isinstance(node, ast.Subscript):
        return parent_at(node, file, known)
    if not isinstance(node, ast.Call) or node.keywords:
        return None
    function = last_name(node.func)
    is_method = function in METHODS and isinstance(node.func, ast.Attribute) and last_name(node.func.value) != "path"
    parts = [path_of(one, file, known) for one in ([node.func.value] if is_method else []) + node.args]
    if function not in OF_PATHS or None in parts:
        return None
    try:
        return OF_PATHS[function](*parts)
    except (TypeError, ValueError, OSError):
        return None


def parent_at(node, file, known):
    """path.parents[2]"""
    place = place_of(node)
    if not (isinstance(node.value, ast.Attribute) and node.value.attr == "parents" and isinstance(place, ast.Constant) and
            type(place.value) is int and place.value >= 0):
        return None
    path = path_of(node.value.value, file, known)
    for _ in range(min(place.value + 1, 64) if path is not None else 0):
        path = os.path.dirname(path)
    return path
