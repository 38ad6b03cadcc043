"""An agent that is killed and started again takes over what it had started: ranks go on, and nothing of the time between is
lost."""

import os
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from data import image_job, small_fashion, write_job
from harness import LIMIT_S, command_of, read_file, wait_for

SAMPLES = 6_400
ENDLESS = 100_000  # Epochs of a run that is stopped when all has happened to it.
END_S = 240
KILLS = 12


class TakeoverCase(unittest.TestCase):
    nodes = {"n1": 2}
    agent_options = {}
    coordinator_options = ("--node-timeout", "60s")  # How long an agent is away is the machine's affair.

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-takeover-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.cluster = Cluster(self.nodes, agent_options=self.agent_options, coordinator_options=self.coordinator_options)
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__)

    def path(self, name):
        return os.path.join(self.folder, name)

    def touch(self, name):
        with open(self.path(name), "w", encoding="utf-8"):
            pass

    def waits_for(self, name):
        """Shell words that wait for a file."""
        return f"while [ ! -e {self.path(name)} ]; do sleep 0.05; done"

    def keeper(self):
        return next(pid for pid in self.cluster.left() if command_of(pid)[1:2] == ["keeper"])

    def wait_for_takeover(self, count=1):
        wait_for(lambda: self.cluster.log_of("n1").count("takes over") >= count, LIMIT_S, "the agent to take over")

    def restart(self):
        """Returns how long it took until the coordinator had the node again."""
        self.cluster.kill("n1")
        began = time.monotonic()
        before = self.cluster.log_of("n1").count("takes over")
        self.cluster.start_agent("n1")
        self.wait_for_takeover(before + 1)
        self.cluster.wait_for_nodes("n1")
        return time.monotonic() - began


