"""Folders of runs that a coordinator has no row of, as an older version or a kill at the wrong moment leaves them."""

import os
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LIMIT_S, wait_for

DAY_S = 86400


class RetentionTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-retention-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def leave(self, name, age_s):
        path = os.path.join(self.folder, "coordinator", "runs", name)
        os.makedirs(path)
        for file in ("events.jsonl", "summary.json"):
            with open(os.path.join(path, file), "w", encoding="utf-8") as out:
                out.write("{}\n")
            os.utime(os.path.join(path, file), (time.time() - age_s,) * 2)
        return path

    def listed(self, cluster):
        return {row["run"]: row["state"] for row in cluster.ask("runs", "list")["runs"]}

    def test_they_are_listed_as_unknown_and_removed_by_name(self):
        old, new = self.leave("old-20260101-000000-0001", 2 * DAY_S), self.leave("new-20260101-000000-0002", 0)
        with Cluster({}, folder=self.folder) as cluster:
            wait_for(lambda: self.listed(cluster) == {"old-20260101-000000-0001": "unknown"}, LIMIT_S, "the folder to be listed")
            there = ("--address", cluster.address)
            cluster.verb("runs", "pin", "old-20260101-000000-0001", *there)
            self.assertIn("is pinned", cluster.ask("runs", "remove", "old-20260101-000000-0001", expect=3))
            cluster.verb("runs", "unpin", "old-20260101-000000-0001", *there)
            cluster.verb("runs", "remove", "old-20260101-000000-0001", *there)
            self.assertFalse(os.path.exists(old))
            self.assertEqual(self.listed(cluster), {})
            self.assertTrue(os.path.exists(new))  # Somebody may be about to tell of it.

    def test_they_count_among_those_that_are_kept(self):
        paths = [self.leave(f"old-20260101-000000-{number:04}", (number + 1) * DAY_S) for number in range(4)]
        with Cluster({}, folder=self.folder, coordinator_options=("--keep-runs", 2)) as cluster:
            wait_for(lambda: not any(os.path.exists(path) for path in paths[2:]), LIMIT_S, "the oldest to go")
            self.assertTrue(all(os.path.exists(path) for path in paths[:2]))
            wait_for(lambda: set(self.listed(cluster).values()) == {"unknown"}, LIMIT_S, "the others to be listed")

    def test_of_more_than_a_list_holds_it_is_said_how_many_are_left_out(self):
        for number in range(2003):
            self.leave(f"old-20260101-000000-{number:04}", DAY_S)
        with Cluster({}, folder=self.folder, coordinator_options=("--keep-runs", 3000)) as cluster:
            wait_for(lambda: cluster.ask("runs", "list")["runs"], LIMIT_S, "the folders to be listed")
            listed = cluster.ask("runs", "list")
            self.assertEqual((len(listed["runs"]), listed["left_out"]), (2000, 3))
            self.assertIn("at most 2000 are listed; 3 more are there", cluster.run("runs", "list").wait_and_say(0))


if __name__ == "__main__":
    unittest.main(verbosity=2)
