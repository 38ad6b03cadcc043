"""How launchers of several machines find each other: at names of either family of addresses, too early, a second time, and with words that do not fit."""

import os
import shutil
import signal
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import linear_job, write_job
from machines import PORT, SECRET
from several_nodes_test import NodesTest

WHERE = """
import os
os.write(1, f"at {os.environ['RANK']} {os.environ['MASTER_ADDR']}\\n".encode())
"""


class JoiningNodesTest(NodesTest):
    def at(self, name, machine, *options, rank=None):
        """A launch of two that meet at `name`."""
        number = ["--node-rank", rank] if rank is not None else []
        launch = machine.launch("--nnodes", 2, *number, "--master-addr", name, "--master-port", PORT, "--rdzv-secret-file", machine.secret,
                                "--output-at", "first", *options)
        self.addCleanup(launch.end)
        return launch

    def name_hosts(self, text):
        """`ip netns exec` puts files of that folder in the place of those of /etc."""
        for name in ("a", "b"):
            folder = f"/etc/netns/{self.network.namespace(name)}"
            os.makedirs(folder)
            self.addCleanup(shutil.rmtree, folder)
            with open(os.path.join(folder, "hosts"), "w", encoding="utf-8") as hosts:
                hosts.write(text)

    def test_localhost_is_this_machine(self):
        for numbers in ((None, None), (0, 1)):
            launches = [self.at("localhost", self.a, "train.py", rank=rank) for rank in numbers]
            self.assertEqual([launch.wait() for launch in launches], [0, 0], launches[0].said() + launches[1].said())
            self.check_clean(*launches)

    def test_machines_meet_at_a_name_of_either_family(self):
        if not self.network:
            self.skipTest("needs machines with networks of their own")
        for number, machine in enumerate((self.a, self.b), 2):
            subprocess.run(["ip", "-n", self.network.namespace(machine.name), "address", "add", f"fd77::{number}/64", "dev", "eth0", "nodad"], check=True)
            with open(os.path.join(machine.home, "where.py"), "w", encoding="utf-8") as script:
                script.write(WHERE)
            write_job(os.path.join(machine.home, "job.json"), {key: value for key, value in linear_job(epochs=1).items() if key != "num_workers"})
        self.name_hosts(f"127.0.0.1 localhost\nfd77::2 both six\n{self.head} both\n")
        for name, address in (("both", self.head), ("six", "fd77::2")):
            launches = [self.at(name, machine, "where.py", rank=rank) for rank, machine in enumerate((self.a, self.b))]
            self.assertEqual([launch.wait() for launch in launches], [0, 0], launches[0].said() + launches[1].said())
            self.assertEqual(self.lines(launches[0], "at"), [f"at {rank} {address}" for rank in range(2)])
            self.check_clean(*launches)
        # Built-in training: its ranks connect to each other by the addresses of their nodes.
        launches = [self.at("both", machine, "--nproc-per-node", 1, "job.json", rank=rank) for rank, machine in enumerate((self.a, self.b))]
        self.assertEqual([launch.wait() for launch in launches], [0, 0], launches[0].said() + launches[1].said())

    def test_a_first_node_that_does_not_reach_itself_says_so(self):
        head = self.at("192.0.2.1", self.a, "--rdzv-conf", "join_timeout=2", "train.py", rank=0)
        self.assertEqual(head.wait(), 5, head.said())
        self.assertRegex(head.said(), r"node 0 does not reach it itself \(.+\): is this machine 192\.0\.2\.1\?\n")

    def test_different_numbers_of_workers_are_refused(self):
        launches = [self.launch(machine, "--nproc-per-node", count, "train.py", rank=rank) for rank, (machine, count) in enumerate(((self.a, 1), (self.b, 2)))]
        self.assertEqual(launches[0].wait(), 2, launches[0].said())
        self.assertIn("different numbers of workers: this node has 1, node0001 has 2. Give all of them the same --nproc-per-node", launches[0].said())
        self.assertFalse(os.path.exists(os.path.join(self.a.home, "runs", "latest")))

    def test_a_secret_of_a_pipe_is_read_once(self):
        """As `--rdzv-secret-file <(cat key)`: who finds the port taken begins a second time, as another node."""
        def write(pipe):
            with open(pipe, "w", encoding="utf-8") as writer:
                writer.write(SECRET)
        launches = []
        for number in range(2):
            pipe = os.path.join(self.a.home, f"pipe-{number}")
            os.mkfifo(pipe, 0o600)
            threading.Thread(target=write, args=(pipe,), daemon=True).start()
            launches.append(self.launch(self.a, "train.py", secret=pipe))
        self.assertEqual([launch.wait() for launch in launches], [0, 0], launches[0].said() + launches[1].said())
        self.check_clean(*launches)

    def test_who_comes_too_early_waits_for_the_next_run(self):
        """The first machine stays for a moment when its run has ended, as long as another one's launcher has not gone."""
        launches = [self.launch(machine, "train.py", "wait", rank=rank) for rank, machine in enumerate((self.a, self.b))]
        self.wait_for_ranks(launches[0], 2)
        os.kill(launches[1].process.pid, signal.SIGSTOP)
        self.go(self.a, self.b)
        launches[0].wait_for_words("finished in")
        early = self.launch(self.c, "train.py", rank=1)
        early.wait_for_words("the run at node 0 has ended: waiting for the next one")
        self.assertEqual(launches[0].wait(), 0, launches[0].said())
        launches[1].end()
        head = self.launch(self.a, "train.py", rank=0)
        self.assertEqual([head.wait(), early.wait()], [0, 0], head.said() + early.said())
        self.assertEqual(self.lines(head, "done"), ["done 0", "done 1"])

    def test_a_first_node_that_is_started_again_has_the_others_in_its_next_run(self):
        member = self.launch(self.b, "train.py", "wait", rank=1)
        head = self.launch(self.a, "train.py", "wait", rank=0)
        self.wait_for_ranks(head, 2)
        head.process.kill()
        head.wait_until_gone()
        again = self.launch(self.a, "train.py", "wait", rank=0)
        self.wait_for_ranks(again, 2)
        self.go(self.a, self.b)
        self.assertEqual([again.wait(), member.wait()], [0, 0], again.said() + member.said())
        self.assertIn("was started again, and does not know run", member.said())
        self.assertTrue(member.said().endswith(": succeeded\n"), member.said())
        self.check_clean(again, member)

    def test_a_fixed_number_of_machines_stays_that(self):
        """A script does not go on with fewer: whoever is lost is waited for."""
        member = self.launch(self.b, "train.py", "wait", rank=1)
        head = self.launch(self.a, "train.py", "wait", rank=0)
        self.wait_for_ranks(head, 2)
        member.process.kill()
        member.wait_until_gone()
        head.wait_for_words("2 slots wanted")
        again = self.launch(self.b, "train.py", "wait", rank=1)
        self.wait_for_ranks(head, 4)
        self.go(self.a, self.b)
        self.assertEqual([head.wait(), again.wait()], [0, 0], head.said() + again.said())
        self.assertEqual({line.split()[3] for line in self.lines(head, "up")}, {"2"}, "ranks of each start")
        self.check_clean(head, again)


if __name__ == "__main__":
    unittest.main()
