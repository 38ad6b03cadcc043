"""Coordinator and agents as programs: what is submitted trains on their nodes, and goes on whatever is lost. Names in
brackets are rows of the list of failure modes."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from attacker import HELLO, Wire
from cluster import Cluster
from data import image_job, small_fashion, write_job
from harness import LAUNCHER, LIMIT_S, read_file, wait_for
from namespaces import Network, available

SAMPLES = 6_400
ENDLESS = 100_000  # Epochs of a run that is stopped when all has happened to it.
END_S = 240  # Of a run whose epochs are enough for what happens to it, on a machine with other work.
KILLS = 5  # Of the coordinator; scripts/bench cluster has more.


class ClusterCase(unittest.TestCase):
    nodes = {"n1": 2, "n2": 2}
    agent_options = {}
    coordinator_options = ()
    has_network = False  # Nodes in network namespaces of their own, with TLS, where this machine allows it.

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-cluster-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        network = None
        if self.has_network and available():
            network = Network(list(self.nodes), prefix=f"sgdt{os.getpid() % 10_000}")
            self.addCleanup(network.down)
            network.up()
        self.cluster = Cluster(self.nodes, network=network, agent_options=self.agent_options, coordinator_options=self.coordinator_options)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__)

    def job(self, epochs, workers=4, **parts):
        job = image_job(small_fashion(os.path.join(self.folder, "data"), SAMPLES, 1000), epochs=epochs, batch_size=400)
        job["num_workers"] = workers
        job["recovery"] = {"cooldown": "500ms", "backoff": {"first": "100ms"}}
        job.update(parts)
        return write_job(os.path.join(self.folder, "job.json"), job)

    def weights(self, run):
        folder = os.path.join(self.cluster.run_dir(run), "checkpoints")
        return read_file(os.path.join(folder, sorted(os.listdir(folder))[-1], "model.safetensors"))

    def stop_and_check(self, client, run):
        """Ends a run whose epochs have no end, one epoch after what happened to it; gives how many it finished."""
        self.cluster.wait_for_event(run, "epoch_finished", len(self.cluster.events(run, "epoch_finished")) + 1)
        self.assertEqual(self.cluster.run("stop", run).wait(), 0)
        self.assertEqual(client.wait(END_S), 6, client.said())
        epochs = len(self.cluster.events(run, "epoch_finished"))
        self.check_samples(run, epochs)
        return epochs

    def check_failures(self, run, count):
        self.assertEqual(self.cluster.ask("status", run)["failures"], count, self.cluster.lines(run))

    def check_samples(self, run, epochs):
        """Each epoch once, and in each of them every sample once."""
        self.assertEqual([event["epoch"] for event in self.cluster.events(run, "epoch_finished")], list(range(1, epochs + 1)))
        for line in self.cluster.lines(run, "metrics.jsonl"):
            if line["phase"] == "train":
                self.assertEqual(line["num_samples"], SAMPLES, line)


class CommandTest(ClusterCase):
    agent_options = {"n2": ["--label", "disk=fast", "--memory", "3GiB", "--orphan-timeout", "1s"]}

    def test_nothing_of_a_run_that_is_over_stays_open(self):
        def files_of_runs(process):
            folder, paths = f"/proc/{process.pid}/fd", []
            for name in os.listdir(folder):
                with contextlib.suppress(FileNotFoundError):  # Closed meanwhile.
                    paths.append(os.readlink(os.path.join(folder, name)))
            return [path for path in paths if "/runs/" in path or "/spool/" in path]

        for _ in range(3):
            client = self.cluster.run("-n", 4, "--", "echo", "here")
            self.assertEqual(client.wait(), 0, client.said())
        for process in (self.cluster.coordinator, *self.cluster.agents.values()):
            wait_for(lambda process=process: not files_of_runs(process), LIMIT_S, "nothing open below a run's folder")

    def test_output_and_exit_code_are_those_of_a_local_run(self):
        client = self.cluster.run("-n", 3, "--", "sh", "-c", "echo out $RANK of $WORLD_SIZE; echo err $RANK >&2")
        self.assertEqual(client.wait(), 0, client.said())
        err, out = client.said()
        self.assertEqual(sorted(out.splitlines()), sorted([f"{rank}: {line}" for rank in range(3)
                                                           for line in (f"out {rank} of 3", f"err {rank}")]))
        self.assertIn("on the cluster at", err)
        failed = self.cluster.run("-n", 2, "--", "sh", "-c", "test $RANK = 0 || exit 7; sleep 100")
        self.assertEqual(failed.wait(), 1, failed.said())
        self.assertIn("run failed: exit code 7, rank 1", failed.said()[0])

    def test_arguments_of_hundreds_of_thousands_of_bytes_reach_a_node(self):
        words = [f"{number:05}".ljust(100, "x") for number in range(2400)]
        client = self.cluster.run("-n", 2, "--no-prefix", "--", "sh", "-c", 'echo "$# ${2400}"', "sh", *words)
        self.assertEqual(client.wait(LIMIT_S), 0, client.said())
        self.assertEqual(client.said()[1].splitlines(), ["2400 " + words[-1]] * 2)

    def test_detached_run_is_listed_shown_and_stopped(self):
        client = self.cluster.run("submit", "--detach", "-n", 2, "--", "sleep", "100")
        self.assertEqual(client.wait(), 0, client.said())
        run = client.said()[1].strip()
        self.cluster.wait_for_event(run, "worker_started", 2)
        row, = self.cluster.ask("ps")["runs"]
        self.assertEqual((row["run"], row["world_size"], row["num_workers"]), (run, 2, 2))
        status = self.cluster.ask("status", run[:-3])
        self.assertEqual((status["run"], len(status["ranks"])), (run, 2))
        self.assertEqual(self.cluster.ask("status", "latest")["run"], run)
        self.assertEqual({name: node["used"] for name, node in self.cluster.nodes().items()}, {"n1": 2, "n2": 0})
        stopped = self.cluster.run("stop", run)
        self.assertEqual(stopped.wait(), 0, stopped.said())
        self.assertEqual(self.cluster.ask("status", run)["exit_code"], 6)
        self.assertEqual(self.cluster.ask("ps")["runs"], [])
        self.assertEqual(self.cluster.ask("ps", "--all")["runs"][0]["state"], "cancelled")

    def test_logs_and_events_of_any_run(self):
        client = self.cluster.run("-n", 2, "--", "sh", "-c", "echo one $RANK; echo two $RANK")
        run = client.run_id()
        self.assertEqual(client.wait(), 0, client.said())
        for arguments, expected in [(["logs", run, "--rank", 1], "1: one 1\n1: two 1\n"),
                                    (["logs", "-f", "--no-prefix", "--rank", 0], "one 0\ntwo 0\n"),
                                    (["logs", "--generation", 7], "")]:
            reader = self.cluster.run(*arguments)
            self.assertEqual(reader.wait(), 0, reader.said())
            self.assertEqual(reader.said()[1], expected, arguments)
        self.assertIn("there is no line in its logs of generation 7", reader.said()[0])
        self.assertIn(f'no run "no-such-run" on the cluster; there is {run}', self.cluster.run("logs", "no-such-run").wait_and_say(4))
        for options in ([], ["-f"]):
            reader = self.cluster.run("logs", *options, run, "--rank", 9)
            self.assertEqual(reader.wait(), 4, reader.said())
            self.assertIn(f"run {run} has no log of rank 9; it has ranks 0 to 1", reader.said()[0])
        reader = self.cluster.run("events", run)
        self.assertEqual(reader.wait(), 0, reader.said())
        self.assertEqual([json.loads(line) for line in reader.said()[1].splitlines()], self.cluster.lines(run))

    def test_ranks_go_where_labels_and_memory_allow(self):
        plan = self.cluster.ask("plan", "-n", 2, "--set", 'placement={"labels":{"disk":"fast"}}', "--", "true")
        self.assertEqual({row["node"]: row["ranks"] for row in plan["nodes"]}, {"n1": [], "n2": [0, 1]})
        self.assertEqual(self.cluster.nodes()["n2"]["memory_bytes"], 3 << 30)
        self.assertGreater(self.cluster.nodes()["n1"]["memory_bytes"], 0)
        refused = self.cluster.ask("plan", "-n", 2, "--set", 'placement={"labels":{"disk":"fast"}}', "--set",
                                   "per_worker.memory=2GiB", "--", "true")
        self.assertFalse(refused["starts_now"])

    def test_drained_node_takes_nothing_new(self):
        drained = self.cluster.ask("nodes", "drain", "n1")
        self.assertIn("drained", {row["node"]: row for row in drained["nodes"]}["n1"]["state"])
        rows = [line.split() for line in self.cluster.verb("nodes", "--address", self.cluster.address).splitlines()]
        self.assertEqual(rows[0], ["node", "slots", "used", "state"])
        whole = self.cluster.nodes()
        self.assertEqual(rows[1:], [[name, *(str(whole[name][key]) for key in ("slots", "used", "state"))] for name in ("n1", "n2")])
        plan = self.cluster.ask("plan", "-n", 2, "--", "true")
        self.assertEqual([(row["node"], row["ranks"]) for row in plan["nodes"]], [("n1", []), ("n2", [0, 1])])
        client = self.cluster.run("-n", 2, "--", "true")
        run = client.run_id()
        self.assertEqual(client.wait(), 0, client.said())
        self.assertEqual({event["node"] for event in self.cluster.events(run, "worker_started")}, {"n2"})
        self.assertFalse(self.cluster.ask("plan", "-n", 3, "--", "true")["starts_now"])
        self.cluster.ask("nodes", "undrain", "n1")
        self.assertTrue(self.cluster.ask("plan", "-n", 3, "--", "true")["starts_now"])
        self.assertIn("no node", self.cluster.ask("nodes", "drain", "n9", expect=4))
        self.assertIn("did you mean drain?", self.cluster.ask("nodes", "drian", "n1", expect=2))

    def test_a_script_of_the_clients_folder_is_named_with_the_way_to_bring_it(self):
        with open(os.path.join(self.cluster.folder, "here.py"), "w", encoding="utf-8") as file:
            file.write("print('it is here')\n")
        command = ["--", "/usr/bin/python3", "-S", "here.py"]
        client = self.cluster.run("-n", 1, *command)
        self.assertEqual(client.wait(), 1, client.said())
        warning = "here.py is a file of this folder"
        told, _ = client.said()
        self.assertIn(f"""warning: {warning}, and the nodes start the command in a folder of their own: bring it there with --set 'files=["here.py"]'""",
                      told)
        client = self.cluster.run("-n", 1, "--set", 'files=["here.py"]', *command)
        self.assertEqual(client.wait(), 0, client.said())
        told, shown = client.said()
        self.assertIn("it is here", shown)
        self.assertNotIn(warning, told)

    def test_a_client_that_goes_takes_nothing_with_it(self):
        client = self.cluster.run("-n", 1, "--", "sh", "-c", "sleep 1; echo end")
        run = client.run_id()
        self.cluster.wait_for_event(run, "worker_started")
        client.process.kill()
        self.cluster.wait_for_event(run, "run_finished")
        self.assertEqual(self.cluster.ask("status", run)["state"], "succeeded")

    def test_ranks_without_a_coordinator_end_after_orphan_timeout(self):
        """[18] And the run goes on when it is back."""
        client = self.cluster.run("-n", 1, "--max-failures", 1, "--set", 'placement={"labels":{"disk":"fast"}}', "--", "sh", "-c",
                                  "echo $SGD_GENERATION; test $SGD_GENERATION = 2 || sleep 100")
        run = client.run_id()
        pid = self.cluster.wait_for_event(run, "worker_started")["pid"]
        self.cluster.kill("coordinator")
        wait_for(lambda: not os.path.exists(f"/proc/{pid}"), LIMIT_S, "the end of the rank")
        self.cluster.start_coordinator()
        self.assertEqual(client.wait(), 0, client.said())
        self.assertIn("no coordinator for 1s", self.cluster.events(run, "failure")[0]["message"])

    def test_a_request_made_twice_is_one_run(self):
        """As a client does whose link was lost before the answer; nothing is left of the second."""
        first = self.cluster.run("-n", 1, "--", "true")
        self.assertEqual(first.wait(), 0, first.said())
        job = json.loads(read_file(os.path.join(self.cluster.run_dir(first.run_id()), "job.json")))
        folders = set(os.listdir(os.path.dirname(self.cluster.run_dir(first.run_id()))))
        answers = []
        for number in (1, 2):
            with Wire(self.cluster.address, tls=False) as wire:
                wire.send(HELLO, {"type": "client", "version": "x"},
                          {"type": "request", "id": number, "request": "submit", "request_id": "twice", "job": job})
                answers.append(wire.read_until("answer"))
        self.assertTrue(answers[0]["ok"], answers)
        self.assertEqual(answers[0]["run"], answers[1]["run"])
        made = set(os.listdir(os.path.dirname(self.cluster.run_dir(answers[0]["run"])))) - folders
        self.assertEqual(made, {answers[0]["run"]})

    def test_a_run_that_waits_for_a_place_says_why(self):
        for job in (["--", "true"], [self.job(epochs=1)]):
            with self.subTest(job=job):
                client = self.cluster.run("-n", 100, "--quiet", *job)
                wait_for(lambda told=client: "sgd-launch: waiting: 100 slots wanted" in told.said()[0], LIMIT_S, "the reason")
                client.process.send_signal(signal.SIGINT)
                self.assertEqual(client.wait(), 130, client.said())

    def test_interrupted(self):
        client = self.cluster.run("-n", 2, "--", "sleep", "100")
        self.cluster.wait_for_event(client.run_id(), "worker_started", 2)
        client.process.send_signal(signal.SIGINT)
        self.assertEqual(client.wait(), 130, client.said())

    def test_a_signal_ends_a_client_whose_run_is_over_and_whose_output_is_read_slowly(self):
        told = os.path.join(self.folder, "told")
        with open(told, "wb") as err:
            client = subprocess.Popen([LAUNCHER, "-n", "1", "--", "seq", "1", "2000000"], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                      stderr=err, env=self.cluster.environment(address=True), cwd=self.cluster.folder)
        self.addCleanup(client.kill)

        def drip():
            while client.stdout.read1(4096):
                time.sleep(0.02)
        reader = threading.Thread(target=drip)
        reader.start()
        self.addCleanup(client.stdout.close)
        self.addCleanup(reader.join)
        self.addCleanup(client.kill)
        row = wait_for(lambda: [row for row in self.cluster.ask("ps", "--all")["runs"] if row["state"] == "succeeded"], LIMIT_S, "the run's end")[0]
        self.assertIsNone(client.poll())  # It has most of the lines before it.
        client.send_signal(signal.SIGTERM)
        self.assertEqual(client.wait(5), 0, read_file(told))
        self.assertIn(f"the rest of its output is not shown: sgd-launch logs {row['run']}\n", read_file(told).decode())
        self.assertIn("finished in", read_file(told).decode())

    def test_what_is_refused(self):
        for arguments, code, word in [
                (["status", "no-such-run"], 4, 'no run "no-such-run" on the cluster'),
                (["-n", 2, "--slots", 1, "--", "true"], 2, "--slots"),
                (["-n", 2, "--run-dir", "x", "--detach", "--", "true"], 2, "--run-dir"),
                (["-n", 2, "--address", "127.0.0.1:1", "--", "true"], 3, "no coordinator at 127.0.0.1:1: Connection refused"),
                (["ps", "--address", "a b"], 2, "--address"),
                (["checkpoints", "no-such-run"], 4, "no run"),
                (["resume", "no-such-run"], 4, "no run"),
                (["-n", 100, "--set", "placement_timeout=100ms", "--", "true"], 5, "100 slots wanted, 4 available"),
        ]:
            client = self.cluster.run(*arguments)
            self.assertEqual(client.wait(), code, (arguments, client.said()))
            self.assertIn(word, client.said()[0])


class TrainingTest(ClusterCase):
    has_network = True

    def straight(self, epochs):
        """A run that nothing happens to."""
        client = self.cluster.run(self.job(epochs=epochs))
        self.assertEqual(client.wait(END_S), 0, client.said())
        return client.run_id()

    def gone_on_with(self, former, epochs):
        """The rest of a run. How many epochs it has is said only here, so that it was not over before all had happened to it."""
        client = self.cluster.run("resume", former, "--set", f"training.epochs={epochs}")
        self.assertEqual(client.wait(END_S), 0, client.said())
        self.check_samples(client.run_id(), epochs)
        return client

    def test_killed_rank_leaves_the_same_weights(self):
        client = self.cluster.run(self.job(epochs=ENDLESS))
        killed = client.run_id()
        self.cluster.wait_for_event(killed, "epoch_finished", 2)
        os.kill(next(e["pid"] for e in self.cluster.events(killed, "worker_started") if e["rank"] == 3), signal.SIGKILL)
        self.cluster.wait_for_event(killed, "recovered")
        epochs = self.stop_and_check(client, killed) + 2
        runs = [self.gone_on_with(killed, epochs).run_id(), self.straight(epochs)]
        self.check_samples(runs[1], epochs)
        for run in runs:
            saved = self.cluster.ask("checkpoints", run)["checkpoints"]
            self.assertTrue(saved and all(one["whole"] for one in saved), saved)
            self.assertEqual(saved[0]["path"], self.cluster.events(run, "checkpoint_saved")[-1]["path"])
        self.assertEqual([len(self.cluster.events(run, "recovered")) for run in (killed, runs[1])], [1, 0])
        self.assertEqual(*map(self.weights, runs))

    def test_stopped_run_is_gone_on_with(self):
        stopped = self.cluster.run(self.job(epochs=ENDLESS))
        former = stopped.run_id()
        self.cluster.wait_for_event(former, "epoch_finished", 2)
        self.assertIn("is still running", self.cluster.run("resume", former).wait_and_say(2))
        epochs = self.stop_and_check(stopped, former) + 2
        resumed = self.gone_on_with(former, epochs)
        run = resumed.run_id()
        self.assertNotEqual(run, former)
        self.assertEqual(self.weights(run), self.weights(self.straight(epochs)))
        self.assertEqual(self.cluster.ask("status", former)["state"], "cancelled")
        self.assertEqual([event["of"] for event in self.cluster.events(run, "run_resumed")], [former])
        self.assertNotIn(f"epoch 1/{epochs}", resumed.said()[1])
        self.assertIn(f"nothing to train: all {epochs} epochs are trained", self.cluster.run("resume", run).wait_and_say(2))
        detached = self.cluster.run("resume", "--detach", run, "--set", f"training.epochs={epochs + 1}")
        self.assertEqual(detached.wait(), 0, detached.said())
        name = detached.said()[1].strip()
        self.assertIn(name, [row["run"] for row in self.cluster.ask("ps", "--all")["runs"]])
        wait_for(lambda: self.cluster.ask("status", name)["state"] == "succeeded", END_S, "the run that nobody follows")

    def test_frozen_node_is_lost_and_obeys_when_it_is_back(self):
        """[18] [22]"""
        client = self.cluster.run(self.job(epochs=ENDLESS))
        run = client.run_id()
        self.cluster.wait_for_event(run, "epoch_finished", 2)
        frozen = [self.cluster.agents["n2"].pid]
        self.cluster.agents["n2"].send_signal(signal.SIGSTOP)
        for event in self.cluster.events(run, "worker_started"):
            if event["node"] == "n2":
                os.kill(event["pid"], signal.SIGSTOP)
                frozen.append(event["pid"])
        began = time.time()
        down = self.cluster.wait_for_event(run, "resized")
        self.assertEqual((down["from"], down["to"]), (4, 2))
        stepped = self.cluster.wait_for_event(run, "first_step", 2)
        print(f"frozen node: first step after {stepped['time'] - began:.2f} s", file=sys.stderr)
        for pid in frozen:
            with contextlib.suppress(ProcessLookupError):  # The agent, which goes first, ends its ranks.
                os.kill(pid, signal.SIGCONT)
        up = self.cluster.wait_for_event(run, "resized", 2)
        self.assertEqual((up["from"], up["to"]), (2, 4))
        self.stop_and_check(client, run)

    def test_killed_coordinator_costs_no_step(self):
        """[15] [58]"""
        client = self.cluster.run(self.job(epochs=ENDLESS))
        run = client.run_id()
        self.cluster.wait_for_event(run, "epoch_finished", 2)
        for kill in range(KILLS):
            epochs = len(self.cluster.events(run, "epoch_finished"))
            self.cluster.kill("coordinator")
            self.cluster.start_coordinator()
            detached = self.cluster.run("submit", "--detach", "-n", 4, "--", "true")
            self.assertEqual(detached.wait(), 0, detached.said())
            self.assertIn(detached.said()[1].strip(), [row["run"] for row in self.cluster.ask("ps", "--all")["runs"]])
            wait_for(lambda before=epochs: len(self.cluster.events(run, "epoch_finished")) > before or client.process.poll() is not None,
                     LIMIT_S, f"an epoch after kill {kill}")
        epochs = self.stop_and_check(client, run)
        self.assertEqual(self.cluster.events(run, "failure"), [])
        self.assertEqual(len(self.cluster.events(run, "worker_started")), 4)
        self.assertEqual(len(self.cluster.events(run, "coordinator_restarted")), KILLS)
        self.assertEqual(self.cluster.ask("status", run)["generation"], 1)
        # What the client printed has no gap and no line twice; a validation that the stop has interrupted has none.
        printed = [line.split()[1] for line in client.said()[1].splitlines() if line.startswith("epoch ")]
        expected = [f"{epoch}/{ENDLESS}" for epoch in range(1, epochs + 2) for _ in ("train", "validate")]
        self.assertEqual(printed, expected[: max(2 * epochs, min(len(printed), 2 * epochs + 1))])

    def test_node_that_is_asked_to_leave(self):
        """[55]"""
        client = self.cluster.run(self.job(epochs=ENDLESS))
        run = client.run_id()
        self.cluster.wait_for_event(run, "epoch_finished", 2)
        self.cluster.kill("n2", signal.SIGTERM)
        down = self.cluster.wait_for_event(run, "resized")
        self.assertEqual((down["from"], down["to"]), (4, 2))
        self.assertEqual(self.cluster.agents["n2"].wait(30), 0)
        self.stop_and_check(client, run)
        self.check_failures(run, 0)

    def test_nodes_that_leave_do_not_wait_for_a_run_that_can_go_nowhere(self):
        client = self.cluster.run(self.job(epochs=ENDLESS))
        run = client.run_id()
        self.cluster.wait_for_event(run, "epoch_finished")
        for node in ("n1", "n2"):
            self.cluster.kill(node, signal.SIGTERM)
        for node in ("n1", "n2"):
            self.assertEqual(self.cluster.agents[node].wait(30), 0, "an agent waits for 60 s at most, and here for nothing")
        self.cluster.wait_for_event(run, "backoff")
        for node in ("n1", "n2"):
            self.cluster.start_agent(node)
        self.cluster.wait_for_event(run, "first_step", 2)
        self.stop_and_check(client, run)
        self.check_failures(run, 0)


class KilledNodeTest(ClusterCase):
    has_network = True
    node_timeout_s = 45  # Longer than anything else here takes.
    coordinator_options = ("--node-timeout", f"{node_timeout_s}s")

    def test_killed_node_is_gone_without_and_taken_back(self):
        """[13] [14] [47] Its memory is lost with it: it fetches the checkpoint that the run goes on from."""
        client = self.cluster.run(self.job(epochs=ENDLESS))
        run = client.run_id()
        self.cluster.wait_for_event(run, "epoch_finished", 2)
        began = time.time()
        self.cluster.kill_node("n2")
        down = self.cluster.wait_for_event(run, "resized")
        stepped = self.cluster.wait_for_event(run, "first_step", 2)
        print(f"killed node: first step after {stepped['time'] - began:.2f} s", file=sys.stderr)
        self.assertLess(stepped["time"] - began, self.node_timeout_s,
                        f"nobody waits for a node whose ranks are known to be gone: {self.cluster.lines(run)[-12:]}")
        self.cluster.start_agent("n2")
        up = self.cluster.wait_for_event(run, "resized", 2)
        self.assertEqual((down["from"], down["to"], up["from"], up["to"]), (4, 2, 2, 4))
        self.stop_and_check(client, run)
        self.check_failures(run, 1)


if __name__ == "__main__":
    unittest.main()
