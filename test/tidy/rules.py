"""The source rules that a compiler cannot hold. Each takes a Tree and returns its findings.

A line that must break a rule says so itself: "// tidy: allow RULE: reason" in the same line or the one above it.
"""

import ast
import json
import re

from limits import limits_have_tests
from source import Finding, code_only, cpp_files, functions, includes, lines_matching

FILE_LINES_MAX = 500
FUNCTION_LINES_MAX = 70
MAIN_LINES_MAX = 80

_PURE = ("launcher/tune", "launcher/core")
_SHELLS = ("launcher/net", "launcher/process", "launcher/storage", "launcher/http")
_CALLBACKS = "launcher/callbacks"
_RENDEZVOUS = "launcher/rendezvous"
_SHIPPING = "launcher/shipping"
_DAEMONS = ("launcher/keeper", "launcher/coordinator", "launcher/agent")
_WARM = "launcher/warm"
_DOCTOR = "launcher/doctor"
_CLIENT = "launcher/client"
_TOP = ("launcher/cli", "launcher/main.cpp")

# What the files of a folder may include, by the front of the header's path.
ARROWS = {
    "common": ("common",),
    "launcher/tune": ("common", "launcher/tune"),
    "launcher/core": ("common", "launcher/tune", "launcher/core"),
    **{shell: ("common", *_PURE, shell) for shell in _SHELLS},
    _CALLBACKS: ("common", *_PURE, "launcher/process", "launcher/storage", _CALLBACKS),
    _RENDEZVOUS: ("common", *_PURE, "launcher/net", "launcher/process", _RENDEZVOUS),
    _SHIPPING: ("common", *_PURE, "launcher/net", "launcher/storage", _SHIPPING),
    **{daemon: ("common", *_PURE, *_SHELLS, _CALLBACKS, _SHIPPING, daemon) for daemon in _DAEMONS},
    _WARM: ("common", *_PURE, "launcher/process", "launcher/agent", _WARM),
    _DOCTOR: ("common", *_PURE, "launcher/process", _DOCTOR),
    _CLIENT: ("common/exit_codes.hpp", _CLIENT),
    **{top: ("common", "launcher") for top in _TOP},
    "worker/core": ("common", "worker/core"),
    "worker/data": ("common", "worker/core", "worker/data"),
    "worker/link": ("common", "worker/core", "worker/link"),
    "worker/collective": ("common", "worker/core", "worker/link", "worker/collective"),
    "worker/measure": ("common", "worker/core", "worker/collective", "worker/include", "worker/measure"),
    "worker/torch": ("common", "worker"),
    "worker/plugin": ("common", "worker/include", "worker/plugin"),
    "worker/standalone": ("common", "worker/link", "worker/plugin", "worker/standalone"),
    "worker/builtin": ("worker/include", "worker/builtin"),
    "worker/examples": ("worker/include",),
    "worker/include": ("worker/include",),
    "worker/program": ("common", "worker"),
    "worker/main.cpp": ("common", "worker"),
}
OUR_FRONTS = ("common/", "launcher/", "worker/", "test/")

# Outside headers that only some folders may see: pattern, folders, why.
OUTSIDE = (
    (r"^(torch|ATen|c10)/", ("worker/torch", "worker/measure", "worker/plugin", "worker/builtin", "worker/examples", "worker/include", "worker/main.cpp",
                             _CLIENT + "/include", "test"),
     "LibTorch belongs to worker/torch, worker/builtin and the public headers: it costs 12 s a file and 125 MB a process"),
    (r"^gloo/", ("worker/collective", "test"), "Gloo belongs to its module in worker/collective"),
    (r"^boost/asio", (*_SHELLS, _CALLBACKS, *_DAEMONS, _WARM, *_TOP, "test", "third_party"), "Asio belongs to shells; take time and facts as arguments"),
    (r"^openssl/", ("launcher/net", "test"), "OpenSSL belongs to launcher/net: take its values (digest.hpp, tls_context.hpp)"),
    (r"^nlohmann/", ("common/json/nlohmann.hpp", "worker/include", _CLIENT), "include common/json/nlohmann.hpp: its types are compiled once"),
    (r"^boost/program_options", ("launcher/cli/command_line.cpp",), "options are a table: launcher/cli/command_line.hpp reads them"),
    (r"^boost/process", ("launcher/process", *_DAEMONS, "test"), "processes belong to launcher/process and the keeper"),
)
IMPURE = (r"^(thread|mutex|condition_variable|future|filesystem|iostream|fstream|unistd\.h|fcntl\.h|"
          r"ctime|sys/.*|boost/(asio|process|filesystem).*|spdlog/.*)$")
