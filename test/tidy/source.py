"""The source tree as text, and just enough of C++ to judge it.

A Tree is a mapping from relative path to text, so that a rule's own test can hand it a planted violation. C++ is
not parsed: comments and strings are blanked (lines keep their numbers), and functions are found by their braces.
"""

import os
import re

# In a linked work tree .git is a file.
SKIPPED = {".git", "build", "runs", ".cache", "__pycache__"}
CPP_ENDINGS = (".cpp", ".hpp")
TEXT_ENDINGS = CPP_ENDINGS + (".py", ".md", ".txt", ".cmake", ".json", ".sh", ".yml", "")

_TOKEN = re.compile(
    r"""//[^\n]*|/\*.*?\*/|R"(?P<mark>[^()\s\\]{0,16})\(.*?\)(?P=mark)"|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])+'""", re.S)
_DIGIT_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")
_CONTROL = re.compile(r"^\s*(?:\}?\s*else\b|do\b|if\b|for\b|while\b|switch\b|catch\b|try\b)")
_NOT_A_FUNCTION = re.compile(r"\b(?:namespace|class|struct|enum|union|extern)\b[^()]*$")
_INIT_BRACE = re.compile(r"\)\s*(?:noexcept\s*)?:(?!:).*[\w>]\s*$", re.S)


class Finding:
    """One broken rule: where, and what to do instead."""

    def __init__(self, path, line, message):
        self.path, self.line, self.message = path, line, message

    def __str__(self):
        return f"{self.path}:{self.line}: {self.message}"


def load_tree(root):
    """Every text file under `root`, except what a build or a run made."""
    tree = {}
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - SKIPPED)
        for name in sorted(set(names) - SKIPPED):
            path = os.path.join(folder, name)
            if os.path.splitext(name)[1] not in TEXT_ENDINGS or os.path.islink(path):
                continue
            try:
                with open(path, encoding="utf-8") as file:
                    tree[os.path.relpath(path, root)] = file.read()
            except UnicodeDecodeError:
                continue
    return tree


def cpp_files(tree, *folders):
    """(path, text) of the C++ files under the given folders, all of them when none is given."""
    for path, text in tree.items():
        if path.endswith(CPP_ENDINGS) and (not folders or path.startswith(tuple(f + "/" for f in folders))):
            yield path, text


def code_only(text):
    """The text with comments, strings and characters blanked; every line keeps its number."""

    def blank(match):
        return re.sub(r"[^\n]", " ", match.group(0))

    return _TOKEN.sub(blank, _DIGIT_SEPARATOR.sub("_", text))


def lines_matching(text, pattern):
    """(line number, match) of each line of `text` that `pattern` finds."""
    for number, line in enumerate(text.split("\n"), 1):
        match = re.search(pattern, line)
        if match:
            yield number, match


def includes(text):
    """(line number, header, is_angled) of each include."""
    for number, match in lines_matching(text, r'^\s*#\s*include\s*([<"])([^>"]+)[>"]'):
        yield number, match.group(2), match.group(1) == "<"


def functions(text):
    """(first line, last line, head) of each outermost function body: head line to closing brace."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group(0)), code_only(text), flags=re.M)
    stack, head_begin, line, head_line, found = [], 0, 1, 1, []
    for position, char in enumerate(code):
        if char == "\n":
            line += 1
        elif char == "{":
            head = code[head_begin:position]
            inside = any(kind == "function" for kind, _, _ in stack)
            if not inside and _INIT_BRACE.search(head) and not re.search(r"\b(?:const|noexcept|override|final)\s*$", head):
                stack.append(("init", 0, ""))
                continue
            is_function = (not inside and ")" in head and not _CONTROL.match(head) and not _NOT_A_FUNCTION.search(head)
                           and not re.search(r"=\s*$|\breturn\b", head))
            first = head_line + head[: len(head) - len(head.lstrip())].count("\n")
            stack.append(("function" if is_function else "block", first, " ".join(head.split())))
            head_begin, head_line = position + 1, line
        elif char == "}" and stack:
            kind, first, head = stack.pop()
            if kind == "init":
                continue
            if kind == "function":
                found.append((first, line, head))
            head_begin, head_line = position + 1, line
        elif char == ";" and not _open_parenthesis(code, head_begin, position):
            head_begin, head_line = position + 1, line
    return found


def _open_parenthesis(code, begin, end):
    """Whether a parenthesis is open at `end`: a semicolon inside for (;;) does not end a head."""
    head = code[begin:end]
    return head.count("(") > head.count(")")
