"""The units of scripts/systemd, by systemd's own checks, without a running systemd. Skipped where systemd is not installed.

Run it by hand as: python3 test/unit/systemd/units_test.py
"""

import configparser
import os
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
UNITS = os.path.join(ROOT, "scripts", "systemd")
PROGRAM = "/usr/bin/sgd-launch"
NAMES = ("sgd-launch-coordinator.service", "sgd-launch-agent.service")
# Of 10, as `systemd-analyze security` counts. An agent runs other people's programs.
EXPOSURE_MAX = {"sgd-launch-coordinator.service": 2.5, "sgd-launch-agent.service": 5.0}
GRACE_DEFAULT_S = 30  # stop.grace of the job's schema.


def settings_of(name):
    """The [Service] section; of a key that occurs twice, all values."""
    parser = configparser.RawConfigParser(strict=False, dict_type=MultiValue)
    parser.optionxform = str
    parser.read(os.path.join(UNITS, name))
    return parser["Service"]


class MultiValue(dict):
    """Keeps the values of a key that is repeated."""

    def __setitem__(self, key, value):
        if isinstance(value, list) and key in self and isinstance(self[key], list):
            self[key].extend(value)
        else:
            super().__setitem__(key, value)


@unittest.skipUnless(shutil.which("systemd-analyze"), "systemd-analyze is not installed")
class UnitsTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="sgd-units-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.program = os.path.join(self.folder, "sgd-launch")
        shutil.copy("/bin/true", self.program)

    def analyze(self, name, *words, change=lambda text: text):
        """systemd-analyze over the unit, its program replaced by one that is there."""
        path = os.path.join(self.folder, name)
        with open(os.path.join(UNITS, name), encoding="utf-8") as unit, open(path, "w", encoding="utf-8") as copy:
            copy.write(change(unit.read()).replace(PROGRAM, self.program))
        return subprocess.run(["systemd-analyze", *words, path], capture_output=True, text=True, timeout=60, check=False)

    def exposure(self, name, **options):
        done = self.analyze(name, "security", "--offline=true", "--no-pager", **options)
        found = re.search(r"Overall exposure level for \S+: ([\d.]+)", done.stdout)
        self.assertIsNotNone(found, done.stdout[-500:] + done.stderr)
        return float(found.group(1))

    def test_verify(self):
        for name in NAMES:
            with self.subTest(name):
                done = self.analyze(name, "verify", "--man=no")
                self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))

    def test_verify_finds_a_misspelt_key(self):
        done = self.analyze(NAMES[0], "verify", "--man=no", change=lambda text: text.replace("WatchdogSec", "WatchDogSecs"))
        self.assertIn("WatchDogSecs", done.stderr)

    def test_exposure(self):
        for name in NAMES:
            with self.subTest(name):
                self.assertLessEqual(self.exposure(name), EXPOSURE_MAX[name])

    def test_the_agent_that_starts_runs_as_their_owners(self):
        with open(os.path.join(UNITS, "sgd-launch-agent.service.d", "owners.conf.example"), encoding="utf-8") as file:
            settings = "".join(line for line in file if not line.startswith(("#", "[")))
        added = {"change": lambda text: text.replace("[Install]", settings + "\n[Install]")}
        done = self.analyze(NAMES[1], "verify", "--man=no", **added)
        self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
        self.assertLessEqual(self.exposure(NAMES[1], **added), 5.0)

    def test_exposure_sees_an_open_door(self):
        opened = self.exposure(NAMES[0], change=lambda text: text.replace("CapabilityBoundingSet=\n", "").replace("User=sgd-launch\n", ""))
        self.assertGreater(opened, EXPOSURE_MAX[NAMES[0]])

    def test_sysusers(self):
        with open(os.path.join(UNITS, "sgd-launch.sysusers.conf"), encoding="utf-8") as conf:
            text = conf.read()
        root = os.path.join(self.folder, "root")
        os.makedirs(os.path.join(root, "etc"))
        done = subprocess.run(["systemd-sysusers", f"--root={root}", "-"], input=text, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        with open(os.path.join(root, "etc", "passwd"), encoding="utf-8") as users:
            accounts = users.read()
        for name in (settings_of(NAMES[0])["User"], jobs_account()):
            self.assertIn(name + ":", accounts)


def jobs_account():
    return re.search(r"--run-as=(\S+)", settings_of(NAMES[1])["Environment"]).group(1)


class SettingsTest(unittest.TestCase):
    def test_no_job_runs_under_an_account_that_owns_a_key(self):
        accounts = {settings_of(name)["User"] for name in NAMES}
        self.assertEqual(len(accounts), 2)
        self.assertNotIn(jobs_account(), accounts)
        self.assertEqual(settings_of(NAMES[0])["StateDirectoryMode"], "0700")
        self.assertEqual(settings_of(NAMES[1])["UMask"], "0077")

    def test_what_the_daemons_rely_on(self):
        for name in NAMES:
            with self.subTest(name):
                text = "\n".join(f"{key}={value}" for key, value in settings_of(name).items())
                for line in ("Type=notify", "WatchdogSec=30", "ExecReload=kill -HUP $MAINPID", "Restart=on-failure",
                             "EnvironmentFile=-/etc/default/sgd-launch", "NoNewPrivileges=yes"):
                    self.assertIn(line, text.split("\n"))
                self.assertIn("${STATE_DIRECTORY}", text)

    def test_an_agent_leaves_time_and_workers_alone(self):
        agent = settings_of("sgd-launch-agent.service")
        self.assertGreaterEqual(int(agent["TimeoutStopSec"]), GRACE_DEFAULT_S)
        self.assertEqual(agent["KillMode"], "process")
        self.assertEqual(agent["OOMPolicy"], "continue")
        self.assertIn("pids", agent["Delegate"].split())  # Control groups of its runs are its own to make and to kill.
        self.assertNotIn("PrivateTmp", agent)  # A restarted agent would have another /tmp than its workers.

    def test_settings_are_documented(self):
        """Each variable of a command line has its line in the file of settings."""
        with open(os.path.join(UNITS, "sgd-launch.default"), encoding="utf-8") as file:
            documented = set(re.findall(r"^#(\w+)=", file.read(), re.M))
        for name in NAMES:
            used = set(re.findall(r"\$\{?(SGD_\w+)", settings_of(name)["ExecStart"]))
            self.assertTrue(used)
            self.assertEqual(used - documented, set())


if __name__ == "__main__":
    unittest.main()
