"""One launcher on each of several machines, as with torchrun: they find each other, and whoever dies, nothing is lost and nothing left behind."""

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import linear_job, write_job
from harness import CONFIGS, LIMIT_S, read_file, read_lines, wait_for
from machines import PORT, Machine, network_of

# Says who it is, meets the others at MASTER_ADDR, and waits for the file "go" of its own machine.
SCRIPT = """
import os, socket, sys, time
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
say = lambda *words: os.write(1, (" ".join(map(str, words)) + "\\n").encode())
where = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(("", where[1])) as server:
        peers = [server.accept()[0] for _ in range(world - 1)]
else:
    deadline = time.monotonic() + 60
    while True:
        try:
            peers = [socket.create_connection(where, 5)]
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.02)
say("up", rank, "of", world, "group", os.environ["GROUP_RANK"], "local", os.environ["LOCAL_RANK"], "on", os.environ["MACHINE"], "in", os.getcwd(),
    "at", where[0], "restart", os.environ["TORCHELASTIC_RESTART_COUNT"], "pid", os.getpid())
while len(sys.argv) > 1 and not os.path.exists("go"):
    time.sleep(0.02)
say("done", rank)
"""


# Says which signals it gets, and ends with the second kind.
USER = """
import os, signal, time
rank, seen = os.environ["RANK"], []
say = lambda *words: os.write(1, (" ".join(map(str, words)) + "\\n").encode())
def got(number, frame):
    seen.append(number)
    say("got", signal.Signals(number).name, "by", rank)
for number in (signal.SIGUSR1, signal.SIGUSR2):
    signal.signal(number, got)
say("up", rank)
while signal.SIGUSR2 not in seen:
    time.sleep(0.01)
"""

# Rank 1 fails, says so, and takes its time to end; rank 0, on another machine, misses it, and is gone at once.
SLOW_TO_END = """
import os, socket, sys, threading, time
rank, where = int(os.environ["RANK"]), (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(("", where[1])) as server:
        server.accept()[0].recv(1)
    raise ConnectionResetError("Connection closed by peer")
deadline = time.monotonic() + 60
while True:
    try:
        peer = socket.create_connection(where, 5)
        break
    except OSError:
        if time.monotonic() > deadline:
            raise
        time.sleep(0.02)
threading.Thread(target=time.sleep, args=(1000,)).start()
hook = sys.excepthook
def said(*exception):
    hook(*exception)
    peer.close()
sys.excepthook = said
raise ValueError("loss is NaN")
"""

# Says much, and its rank 1 fails behind it.
LOUD = """
import os, sys, time
say = lambda *words: os.write(1, (" ".join(map(str, words)) + "\\n").encode())
say("up", os.environ["RANK"])
while len(sys.argv) > 1 and not os.path.exists("go"):
    time.sleep(0.02)
for number in range(20_000):
    say("line", number)
if os.environ["RANK"] == "1":
    raise ValueError("loss is NaN")
"""


