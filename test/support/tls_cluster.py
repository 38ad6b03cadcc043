"""A coordinator with certificates and whoever joins it, in one folder, each person with a configuration of their own.

    class MyTest(TlsCluster):
        def test_it(self):
            self.start_coordinator()
            self.join(self.token("--name", "n1"), self.path("agent", "identity"))

Daemons end with the test.
"""

import os
import re
import subprocess
import tempfile
import unittest

from harness import LAUNCHER, LIMIT_S, read_file, wait_for


class TlsCluster(unittest.TestCase):
    launcher = LAUNCHER  # Whoever starts it.
    port = 0             # Of a coordinator that is started again: one of free_port().

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-security-test-", ignore_cleanup_errors=True)  # A keeper may be at its end there.
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.state = self.path("state")
        self.daemons = []
        self.addCleanup(self.end_daemons)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def environment(self, person):
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return kept | {"HOME": self.path(person), "XDG_CONFIG_HOME": self.path(person, "config"),
                       "XDG_RUNTIME_DIR": self.folder, "TMPDIR": self.folder}

    def run_verb(self, *arguments, person="operator", code=0, text=None):
        done = subprocess.run([self.launcher, *map(str, arguments)], env=self.environment(person), input=text, text=True,
                              capture_output=True, timeout=LIMIT_S, cwd=self.folder, check=False)
        self.assertEqual(done.returncode, code, (arguments, done.stdout, done.stderr))
        return done

    def start(self, name, *arguments, person="daemon"):
        log = open(self.path(name + ".log"), "wb")
        process = subprocess.Popen([self.launcher, *map(str, arguments)], env=self.environment(person), cwd=self.folder,
                                   stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        log.close()
        self.daemons.append(process)
        return process

    def kill(self, process):
        process.kill()
        process.wait()
        self.daemons.remove(process)

    def end_daemons(self):
        for process in reversed(list(self.daemons)):
            self.kill(process)

    def said(self, name):
        return read_file(self.path(name + ".log")).decode()

    def all_said(self):
        return "".join(f"\n{log}: {read_file(self.path(log)).decode(errors='replace')}" for log in sorted(os.listdir(self.folder)) if log.endswith(".log"))

    def wait_for_words(self, name, words):
        wait_for(lambda: words in self.said(name), LIMIT_S, lambda: f"{words!r} of {name}: {self.all_said()}")

    def start_coordinator(self, *options):
        self.run_verb("init", "--state-dir", self.state)
        self.start("coordinator", "coordinator", "--listen", f"0.0.0.0:{self.port}", "--state-dir", self.state, *options)
        found = wait_for(lambda: re.search(r"listening on 0\.0\.0\.0:(\d+)", self.said("coordinator")), LIMIT_S, "the port")
        self.address = f"127.0.0.1:{found.group(1)}"

    def token(self, *arguments):
        return self.run_verb("token", "create", "--state-dir", self.state, *arguments).stdout

    def join(self, token, folder, *arguments, **how):
        return self.run_verb("join", self.address, "--token-file", "-", "--identity", folder, *arguments, text=token, **how)
