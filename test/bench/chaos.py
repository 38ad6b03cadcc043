"""Chaos: a training run under random faults for a long time must end as if nothing had happened.

Every 5-15 s one of: SIGKILL of a rank, of all ranks, of the fork server, of the keeper; SIGSTOP of a rank; slots down
or up. Then faults stop and the run must end with exit code 0, every epoch once, every sample of every epoch once, no
process left, and a launcher whose memory and descriptors have not grown. Without changes of size (--resizes no) the
final weights are also compared, bit for bit, with those of an undisturbed run.
"""

import collections
import hashlib
import os
import random
import signal
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from live_run import LiveRun, mlp_job
from measure import LAUNCHER, Folder, arguments, read_lines, table

EPOCH_S = 0.45  # Of an undisturbed epoch, roughly: only the length of the run depends on it.
SETTLED_S = 20  # Memory and descriptors of the launcher are compared from here on.


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            return [int(word) for word in file.read().split()]
    except OSError:
        return []


def command(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def state_of(pid):
    """(resident KiB, open descriptors) of a process."""
    with open(f"/proc/{pid}/status") as file:
        resident = next((int(line.split()[1]) for line in file if line.startswith("VmRSS")), 0)
    return resident, len(os.listdir(f"/proc/{pid}/fd"))


class Faults:
    def __init__(self, run, chance, resizes):
        self.run, self.chance, self.count = run, chance, collections.Counter()
        self.slots = 2
        self.actions = [self.kill_rank] * 4 + [self.kill_all, self.stop_rank, self.kill_fork_server, self.kill_keeper]
        if resizes:
            self.actions += [self.change_slots] * 3

    def signal(self, pid, number, what):
        try:
            os.kill(pid, number)
            self.count[what] += 1
        except ProcessLookupError:
            pass

    def ranks(self):
        self.run.read()
        return [self.run.ranks[rank] for rank in sorted(self.run.ranks)]

    def kill_rank(self):
        if self.ranks():
            self.signal(self.chance.choice(self.ranks()), signal.SIGKILL, "rank killed")

    def kill_all(self):
        for pid in self.ranks():
            self.signal(pid, signal.SIGKILL, "all ranks killed")

    def stop_rank(self):
        if self.ranks():
            self.signal(self.chance.choice(self.ranks()), signal.SIGSTOP, "rank frozen")

    def keeper(self):
        return next((pid for pid in children(self.run.process.pid) if command(pid)[1:2] == [b"keeper"]), None)

    def kill_keeper(self):
        if self.keeper():
            self.signal(self.keeper(), signal.SIGKILL, "keeper killed")

    def kill_fork_server(self):
        ranks = self.ranks()
        for pid in children(self.keeper() or 0):
            if b"--fork-server" in command(pid) and pid not in ranks:
                return self.signal(pid, signal.SIGKILL, "fork server killed")

    def change_slots(self):
        self.set_slots(self.chance.choice([slots for slots in (0, 1, 2) if slots != self.slots]))
        if self.slots == 0:
            time.sleep(self.chance.uniform(0.5, 4))
            self.set_slots(self.chance.choice((1, 2)))

    def set_slots(self, slots):
        subprocess.run([LAUNCHER, "nodes", self.run.directory, "set-slots", str(slots)], stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL, check=False, timeout=30)
        self.slots = slots
        self.count[f"slots {slots}"] += 1


def weights(run):
    newest = max(event["path"] for event in run.events if event["event"] == "checkpoint_saved")
    digest = hashlib.sha256()
    for name in ("model.safetensors", "optimizer.safetensors"):
        with open(os.path.join(run.directory, newest, name), "rb") as file:
            digest.update(file.read())
    return digest.hexdigest()


def job(epochs):
    return mlp_job(epochs, heartbeat={"interval": "200ms", "timeout": "2s"}, checkpoint={"every": {"seconds": 3}, "keep": 2},
                   recovery={"max_failures": "unlimited", "cooldown": "5s", "backoff": {"first": "500ms", "attempts": 50}})


def check(run, epochs):
    """Problems of a run that has ended, as sentences."""
    problems = []
    if run.process.returncode != 0:
        problems.append(f"exit code {run.process.returncode}: {run.tail()[-600:]}")
    finished = [event["epoch"] for event in run.events if event["event"] == "epoch_finished"]
    if finished != list(range(1, epochs + 1)):
        problems.append(f"epochs are not 1..{epochs} once each: {len(finished)} of them")
    wrong = [line for line in run.metrics() if line["phase"] == "train" and line["num_samples"] != 60000]
    if wrong:
        problems.append(f"{len(wrong)} epochs with a wrong number of samples, the first: {wrong[0]}")
    return problems


def left_over(mark):
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/environ", "rb") as file:
                if mark.encode() in file.read():
                    found.append(int(name))
        except OSError:
            continue
    return [pid for pid in found if pid != os.getpid()]


def disturbed(folder, epochs, seconds, pace, chance, resizes):
    with LiveRun(folder, job(epochs)) as run:
        begin = run.wait("first_step")["time"]
        faults, samples = Faults(run, chance, resizes), []
        while time.time() < begin + seconds and run.process.poll() is None:
            time.sleep(chance.uniform(5, 15) * pace)
            if run.process.poll() is not None:
                break
            if time.time() > begin + min(SETTLED_S, seconds / 4):
                samples.append(state_of(run.process.pid))
            chance.choice(faults.actions)()
        if run.process.poll() is None:
            faults.set_slots(2)
            run.process.wait(60 + 3 * epochs * EPOCH_S)
        run.read()
        problems = check(run, epochs)
        if samples and (samples[-1][0] > samples[0][0] + 4096 or samples[-1][1] > samples[0][1] + 8):
            problems.append(f"the launcher grew from {samples[0]} to {samples[-1]} (KiB, descriptors)")
        generations = max(event.get("generation", 1) for event in run.events)
        return problems, faults.count, generations, samples, weights(run)


def main():
    options = arguments(__doc__.splitlines()[0], minutes={"default": 20.0, "type": float, "help": "of faults"},
                        pace={"default": 1.0, "type": float, "help": "times 5-15 s between faults"},
                        resizes={"default": "yes", "help": "no: and compare weights with an undisturbed run"},
                        seed={"default": 1, "type": int, "help": "of the faults"})
    minutes = 1.0 if options.quick else options.minutes
    epochs = max(3, int(minutes * 60 / EPOCH_S))
    mark = f"SGD_CHAOS={os.getpid()}-{time.time_ns()}"
    os.environ.update([mark.split("=")])
    with Folder() as folder:
        problems, count, generations, samples, final = disturbed(folder, epochs, minutes * 60, options.pace,
                                                                 random.Random(options.seed), options.resizes == "yes")
    deadline = time.monotonic() + 3
    while left_over(mark) and time.monotonic() < deadline:
        time.sleep(0.05)
    if left_over(mark):
        problems.append(f"processes are left: {left_over(mark)}")
    if options.resizes == "no":
        with Folder() as folder, LiveRun(folder, job(epochs)) as run:
            run.process.wait(120 + 3 * epochs * EPOCH_S)
            run.read()
            if weights(run) != final:
                problems.append("the final weights differ from those of the undisturbed run")
    rows = [[f"{minutes:g} min", epochs, sum(count.values()), generations,
             f"{samples[0][0] / 1024:.1f} -> {samples[-1][0] / 1024:.1f}" if samples else "",
             f"{samples[0][1]} -> {samples[-1][1]}" if samples else "", "; ".join(problems) or "none"]]
    table("Chaos", ["faults for", "epochs", "faults", "generations", "launcher MiB", "descriptors", "problems"], rows,
          ", ".join(f"{what} {number}" for what, number in sorted(count.items())) + ".")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
