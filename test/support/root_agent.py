"""An agent that root has started, with a coordinator and people of other accounts: the base of tests of what those get.

    class MyTest(RootAgent):
        def test_it(self):
            self.start_agent()
            self.make_person("nobody")
            self.submit("id", "-u", person="nobody")
"""

import os
import shutil

from harness import LAUNCHER
from tls_cluster import TlsCluster


class RootAgent(TlsCluster):
    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        # The launcher must be where others may execute it.
        os.mkdir(self.path("bin"))
        self.launcher = shutil.copy(LAUNCHER, self.path("bin"))
        self.start_coordinator()
        self.agent_state = self.path("agent")
        self.join(self.token("--name", "n1"), os.path.join(self.agent_state, "identity"))

    def start_agent(self, *options):
        self.addCleanup(os.umask, os.umask(0o077))  # As the unit has it.
        self.agent = self.start("agent", "agent", "--join", self.address, "--state-dir", self.agent_state, "--slots", 2, *options)
        self.wait_for_words("coordinator", "node n1: connected")

    def make_person(self, name, *options):
        self.run_verb("join", self.address, "--token-file", "-", person=name, text=self.token("--role", "client", "--name", name, *options))

    def submit(self, *command, person, code=0):
        return self.run_verb("-n", 1, "--max-failures", 0, "--address", self.address, "--", *command, person=person, code=code)
