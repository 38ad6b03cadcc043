#!/usr/bin/env python3
"""Every text that the programs can say, by the file that says it: to be read, and edited, as one text.

    scripts/messages.py [FOLDER...]     of launcher, worker, common, or of folders below them; Markdown

Taken from the sources: string literals of three words or more, neighbours joined, `{}` where a value stands.
Assertions of the programs' own invariants are left out. Python's standard library only.
"""

import os
import re
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
FOLDERS = ("launcher", "worker", "common")
LITERAL = r'"(?:[^"\\\n]|\\.)*"'
JOINED = re.compile(rf"{LITERAL}(?:\s*{LITERAL})*")
LEFT_OUT = re.compile(rf"(?s)//[^\n]*|#include[^\n]*|SGD_ASSERT\((?:[^\"();]|{LITERAL}|\([^()]*(?:\([^()]*\)[^()]*)*\))*\)|R\"(\w*)\(.*?\)\1\"")


def texts(source):
    """The texts of one file, in their order."""
    kept = LEFT_OUT.sub(lambda match: "" if not match.group(0).startswith("//") or '"' not in match.group(0) else "", source)
    for match in JOINED.finditer(kept):
        text = "".join(part[1:-1] for part in re.findall(LITERAL, match.group(0))).replace('\\"', '"')
        if len(re.findall(r"[A-Za-z]{2,}", text)) > 2 and re.search(r"[a-z]{2} (\{|[a-z(\"])", text):
            yield text


def messages(folders=FOLDERS):
    """(file, its texts) of every source file that has one."""
    for top in folders:
        for folder, below, names in os.walk(os.path.join(ROOT, top)):
            below.sort()
            for name in sorted(names):
                path = os.path.relpath(os.path.join(folder, name), ROOT)
                if name.endswith((".cpp", ".hpp")):
                    with open(os.path.join(ROOT, path), encoding="utf-8") as file:
                        found = list(dict.fromkeys(texts(file.read())))
                    if found:
                        yield path, found


def main():
    for path, found in messages(sys.argv[1:] or FOLDERS):
        print(f"## {path}\n")
        for text in found:
            print("- " + text.replace("\\n", " / "))
        print()


if __name__ == "__main__":
    main()
