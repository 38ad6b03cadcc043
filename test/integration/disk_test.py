"""A coordinator whose state lies on a small disk that somebody has filled: it starts, and runs can be stopped."""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, small_fashion, write_job
from harness import AGENT, LIMIT_S, fill_disk, free_port, mount_disk, read_file, wait_for
from tls_cluster import TlsCluster


class DiskTest(TlsCluster):
    def setUp(self):
        super().setUp()
        self.port = free_port()
        # Cleanups come last in, first out: daemons end before this.
        self._cleanups.insert(1, (mount_disk(self.state, "48m"), (), {}))

    def fill(self):
        fill_disk(self.path("state", "full"))

    def wait_for_reserve(self):
        """Its room, too, and not its name alone."""
        wait_for(lambda: read_file(self.path("state", "reserve")), LIMIT_S, "the reserve is there")

    def test_a_full_disk_keeps_nobody_from_stopping_and_starting(self):
        self.start_coordinator()
        there = ("--address", self.address)
        run = self.run_verb("submit", "--detach", "-n", 1, *there, "--", "true").stdout.strip()
        self.wait_for_reserve()
        self.fill()
        self.run_verb("stop", "--now", run, *there)
        row = json.loads(self.run_verb("ps", "--all", "--json", *there).stdout)["runs"][0]
        self.assertEqual(row["state"], "cancelled")
        os.remove(self.path("state", "full"))
        self.run_verb("submit", "--detach", "-n", 1, *there, "--", "true")
        self.wait_for_reserve()
        self.kill(self.daemons[0])
        self.fill()
        self.start("again", "coordinator", "--listen", f"0.0.0.0:{self.port}", "--state-dir", self.state)
        self.wait_for_words("again", "listening on")
        self.assertEqual(json.loads(self.run_verb("ps", "--all", "--json", *there).stdout)["runs"][0]["state"], "cancelled")
        os.remove(self.path("state", "full"))
        self.run_verb("submit", "--detach", "-n", 1, *there, "--", "true")
        self.wait_for_reserve()

    def start_again(self, name):
        self.start(name, "coordinator", "--listen", f"0.0.0.0:{self.port}", "--state-dir", self.state)
        self.wait_for_words(name, "listening on")
        return json.loads(self.run_verb("ps", "--all", "--json", "--address", self.address).stdout)["runs"]

    def test_no_free_byte_keeps_a_coordinator_from_starting_and_what_is_not_kept_is_said(self):
        """Killed, or ended in order: then the store's own files are gone, too; and nothing is in reserve."""
        self.start_coordinator()
        there = ("--address", self.address)
        run = self.run_verb("submit", "--detach", "-n", 1, *there, "--", "true").stdout.strip()
        for how in ("kill", "terminate"):
            with self.subTest(how=how):
                self.wait_for_reserve()
                getattr(self.daemons[-1], how)()
                self.daemons[-1].wait(LIMIT_S)
                os.remove(self.path("state", "reserve"))
                self.fill()
                name = f"after-{how}"
                self.assertEqual([row["run"] for row in self.start_again(name)], [run])
                self.wait_for_words(name, "is not kept until there is room")
                os.remove(self.path("state", "full"))
                self.wait_for_words(name, "the store takes events again")
        self.run_verb("submit", "--detach", "-n", 1, *there, "--", "true")
        self.assertEqual(len(json.loads(self.run_verb("ps", "--all", "--json", *there).stdout)["runs"]), 2)

    def begin_what_has_no_room(self):
        """The checkpoint is larger than what is left, and than the reserve that ends runs are committed with: a client that follows the run."""
        self.start_coordinator()
        there = ("--address", self.address)
        self.join(self.token("--name", "n1"), self.path("agent", "identity"))
        job = image_job(small_fashion(self.path("data"), 64, 64), epochs=1, model={"type": "mlp", "hidden": [4000]})
        job["num_workers"] = 1
        client = self.start("client", *there, write_job(self.path("job.json"), job), person="operator")
        wait_for(lambda: json.loads(self.run_verb("ps", "--json", *there).stdout)["runs"], LIMIT_S, "the run waits for a node")
        self.wait_for_reserve()
        self.fill()
        self.start("agent", *AGENT, "--join", self.address, "--state-dir", self.path("agent"), "--slots", 1)
        return client

    def check_failed(self, client):
        self.assertEqual(client.wait(LIMIT_S), 1, self.said("client"))
        self.assertIn("what it leaves could not be kept: no room", self.said("client"))
        row, = json.loads(self.run_verb("ps", "--all", "--json", "--address", self.address).stdout)["runs"]
        self.assertEqual((row["state"], row["exit_code"]), ("failed", 1))

    def test_a_run_whose_result_has_no_room_is_no_success(self):
        self.check_failed(self.begin_what_has_no_room())

    def test_nor_is_it_where_the_coordinator_is_killed_before_it_knows(self):
        client = self.begin_what_has_no_room()
        self.wait_for_words("coordinator", ": succeeded")
        self.kill(self.daemons[0])
        self.start_again("again")
        self.check_failed(client)


if __name__ == "__main__":
    unittest.main(verbosity=2)
