"""What scripts/generate.py makes: the reference page is what the program's tables say, and man pages and completions work."""

import os
import re
import shutil
import subprocess
import sys
import unittest
import xml.etree.ElementTree

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LAUNCHER, ROOT, LaunchTest, read_file

sys.path.insert(0, os.path.join(ROOT, "scripts"))
sys.dont_write_bytecode = True
import generate
import messages


# Words that messages do without, since readers stumble over them.
UNUSUAL = ("anew", "amid", "whither", "for ever", "is gone on", "begun")


class ReferenceTest(LaunchTest):
    def test_page(self):
        page = read_file(os.path.join(ROOT, "configs", "reference.md")).decode()
        self.assertEqual(page, generate.reference(LAUNCHER), "made again by: scripts/generate.py reference build/release/bin/sgd-launch > configs/reference.md")

    def test_messages_can_be_read_as_one_text(self):
        by_file = dict(messages.messages())
        self.assertIn("missing key {} in {}", by_file["common/json/schema_check.cpp"])
        texts = [(path, text) for path, found in by_file.items() for text in found]
        self.assertGreater(len(texts), 1000)
        for path, text in texts:
            for word in UNUSUAL:
                self.assertNotRegex(text, rf"\b{word}\b", path)

    def test_events_are_those_that_the_sources_write(self):
        self.assertEqual(set(generate.EVENTS), generate.written_events())
        self.assertGreater(len(generate.EVENTS), 20)

    def test_every_key_of_the_schema_has_a_row(self):
        keys = generate.Keys()
        paths = {path for path, *_ in keys.rows}
        for path in ("num_workers", "training.epochs", "recovery.backoff.first", "process.preload", "checkpoint.keep.best.metric"):
            self.assertIn(path, paths)
        for path, kind in (("training.model", "cnn"), ("training.optimizer", "adamw"), ("training.dataset", "image_masks"), ("callbacks[]", "exec")):
            self.assertIn((path, kind), {(where, name) for where, name, *_ in keys.tables})
        rows = keys.rows + [row for *_, table in keys.tables for row in table]
        self.assertEqual([row for row in rows if not row[1] or not row[3]], [], "keys without a type or a meaning")

    def test_every_verb_has_a_summary_an_example_and_options(self):
        verbs = generate.all_verbs(LAUNCHER)
        self.assertIn("token create", [name for name, *_ in verbs])
        for name, summary, helped in verbs:
            with self.subTest(verb=name):
                self.assertTrue(summary and helped.example and helped.usage)
                self.assertTrue(helped.options or name.startswith("config"))
                for names, _, text in helped.options:
                    self.assertTrue(all(one.startswith("-") and " " not in one for one in names) and text, (names, text))

    def test_help_fits_eighty_columns_and_begins_with_what_a_verb_does(self):
        clean = {key: value for key, value in os.environ.items() if key != "COLUMNS"}
        for verb, summary, _ in generate.all_verbs(LAUNCHER):
            said = subprocess.run([LAUNCHER, "help", *verb.split()], capture_output=True, text=True, check=True, timeout=60, env=clean).stdout.splitlines()
            with self.subTest(verb=verb):
                self.assertLessEqual(max(map(len, said)), 80)
                if verb != "run":  # Its help is the program's.
                    self.assertEqual(said[0], summary[0].upper() + summary[1:] + ".")
        listed = subprocess.run([LAUNCHER, "help", "verbs"], capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
        self.assertEqual([line.split()[0] for line in listed], sorted(line.split()[0] for line in listed))
        self.assertTrue({"help", "version"} <= {line.split()[0] for line in listed})

    def test_exit_codes(self):
        codes = dict(generate.exit_codes())
        self.assertEqual(sorted(codes), [0, 1, 2, 3, 4, 5, 6, 7, 124, 129, 130, 143])
        self.assertTrue(all(codes.values()))

    def test_man_pages(self):
        generate.share(LAUNCHER, self.folder)
        pages = sorted(name for _, _, names in os.walk(self.path("man")) for name in names)
        self.assertIn("sgd-launch-token-create.1", pages)
        self.assertIn("sgd-launch-job.5", pages)
        if not shutil.which("man"):
            self.skipTest("no man here")
        for name in pages:
            shown = subprocess.run(["man", "--warnings", "-l", self.path("man", f"man{name[-1]}", name)], capture_output=True, text=True, timeout=60, check=False,
                                   env={**os.environ, "MANPAGER": "cat", "MANWIDTH": "100", "LC_ALL": "C.UTF-8"})
            self.assertEqual((shown.returncode, shown.stderr), (0, ""), name)
            self.assertRegex(shown.stdout, r"(?s)NAME\n.*sgd-launch.* - \w")

    def test_bash_completion(self):
        generate.share(LAUNCHER, self.folder)
        file = self.path("bash-completion", "completions", "sgd-launch")

        def complete(*words):
            script = f'. {file}; COMP_WORDS=(sgd-launch "$@"); COMP_CWORD=$#; _sgd_launch; printf "%s\\n" "${{COMPREPLY[@]}}"'
            done = subprocess.run(["bash", "-c", script, "bash", *words], capture_output=True, text=True, check=True, timeout=20, cwd=self.folder)
            self.assertEqual(done.stderr, "")
            return done.stdout.split()
        self.assertEqual(complete("res"), ["resume"])
        self.assertEqual(complete("resume", "--max-f"), ["--max-failures"])
        self.assertEqual(complete("token", "cre"), ["create"])
        self.assertEqual(complete("help", "stat"), ["status"])
        for verb, _, helped in generate.all_verbs(LAUNCHER):
            for word in generate.SECOND_WORDS.get(verb, []):
                self.assertRegex(" ".join(helped.usage), rf"\b{word}\b")
                self.assertEqual(complete(verb, word), [word])
        self.assertIn("--num-workers", complete("--num"))
        self.assertIn("--json", complete("--address", "h:1", "status", "--"))
        self.assertEqual(complete("ru"), ["run", "runs"])
        # Runs by their folders, and no files behind help.
        for name in ("clothes-20261124-112233-77aa", "other-1"):
            os.makedirs(self.path("runs", name))
        os.symlink(name, self.path("runs", "latest"))
        self.write("status.txt", "")
        for verb in [(verb,) for verb in generate.RUN_VERBS if verb != "runs"] + [("runs", "remove"), ("runs", "pin")]:
            self.assertEqual(complete(*verb, "clo"), ["clothes-20261124-112233-77aa"], verb)
            self.assertEqual(complete(*verb, "lat"), ["latest"], verb)
        self.assertEqual(complete("runs", "lat") + complete("submit", "lat"), [])
        self.assertEqual(complete("help", "stat"), ["status"])

    def test_other_shells_take_their_completions(self):
        generate.share(LAUNCHER, self.folder)
        for shell, path in (("zsh", "zsh/vendor-completions/_sgd-launch"), ("fish", "fish/vendor_completions.d/sgd-launch.fish")):
            text = read_file(self.path(path)).decode()
            self.assertTrue(re.search("max-failures", text), path)
            if shutil.which(shell):
                subprocess.run([shell, "-n", self.path(path)], check=True, timeout=20)

    def test_picture(self):
        """The README's is what the script makes of a run; here it is made of another one."""
        known = read_file(os.path.join(ROOT, "launcher", "run.svg")).decode()
        made = subprocess.run([os.path.join(ROOT, "scripts", "picture.py"), LAUNCHER, "--set", "training.epochs=4"], capture_output=True, text=True,
                              timeout=300, check=False)
        self.assertEqual(made.returncode, 0, made.stderr)
        for picture in (known, made.stdout):
            text = "\n".join("".join(line.itertext()) for line in xml.etree.ElementTree.fromstring(picture).iter("{http://www.w3.org/2000/svg}text"))
            for words in ("$ sgd-launch -n 2 job.json", "epoch 1/", "failure: signal 9 (SIGKILL), rank 1", "recovered from", "finished in", "model.safetensors"):
                self.assertIn(words, text)
            self.assertNotIn("\x1b", text)
            self.assertLessEqual(max(map(len, text.split("\n"))), 100)


if __name__ == "__main__":
    unittest.main()
