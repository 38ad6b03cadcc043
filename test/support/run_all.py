"""Runs every test that ctest knows of in the given build folders, several programs at a time, and counts single tests.

A ctest entry is a whole program, so its own summary is read: Catch2's, or unittest's. A program that crashes,
runs past its time limit or ends with an error and no summary counts as one failed test, so nothing that went
wrong can be missing from the count. Output of a program is shown when something in it failed. The last line is
"N passed, N failed"; the exit code is 0 only when something passed and nothing failed.
"""

import argparse
import contextlib
import dataclasses
import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
import time

LIMIT_DEFAULT_S = 600.0
LAST_WORDS_S = 3.0  # For a program that is told to end at once.
ROOM_PER_CORE = 1.4  # Programs seldom want all that they take on average in the same moment.
CAUSES = 5  # Of one program, in the list at the end; its whole output is further up.
CAUSE_CHARACTERS = 300


def count_catch2(output):
    """(passed, failed) test cases by Catch2's closing lines, or None."""
    whole = re.search(r"^All tests passed \(.* in (\d+) test cases?\)", output, re.M)
    if whole:
        return int(whole.group(1)), 0
    mixed = re.search(r"^test cases: +(\d+) \|(.*)$", output, re.M)
    if not mixed:
        return None
    counts = {word: int(number) for number, word in re.findall(r"(\d+) (passed|failed)", mixed.group(2))}
    return counts.get("passed", 0), counts.get("failed", 0)


def count_unittest(output):
    """(passed, failed) tests by unittest's closing lines, or None. Skipped tests are neither."""
    ran = re.search(r"^Ran (\d+) tests? in ", output, re.M)
    if not ran:
        return None
    verdict = re.search(r"^(OK|FAILED)(?: \((.*)\))?$", output[ran.end():], re.M)
    counts = dict(re.findall(r"(\w+)=(\d+)", (verdict and verdict.group(2)) or ""))
    failed = int(counts.get("failures", 0)) + int(counts.get("errors", 0))
    skipped = int(counts.get("skipped", 0))
    return max(0, int(ran.group(1)) - failed - skipped), failed


def count(output, exit_status):
    """(passed, failed) of one program; an unexplained end is one failure."""
    counts = count_catch2(output) or count_unittest(output)
    if counts is None:
        return 0, 1
    passed, failed = counts
    if exit_status != 0 and failed == 0:
        failed = 1
    return passed, failed


def causes(output):
    """One line for each failed test, in the words of Catch2 or of unittest: its name and what it says first."""
    found = []
    for name, said in re.findall(r"^(?:FAIL|ERROR): (\S+).*\n-{70}\n((?:.*\n)*?)(?=={70}|-{70})", output, re.M):
        ends = [line for line in said.splitlines() if line and not line.startswith((" ", "Traceback"))]
        found.append(f"{name}: {ends[0] if ends else ''}")
    for name, said in re.findall(r"^-{79}\n((?:.+\n)+?)-{79}\n((?:.*\n)*?)(?=-{79}|={79})", output, re.M):
        failed = re.search(r"(\S+:\d+): FAILED:?\n((?:(?: .*|with expansion:)\n)*)", said)
        if failed:
            found.append(f"{' '.join(name.split())}: {failed.group(1)}: {' '.join(failed.group(2).split())}")
    return [line[:CAUSE_CHARACTERS] for line in found[:CAUSES]]


@dataclasses.dataclass
class Program:
    """A ctest entry."""
    label: str          # Folder of the build, name of the test.
    command: list
    environment: dict
    folder: str
    limit_s: float
    cost_s: float       # About what it takes, as its COST says.
    cores: float        # That it keeps busy meanwhile, as its label "cores=" says.


def programs_of(build):
    """The ctest entries of a build folder."""
    listing = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], capture_output=True, text=True,
                             timeout=60, check=True)
    for test in json.loads(listing.stdout)["tests"]:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        environment = dict(line.split("=", 1) for line in properties.get("ENVIRONMENT", []))
        labels = dict(line.split("=", 1) for line in properties.get("LABELS", []))
        yield Program(f"{os.path.basename(os.path.normpath(build))}/{test['name']}", test.get("command", []), environment,
                      properties.get("WORKING_DIRECTORY", build), float(properties.get("TIMEOUT", LIMIT_DEFAULT_S)),
                      float(properties.get("COST", 0)), float(labels.get("cores", 1)))


