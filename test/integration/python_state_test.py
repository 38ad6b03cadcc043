"""Python ranks that keep their state in memory: kills at random moments, agreed stops, checkpoints on disk, elastic sizes.

Without torch here; the same with torch's DDP where the peers' Python can import it."""

import hashlib
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import harness
from harness import CACHE, LIMIT_S, ROOT, TESTS_PYTHON, wait_for

PYTHON = "/usr/bin/python3"
PEERS_PYTHON = os.environ.get("SGD_PEERS_PYTHON") or os.path.join(CACHE, "peers", "bin", "python3")
MODULES = os.path.join(ROOT, "worker", "python")
KILLS = 10

WATCHED = """
import os, signal, sys
import sgd_launch
is_first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
if is_first and os.environ["RANK"] == "1":
    sgd_launch.watch()
    if sys.argv[1] == "heartbeat_lost":
        os.kill(os.getpid(), signal.SIGSTOP)
if is_first:
    signal.pause()
"""

REPORTS = """
import sgd_launch
state = sgd_launch.State(step=0)
state.restore()
odd = {2: {"name": "shard-\\udcff.bin"}, 3: {"x": 10 ** 400}, 4: {"step": 1 << 64}, 5: {"epoch": 1 << 31}}
while state.step < 8:
    state.step += 1
    try:
        sgd_launch.report(loss=state.step, **odd.get(state.step, {}))
    except ValueError as error:
        print(error, flush=True)
        sgd_launch.report(loss=state.step)
    state.commit()
"""

SCRIPT = """
import array, hashlib, os, random, sys, time
import sgd_launch
rank, steps, pause = int(os.environ["RANK"]), int(sys.argv[1]), float(sys.argv[2])
go = sys.argv[3] if len(sys.argv) > 3 else sys.argv[0]  # The file without which nobody comes much further than half of the steps.
random.seed(rank)
state = sgd_launch.State(numbers=array.array("d", bytes(80000)), epoch=0, step=0)
print("restored", state.restore(), state.step, flush=True)
while state.step < steps:
    state.numbers[state.step % 10000] += random.random()
    time.sleep(pause)
    state.step += 1
    state.epoch = state.step // 100
    if state.step % 50 == 0:  # Before commit(): whoever is killed between the two reports again.
        sgd_launch.report(value=state.step + rank)
    state.commit()
    if sgd_launch.should_stop():
        print("stopped", state.step, flush=True)
        break
    while state.step >= steps // 2 and not os.path.exists(go):
        time.sleep(0.001)
print("end", state.step, hashlib.sha256(state.numbers.tobytes() + random.random().hex().encode()).hexdigest(), flush=True)
"""

# So that nobody waits for a rank that is only slow.
MEET = """
import os, time
def meet(name):
    open(name + os.environ["RANK"], "w").close()
    while not all(os.path.exists(name + rank) for rank in "01"):
        time.sleep(0.001)
"""

# In the place of commit(): rank 1 calls it once.
LATE = """
    if rank == 0 or state.step < 2:
        state.commit()
    if state.step == 1:
        meet("committed")
    if rank == 1 and state.step == 2:
        time.sleep(60)
"""

DDP = """
import hashlib, os, sys, time
import torch, torch.distributed as dist, torch.nn as nn
import sgd_launch
torch.set_num_threads(1)
torch.manual_seed(1)
dist.init_process_group("gloo")
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(16, 32), nn.BatchNorm1d(32), nn.Dropout(0.2), nn.Linear(32, 4)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
torch.manual_seed(100 + dist.get_rank())
steps, go = int(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else sys.argv[0]
state = sgd_launch.State(model=model, optimizer=optimizer, step=0)
print("restored", state.restore(), state.step, flush=True)
while state.step < steps:
    loss = model(torch.randn(8, 16)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    state.step += 1
    state.commit()
    while state.step >= steps // 2 and not os.path.exists(go):
        time.sleep(0.001)
text = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
print("end", state.step, hashlib.sha256(text).hexdigest(), flush=True)
dist.destroy_process_group()
"""


def ends(launch):
    return set(re.findall(r"^(\d+): end (\d+) (\w+)$", launch.stdout().decode(), re.M))


