"""A coordinator that is away for a while, and a rank that says much meanwhile: it waits, others do not, and nothing is lost; nor what a run has said last."""

import os
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LIMIT_S, read_file, wait_for

REPORTS = 800
REPORT_BYTES = 32 << 10

# Says all of it at once, in a file how far it got, and ends when the agent has taken it.
LOUD = """
import json, os, socket, sys, time
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["SGD_LINK"])
def say(line):
    link.sendall(json.dumps(line).encode() + b"\\n")
say({"type": "hello", "token": os.environ["SGD_TOKEN"], "pid": os.getpid(), "protocol": 1})
while not os.path.exists(sys.argv[1] + "/go"):
    time.sleep(0.01)
for number in range(1, %d + 1):
    say({"type": "report", "key": {"epoch": 1, "phase": "train", "batch": number, "sequence": 0}, "step": number,
         "metrics": {"text": "x" * %d}})
    with open(sys.argv[1] + "/said", "w") as file:
        file.write(str(number))
""" % (REPORTS, REPORT_BYTES)


class OutageTest(unittest.TestCase):
    def test_a_burst_while_the_coordinator_is_away(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-outage-test-")
        self.addCleanup(folder.cleanup)
        path = folder.name
        with open(f"{path}/loud.py", "w", encoding="utf-8") as file:
            file.write(LOUD)
        with Cluster({"n1": 2}) as cluster:
            loud = cluster.run("-n", 1, "--", "python3", f"{path}/loud.py", path)
            quiet = cluster.run("-n", 1, "--", "sh", "-c", f"while [ ! -e {path}/end ]; do sleep 0.02; done; exit 3")
            loud_run, quiet_run = loud.run_id(), quiet.run_id()
            for run in loud_run, quiet_run:
                cluster.wait_for_event(run, "worker_started")
            cluster.coordinator.kill()
            cluster.coordinator.wait()
            open(f"{path}/go", "w", encoding="utf-8").close()
            wait_for(lambda: "they wait, too" in cluster.log_of("n1"), LIMIT_S, "the rank to wait")
            open(f"{path}/end", "w", encoding="utf-8").close()
            self.assertLess(int(read_file(f"{path}/said") or 0), REPORTS)
            lost = cluster.log_of("n1").count("does not read")
            cluster.start_coordinator()
            self.assertEqual(quiet.wait(), 1, quiet.said())
            self.assertEqual(loud.wait(), 0, (loud.said()[0][-2000:], cluster.log_of("n1")[-2000:]))
            self.assertEqual(len(cluster.lines(loud_run, "metrics.jsonl")), REPORTS)
            self.assertEqual(cluster.events(quiet_run, "worker_exited")[0]["exit_code"], 3)
            self.assertEqual(cluster.log_of("n1").count("does not read"), lost)
            self.assertEqual(len(cluster.events(loud_run, "worker_started")), 1)

    def test_an_end_is_told_with_the_last_lines_whenever_the_coordinator_goes_behind_it(self):
        """Killed, or ended in order, while the last of a run's output is on its way from its node."""
        with Cluster({"n1": 1}) as cluster:
            for how, late_s in [(signal.SIGKILL, late_s) for late_s in (0, 0.02, 0.05, 0.1)] + [(signal.SIGTERM, 0.03)]:
                with self.subTest(how=how.name, late_s=late_s):
                    self.end_and_restart(cluster, how, late_s)

    def end_and_restart(self, cluster, how, late_s):
        go = os.path.join(cluster.folder, "go")
        script = f"seq 30; while [ ! -e {go} ]; do sleep 0.01; done; rm {go}; echo LAST LINE"
        client = cluster.run("-n", 1, "--no-prefix", "--", "sh", "-c", script)
        run = client.run_id()
        wait_for(lambda: client.said()[1].endswith("30\n"), LIMIT_S, "the first lines")
        open(go, "w", encoding="utf-8").close()
        wait_for(lambda: f"run {run}: succeeded" in cluster.log_of("coordinator"), LIMIT_S, "the end of the run")
        time.sleep(late_s)  # What is tested is this moment.
        cluster.kill("coordinator", how)
        cluster.coordinator.wait(LIMIT_S)
        cluster.start_coordinator()
        self.assertEqual(client.wait(), 0, client.said())
        self.assertEqual(client.said()[1], "".join(f"{number}\n" for number in range(1, 31)) + "LAST LINE\n")
        self.assertEqual(read_file(f"{cluster.run_dir(run)}/logs/gen-0001/rank-0000.log").decode(), client.said()[1])
        self.assertEqual(len(cluster.events(run, "run_finished")), 1)


if __name__ == "__main__":
    unittest.main()
