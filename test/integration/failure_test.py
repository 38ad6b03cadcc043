"""What the user learns when something fails: the cause first, which rank, its last lines, and no retry of an error
that would happen again.
"""

import os
import re
import signal
import struct
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, read_safetensors, small_fashion, write_job
from harness import BIN_DIR, LIMIT_S, LaunchTest, command_of, wait_for

RUNS_S, STANDS_S = 0.02, 0.06  # Of a rank that is held up: whatever else the machine does, its steps take four times as long.
LARGEST = 256 << 20

SPEAK_AND_FAIL = """
import os, sys, time
rank = int(os.environ["RANK"])
if rank == 1:
    print("line before the end", flush=True)
    print("the last words of rank 1", file=sys.stderr, flush=True)
    sys.exit(23)
time.sleep(1000)
"""


def write_npy(path, descr, shape, payload):
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (10 + len(header)) % 64) + b"\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + payload)


def flip_bit(pid, pattern):
    """The lowest bit of `pattern` wherever the process holds it in memory of its own; how often."""
    found = []
    with open(f"/proc/{pid}/maps", encoding="utf-8") as maps, open(f"/proc/{pid}/mem", "r+b", buffering=0) as memory:
        for line in maps.readlines():
            span, rights = line.split()[:2]
            begin, end = (int(number, 16) for number in span.split("-"))
            if rights == "rw-p" and end - begin <= LARGEST:
                memory.seek(begin)
                content = memory.read(end - begin)
                found += [begin + match.start() for match in re.finditer(re.escape(pattern), content, re.DOTALL)]
        for address in found:
            memory.seek(address)
            memory.write(bytes([pattern[0] ^ 1]))
    return len(found)


