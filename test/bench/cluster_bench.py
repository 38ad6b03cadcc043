"""What the benchmarks of a cluster share: three nodes in network namespaces with TLS (without root: over a Unix
socket), a job for them, and faults of a node."""

import contextlib
import json
import os
import signal
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from live_run import mlp_job
from namespaces import Network, available

NODES = {"n1": 2, "n2": 1, "n3": 1}


@contextlib.contextmanager
def three_nodes(prefix):
    network = Network(list(NODES), prefix=prefix).up() if available() else None
    try:
        with Cluster(NODES, network=network) as cluster:
            yield cluster
    finally:
        if network:
            network.down()


def where(cluster):
    return "Three nodes in network namespaces, TLS." if cluster.network else "Three nodes over a Unix socket."


def write_job(cluster, epochs, **parts):
    path = os.path.join(cluster.folder, f"job-{epochs}.json")
    job = mlp_job(epochs, num_workers=4, checkpoint={"every": {"seconds": 1}},
                  recovery={"cooldown": "100ms", "scale_up": "checkpoint", "max_failures": "unlimited",
                            "backoff": {"attempts": 1000, "first": "200ms"}})
    job["training"].update(parts)
    with open(path, "w", encoding="utf-8") as file:
        json.dump(job, file)
    return path


class NodeFault:
    """`kind`: "killed" (agent, keepers and workers), "agent" (killed alone), "frozen" (agent and workers of `run`) or "link"
    (down)."""

    def __init__(self, cluster, kind, name):
        self.cluster, self.kind, self.name = cluster, kind, name
        self.workers = []

    def begin(self, run):
        if self.kind == "link":
            return self.cluster.network.link(self.name, "down")
        if self.kind == "killed":
            return self.cluster.kill_node(self.name)
        if self.kind == "agent":
            return self.cluster.kill(self.name)
        generation = self.cluster.generation(run)
        self.workers = [event["pid"] for event in self.cluster.events(run, "worker_started")
                        if event["node"] == self.name and event["generation"] == generation]
        self.cluster.kill(self.name, signal.SIGSTOP)
        self.to_workers(signal.SIGSTOP)

    def end(self):
        if self.kind == "link":
            return self.cluster.network.link(self.name, "up")
        if self.kind in ("killed", "agent"):
            return self.cluster.start_agent(self.name)
        self.cluster.kill(self.name, signal.SIGCONT)
        self.to_workers(signal.SIGCONT)

    def to_workers(self, number):
        for pid in self.workers:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
