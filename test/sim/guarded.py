"""Several planted bugs in one program: each change of a patch becomes a branch that is taken when SGD_PLANTED names the
patch, and the code as it was otherwise. So ten bugs cost one compilation. What cannot be written as a branch (a
declaration, half a statement) is refused: planted.py builds it by itself.
"""

import difflib
import re

HEADER = "namespace sgd { [[nodiscard]] bool is_planted(const char* name); }\n"
PROGRAM = """#include <cstdlib>
#include <cstring>
namespace sgd {
[[nodiscard]] bool is_planted(const char* name) {
  static const char* const kWanted = std::getenv("SGD_PLANTED");
  return kWanted != nullptr && std::strcmp(kWanted, name) == 0;
}
}  // namespace sgd
"""


def changes_of(before, after):
    """[(first line of `before` that goes, lines that go, lines that come)], lines from 0."""
    old, new = before.split("\n"), after.split("\n")
    blocks = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return [(i, old[i:j], new[k:m]) for kind, i, j, k, m in blocks if kind != "equal"]


def bare(line):
    return re.sub(r"\s*//.*", "", line).strip()


def is_whole(lines):
    """Whether these are statements from their first word to their last sign, and declare nothing for those behind."""
    text = "\n".join(bare(line) for line in lines)
    if any(text.count(a) != text.count(b) for a, b in ("()", "{}")):
        return False
    if text.strip() and not text.rstrip().endswith((";", "}")):
        return False
    return not re.match(r"(const |auto |std::\w+<|[A-Z]\w*&? \w+( =|;))", text)


def condition_of(line):
    """(before, condition, behind) of a line such as "  } else if (condition) {"."""
    found = re.match(r"^(\s*(?:\} else )?if \()((?:[^;])*)(\)(?: \{| continue;| break;| return[^;]*;)?\s*(?://.*)?)$", line)
    return found.groups() if found else None


def guard(name, gone, come):
    """The lines that stand for both; nothing where that cannot be."""
    if len(gone) == 1 and len(come) == 1:
        old, new = condition_of(gone[0]), condition_of(come[0])
        if old and new and old[0] == new[0] and old[2] == new[2] and bare(gone[0]).endswith("{"):
            return [f'{old[0]}::sgd::is_planted("{name}") ? ({new[1]}) : ({old[1]}){old[2]}']
        value = [re.match(r"^(\s*(?:const )?[\w:]+ \w+ = )(.*);\s*$", line) for line in (gone[0], come[0])]
        if all(value) and value[0].group(1) == value[1].group(1):
            return [f'{value[0].group(1)}::sgd::is_planted("{name}") ? ({value[1].group(2)}) : ({value[0].group(2)});']
    if not is_whole(gone) or not is_whole(come):
        return None
    return [f'if (::sgd::is_planted("{name}")) {{', *come, "} else {", *gone, "}"]


def merge(originals, planted):
    """({file: text}, [names that are in]): as many of {name: {file: text with the bug}} as stand beside each other."""
    taken, chosen = {}, []
    for name, files in planted.items():
        mine = []
        for file, text in files.items():
            lines = originals[file].split("\n")
            for at, gone, come in changes_of(originals[file], text):
                before = next((bare(line) for line in reversed(lines[:at]) if bare(line)), "{")
                starts = before.endswith((";", "{", "}", ":")) or (gone and condition_of(gone[0]))
                mine.append((file, at, gone, guard(name, gone, come) if starts else None))
        overlaps = any(at < end and at + max(len(gone), 1) > begin
                       for file, at, gone, _ in mine for begin, end in taken.get(file, {}))
        if overlaps or any(lines is None for *_, lines in mine):
            continue
        for file, at, gone, lines in mine:
            taken.setdefault(file, {})[(at, at + max(len(gone), 1))] = (at, len(gone), lines)
        chosen.append(name)
    texts = {}
    for file, regions in taken.items():
        lines = originals[file].split("\n")
        for at, count, come in sorted(regions.values(), reverse=True):
            lines[at:at + count] = come
        texts[file] = HEADER + "\n".join(lines)
    return texts, chosen
