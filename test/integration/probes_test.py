"""What a coordinator says of itself on `--metrics-port`: each family that launcher/http/README.md lists, and nothing that it does not."""

import os
import re
import signal
import sys
import tempfile
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from data import image_job, small_fashion, write_job
from harness import LIMIT_S, ROOT, free_port, wait_for

# Nobody is refused here, and between two looks no timer may have fired.
MAY_BE_ZERO = {"sgd_coordinator_connections_refused_total", "sgd_coordinator_frames_refused_total",
               "sgd_coordinator_event_loop_lag_max_seconds"}


def documented():
    """Names of the README's table; one that begins with _ goes on like the one before it."""
    names = set()
    with open(os.path.join(ROOT, "launcher", "http", "README.md"), encoding="utf-8") as file:
        rows = [line.split("|")[1] for line in file.read().split("## Metrics")[1].splitlines() if line.startswith("| `")]
    for row in rows:
        for name in re.findall(r"`([a-z_0-9]+)", row):
            names.add("sgd_coordinator" + name if name.startswith("_") else name)
    return names


class Scrape:
    def __init__(self, port):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=LIMIT_S) as answer:
            text = answer.read().decode()
        self.kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.MULTILINE))
        self.samples = {name: float(value) for name, value in re.findall(r"^([a-z_0-9]+(?:\{[^}]*\})?) (\S+)$", text, re.MULTILINE)}

    def of(self, family):
        """All that it counts; of a histogram, how many observations."""
        name = family + "_count" if self.kinds[family] == "histogram" else family
        return sum(value for sample, value in self.samples.items() if sample.split("{")[0] == name)


class ProbesTest(unittest.TestCase):
    def test_every_family_that_is_documented_is_told_and_counts(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-probes-test-")
        self.addCleanup(folder.cleanup)
        port = free_port()
        job = image_job(small_fashion(os.path.join(folder.name, "data"), 6400, 1000), epochs=20, batch_size=400)
        job["recovery"] = {"backoff": {"first": "100ms"}}
        with Cluster({"n1": 2}, coordinator_options=["--metrics-port", port]) as cluster:
            idle = Scrape(port)
            self.train_with_a_kill(cluster, write_job(os.path.join(folder.name, "job.json"), job))
            self.assertEqual(cluster.run("-n", 1, "--", "false").wait(), 1)
            cluster.wait_for_event(cluster.run("-n", 1, "--", "sleep", 1000).run_id(), "worker_started")
            # What is used is told by the node a moment later.
            told = wait_for(lambda: (now := Scrape(port)).of("sgd_coordinator_slots_used") > 0 and now, LIMIT_S, "a slot to be used")
        self.check_phases(idle)
        self.assertEqual(set(told.kinds), documented())
        self.assertEqual({name for name in told.kinds if told.of(name) == 0} - MAY_BE_ZERO, set(), told.samples)
        self.assertEqual({name: value for name, value in told.samples.items() if "runs_finished_total" in name},
                         {f'sgd_coordinator_runs_finished_total{{state="{state}"}}': 1 for state in ("failed", "succeeded")})
        self.assertEqual(told.samples['sgd_coordinator_failures_total{kind="signal"}'], 1)
        self.assertEqual(told.of("sgd_coordinator_recovery_seconds"), 1)

    def train_with_a_kill(self, cluster, job):
        client = cluster.run(job)
        run = client.run_id()
        cluster.wait_for_event(run, "epoch_finished")
        os.kill(cluster.events(run, "worker_started")[0]["pid"], signal.SIGKILL)
        self.assertEqual(client.wait(), 0, client.said())
        self.assertEqual(len(cluster.events(run, "recovered")), 1)

    def check_phases(self, idle):
        """Also of what nothing is in: a query finds it."""
        for phase in ("placing", "running", "recovering"):
            self.assertEqual(idle.samples[f'sgd_coordinator_runs{{state="{phase}"}}'], 0)
        self.assertEqual(idle.samples['sgd_coordinator_nodes{state="lost"}'], 0)
        self.assertEqual(idle.of("sgd_coordinator_nodes"), 1)


if __name__ == "__main__":
    unittest.main()
