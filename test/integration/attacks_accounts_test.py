"""Attacks of other accounts of the machine on what the installed units keep, listen at and run: an ordinary account's, and those
of the account that runs the jobs. None is carried out, and the job notices none."""

import json
import os
import stat
import subprocess
import sys
import types
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import local_attacker
from attacked import Attacked
from harness import LIMIT_S
from installed_units import ORDINARY, can_install

JOBS = "sgd-launch-jobs"
OPEN = ("lists", "reads")  # What everybody may do with a folder of programs and accounts.


@unittest.skipIf(not can_install(), "accounts as they are installed are needed")
class AccountAttacksTest(Attacked):
    def targets(self, spared):
        """All that there is of the cluster, but what is in `spared`: that is the attacker's own."""
        files, folders, sockets = [], [], []
        for place, below, names in os.walk(self.folder):
            below[:] = [one for one in below if os.path.join(place, one) not in spared]
            folders.append(place)
            for path in {os.path.join(place, name) for name in names} - spared:
                (sockets if self.is_socket(path) else files).append(path)
        return {"files": files, "folders": folders, "sockets": sockets, "processes": self.processes()}

    @staticmethod
    def is_socket(path):
        return stat.S_ISSOCK(AccountAttacksTest.status(path).st_mode)

    @staticmethod
    def status(path):
        """Nobody's, and of no kind, for what has gone since it was listed."""
        try:
            return os.lstat(path)
        except FileNotFoundError:
            return types.SimpleNamespace(st_mode=0, st_uid=-1)

    def processes(self):
        """The daemons, and what the agent runs as root."""
        agent = self.daemons[1].pid
        with open(f"/proc/{agent}/task/{agent}/children", encoding="ascii") as file:
            keepers = [int(pid) for pid in file.read().split()]
        root_owned = [pid for pid in keepers if self.status(f"/proc/{pid}").st_uid == 0]
        return [self.daemons[0].pid, agent, *root_owned]

    def attack(self, name, uid, gid, spared):
        targets = self.targets(spared)
        self.assertGreater(len(targets["files"]), 15)
        self.assertGreater(len(targets["sockets"]), 0)
        done = subprocess.run(["/usr/bin/python3", "-I", self.script], input=json.dumps(targets), capture_output=True, text=True,
                              timeout=LIMIT_S, check=True, cwd="/", user=uid, group=gid, extra_groups=[])
        said = json.loads(done.stdout)
        self.assertEqual([one for one in said["done"] if not self.is_everybodys(*one)], [], name)
        self.assertIsNone(self.job.poll(), self.said("job"))
        type(self).attacks += said["count"]

    def is_everybodys(self, attack, target):
        """The folder itself, and the test's own logs, are no secrets."""
        is_below = any(target.startswith(place + os.sep) or target == place for place in self.kept())
        return attack in OPEN and not is_below

    def kept(self):
        identity = self.path("config", "sgd-launch", "identity")
        return [self.state, self.path("n1"), identity, self.units.runtime("coordinator"), self.units.runtime("agent")]

    def setUp(self):
        self.script = self.path("bin", "local_attacker.py")
        with open(local_attacker.__file__, encoding="utf-8") as source, open(self.script, "w", encoding="utf-8") as copy:
            copy.write(source.read())

    def test_an_ordinary_account(self):
        uid, gid = self.units.accounts[ORDINARY]
        self.attack(ORDINARY, uid, gid, {self.path("attacker")})

    def test_the_account_that_runs_jobs(self):
        """Runs of one account share it: what is theirs is spared."""
        uid, gid = self.units.accounts[JOBS]
        own = {os.path.join(place, name) for place, below, names in os.walk(self.folder) for name in below + names}
        own = {path for path in own if self.status(path).st_uid == uid}
        self.assertNotEqual(own, set())
        self.attack(JOBS, uid, gid, own | {self.path("attacker")})


if __name__ == "__main__":
    unittest.main()