class PythonState(harness.LaunchTest):
    def launch(self, *arguments, run_dir="run", workers=2, options=(), script=SCRIPT, python=PYTHON):
        path = self.write("rank.py", script)
        return self.start("-n", str(workers), "--no-fold", "--max-failures", "unlimited", *options, "--", python, path, *map(str, arguments),
                          run_dir=run_dir, env={"PYTHONPATH": MODULES})

    def kill_at_random(self, launch, kills, longest_s, draw):
        """One rank of each generation, some time after all have made their first step, and the first copy in memory."""
        wait_for(launch.metrics, LIMIT_S, "a step that all have reported")
        for number in range(1, kills + 1):
            launch.wait_for_event("first_step", count=number)
            time.sleep(draw.random() * longest_s)  # Where it is hit is chance; nothing is waited for.
            pids = {event["rank"]: event["pid"] for event in launch.events("worker_started") if event["generation"] == number}
            os.kill(draw.choice(sorted(pids.values())), signal.SIGKILL)

    def test_killed_again_and_again_it_ends_as_if_undisturbed(self):
        quiet = self.launch(3000, 0.0005, run_dir="quiet")
        self.assertEqual(quiet.wait(), 0, quiet.said())
        launch = self.launch(3000, 0.0005, self.path("go"))
        self.kill_at_random(launch, KILLS, 0.05, random.Random(3))
        self.write("go", "")
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual(len(ends(quiet)), 2)
        self.assertEqual(ends(launch), ends(quiet))
        recovered = launch.events("recovered")
        self.assertEqual(len(recovered), KILLS)
        self.assertEqual({event["source"] for event in recovered}, {"memory"})
        self.assertIn("resumed at step", launch.stderr())
        steps = [line["step"] for line in launch.metrics()]
        self.assertEqual(steps, list(range(50, 3001, 50)))  # Each once.
        self.assertEqual(launch.metrics()[0]["value"], 50.5)  # The mean over ranks.

    def test_a_stop_ends_all_ranks_at_one_step_with_a_checkpoint(self):
        launch = self.launch(1 << 30, 0.001)
        launch.wait_for_event("checkpoint_saved")  # Some steps: all ranks have said by then that they can agree.
        os.kill(launch.process.pid, signal.SIGTERM)
        self.assertEqual(launch.wait(), 143, launch.said())
        stopped = re.findall(r"^\d: stopped (\d+)$", launch.stdout().decode(), re.M)
        self.assertEqual(len(stopped), 2, launch.said())
        self.assertEqual(len(set(stopped)), 1)
        saved = launch.events("checkpoint_saved")
        self.assertEqual(str(saved[-1]["step"]), stopped[0])
        listed = subprocess.run([harness.LAUNCHER, "checkpoints", "--json", launch.run_dir], capture_output=True, text=True)
        self.assertIn("whole", listed.stdout, listed.stderr)
        again = self.start("resume", launch.run_dir, run_dir=None, env={"PYTHONPATH": MODULES})
        wait_for(lambda: f"restored disk {stopped[0]}" in again.stdout().decode(), LIMIT_S, "the state from disk")
        os.kill(again.process.pid, signal.SIGTERM)
        again.wait()

    def test_smaller_and_larger(self):
        launch = self.launch(1 << 30, 0.002, options=("--min-workers", "1", "--slots", "2"))
        wait_for(launch.metrics, LIMIT_S, "a step that all have reported: there is a copy of the steps before")
        subprocess.run([harness.LAUNCHER, "nodes", launch.run_dir, "set-slots", "1"], check=True, capture_output=True)
        launch.wait_for_event("first_step", count=2)
        self.assertEqual(launch.events("first_step")[1]["world_size"], 1)
        self.assertEqual(launch.events("restored")[0]["source"], "memory")
        os.kill(launch.process.pid, signal.SIGTERM)
        launch.wait()

    def test_a_rank_that_does_not_commit_is_named(self):
        script = SCRIPT.replace("    state.commit()\n", LATE).replace("print(\"restored\"", "meet(\"up\")\nprint(\"restored\"")
        job = self.write("job.json", json.dumps({"name": "late", "num_workers": 2, "heartbeat": {"stall_timeout": "2s"},
                                                 "command": [PYTHON, self.write("rank.py", MEET + script), "1000", "0.001"]}))
        launch = self.start(job, run_dir="run", env={"PYTHONPATH": MODULES})
        self.assertEqual(launch.wait(), 1)
        self.assertRegex(launch.said(), r"waited 2 s for local rank 1, which has called commit\(\) 1 times")

    def test_whatever_is_reported_the_link_stays(self):
        launch = self.launch(script=REPORTS)
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertNotIn("link dropped", launch.stderr())
        lines = launch.metrics()
        self.assertEqual([(line["step"], line["loss"]) for line in lines], [(step, step) for step in range(1, 9)])
        self.assertEqual(lines[1]["name"], "shard-\\udcff.bin")
        for name in ("step", "epoch"):
            self.assertEqual(launch.stdout().decode().count(f"sgd_launch: {name} is out of range"), 2)

    def test_a_watched_rank_that_stands_still_is_found(self):
        script = self.write("watched.py", WATCHED)
        for kind, limit in (("heartbeat_lost", "timeout"), ("stalled", "stall_timeout")):
            with self.subTest(kind):
                job = self.write(kind + ".json", json.dumps({"name": kind, "num_workers": 2, "heartbeat": {"interval": "100ms", limit: "1s"},
                                                             "recovery": {"max_failures": 1}, "command": [PYTHON, script, kind]}))
                launch = self.run_to_end(job, run_dir=kind, env={"PYTHONPATH": MODULES})
                self.assertEqual([(event["kind"], event["rank"]) for event in launch.events("failure")], [(kind, 1)])

    @unittest.skipUnless(os.access(TESTS_PYTHON, os.X_OK), "the tests' Python is not there")
    def test_values_come_back_where_numpy_is(self):
        values = os.path.join(ROOT, "test", "unit", "worker_python", "values_test.py")
        done = subprocess.run([TESTS_PYTHON, values], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def need_torch(self):
        if not os.path.exists(PEERS_PYTHON) or subprocess.run([PEERS_PYTHON, "-c", "import torch"], capture_output=True).returncode != 0:
            self.skipTest(f"{PEERS_PYTHON} has no torch")

    def test_tensors_come_back_to_the_bit(self):
        self.need_torch()
        values = os.path.join(ROOT, "test", "unit", "worker_python", "torch_values.py")
        done = subprocess.run([PEERS_PYTHON, values], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_ddp_killed_ends_as_if_undisturbed(self):
        self.need_torch()
        quiet = self.launch(300, run_dir="quiet", script=DDP, python=PEERS_PYTHON)
        self.assertEqual(quiet.wait(300), 0, quiet.said())
        launch = self.launch(300, self.path("go"), script=DDP, python=PEERS_PYTHON)
        launch.wait_for_event("first_step", limit_s=200)
        os.kill(launch.events("worker_started")[1]["pid"], signal.SIGKILL)
        self.write("go", "")
        self.assertEqual(launch.wait(300), 0, launch.said())
        self.assertEqual(len(ends(quiet)), 2)
        self.assertEqual(ends(launch), ends(quiet))


if __name__ == "__main__":
    unittest.main()
