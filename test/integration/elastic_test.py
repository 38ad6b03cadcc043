"""Capacity that comes and goes: shrink, grow, wait, give up; and commands under the same supervision."""

import os
import signal
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, small_fashion, write_job
from harness import LAUNCHER, LaunchTest, wait_for

import subprocess

SAMPLES = 6_400
ENDLESS = 100_000  # Epochs of a run that is stopped when all has happened to it.


class ElasticTest(LaunchTest):
    def train(self, *options, epochs=ENDLESS, **parts):
        job = image_job(small_fashion(self.path("data"), SAMPLES, 1000), epochs=epochs)
        job["recovery"] = {"max_failures": "unlimited", "cooldown": "500ms", "backoff": {"first": "100ms", "attempts": 5}}
        for key, value in parts.items():
            job[key] = value
        return self.start(*options, write_job(self.path("job.json"), job))

    def set_slots(self, launch, slots):
        subprocess.run([LAUNCHER, "nodes", launch.run_dir, "set-slots", str(slots)], check=True, timeout=20,
                       stdout=subprocess.DEVNULL)

    def stop_and_check(self, launch):
        """Ends a run whose epochs have no end, one epoch after what happened to it."""
        launch.wait_for_event("epoch_finished", count=len(launch.events("epoch_finished")) + 1)
        subprocess.run([LAUNCHER, "stop", launch.run_dir], check=True, timeout=20, stdout=subprocess.DEVNULL)
        self.assertEqual(launch.wait(), 6, launch.said())
        launch.wait_until_gone()
        self.check_samples(launch, len(launch.events("epoch_finished")))

    def check_samples(self, launch, epochs):
        """Each epoch once, and in each of them every sample once (the padding of an odd end apart)."""
        self.assertEqual([event["epoch"] for event in launch.events("epoch_finished")], list(range(1, epochs + 1)))
        for line in launch.metrics("train"):
            self.assertEqual(line["num_samples"], SAMPLES, line)

    def test_shrinks_and_grows(self):
        launch = self.train()
        launch.wait_for_event("epoch_finished")
        self.set_slots(launch, 1)
        down = launch.wait_for_event("resized")[0]
        self.set_slots(launch, 2)
        up = launch.wait_for_event("resized", count=2)[1]
        self.stop_and_check(launch)
        self.assertEqual((down["from"], down["to"], up["from"], up["to"]), (2, 1, 1, 2))
        self.assertGreaterEqual(up["time"] - down["time"], 0.5, "not sooner than the cooldown")
        self.assertEqual(launch.events("failure"), [], "a change of size is no failure")

    def test_killed_during_a_resize(self):
        launch = self.train()
        launch.wait_for_event("epoch_finished")
        self.set_slots(launch, 1)
        pids = launch.rank_pids()
        for pid in pids.values():
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        wait_for(lambda: launch.events("resized"), 30, "the smaller size")
        self.set_slots(launch, 2)
        launch.wait_for_event("resized", count=2)
        self.stop_and_check(launch)

    def test_no_slots_waits_and_goes_on(self):
        """[57] A slot during a wait ends it."""
        launch = self.train(recovery={"max_failures": 3, "backoff": {"first": "100ms", "attempts": 20}})
        launch.wait_for_event("epoch_finished")
        self.set_slots(launch, 0)
        waits = launch.wait_for_event("backoff", count=3)
        self.set_slots(launch, 2)
        self.stop_and_check(launch)
        self.assertEqual([(event["attempt"], round(event["delay_s"], 3)) for event in waits],
                         [(1, 0.1), (2, 0.2), (3, 0.4)])

    def test_attempts_used_up(self):
        launch = self.train()
        launch.wait_for_event("epoch_finished")
        self.set_slots(launch, 0)
        self.assertEqual(launch.wait(), 7, launch.said())
        launch.wait_until_gone()
        self.assertIn("no capacity after 5 attempts", launch.stderr())
        self.assertEqual(launch.summary()["state"], "failed")

    def test_too_few_slots_at_the_start(self):
        launch = self.train("--slots", 1, placement_timeout="300ms")
        self.assertEqual(launch.wait(), 5, launch.said())
        self.assertIn("2 slots wanted, 1 available", launch.stderr())

    def test_who_waits_for_a_place_says_why_also_when_quiet(self):
        job = write_job(self.path("waits.json"), image_job(small_fashion(self.path("data"), SAMPLES, 1000), epochs=1))
        for number, words in enumerate((["--", "true"], ["-q", "--", "true"], ["-q", job])):
            with self.subTest(words=words):
                launch = self.start("--slots", 1, "-n", 2, *words, run_dir=f"waits-{number}")
                reason = "sgd-launch: waiting: 2 slots wanted, 1 free on 1 node"
                wait_for(lambda told=launch: reason in told.stderr(), 30, "the reason")
                self.assertIsNone(launch.process.poll(), launch.said())
                self.assertIn("more nodes are needed: these have room for 1 in all", launch.stderr())
                self.assertEqual(launch.stderr().count("waiting: "), 1, launch.said())
                launch.process.send_signal(signal.SIGINT)
                self.assertEqual(launch.wait(), 130, launch.said())
                launch.wait_until_gone()

    def test_elastic_start(self):
        launch = self.train("--slots", 1, epochs=2, start="elastic")
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual(launch.events("first_step")[0]["world_size"], 1)

    def test_grows_at_a_checkpoint(self):
        launch = self.train("--slots", 1, start="elastic", checkpoint={"every": {"steps": 20}},
                            recovery={"scale_up": "checkpoint", "cooldown": "200ms"})
        launch.wait_for_event("first_step")
        self.set_slots(launch, 2)
        launch.wait_for_event("resized")
        self.stop_and_check(launch)


