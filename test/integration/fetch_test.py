"""A cluster's client gets what its run has made: checkpoints, logs and metrics into a folder here, also in several goes."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import HUB, Cluster
from data import linear_job, write_job
from harness import LAUNCHER, LIMIT_S, LaunchTest, read_file


def files_below(folder):
    return {os.path.relpath(os.path.join(where, name), folder): read_file(os.path.join(where, name))
            for where, _, names in os.walk(folder) for name in names}


class FetchTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-fetch-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.cluster = Cluster({"n1": 2})
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__)
        self.run_id = self.train(1e-6)
        self.run_dir = self.cluster.run_dir(self.run_id)
        self.names = sorted(os.listdir(os.path.join(self.run_dir, "checkpoints")))

    def train(self, lr):
        """The id of a run with many parts: more than fits into the window of what is under way."""
        model = {"type": "mlp", "inputs": 1, "hidden": [1500, 2000], "outputs": 1}
        client = self.cluster.run(write_job(self.path("job.json"), linear_job(epochs=2, model=model, optimizer={"type": "sgd", "lr": lr})))
        client.wait_and_say(0)
        return client.run_id()

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def get(self, *arguments, expect=0):
        client = self.cluster.run(*arguments)
        self.assertEqual(client.wait(), expect, client.said())
        return "".join(client.said())

    def test_files_of_a_run(self):
        there = files_below(os.path.join(self.run_dir, "checkpoints", self.names[-1]))
        self.assertGreater(sum(map(len, there.values())), 8 << 20)
        self.assertIn(self.path("out", self.names[-1]), self.get("checkpoints", "get", self.path("out")))
        self.assertEqual(files_below(self.path("out", self.names[-1])), there)
        # Again: it is here.
        self.get("checkpoints", "get", self.path("out"))
        # What an interruption left is gone on with: it is not fetched again.
        whole, part = self.path("out", self.names[-1]), self.path("out", self.names[-1] + ".part")
        os.rename(whole, part)
        with open(os.path.join(part, "model.safetensors"), "r+b") as file:
            file.truncate(1 << 20)
        os.remove(os.path.join(part, "manifest.json"))
        self.get("checkpoints", "get", self.path("out"))
        self.assertEqual(files_below(whole), there)
        # What is damaged here is found by its checksum, and comes anew.
        os.rename(whole, part)
        with open(os.path.join(part, "model.safetensors"), "r+b") as file:
            file.seek(4 << 20)
            file.write(b"damage")
        self.assertIn("CRC-32C", self.get("checkpoints", "get", self.path("out"), expect=1))
        self.get("checkpoints", "get", self.path("out"))
        self.assertEqual(files_below(whole), there)
        # An older one, and none.
        step = int(self.names[0].split("-")[1])
        self.get("checkpoints", "get", "--step", step, self.path("older"))
        self.assertEqual(os.listdir(self.path("older")), [self.names[0]])
        missing = self.get("checkpoints", "get", "--step", "77", self.path("x"), expect=4)
        self.assertRegex(missing, r"run \S+ has no whole checkpoint of step 77; there (is|are) \d+")
        self.assertIn(str(step), missing)
        # Lines and logs.
        self.get("metrics", "--to", self.path("lines"))
        self.get("logs", "--to", self.path("lines"))
        self.assertEqual(read_file(self.path("lines", "metrics.jsonl")), read_file(os.path.join(self.run_dir, "metrics.jsonl")))
        logs = files_below(os.path.join(self.run_dir, "logs"))
        self.assertEqual(files_below(self.path("lines", "logs")), {name: content for name, content in logs.items() if content})
        # More of them than a process may have open.
        for generation in range(2, 101):
            os.makedirs(os.path.join(self.run_dir, "logs", f"gen-{generation:04}"), exist_ok=True)
            with open(os.path.join(self.run_dir, "logs", f"gen-{generation:04}", "rank-0000.log"), "w", encoding="ascii") as file:
                file.write("line\n")
        few = subprocess.run([*self.cluster.on(HUB), "sh", "-c", 'ulimit -n 64; exec "$@"', "sh", LAUNCHER, "logs", "--to", self.path("many")],
                             env=self.cluster.environment(address=True), capture_output=True, timeout=LIMIT_S, check=False)
        self.assertEqual(few.returncode, 0, few.stderr)
        self.assertEqual(len([name for name in files_below(self.path("many")) if "/gen-" in name and "/gen-0001/" not in name]), 99)

    def test_another_run_is_not_mixed_with_it(self):
        """Whose checkpoints have the same names, and whose files may be longer than those that are here."""
        self.get("checkpoints", "get", self.path("out"))
        for verb in ("metrics", "logs"):
            self.get(verb, "--to", self.path("lines"))
        checkpoint, lines = files_below(self.path("out")), files_below(self.path("lines"))
        other = self.train(2e-6)
        self.assertEqual(sorted(os.listdir(os.path.join(self.cluster.run_dir(other), "checkpoints"))), self.names)
        said = self.get("checkpoints", "get", self.path("out"), expect=1)
        self.assertIn(f"{self.path('out', self.names[-1])} is there already, of another run: name another folder, or remove it", said)
        self.assertEqual(files_below(self.path("out")), checkpoint)
        for verb in ("metrics", "logs"):
            said = self.get(verb, "--to", self.path("lines"), expect=1)
            self.assertIn(f"{self.path('lines')} has files of run {self.run_id}, and these are of run {other}: name another folder, or remove it", said)
        self.assertEqual(files_below(self.path("lines")), lines)
        # The first one is what it was.
        for words in (["checkpoints", "get", self.run_id, self.path("out")], ["metrics", "--to", self.path("lines"), self.run_id]):
            self.get(*words)
        # Damage is said before anything is fetched.
        with open(self.path("out", self.names[-1], "model.safetensors"), "r+b") as file:
            file.write(b"damage")
        self.assertIn("is there already, and not whole", self.get("checkpoints", "get", self.run_id, self.path("out"), expect=1))


class FetchHereTest(LaunchTest):
    def test_files_of_a_run_on_this_machine(self):
        self.run_to_end(write_job(self.path("job.json"), linear_job(epochs=1)))
        self.run_to_end("checkpoints", "get", self.path("run"), self.path("out"), run_dir=None)
        [name] = os.listdir(self.path("out"))
        self.assertEqual(files_below(self.path("out", name)), files_below(self.path("run", "checkpoints", name)))
        self.run_to_end("metrics", "--to", self.path("out"), self.path("run"), run_dir=None)
        self.assertEqual(read_file(self.path("out", "metrics.jsonl")), read_file(self.path("run", "metrics.jsonl")))
        shutil.rmtree(self.path("run", "checkpoints"))
        self.run_to_end("checkpoints", "get", self.path("run"), self.path("none"), run_dir=None, expect=4)


if __name__ == "__main__":
    unittest.main()
