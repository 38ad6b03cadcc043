"""Runs each fuzz target for long and prints executions, executions per second, crashes and growth of the corpus.

Called by `scripts/bench fuzz`, which builds the targets. With libFuzzer new inputs that reach new code are kept in
WORK/corpus, beside the kept ones of test/fuzz/corpus, and are where the next long run begins. A crash leaves its input
in WORK/crashes/TARGET and the command that replays it. The exit code is 1 when something crashed.
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
SEEDS = os.path.join(HERE, "corpus")
INPUT_BYTES_MAX = 1024  # Kept inputs have 300 at most, but those of job; longer ones take most of the time.
INPUT_SECONDS_MAX = 25
LIBFUZZER_INTERRUPTED = 72  # Its exit code after SIGINT.
# Shorter notes about allocations make a run twice as fast; a replay by hand has them whole.
SANITIZER = {"ASAN_OPTIONS": "malloc_context_size=0:quarantine_size_mb=8"}


def count_files(folder):
    return len(os.listdir(folder)) if os.path.isdir(folder) else 0


def libfuzzer_command(program, target, options, crashes):
    grown = os.path.join(options.work, "corpus", target)
    os.makedirs(grown, exist_ok=True)
    limit = [f"-runs={options.executions}"] if options.executions else [f"-max_total_time={int(options.hours * 3600)}"]
    return [program, *limit, f"-max_len={options.max_len}", f"-timeout={INPUT_SECONDS_MAX}", f"-artifact_prefix={crashes}/",
            "-dict=" + os.path.join(HERE, "words.dict"), "-print_final_stats=1", f"-seed={options.seed}", "-verbosity=0", "-entropic=0",
            grown, os.path.join(SEEDS, target)]


def driver_command(program, target, options, crashes):
    limit = ["--executions", str(options.executions)] if options.executions else ["--seconds", str(options.hours * 3600)]
    return [program, *limit, "--seed", str(options.seed), "--artifacts", crashes, "--dictionary", os.path.join(HERE, "words.dict"),
            os.path.join(SEEDS, target)]


def run(target, options):
    """One target; the row of the table, and whether it crashed or was stopped."""
    program = os.path.join(options.bin, "fuzz_" + target)
    crashes = os.path.join(options.work, "crashes", target)
    os.makedirs(crashes, exist_ok=True)
    grown = os.path.join(options.work, "corpus", target)
    before, crashes_before = count_files(grown), count_files(crashes)
    log_path = os.path.join(options.work, f"{target}.log")
    command = (libfuzzer_command if options.libfuzzer else driver_command)(program, target, options, crashes)
    begin = time.monotonic()
    with open(log_path, "wb") as log:
        status = subprocess.run(command, stdout=log, stderr=log, check=False, env={**os.environ, **SANITIZER}).returncode
    wall_s = time.monotonic() - begin
    with open(log_path, errors="replace") as log:
        text = log.read()
    found = re.search(r"stat::number_of_executed_units:\s*(\d+)", text) or re.search(r"\((\d+) executions", text)
    executions = int(found.group(1)) if found else 0
    crashed = status != 0
    print(f"{target:12} {executions:>12,} {executions / wall_s:>10,.0f} {wall_s:>8.0f} {count_files(crashes) - crashes_before:>8}"
          f" {count_files(os.path.join(SEEDS, target)):>6} {before:>6} -> {count_files(grown)}", flush=True)
    if status == LIBFUZZER_INTERRUPTED:
        print(f"  {target} was stopped before its end", flush=True)
        return True
    if crashed:
        print(f"  {target} ended with {status}; its output is in {log_path}", flush=True)
        for name in sorted(os.listdir(crashes)):
            print(f"  replay: {program} {os.path.join(crashes, name)}", flush=True)
    return crashed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--bin", required=True, help="folder of the fuzz_* programs")
    parser.add_argument("--work", required=True, help="folder for grown corpora, crashes and logs")
    parser.add_argument("--libfuzzer", action="store_true", help="the programs are libFuzzer's")
    parser.add_argument("--hours", type=float, default=1.0, help="for each target")
    parser.add_argument("--executions", type=int, default=0, help="for each target, in place of --hours")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--max-len", type=int, default=INPUT_BYTES_MAX, help="bytes of an input at most")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="targets at a time; the cores when absent")
    parser.add_argument("--targets", default="", help="some of them, with commas; all when empty")
    options = parser.parse_args()
    known = sorted(os.listdir(SEEDS))
    targets = options.targets.split(",") if options.targets else known
    for target in targets:
        if target not in known:
            sys.exit(f"unknown target {target}; there are: {', '.join(known)}")
    print(f"{'target':12} {'executions':>12} {'per s':>10} {'s':>8} {'crashes':>8} {'seeds':>6} {'corpus':>6}", flush=True)
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        results = pool.map(lambda target: run(target, options), targets)
        failed = [target for target, bad in zip(targets, results) if bad]
    if failed:
        print(f"crashed or stopped: {', '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