COUNT_STARTS = """
import os, sys, time
count = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
print("start", count, "rank", os.environ["RANK"], flush=True)
if count < 2 and os.environ["RANK"] == "1":
    os.kill(os.getpid(), 9) if count == 0 else sys.exit(3)
if count < 2:
    time.sleep(1000)
"""

STANDS_STILL = """
import json, os, socket, time
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["SGD_LINK"])
def say(**line):
    link.sendall((json.dumps(line) + "\\n").encode())
say(type="hello", token=os.environ["SGD_TOKEN"], pid=os.getpid(), protocol=1, version="test")
while True:
    say(type="heartbeat", step=7, epoch=1, phase="train", loss=0.5, samples_per_s=0, samples=100)
    time.sleep(0.05)
"""


class CommandRecoveryTest(LaunchTest):
    def test_command_is_started_again(self):
        launch = self.run_to_end("-n", 2, "--max-failures", 2, "--", *self.script("count.py", COUNT_STARTS))
        self.assertEqual([event["kind"] for event in launch.events("failure")], ["signal", "exit_code"])
        self.assertEqual(len(launch.events("restarted")), 2)
        self.assertEqual(launch.log(0, generation=3), b"start 2 rank 0\n")

    def test_restarts_of_a_command_used_up(self):
        launch = self.run_to_end("-n", 2, "--max-failures", 1, "--", *self.script("count.py", COUNT_STARTS), expect=7)
        self.assertIn("restarts used up: 2 failures, max_failures 1", launch.stderr())
        self.assertIn("exit code 3, rank 1", launch.stderr())

    def test_stalled_rank(self):
        """[6] Heartbeats go on and say the same."""
        launch = self.run_to_end("-n", 1, "--set", 'heartbeat={"stall_timeout":"1s","timeout":"5s"}', "--",
                                 *self.script("still.py", STANDS_STILL), expect=1)
        failure = launch.events("failure")[0]
        self.assertEqual((failure["kind"], failure["rank"]), ("stalled", 0))
        self.assertIn("step 7", failure["message"])
        self.assertTrue(os.path.exists(os.path.join(launch.run_dir, "errors", "gen-0001-rank-0000.stack")))


if __name__ == "__main__":
    unittest.main()