CORES = ("common", *_PURE, "worker/core", "worker/data")


def _under(path, folders):
    return any(path == folder or path.startswith(folder + "/") for folder in folders)


def _allowed(text, line, rule):
    lines = text.split("\n")
    return any(re.search(rf"//\s*tidy: allow {rule}: \S", lines[number]) for number in (line - 1, line - 2) if number >= 0)


def include_arrows(tree):
    """Folders include only what lies before them; see "Folders" in the README."""
    found = []
    for path, text in cpp_files(tree, "common", "launcher", "worker"):
        layer = next((front for front in ARROWS if _under(path, (front,))), None)
        if layer is None:
            found.append(Finding(path, 1, "this folder has no place in the include arrows; give it one in test/tidy/rules.py"))
            continue
        for line, header, angled in includes(text):
            if header.startswith(OUR_FRONTS):
                if not _under(header, ARROWS[layer]):
                    found.append(Finding(path, line, f"{layer} may not include {header}; it may include: {', '.join(ARROWS[layer])}"))
            elif not angled and not (header.startswith("sgd/") and layer.startswith("worker/")):
                found.append(Finding(path, line, f'"{header}": name it from the root of the project, as "folder/file.hpp"'))
    return found


def outside_headers(tree):
    """LibTorch, Gloo, Asio and processes stay in their folders."""
    found = []
    for path, text in cpp_files(tree):
        for line, header, _ in includes(text):
            for pattern, folders, why in OUTSIDE:
                if re.search(pattern, header) and not _under(path, folders):
                    found.append(Finding(path, line, f"<{header}> is not for this folder: {why}"))
    return found


def pure_core(tree):
    """launcher/core and launcher/tune see no thread, file, clock, random device or stream."""
    found = []
    for path, text in cpp_files(tree, *_PURE):
        for line, header, _ in includes(text):
            if re.search(IMPURE, header):
                found.append(Finding(path, line, f"<{header}> in the pure core: let a shell do it and bring the result as an event"))
    return found


# Pattern, folders where it is banned (all when empty), file names that are exempt, what to write instead.
BANNED = (
    ("clock", r"::now\s*\(|\b(clock_gettime|gettimeofday)\s*\(|\btime\s*\(\s*(nullptr|NULL|0)\s*\)", CORES, r"clock",
     "take `now` as an argument; only shells and files named clock read clocks"),
    ("random", r"\brandom_device\b|(?<![\w.>])(?<!at::)(?<!torch::)s?rand\s*\(", (), r"random|main\.cpp$",
     "draw from the generator that was handed in; seeds are made in main"),
    ("sleep", r"\b(sleep_for|sleep_until|usleep|nanosleep)\s*\(|(?<![\w.>:])sleep\s*\(", (), r"^$",
     "wait for the condition with a deadline"),
    # Tensors have such a member, too.
    ("detach", r"\.detach\s*\(|\basio::detached\b", (), r"^(test/plugins|worker/(examples|builtin))/", "own it: join it, or spawn it through a task scope"),
    ("co_await", r"co_await\b.*[\[{]|[\[{].*\bco_await\b", (), r"^$",
     "name the value first: g++ 12 miscompiles lambdas and braces in an expression with co_await"),
    ("using_namespace", r"\busing\s+namespace\s+(std|boost|asio|torch|at|c10|nlohmann|fmt|gloo)\b(?!(::\w+)*::\w*literals\s*;)", (), r"^$",
     "name what you use"),
    ("using_namespace", r"^using\s+namespace\s+(?!(\w+::)*\w*literals\s*;)(?!std\b)", (), r"^test/",
     "inside a function or a test at most, and only one of ours"),
    ("using_namespace", r"\busing\s+namespace\s+(?!std\b)", (), r"\.cpp$", "never in a header"),
    ("thread", r"\bstd::j?thread\b", ("common", "launcher"), r"^launcher/storage/|^common/base/thread\.", "use the storage thread, or post to the loop"),
    ("start_thread", r"\bstd::j?thread(\s+\w+)?\s*[({]", ("common", "launcher"), r"^common/base/thread\.",
     "start_thread() of common/base/thread.hpp says when there is no room for one; std::thread throws then"),
    ("regex", r"\bstd::w?s?regex\b", ("common", "launcher", "worker"), r"^$",
     "std::regex recurses for each character: a long text ends the process; common/json/pattern.hpp does not"),
    ("assert", r"(?<![\w.:])assert\s*\(", (), r"^$", "use SGD_ASSERT, which stays on in every build"),
    ("library_text", r"(\.|->)what\s*\(\s*\)", ("common", "launcher"), r"^launcher/cli/last_words\.cpp$|^common/json/reader\.cpp$",
     "a library's words are for programmers: say it in ours"),
    ("lenient_json", r"(\.|->)(value|at)\(\s{3,}|(\.|->)get<", ("launcher/cli",), r"local_run_control",  # It is asked: what makes no sense is refused.
     "files and answers may be damaged: read_or() and member() of common/json/lenient.hpp do not throw"),
    # The library for programs of users throws what its own page says.
    ("stream_text", r"\bistreambuf_iterator\b", ("common", "launcher"), r"^launcher/client/",
     "a stream throws there when a read fails: json::text_of_file() and json::read_file() of common/json/json_file.hpp do not"),
    ("folder_loop", r"\bfor\s*\([^;]*\s:\s[^;]*directory_iterator\b", ("common", "launcher"), r"^launcher/client/", "such a loop throws when a folder cannot be read on: increment(error) does not"),
    ("shell", r"(?<![\w.>:])(::|std::)?(system|popen)\s*\(", (), r"^$", "spawn with an argument list; nothing reaches a shell"),
)