class FailureTest(LaunchTest):
    def test_whoever_wants_no_progress_is_told_of_failures_waits_and_time_outs(self):
        text = "import os, sys\nsys.exit(3 if int(os.environ['TORCHELASTIC_RESTART_COUNT']) < 2 else 0)\n"
        launch = self.run_to_end("-q", "-n", 1, "--max-failures", 2, "--set", "recovery.backoff.first=10ms", "--", *self.script("twice.py", text))
        said = launch.stderr().splitlines()
        self.assertEqual(len(said), 3, said)
        for number in (0, 1):
            self.assertRegex(said[number], r"^sgd-launch: failure: exit code 3, rank 0.*starting again$")
        self.assertIn("sgd-launch: waiting 0.01 s", said[2])
        late = self.start("-q", "-n", 1, "--timeout", "300ms", "--", "sleep", 1000, run_dir="late")
        self.assertEqual(late.wait(), 124, late.said())
        self.assertRegex(late.stderr(), r"^sgd-launch: stopped by --timeout after ")

    def endless_training(self, **changes):
        data = small_fashion(self.path("data"), 2000, 500)
        return self.start("--num-workers", 2, "--max-failures", 0,
                          write_job(self.path("job.json"), image_job(data, epochs=100_000, **changes)))

    def test_killed_rank_is_named(self):
        launch = self.endless_training()
        launch.wait_for_event("first_step")
        os.kill(launch.rank_pids()[1], signal.SIGKILL)
        self.assertEqual(launch.wait(), 1, launch.said())
        launch.wait_until_gone()
        self.assertIn("signal 9 (SIGKILL), rank 1", launch.stderr())
        failure = launch.events("failure")[0]
        self.assertEqual((failure["kind"], failure["rank"]), ("signal", 1))
        exited = [event for event in launch.events("worker_exited") if event["rank"] == 1]
        self.assertEqual(exited[0]["signal"], 9)
        self.assertEqual(launch.summary()["state"], "failed")
        self.assertIn("signal 9 (SIGKILL), rank 1", launch.summary()["error"])

    def test_survivor_is_never_the_cause(self):
        launch = self.endless_training()
        launch.wait_for_event("first_step")
        os.kill(launch.rank_pids()[0], signal.SIGKILL)
        self.assertEqual(launch.wait(), 1, launch.said())
        self.assertEqual(launch.events("failure")[0]["rank"], 0)
        self.assertIn("rank 0", launch.summary()["error"])
        self.assertNotIn("peer_lost", launch.summary()["error"])

    def test_straggler_is_named(self):
        """Row 54: a rank that gets its core for a part of the time is named, and goes on. Its steps are long enough for that to cost something."""
        launch = self.endless_training(batch_size=100, model={"type": "mlp", "hidden": [1024, 512]})
        launch.wait_for_event("first_step")
        slow, ends = launch.rank_pids()[1], threading.Event()

        def hold_up():
            while not ends.wait(RUNS_S):
                os.kill(slow, signal.SIGSTOP)
                ends.wait(STANDS_S)
                os.kill(slow, signal.SIGCONT)

        holding = threading.Thread(target=hold_up)
        holding.start()
        self.addCleanup(holding.join)
        self.addCleanup(ends.set)
        wait_for(lambda: [event for event in launch.events("straggler") if event["rank"] == 1], LIMIT_S, "rank 1 to be named")
        event = next(event for event in launch.events("straggler") if event["rank"] == 1)
        self.assertGreater(event["own_ms"], 1.5 * event["others_ms"])
        self.assertIn("warning: rank 1 on", launch.said())
        self.assertEqual(launch.events("failure"), [])
        ends.set()
        holding.join()
        os.kill(launch.process.pid, signal.SIGINT)
        self.assertEqual(launch.wait(), 130, launch.said())

    @unittest.skipIf(os.geteuid() != 0, "writes into another process")
    def test_bit_that_turns_over_in_one_rank_is_found(self):
        """Row 53: weights are compared after every epoch."""
        data = small_fashion(self.path("data"), 2000, 500)
        job = image_job(data, epochs=100_000, optimizer={"type": "sgd", "lr": 1e-38})  # Weights stay what they are.
        job["checkpoint"] = {"keep": 100_000}  # The one that is read here, too.
        launch = self.start("--num-workers", 2, "--max-failures", 0, write_job(self.path("job.json"), job))
        launch.wait_for_event("checkpoint_saved")
        weights = read_safetensors(os.path.join(launch.checkpoints()[-1], "model.safetensors"))
        name = next(name for name in weights if name.endswith("weight"))
        pattern = weights[name][1].tobytes()[:64]
        self.assertGreater(flip_bit(launch.rank_pids()[1], pattern), 0)
        self.assertEqual(launch.wait(), 1, launch.said())
        self.assertRegex(launch.summary()["error"], r"after epoch \d+ the weights of rank 1 differ from those of rank 0")

    def test_an_error_in_training_is_one_block_with_the_cause_first(self):
        data = small_fashion(self.path("data"), 640, 128)
        optimizer = {"type": "sgd", "lr": 1e30}
        job = write_job(self.path("job.json"), image_job(data, epochs=1, optimizer=optimizer))
        launch = self.run_to_end("--num-workers", 2, job, expect=1)
        said = launch.stderr()
        self.assertEqual(said.count("sgd-launch: run failed"), 1)
        self.assertIn("the loss is not finite at step 2 on rank", said)
        self.assertRegex(said, r"rank [01]")
        self.assertEqual(len(launch.events("run_started")), 1)
        self.assertEqual(len(launch.events("worker_started")), 2, "what would fail again is not retried")
        failures = launch.events("failure")
        self.assertEqual(failures[0]["kind"], "exit_code")
        self.assertIn("the loss is not finite", failures[0]["message"])
        with open(os.path.join(launch.run_dir, "logs", "gen-0001", f"rank-{failures[0]['rank']:04}.log"), encoding="utf-8") as file:
            self.assertRegex(file.read(), r"(?m)^sgd-worker: (?!rank).*the loss is not finite")
        self.assertEqual(said[said.index("sgd-launch: run failed"):].count("the loss is not finite"), 1, said)
        block = [line for line in said.splitlines() if line.strip()]
        cause = next(number for number, line in enumerate(block) if "exit code 1" in line or "not finite" in line)
        log = next((number for number, line in enumerate(block) if "rank-000" in line and ".log" in line), None)
        self.assertIsNotNone(log, said)
        self.assertLess(cause, log)

    def test_the_rank_whose_loss_is_not_finite_is_the_cause(self):
        """Both end at once: six times, since either may come first. Sample i is of rank i % 2."""
        samples, batch = 16, 4
        write_npy(self.path("y.npy"), "<f4", (samples, 1), struct.pack(f"<{samples}f", *range(samples)))
        files = {"features": self.path("x.npy"), "target": self.path("y.npy")}
        for number in range(6):
            rank = number % 2
            values = [0.1] * samples
            values[rank] = float("nan")
            write_npy(self.path("x.npy"), "<f4", (samples, 1), struct.pack(f"<{samples}f", *values))
            job = {"name": "nan", "num_workers": 2, "training": {
                "epochs": 1, "batch_size": batch, "shuffle": False, "model": {"type": "linear", "inputs": 1, "outputs": 1}, "loss": "mse",
                "dataset": {"type": "npy", "targets": "numbers", "train": files}, "optimizer": {"type": "sgd", "lr": 0.01}}}
            launch = self.run_to_end(write_job(self.path("job.json"), job), run_dir=f"nan-{number}", expect=1)
            said = launch.stderr()
            self.assertIn(f"the loss is not finite at step 1 on rank {rank}: ", said)
            self.assertEqual([(event["kind"], event["rank"]) for event in launch.events("failure")[:1]], [("exit_code", rank)])
            self.assertIn(f"rank-000{rank}.log", said[said.index("sgd-launch: run failed"):])
            self.assertEqual(len(launch.events("worker_started")), 2, "what would fail again is not retried")

    def test_gradients_that_a_loop_clips_by_itself_are_told_once(self):
        data = small_fashion(self.path("data"), 640, 128)
        for limit, workers, times in ((1e-3, 2, 1), (1e6, 2, 0), (1e-3, 1, 0)):
            training = {"epochs": 1, "batch_size": 64, "dataset": {"type": "idx", "path": data}, "function": {"type": "clipping", "limit": limit}}
            job = {"name": "clipping", "num_workers": workers, "plugins": [os.path.join(BIN_DIR, "..", "lib", "own_loop.so")], "training": training}
            launch = self.run_to_end(write_job(self.path("job.json"), job), run_dir=f"clips-{limit}-{workers}")
            for rank in range(workers):
                log = launch.log(rank).decode()
                self.assertEqual(log.count('gradients of optimizer "sgd" were changed between backward() and the update'), times, log)

    def test_last_lines_of_the_failed_rank_are_shown_and_the_log_named(self):
        launch = self.run_to_end("-n", 2, "--", *self.script("fail.py", SPEAK_AND_FAIL), expect=1)
        said = launch.stderr()
        self.assertIn("exit code 23", said)
        self.assertIn("rank 1", said)
        block = said[said.index("exit code 23"):]
        self.assertIn("line before the end", block)
        self.assertIn("the last words of rank 1", block)
        self.assertIn("rank-0001.log", block)
        self.assertEqual(launch.events("failure")[0]["rank"], 1)

    def test_a_rank_that_ends_first_does_not_end_the_others(self):
        text = "import os, time\nif os.environ['RANK'] == '0':\n    time.sleep(0.3)\n    print('still here')\n"
        launch = self.run_to_end("-n", 2, "--", *self.script("late.py", text))
        self.assertEqual(launch.log(0), b"still here\n")

    def test_segmentation_fault_is_said_in_words(self):
        text = "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n"
        launch = self.run_to_end("-n", 1, "--", *self.script("crash.py", text), expect=1)
        self.assertIn("signal 11 (SIGSEGV)", launch.stderr())

    def test_a_descendant_that_left_its_session_is_cleared(self):
        text = """
import os, sys, time
if os.environ["RANK"] == "0":
    if os.fork() == 0:
        os.setsid()
        os.execvp("sleep", ["sleep", "1000"])
    time.sleep(1000)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.01)
sys.exit(9)
"""
        launch = self.start("-n", 2, "--", *self.script("stray.py", text), self.path("seen"))
        wait_for(lambda: any("sleep" in command_of(pid) for pid in launch.pids()), 20, "the stray process")
        self.write("seen", "")
        self.assertEqual(launch.wait(), 1, launch.said())
        launch.wait_until_gone()


if __name__ == "__main__":
    unittest.main()
