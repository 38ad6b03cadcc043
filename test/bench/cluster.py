"""One coordinator and the nodes of a large cluster: real TLS sockets, the agents' own code, no processes of ranks.

Connections, heartbeats, the coordinator's share of a core and memory, false deaths, ranks launched a second, how long `ps`
and `nodes` take, how long anything holds the coordinator's event loop, and the time until all are back after the coordinator
was killed. `--agents 10000 --seconds 600` is the full form, `--quick` the short one. `--exchange BYTES` is another measurement:
one run with a rank on each agent, and each rank gives so many bytes to all the others.
Agents and coordinator share the machine: what the agents take is not the coordinator's, which goes first, and what they lack slows
the storm.
"""

import argparse
import glob
import json
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import BIN_DIR, LAUNCHER, wait_for
from measure import cpu_seconds, hardware

AGENTS = os.path.join(BIN_DIR, "cluster_agents")
SPARE_FILES = 6600           # Of the coordinator: three of each run at work, and others.
AGENTS_PER_PROCESS = 5000
SMALL_JOB_RANKS = 10
CLIENTS = 10                 # Who submit the small jobs.
SETTLED_SHARE = 0.3          # Of a core: heartbeats of 10,000 agents take half of that.
LIMIT_S = 300


def resident_kib(pid):
    with open(f"/proc/{pid}/statm", encoding="utf-8") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1024


