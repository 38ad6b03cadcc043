"""worker/own_model.md word by word: its files are written, its commands carried out in their order, and what it shows is what they say.

Exchanged are the folder of the build, HOME, and the data, which is a part of Fashion-MNIST. Numbers and run ids may be others.
"""

import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import small_fashion
from harness import BIN_DIR, LIMIT_S, LaunchTest, read_file, wait_for
from pages import blocks, missing_line

PAGE = "worker/own_model.md"
DATA = "/usr/share/datasets/fashion-mnist"
SAMPLES = 20000


class OwnModelPageTest(LaunchTest):
    def setUp(self):
        super().setUp()
        self.home, self.clone = self.path("home"), self.path("clone")
        for folder in (self.home, os.path.join(self.clone, "scripts"), os.path.join(self.clone, "build")):
            os.makedirs(folder)
        os.symlink(os.path.dirname(BIN_DIR), os.path.join(self.clone, "build", "release"))
        self.write("clone/scripts/run", f'#!/bin/sh\nexec {BIN_DIR}/sgd-launch "$@"\n')
        os.chmod(self.path("clone", "scripts", "run"), 0o755)
        self.data = small_fashion(self.path("data"), SAMPLES, 1000)
        self.lasting, self.said, self.beside, self.files = [], "", None, 0
        self.addCleanup(self.end_beside)

    def environment(self):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SGD_", "PET_"))}
        cached = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": self.folder, "CCACHE_NOHASHDIR": "true",
                  "CCACHE_DIR": os.environ.get("CCACHE_DIR") or os.path.expanduser("~/.cache/ccache")}
        return {**kept, **cached, "HOME": self.home}

    def begin(self, block):
        """The block in a shell that goes on where the blocks before it have ended."""
        script = "\n".join(["set -e", *self.lasting, *block.commands()])
        output = self.path(f"said-{self.files}")
        self.files += 1
        with open(output, "wb") as file:
            process = subprocess.Popen(["bash", "-o", "pipefail", "-c", script], cwd=self.clone, env=self.environment(), stdin=subprocess.DEVNULL,
                                       stdout=file, stderr=subprocess.STDOUT, start_new_session=True)
        self.lasting += [line for line in block.commands() if line.startswith(("cd ", "export "))]
        return process, output

    def finish(self, process, output):
        code = process.wait(8 * LIMIT_S)
        self.said = read_file(output).decode()
        return code

    def end_beside(self):
        if self.beside and self.beside[0].poll() is None:
            os.killpg(self.beside[0].pid, signal.SIGTERM)
            self.beside[0].wait(30)

    def write_file(self, block):
        text = block.text.replace(DATA, self.data)
        self.assertTrue(block.kind == "cpp" or text != block.text or block.kind != "json", "the data of the job has another path")
        with open(os.path.join(self.home, "clothes", block.file_name()), "w", encoding="utf-8") as file:
            file.write(text)

    def wait_for_training(self):
        """The run beside is in its second epoch: what is killed now has something to lose."""
        def trains():
            process, output = self.beside
            self.assertIsNone(process.poll(), read_file(output).decode())
            return "epoch 2/" in read_file(output).decode()
        wait_for(trains, LIMIT_S, "the second epoch")

    def carry_out(self, block):
        if "In one terminal" in block.introduction:
            self.beside = self.begin(block)
            return self.wait_for_training()
        process, output = self.begin(block)
        code = self.finish(process, output)
        return self.assertEqual(code, 2 if "mistake" in block.introduction else 0, (block.text, self.said))

    def test_page(self):
        kinds = []
        for block in blocks(PAGE):
            kinds.append(block.kind)
            if block.kind == "sh":
                self.carry_out(block)
            elif block.kind:
                self.write_file(block)
            else:
                if "first terminal" in block.introduction:
                    self.assertEqual(self.finish(*self.beside), 0, self.said)
                self.assertIsNone(missing_line(block.text, self.said), self.said)
        self.assertEqual([kinds.count(kind) for kind in ("cpp", "cmake", "json")], [1, 1, 1])
        self.assertGreater(kinds.count(""), 5)


if __name__ == "__main__":
    unittest.main()