class NodesTest(unittest.TestCase):
    """Three machines, and what is asked of their launchers."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-nodes-test-")
        self.addCleanup(folder.cleanup)
        names = ["a", "b", "c"]
        self.network = network_of(names)
        if self.network:
            self.addCleanup(self.network.down)
        self.a, self.b, self.c = (Machine(folder.name, name, self.network) for name in names)
        for machine in (self.a, self.b, self.c):
            for name, text in (("train.py", SCRIPT), ("user.py", USER), ("slow.py", SLOW_TO_END), ("loud.py", LOUD)):
                with open(os.path.join(machine.home, name), "w", encoding="utf-8") as script:
                    script.write(text)
        self.head = self.network.addresses["a"] if self.network else "127.0.0.1"

    def launch(self, machine, *options, rank=None, nodes="2", env=None, output_at="first", stdout=None, secret=None):
        place = ["--node-rank", rank, "--master-addr", self.head, "--master-port", PORT] if rank is not None else \
            ["--rdzv-backend", "c10d", "--rdzv-endpoint", f"{self.head}:{PORT}"]
        where = ["--output-at", output_at] if output_at else []
        launch = machine.launch("--nnodes", nodes, *place, "--rdzv-secret-file", secret or machine.secret, "--max-restarts", 5, *where, *options, env=env, stdout=stdout)
        self.addCleanup(launch.end)
        return launch

    def go(self, *machines):
        for machine in machines:
            open(os.path.join(machine.home, "go"), "w").close()

    def check_clean(self, *launches):
        for launch in launches:
            launch.wait_until_gone()
        for machine in (self.a, self.b, self.c):
            self.assertEqual([name for name in machine.temporary() if name.startswith("sgd-nodes")], [])

    def lines(self, head, word):
        """What ranks have said on the console that begins so, without the rank in front."""
        return sorted(re.findall(rf"^\d+: ({word} .*)\n", head.said(), re.M))

    def log_of_run(self, name):
        return read_file(os.path.join(self.a.home, "runs/latest/logs", name)).decode()

    def wait_for_ranks(self, head, count):
        try:
            wait_for(lambda: len(self.lines(head, "up")) >= count, LIMIT_S, f"{count} ranks")
        except AssertionError as error:
            raise AssertionError(f"{error}: {head.said()}") from None


class SeveralNodesTest(NodesTest):
    def test_ranks_of_two_machines_in_their_order(self):
        member = self.launch(self.b, "--nproc-per-node", 2, "train.py", rank=1, env={"MINE": "b"})
        head = self.launch(self.a, "--nproc-per-node", 2, "train.py", rank=0)
        self.assertEqual(head.wait(), 0, head.said())
        self.assertEqual(member.wait(), 0, member.said())
        ups = [line.split() for line in self.lines(head, "up")]
        self.assertEqual([(up[1], up[5], up[7], up[9]) for up in ups], [("0", "0", "0", "a"), ("1", "0", "1", "a"), ("2", "1", "0", "b"), ("3", "1", "1", "b")])
        self.assertEqual({up[13] for up in ups}, {self.head}, "where they meet")
        for up, machine in zip(ups, (self.a, self.a, self.b, self.b)):
            self.assertEqual(up[11], machine.home, "each in its own launcher's folder")
        self.assertEqual(self.lines(head, "done"), [f"done {rank}" for rank in range(4)])
        self.assertEqual(len(os.listdir(os.path.join(self.a.home, "runs"))), 2, "the run, and latest")
        self.assertIn("output and results at node 0", member.said())
        self.check_clean(head, member)

    def test_each_machine_needs_the_gpus_of_its_own_workers(self):
        launches = [self.launch(machine, "--nproc-per-node", 1, "--set", "per_worker.gpus=1", "train.py", rank=number,
                                env={"CUDA_VISIBLE_DEVICES": "0"}) for number, machine in enumerate((self.a, self.b))]
        self.assertEqual([launch.wait() for launch in launches], [0, 0], launches[0].said() + launches[1].said())
        self.assertEqual(self.lines(launches[0], "done"), ["done 0", "done 1"])
        refused = self.launch(self.a, "--nproc-per-node", 2, "--set", "per_worker.gpus=1", "train.py", rank=0,
                              env={"CUDA_VISIBLE_DEVICES": "0"})
        self.assertEqual(refused.wait(), 2, refused.said())
        self.assertIn("2 workers with 1 GPU each need 2", refused.said())

    def test_each_machine_shows_its_own_ranks(self):
        launches = [self.launch(machine, "--nproc-per-node", 2, *options, "train.py", "wait", rank=number, output_at=None)
                    for number, (machine, options) in enumerate(((self.a, []), (self.b, ["--output", "json"])))]
        head, member = launches
        self.wait_for_ranks(head, 2)
        self.assertEqual([line.split()[1] for line in self.lines(head, "up")], ["0", "1"])
        member.wait_for_words('"text":"up ', 2)
        self.go(self.a, self.b)
        self.assertEqual([launch.wait() for launch in launches], [0, 0], head.said() + member.said())
        self.assertEqual(self.lines(head, "done"), ["done 0", "done 1"], "nothing of the other machine")
        objects = [json.loads(line) for line in member.said().splitlines() if line.startswith("{")]
        self.assertEqual(sorted(one["text"] for one in objects if one["text"].startswith("done")), ["done 2", "done 3"])
        self.assertEqual({one["stream"] for one in objects}, {"stdout"})
        self.assertIn("2 workers here, results at node 0", member.said())
        self.assertTrue(member.said().endswith(": succeeded\n"), member.said())
        self.assertIn("up 2 of 4", self.log_of_run("gen-0001/rank-0002.log"), "logs of all are at node 0")
        self.check_clean(*launches)

    def test_what_a_machines_ranks_say_last_is_shown_there(self):
        """Much, at the end, to both streams; and a traceback stays whole."""
        launches = [self.launch(machine, "--max-restarts", 0, "--no-fold", "loud.py", rank=number, output_at=None)
                    for number, machine in enumerate((self.a, self.b))]
        self.assertEqual([launch.wait() for launch in launches], [1, 1], launches[1].said())
        self.assertEqual(re.findall(r"^(\d): line (\d+)$", launches[1].said(), re.M), [("1", str(number)) for number in range(20_000)])
        self.assertNotIn("1: line", launches[0].said())
        self.assertIn('1: Traceback (most recent call last):\n1:   File "', launches[1].said())
        self.assertIn("1: ValueError: loss is NaN\n", launches[1].said())
        self.assertNotIn("1: Traceback", launches[0].said())
        self.assertIn("run failed: rank 1: ValueError: loss is NaN", launches[0].said(), "the block is at node 0")
        self.assertRegex(launches[1].said(), r"run \S+: failed\n$")
        self.check_clean(*launches)

    def test_machines_with_different_data_train_nothing(self):
        """The same path, which is another file on each: a process finds it in its own working folder."""
        data = {"type": "csv", "columns": {"target": "y"}, **{split: f"/proc/self/cwd/{split}.csv" for split in ("train", "validation")}}
        job = linear_job(dataset=data, model={"type": "linear", "inputs": 1, "outputs": 2}, loss="cross_entropy", batch_size=4)
        for uneven, use in (("train", "train"), ("validation", "validate")):
            for machine in (self.a, self.b):
                write_job(os.path.join(machine.home, "job.json"), {key: value for key, value in job.items() if key != "num_workers"})
                for split in ("train", "validation"):
                    rows = 7 if machine is self.b and split == uneven else 8
                    with open(os.path.join(machine.home, f"{split}.csv"), "w", encoding="utf-8") as file:
                        file.write("x,y\n" + "".join(f"{row},{row % 2}\n" for row in range(rows)))
            launches = [self.launch(machine, "--nproc-per-node", 1, "job.json", rank=number) for number, machine in enumerate((self.a, self.b))]
            self.assertEqual([launch.wait() for launch in launches], [1, 1], launches[0].said())
            words = (f'rank 1 has 7 samples to {use} on in "training.dataset" where rank 0 has 8 samples to {use} on in "training.dataset". '
                     "Every rank must see the same data")
            self.assertIn(words, launches[0].said())
            logs = [self.log_of_run(f"gen-0001/rank-000{rank}.log") for rank in range(2)]  # The first that ends may end the other.
            self.assertTrue(any(words in log for log in logs), logs)
            events = read_lines(os.path.join(self.a.home, "runs/latest/events.jsonl"))
            self.assertEqual([event for event in events if event["event"] in ("first_step", "recovered")], [])
            self.check_clean(*launches)

    def test_an_agent_that_is_killed_comes_back_to_its_launcher(self):
        launches = [self.launch(machine, "train.py", "wait", rank=number, output_at=None) for number, machine in enumerate((self.a, self.b))]
        for launch in launches:
            self.wait_for_ranks(launch, 1)
        for launch in launches:
            os.kill(launch.daemon("agent"), signal.SIGKILL)
        self.go(self.a, self.b)  # So that ranks say their last words to nobody.
        self.assertEqual([launch.wait() for launch in launches], [0, 0], launches[0].said() + launches[1].said())
        self.assertEqual([self.lines(launch, "done") for launch in launches], [["done 0"], ["done 1"]])
        for launch in launches:
            self.assertIn("this one takes over", launch.said())
        self.check_clean(*launches)

    def test_a_launcher_waits_for_whoever_reads_it(self):
        launches = [self.launch(self.a, "--max-restarts", 0, "loud.py", "wait", rank=0, output_at=None)]
        reader, writer = os.pipe()
        launches.append(self.launch(self.b, "--max-restarts", 0, "loud.py", "wait", rank=1, output_at=None, stdout=writer))
        os.close(writer)
        self.wait_for_ranks(launches[0], 1)
        self.go(self.a, self.b)
        self.assertEqual(launches[0].process.wait(LIMIT_S), 1)
        self.assertIsNone(launches[1].process.poll(), "what it has to say is not read yet")
        with open(reader, "rb") as stream:
            said = stream.read().decode()
        self.assertEqual(launches[1].wait(), 1)
        self.assertEqual(re.findall(r"^(\d): line (\d+)$", said, re.M), [("1", str(number)) for number in range(20_000)])
        self.check_clean(*launches)

    def test_a_rank_dies_on_either_machine(self):
        launches = [self.launch(self.b, "train.py", "wait", rank=1), self.launch(self.a, "train.py", "wait", rank=0)]
        head = launches[1]
        for number, machine in ((1, "b"), (2, "a")):
            self.wait_for_ranks(head, 2 * number)
            pid = int([line for line in self.lines(head, "up") if f"on {machine} in" in line and f"restart {number - 1} " in line][0].split()[-1])
            os.kill(pid, signal.SIGKILL)
            self.wait_for_ranks(head, 2 * number + 2)
        self.go(self.a, self.b)
        self.assertEqual([launch.wait() for launch in launches], [0, 0], head.said())
        self.assertEqual(self.lines(head, "done"), ["done 0", "done 1"], "the last words of all machines")
        self.check_clean(*launches)

    def test_daemons_that_are_killed_cost_nothing(self):
        member = self.launch(self.b, "train.py", "wait", rank=1)
        head = self.launch(self.a, "train.py", "wait", rank=0)
        self.wait_for_ranks(head, 2)
        for launch, name in ((head, "coordinator"), (member, "agent"), (head, "agent")):
            before = launch.daemon(name)
            os.kill(before, signal.SIGKILL)
            wait_for(lambda launch=launch, name=name, before=before: launch.daemon(name) not in (0, before), LIMIT_S, f"a new {name}")
        self.go(self.a, self.b)
        self.assertEqual((head.wait(), member.wait()), (0, 0), head.said() + member.said())
        self.assertEqual(len(self.lines(head, "up")), 2, "no rank was started again")
        self.assertEqual(self.lines(head, "done"), ["done 0", "done 1"])
        self.check_clean(head, member)

    def test_a_machine_that_comes_back_and_one_whose_first_is_gone(self):
        member = self.launch(self.b, "train.py", "wait", rank=1)
        head = self.launch(self.a, "train.py", "wait", rank=0)
        self.wait_for_ranks(head, 2)
        member.process.kill()
        member.wait_until_gone()
        again = self.launch(self.b, "train.py", "wait", rank=1)
        self.wait_for_ranks(head, 4)
        head.process.kill()
        self.assertEqual(again.wait(), 1)
        self.assertIn("is gone", again.said())
        head.wait_until_gone()
        again.wait_until_gone()

    def test_more_machines_come_and_go(self):
        options = ["--rdzv-conf", "last_call_timeout=0", "train.py", "wait"]
        head = self.launch(self.a, *options, rank=0, nodes="1:3")
        self.wait_for_ranks(head, 1)
        others = [self.launch(machine, *options, rank=rank, nodes="1:3") for rank, machine in ((1, self.b), (2, self.c))]
        head.wait_for_words(" of 3 group", 3)
        others[0].process.send_signal(signal.SIGTERM)
        self.assertEqual(others[0].wait(), 143, others[0].said())
        wait_for(lambda: len([line for line in self.lines(head, "up") if " of 2 group" in line and "on c in" in line]) >= 1, LIMIT_S, head.said())
        self.go(self.a, self.c)
        self.assertEqual((head.wait(), others[1].wait()), (0, 0), head.said())
        self.check_clean(head, *others)

    def test_verbs_in_another_terminal(self):
        launches = [self.launch(machine, "train.py", "wait", rank=number) for number, machine in enumerate((self.a, self.b))]
        self.wait_for_ranks(launches[0], 2)

        def verb(*words, code=0):
            asking = self.a.launch(*words)
            self.addCleanup(asking.end)
            self.assertEqual(asking.wait(), code, asking.said())
            return asking.said()
        status = verb("status")
        self.assertIn("running", status)
        self.assertRegex(status, r"1 node0001 ")
        self.assertIn("up 1 of 2", verb("logs", "--rank", 1))
        self.assertRegex(verb("nodes"), r"node0001 .* connected")
        self.assertRegex(verb("ps"), r"train-\S+ +running +2/2 ")
        self.assertIn("stopped", verb("stop"))
        self.assertEqual([launch.wait() for launch in launches], [6, 6], launches[0].said())
        self.assertIn("cancelled", verb("status"))
        self.assertIn("not running", verb("stop", code=3))
        self.check_clean(*launches)

    def test_a_signal_at_either_machine_stops_all(self):
        for rank in (0, 1):
            launches = [self.launch(machine, "train.py", "wait", rank=number) for number, machine in enumerate((self.a, self.b))]
            self.wait_for_ranks(launches[0], 2)
            launches[1].wait_for_words("output and results")
            launches[rank].process.send_signal(signal.SIGTERM)
            self.assertEqual([launch.wait() for launch in launches], [143, 143], launches[0].said() + launches[1].said())
            self.check_clean(*launches)

    def test_a_user_signal_at_either_machine_reaches_all_ranks(self):
        launches = [self.launch(machine, "user.py", rank=number) for number, machine in enumerate((self.a, self.b))]
        head = launches[0]
        wait_for(lambda: len(self.lines(head, "up")) == 2, LIMIT_S, "both ranks")
        launches[1].wait_for_words("output and results")
        launches[0].process.send_signal(signal.SIGUSR1)
        wait_for(lambda: len(self.lines(head, "got")) == 2, LIMIT_S, "the first signal")
        launches[1].process.send_signal(signal.SIGUSR2)
        self.assertEqual([launch.wait() for launch in launches], [0, 0], head.said() + launches[1].said())
        self.assertEqual(self.lines(head, "got"), ["got SIGUSR1 by 0", "got SIGUSR1 by 1", "got SIGUSR2 by 0", "got SIGUSR2 by 1"])
        self.check_clean(*launches)

    def test_a_user_signal_before_the_run_ends_nothing(self):
        options = ["--rdzv-conf", "join_timeout=60", "train.py"]
        head = self.launch(self.a, *options, rank=0)
        head.wait_for_words("waiting for 1 more")
        head.process.send_signal(signal.SIGUSR1)
        head.wait_for_words("SIGUSR1) is not passed on: the run has not started")
        member = self.launch(self.b, *options, rank=1)
        self.assertEqual([head.wait(), member.wait()], [0, 0], head.said() + member.said())

    def test_the_error_of_a_living_rank_of_the_other_machine_is_the_cause(self):
        launches = [self.launch(machine, "--max-restarts", 0, "slow.py", rank=number) for number, machine in enumerate((self.a, self.b))]
        self.assertEqual(launches[0].wait(), 1, launches[0].said())
        self.assertIn("run failed: rank 1: ValueError: loss is NaN (had not ended)", launches[0].said())
        self.assertEqual(launches[1].wait(), 1, launches[1].said())
        self.check_clean(*launches)

    def test_what_a_killed_launcher_leaves_is_removed_by_the_next_one(self):
        head = self.launch(self.a, "--rdzv-conf", "join_timeout=60", "train.py", rank=0)
        head.wait_for_words("waiting for 1 more")
        head.process.kill()
        head.wait_until_gone()
        left = [name for name in self.a.temporary() if name.startswith("sgd-nodes")]
        self.assertEqual(len(left), 1)
        launches = [self.launch(machine, "train.py", "wait", rank=number) for number, machine in enumerate((self.a, self.b))]
        self.wait_for_ranks(launches[0], 2)
        self.assertNotIn(left[0], self.a.temporary())
        self.assertEqual(len([name for name in self.a.temporary() if name.startswith("sgd-nodes")]), 1, "its own, which is in use")
        self.go(self.a, self.b)
        self.assertEqual([launch.wait() for launch in launches], [0, 0], launches[0].said())
        self.check_clean(*launches)

    def test_another_secret_does_not_come_in(self):
        self.b.write_secret("another secret of more than sixteen bytes")
        # Node 0 gives up first, and refuses no more when the other one says at last why it was not reached.
        launches = [self.launch(machine, "--rdzv-conf", f"join_timeout={limit}", "train.py", rank=number)
                    for number, (machine, limit) in enumerate(((self.a, 8), (self.b, 12)))]
        self.assertEqual([launch.wait() for launch in launches], [5, 5])
        self.assertIn("1 of 2 nodes came", launches[0].said())
        self.assertIn(": node 1", launches[0].said())
        self.assertRegex(launches[1].said(), r"node 0 was not reached at .* \(it has another secret, or another --rdzv-id\)")
        self.check_clean(*launches)

    def test_two_machines_with_one_rank_are_told_of(self):
        options = ["--rdzv-conf", "join_timeout=120", "train.py"]
        launches = [self.launch(machine, *options, rank=rank, nodes="3") for machine, rank in ((self.a, 0), (self.b, 1), (self.c, 1))]
        launches[0].wait_for_words("two launchers have one --node-rank: ")
        # Which of the two came first is theirs to settle; the other one is told why, and ends.
        wait_for(lambda: any(launch.process.poll() is not None for launch in launches[1:]), LIMIT_S, "the end of the one that is refused")
        refused = next(launch for launch in launches[1:] if launch.process.poll() is not None)
        self.assertEqual(refused.wait(), 3, refused.said())
        self.assertIn("does not take this launcher yet; the agent here says: ", refused.said())
        self.assertIn("does not take this launcher: an agent with the name node0001 is connected from", refused.said())
        self.assertIn("Two launchers have one --node-rank", refused.said())
        self.assertEqual(sum(launch.process.poll() is None for launch in launches), 2, "the others wait on")
        launches[0].process.send_signal(signal.SIGINT)
        self.assertEqual(launches[0].wait(), 130)

    def test_who_has_the_port_is_first_where_nobody_says_so(self):
        """As `torchrun --rdzv-endpoint localhost:PORT` twice on one machine."""
        launches = [self.launch(machine, "--rdzv-id", 7, "train.py") for machine in (self.a, self.a)]
        self.assertEqual([launch.wait() for launch in launches], [0, 0], launches[0].said() + launches[1].said())
        heads = [launch for launch in launches if self.lines(launch, "up")]
        self.assertEqual(len(heads), 1)
        self.assertEqual(self.lines(heads[0], "done"), ["done 0", "done 1"])
        self.check_clean(*launches)

    def test_pods_of_a_job_with_the_words_of_our_manifests(self):
        for manifest in ("indexed_job.yaml", "jobset.yaml"):
            with open(os.path.join(CONFIGS, "kubernetes", manifest), encoding="utf-8") as file:
                words = dict(re.findall(r'name: ([A-Z_]+), value: "?([^"}]+)"?}', file.read()))
            self.assertEqual(set(words), {"PET_NNODES", "PET_MASTER_ADDR", "SGD_RDZV_SECRET_FILE"})
            launches = []
            for rank, machine in enumerate((self.a, self.b)):
                os.chmod(machine.secret, 0o644)  # As it is mounted.
                link = os.path.join(machine.home, manifest)
                os.symlink(machine.secret, link)
                launches.append(machine.launch("train.py", env={**words, "PET_MASTER_ADDR": self.head, "PET_MASTER_PORT": str(PORT), "SGD_RDZV_SECRET_FILE": link,
                                                                "JOB_COMPLETION_INDEX": str(rank)}))
                self.addCleanup(launches[-1].end)
            self.assertEqual([launch.wait() for launch in launches], [0, 0], launches[0].said() + launches[1].said())
            self.assertEqual([self.lines(launch, "done") for launch in launches], [["done 0"], ["done 1"]])
        self.check_clean(*launches)

    def test_what_is_wrong_is_said_before_anything_is_started(self):
        def refused(*options, code=2):
            launch = self.a.launch(*options)
            self.addCleanup(launch.end)
            self.assertEqual(launch.wait(), code, launch.said())
            self.assertFalse(os.path.exists(os.path.join(self.a.home, "runs")))
            return launch.said()
        said = refused("--nnodes", 2, "--node-rank", 2, "--master-addr", self.head, "--nproc-per-node", "many", "train.py")
        self.assertIn("expected 0 to 1", said)
        self.assertIn("\"num_workers\" must be an integer", said)
        self.assertIn("have to know where they meet", refused("--nnodes", 2, "train.py"))
        self.assertIn("the same on all of them", refused("--nnodes", 2, "--node-rank", 0, "--master-addr", "192.0.2.1", "train.py"))
        self.assertIn("No such file", refused("--nnodes", 2, "--node-rank", 0, "--master-addr", "h", "--rdzv-secret-file", "none", "train.py"))
        self.assertIn("there is no script", refused("--nnodes", 2, "--node-rank", 0, "--master-addr", "h", "--rdzv-insecure", "none.py"))
        self.assertIn("--nnodes: error: is for machines without a coordinator",
                      refused("--address", "h:1", "--nnodes", 2, "--master-addr", "h", "train.py"))
        front = self.network.inside("a") if self.network else []
        with subprocess.Popen([*front, sys.executable, "-c", f"import socket, sys; s = socket.create_server(('', {PORT})); print(1, flush=True); "
                               "sys.stdin.read()"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as taker:
            taker.stdout.readline()
            launch = self.launch(self.a, "train.py", rank=0)
            self.assertEqual(launch.wait(), 1)
            self.assertIn(f"{PORT}: Address already in use", launch.said())
            taker.stdin.close()


if __name__ == "__main__":
    unittest.main()
