"""The tutorials word by word: worker/first_training.md, worker/python/first_script.md, launcher/first_cluster.md, launcher/tune/first_search.md.

worker/own_model.md has own_model_page_test.py, and configs/slurm/README.md slurm_test.py."""

import os
import pwd
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import BIN_DIR, CACHE, LIMIT_S, TESTS_PYTHON, wait_for
from page_walk import PageWalk
from pages import blocks, missing_line
from readme_test import PERSON, Tour

PEERS_PYTHON = os.environ.get("SGD_PEERS_PYTHON") or os.path.join(CACHE, "peers", "bin", "python3")


class FirstTrainingTest(PageWalk):
    folder_name = "first"
    search = (os.path.dirname(TESTS_PYTHON),)  # With numpy and safetensors.

    def test_page(self):
        kinds = self.walk("worker/first_training.md")
        self.assertEqual([kinds.count(kind) for kind in ("json", "python")], [1, 1])
        self.assertGreater(kinds.count(""), 4)


@unittest.skipIf(not os.path.exists(PEERS_PYTHON) or subprocess.run([PEERS_PYTHON, "-c", "import torch"], check=False, capture_output=True).returncode != 0,
                 "no Python with PyTorch: scripts/setup --peers installs one")
class FirstScriptTest(PageWalk):
    search = (BIN_DIR, os.path.dirname(PEERS_PYTHON))

    def setUp(self):
        super().setUp()
        self.lasting = [f"cd {self.home}"]
        self.addCleanup(subprocess.run, [os.path.join(BIN_DIR, "sgd-launch"), "warm", "--stop"], env=self.environment(), check=False, capture_output=True)

    def test_page(self):
        kinds = self.walk("worker/python/first_script.md")
        self.assertEqual(kinds.count("python"), 1)
        self.assertEqual(kinds.count(""), 2)


class FirstSearchTest(PageWalk):
    search = (BIN_DIR,)

    def setUp(self):
        super().setUp()
        self.lasting = [f"cd {self.home}"]

    def test_page(self):
        kinds = self.walk("launcher/tune/first_search.md")
        self.assertEqual([kinds.count(kind) for kind in ("json", "sh", "")], [1, 6, 6])


class FirstClusterTest(Tour, unittest.TestCase):
    """Both machines are this one; root follows the page as an ordinary account."""

    uid = PERSON if os.geteuid() == 0 else None

    def test_tour(self):
        said, waiting = "", 0
        for block in blocks("launcher/first_cluster.md"):
            if block.kind == "sh" and "terminal" in block.introduction:
                number = self.begin(block.commands()[0])[1]
                waiting += 1
                wait_for(lambda n=number, first=waiting == 1: self.serves(n, first), LIMIT_S, f"a daemon: {self.said(number)}")
            elif block.kind == "sh":
                said = ""
                for line in block.commands():
                    said += self.follow(line)
            else:
                name = f"user-{self.uid}" if self.uid else pwd.getpwuid(os.getuid()).pw_name
                wanted = block.text.replace("head:7070", f"127.0.0.1:{self.port}").replace("of eva,", f"of {name},")
                self.assertIsNone(missing_line(wanted, said), said)
        self.assertEqual(waiting, 2)

    def serves(self, number, is_coordinator):
        if is_coordinator:
            return "listening on" in "".join(self.said(number))
        return '"connected"' in self.carry_out(f"sgd-launch --address 127.0.0.1:{self.port} nodes --json")[0]

    def follow(self, line):
        if line.startswith("export SGD_ADDRESS="):
            self.is_meant_from_here(line)
            return ""
        if line == "sgd-launch doctor":  # This machine may lack something.
            process, number = self.begin(line)
            self.assertIn(process.wait(LIMIT_S), (0, 1), self.said(number))
            return "".join(self.said(number))
        return "".join(self.carry_out(line))


if __name__ == "__main__":
    unittest.main()