def banned_calls(tree):
    """Calls that hide time, chance, waiting or lifetimes."""
    found = []
    for path, text in cpp_files(tree):
        code = code_only(text)
        for name, pattern, folders, exempt, instead in BANNED:
            if (folders and not _under(path, folders)) or re.search(exempt, path):
                continue
            for line, match in lines_matching(code, pattern):
                if name == "co_await" and re.fullmatch(r"[^\[{]*\{", match.string.rstrip()):
                    continue  # Only the brace that opens a block.
                if not _allowed(text, line, name):
                    found.append(Finding(path, line, f"{match.group(0).strip()[:40]}: {instead} ({name})"))
    return found


# Instructions of one kind of CPU, in code whose strings are blanked.
_ONE_CPU = (r"\b(__builtin_(ia32|cpu|aarch64)_\w+|_mm\d*_\w+|__m(128|256|512)\w*|__crc32c?\w\b)"
            r"|#\s*include\s*<(\w+intrin|arm_\w+)\.h>|__attribute__\(\(target(_clones)?\(")


def one_cpu(tree):
    """What only some CPUs have is behind the name of the architecture, so that others can compile the file."""
    found = []
    for path, text in cpp_files(tree):
        conditions = []
        for number, line in enumerate(code_only(text).split("\n"), 1):
            if opened := re.match(r"\s*#\s*if(?:n?def)?\b(.*)", line):
                conditions.append(opened.group(1))
            elif other := re.match(r"\s*#\s*elif\b(.*)", line):
                conditions[-1] += other.group(1)
            elif re.match(r"\s*#\s*endif\b", line):
                conditions.pop()
            elif (match := re.search(_ONE_CPU, line)) and not re.search(r"__(x86_64|aarch64)__", " ".join(conditions)):
                found.append(Finding(path, number, f"{match.group(0).strip()}: put it behind #if defined(__x86_64__), with what other CPUs do"))
    return found


def parsed_streams(tree):
    """A text is read first, and parsed then."""
    found = []
    for path, text in cpp_files(tree):
        code = code_only(text)
        for stream in set(re.findall(r"\bifstream\s+(\w+)", code)) if _under(path, ("common", "launcher")) else ():
            found += [Finding(path, line, f"{stream} is parsed, which throws when a read fails: json::read_file() does not")
                      for line, _ in lines_matching(code, rf"\bparse\s*\(\s*{stream}\s*[,)]")]
    return found


def file_length(tree):
    """One idea a file."""
    return [Finding(path, FILE_LINES_MAX + 1, f"{len(text.splitlines())} lines, at most {FILE_LINES_MAX}: split it by idea")
            for path, text in tree.items()
            if path.endswith((".cpp", ".hpp", ".py", ".sh")) and len(text.splitlines()) > FILE_LINES_MAX]


