"""What a job names in "files" is on the nodes: brought once, by hash, and read-only."""

import json
import os
import shutil
import signal
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from data import image_job, small_fashion
from harness import BIN_DIR, LIMIT_S, mount_disk, process_state, read_file, wait_for

SCRIPT = """
import os, sys, time
sys.path.insert(0, "lib")
import words
here = os.getcwd()
print(f"rank {os.environ['RANK']} said {words.SAID} of {open(sys.argv[1]).read()} in {here}", flush=True)
try:
    open("train.py", "a").close()
    print("writable", os.geteuid(), flush=True)
except OSError:
    pass
with open(f"out-{os.environ['RANK']}", "w") as file:
    file.write("beside them may be written")
if os.path.exists("wait"):
    time.sleep(600)
"""


def has_socket(pid):
    """Files that it closes meanwhile are none."""
    for fd in os.listdir(f"/proc/{pid}/fd"):
        try:
            if os.readlink(f"/proc/{pid}/fd/{fd}").startswith("socket:"):
                return True
        except FileNotFoundError:
            continue
    return False


class JobFilesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-files-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        os.makedirs(self.path("lib"))
        self.write("train.py", SCRIPT)
        self.write("lib/words.py", "SAID = 'good morning'\n")
        self.write("lib/empty.py", "")
        self.write("data.txt", "data" * 1000)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)

    def begin(self, nodes=None, **settings):
        # In plain text over loopback: where this is root, jobs have an account of their own.
        self.cluster = Cluster(nodes or {"n1": 1, "n2": 1}, **{"loopback": True, **settings})
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__)

    def job(self, **keys):
        job = {"name": "with-files", "num_workers": 2, "command": [sys.executable, "train.py", self.path("data.txt")],
               "files": ["train.py", "lib", "data.txt"], "placement": {"strategy": "spread"}, **keys}
        self.write("job.json", json.dumps(job))
        return self.path("job.json")

    def store(self, owner):
        folder = os.path.join(self.cluster.folder, owner, "files")
        return {os.path.join(where, name): os.stat(os.path.join(where, name))
                for where, _, names in os.walk(folder) for name in names if len(name) == 64 and "runs" not in os.path.relpath(where, folder).split("/")}

    def logs(self, run):
        folder = os.path.join(self.cluster.run_dir(run), "logs", "gen-0001")
        return {name: read_file(os.path.join(folder, name)).decode() for name in sorted(os.listdir(folder))}

    def test_files_of_a_command_are_on_both_nodes(self):
        self.begin()
        client = self.cluster.run(self.job())
        said = client.wait_and_say(0)
        self.assertIn("5 files (", said)  # And the list of them.
        logs = self.logs(client.run_id())
        for rank in (0, 1):
            log = logs[f"rank-{rank:04}.log"]
            self.assertIn(f"rank {rank} said good morning of datadata", log)
            self.assertIn(f"/files/runs/{client.run_id()}{self.folder}", log)
            self.assertNotIn("writable 65534", log)
        # Once: of a second run with one other file that one alone travels.
        self.write("lib/words.py", "SAID = 'good evening'\n")
        before = {node: {path: stat.st_ino for path, stat in self.store(f"agent-{node}").items()} for node in ("n1", "n2")}
        client = self.cluster.run(self.job())
        self.assertIn("2 files (", client.wait_and_say(0))
        self.assertIn("good evening", self.logs(client.run_id())["rank-0000.log"])
        for node, files in before.items():
            after = {path: stat.st_ino for path, stat in self.store(f"agent-{node}").items()}
            self.assertEqual({path: after.get(path) for path in files}, files)
            self.assertEqual(len(after), len(files) + 1)
            for path, stat in self.store(f"agent-{node}").items():
                self.assertEqual(stat.st_mode & 0o777, 0o555, path)
            # The runs' own folders go with them.
            wait_for(lambda node=node: not os.listdir(os.path.join(self.cluster.folder, f"agent-{node}", "files", "runs")), 30, "the trees to go")
        # A damaged one is found and comes anew, also one that was cut short.
        [words] = [path for path in self.store("agent-n1") if b"good evening" in read_file(path)]
        for damaged in (b"SAID = 'Damaged evening'\n", b"SAID", b""):
            os.chmod(words, 0o755)
            with open(words, "wb") as file:
                file.write(damaged)
            client = self.cluster.run(self.job())
            client.wait_and_say(0)
            logs = self.logs(client.run_id())
            self.assertTrue(all("good evening" in log for name, log in logs.items() if name.startswith("rank")), (damaged, logs))

    def test_an_agent_that_is_killed_leaves_them_in_use(self):
        self.begin({"n1": 2})
        self.write("wait", "")
        client = self.cluster.run(self.job(files=["train.py", "lib", "data.txt", "wait"], placement={}))
        run = client.run_id()
        tree = os.path.join(self.cluster.folder, "agent-n1", "files", "runs", run)
        wait_for(lambda: os.path.exists(tree + self.path("out-1")) and os.path.exists(tree + self.path("out-0")), 60, "both ranks to write beside the files")
        self.cluster.agents["n1"].kill()
        self.cluster.agents["n1"].wait()
        self.cluster.start_agent("n1")
        wait_for(lambda: "takes over" in self.cluster.log_of("n1"), 30, "the takeover")
        self.assertTrue(os.path.exists(tree + self.path("train.py")))
        client.process.send_signal(signal.SIGTERM)
        client.wait()
        wait_for(lambda: not os.path.exists(tree), 30, "the tree to go with the run")

    def test_trials_have_their_experiments_files(self):
        self.begin({"n1": 2})
        self.write("trial.py", "import json, os, words_of\nprint(json.dumps({'loss': words_of.LOSS}), flush=True)\n")
        self.write("words_of.py", "LOSS = 0.25\n")
        self.write("tune.json", json.dumps({
            "name": "files-tried", "num_workers": 1, "command": [sys.executable, "trial.py"], "files": ["trial.py", "words_of.py"],
            "report": {"last_line": True},
            "tune": {"parameters": {"env.X": {"choice": ["1", "2"]}}, "search": {"type": "grid"}, "metric": "loss", "mode": "min"}}))
        client = self.cluster.run("tune", self.path("tune.json"))
        said = client.wait_and_say(0)
        self.assertIn("3 files (", said)
        self.assertEqual(len(self.store("agent-n1")), 2)

    def training(self):
        """With a model and data that only this folder has."""
        job = image_job(small_fashion(self.path("data"), 2048, 256), epochs=1, operator={"type": "smoothed"})
        del job["training"]["model"]
        shutil.copy(os.path.join(BIN_DIR, "..", "lib", "own_operator.so"), self.path("own.so"))
        job.update({"plugins": ["./own.so"], "files": ["own.so", "data"], "num_workers": 2, "placement": {"strategy": "spread"}})
        self.write("train.json", json.dumps(job))
        return self.path("train.json")

    def test_a_plugin_and_the_data_of_a_training_that_goes_on_without_them_here(self):
        self.begin(loopback=False)
        client = self.cluster.run(self.training())
        client.wait_and_say(0)
        for node in ("n1", "n2"):
            self.assertTrue(any(stat.st_size == os.path.getsize(self.path("own.so")) for stat in self.store(f"agent-{node}").values()), node)
        shutil.rmtree(self.path("data"))
        run = client.run_id()
        said = self.cluster.run("resume", run, "--set", "training.epochs=2", "--set", 'files=["/etc/hostname"]').wait_and_say(2)
        self.assertIn('"files" of a run that goes on stay as they are', said)
        again = self.cluster.run("resume", run, "--set", "training.epochs=2")
        self.assertNotIn("brought to the coordinator", again.wait_and_say(0))
        epochs = [line["epoch"] for line in self.cluster.lines(again.run_id(), "metrics.jsonl") if line["phase"] == "train"]
        self.assertEqual(epochs, [1, 2])

    def part(self, owner):
        """The largest of what has come in part."""
        folder = os.path.join(self.cluster.folder, owner, "files")
        found = [os.path.join(where, name) for where, _, names in os.walk(folder) for name in names if name.endswith(".part")]
        return max((os.path.getsize(path) for path in found if os.path.exists(path)), default=0)

    def kill_in_between(self, process, owner):
        """Kills it with some of the large file and not all of it. It is stopped for each look: nothing comes between that and its end."""
        def has_some():
            process.send_signal(signal.SIGSTOP)
            wait_for(lambda: process_state(process.pid) == "T", LIMIT_S, "it to stop")
            if self.part(owner) > 8 << 20:
                return True
            process.send_signal(signal.SIGCONT)
            return False
        wait_for(has_some, LIMIT_S, f"some of the large file to come to {owner}")
        process.kill()
        process.wait()

    def test_a_coordinator_and_a_node_that_are_killed_while_they_come(self):
        self.begin({"n1": 1})
        with open(self.path("large"), "wb") as large:
            for _ in range(192):
                large.write(os.urandom(1 << 20))
        client = self.cluster.run(self.job(files=["train.py", "lib", "data.txt", "large"], num_workers=1))
        self.kill_in_between(self.cluster.coordinator, "coordinator")
        self.cluster.start_coordinator()
        self.kill_in_between(self.cluster.agents["n1"], "agent-n1")
        had = self.part("agent-n1")
        self.cluster.start_agent("n1")
        said = client.wait_and_say(0)
        self.assertIn("is back", said)
        self.assertGreater(had, 8 << 20)
        self.assertEqual(self.part("agent-n1"), 0)
        self.assertIn(os.path.getsize(self.path("large")), [stat.st_size for stat in self.store("agent-n1").values()])

    def test_a_file_that_changes_after_it_was_looked_at(self):
        self.begin({"n1": 2})
        self.cluster.coordinator.send_signal(signal.SIGSTOP)
        client = self.cluster.run(self.job())
        # It connects when all is hashed.
        wait_for(lambda: has_socket(client.process.pid), 30, "a connection")
        self.write("data.txt", "DATA" * 1000)
        self.cluster.coordinator.send_signal(signal.SIGCONT)
        self.assertIn("data.txt was changed while it was sent: submit again", client.wait_and_say(2))
        self.cluster.run(self.job()).wait_and_say(0)

    def bring_too_much(self, name, expect):
        """To a disk of 64 MiB below the state folder of `name`."""
        place = self.path("cluster", name)
        self.addCleanup(mount_disk(place, "64m"))
        with open(self.path("large"), "wb") as large:
            large.truncate(80 << 20)
        self.begin({"n1": 2}, loopback=False, folder=self.path("cluster"))
        said = self.cluster.run(self.job(files=["train.py", "lib", "data.txt", "large"])).wait_and_say(expect)
        self.assertIn("no room for files of jobs", said)
        self.assertIn(place, said)
        # Without it the next one runs, and so does one for which there is room when what has come of it is given up.
        self.cluster.run(self.job()).wait_and_say(0)
        with open(self.path("large"), "wb") as large:
            large.truncate(40 << 20)
        self.cluster.run(self.job(files=["train.py", "lib", "data.txt", "large"])).wait_and_say(0)

    def test_a_coordinators_disk_without_room(self):
        self.bring_too_much("coordinator", 2)

    def test_a_nodes_disk_without_room(self):
        self.bring_too_much("agent-n1", 1)

    def test_what_cannot_be_brought_is_refused_with_all_errors(self):
        self.begin({"n1": 2}, coordinator_options=("--max-files", "10KiB"))
        os.symlink("/etc/hostname", self.path("lib", "elsewhere"))
        os.symlink("words.py", self.path("lib", "inside"))
        os.mkfifo(self.path("lib", "pipe"))
        client = self.cluster.run(self.job(files=["train.py", "lib", "no_such.txt"]))
        said = client.wait_and_say(2)
        for words in ("lib/elsewhere is a link that leads out of its folder", "lib/pipe is no file", "no_such.txt is not there"):
            self.assertIn(words, said)
        self.assertNotIn("inside", said)
        os.remove(self.path("lib", "elsewhere"))
        os.remove(self.path("lib", "pipe"))
        self.write("large.txt", "x" * 20_000)
        client = self.cluster.run(self.job(files=["train.py", "lib", "large.txt"]))
        self.assertIn("more do not fit", client.wait_and_say(2))
        self.assertEqual(self.store("coordinator"), {})


if __name__ == "__main__":
    unittest.main()
