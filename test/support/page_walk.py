"""A tutorial as somebody follows it: the files of a page are written, its commands carried out in their order, and what it shows is what they say.

Exchanged are the folder of the build, HOME, and the data, which is a part of Fashion-MNIST. Numbers and run ids may be others. What stands before a block says how it is
taken: "In one terminal" goes on beside the others until "first terminal"; a "mistake" ends with 2.
"""

import json
import os
import signal
import subprocess

from data import small_fashion
from harness import BIN_DIR, LIMIT_S, LaunchTest, read_file, wait_for
from pages import blocks, missing_line

DATA = "/usr/share/datasets/fashion-mnist"
SAMPLES = 20000


class PageWalk(LaunchTest):
    folder_name = ""  # Below HOME, where the page's files lie and its commands run once it has gone there.

    def setUp(self):
        super().setUp()
        self.home, self.clone = self.path_of("home"), self.path_of("clone")
        for folder in (self.home, os.path.join(self.clone, "scripts"), os.path.join(self.clone, "build")):
            os.makedirs(folder)
        os.symlink(os.path.dirname(BIN_DIR), os.path.join(self.clone, "build", "release"))
        self.write("clone/scripts/run", f'#!/bin/sh\nexec {BIN_DIR}/sgd-launch "$@"\n')
        os.chmod(os.path.join(self.clone, "scripts", "run"), 0o755)
        self.data = small_fashion(self.path_of("data"), SAMPLES, 1000)
        self.lasting, self.said, self.beside, self.files = [], "", None, 0
        self.addCleanup(self.end_beside)

    def path_of(self, *parts):
        return os.path.join(self.folder, *parts)

    def environment(self):
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("SGD_", "PET_"))}
        cached = {"CMAKE_CXX_COMPILER_LAUNCHER": "ccache", "CCACHE_BASEDIR": self.folder, "CCACHE_NOHASHDIR": "true",
                  "CCACHE_DIR": os.environ.get("CCACHE_DIR") or os.path.expanduser("~/.cache/ccache")}
        return {**kept, **cached, "HOME": self.home, "PATH": os.pathsep.join([*self.search, kept["PATH"]])}

    search = ()  # Folders in front of the PATH.

    def begin(self, block):
        """The block in a shell that goes on where the blocks before it have ended."""
        script = "\n".join(["set -e", *self.lasting, *block.commands()])
        output = self.path_of(f"said-{self.files}")
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
        text = block.text
        if block.kind == "json":
            text = text.replace(DATA, self.data)
            self.assertNotEqual(text, block.text, "the data of the job has another path")
        with open(os.path.join(self.home, self.folder_name, block.file_name()), "w", encoding="utf-8") as file:
            file.write(text)

    def has_come_far(self):
        """Of the run beside: what is killed now has something to lose."""
        process, output = self.beside
        self.assertIsNone(process.poll(), read_file(output).decode())
        asked = subprocess.run([os.path.join(BIN_DIR, "sgd-launch"), "status", "--json"], cwd=os.path.join(self.home, self.folder_name),
                               env=self.environment(), capture_output=True, text=True, timeout=LIMIT_S, check=False)
        status = json.loads(asked.stdout) if asked.returncode == 0 else {}
        return status.get("state") == "running" and all(rank.get("step", 0) > 500 for rank in status["ranks"])

    def carry_out(self, block):
        if "In one terminal" in block.introduction:
            self.beside = self.begin(block)
            return wait_for(self.has_come_far, LIMIT_S, "the run in the first terminal")
        process, output = self.begin(block)
        code = self.finish(process, output)
        return self.assertEqual(code, 2 if "mistake" in block.introduction.lower() else 0, (block.text, self.said))

    def walk(self, page):
        """The kinds of its blocks."""
        kinds = []
        for block in blocks(page):
            kinds.append(block.kind)
            if block.kind == "sh":
                self.carry_out(block)
            elif block.kind:
                self.write_file(block)
            else:
                if "first terminal" in block.introduction:
                    self.assertEqual(self.finish(*self.beside), 0, self.said)
                self.assertIsNone(missing_line(block.text, self.said), self.said)
        return kinds
