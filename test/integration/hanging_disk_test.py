"""A coordinator whose state disk hangs: who asks is answered, who waits for the disk is told so, and all goes on when it answers.

A FIFO that nobody reads, or writes, stands for a file that does not answer: to open it blocks as long as the test likes.
"""

import os
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import LIMIT_S, wait_for


class HangingDiskTest(unittest.TestCase):
    def setUp(self):
        cluster = Cluster({"n1": 2})
        self.cluster = cluster.__enter__()
        self.addCleanup(cluster.__exit__)

    def test_a_summary_that_cannot_be_written_holds_up_its_run_and_nobody_else(self):
        end = os.path.join(self.cluster.folder, "end")
        held = self.cluster.run("-n", 1, "--", "sh", "-c", f"while [ ! -e {end} ]; do sleep 0.05; done")
        run = held.run_id()
        self.cluster.wait_for_event(run, "worker_started")
        fifo = os.path.join(self.cluster.run_dir(run), "summary.json.tmp")
        os.mkfifo(fifo)
        open(end, "w", encoding="utf-8").close()

        def row():
            began = time.monotonic()
            rows = self.cluster.ask("ps")["runs"]
            self.assertLess(time.monotonic() - began, LIMIT_S)
            return next((one for one in rows if one["run"] == run), None)
        said = wait_for(lambda: "the state disk has not answered for" in row()["reason"] and row(), LIMIT_S, "the run to say what it waits for")
        self.assertEqual(said["state"], "finished")
        self.assertEqual(len(self.cluster.ask("nodes")["nodes"]), 1)
        wait_for(lambda: f"run {run}: warning: the disk has not answered for 5s" in self.cluster.log_of("coordinator"), LIMIT_S, "the log to say it")
        # Once it answers, everything is as if nothing had been.
        answers = os.open(fifo, os.O_RDWR | os.O_NONBLOCK)
        self.addCleanup(os.close, answers)
        self.assertEqual(held.wait(), 0, held.said())
        self.assertIn("the disk answers again", self.cluster.log_of("coordinator"))
        wait_for(lambda: row() is None, LIMIT_S, "the run to be over")
        after = self.cluster.run("-n", 1, "--", "true")
        self.assertEqual(after.wait(), 0, after.said())

    def test_a_log_that_cannot_be_read_holds_up_who_reads_it_and_nobody_else(self):
        ended = self.cluster.run("-n", 1, "--", "echo", "hello")
        self.assertEqual(ended.wait(), 0, ended.said())
        run = self.cluster.ask("ps", "--all")["runs"][0]["run"]
        log = os.path.join(self.cluster.run_dir(run), "logs", "gen-0001", "rank-0000.log")
        os.rename(log, log + ".kept")
        os.mkfifo(log)
        reader = self.cluster.run("logs", run)
        self.assertEqual([row["run"] for row in self.cluster.ask("ps", "--all")["runs"]], [run])
        self.assertEqual(reader.wait(), 4, reader.said())
        self.assertIn("the disk has not answered for 10s", reader.said()[0])
        os.close(os.open(log, os.O_RDWR | os.O_NONBLOCK))
        os.rename(log + ".kept", log)
        again = self.cluster.run("logs", run)
        self.assertEqual(again.wait(), 0, again.said())
        self.assertIn("hello", again.said()[1])


if __name__ == "__main__":
    unittest.main(verbosity=2)
