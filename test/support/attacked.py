"""A coordinator with TLS, a node, and a job that must notice nothing, as the base of tests that attack them.

    class MyAttacks(Attacked):
        def test_it(self):
            self.counted("a stranger", CONNECTIONS, "no_certificate", lambda: attempt(self.address, HELLO, ...))

Each class prints how many attacks it has tried; the job's lines and events are checked at its end.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

import attacker
from harness import AGENT, LAUNCHER, LIMIT_S, free_port, read_file, wait_for
from installed_units import ORDINARY, InstalledUnits, can_install, ordinary_account

LOOP = "i=0; while [ ! -e \"$0\" ]; do i=$((i+1)); echo line $i; sleep 0.05; done; echo last $i"
CONNECTIONS, FRAMES, FACTS = "connections_refused_total", "frames_refused_total", "facts_total"
END_S = 20


class Attacked(unittest.TestCase):
    slots = 2            # Of node n1; the job that must notice nothing takes two.
    is_installed = True  # The daemons run as their units start them, where the machine lets the test do so.

    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(prefix="sgd-attacks-test-", ignore_cleanup_errors=True)  # A keeper may be at its end there.
        cls.addClassCleanup(folder.cleanup)
        cls.folder, cls.state, cls.daemons = folder.name, os.path.join(folder.name, "state"), []
        cls.addClassCleanup(cls.end_daemons)
        cls.attacks = cls.addresses = 0
        cls.units = InstalledUnits(cls.folder) if cls.is_installed and can_install() else None
        cls.verb("init", "--state-dir", cls.state)
        cls.metrics_port = free_port()
        cls.start_coordinator()
        found = wait_for(lambda: re.search(r"listening on 0\.0\.0\.0:(\d+)", cls.said("coordinator")), LIMIT_S, "the port")
        cls.address = f"127.0.0.1:{found.group(1)}"
        cls.forge = attacker.Forge(cls.folder)
        cls.ours = cls.path("state/ca/ca.pem"), cls.path("state/ca/ca.key")
        for name in ("n1", "n2", "gone"):
            cls.join(name, "agent")
        cls.join("eva", "client")
        cls.n1, cls.n2, cls.eva, cls.gone = (cls.loot(cls.path(name, "identity/identity.pem"), name) for name in ("n1", "n2", "eva", "gone"))
        cls.verb("revoke", "gone", "--state-dir", cls.state)
        cls.start_agent()
        wait_for(lambda: "node n1: connected" in cls.said("coordinator"), LIMIT_S, "n1")
        cls.start_job()

    @classmethod
    def start_coordinator(cls):
        if cls.units:
            cls.daemons.append(cls.units.start("coordinator", cls.state, cls.path("coordinator.log"), SGD_LISTEN="0.0.0.0:0",
                                               SGD_METRICS_PORT=str(cls.metrics_port)))
            return
        cls.start("coordinator", "coordinator", "--listen", "0.0.0.0:0", "--state-dir", cls.state, "--metrics-port", cls.metrics_port)

    @classmethod
    def start_agent(cls):
        if cls.units:
            cls.daemons.append(cls.units.start("agent", cls.path("n1"), cls.path("n1.log"), SGD_COORDINATOR=cls.address,
                                               SGD_AGENT_OPTIONS=f"--slots {cls.slots}"))
            return
        cls.start("n1", *AGENT, "--join", cls.address, "--state-dir", cls.path("n1"), "--slots", cls.slots)

    @classmethod
    def loot(cls, path, name):
        """What an attacker has got hold of, where its account can read it."""
        folder = cls.path("attacker")
        os.makedirs(folder, exist_ok=True)
        copy = shutil.copy(path, os.path.join(folder, f"{name}.pem"))
        for each in (folder, copy):
            if os.geteuid() == 0:
                shutil.chown(each, ORDINARY)
        return copy

    @classmethod
    def start_job(cls):
        """The job that must notice nothing."""
        cls.job = cls.start("job", "-n", 2, "--address", cls.address, "--", "sh", "-c", LOOP, cls.path("end"), split=True)
        cls.wait_for_lines_of_job(3)
        cls.run_id = re.search(r"run (\S+):", cls.said("job")).group(1)

    @classmethod
    def wait_for_lines_of_job(cls, count):
        """Of both ranks: whatever these make at their start is there then."""
        wait_for(lambda: all(f"{rank}: line {count}\n".encode() in read_file(cls.path("job.out")) for rank in (0, 1)), LIMIT_S, "the job's lines")

    @classmethod
    def tearDownClass(cls):
        """Nothing has happened to the job: it ends well, without a failure, and with each of its lines once."""
        print(f"{cls.attacks} attacks", file=sys.stderr)
        cls.wait_for_lines_of_job(12)
        with open(cls.path("end"), "w", encoding="ascii"):
            pass
        assert cls.job.wait(LIMIT_S) == 0, cls.said("job")
        events = [json.loads(line) for line in read_file(os.path.join(cls.run_folder(), "events.jsonl")).splitlines()]
        names = {event["event"] for event in events}
        assert not {name for name in names if "fail" in name or "lost" in name or "recover" in name}, names
        lines = read_file(cls.path("job.out")).decode().splitlines()
        for rank in (0, 1):
            own = [line for line in lines if line.startswith(f"{rank}: ")]
            last = int(own[-1].split()[-1])
            assert own == [f"{rank}: line {i}" for i in range(1, last + 1)] + [f"{rank}: last {last}"], own[-5:]
            assert last > 10, last

    # ---- what they stand on ----

    @classmethod
    def path(cls, *parts):
        return os.path.join(cls.folder, *parts)

    @classmethod
    def run_folder(cls):
        return os.path.join(cls.state, "runs", cls.run_id)

    @classmethod
    def environment(cls):
        kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
        return kept | {"HOME": cls.folder, "XDG_CONFIG_HOME": cls.path("config"), "XDG_RUNTIME_DIR": cls.folder, "TMPDIR": cls.folder}

    @classmethod
    def verb(cls, *arguments, code=0, text=None):
        done = subprocess.run([LAUNCHER, *map(str, arguments)], env=cls.environment(), input=text, text=True, capture_output=True,
                              timeout=LIMIT_S, cwd=cls.folder, check=False)
        assert done.returncode == code, (arguments, done.returncode, done.stdout, done.stderr)
        return done.stderr if code else done.stdout

    @classmethod
    def start(cls, name, *arguments, split=False):
        with open(cls.path(name + ".log"), "wb") as log, open(cls.path(name + ".out"), "wb") as out:
            process = subprocess.Popen([LAUNCHER, *map(str, arguments)], env=cls.environment(), cwd=cls.folder,
                                       stdin=subprocess.DEVNULL, stdout=out if split else log, stderr=log)
        cls.daemons.append(process)
        return process

    @classmethod
    def end_daemons(cls):
        """Asked first: an agent that is killed leaves its ranks to the next one."""
        for process in reversed(cls.daemons):
            process.terminate()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    @classmethod
    def said(cls, name):
        return read_file(cls.path(name + ".log")).decode()

    @classmethod
    def token(cls, *arguments):
        return cls.verb("token", "create", "--state-dir", cls.state, *arguments).strip()

    @classmethod
    def join(cls, name, role):
        cls.verb("join", cls.address, "--token-file", "-", "--identity", cls.path(name, "identity"),
                 text=cls.token("--role", role, "--name", name))

    @classmethod
    def another_address(cls):
        """Of a machine that has not been seen: limits count by address."""
        cls.addresses += 1
        return f"127.0.{1 + cls.addresses // 200}.{1 + cls.addresses % 200}"

    def count(self, family, label):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=LIMIT_S) as answer:
            found = re.search(rf'sgd_coordinator_{family}{{[a-z]+="{label}"}} (\d+)', answer.read().decode())
        return int(found.group(1)) if found else 0

    def turned_away(self):
        """Idle connections are: at once, when their time is over, or when there was no place for them in time."""
        return sum(self.count(CONNECTIONS, label) for label in ("too_many", "slow"))

    def counted(self, name, family, label, attack, shows=("closed", "reset")):
        """Carries out one attack: it grows its counter and shows at the attacker as it should."""
        with self.subTest(attack=name):
            before = self.count(family, label)
            with ordinary_account():
                how = attack()
            wait_for(lambda: self.count(family, label) > before, LIMIT_S, f"{label} of {family} to be counted for: {name}")
            if shows:
                self.assertTrue(any(word in how for word in shows), (name, how))
            self.assertIsNone(self.job.poll(), self.said("job"))
            type(self).attacks += 1