def allow_files(wanted):
    """Raises the limit of open files for this process and those it starts."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, wanted))
            return
        except (ValueError, OSError):
            sys.exit(f"cluster: a process may open {hard} files, {wanted} are needed: raise RLIMIT_NOFILE (`ulimit -Hn {wanted}` "
                     f"as root, LimitNOFILE={wanted} in a unit), or take fewer --agents")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class Agents:
    """One process of them: its newest line."""

    def __init__(self, port, state_dir, identities, first, count, slots, value_bytes):
        words = [AGENTS, "agents", f"127.0.0.1:{port}", state_dir, identities, str(first), str(count), str(slots), str(value_bytes)]
        # Else the coordinator's loop would wait for a core: on a cluster agents are on machines of their own.
        self.process = subprocess.Popen(["nice", "-n", "19", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.said = {}
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.said = json.loads(line)


class Cluster:
    def __init__(self, folder, options):
        self.folder = folder
        self.options = options
        self.state_dir = os.path.join(folder, "coordinator")
        self.log = os.path.join(folder, "coordinator.log")
        self.memory = tempfile.mkdtemp(prefix="sgd-bench-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None)
        self.environment = {**os.environ, "XDG_CONFIG_HOME": os.path.join(folder, "config")}
        self.environment.pop("SGD_ADDRESS", None)
        self.port = 0
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.metrics_port = free.getsockname()[1]
        self.coordinator = None
        self.agents = []

    def __enter__(self):
        subprocess.run([LAUNCHER, "init", "--state-dir", self.state_dir], env=self.environment, check=True, capture_output=True)
        self.start_coordinator()
        return self

    def __exit__(self, *_):
        for process in [agents.process for agents in self.agents] + [self.coordinator]:
            if process is not None:
                process.kill()
                process.wait()
        shutil.rmtree(self.memory, ignore_errors=True)

    def start_coordinator(self):
        """Until it listens; a second time on the same port."""
        before = self.lines_of("listening on")
        with open(self.log, "ab") as log:
            self.coordinator = subprocess.Popen(
                [LAUNCHER, "coordinator", "--listen", f"127.0.0.1:{self.port}", "--state-dir", self.state_dir,
                 "--metrics-port", str(self.metrics_port), *self.options.coordinator.split()],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=self.environment)
        lines = wait_for(lambda: len(self.lines_of("listening on")) > len(before) and self.lines_of("listening on"), LIMIT_S,
                         "the coordinator to listen")
        self.port = int(lines[-1].rsplit(":", 1)[1])

    def lines_of(self, words):
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return [line for line in file.read().splitlines() if words in line]

    def start_agents(self):
        for first in range(0, self.options.agents, AGENTS_PER_PROCESS):
            count = min(AGENTS_PER_PROCESS, self.options.agents - first)
            self.agents.append(Agents(self.port, self.state_dir, self.memory, first, count, self.options.slots,
                                      self.options.exchange))

    def longest_hold(self):
        """Milliseconds that one thing held the coordinator's event loop at most, since this was asked for last."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=LIMIT_S) as answer:
            for line in answer.read().decode().splitlines():
                if line.startswith("sgd_coordinator_event_loop_lag_max_seconds "):
                    return 1e3 * float(line.split()[1])
        sys.exit("cluster: the coordinator does not say how late its event loop is")

    def answer_s(self, request, times=5):
        """(the slowest of so many answers to one client, in seconds; bytes of one)"""
        said = self.ask("ask", json.dumps(request), times)[0]
        return max(said["seconds"]), said["bytes"]

    def total(self, what):
        return sum(agents.said.get(what, 0) for agents in self.agents)

    def reasons(self):
        found = {}
        for agents in self.agents:
            for reason, count in agents.said.get("reasons", {}).items():
                found[reason] = found.get(reason, 0) + count
        return sorted(found.items(), key=lambda one: -one[1])[:5]

    def wait_connected(self, limit_s=LIMIT_S):
        wait_for(lambda: self.total("connected") == self.options.agents, limit_s,
                 f"all agents to be connected: {self.total('connected')}, {self.reasons()}")

    def ask(self, *words):
        ended = subprocess.run([AGENTS, words[0], f"127.0.0.1:{self.port}", self.identity, *map(str, words[1:])],
                               capture_output=True, text=True, check=False, timeout=LIMIT_S)
        if ended.returncode != 0:
            sys.exit(f"cluster: {words}: {ended.stderr}")
        return [json.loads(line) for line in ended.stdout.splitlines()]

    @property
    def identity(self):
        return os.path.join(self.folder, "config", "sgd-launch", "identity")

    def submit(self, job, times):
        """The ids of so many runs. One client alone would be held to its share of the coordinator's time."""
        each = -(-times // CLIENTS)
        running = []
        for number, first in enumerate(range(0, times, each)):
            identity = os.path.join(self.folder, "clients", str(number))
            if not os.path.isdir(identity):
                subprocess.run([AGENTS, "identity", self.state_dir, identity, f"client-{number}"], check=True)
            running.append(subprocess.Popen([AGENTS, "submit", f"127.0.0.1:{self.port}", identity, job,
                                             str(min(each, times - first))], stdout=subprocess.PIPE, text=True))
        lines = [line for process in running for line in process.communicate(timeout=LIMIT_S)[0].splitlines()]
        if any(process.returncode != 0 for process in running):
            sys.exit("cluster: a client could not submit its jobs")
        return [answer["run"] for answer in map(json.loads, lines) if "run" in answer]

    def make_job(self, ranks):
        """A resolved job, as the command line makes one; that of one rank is run here to have it."""
        sample = os.path.join(self.folder, "sample")
        if not os.path.isdir(sample):
            subprocess.run([LAUNCHER, "-n", "1", "--max-failures", "unlimited", "--run-dir", sample, "--", "true"],
                           env=self.environment, check=True, capture_output=True)
        with open(os.path.join(sample, "job.json"), encoding="utf-8") as file:
            job = json.load(file)
        job.update(name=f"ranks-{ranks}", num_workers=ranks, min_workers=ranks)
        name = os.path.join(self.folder, f"job-{ranks}.json")
        with open(name, "w", encoding="utf-8") as file:
            json.dump(job, file)
        return name

    def events(self, runs, name):
        found = []
        for run in runs:
            path = os.path.join(self.state_dir, "runs", run, "events.jsonl")
            if os.path.exists(path):
                with open(path, encoding="utf-8") as file:
                    found += [json.loads(line) for line in file if f'"{name}"' in line and line.endswith("\n")]
        return found

    def launch(self, ranks, times):
        """(ids, seconds from the submission until every rank is said to have started)"""
        job = self.make_job(ranks)
        began = time.time()
        runs = self.submit(job, times)
        before = self.total("ranks_started")
        wait_for(lambda: self.started(runs) >= ranks * times, LIMIT_S,
                 f"{ranks * times} ranks to be started: {self.total('ranks_started') - before}")
        return runs, max(event["time"] for event in self.events(runs, "worker_started")) - began

    def started(self, runs):
        """Counted by lines: parsing them all again and again would take the cores that are measured."""
        time.sleep(0.2)
        count = 0
        for run in runs:
            with open(os.path.join(self.state_dir, "runs", run, "events.jsonl"), "rb") as file:
                count += file.read().count(b'"worker_started"')
        return count

    def stop_all(self):
        began = time.time()
        self.ask("stop")
        wait_for(lambda: not [run for run in glob.glob(os.path.join(self.state_dir, "runs", "*"))
                              if not os.path.exists(os.path.join(run, "summary.json"))], LIMIT_S, "all runs to end")
        return time.time() - began


def connect(cluster):
    """KiB of the coordinator for each agent."""
    time.sleep(0.5)
    before = resident_kib(cluster.coordinator.pid)
    cluster.start_agents()
    cluster.wait_connected()
    time.sleep(2)  # What answers to the last connections take is given back.
    return (resident_kib(cluster.coordinator.pid) - before) / cluster.options.agents


def watch(cluster, runs):
    """The window: (heartbeats a second, share of a core, false deaths, connections lost)."""
    beats, lost, cpu, began = cluster.total("beats"), cluster.total("lost"), cpu_seconds(cluster.coordinator.pid), time.monotonic()
    deaths = len(cluster.events(runs, "node_lost"))
    time.sleep(cluster.options.seconds)
    seconds = time.monotonic() - began
    share = (cpu_seconds(cluster.coordinator.pid) - cpu) / seconds
    return ((cluster.total("beats") - beats) / seconds, share, len(cluster.events(runs, "node_lost")) - deaths,
            cluster.total("lost") - lost)


def recover(cluster, runs, ranks):
    """Seconds from the death of the ranks of one node until all ranks of the run have started again."""
    cluster.longest_hold()
    began = time.time()
    cluster.agents[0].process.send_signal(signal.SIGUSR1)
    wait_for(lambda: cluster.started(runs) >= 2 * ranks, LIMIT_S, f"{ranks} ranks to be started again")
    return max(event["time"] for event in cluster.events(runs, "worker_started")) - began


def storm(cluster):
    """(seconds from the kill to all connected again, of these to listening, attempts that failed)"""
    failures, connections = cluster.total("failures"), cluster.total("connections")
    began = time.monotonic()
    cluster.coordinator.kill()
    cluster.coordinator.wait()
    cluster.start_coordinator()
    listening = time.monotonic() - began
    wait_for(lambda: cluster.total("connections") - connections >= cluster.options.agents
             and cluster.total("connected") == cluster.options.agents, LIMIT_S,
             f"all agents to be back: {cluster.total('connected')} connected, {cluster.reasons()}")
    return time.monotonic() - began, listening, cluster.total("failures") - failures


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0], allow_abbrev=False)
    parser.add_argument("--agents", type=int, default=10000)
    parser.add_argument("--seconds", type=float, default=600, help="length of the window in which nothing else happens")
    parser.add_argument("--slots", type=int, default=1, help="of each node")
    parser.add_argument("--quick", action="store_true", help="500 agents, 10 s")
    parser.add_argument("--exchange", type=int, default=0, metavar="BYTES", help="one run whose ranks exchange so much each")
    parser.add_argument("--coordinator", default="", metavar="OPTIONS", help="more options of the coordinator")
    parser.add_argument("--keep", action="store_true", help="leave the folder, and say where it is")
    options = parser.parse_args()
    if options.quick:
        options.seconds = 10
        options.agents = options.agents if options.exchange else 500
    return options