def function_length(tree):
    """A function fits a screen."""
    found = []
    for path, text in tree.items():
        for first, last, name in _functions_of(path, text):
            limit = MAIN_LINES_MAX if re.search(r"\bmain\b", name) else FUNCTION_LINES_MAX
            if last - first + 1 > limit:
                found.append(Finding(path, first, f"{last - first + 1} lines, at most {limit}: {name[:60]}"))
    return found


def _functions_of(path, text):
    if path.endswith((".cpp", ".hpp")):
        return functions(text)
    if path.endswith(".py"):
        return [(node.lineno, node.end_lineno, node.name) for node in ast.walk(ast.parse(text))
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    return []


def unfinished(tree):
    """No note to oneself stays in the tree."""
    words = r"\b(" + "|".join(("TO" + "DO", "FIX" + "ME", "X" * 3)) + r")\b"
    return [Finding(path, line, f"{match.group(0)}: do it, or write it down where work is planned")
            for path, text in tree.items() for line, match in lines_matching(text, words)]


def machine_paths(tree):
    """Nothing depends on one machine's folders."""
    pattern = r"(?<![\w.$}/])/(" + "root|home/[a-z]|work|farm" + r")\b/?"
    return [Finding(path, line, f"{match.group(0)}: a path of one machine; derive it, or take it as an argument")
            for path, text in tree.items() for line, match in lines_matching(text, pattern)]


def pragma_once(tree):
    """Headers start with #pragma once."""
    return [Finding(path, 1, "starts with #pragma once") for path, text in cpp_files(tree)
            if path.endswith(".hpp") and not text.startswith("#pragma once\n")]


def opening_comment(tree):
    """A header says first what problem it solves, what it does not do, and its invariant."""
    return [Finding(path, 2, "open with a comment: the problem, what is not done here, the invariant")
            for path, text in cpp_files(tree)
            if path.endswith(".hpp") and not re.match(r"#pragma once\n\s*//", text)]


def folder_readme(tree):
    """Each folder says what lives there."""
    folders = {path.rsplit("/", 1)[0] for path in tree if path.endswith((".cpp", ".hpp", ".py"))}
    wanted = {folder for folder in folders if folder.count("/") == 1 and folder.startswith(("launcher/", "worker/", "test/"))}
    wanted |= {folder.split("/")[0] for folder in folders} | {path.split("/")[0] for path in tree if path.startswith("third_party/")}
    return [Finding(folder + "/README.md", 1, "is missing: what lives there, how data flows, what may not enter")
            for folder in sorted(wanted) if folder + "/README.md" not in tree]


def header_is_used(tree):
    """A header nobody includes is dead, or its user forgot it."""
    used = {header for _, text in cpp_files(tree) for _, header, _ in includes(text)}
    used |= {f"{path.rsplit('/', 1)[0]}/{header}" for path, text in cpp_files(tree, "test") for _, header, _ in includes(text)}
    used |= {f"test/support/catch3/{header}" for _, text in cpp_files(tree) for _, header, is_angled in includes(text) if is_angled}
    return [Finding(path, 1, "no file includes this header: use it or remove it") for path, _ in cpp_files(tree)
            if path.endswith(".hpp") and path not in used and not path.startswith(("worker/include/", _CLIENT + "/include/"))]


def presets_refuse_warnings(tree):
    """A warning is an error in every preset that can be configured."""
    path = "CMakePresets.json"
    presets = {preset["name"]: preset for preset in json.loads(tree[path])["configurePresets"]} if path in tree else {}
    found = []
    for name, preset in presets.items():
        at = preset
        while "SGD_WERROR" not in at.get("cacheVariables", {}) and "inherits" in at:
            at = presets[at["inherits"]]
        if at.get("cacheVariables", {}).get("SGD_WERROR") != "ON" and not preset.get("hidden"):
            found.append(Finding(path, 1, f"preset {name}: SGD_WERROR must be ON"))
    return found


ALL = (include_arrows, outside_headers, pure_core, banned_calls, one_cpu, parsed_streams, file_length, function_length, unfinished,
       machine_paths, pragma_once, opening_comment, folder_readme, header_is_used, presets_refuse_warnings, limits_have_tests)
