"""Every file of a run that is missing, torn, emptied, or of another shape: each verb says what is wrong in plain words,
in its exit codes, and no library's exception text reaches a person."""

import json
import os
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import linear_job
from harness import LAUNCHER, LaunchTest, library_text, read_file

# What reads a run's folder; the last words stand for the run.
READING = (["status"], ["status", "--json"], ["logs"], ["logs", "-f"], ["events"], ["plot"], ["checkpoints"], ["checkpoints", "--quick", "--json"],
           ["nodes"], ["stop"], ["ps", "--address", "127.0.0.1:1"], ["resume"])
ALLOWED = {0, 2, 3, 4}


def other_type(value):
    if isinstance(value, str):
        return 7
    return [value] if isinstance(value, (dict, bool, int, float)) else "text"


def each_value(change):
    def damage(content):
        lines = []
        for line in content.decode().splitlines() if content.count(b'{"') > 1 and content.startswith(b'{"') else [content.decode()]:
            value = json.loads(line)
            lines.append(json.dumps({key: change(one) for key, one in value.items()}))
        return ("\n".join(lines) + "\n").encode()

    return damage


DAMAGES = {
    "missing": None,
    "a folder": os.mkdir,  # As a read that fails: the disk is bad, or its server has lost the file.
    "empty": lambda content: b"",
    "torn": lambda content: content[: len(content) // 2],
    "null": lambda content: b"null\n",
    "a list": lambda content: b"[]\n",
    "a text": lambda content: b'"text"\n',
    "binary": lambda content: bytes(range(256)),
    "an empty object": lambda content: b"{}\n",
    "brackets alone": lambda content: b'{"x":' + b"[" * 200_000 + b"]" * 200_000 + b"}\n",
    "null fields": each_value(lambda value: None),
    "fields of another type": each_value(other_type),
    "huge numbers": each_value(lambda value: 1e300 if isinstance(value, (int, float)) else value),
}


def put(path, change, content):
    """What `change` makes of `content` is at `path`, and nothing else."""
    if os.path.isdir(path):
        os.rmdir(path)
    elif os.path.exists(path):
        os.remove(path)
    if change is os.mkdir:
        os.mkdir(path)
    elif change is not None:
        with open(path, "wb") as file:
            file.write(change(content))


class DamagedFilesTest(LaunchTest):
    def ask(self, *arguments, cwd=None):
        environment = {key: value for key, value in os.environ.items() if key != "SGD_ADDRESS"}
        ended = subprocess.run([LAUNCHER, *arguments], capture_output=True, timeout=60, cwd=cwd or self.folder,
                               env={**environment, "XDG_CONFIG_HOME": self.path("config")}, stdin=subprocess.DEVNULL)
        text = (ended.stdout + ended.stderr).decode(errors="replace")
        self.assertIsNone(library_text(text), f"{arguments}: {text}")
        self.assertIn(ended.returncode, ALLOWED, f"{arguments}: {text}")
        return text

    def damaged(self, name):
        """The run's folder once for each way in which its file `name` is damaged."""
        content = read_file(self.path("run", name))
        for damage, change in DAMAGES.items():
            shutil.rmtree(self.path("copy"), ignore_errors=True)
            shutil.copytree(self.path("run"), self.path("copy"), symlinks=True)
            path = self.path("copy", name)
            put(path, change, content)
            yield damage

    def test_each_file_of_a_run_damaged_in_each_way(self):
        self.run_to_end(self.write("job.json", json.dumps(linear_job(epochs=1))))
        [checkpoint] = os.listdir(self.path("run", "checkpoints"))
        saved = [os.path.join("checkpoints", checkpoint, name) for name in ("manifest.json", "state.json")]
        for name in ("summary.json", "job.json", "events.jsonl", "metrics.jsonl", *saved):
            for damage in self.damaged(name):
                for verb in READING:
                    with self.subTest(file=name, damage=damage, verb=verb):
                        self.ask(*verb, *([self.path("copy")] if verb[0] != "ps" else []))

    def test_the_users_configuration_damaged_in_each_way(self):
        os.makedirs(self.path("config", "sgd-launch"))
        for damage, change in DAMAGES.items():
            if change is None:
                continue
            put(self.path("config", "sgd-launch", "config.json"), change, b'{"address": "127.0.0.1:1"}')
            with self.subTest(damage=damage):
                self.ask("ps", "--address", "127.0.0.1:1")
                self.ask("config", "show")

    def test_words_that_are_no_text(self):
        for words in (["nodes", "set-slots", "1", "--node", b"\xff"], ["status", b"\xff\xfe"], ["--set", b"name=\xff", "--", "true"],
                      ["config", "show", "--", b"\xff"], ["--address", b"\xff:1", "ps"],
                      ["--log-dir", b"\xff", "--", "true"], ["plan", "--rdzv-id", b"\xff", "--", "true"], ["--tee", b"\xff", "--", "true"]):
            with self.subTest(words=words):
                self.ask(*words)

    def test_a_folder_that_is_gone(self):
        """The working directory was removed under it."""
        gone = self.path("gone")
        for verb in READING:
            os.mkdir(gone)
            code = f"import os, sys; os.rmdir({gone!r}); os.execv(sys.argv[1], sys.argv[1:])"
            ended = subprocess.run(["/usr/bin/python3", "-S", "-c", code, LAUNCHER, *verb], cwd=gone, capture_output=True, text=True,
                                   timeout=60)
            with self.subTest(verb=verb):
                self.assertIsNone(library_text(ended.stdout + ended.stderr), ended.stderr)

    def test_a_launcher_that_was_killed_leaves_a_run_that_every_verb_knows(self):
        launch = self.start(self.write("job.json", json.dumps(linear_job(epochs=1000))))
        launch.wait_for_event("checkpoint_saved")
        launch.process.send_signal(signal.SIGKILL)
        launch.process.wait(10)
        launch.wait_until_gone()
        text = self.ask("status", self.path("run"))
        self.assertIn("state      lost\n", text)
        self.assertRegex(text, r"progress   [1-9][\d,]* epochs?, [1-9][\d,]* steps in ")
        self.assertRegex(text, r"metrics    epoch \d+/1000  train_loss")
        self.assertRegex(text, r"next       sgd-launch resume \S+\n$")
        for verb in READING[:10]:
            self.ask(*verb, self.path("run"))

    def test_a_run_that_went_on_and_was_killed_has_no_end(self):
        """The summary is of the life before."""
        self.run_to_end(self.write("job.json", json.dumps(linear_job(epochs=1))))
        launch = self.start("resume", "--set", "training.epochs=1000", self.path("run"), run_dir=None)
        launch.run_dir = self.path("run")
        launch.wait_for_event("first_step", count=2)
        launch.process.send_signal(signal.SIGKILL)
        launch.process.wait(10)
        launch.wait_until_gone()
        self.assertIn("state      lost\n", self.ask("status", self.path("run")))


if __name__ == "__main__":
    unittest.main()