def is_settled(pid):
    before = cpu_seconds(pid)
    time.sleep(1)
    return cpu_seconds(pid) - before < SETTLED_SHARE


def measure_answers(cluster, report, runs):
    """What a client waits for, and what that costs all others, when the launch of these runs is over."""
    wait_for(lambda: is_settled(cluster.coordinator.pid), LIMIT_S, "the coordinator to have little to do")
    cluster.longest_hold()
    nodes = f"nodes of {cluster.options.agents}"
    for request, what in (({"request": "ps"}, f"ps of {runs} live runs"), ({"request": "nodes", "brief": True}, nodes),
                          ({"request": "nodes"}, f"{nodes}, --json")):
        seconds, size = cluster.answer_s(request)
        report(what, f"{seconds:.3f} s, the slowest of 5 ({size / 1e6:.2f} MB)", "<= 0.2 s")
        report("longest hold of the event loop by that", f"{cluster.longest_hold():.1f} ms", "<= 20 ms")


def measure_exchange(cluster, report):
    options = cluster.options
    ranks = options.agents * options.slots
    connect(cluster)
    cluster.longest_hold()
    began = time.monotonic()
    runs, _ = cluster.launch(ranks, 1)
    wait_for(lambda: cluster.total("values") >= ranks * ranks, LIMIT_S,
             f"{ranks} ranks to have {ranks} values each: {cluster.total('values')} of {ranks * ranks}, {cluster.reasons()}")
    seconds = time.monotonic() - began
    report(f"exchange of {ranks} ranks, {options.exchange} bytes each",
           f"{seconds:.2f} s, {ranks * ranks * options.exchange / 1e6:.0f} MB to the nodes", "")
    report("longest hold of the event loop meanwhile", f"{cluster.longest_hold():.1f} ms", "<= 20 ms")
    report("connections lost", cluster.total("lost"), "0")
    failures = len(cluster.events(runs, "failure"))
    report("failures", failures, "0")
    cluster.stop_all()
    return cluster.total("lost") == 0 and failures == 0


