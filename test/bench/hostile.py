"""Hostile ranks, clients, nodes and strangers against one coordinator and one agent, while an honest job trains: its rate beside
those of two undisturbed parts, its restarts, and the daemons' memory. In the second of these parts a busy loop has the core of the
attackers: where two cores are threads of one, a neighbour alone takes some of the honest job's rate, and is no attack. Both parts
are measured in front of the attack and behind it, and their means count: a shared machine is not equally fast all the time.

The honest rank has a core of its own, and so has the hostile rank; the coordinator and everything else of the attack share the
hostile one's core, as if they were on other machines, and the attack gives way to the daemons: what is measured is what reaches the
honest job's node, not who gets the processor. What the attackers have used themselves is said. `--pause 0`: they do nothing but send, as fast as they can.
"""

import json
import os
import random
import statistics
import subprocess
import sys
import time
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "support"))
sys.path.insert(0, HERE)
import hostile_peers
import rank_attacker
from attacked import Attacked
from harness import LAUNCHER, resident_bytes, wait_for
from live_run import mlp_job
from measure import arguments, cpu_seconds, table

RATE_MIN = 0.9
GROWN_MAX = 16 << 20
SETTLED = 0.25   # Of the attacked time: memory is compared from there to the end,
WINDOW = 0.1     # as the median of so much of it: answers that are under way come and go.
LOOK_S = 2.0
LIMIT_S = 60
NICE = 19
OVER = ("succeeded", "failed", "interrupted", "cancelled", "timed_out", "not_placed")


class Bench(Attacked):
    """The cluster, with a job that trains for as long as it is let."""

    is_installed = False  # Training needs programs that other accounts may not be able to open.

    @classmethod
    def start_job(cls):
        path = cls.path("honest.json")
        with open(path, "w", encoding="utf-8") as file:
            json.dump(mlp_job(100_000, num_workers=1), file)
        cls.run_id = cls.verb("submit", "--detach", "--address", cls.address, path).strip()
        wait_for(lambda: cls.step() > 0, LIMIT_S, "the honest job's first step")

    @classmethod
    def status(cls):
        return json.loads(cls.verb("status", "--address", cls.address, cls.run_id, "--json"))

    @classmethod
    def step(cls):
        return cls.status().get("step") or 0

    @classmethod
    def end_run(cls, run):
        subprocess.run([LAUNCHER, "stop", "--now", "--address", cls.address, run], env=cls.environment(), cwd=cls.folder,
                       capture_output=True, timeout=LIMIT_S, check=False)  # It may have ended meanwhile.
        wait_for(lambda: json.loads(cls.verb("status", "--address", cls.address, run, "--json"))["state"] in OVER, LIMIT_S, f"the end of {run}")

    @classmethod
    def rate(cls, seconds, look=lambda: None):
        """(steps a second of the honest job over so long, what its rank had of a core); `look` is called each LOOK_S."""
        rank = cls.status()["ranks"][0]["pid"]
        began, first, used = time.monotonic(), cls.step(), cpu_seconds(rank)
        while time.monotonic() - began < seconds:
            time.sleep(min(LOOK_S, seconds))
            look()
        took = time.monotonic() - began
        return (cls.step() - first) / took, (cpu_seconds(rank) - used) / took


def attacked_core():
    return max(os.sched_getaffinity(0))


def calm_rates(bench, seconds):
    """[(steps a second, share of a core) undisturbed, the same beside a busy loop]"""
    return [bench.rate(seconds), rate_beside_a_loop(bench, seconds)]


def rate_beside_a_loop(bench, seconds):
    loop = subprocess.Popen(["nice", "-n", str(NICE), "taskset", "-c", str(attacked_core()), sys.executable, "-c", "while True: pass"])
    try:
        return bench.rate(seconds)
    finally:
        loop.kill()
        loop.wait()


class Attackers:
    """Processes that attack until they are ended; each prints how often it has."""

    def __init__(self, bench, seconds, pause):
        self.bench, self.ends, self.ranks, self.used = bench, time.monotonic() + seconds, 0, 0.0
        self.submit_rank()
        core = attacked_core()
        self.processes = {kind: subprocess.Popen(
            ["nice", "-n", str(NICE), "taskset", "-c", str(core), sys.executable, os.path.abspath(hostile_peers.__file__), kind, bench.address,
             bench.path(""), bench.run_id, str(pause)],
            stdout=open(bench.path(f"{kind}.count"), "wb"), stderr=open(bench.path(f"{kind}.err"), "wb")) for kind in hostile_peers.KINDS}

    def submit_rank(self):
        self.ranks += 1
        self.rank = self.bench.verb("submit", "--detach", "--address", self.bench.address, "-n", 1, "--max-failures", "unlimited", "--",
                                    "/usr/bin/python3", "-S", os.path.abspath(rank_attacker.__file__), "--seconds",
                                    max(1, round(self.ends - time.monotonic()))).strip()

    def look(self):
        """Some of what a rank does ends its run for good, as it should: another one comes."""
        state = json.loads(self.bench.verb("status", "--address", self.bench.address, self.rank, "--json"))["state"]
        if state in OVER:
            self.submit_rank()

    def end(self):
        self.used = sum(cpu_seconds(process.pid) for process in self.processes.values() if process.poll() is None)
        for process in self.processes.values():
            process.terminate()
        for process in self.processes.values():
            process.wait()

    def counts(self):
        found = {}
        for kind in self.processes:
            with open(self.bench.path(f"{kind}.count"), encoding="ascii") as file:
                lines = file.read().split()
            found[kind] = int(lines[-1]) if lines else 0
        return found | {"ranks (runs of some 90 attacks)": self.ranks}