class CommandTest(TakeoverCase):
    def test_a_command_goes_on(self):
        client = self.cluster.run("-n", 2, "--", "sh", "-c", f"echo begin; {self.waits_for('go')}; echo end")
        run = client.run_id()
        self.cluster.wait_for_event(run, "worker_started", 2)
        print(f"from the agent's end to a node that is connected again: {self.restart():.3f} s", file=sys.stderr)
        self.touch("go")
        self.assertEqual(client.wait(), 0, client.said())
        self.assertEqual(sorted(client.said()[1].splitlines()), sorted(f"{rank}: {word}" for rank in (0, 1) for word in ("begin", "end")))
        self.assertEqual(len(self.cluster.events(run, "worker_started")), 2)
        self.assertEqual(self.cluster.events(run, "failure"), [])
        log = self.cluster.log_of("coordinator")
        self.assertLess(log.index("node n1: disconnected: "), log.rindex("node n1: connected"))

    def test_a_command_that_ends_while_the_agent_is_away(self):
        """Its exit code and all its lines are there."""
        client = self.cluster.run("-n", 1, "--no-prefix", "--", "sh", "-c", f"{self.waits_for('go')}; seq 1 20000; exit 3")
        run = client.run_id()
        pid = self.cluster.wait_for_event(run, "worker_started")["pid"]
        self.cluster.kill("n1")
        self.touch("go")
        wait_for(lambda: pid not in self.cluster.left(), LIMIT_S, "the end of the rank")
        self.cluster.start_agent("n1")
        self.assertEqual(client.wait(), 1, client.said())
        ended, = self.cluster.events(run, "worker_exited")
        self.assertEqual((ended["pid"], ended["exit_code"]), (pid, 3), (self.cluster.lines(run), self.cluster.log_of("n1")))
        self.assertEqual(client.said()[1], "".join(f"{number}\n" for number in range(1, 20_001)))

    def left_alone(self):
        """A command that ends in its second generation only, and whose agent is killed in its first."""
        client = self.cluster.run("-n", 1, "--max-failures", 1, "--", "sh", "-c",
                                  f"test $SGD_GENERATION = 2 || {{ {self.waits_for('never')}; }}")
        run = client.run_id()
        pid = self.cluster.wait_for_event(run, "worker_started")["pid"]
        self.cluster.kill("n1")
        return client, run, pid

    def test_a_rank_that_is_killed_while_the_agent_is_away_is_started_again(self):
        client, run, pid = self.left_alone()
        os.kill(pid, signal.SIGKILL)
        self.cluster.start_agent("n1")
        self.assertEqual(client.wait(), 0, client.said())
        failure, = self.cluster.events(run, "failure")
        self.assertEqual((failure["kind"], failure["rank"]), ("signal", 0))
        self.assertEqual(self.cluster.ask("status", run)["generation"], 2)

    def test_a_keeper_that_is_killed_while_the_agent_is_away(self):
        """Its ranks, and what they had started, are cleared before others are started."""
        client = self.cluster.run("-n", 1, "--max-failures", 1, "--", "sh", "-c",
                                  f"test $SGD_GENERATION = 2 || {{ setsid sleep 1000 & echo $! >{self.path('stray')}; wait; }}")
        run = client.run_id()
        stray = int(wait_for(lambda: read_file(self.path("stray")).endswith(b"\n") and read_file(self.path("stray")), LIMIT_S, "its child"))
        self.cluster.wait_for_event(run, "worker_started")  # Before that it would be a start-up that has failed.
        keeper = self.keeper()
        self.cluster.kill("n1")
        os.kill(keeper, signal.SIGKILL)
        self.cluster.start_agent("n1")
        self.assertEqual(client.wait(), 0, client.said())
        self.assertNotIn(stray, self.cluster.left())
        self.assertEqual(self.cluster.ask("status", run)["generation"], 2)

    def test_two_agents_on_one_folder(self):
        second = self.cluster.agents["n1"]
        self.cluster.start_agent("n1")
        refused, self.cluster.agents["n1"] = self.cluster.agents["n1"], second
        self.assertEqual(refused.wait(LIMIT_S), 2)
        self.assertIn(f"in use by another agent (pid {second.pid})", self.cluster.log_of("n1"))

    def test_journal_that_cannot_be_used(self):
        """What the agent before has started is ended before anything else is started."""
        client, run, pid = self.left_alone()
        with open(os.path.join(self.cluster.folder, "agent-n1", "agent.journal"), "r+b") as journal:
            journal.seek(40)
            journal.write(b"\0\0\0\0")
        self.cluster.start_agent("n1")
        self.assertEqual(client.wait(), 0, client.said())
        self.assertNotIn(pid, self.cluster.left())
        self.assertIn("cannot be taken over", self.cluster.log_of("n1"))


