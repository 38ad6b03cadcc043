"""Pages for people as programs: the code blocks of a Markdown file in their order, to be carried out and compared with what is said."""

import os
import re

from harness import ROOT


class Block:
    """One code block: its kind ("sh", "cpp", "" for output), its text, and the words of the line before it."""

    def __init__(self, kind, text, introduction):
        self.kind, self.text, self.introduction = kind, text, introduction

    def file_name(self):
        """Of a block that is a file: the page names it at the introduction's front, in backticks; None: no file."""
        match = re.match(r"`([\w./]+)`", self.introduction)
        return match and match.group(1)

    def commands(self):
        """The lines of shell, without comments."""
        return [re.sub(r"\s+# .*", "", line) for line in self.text.splitlines() if line.strip()]


def blocks(page, kind=None):
    """All blocks of a page of the tree, or those of a kind."""
    with open(os.path.join(ROOT, page), encoding="utf-8") as file:
        text = file.read()
    found = []
    for match in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.S | re.M):
        before = text[: match.start()].rstrip("\n").rsplit("\n", 1)[-1]
        found.append(Block(match.group(1), match.group(2), before))
    return [block for block in found if kind in (None, block.kind)]


def lines(page, kind):
    """The lines of all blocks of a kind, without comments."""
    return [line for block in blocks(page, kind) for line in block.commands()]


# What may be otherwise in another run, and what stands for it.
OTHERS = ((r"\d{8}-\d{6}-[0-9a-f]{4}", r"\d{8}-\d{6}-[0-9a-f]{4}"), (r", \d+ steps redone", r"(?:, \d+ steps redone)?"), (r"from memory", "from (?:memory|disk)"),
          (r"/home/\S+", r"/\S+"), (r"0-1 ×2(?=: )", r"(?:0-1 [×x]2|0|1)"), (r" at \d+$", r"(?: at \d+)?"),
          (r"in \d[\d.]* s\b", r"in (?:\d+ min )?\d[\d.]* s"),
          (r"\d[\d.]*(?:,\d{3})*(?:e[-+]?\d+)?[kM]?", r"\d[\d.]*(?:,\d{3})*(?:e[-+]?\d+)?[kM]?"), (r"\bstepping\b", r"\w+"), (r"[ \t]+", r"\s+"))


def pattern(line):
    """A line of output with other numbers, run ids, states, widths of columns and curves."""
    if "│" in line:
        return re.compile(".*│.*")
    made = ""
    for part in re.split(f"({'|'.join(kind for kind, _ in OTHERS)})", line.strip()):
        made += next((other for kind, other in OTHERS if re.fullmatch(kind.replace("(?=: )", ""), part)), re.escape(part))
    return re.compile(made)


def missing_line(wanted, said):
    """The first line of a block of output that does not stand in `said`, in the block's order; None: all do. "..." is any number of lines."""
    rest = iter(said.splitlines())
    for line in wanted.splitlines():
        if line.strip() in ("", "..."):
            continue
        match = pattern(line)
        if not any(match.fullmatch(one.strip()) for one in rest):
            return line
    return None
