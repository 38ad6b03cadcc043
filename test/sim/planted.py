#!/usr/bin/env python3
"""Shows that the simulator finds bugs: plants each patch of planted/ into a copy of launcher/core and plays seeds.

planted.py BUILD [--seeds N] [--only-apply] [--together] [NAME...]: BUILD is a folder in which `sim` is built. Only what
holds the changed files is compiled again, with the commands of the real build: for each bug, or once for all of them
(guarded.py). A planted bug that N seeds do not find is a failure.
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

import guarded

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
CORE = "launcher/core"


def plant(name, folder):
    """A copy of the core with the patch in it; the changed files, from the root of the project."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join(ROOT, CORE), os.path.join(folder, CORE))
    with open(os.path.join(HERE, "planted", name + ".patch"), encoding="utf-8") as file:
        text = file.read()
    done = subprocess.run(["patch", "-p1", "--fuzz=0", "--no-backup-if-mismatch", "-s"], input=text, text=True, cwd=folder,
                          capture_output=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{name}: the patch does not apply any more:\n{done.stdout}")
    return re.findall(r"^\+\+\+ b/(\S+)", text, re.M)


def commands_of(build):
    """How each file of the core is compiled, and how `sim` is linked."""
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as file:
        entries = json.load(file)
    compiles = {os.path.relpath(entry["file"], ROOT): entry["command"] for entry in entries
                if "CMakeFiles/sgd_core.dir" in entry["command"]}
    lines = subprocess.run(["ninja", "-C", build, "-t", "commands", "bin/sim"], capture_output=True, text=True, check=True)
    return compiles, lines.stdout.strip().split("\n")[-1]


def unit_of(source, compiles):
    """What is compiled for a file of the core: itself, or the batch that includes it."""
    for unit in compiles:
        with open(os.path.join(ROOT, unit), encoding="utf-8") as file:
            if unit == source or f'#include "{source}"\n' in file.read():
                return unit
    raise RuntimeError(f"{source} is compiled by nothing in this build")


def folder_of(name, build):
    return os.path.join(build, "test", "sim", "planted", name)


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def plant_together(names, build):
    """A copy of the core with those that can be branches; its folder, the changed files, and which these are."""
    planted = {}
    for name in names:
        changed = plant(name, folder_of(name, build))
        planted[name] = {file: read(os.path.join(folder_of(name, build), file)) for file in changed}
    originals = {file: read(os.path.join(ROOT, file)) for files in planted.values() for file in files}
    texts, chosen = guarded.merge(originals, planted)
    folder = folder_of("together", build)
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(os.path.join(ROOT, CORE), os.path.join(folder, CORE))
    for file, text in texts.items():
        with open(os.path.join(folder, file), "w", encoding="utf-8") as out:
            out.write(text)
    with open(os.path.join(folder, CORE, "is_planted.cpp"), "w", encoding="utf-8") as out:
        out.write(guarded.PROGRAM)
    return folder, sorted(texts), chosen


def build_planted(folder, changed_files, build, compiles, link):
    """A sim of its own with what is planted in `folder`; its path."""
    program = os.path.join(folder, "sim")
    chooser = os.path.join(folder, CORE, "is_planted.cpp")
    if os.path.exists(chooser):
        link = re.sub(r"-o bin/sim\b", f"{chooser} -o bin/sim", link)
    for unit in sorted({unit_of(source, compiles) for source in changed_files}):
        words = shlex.split(compiles[unit])
        changed = os.path.join(folder, os.path.basename(unit) + ".o")
        words[words.index("-o") + 1] = changed
        words.insert(1, "-I" + folder)  # Before the project's root: the copy is meant.
        if os.path.exists(os.path.join(folder, unit)):
            words[-1] = os.path.join(folder, unit)
        # What is planted changes seldom: the compiler cache knows it, as it knows the rest of the build.
        cache = [path for path in [shutil.which("ccache")] if path and "ccache" not in words[0]]
        subprocess.run([*cache, *words, "-w"], cwd=build, check=True)
        # Named before the library, it stands for the library's own.
        link = re.sub(r"-o bin/sim\b", f"{changed} -o bin/sim", link)
    link = re.sub(r"-o bin/sim\b", "-o " + program, link)
    subprocess.run(link, shell=True, cwd=build, check=True)
    return program


def hunt(program, seeds, name):
    """What the first failing seed says, or nothing."""
    done = subprocess.run([program, "--seeds", str(seeds)], capture_output=True, text=True, check=False,
                          env=os.environ | {"SGD_PLANTED": name})
    if done.returncode == 0:
        return None
    said = re.search(r"^seed .*", done.stdout, re.M)
    if said:
        return said.group(0)
    replay = re.search(r"--seed (\d+)", done.stderr)
    words = done.stderr.strip().splitlines() or [f"ended with {done.returncode}"]
    return f"seed {replay.group(1) if replay else '?'}: {words[0]}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("build")
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seeds", type=int, default=1000)
    parser.add_argument("--only-apply", action="store_true")
    parser.add_argument("--together", action="store_true")
    options = parser.parse_args()
    build = os.path.abspath(options.build)
    names = options.names or sorted(file[:-6] for file in os.listdir(os.path.join(HERE, "planted")))
    missed = []
    compiles, link = commands_of(build)
    if options.only_apply:
        for name in names:
            for source in plant(name, folder_of(name, build)):
                unit_of(source, compiles)
        print(f"All tests passed (each applies in {len(names)} test cases)")
        return 0
    chosen = []
    if options.together:
        folder, changed, chosen = plant_together(names, build)
        together = build_planted(folder, changed, build, compiles, link)
    for name in names:
        folder = folder_of(name, build)
        program = together if name in chosen else build_planted(folder, plant(name, folder), build, compiles, link)
        found = hunt(program, options.seeds, name)
        print(f"{name}: {found or f'not found in {options.seeds} seeds'}", flush=True)
        if not found:
            missed.append(name)
    print(f"{len(names)} planted bugs, {len(missed)} not found")
    if not missed:
        print(f"All tests passed (each is found in {len(names)} test cases)")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
