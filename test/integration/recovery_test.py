"""Failures of a training run: what is killed, frozen or lost costs milliseconds and changes nothing in the result.

Each test compares with one undisturbed run of the same job: weights and optimizer state bit for bit, and every line of
metrics. Names in brackets are rows of the list of failure modes.
"""

import contextlib
import itertools
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, small_fashion, write_job
from harness import LaunchTest, Launch, process_state, read_file, wait_for

EPOCHS = 8  # Of the undisturbed run; it keeps a checkpoint of each, so a shorter run can be compared, too.
SAMPLES = 9_600
STEPS_OF_EPOCH = SAMPLES // 64
KILLS = 10


def comparable(metrics):
    """What must not depend on failures: all but times and rates."""
    free = ("_timestamp", "_time_this_iter_s", "samples_per_s", "step_ms", "generation")
    return [{key: value for key, value in line.items() if key not in free} for line in metrics]


class RecoveryTest(LaunchTest):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="sgd-test-")
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.data = small_fashion(os.path.join(cls.shared, "data"), SAMPLES, 2000)
        job = cls.job_file(cls.shared, checkpoint={"keep": EPOCHS})
        launch = Launch(["--run-dir", os.path.join(cls.shared, "run"), job], cls.shared, os.path.join(cls.shared, "run"))
        if launch.wait() != 0:
            raise AssertionError(launch.said())
        cls.undisturbed = launch

    @classmethod
    def job_file(cls, folder, epochs=EPOCHS, **parts):
        job = image_job(cls.data, epochs=epochs)
        job["recovery"] = {"max_failures": "unlimited"}
        for key, value in parts.items():
            job[key] = value
        return write_job(os.path.join(folder, "job.json"), job)

    def train(self, *options, epochs=EPOCHS, **parts):
        return self.start(*options, self.job_file(self.folder, epochs, **parts))

    def live_pids(self, launch):
        """Pids by rank of the newest generation that made its first step."""
        steps = launch.events("first_step")
        if not steps:
            return {}
        generation = steps[-1]["generation"]
        started = [event for event in launch.events("worker_started") if event["generation"] == generation]
        return {event["rank"]: event["pid"] for event in started}

    def kill(self, launch, rank, number=signal.SIGKILL):
        """Kills a rank of the newest generation; False when the run is over."""
        before = len(launch.events("first_step"))
        if launch.process.poll() is not None:
            return False
        try:
            os.kill(self.live_pids(launch)[rank], number)
        except ProcessLookupError:
            return False
        wait_for(lambda: len(launch.events("first_step")) > before or launch.process.poll() is not None, 30,
                 "the first step after a kill")
        return True

    def hold(self, pids):
        """They stand still, each with all its threads."""
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: all(process_state(f"{pid}/task/{thread}") == "T" for pid in pids for thread in os.listdir(f"/proc/{pid}/task")), 20,
                 "ranks to stand still")

    def check_same(self, launch, epochs=EPOCHS):
        """The run, of so many epochs, has ended as if nothing had happened."""
        self.assertEqual(launch.wait(), 0, launch.said())
        launch.wait_until_gone()
        for name in ("model.safetensors", "optimizer.safetensors"):
            self.assertEqual(read_file(os.path.join(launch.checkpoints()[-1], name)),
                             read_file(os.path.join(self.undisturbed.checkpoints()[epochs - 1], name)), f"{name} differs")
        self.assertEqual(comparable(launch.metrics()),
                         [line for line in comparable(self.undisturbed.metrics()) if line["epoch"] <= epochs])
        self.check_epochs(launch, epochs)
        self.assertTrue(all(event["bit_exact"] for event in launch.events("recovered")))

    def check_epochs(self, launch, epochs):
        self.assertEqual([event["epoch"] for event in launch.events("epoch_finished")], list(range(1, epochs + 1)))

    def test_ranks_killed_at_random(self):
        """[1] Forward, backward, all-reduce: wherever it hits."""
        launch = self.train()
        launch.wait_for_event("first_step")
        chance = random.Random(3)
        kills = 0
        while kills < KILLS:
            time.sleep(chance.uniform(0.02, 0.15))
            if not self.kill(launch, chance.choice((0, 1))):
                break
            kills += 1
        self.check_same(launch)
        self.assertGreater(kills, 2)
        recovered = launch.events("recovered")
        self.assertIn("memory", [event["source"] for event in recovered])
        for event in recovered:
            self.assertEqual(event["from"], "signal 9 (SIGKILL)")
            self.assertGreaterEqual(event["redone"], 0)
            # A checkpoint of an epoch's end can be newer than the last copy in memory; before the first copy there is neither.
            if event["source"] == "fresh":
                self.assertEqual(event["step"], 0)
            elif event["source"] != "memory":
                self.assertEqual((event["source"], event["step"] % STEPS_OF_EPOCH), ("disk", 0))

    def test_all_ranks_killed_at_once(self):
        """[1]"""
        launch = self.train()
        launch.wait_for_event("epoch_finished")
        pids = self.live_pids(launch).values()
        self.hold(pids)  # Else one may see the other's end, and be gone before its own.
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.check_same(launch)
        self.assertEqual(len(launch.events("failure")), 1)

    def test_crashes_are_named(self):
        """[2] Signals that a program brings upon itself."""
        launch = self.train()
        launch.wait_for_event("first_step")
        for number in (signal.SIGSEGV, signal.SIGABRT, signal.SIGFPE):
            launch.wait_for_event("epoch_finished", count=len(launch.events("epoch_finished")) + 1)
            self.assertTrue(self.kill(launch, 1, number))
        self.check_same(launch)
        messages = " ".join(event["message"] for event in launch.events("failure"))
        for words in ("signal 11 (SIGSEGV), rank 1", "signal 6 (SIGABRT), rank 1", "signal 8 (SIGFPE), rank 1"):
            self.assertIn(words, messages)

    def test_killed_in_validation(self):
        launch = self.train()
        for count in (1, 2, 4):
            wait_for(lambda n=count: len(launch.metrics("train")) >= n, 30, "the end of a training phase")
            if not self.kill(launch, count % 2):
                break
        self.check_same(launch)
        self.assertGreater(len(launch.events("failure")), 1)

    def test_killed_in_saves(self):
        """[45] With a save every other step one is always being written."""
        launch = self.train(checkpoint={"every": {"steps": 2}, "keep": 2})
        launch.wait_for_event("checkpoint_saved")
        chance = random.Random(5)
        for _ in range(5):
            time.sleep(chance.uniform(0.05, 0.2))
            if not self.kill(launch, 0):
                break
        self.check_same(launch)
        self.assertGreater(len(launch.events("failure")), 1)
        # What a killed generation wrote and nobody counted on is gone, too.
        self.assertEqual(len(os.listdir(os.path.join(launch.run_dir, "checkpoints"))), 2)

    def test_checkpoints_on_disk_alone(self):
        launch = self.train(checkpoint={"every": {"steps": 50}, "memory": False})
        launch.wait_for_event("checkpoint_saved")  # The later ones that are due wait for no slow disk.
        for rank in (1, 0, 1):
            if not self.kill(launch, rank):
                break
            time.sleep(0.1)
        self.check_same(launch)
        self.assertEqual({event["source"] for event in launch.events("recovered")}, {"disk"})

    def test_killed_during_start(self):
        """[7] A generation that dies before its first step uses an attempt, no failure; the run goes on."""
        launch = self.train(recovery={"max_failures": 3, "backoff": {"first": "100ms"}})
        launch.wait_for_event("epoch_finished")
        os.kill(self.live_pids(launch)[0], signal.SIGKILL)
        for generation in (2, 3):
            started = wait_for(lambda g=generation: [event for event in launch.events("worker_started")
                                                     if event["generation"] == g], 30, "the next start")
            try:
                os.kill(started[0]["pid"], signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.check_same(launch)

    def test_without_fork_server(self):
        launch = self.train(epochs=3, fork_server=False)
        launch.wait_for_event("first_step")
        self.kill(launch, 1)
        self.check_same(launch, 3)

    def test_fork_server_killed(self):
        """Ranks go on without it; the next recovery has a new one."""
        launch = self.train()
        launch.wait_for_event("first_step")
        ranks = set(self.live_pids(launch).values())
        servers = [pid for pid in launch.pids() if b"--fork-server" in read_file(f"/proc/{pid}/cmdline") and pid not in ranks]
        os.kill(servers[0], signal.SIGKILL)
        launch.wait_for_event("epoch_finished", count=len(launch.events("epoch_finished")) + 2)
        self.assertEqual(launch.events("failure"), [])
        self.kill(launch, 0)
        self.check_same(launch)

    def test_keeper_killed(self):
        """[10] All its processes die with it; a new one goes on from disk."""
        launch = self.train(checkpoint={"every": {"steps": 50}})
        launch.wait_for_event("checkpoint_saved")
        keeper = next(pid for pid in launch.pids() if read_file(f"/proc/{pid}/cmdline").split(b"\0")[1:2] == [b"keeper"])
        os.kill(keeper, signal.SIGKILL)
        self.check_same(launch)
        self.assertIn("keeper", launch.events("failure")[0]["message"])

    def test_frozen_rank(self):
        """[8] SIGSTOP: seen by missing heartbeats, its stack and those of its peers are kept."""
        launch = self.train(epochs=3, heartbeat={"interval": "100ms", "timeout": "1s"})
        launch.wait_for_event("first_step")
        os.kill(self.live_pids(launch)[1], signal.SIGSTOP)
        launch.wait_for_event("recovered")
        self.check_same(launch, 3)
        failure = launch.events("failure")[0]
        self.assertEqual((failure["kind"], failure["rank"]), ("heartbeat_lost", 1))
        self.assertIn(b"T (stopped)", read_file(os.path.join(launch.run_dir, "errors", "gen-0001-rank-0001.stack")))
        self.assertIn(b"sgd-worker", read_file(os.path.join(launch.run_dir, "errors", "gen-0001-rank-0000.stack")))

    def test_stopped_launcher_judges_nobody(self):
        """[50] After SIGCONT everybody has a new deadline."""
        launch = self.train(heartbeat={"interval": "100ms", "timeout": "1s"})
        launch.wait_for_event("first_step")
        os.kill(launch.process.pid, signal.SIGSTOP)
        time.sleep(1.5)
        os.kill(launch.process.pid, signal.SIGCONT)
        self.check_same(launch)
        self.assertEqual(launch.events("failure"), [])

    def test_interrupted_while_recovering(self):
        """[59] [62]"""
        launch = self.train(epochs=1_000_000, recovery={"max_failures": "unlimited", "backoff": {"first": "20s"}})
        launch.wait_for_event("first_step")
        os.kill(self.live_pids(launch)[0], signal.SIGKILL)
        launch.wait_for_event("failure")
        os.kill(launch.process.pid, signal.SIGTERM)
        self.assertEqual(launch.wait(), 143, launch.said())
        launch.wait_until_gone()

    def test_damaged_checkpoint_is_passed_over(self):
        """[43] [44] All on disk but the oldest are bit-flipped while the run goes on without copies in memory."""
        launch = self.train(checkpoint={"every": {"steps": 200}, "memory": False, "keep": 20})
        launch.wait_for_event("checkpoint_saved", count=2)
        pids = self.live_pids(launch)
        self.hold(pids.values())  # Else another one may be saved meanwhile.
        for folder in launch.checkpoints()[1:]:
            with open(os.path.join(folder, "model.safetensors"), "r+b") as file:
                file.seek(5000)
                byte = file.read(1)
                file.seek(5000)
                file.write(bytes([byte[0] ^ 1]))
        os.kill(pids[0], signal.SIGKILL)
        self.check_same(launch)
        rejected = launch.events("checkpoint_rejected")
        saved = [event["path"] for event in launch.events("checkpoint_saved") if event["generation"] == 1]
        self.assertEqual([event["path"] for event in rejected], [os.path.join(launch.run_dir, path) for path in saved[:0:-1]])
        self.assertIn("CRC-32C", rejected[0]["reason"])

    def kill_until_restored_from_memory(self, launch):
        """Until both slots hold a copy: what was restored, and one that was made since."""
        launch.wait_for_event("first_step")
        wait_for(lambda: self.kill(launch, 1) and launch.events("restored")[-1]["source"] == "memory", 30, "a copy in memory")
        step = launch.events("restored")[-1]["step"]
        wait_for(lambda: self.kill(launch, 1) and launch.events("restored")[-1]["step"] > step, 30, "a second copy")

    def damage_memory(self, launch, slots):
        """Turns a bit over in the tensors of the newest `slots` memory checkpoints, of ranks that stand still."""
        descriptors = f"/proc/{launch.process.pid}/fd"
        name = next(name for name in os.listdir(descriptors)
                    if "sgd-memory-checkpoint" in os.readlink(os.path.join(descriptors, name)))
        pids = self.live_pids(launch)
        with open(os.path.join(descriptors, name), "r+b", buffering=0) as file:
            word = lambda at: int.from_bytes(os.pread(file.fileno(), 8, at), "little")
            stamp = lambda slot: word(4096 + slot * 4096)
            self.hold(pids.values())
            while slots == 1 and not all(map(stamp, (0, 1))):  # A copy is being made, where the older one was.
                for pid in pids.values():
                    os.kill(pid, signal.SIGCONT)
                self.hold(pids.values())
            for slot in sorted((0, 1), key=stamp)[-slots:]:
                at = 3 * 4096 + slot * word(16) + 5000  # Of its parts, behind the headers.
                byte = os.pread(file.fileno(), 1, at)[0]
                os.pwrite(file.fileno(), bytes([byte ^ 1]), at)
        os.kill(pids[0], signal.SIGKILL)

    def test_damaged_memory_is_passed_over(self):
        """[44] The copy before it is used; with both damaged and nothing on disk, training starts from the beginning."""
        launch = self.train(checkpoint={"every": {"steps": 1_000_000}})  # Only the last one.
        self.kill_until_restored_from_memory(launch)
        for damaged, source in ((1, "memory"), (2, "fresh")):
            before = len(launch.events("first_step"))
            self.damage_memory(launch, damaged)
            launch.wait_for_event("first_step", count=before + 1)
            self.assertEqual(launch.events("restored")[-1]["source"], source)
        self.check_same(launch)
        self.assertRegex(launch.said(), "the memory checkpoint of generation .* is damaged: its CRC-32C is")

    def test_damaged_memory_gives_way_to_the_disk(self):
        """[44] And the next copy in memory is made as ever."""
        launch = self.train(checkpoint={"every": {"steps": 20}})
        self.kill_until_restored_from_memory(launch)
        launch.wait_for_event("checkpoint_saved")
        before = {name: len(launch.events(name)) for name in ("first_step", "failure")}
        self.damage_memory(launch, 2)
        launch.wait_for_event("first_step", count=before["first_step"] + 1)
        self.assertEqual(launch.events("restored")[-1]["source"], "disk")
        self.check_same(launch)
        self.assertEqual(len(launch.events("failure")), before["failure"] + 1)

    def test_max_failures_is_counted_since_the_last_epoch(self):
        launch = self.train(recovery={"max_failures": 1})
        for _ in range(3):
            launch.wait_for_event("epoch_finished", count=len(launch.events("epoch_finished")) + 1)
            if not self.kill(launch, 1):
                break
        self.check_same(launch)
        self.assertGreater(len(launch.events("failure")), 1)

    def test_max_failures_used_up(self):
        """[4]"""
        launch = self.train(epochs=100_000, recovery={"max_failures": 1}, checkpoint={"every": {"steps": 1000}},
                            training={**image_job(self.data)["training"], "epochs": 100_000,
                                      "dataset": {"type": "idx", "path": "/usr/share/datasets/fashion-mnist"}})
        launch.wait_for_event("first_step")
        for rank in itertools.cycle((0, 1)):  # Until two kills fall into one epoch, as the first two mostly do.
            if not self.kill(launch, rank):
                break
        self.assertEqual(launch.wait(), 7, launch.said())
        self.assertEqual(launch.summary()["exit_code"], 7)
        self.assertIn("restarts used up: 2 failures since the last finished epoch, max_failures 1", launch.stderr())


if __name__ == "__main__":
    unittest.main()