def measure(cluster, report):
    options, ranks = cluster.options, cluster.options.agents * cluster.options.slots
    report("memory of the coordinator", f"{connect(cluster):.1f} KiB per agent", "<= 64")
    report("longest hold of the event loop while they came", f"{cluster.longest_hold():.1f} ms", "<= 20 ms")
    big, seconds = cluster.launch(ranks, 1)
    report(f"one job of {ranks} ranks", f"{ranks / seconds:,.0f} ranks/s ({seconds:.2f} s)", ">= 5,000")
    report("longest hold of the event loop by that", f"{cluster.longest_hold():.1f} ms", "<= 20 ms")
    report(f"a rank of it is killed, until all {ranks} have started again", f"{recover(cluster, big, ranks):.2f} s", "")
    report("longest hold of the event loop by that", f"{cluster.longest_hold():.1f} ms", "<= 20 ms")
    wait_for(lambda: is_settled(cluster.coordinator.pid), LIMIT_S, "the coordinator to have little to do")
    cluster.longest_hold()
    beats, share, deaths, lost = watch(cluster, big)
    report(f"heartbeats over {options.seconds:g} s", f"{beats:,.0f} /s", "")
    report("the coordinator's share of a core", f"{100 * share:.1f} %", "<= 25")
    report("false deaths", deaths, "0")
    report("connections lost", lost, "0")
    report("longest hold of the event loop in these seconds", f"{cluster.longest_hold():.1f} ms", "<= 20 ms")
    seconds, listening, failures = storm(cluster)
    report("SIGKILL of the coordinator, until all are back", f"{seconds:.1f} s (listens after {listening:.1f} s; {failures} "
           "attempts failed)", "<= 15")
    time.sleep(6)  # Longer than a node's silence may last: who is not back by then is lost.
    deaths_in_storm = len(cluster.events(big, "node_lost"))
    report("nodes lost in that storm", deaths_in_storm, "0")
    report("memory after it", f"{resident_kib(cluster.coordinator.pid) / options.agents:.1f} KiB per agent, all of the process", "")
    report(f"end of {ranks} ranks", f"{cluster.stop_all():.2f} s", "")
    each = min(SMALL_JOB_RANKS, ranks)
    jobs = ranks // each
    small, seconds = cluster.launch(each, jobs)
    report(f"{jobs} jobs of {each} ranks", f"{each * jobs / seconds:,.0f} ranks/s ({seconds:.2f} s)", ">= 5,000")
    measure_answers(cluster, report, jobs)
    seconds, listening, failures = storm(cluster)
    report(f"SIGKILL with {jobs} live runs, until all are back", f"{seconds:.1f} s (listens after {listening:.1f} s)", "<= 15")
    report(f"end of {jobs} jobs", f"{cluster.stop_all():.2f} s", "")
    deaths += len(cluster.events(small, "node_lost")) + deaths_in_storm
    report("memory at the end", f"{resident_kib(cluster.coordinator.pid) / options.agents:.1f} KiB per agent, all of the process", "")
    return deaths == 0 and lost == 0


def main():
    options = parse()
    allow_files(4 * max(options.agents, AGENTS_PER_PROCESS) // 3 + SPARE_FILES)
    folder = tempfile.mkdtemp(prefix="sgd-bench-")
    print(f"## {options.agents} agents over TLS, one coordinator\n{hardware()}. Agents on the same cores.\n", flush=True)
    print(f"| {'what':58} | {'figure':44} | target   |\n|{'-' * 60}|{'-' * 46}|{'-' * 10}|", flush=True)
    try:
        with Cluster(folder, options) as cluster:
            def report(what, figure, target):
                print(f"| {what:58} | {figure!s:44} | {target:8} |", flush=True)
            is_well = measure_exchange(cluster, report) if options.exchange else measure(cluster, report)
    finally:
        if options.keep:
            print(f"kept: {folder}", file=sys.stderr)
        else:
            shutil.rmtree(folder, ignore_errors=True)
    if not is_well:
        sys.exit("cluster: nodes or connections were lost that nothing had happened to")
    if options.quick:
        print(f"All tests passed ({options.agents} agents in 1 test case)")


if __name__ == "__main__":
    main()
