"""`--backend tensorflow` and `--backend horovod`: what the workers of a command are told for these frameworks, on one machine and on several."""

import json
import os
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LaunchTest
from machines import PORT, Machine, network_of

# What a MultiWorkerMirroredStrategy does with TF_CONFIG: serves at its own place, and reaches every other one.
MEETS = """
import json, os, socket, time
config = json.loads(os.environ["TF_CONFIG"])
workers, task = config["cluster"]["worker"], config["task"]
assert set(config) == {"cluster", "task"} and set(config["cluster"]) == {"worker"} and set(task) == {"type", "index"}, config
assert task["type"] == "worker" and task["index"] == int(os.environ["RANK"]), task
assert len(set(workers)) == len(workers) == int(os.environ["WORLD_SIZE"]), workers
def place(index):
    host, port = workers[index].rsplit(":", 1)
    return host, int(port)
with socket.create_server(("", place(task["index"])[1])) as server:
    for other in range(len(workers)):
        deadline = time.monotonic() + 60
        while other != task["index"]:
            try:
                with socket.create_connection(place(other), 5) as connection:
                    connection.sendall(b"%d" % task["index"])
                    break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)
    heard = []
    for _ in range(len(workers) - 1):
        with server.accept()[0] as connection:
            heard.append(int(connection.makefile().read()))
assert sorted([*heard, task["index"]]) == list(range(len(workers))), heard
print("met", json.dumps(workers), flush=True)
"""

# Of the first generation worker 1 fails, and not before the other one has said that it has met it: that one is ended then.
ENDS_WHEN_BOTH_HAVE_MET = """
import sys
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and task["index"] == 0:
    open(sys.argv[1], "w").close()
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and task["index"] == 1:
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.01)
    sys.exit(3)
"""

PRINT_HOROVOD = """
import json, os
print("told", json.dumps({name: value for name, value in os.environ.items() if name.startswith(("HOROVOD_", "MASTER_")) or name == "TF_CONFIG"}), flush=True)
"""


def words_after(text, word):
    return [json.loads(line.split(word + " ", 1)[1]) for line in text.splitlines() if word + " " in line]


class BackendTest(LaunchTest):
    def test_workers_meet_by_TF_CONFIG(self):
        launch = self.run_to_end("-n", 3, "--backend", "tensorflow", "--no-fold", "--", *self.script("meets.py", MEETS))
        met = words_after(launch.stdout().decode(), "met")
        self.assertEqual(len(met), 3)
        self.assertEqual(met, [met[0]] * 3)
        self.assertEqual({worker.rsplit(":", 1)[0] for worker in met[0]}, {"127.0.0.1"})

    def test_each_generation_has_its_own_places(self):
        text = MEETS + ENDS_WHEN_BOTH_HAVE_MET
        launch = self.run_to_end("-n", 2, "--max-failures", 1, "--no-fold", "--set", "process.backend=tensorflow", "--", *self.script("again.py", text),
                                 self.path("met"))
        self.assertEqual(len(launch.events("restarted")), 1)
        self.assertEqual(len(words_after(launch.stdout().decode(), "met")), 4)

    def test_one_worker_alone_is_no_cluster(self):
        text = "import os\nprint('TF_CONFIG' in os.environ)\n"
        launch = self.run_to_end("-n", 1, "--backend", "tensorflow", "--", *self.script("alone.py", text))
        self.assertEqual(launch.log(0), b"False\n")

    def test_workers_are_told_horovods_names(self):
        launch = self.run_to_end("-n", 2, "--backend", "horovod", "--no-fold", "--", *self.script("show.py", PRINT_HOROVOD))
        for rank in (0, 1):
            told = words_after(launch.log(rank).decode(), "told")[0]
            expected = {"HOROVOD_RANK": str(rank), "HOROVOD_SIZE": "2", "HOROVOD_LOCAL_RANK": str(rank), "HOROVOD_LOCAL_SIZE": "2",
                        "HOROVOD_CROSS_RANK": "0", "HOROVOD_CROSS_SIZE": "1", "HOROVOD_CONTROLLER": "gloo", "HOROVOD_CPU_OPERATIONS": "gloo",
                        "HOROVOD_HOSTNAME": "localhost", "HOROVOD_GLOO_RENDEZVOUS_ADDR": told["MASTER_ADDR"],
                        "HOROVOD_GLOO_RENDEZVOUS_PORT": told["MASTER_PORT"]}
            self.assertEqual({name: value for name, value in told.items() if not name.startswith("MASTER_")}, expected)

    def test_what_is_refused(self):
        launch = self.run_to_end("-n", 1, "--backend", "tensorflw", "--", "true", expect=2)
        self.assertIn('did you mean "tensorflow"?', launch.stderr())
        job = self.path("job.json")
        with open(job, "w", encoding="utf-8") as file:
            json.dump({"command": ["true"], "environment": "tensorflow"}, file)
        self.assertIn('unknown key "environment"; use "process.backend"', self.run_to_end(job, expect=2).stderr())


class SeveralMachinesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-backend-test-")
        self.addCleanup(folder.cleanup)
        self.network = network_of(["a", "b"])
        if self.network:
            self.addCleanup(self.network.down)
        self.machines = [Machine(folder.name, name, self.network) for name in ("a", "b")]
        self.head = self.network.addresses["a"] if self.network else "127.0.0.1"

    def run_both(self, backend, script):
        """Two workers on each; what the first machine has shown."""
        launches = []
        for rank, machine in enumerate(self.machines):
            with open(os.path.join(machine.home, "train.py"), "w", encoding="utf-8") as file:
                file.write(script)
            launches.append(machine.launch("--nnodes", 2, "--node-rank", rank, "--master-addr", self.head, "--master-port", PORT, "--rdzv-secret-file",
                                           machine.secret, "--nproc-per-node", 2, "--backend", backend, "--no-fold", "--output-at", "first", "train.py"))
            self.addCleanup(launches[-1].end)
        self.assertEqual([launch.wait() for launch in launches], [0, 0], launches[0].said() + launches[1].said())
        return launches[0].said()

    def test_workers_of_two_machines_meet_by_TF_CONFIG(self):
        met = words_after(self.run_both("tensorflow", MEETS), "met")
        self.assertEqual(met, [met[0]] * 4)
        if self.network:
            own = [self.network.addresses[name] for name in ("a", "a", "b", "b")]
            self.assertEqual([worker.rsplit(":", 1)[0] for worker in met[0]], own)

    def test_workers_of_two_machines_are_told_horovods_names(self):
        told = words_after(self.run_both("horovod", PRINT_HOROVOD), "told")
        places = {int(one["HOROVOD_RANK"]): (one["HOROVOD_LOCAL_RANK"], one["HOROVOD_CROSS_RANK"], one["HOROVOD_CROSS_SIZE"], one["HOROVOD_HOSTNAME"])
                  for one in told}
        self.assertEqual(places, {0: ("0", "0", "2", "node0000"), 1: ("1", "0", "2", "node0000"), 2: ("0", "1", "2", "node0001"),
                                  3: ("1", "1", "2", "node0001")})
        self.assertEqual({one["HOROVOD_GLOO_RENDEZVOUS_ADDR"] for one in told}, {self.head})


if __name__ == "__main__":
    unittest.main()
