"""README.md and launcher/guide.md, word by word, as root and as an ordinary account: every command of their code blocks is carried out in its order.

What cannot be as it stands there is exchanged: the port and the host of the cluster (`ssh n1` stays on this machine), `my-run`, and the data, which
is small. A line of the pages that has no step here, or a step without its line, fails the test.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import small_fashion
from harness import BIN_DIR, LIMIT_S, ROOT, free_port, read_file, read_lines, wait_for
from pages import lines

PERSON = 54323  # No account of the system, as many a container's.
TRAIN_PY = """import os, sys
print("loading shard", os.environ["RANK"], *sys.argv[1:])
if "--lr" not in sys.argv and os.environ["RANK"] == "1": sys.exit("train.py: shard 1 has no labels")
"""
SMALL = ["--set", "training.epochs=2", "--set", "training.batch_size=32"]
# Whoever reads on wants to be told; and small models.
MLP = ["--set", 'training.model={"type":"mlp"}']

PAGES = ("README.md", "launcher/guide.md")
# Each command of their blocks, by how it begins, and the step that carries it out.
TOUR = (
    ("sgd-launch job.json", "trains"),
    ("sgd-launch -n 4 job.json --set", "trains"),
    ("sgd-launch -n 4 -- python3 train.py", "succeeds"),
    ("sgd-launch --nproc-per-node 4 train.py", "succeeds"),
    ("sgd-launch --nnodes 2 --node-rank 0 ", "meets_another"),
    ("srun --ntasks-per-node=1 sgd-launch", "succeeds_without_slurm"),
    # The guide.
    ("sgd-launch job.json --max-failures unlimited", "goes_on"),
    ("sgd-launch nodes set-slots 1", "shrinks"),
    ("sgd-launch resume", "is_gone_on_with"),
    ("sgd-launch resume my-run --set", "is_trained_further"),
    ("sgd-launch --nnodes 2 --node-rank 0 ", "meets_another"),
    ("srun --ntasks-per-node=1 sgd-launch", "succeeds_without_slurm"),
    ("sgd-launch init", "succeeds"),
    ("sgd-launch coordinator --listen", "coordinates"),
    ("sgd-launch token create --name n1 | ssh n1 sgd-launch join", "succeeds"),
    ("ssh n1 sgd-launch agent --join", "offers_its_cores"),
    ("sgd-launch --address head:7070 -n 4 job.json", "trains"),
    ("export SGD_ADDRESS=head:7070", "is_meant_from_here"),
    ("sgd-launch submit --detach job.json", "is_submitted"),
    ("sgd-launch checkpoints get my-run .", "fetches"),
    ("sgd-launch run --run-dir copy job.json", "is_copied"),
    ("sgd-launch resume my-run --set", "is_trained_further"),
    ("sgd-launch config show --origin job.json", "succeeds"),
    ("sgd-launch plan job.json", "succeeds"),
    ("sgd-launch nodes [", "has_alternatives"),
    ("sgd-launch runs [", "has_alternatives"),
)


class Tour:
    """One account's way through the pages, in a folder of its own."""

    uid = None  # This process's.

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-readme-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.port = free_port()
        self.started, self.runs, self.address = [], [], None
        self.addCleanup(self.end)
        # The programs lie where every account may start them; what they are linked with lies where it was built.
        os.mkdir(self.path("home"))
        for name in ("bin/sgd-launch", "bin/sgd-worker", "lib/sgd-gloo.so"):
            os.makedirs(os.path.dirname(self.path("built", name)), exist_ok=True)
            source = os.path.join(os.path.dirname(BIN_DIR), name)
            if os.path.exists(source):
                shutil.copy(source, self.path("built", name))
        data = small_fashion(self.path("data"), 256, 64)
        job = "\n".join(line for line in lines("README.md", "json"))
        self.small = [*SMALL, "--set", f"training.dataset.path={data}"]
        os.mkdir(self.path("home", "configs"))
        trials = read_file(os.path.join(ROOT, "configs", "tune_linear.json")).decode()
        for name, text in (("job.json", job), ("train.py", TRAIN_PY), ("configs/tune_linear.json", trials), ("../sgd-launch", self.wrapper())):
            with open(self.path("home", name), "w", encoding="utf-8") as file:
                file.write(text)
        for folder, _, names in os.walk(self.folder):
            for path in [folder, *(os.path.join(folder, name) for name in names)]:
                os.chmod(path, 0o755)
        if self.uid is not None:
            os.chown(self.path("home"), self.uid, self.uid)

    def wrapper(self):
        """Daemons of root and of others have their folders here."""
        return f"""#!/bin/sh
case "$1" in init | coordinator | token) STATE_DIRECTORY={self.path("home/coordinator")} ;; agent | join) STATE_DIRECTORY={self.path("home/agent")} ;; esac
export STATE_DIRECTORY
exec {self.path("built/bin/sgd-launch")} "$@"
"""

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def environment(self):
        known = {"PATH": self.folder + ":" + os.environ["PATH"], "HOME": self.path("home"), "USER": "eva", "TMPDIR": "/tmp"}
        known |= {name: os.environ[name] for name in ("LD_LIBRARY_PATH",) if name in os.environ}  # Of a LibTorch of one's own.
        return known | ({"SGD_ADDRESS": self.address} if self.address else {})

    def begin(self, line, *more):
        """The line as a shell takes it, with more words; its output goes to files."""
        line = line.replace("head:7070", f"127.0.0.1:{self.port}").replace(":7070", f":{self.port}").replace("my-run", self.runs[0] if self.runs else "my-run")
        line = line.replace("/var/lib/sgd-launch/agent", self.path("home/agent"))
        number = len(self.started)
        script = 'ssh() { shift; "$@"; }\n' + line + ' "$@"'
        with open(self.path(f"{number}.out"), "wb") as out, open(self.path(f"{number}.err"), "wb") as err:
            process = subprocess.Popen(["bash", "-o", "pipefail", "-c", script, "bash", *more], cwd=self.path("home"), env=self.environment(),
                                       stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True,
                                       **({"user": self.uid, "group": self.uid, "extra_groups": []} if self.uid is not None else {}))
        self.started.append(process)
        return process, number

    def said(self, number):
        return read_file(self.path(f"{number}.out")).decode(), read_file(self.path(f"{number}.err")).decode()

    def carry_out(self, line, *more, code=0):
        process, number = self.begin(line, *more)
        self.assertEqual(process.wait(LIMIT_S), code, (line, more, *self.said(number)))
        return self.said(number)

    def status(self):
        return json.loads(self.carry_out("sgd-launch status --json")[0])

    def end(self):
        """Those whom the README starts and leaves: asked, so that nothing of theirs stays."""
        for process in reversed(self.started):
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
                try:
                    process.wait(20)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()

    def test_tour(self):
        commands = [line for page in PAGES for line in lines(page, "sh")]
        self.assertEqual([line[: len(begin)] for line, (begin, _) in zip(commands, TOUR)], [begin for begin, _ in TOUR])
        self.assertEqual(len(commands), len(TOUR), commands)
        self.probe()
        for line, (_, step) in zip(commands, TOUR):
            print(f"  {line}", file=sys.stderr)
            getattr(self, step)(line)

    def probe(self):
        """A LibTorch that lies where the account cannot get to is said before anything starts, and is nobody's tour."""
        process, number = self.begin("sgd-launch plan --address local", "job.json", *self.small, *MLP)
        code = process.wait(LIMIT_S)
        if code != 0 and "this account cannot open" in self.said(number)[1]:
            self.assertEqual(code, 2)
            self.skipTest(self.said(number)[1])

    # ---- steps ----

    def succeeds(self, line):
        self.carry_out(line)

    def meets_another(self, line):
        with open(self.path("home", "key"), "w", encoding="utf-8") as key:
            key.write("known to both of them\n")
        os.chmod(self.path("home", "key"), 0o644)
        line = line.replace("node1 ", f"127.0.0.1 --master-port {free_port()} ", 1)
        other, number = self.begin(line.replace("--node-rank 0", "--node-rank 1"))
        self.assertIn("8 workers", self.carry_out(line)[1])
        self.assertEqual(other.wait(LIMIT_S), 0, self.said(number))

    def succeeds_without_slurm(self, line):
        self.carry_out(line.removeprefix("srun --ntasks-per-node=1 "))  # With it: slurm_test.py.

    def trains(self, line):
        said = "".join(self.carry_out(line, *self.small, *([] if "training.model" in line else MLP)))
        self.assertRegex(said, r"epoch 2/2  train_loss \S+  lr [\d.]+  \S+ samples/s")
        self.runs.insert(0, re.search(r"run (\S+): ", said).group(1))

    def goes_on(self, line):
        self.endless = self.begin(line, *self.small, *MLP, "--set", "training.epochs=1000000")[0]
        wait_for(lambda: self.carry_out("sgd-launch ps --address local --json")[0].count('"running"') and self.status()["state"] == "running", LIMIT_S, "the run")

    def shrinks(self, line):
        wait_for(lambda: (self.status().get("epoch") or 0) > 1, LIMIT_S, "training")
        self.carry_out(line)
        wait_for(lambda: len(self.status()["ranks"]) == 1, LIMIT_S, "one rank")
        for inline in ("sgd-launch logs", "sgd-launch nodes", "sgd-launch stop"):
            self.carry_out(inline)
        self.assertEqual(self.endless.wait(LIMIT_S), 6)  # What still ends cannot be gone on with.
        self.assertEqual(self.status()["state"], "cancelled")

    def is_gone_on_with(self, line):
        lines = read_lines(self.path("home", "runs", "latest", "metrics.jsonl"))
        self.assertIn("finished in", self.carry_out(line, "--set", f"training.epochs={int(lines[-1]['epoch']) + 2}")[1])

    def is_trained_further(self, line):
        self.assertIn("epoch 8/8", self.carry_out(line)[0])

    def coordinates(self, line):
        """The README's port may be another test's for a while: who finds it taken tries again."""
        tries = [self.begin(line)]

        def listens():
            process, number = tries[-1]
            if process.poll() is not None:
                self.assertIn("in use", "".join(self.said(number)))
                tries.append(self.begin(line))
            return "listening on" in "".join(self.said(number))
        wait_for(listens, LIMIT_S, "the coordinator")

    def offers_its_cores(self, line):
        """With the option that the README's comment names: jobs of root's agent have an account that is not root."""
        whose = ["--run-as", "nobody"] if os.geteuid() == 0 and self.uid is None else ["--jobs-share-account"]
        _, number = self.begin(line, "--slots", "4", *whose)
        self.address = f"127.0.0.1:{self.port}"
        wait_for(lambda: '"connected"' in self.carry_out("sgd-launch nodes --json")[0], LIMIT_S, f"the agent: {self.said(number)}")
        self.address = None

    def is_meant_from_here(self, line):
        self.address = line.split("=")[1].replace("head:7070", f"127.0.0.1:{self.port}")

    def is_submitted(self, line):
        run = self.carry_out(line, *self.small, *MLP)[0].strip()
        wait_for(lambda: json.loads(self.carry_out(f"sgd-launch status {run} --json")[0])["state"] == "succeeded", LIMIT_S, run)
        self.submitted = run

    def fetches(self, line):
        self.carry_out(line)
        self.assertTrue([name for _, _, names in os.walk(self.path("home")) for name in names if name == "model.safetensors"])

    def is_copied(self, line):
        self.trains(line)
        self.assertTrue(os.path.exists(self.path("home", "copy", "summary.json")))
        self.assertEqual(len(os.listdir(self.path("home", "copy", "checkpoints"))), 1)

    def has_alternatives(self, line):
        verb, choices = re.fullmatch(r"(sgd-launch \S+) \[(.*)\]", line).groups()
        self.carry_out(verb)
        for choice in choices.split(" | "):
            if choice == "remove n1":  # What is connected is drained first.
                self.carry_out("sgd-launch nodes drain n1")
            said = self.carry_out(verb + " " + choice.replace("RUN", self.submitted if choice.startswith("remove") else self.runs[0]))
            if choice == "remove n1":
                self.assertIn("n1: removed; its agent runs and will join again", said[1])


