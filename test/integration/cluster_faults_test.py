"""What happens around a cluster: slow links, ports and names that are wrong, clients that do not read, data that one node
lacks, folders that were copied. Names in brackets are rows of the list of failure modes."""

import contextlib
import os
import re
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from attacker import Wire
from cluster import Cluster
from data import image_job, small_fashion, write_job
from harness import AGENT, LAUNCHER, LIMIT_S, read_file, resident_bytes, wait_for

LATENCY_S = 0.2
FILES = 160
BYTES_PER_S = 8_000  # 64 kbit/s.


class SlowLink(threading.Thread):
    """Carries connections to `port` with LATENCY_S each way, at most BYTES_PER_S."""

    def __init__(self, port):
        super().__init__(daemon=True)
        self.target, self.is_on = port, True
        self.carriers, self.sockets = [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.start()

    def run(self):
        self.listener.settimeout(0.2)
        while self.is_on:
            try:
                near, _ = self.listener.accept()
            except TimeoutError:
                continue
            far = socket.create_connection(("127.0.0.1", self.target))
            self.sockets += [near, far]
            for source, sink in ((near, far), (far, near)):
                self.carriers.append(threading.Thread(target=self.carry, args=(source, sink), daemon=True))
                self.carriers[-1].start()

    def carry(self, source, sink):
        waiting, free_at = [], time.monotonic()
        while self.is_on:
            timeout = max(0.0, min(0.2, waiting[0][0] - time.monotonic())) if waiting else 0.2
            if len(waiting) < 1000 and select.select([source], [], [], timeout)[0]:
                data = source.recv(1000)
                if not data:
                    break
                free_at = max(free_at, time.monotonic()) + len(data) / BYTES_PER_S
                waiting.append((free_at + LATENCY_S, data))
            while waiting and waiting[0][0] <= time.monotonic():
                sink.sendall(waiting.pop(0)[1])
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    def stop(self):
        self.is_on = False
        self.join()
        for carrier in self.carriers:
            carrier.join()
        for each in [self.listener, *self.sockets]:
            each.close()


def trusts_all_it_told(journal):
    """Whether the agent of this journal has had an acknowledgement of its newest fact."""
    with open(journal, "rb") as file:
        text = file.read()
    told = max(map(int, re.findall(rb'"told":(\d+)', text)), default=0)
    acknowledged = max(map(int, re.findall(rb'"sequence":(\d+),"type":"fact_ack"', text)), default=0)
    return 0 < told == acknowledged


class ClusterFaultsTest(unittest.TestCase):
    def cluster(self, nodes, **options):
        cluster = Cluster(nodes, **options)
        cluster.__enter__()
        self.addCleanup(cluster.__exit__)
        return cluster

    def verb(self, *arguments):
        return subprocess.run([LAUNCHER, *map(str, arguments)], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=LIMIT_S, check=False)

    def test_slow_link_is_no_death(self):
        """[23] 200 ms each way at 64 kbit/s: with the default time-outs nobody is lost."""
        cluster = self.cluster({"n1": 1}, loopback=True)
        link = SlowLink(cluster.port)
        self.addCleanup(link.stop)
        cluster.slots["far"] = 1
        port, cluster.port = cluster.port, link.port
        cluster.start_agent("far")
        cluster.port = port
        cluster.wait_for_nodes("far")
        client = cluster.run("-n", 2, "--", "sh", "-c", "for i in 1 2 3 4 5 6 7 8; do sleep 1; echo $i; done")
        run = client.run_id()
        self.assertEqual(client.wait(), 0, client.said())
        self.assertEqual([event["event"] for event in cluster.lines(run) if event["event"] in ("failure", "node_lost", "resized")], [])
        self.assertEqual(sorted(client.said()[1].split()), sorted([f"{rank}:" for rank in (0, 1)] * 8 + list("12345678") * 2))

    def test_address_that_leads_nowhere_is_tried_again_and_told(self):
        """[24]"""
        with tempfile.TemporaryDirectory() as folder, open(os.path.join(folder, "log"), "w+", encoding="utf-8") as log:
            agent = subprocess.Popen([LAUNCHER, *AGENT, "--join", f"unix:{folder}/no-such.sock", "--state-dir", folder],
                                     stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            try:
                wait_for(lambda: b"coordinator: cannot reach unix:" in read_file(log.name), LIMIT_S, "the reason")
                self.assertIsNone(agent.poll())
            finally:
                agent.send_signal(signal.SIGTERM)
                self.assertEqual(agent.wait(LIMIT_S), 0)

    def test_port_that_is_taken(self):
        """[25] [60] And a folder that another coordinator has."""
        cluster = self.cluster({}, loopback=True)
        with tempfile.TemporaryDirectory() as folder:
            taken = self.verb("coordinator", "--insecure-loopback", "--listen", cluster.address, "--state-dir", folder)
        self.assertEqual(taken.returncode, 1)
        self.assertIn(f"cannot listen on {cluster.address}: Address already in use", taken.stderr)
        second = self.verb("coordinator", "--state-dir", os.path.join(cluster.folder, "coordinator"))
        self.assertNotEqual(second.returncode, 0)
        self.assertIn(str(cluster.coordinator.pid), second.stderr)

    def test_client_that_does_not_read_holds_nobody_up(self):
        """[27] [28]"""
        cluster = self.cluster({"n1": 1})
        before = resident_bytes(cluster.coordinator.pid)
        client = cluster.run("-n", 1, "--no-prefix", "--", "sh", "-c", "sleep 1; seq 1 2000000; echo end")
        run = client.run_id()
        client.process.send_signal(signal.SIGSTOP)
        cluster.wait_for_event(run, "run_finished")
        self.assertEqual(cluster.ask("status", run)["state"], "succeeded")
        self.assertLess(resident_bytes(cluster.coordinator.pid), before + (16 << 20))
        client.process.send_signal(signal.SIGCONT)
        self.assertEqual(client.wait(), 0)
        self.assertEqual(client.said()[1], "".join(f"{number}\n" for number in range(1, 2_000_001)) + "end\n")

    def test_descriptors_that_run_out(self):
        """[26] Who is there is served, others are turned away at once, and let in when there are some again."""
        cluster = self.cluster({"n1": 1})
        client = cluster.run("-n", 1, "--", "sh", "-c", f"while [ ! -e {cluster.folder}/go ]; do sleep 0.1; done; seq 1 1000")
        run = client.run_id()
        cluster.wait_for_event(run, "worker_started")
        resource.prlimit(cluster.coordinator.pid, resource.RLIMIT_NOFILE, (FILES, FILES))
        with contextlib.ExitStack() as idle:
            for _ in range(FILES):
                idle.enter_context(Wire(cluster.address))
            wait_for(lambda: f"of {FILES} files are in use" in cluster.log_of("coordinator"), LIMIT_S, "somebody to be turned away")
            with open(os.path.join(cluster.folder, "go"), "w", encoding="utf-8"):
                pass
            self.assertEqual(client.wait(), 0, client.said())
        self.assertEqual(cluster.ask("status", run)["state"], "succeeded")
        self.assertEqual(len(client.said()[1].splitlines()), 1000)
        self.assertEqual(cluster.lines(run)[-1]["event"], "run_finished")

    def test_store_that_has_lost_its_end(self):
        """[17] What it had acknowledged is missing: the nodes that trusted it are started anew, and the run goes on."""
        cluster = self.cluster({"n1": 1})
        client = cluster.run("-n", 1, "--max-failures", 3, "--", "sh", "-c",
                             f"while [ ! -e {cluster.folder}/go ]; do sleep 0.1; done; echo done")
        run = client.run_id()
        cluster.wait_for_event(run, "worker_started")
        wait_for(lambda: trusts_all_it_told(os.path.join(cluster.folder, "agent-n1", "agent.journal")), LIMIT_S,
                 "the agent to hear that all it has told is kept")
        cluster.kill("coordinator")
        wal = next(name for name in os.listdir(os.path.join(cluster.folder, "coordinator")) if name.endswith("-wal"))
        path = os.path.join(cluster.folder, "coordinator", wal)
        os.truncate(path, os.path.getsize(path) - 100)  # The newest commit is torn.
        cluster.start_coordinator()
        with open(os.path.join(cluster.folder, "go"), "w", encoding="utf-8"):
            pass
        self.assertEqual(client.wait(), 0, client.said())
        lost = [line["reason"] for line in cluster.lines(run) if line["event"] == "node_lost"]
        self.assertEqual(lost, ["the coordinator has lost what it had acknowledged"])
        self.assertEqual(cluster.ask("status", run)["state"], "succeeded")

    def test_command_that_one_node_lacks(self):
        """[38] Nothing is tried again that cannot get better."""
        cluster = self.cluster({"n1": 1})
        client = cluster.run("-n", 1, "--max-failures", 5, "--", "/no/such/program")
        self.assertIn(client.wait(), (1, 2), client.said())
        self.assertIn("/no/such/program", client.said()[0])

    @unittest.skipIf(os.geteuid() != 0, "makes a mount namespace")
    def test_data_that_one_node_lacks(self):
        """[39] The failure names the node and the file."""
        with tempfile.TemporaryDirectory() as folder:
            cluster = self.cluster({"n1": 1})
            data = small_fashion(os.path.join(folder, "data"), 600, 100)
            cluster.slots["bare"] = 1
            cluster.on = lambda machine: ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {data}; exec \"$@\"", "sh"] \
                if machine == "bare" else []
            cluster.start_agent("bare")
            cluster.wait_for_nodes("bare")
            client = cluster.run("--max-failures", 5, write_job(os.path.join(folder, "job.json"), image_job(data)))
            self.assertNotEqual(client.wait(), 0)
            self.assertIn(data, client.said()[0])
            self.assertIn("bare", client.said()[0])

    def test_a_lost_node_takes_no_more_than_what_it_has_not_sent(self):
        """It saves faster than it sends, and the job keeps one checkpoint: what has come counts, though the job would not keep it."""
        cluster = self.cluster({"n1": 1, "n2": 1}, coordinator_options=["--node-timeout", "3s"])
        dataset = {"type": "linear", "samples": 1000, "validation_samples": 8}
        job = write_job(os.path.join(cluster.folder, "job.json"), {
            "name": "fast", "num_workers": 1, "checkpoint": {"every": {"steps": 1}, "keep": 1, "memory": False},
            "training": {"epochs": 100_000, "batch_size": 8, "model": {"type": "linear"}, "loss": "mse", "dataset": dataset,
                         "optimizer": {"type": "sgd", "lr": 0.001}}})
        run = cluster.run(job).run_id()
        folder = os.path.join(cluster.run_dir(run), "checkpoints")
        for lost in (1, 2):
            wait_for(lambda many=20 * lost: len(cluster.events(run, "checkpoint_saved")) > many and
                     any(name.startswith("step-") for name in os.listdir(folder)), LIMIT_S, "checkpoints that have come")
            cluster.kill_node(cluster.events(run, "worker_started")[-1]["node"])
            begun = cluster.wait_for_event(run, "restored", lost)
            self.assertEqual(begun["source"], "disk", cluster.events(run, "checkpoint_rejected"))
            self.assertGreater(begun["step"], 0)
            if lost == 1:
                node = next(name for name in cluster.slots if cluster.agents[name].poll() is not None)
                cluster.start_agent(node)
                cluster.wait_for_nodes(node)

    def test_coordinator_goes_on_from_a_copy_of_its_folder(self):
        """[16] The machine is lost for good, and its folder was kept."""
        cluster = self.cluster({"n1": 1})
        client = cluster.run("-n", 1, "--", "sh", "-c", "sleep 3; echo end")
        run = client.run_id()
        cluster.wait_for_event(run, "worker_started")
        cluster.kill("coordinator")
        folder = os.path.join(cluster.folder, "coordinator")
        shutil.copytree(folder, folder + ".copy", symlinks=True, ignore=shutil.ignore_patterns("*.sock"))
        shutil.rmtree(folder)
        os.rename(folder + ".copy", folder)
        cluster.start_coordinator()
        self.assertEqual(client.wait(), 0, client.said())
        self.assertEqual((client.said()[1], cluster.events(run, "failure")), ("0: end\n", []))

    @unittest.skipUnless(os.geteuid() == 0, "only root guards itself against whoever may rename its folders")
    def test_a_coordinator_of_root_below_a_folder_of_all_finds_its_runs_again(self):
        """As in a container with a volume: what it has named by its own descriptors, the next one would not find, or find another's."""
        folder = tempfile.mkdtemp(prefix="sgd-cluster-")
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        os.chmod(folder, 0o777)
        cluster = self.cluster({"n1": 2}, folder=folder)
        self.assertIn("others may rename a folder above", cluster.log_of("coordinator"))
        client = cluster.run("-n", 1, "--", "sh", "-c", f"echo begin; while [ ! -e {folder}/go ]; do sleep 0.05; done; echo end")
        run = client.run_id()
        cluster.wait_for_event(run, "worker_started")
        cluster.kill("coordinator")
        cluster.start_coordinator()
        self.assertEqual(cluster.ask("status", run)["run_dir"], cluster.run_dir(run))
        with open(os.path.join(folder, "go"), "w", encoding="ascii"):
            pass
        self.assertEqual(client.wait(), 0, client.said())
        self.assertEqual(client.said()[1], "0: begin\n0: end\n")
        self.assertEqual(len(cluster.events(run, "run_finished")), 1)
        self.assertEqual(read_file(os.path.join(cluster.run_dir(run), "logs", "gen-0001", "rank-0000.log")), b"begin\nend\n")

    def test_a_run_that_crashes_takes_no_other_with_it(self):
        """[63]"""
        cluster = self.cluster({"n1": 2})
        good = cluster.run("-n", 1, "--", "sh", "-c", "sleep 2; echo end")
        cluster.wait_for_event(good.run_id(), "worker_started")
        bad = cluster.run("-n", 1, "--max-failures", 2, "--set", 'recovery={"backoff":{"first":"10ms"}}', "--", "sh", "-c", "exit 9")
        self.assertEqual(bad.wait(), 1, bad.said())
        self.assertEqual(good.wait(), 0, good.said())
        self.assertEqual(len(cluster.events(good.run_id(), "worker_started")), 1)

    def test_daemons_end_in_order(self):
        """[62] The coordinator leaves runs to their nodes; an agent that leaves ends its ranks, and a second signal at once."""
        cluster = self.cluster({"n1": 1})
        client = cluster.run("-n", 1, "--max-failures", 0, "--", "sh", "-c", "trap '' TERM; sleep 100")
        run = client.run_id()
        pid = cluster.wait_for_event(run, "worker_started")["pid"]
        cluster.coordinator.send_signal(signal.SIGTERM)
        self.assertEqual(cluster.coordinator.wait(LIMIT_S), 0)
        self.assertTrue(os.path.exists(f"/proc/{pid}"))
        cluster.start_coordinator()
        cluster.wait_for_nodes("n1")
        cluster.kill("n1", signal.SIGHUP)
        self.assertIsNone(cluster.agents["n1"].poll())
        cluster.kill("n1", signal.SIGTERM)
        wait_for(lambda: "this node leaves" in cluster.log_of("n1"), LIMIT_S, "the first signal")
        cluster.kill("n1", signal.SIGTERM)
        cluster.agents["n1"].wait(LIMIT_S)
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), LIMIT_S, "the end of the rank")


if __name__ == "__main__":
    unittest.main()
