"""Ranks that exchange much: what a frame does not take comes in parts, and what is too much fails its own run, with words."""

import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LIMIT_S

RANKS = 24

# Gives a value of so many bytes under each of so many keys, and waits for everybody's.
GIVE = """
import json, os, socket, sys
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["SGD_LINK"])
lines = link.makefile("rb")
def say(line):
    link.sendall(json.dumps(line).encode() + b"\\n")
say({"type": "hello", "token": os.environ["SGD_TOKEN"], "pid": os.getpid(), "protocol": 1})
rank, size, count = int(os.environ["RANK"]), int(sys.argv[1]), int(sys.argv[2])
for key in range(count):
    say({"type": "exchange", "key": str(key), "value": str(rank) + ":" + "x" * (size - len(str(rank)) - 1)})
    values = {}
    while len(values) < int(os.environ["WORLD_SIZE"]):
        line = json.loads(lines.readline())
        if line["type"] == "exchange":
            values[line["rank"]] = line["value"]
    assert all(value.startswith(str(number) + ":") and len(value) == size for number, value in values.items()), values.keys()
print("all there", flush=True)
"""


class ExchangeTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-exchange-test-")
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "give.py")
        with open(self.path, "w", encoding="utf-8") as file:
            file.write(GIVE)

    def test_values_of_a_megabyte_and_too_many_of_them(self):
        with Cluster({"n1": RANKS // 2 + 1, "n2": RANKS // 2}) as cluster:
            beside = cluster.run("-n", 1, "--", "sh", "-c", f"while [ ! -e {self.path}.end ]; do sleep 0.05; done")
            cluster.wait_for_event(beside.run_id(), "worker_started")
            much = cluster.run("-n", RANKS, "--", "python3", self.path, 46 << 10, 2)
            self.assertEqual(much.wait(4 * LIMIT_S), 0, much.said())
            self.assertEqual(much.said()[1].count("all there"), RANKS)
            too_much = cluster.run("-n", RANKS, "--", "python3", self.path, 46 << 10, 20)
            self.assertEqual(too_much.wait(4 * LIMIT_S), 1, too_much.said())
            self.assertIn("8388608 may be exchanged", str(cluster.events(too_much.run_id(), "failure")))
            open(f"{self.path}.end", "w", encoding="utf-8").close()
            self.assertEqual(beside.wait(), 0, beside.said())
            self.assertNotIn("disconnected", cluster.log_of("coordinator"))


if __name__ == "__main__":
    unittest.main()
