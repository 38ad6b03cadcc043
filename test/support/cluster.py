"""A cluster of real daemons on this machine: a coordinator, agents by name, and clients; each thing with a log of its own.

    with Cluster({"n1": 2, "n2": 2}) as cluster:
        run = cluster.run("-n", 4, "job.json")
        cluster.kill("n2")

Everything is ended with the cluster, also what a killed agent left.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile

from harness import AGENT, LAUNCHER, LIMIT_S, MARK, free_port, marked, read_lines, wait_for
from namespaces import HUB

CORES = sorted(os.sched_getaffinity(0))
NODE_MARK = "SGD_TEST_NODE_MARK"


class Client:
    """A client that follows a run: its output goes to files."""

    def __init__(self, cluster, arguments, name):
        self.cluster = cluster
        self.out, self.err = (os.path.join(cluster.folder, f"{name}.{kind}") for kind in ("out", "err"))
        with open(self.out, "wb") as out, open(self.err, "wb") as err:
            self.process = subprocess.Popen([*cluster.on(HUB), LAUNCHER, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                            stdout=out, stderr=err, env=cluster.environment(address=True), cwd=cluster.folder)

    def said(self):
        with open(self.err, encoding="utf-8", errors="replace") as err, open(self.out, encoding="utf-8", errors="replace") as out:
            return err.read(), out.read()

    def wait(self, limit_s=LIMIT_S):
        return self.process.wait(limit_s)

    def wait_and_say(self, expect):
        """What is on stderr at its end."""
        assert self.wait() == expect, (self.process.returncode, self.said())
        return self.said()[0]

    def run_id(self):
        """As soon as the coordinator has taken the run."""
        def find():
            for line in self.said()[0].splitlines():
                if line.startswith("sgd-launch: run ") and "on the cluster" in line:
                    return line.split()[2].rstrip(":")
            return self.process.poll() is not None and "ended"
        name = wait_for(find, LIMIT_S, "the run to be submitted")
        assert name != "ended", self.said()
        return name


class Cluster:
    """`agent_options`: more of them by node, `agent_environment`: variables by node. `network`: a Network of namespaces in which the nodes are, and the coordinator and clients in its hub; then everything
    speaks TLS, with certificates that the agents have joined for. Else over the coordinator's Unix socket; `loopback`: in plain text
    over TCP, where nobody proves to be root: then jobs of a root's agent have another account."""

    def __init__(self, nodes, folder=None, coordinator_options=(), agent_options=None, network=None, loopback=False, agent_environment=None):
        self.network = network
        self.insecure = ["--insecure-loopback"] if loopback else []
        self.own_folder = folder is None
        self.folder = folder or tempfile.mkdtemp(prefix="sgd-cluster-")
        self.agent, self.launcher = AGENT, LAUNCHER
        if loopback and os.geteuid() == 0:
            self.agent = ["agent", "--run-as", "nobody"]
            os.chmod(self.folder, 0o755)
            self.launcher = shutil.copy(LAUNCHER, os.path.join(self.folder, "sgd-launch"))  # Where that account may start it.
        self.slots = dict(nodes)
        self.options = list(coordinator_options)
        self.agent_options = dict(agent_options or {})
        self.agent_environment = dict(agent_environment or {})
        self.agents = {}
        self.coordinator = None
        self.clients = []
        self.port = free_port()
        self.mark = f"sgd-cluster-{os.getpid()}-{id(self)}"

    def __enter__(self):
        try:
            if self.network:
                self.verb("init", "--state-dir", "coordinator", "--name", self.host)
            self.start_coordinator()
            for name in self.slots:
                if self.network:
                    self.join(name)
                self.start_agent(name)
            self.wait_for_nodes(*self.slots)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in [client.process for client in self.clients] + [*self.agents.values(), self.coordinator]:
            if process is not None and process.poll() is None:
                process.kill()
            if process is not None:
                process.wait()
        # Keepers and ranks would wait for the next agent.
        for pid in self.left():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        wait_for(lambda: not self.left(), 20, "the end of what the agents had started")
        if self.own_folder:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def host(self):
        return self.network.addresses[HUB] if self.network else "127.0.0.1"

    @property
    def address(self):
        if self.network or self.insecure:
            return f"{self.host}:{self.port}"
        return "unix:" + os.path.join(self.folder, "coordinator", "coordinator.sock")

    def on(self, machine):
        """What a command there begins with."""
        return self.network.inside(machine) if self.network else []

    def verb(self, *arguments, machine=HUB, text=None):
        """A verb that must succeed: its output."""
        ended = subprocess.run([*self.on(machine), LAUNCHER, *map(str, arguments)], input=text, capture_output=True, text=True,
                               timeout=LIMIT_S, env=self.environment(), cwd=self.folder, check=False)
        assert ended.returncode == 0, (arguments, ended.returncode, ended.stdout, ended.stderr)
        return ended.stdout

    def join(self, name):
        token = self.verb("token", "create", "--state-dir", "coordinator", "--name", name)
        self.verb("join", self.address, "--token-file", "-", "--identity", f"agent-{name}/identity", machine=name,
                  text=token)

    def environment(self, address=False):
        env = {**os.environ, MARK: self.mark, "XDG_CONFIG_HOME": os.path.join(self.folder, "config")}
        env.pop("SGD_ADDRESS", None)
        if address:
            env["SGD_ADDRESS"] = self.address
        return env

    def left(self):
        """Pids of all processes of this cluster that are still there."""
        return sorted({pid for pid in marked(self.mark)} | {pid for name in self.slots for pid in self.kept(name)})

    def kept(self, name):
        """Pids of what a node's agent has started: it passes nothing of its own environment on, but its keepers' mark."""
        try:
            folder = os.stat(os.path.join(self.folder, f"agent-{name}"))
        except OSError:
            return []
        return marked(f"{folder.st_dev:x}-{folder.st_ino:x}-", "SGD_KEEPER", whole=False)

    def log_of(self, name):
        with open(os.path.join(self.folder, f"{name}.log"), encoding="utf-8", errors="replace") as file:
            return file.read()

    def node_mark(self, name):
        return f"{self.mark}-{name}"

    def _daemon(self, name, *arguments, bound=()):
        machine = HUB if name == "coordinator" else name
        environment = {**self.environment(), NODE_MARK: self.node_mark(name), **self.agent_environment.get(name, {})}
        with open(os.path.join(self.folder, f"{name}.log"), "ab") as log:
            return subprocess.Popen([*self.on(machine), *bound, self.launcher, *map(str, arguments)], stdin=subprocess.DEVNULL,
                                    stdout=log, stderr=log, env=environment, cwd=self.folder)

    def start_coordinator(self):
        already = self.log_of("coordinator").count("listening on") if self.coordinator else 0
        self.coordinator = self._daemon("coordinator", "coordinator", "--listen", self.address, "--state-dir", "coordinator",
                                        *self.insecure, *self.options)

        def listening():
            lines = [line for line in self.log_of("coordinator").splitlines() if "listening on" in line]
            return len(lines) > already and lines[-1]
        wait_for(listening, LIMIT_S, "the coordinator to listen")

    def start_agent(self, name):
        """On one core of its own, if there are enough: nodes that think that they have the same cores would wait for each
        other's time slices."""
        core = CORES[list(self.slots).index(name) % len(CORES)]
        self.agents[name] = self._daemon(name, *self.agent, "--join", self.address, *self.insecure, "--name", name, "--slots",
                                         self.slots[name], "--state-dir", f"agent-{name}", *self.agent_options.get(name, ()), bound=["taskset", "-c", str(core)])

    def ask(self, *arguments, expect=0):
        """The JSON that a verb prints. What follows "--" is a program's."""
        words = list(map(str, arguments))
        words.insert(words.index("--") if "--" in words else len(words), "--json")
        ended = subprocess.run([*self.on(HUB), LAUNCHER, *words], capture_output=True, text=True,
                               timeout=LIMIT_S, env=self.environment(address=True), cwd=self.folder, check=False,
                               stdin=subprocess.DEVNULL)
        assert ended.returncode == expect, (arguments, ended.returncode, ended.stdout, ended.stderr)
        return json.loads(ended.stdout) if expect == 0 else ended.stderr

    def nodes(self):
        return {node["node"]: node for node in self.ask("nodes")["nodes"]}

    def wait_for_nodes(self, *names):
        try:
            wait_for(lambda: all(self.nodes().get(name, {}).get("state") == "connected" for name in names), LIMIT_S,
                     f"nodes {names} to be connected")
        except AssertionError as error:
            said = {name: self.log_of(name).splitlines()[-12:] for name in ("coordinator", *names)}
            raise AssertionError(f"{error}; they are {self.nodes()}; last words: {json.dumps(said, indent=1)}") from None

    def run(self, *arguments):
        """A client that submits and follows."""
        client = Client(self, arguments, f"client-{len(self.clients)}")
        self.clients.append(client)
        return client

    def run_dir(self, run):
        return os.path.join(self.folder, "coordinator", "runs", run)

    def lines(self, run, file="events.jsonl"):
        """Whole lines of a file of the run's folder, parsed."""
        return read_lines(os.path.join(self.run_dir(run), file))

    def events(self, run, name):
        return [event for event in self.lines(run) if event["event"] == name]

    def generation(self, run):
        """The newest that has made a step."""
        return self.events(run, "first_step")[-1]["generation"]

    def wait_for_event(self, run, name, count=1, limit_s=LIMIT_S):
        return wait_for(lambda: len(self.events(run, name)) >= count and self.events(run, name)[-1], limit_s,
                        f"{count} x {name} of {run}")

    def kill_node(self, name):
        """The agent and all that it has started, as when the machine loses power: stopped first, so that none can tell of
        another's end."""
        pids = [*marked(self.node_mark(name), NODE_MARK), *self.kept(name)]
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
        self.agents[name].wait()

    def kill(self, name, how=signal.SIGKILL):
        """The agent, or the coordinator."""
        process = self.coordinator if name == "coordinator" else self.agents[name]
        process.send_signal(how)
        if how == signal.SIGKILL:
            process.wait()