class OwnTourTest(Tour, unittest.TestCase):
    """As whoever runs the tests."""


@unittest.skipIf(os.geteuid() != 0, "of other accounts, which root alone can be")
class OtherAccountsTourTest(Tour, unittest.TestCase):
    """As somebody else, with what this account has built."""

    uid = PERSON


class WordsTest(unittest.TestCase):
    def test_verbs_and_options_that_the_text_names(self):
        """What stands in the text between the blocks: each verb has a help, and it names the option."""
        text = ""
        for page in (*PAGES, "launcher/troubleshooting.md", "launcher/comparison.md", "launcher/first_cluster.md", "worker/first_training.md", "worker/python/first_script.md"):
            with open(os.path.join(ROOT, page), encoding="utf-8") as file:
                text += re.sub(r"^```.*?^```", "", file.read(), flags=re.S | re.M)
        asked = 0
        for words in re.findall(r"`sgd-launch ([a-z][^`]*)`", text):
            verb, *rest = words.split()
            front = [verb, rest[0]] if verb == "token" else [verb]
            done = subprocess.run([os.path.join(BIN_DIR, "sgd-launch"), *front, "--help"], capture_output=True, text=True, timeout=LIMIT_S, check=False)
            self.assertEqual(done.returncode, 0, words)
            for option in (word for word in rest if word.startswith("--")):
                self.assertIn(option, done.stdout, words)
            asked += 1
        self.assertGreater(asked, 20)

    def test_symptoms_are_what_the_programs_say(self):
        """What stands in backticks in the first column of troubleshooting.md, but for names, numbers and what is left out."""
        sources = ""
        for part in ("launcher", "common", "worker"):
            for folder, _, names in os.walk(os.path.join(ROOT, part)):
                sources += "".join(read_file(os.path.join(folder, name)).decode() for name in names if name.endswith((".cpp", ".hpp")))
        sources = re.sub(r'"\s*\n\s*"', "", sources)
        found = 0
        for symptom in re.findall(r"(?m)^\| (`[^|]*`[^|]*) \|", read_file(os.path.join(ROOT, "launcher", "troubleshooting.md")).decode()):
            for words in re.findall(r"`([^`]*)`", symptom):
                for part in re.split(r"…|\d+|N\b|[:()]|\bjob.json\b", words):
                    if len(part.strip(" ;,")) > 6:
                        self.assertIn(part.strip(" ;,"), sources, words)
                        found += 1
        self.assertGreater(found, 15)

    def test_readme_is_short(self):
        with open(os.path.join(ROOT, "README.md"), encoding="utf-8") as file:
            text = file.read().splitlines()
        self.assertLessEqual(len(text), 120)
        self.assertEqual([line for line in text if len(line) > 100], [])

    def test_links_lead_somewhere(self):
        """To files of this tree, and to headings of pages."""
        listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=False)
        pages = listed.stdout.split() or [os.path.relpath(os.path.join(folder, name), ROOT) for part in ("launcher", "worker", "configs", "scripts", "test", "common")
                                          for folder, _, names in os.walk(os.path.join(ROOT, part)) for name in names if name.endswith(".md")]
        for page in pages:
            for link in re.findall(r"\]\(([^)\s]+)\)", read_file(os.path.join(ROOT, page)).decode()):
                if link.startswith(("http:", "https:")):
                    continue
                path, _, heading = link.partition("#")
                target = os.path.normpath(os.path.join(ROOT, os.path.dirname(page), path)) if path else os.path.join(ROOT, page)
                self.assertTrue(os.path.exists(target), (page, link))
                if heading:
                    titles = re.findall(r"(?m)^#+ (.*)$", read_file(target).decode())
                    self.assertIn(heading, [re.sub(r"[^\w -]", "", title).lower().replace(" ", "-") for title in titles], (page, link))


if __name__ == "__main__":
    unittest.main()