class SmallJournalTest(TakeoverCase):
    """An agent that begins its journal anew again and again, and dies in between."""

    agent_options = {"n1": ["--journal-bytes", "64KiB"]}
    reports, size = 6000, 4000

    def journal(self):
        return os.path.join(self.cluster.folder, "agent-n1", "agent.journal")

    def numbers(self, run):
        return [line["n"] for line in self.cluster.lines(run, "metrics.jsonl")]

    def test_reports_of_a_long_life(self):
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support", "returning_rank.py")
        client = self.cluster.run("-n", 1, "--", sys.executable, os.path.realpath(script), self.reports, self.size,
                                  self.path("end"))
        run = client.run_id()
        longest = 0
        for kill in range(1, 6):  # One more, and the node would be taken for unstable.
            wait_for(lambda: len(self.numbers(run)) >= kill * self.reports // 6, END_S, "its reports")
            longest = max(longest, os.stat(self.journal()).st_size)
            if kill == 3:  # As if it died when the next journal was half written.
                self.cluster.kill("n1")
                with open(self.journal() + ".new", "wb") as half:
                    half.write(read_file(self.journal())[:1000])
                self.cluster.start_agent("n1")
                self.wait_for_takeover(kill)
                continue
            self.restart()
        self.touch("end")
        self.assertEqual(client.wait(END_S), 0, (client.said(), self.cluster.log_of("n1")))
        self.assertEqual(self.numbers(run), list(range(1, self.reports + 1)))
        print(f"the longest journal had {longest >> 10} KiB", file=sys.stderr)
        # It is begun anew at twice what it began with: a run's 4 MiB without an answer, and what is beside them.
        self.assertLess(longest, 12 << 20, "it has had 24 MB of reports")
        self.assertEqual(self.cluster.events(run, "failure"), [])
        self.assertEqual(len(self.cluster.events(run, "worker_started")), 1)
        self.assertNotIn("cannot be taken over", self.cluster.log_of("n1"))
        self.assertNotIn("cannot be begun anew", self.cluster.log_of("n1"))


class NobodyComesTest(TakeoverCase):
    agent_options = {"n1": ["--orphan-timeout", "1s"]}

    def test_nothing_is_left(self):
        client = self.cluster.run("-n", 2, "--", "sh", "-c", "sleep 1000 & wait")
        self.cluster.wait_for_event(client.run_id(), "worker_started", 2)
        self.cluster.kill("n1")
        own = [self.cluster.coordinator.pid, client.process.pid]
        wait_for(lambda: set(self.cluster.left()) <= set(own), LIMIT_S, "the end of keeper and ranks")


class LeavingTest(TakeoverCase):
    def left(self, run, name, size):
        """As an agent would leave it that is killed before all is sent: a log of a run that has ended."""
        self.cluster.kill("n1")
        folder = os.path.join(self.cluster.folder, "agent-n1", "runs", run)
        os.makedirs(os.path.join(folder, "logs", "gen-0001"), exist_ok=True)
        path = os.path.join("logs", "gen-0001", name)
        with open(os.path.join(folder, path), "wb") as log:
            log.truncate(size)
        self.cluster.start_agent("n1")
        return folder, path

    def test_an_agent_with_a_refused_folder_ends_at_once(self):
        folder, _ = self.left("unknown-run", "rank-0000.log", 10)
        wait_for(lambda: "runs/unknown-run stays for" in self.cluster.log_of("n1"), LIMIT_S, "the refusal")
        began = time.monotonic()
        self.cluster.kill("n1", signal.SIGTERM)
        self.assertEqual(self.cluster.agents["n1"].wait(LIMIT_S), 0, self.cluster.log_of("n1"))
        self.assertLess(time.monotonic() - began, 30)  # It waits a minute for what is on its way.
        self.assertTrue(os.path.exists(folder))

    def test_an_agent_with_files_on_their_way_waits_for_them(self):
        client = self.cluster.run("-n", 1, "--", "true")
        self.assertEqual(client.wait(), 0, client.said())
        run, size = client.run_id(), 512 << 20
        folder, path = self.left(run, "rank-0007.log", size)
        come = os.path.join(self.cluster.run_dir(run), path)
        wait_for(lambda: os.path.exists(come), LIMIT_S, "some of it to come")
        self.cluster.coordinator.send_signal(signal.SIGSTOP)
        self.assertLess(os.path.getsize(come), size)
        self.cluster.kill("n1", signal.SIGTERM)
        wait_for(lambda: "this node leaves" in self.cluster.log_of("n1"), LIMIT_S, "the agent to leave")
        self.cluster.coordinator.send_signal(signal.SIGCONT)
        self.assertEqual(self.cluster.agents["n1"].wait(LIMIT_S), 0, self.cluster.log_of("n1"))
        self.assertEqual(os.path.getsize(come), size)
        self.assertFalse(os.path.exists(folder))


class GivenUpTest(TakeoverCase):
    coordinator_options = ("--node-timeout", "3s")  # Agents are heard once a second.

    def test_an_agent_that_comes_too_late_clears_its_ranks(self):
        client = self.cluster.run("-n", 1, "--max-failures", 1, "--", "sh", "-c",
                                  f"echo $$ >>{self.path('pids')}; test $SGD_GENERATION != 1 || {{ {self.waits_for('never')}; }};"
                                  f"kill -0 $(head -1 {self.path('pids')}) 2>/dev/null && echo two; exit 0")
        run = client.run_id()
        self.cluster.wait_for_event(run, "worker_started")
        self.cluster.kill("n1")
        self.cluster.wait_for_event(run, "failure")
        self.cluster.start_agent("n1")
        self.assertEqual(client.wait(), 0, client.said())
        self.assertNotIn("two", client.said()[1])


class TrainingTest(TakeoverCase):
    agent_options = {"n1": ["--journal-bytes", "16KiB"]}  # Most of them begin with a state.

    def job(self, epochs):
        job = image_job(small_fashion(self.path("data"), SAMPLES, 1000), epochs=epochs, batch_size=400)
        job["num_workers"] = 2
        job["recovery"] = {"cooldown": "500ms", "backoff": {"first": "100ms"}}
        return write_job(self.path("job.json"), job)

    def weights(self, run):
        folder = os.path.join(self.cluster.run_dir(run), "checkpoints")
        return read_file(os.path.join(folder, sorted(os.listdir(folder))[-1], "model.safetensors"))

    def check_undisturbed(self, client, epochs):
        self.assertEqual(client.wait(END_S), 0, client.said())
        self.check_one_generation(client.run_id(), epochs)

    def check_one_generation(self, run, epochs):
        self.assertEqual([event["epoch"] for event in self.cluster.events(run, "epoch_finished")], list(range(1, epochs + 1)))
        for line in self.cluster.lines(run, "metrics.jsonl"):
            if line["phase"] == "train":
                self.assertEqual(line["num_samples"], SAMPLES, line)
        self.assertEqual(self.cluster.events(run, "failure"), [])
        self.assertEqual(len(self.cluster.events(run, "worker_started")), 2)
        self.assertEqual(self.cluster.ask("status", run)["generation"], 1)

    def test_training_does_not_notice(self):
        client = self.cluster.run(self.job(epochs=ENDLESS))
        run = client.run_id()
        for epoch in (2, 6):
            self.cluster.wait_for_event(run, "epoch_finished", epoch)
            print(f"from the agent's end to a node that is connected again: {self.restart():.3f} s", file=sys.stderr)
        self.cluster.wait_for_event(run, "epoch_finished", len(self.cluster.events(run, "epoch_finished")) + 1)
        self.assertEqual(self.cluster.run("stop", run).wait(), 0)
        self.assertEqual(client.wait(END_S), 6, client.said())
        epochs = len(self.cluster.events(run, "epoch_finished"))
        self.check_one_generation(run, epochs)
        epochs += 2  # The weights are compared at an end that both have.
        resumed = self.cluster.run("resume", run, "--set", f"training.epochs={epochs}")
        self.assertEqual(resumed.wait(END_S), 0, resumed.said())
        straight = self.cluster.run(self.job(epochs=epochs))
        self.check_undisturbed(straight, epochs)
        self.assertEqual(self.weights(resumed.run_id()), self.weights(straight.run_id()))

    def test_agent_that_dies_again_and_again(self):
        client = self.cluster.run(self.job(epochs=80))
        run = client.run_id()
        self.cluster.wait_for_event(run, "first_step")
        for _ in range(KILLS):
            self.cluster.kill("n1")
            self.cluster.start_agent("n1")
            wait_for(lambda: read_file(os.path.join(self.cluster.folder, "agent-n1", "agent.lock")).strip().decode() ==
                     str(self.cluster.agents["n1"].pid), LIMIT_S, "the next life")
        self.check_undisturbed(client, 80)

    def test_training_that_ends_while_the_agent_is_away(self):
        client = self.cluster.run(self.job(epochs=20))
        run = client.run_id()
        self.cluster.wait_for_event(run, "first_step")
        pids = [event["pid"] for event in self.cluster.events(run, "worker_started")]
        self.cluster.kill("n1")
        stat = lambda pid: read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        # Ranks wait for somebody who hears their last words: done, they use no more time.
        def idle():
            before = [stat(pid)[11] for pid in pids]
            time.sleep(0.3)
            return before == [stat(pid)[11] for pid in pids]
        wait_for(idle, LIMIT_S, "the end of the training")
        self.cluster.start_agent("n1")
        self.check_undisturbed(client, 20)


if __name__ == "__main__":
    unittest.main()
