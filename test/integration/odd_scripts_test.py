"""Python scripts that treat their interpreter in odd ways, and the ways to name one: a forked worker ends as `python3 script.py` does, with
the same words."""

import os
import py_compile
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LaunchTest, read_file

PYTHON = "/usr/bin/python3"

SCRIPTS = {
    "stdout is None at the end": "import atexit, os, sys\natexit.register(os.write, 1, b'late')\nprint('x')\nsys.stdout = None",
    "stdout is gone": "import sys\nprint('x')\ndel sys.stdout",
    "streams are closed": "import sys\nprint('x')\nsys.stdout.close()\nsys.stderr.close()",
    "streams are wrapped": "import io, sys\nbefore = sys.stdout, sys.stdout.name, sys.stdout.buffer.name, sys.stdout.mode, sys.stdout.newlines\n"
                           "print(before[0] is sys.__stdout__, *before[1:])\nsys.stdin = io.TextIOWrapper(sys.stdin.buffer, 'latin-1')\n"
                           "for name in ('stdout', 'stderr'):\n    stream = getattr(sys, name)\n    print(stream.buffer.seekable(), flush=True)\n"
                           "    setattr(sys, name, io.TextIOWrapper(stream.buffer, 'latin-1'))\n"
                           "print('\\xe9', repr(sys.stdin.read()))\nraise ValueError('\\xe9')",
    "descriptors are closed": "import os\nprint('x', flush=True)\nfor fd in (0, 1, 2):\n    os.close(fd)",
    "an exception without stdout": "import sys\nsys.stdout = None\nraise ValueError('loss is NaN')",
    "words of an exit without stderr": "import sys\nsys.stderr = None\nsys.exit('no data')",
    "a hook that fails": "import sys\ndef hook(*_):\n    raise RuntimeError('in the hook')\nsys.excepthook = hook\nraise ValueError('loss is NaN')",
    "a hook that exits": "import sys\ndef hook(*_):\n    sys.exit(7)\nsys.excepthook = hook\nraise ValueError('loss is NaN')",
    "a status beyond all numbers": "import sys\nsys.exit(2 ** 70)",
    "a status below zero": "import sys\nsys.exit(-1)",
    "a fork": "import os, sys\nchild = os.fork()\nif child == 0:\n    sys.exit(7)\nprint(os.waitpid(child, 0)[1])\nsys.exit(3)",
    "another folder": "import os\nos.chdir('/')\nprint(__file__)\nraise ValueError('loss is NaN')",
    "spawned processes": "import multiprocessing\ndef double(x):\n    return 2 * x\nif __name__ == '__main__':\n"
                         "    with multiprocessing.get_context('spawn').Pool(1) as pool:\n        print(pool.map(double, [1, 2]))",
    "a thread that runs on": "import threading, time\ncount = [0]\nmuch = [[number] for number in range(200000)]\ndef work():\n    while True:\n"
                             "        count[0] += 1\n        time.sleep(0.0002)\n"
                             "threading.Thread(target=work, daemon=True).start()\ntime.sleep(0.05)\nprint('end')",
    "a file that an installed module keeps": "import decimal, os\ndecimal.kept = open(os.dup(1), 'w')\ndecimal.kept.write('precious\\n')",
    "standard output takes no more": "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('x')",
    "standard output takes no more, at a failure": "import sys\nsys.stdout = open('/dev/full', 'w')\nprint('x')\nsys.exit(3)",
    "the ids of the first thread": "import os, threading\nprint(threading.main_thread().native_id == os.getpid())",
}

SHOW = "import sys\nprint(sys.argv, sys.path[0], sys.orig_argv, sys.flags, __name__, __package__, __file__)\nimport sgd_launch\n"


class OddScriptsTest(LaunchTest):
    def environment(self, **more):
        return {"XDG_CACHE_HOME": self.path("cache"), "PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1", **more}

    def check_same(self, command, number, **more):
        """As by the interpreter itself, and forked."""
        modules = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "worker", "python")
        plain = subprocess.run(command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
                               env={**os.environ, **self.environment(**more), "PYTHONPATH": modules})
        launch = self.start("-n", 1, "--", *command, env=self.environment(**more), cwd=self.folder, run_dir=f"run{number}")
        self.assertEqual(launch.wait(), 1 if plain.returncode else 0, launch.said())
        self.assertEqual([event.get("exit_code") for event in launch.events("worker_exited")], [plain.returncode])
        self.assertEqual(sorted(launch.log(0).splitlines()), sorted(plain.stdout.splitlines()))
        self.assertRegex(read_file(os.path.join(launch.run_dir, "logs", "fork-server.log")).decode(), r"modules loaded in [\d.]+ s\n$")

    def test_ends(self):
        for number, (name, text) in enumerate(SCRIPTS.items()):
            with self.subTest(name):
                self.write(f"script{number}.py", text + "\n")
                self.check_same([PYTHON, f"script{number}.py"], number)

    def test_ways_to_name_a_script(self):
        for name in ("real/target.py", "plain", "package/__main__.py", "package/part.py", "package/__init__.py"):
            os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
            self.write(name, SHOW if "init" not in name else "VALUE = 1\n")
        os.symlink(os.path.join("real", "target.py"), self.path("link.py"))
        py_compile.compile(self.path("plain"), self.path("compiled.pyc"))
        for number, words in enumerate((["link.py", "", "--", "-x"], ["real/../link.py"], ["plain"], ["compiled.pyc"], ["package"], ["-m", "package"],
                                        ["-m", "package.part"], ["-m", "nothing_like_it"], ["-m", "package.nothing"], ["missing.py"],
                                        ["-O", "-X", "dev", "link.py"], ["-W", "ignore", "-B", "link.py"])):
            with self.subTest(words):
                self.check_same([PYTHON, *words], number)

    def test_our_modules_are_found_where_a_scripts_folder_is_left_out(self):
        if sys.version_info < (3, 11):
            self.skipTest("needs PYTHONSAFEPATH")
        self.write("show.py", "import sys\nimport sgd_launch\nprint(sys.flags.safe_path)\n")
        self.check_same([PYTHON, "show.py"], 0, PYTHONSAFEPATH="1")
        self.check_same([PYTHON, "-P", "show.py"], 1)


if __name__ == "__main__":
    unittest.main()