def mean_rate(parts):
    return [statistics.mean(numbers) for numbers in zip(*parts)]


def in_turn(parts):
    return ", ".join(f"{rate:.0f}" for rate, _ in parts)


def settled(seen):
    """What there was when it had settled, and at the end."""
    begin, window = int(len(seen) * SETTLED), max(1, int(len(seen) * WINDOW))
    return int(statistics.median(seen[begin:begin + window])), int(statistics.median(seen[-window:]))


def problems_of(bench, beside, after, memory):
    found = []
    if after < RATE_MIN * beside:
        found.append(f"the honest job made {after:.0f} steps/s, {after / beside:.2f} of those beside a busy loop (limit {RATE_MIN})")
    status = bench.status()
    if status.get("generation") != 1 or status.get("failures"):
        found.append(f"the honest job was started again: generation {status.get('generation')}, failures {status.get('failures')}")
    for name, seen in memory.items():
        first, last = settled(seen)
        if last > first + GROWN_MAX:
            found.append(f"{name} grew from {first >> 20} to {last >> 20} MiB")
    for process in bench.daemons[:2]:
        if process.poll() is not None:
            found.append(f"{process.args[1]} ended with {process.returncode}")
    if "node n1: disconnected" in bench.said("coordinator"):
        found.append("the link of node n1 was lost")
    return found


def refusals(bench):
    with urllib.request.urlopen(f"http://127.0.0.1:{bench.metrics_port}/metrics", timeout=LIMIT_S) as answer:
        lines = [line for line in answer.read().decode().splitlines() if "refused_total{" in line or "facts_total{" in line]
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines if not line.endswith(" 0")}


def main():
    options = arguments(__doc__.splitlines()[0], minutes={"default": 30.0, "type": float, "help": "of attack"},
                        pause={"default": 0.02, "type": float, "help": "seconds between two attacks of one peer"},
                        seed={"default": 1, "type": int, "help": "of nothing but the order of attacks"})
    seconds = 20.0 if options.quick else options.minutes * 60
    random.seed(options.seed)
    bench = Bench
    bench.setUpClass()
    try:
        subprocess.run(["taskset", "-a", "-p", "-c", str(attacked_core()), str(bench.daemons[0].pid)], check=True, stdout=subprocess.DEVNULL)
        calm = max(10.0, seconds / 16 if seconds < 1200 else 75)
        first = calm_rates(bench, calm)
        memory = {"coordinator": [], "agent": []}

        def look():
            for (_, seen), process in zip(memory.items(), bench.daemons):
                seen.append(resident_bytes(process.pid))
            attackers.look()
        attackers = Attackers(bench, seconds, options.pause)
        bench.addClassCleanup(attackers.end)
        used = [cpu_seconds(process.pid) for process in bench.daemons[:2]]
        quarters = [bench.rate(seconds / 4, look) for _ in range(4)]
        used = [cpu_seconds(process.pid) - then for process, then in zip(bench.daemons, used)]
        attackers.end()
        bench.end_run(attackers.rank)
        last = calm_rates(bench, calm)
        (calm_rate, calm_core), (beside, beside_core) = [mean_rate(pair) for pair in zip(first, last)]
        attacked, attacked_share = mean_rate(quarters)
        problems = problems_of(bench, beside, attacked, memory)
        rows = [["honest job, undisturbed", f"{calm_rate:.0f} steps/s ({in_turn([first[0], last[0]])}), {calm_core:.0%} of a core"],
                ["honest job, beside a busy loop",
                 f"{beside:.0f} steps/s ({in_turn([first[1], last[1]])}): {beside / calm_rate:.2f}; {beside_core:.0%} of a core"],
                ["honest job, attacked", f"{attacked:.0f} steps/s ({in_turn(quarters)}): {attacked / calm_rate:.2f}, of that beside a loop "
                                         f"{attacked / beside:.2f}; {attacked_share:.0%} of a core"]]
        for (name, seen), cpu in zip(memory.items(), used):
            begin, end = settled(seen)
            rows.append([f"{name}, of a core", f"{cpu / seconds:.0%}"])
            rows.append([f"{name}, resident", f"{begin >> 20} -> {end >> 20} MiB (most {max(seen) >> 20})"])
        rows += [["attackers but the rank, of a core", f"{attackers.used / seconds:.0%}"]]
        rows += [[f"attacks of {kind}", str(count)] for kind, count in attackers.counts().items()]
        table(f"{seconds / 60:.1f} minutes of attack", ["what", "value"], rows)
        print("refused and counted:", ", ".join(f"{kind} {count}" for kind, count in sorted(refusals(bench).items())))
        print("problems:", "; ".join(problems) or "none")
    finally:
        bench.doClassCleanups()
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
