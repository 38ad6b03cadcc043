"""An agent that runs as root: each run has the account of its owner, and what its owner puts into the run's folder leads nowhere else."""

import os
import pwd
import re
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LIMIT_S, read_file, wait_for
from root_agent import RootAgent

PERSON = "nobody"   # An account that is on every Debian, and not one of a service's: its uid is over 1000.
SERVICE = "daemon"  # One of the system's.


@unittest.skipIf(os.geteuid() != 0, "of an agent that root has started")
class AccountsTest(RootAgent):
    def only_run(self):
        names = os.listdir(self.path("agent", "runs"))
        return self.path("agent", "runs", names[0]) if names else None

    def test_a_run_has_its_owners_account_and_nothing_of_roots(self):
        os.environ["SGD_SECRET_OF_ROOT"] = "x"
        self.addCleanup(os.environ.pop, "SGD_SECRET_OF_ROOT")
        self.start_agent()
        self.make_person(PERSON)
        account = pwd.getpwnam(PERSON)
        said = self.submit("sh", "-c", "echo uid $(id -u) gid $(id -g) groups $(id -G); grep -E 'NoNewPrivs|CapEff' /proc/self/status; env;"
                           " stat -c 'folder %U %a' \"$SGD_RUN_DIR\"", person=PERSON).stdout
        groups = " ".join(map(str, os.getgrouplist(PERSON, account.pw_gid)))
        self.assertIn(f"uid {account.pw_uid} gid {account.pw_gid} groups {groups}", said)
        self.assertRegex(said, r"NoNewPrivs:\s+1")
        self.assertRegex(said, r"CapEff:\s+0{16}")
        self.assertIn(f"HOME={account.pw_dir}", said)
        self.assertIn(f"USER={PERSON}", said)
        self.assertNotIn("XDG_RUNTIME_DIR", said)
        self.assertIn(f"folder {PERSON} 700", said)
        wait_for(lambda: self.only_run() is None, LIMIT_S, "the end of the run's folder")

    def test_who_has_no_account_or_a_services_one_gets_nothing_started(self):
        self.start_agent()
        for name, words in (("zoe", 'there is no account "zoe"'), (SERVICE, "an account of this node's system")):
            self.make_person(name)
            refused = self.submit("touch", self.path("started"), person=name, code=1)
            self.assertIn(words, refused.stderr)
            self.assertIn(words, self.plan(name))  # Beforehand, too.
            self.assertFalse(os.path.exists(self.path("started")))

    def test_one_account_for_all_runs(self):
        self.start_agent("--run-as", SERVICE)
        self.assertIn(f"uid {pwd.getpwnam(SERVICE).pw_uid}\n", self.submit("sh", "-c", "echo uid $(id -u)", person="operator").stdout)

    def plan(self, person):
        return self.run_verb("plan", "-n", 1, "--address", self.address, "--", "true", person=person).stdout

    def test_roots_account_is_for_root_and_admins_and_a_plan_says_so(self):
        self.start_agent("--allow-root")
        self.assertIn("uid 0\n", self.submit("sh", "-c", "echo uid $(id -u)", person="operator").stdout)
        self.assertIn("starts now", self.plan("operator"))
        self.make_person(PERSON)
        refused = self.submit("touch", self.path("started"), person=PERSON, code=1).stderr
        planned = self.plan(PERSON)
        words = f"those of root and of admins alone: {PERSON} is neither. Start the agent with --run-as ACCOUNT"
        for said in (refused, planned):
            self.assertIn(words, said)
        self.assertTrue(planned.startswith("would fail: node n1 would refuse it: "), planned)
        self.assertFalse(os.path.exists(self.path("started")))
        self.make_person("ada", "--admin")
        self.assertIn("uid 0\n", self.submit("sh", "-c", "echo uid $(id -u)", person="ada").stdout)

    def test_links_in_a_runs_folder_lead_nowhere(self):
        secret = self.path("secret")
        with open(secret, "w", encoding="ascii") as file:
            file.write("of root")
        os.chmod(secret, 0o600)
        self.start_agent()
        self.make_person(PERSON)
        script = f"cd $SGD_RUN_DIR; ln -s {secret} logs/stolen.log; ln -s {self.folder} errors/all; mkfifo logs/never.log; echo own > logs/own.log;" \
                 f" ln {secret} logs/hard.log; rm -rf checkpoints; ln -s {self.path('state')} checkpoints; mkdir closed; chmod 0 closed; echo done"
        self.assertIn("done", self.submit("sh", "-c", script, person=PERSON).stdout)
        wait_for(lambda: self.only_run() is None, LIMIT_S, "the end of the run's folder")
        stored = [os.path.join(folder, name) for folder, _, names in os.walk(self.path("state", "runs")) for name in names]
        self.assertEqual([read_file(path) for path in stored if path.endswith("own.log")], [b"own\n"])
        self.assertFalse([path for path in stored if b"of root" in read_file(path)])
        self.assertFalse([path for path in stored if re.search(r"(stolen|never|hard)\.log$", path)])
        self.assertTrue(os.path.exists(self.path("state", "ca", "ca.key")))
        self.assertEqual(read_file(secret), b"of root")

    def test_killed_agent_takes_over_what_others_run(self):
        self.start_agent()
        self.make_person(PERSON)
        flag = os.path.join("/tmp", os.path.basename(self.folder) + "-go")
        script = f"echo begun $$; until [ -e {flag} ]; do sleep 0.05; done; echo over $$"
        run = self.start("client", "-n", 1, "--address", self.address, "--", "sh", "-c", script, person=PERSON)
        self.addCleanup(lambda: os.path.exists(flag) and os.unlink(flag))
        self.wait_for_words("client", "begun")
        self.kill(self.agent)
        self.start("agent", "agent", "--join", self.address, "--state-dir", self.agent_state, "--slots", 2)
        self.wait_for_words("agent", "this one takes over")
        with open(flag, "w", encoding="ascii"):
            pass
        self.assertEqual(run.wait(LIMIT_S), 0, self.said("client"))
        first, last = (re.search(word + r" (\d+)", self.said("client")).group(1) for word in ("begun", "over"))
        self.assertEqual(first, last)

    def test_runs_need_a_way_to_their_folders(self):
        os.chmod(self.folder, 0o700)
        refused = self.run_verb("agent", "--join", self.address, "--state-dir", self.agent_state, code=2)
        self.assertIn("owners of runs cannot get to", refused.stderr)


if __name__ == "__main__":
    unittest.main()