def places_of(session):
    """A line for each thread of the processes of `session`: what it runs, and what in the kernel it waits for."""
    lines = []
    for pid in sorted(int(name) for name in os.listdir("/proc") if name.isdigit()):
        try:
            if os.getsid(pid) != session:
                continue
            with open(f"/proc/{pid}/cmdline", "rb") as file:
                command = file.read(200).replace(b"\0", b" ").decode(errors="replace")
            for task in sorted(os.listdir(f"/proc/{pid}/task"), key=int):
                place = []
                for name in ("wchan", "syscall"):
                    with open(f"/proc/{pid}/task/{task}/{name}", encoding="utf-8") as file:
                        place.append(file.read().strip())
                lines.append(f"  {pid}/{task} {command}: {' '.join(place)}\n")
        except OSError:  # It has ended meanwhile, or is somebody else's.
            continue
    return "".join(lines)


def run_one(command, environment, folder, limit_s):
    """(exit status, output) of one program. Past its limit it is told to say where it is, and its whole process group is
    killed."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               cwd=folder, env={**os.environ, **environment}, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        waits = places_of(process.pid)
        process.send_signal(signal.SIGABRT)  # Catch names the test that was running.
        try:
            output, _ = process.communicate(timeout=LAST_WORDS_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            output, _ = process.communicate()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)  # Who has closed its output may be there still.
        output += f"\nstopped after its limit of {limit_s:g} s, when there were:\n{waits}".encode()
    return process.returncode, output.decode(errors="replace")


def run_and_tell(program):
    """(passed, label of each failure); what went wrong is printed in one piece."""
    if not program.command or not os.access(program.command[0], os.X_OK):
        return 0, [f"{program.label}: not built"]
    started = time.monotonic()
    status, output = run_one(program.command, program.environment, program.folder, program.limit_s)
    good, bad = count(output, status)
    shown = output.rstrip() + "\n" if bad else ""
    print(f"{shown}{program.label}: {good} passed, {bad} failed, {time.monotonic() - started:.1f} s\n", end="", flush=True)
    labels = [f"{program.label}: {cause}" for cause in causes(output)] if bad else []
    return good, (labels + [program.label] * bad)[:bad]


def measure(programs):
    """(passed, failures) of all, one at a time; the figures for sgd_test_cost are printed."""
    passed, failures = 0, []
    for program in programs:
        used, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        good, bad = run_and_tell(program)
        after, wall_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic() - begin
        cpu_s = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
        print(f"{program.label}: alone {wall_s:.0f} s, {cpu_s / wall_s:.1f} cores", flush=True)
        passed, failures = passed + good, failures + bad
    return passed, failures


def run(programs, cores):
    """(passed, failures) of all: those with most work first, as many at a time as there is room for."""
    waiting = sorted(programs, key=lambda program: -program.cost_s * program.cores)
    results = []
    room = [cores]
    changed = threading.Condition()

    def run_and_give_back(program):
        try:
            result = run_and_tell(program)
        except Exception as error:  # Whatever it is, the others go on, and it counts.
            result = 0, [f"{program.label}: {error!r}"]
        with changed:
            results.append(result)
            room[0] += program.cores
            changed.notify()

    threads = []
    with changed:
        while waiting:
            fitting = next((program for program in waiting if program.cores <= room[0] or room[0] == cores), None)
            if fitting is None:
                changed.wait()
                continue
            waiting.remove(fitting)
            room[0] -= fitting.cores
            threads.append(threading.Thread(target=run_and_give_back, args=[fitting]))
            threads[-1].start()
    for thread in threads:
        thread.join()
    return sum(good for good, _ in results), [label for _, bad in results for label in bad]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("builds", nargs="+", help="configured build folders")
    parser.add_argument("--broken", action="append", default=[], help="a step before the tests that failed")
    parser.add_argument("--time-before", type=float, default=0.0, help="seconds that the steps before took")
    parser.add_argument("--only", default="", help="regular expression for the names of tests to run")
    parser.add_argument("--cores", type=float, default=len(os.sched_getaffinity(0)) * ROOM_PER_CORE,
                        help="for programs that run at the same time (somewhat more than there are)")
    parser.add_argument("--alone", action="store_true", help="one after the other, and print what each takes (for sgd_test_cost)")
    arguments = parser.parse_args()
    begin = time.monotonic()
    failures = list(arguments.broken)
    programs = []
    for build in arguments.builds:
        try:
            programs += [program for program in programs_of(build) if re.search(arguments.only, program.label)]
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            failures.append(f"{build}: its tests cannot be listed: {error}")
    passed, failed = measure(programs) if arguments.alone else run(programs, arguments.cores)
    failures += failed
    for failure in sorted(set(failures)):
        print(f"FAILED {failure}")
    print(f"whole time {arguments.time_before + time.monotonic() - begin:.1f} s")
    print(f"{passed} passed, {len(failures)} failed")
    return 0 if passed and not failures else 1


if __name__ == "__main__":
    sys.exit(main())
