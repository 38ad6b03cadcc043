"""Attacks on who may do what in a cluster, by those who are let in a little: other accounts of the machine, nodes and clients with
certificates, jobs. Each is refused, shows at the attacker, and is counted or written down."""

import contextlib
import json
import os
import pwd
import re
import shutil
import stat
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from attacker import CHUNK, HELLO, Wire, checksum, frame
from harness import AGENT, LAUNCHER, LIMIT_S, free_port, read_file, read_lines, wait_for
from installed_units import InstalledUnits, can_install
from tls_cluster import TlsCluster

PYTHON = "/usr/bin/python3"  # That others may execute, too.
SUPPORT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support")
OTHER = "nobody"    # An account that is on every Debian.
SECOND = "daemon"   # Another one.
SAYS = """
import sys
sys.path.insert(0, sys.argv[1])
from attacker import HELLO, attempt
try:
    print(attempt(sys.argv[2], HELLO, {"type": "client", "version": "x"}, {"type": "request", "id": 1, "request": "nodes"}))
except OSError as error:
    print(error.strerror)
"""  # How it ends for whoever connects to a Unix socket.
LISTENS = """
import os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind(sys.argv[1])
os.chmod(sys.argv[1], 0o777)
listener.listen()
print("listens", flush=True)
connection = listener.accept()[0]
connection.settimeout(20)
print(connection.recv(65536), flush=True)
"""  # An impostor at a path: what the first who comes tells it.


def as_account(name):
    """What subprocess starts a program as another account with."""
    account = pwd.getpwnam(name)
    return {"user": account.pw_uid, "group": account.pw_gid, "extra_groups": []}


@unittest.skipIf(os.geteuid() != 0, "several accounts are needed")
class LocalAccountsTest(TlsCluster):
    """Without `init`: a Unix socket, and everybody else on the machine."""

    def setUp(self):
        super().setUp()
        os.chmod(self.folder, 0o755)
        os.mkdir(self.path("bin"))
        self.launcher = shutil.copy(LAUNCHER, self.path("bin"))
        shutil.copytree(SUPPORT, self.path("support"))
        os.umask(0o000)
        self.addCleanup(os.umask, 0o022)
        self.start("coordinator", "coordinator", "--state-dir", self.state)
        self.wait_for_words("coordinator", f"listening on unix:{self.state}/coordinator.sock")
        self.address = f"unix:{self.state}/coordinator.sock"

    def other_says(self):
        return subprocess.run([PYTHON, "-c", SAYS, self.path("support"), self.address], capture_output=True, text=True,
                              timeout=LIMIT_S, check=True, cwd="/", **as_account(OTHER)).stdout.strip()

    def test_another_account_gets_no_word_in(self):
        self.assertEqual(self.other_says(), "Permission denied")
        # Not even where somebody has opened the files: the kernel says who comes.
        os.chmod(self.state, 0o755)
        os.chmod(self.path("state", "coordinator.sock"), 0o777)
        self.assertIn(self.other_says(), ("closed", "reset"))
        self.wait_for_words("coordinator", f"account {pwd.getpwnam(OTHER).pw_uid}")
        self.assertIn("only this coordinator's own account and root may connect", self.said("coordinator"))
        self.run_verb("nodes", "--address", self.address)

    def test_folders_are_closed_whatever_the_umask_and_the_audit_log_knows_who(self):
        run = self.run_verb("submit", "--detach", "-n", 1, "--address", self.address, "--", "true").stdout.strip()
        self.run_verb("stop", "--now", "--address", self.address, run)
        for folder in (self.state, self.path("state", "runs"), self.path("state", "runs", run)):
            self.assertEqual(stat.S_IMODE(os.stat(folder).st_mode), 0o700, folder)
        for folder, _, names in os.walk(self.state):
            for name in names:
                with contextlib.suppress(FileNotFoundError):  # It was there for a moment.
                    mode = os.stat(os.path.join(folder, name), follow_symlinks=False).st_mode
                    self.assertFalse(stat.S_IMODE(mode) & 0o077, (folder, name))
        lines = wait_for_lines(self.path("state", "audit.jsonl"), 2)
        self.assertEqual([(line["who"], line["uid"], line["action"]) for line in lines], [("root", 0, "submit"), ("root", 0, "stop")])
        owners = {row["owner"] for row in json.loads(self.run_verb("ps", "--all", "--json", "--address", self.address).stdout)["runs"]}
        self.assertEqual(owners, {"root"})

    def test_nothing_listens_where_everybody_can_connect(self):
        """Not on TCP; and a folder that was open before is closed."""
        os.mkdir(self.path("open"))
        os.chmod(self.path("open"), 0o777)
        self.start("second", "coordinator", "--state-dir", self.path("open"))
        self.wait_for_words("second", "listening on unix:")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("open")).st_mode), 0o700)
        os.chown(self.path("bin"), pwd.getpwnam(OTHER).pw_uid, -1)
        refused = self.run_verb("coordinator", "--state-dir", self.path("bin"), code=2)
        self.assertIn("is not a folder of this account", refused.stderr)
        refused = self.run_verb("coordinator", "--listen", "127.0.0.1:0", "--state-dir", self.path("third"), code=2)
        self.assertIn("everybody on this machine could run anything here", refused.stderr)

    def test_an_impostor_at_the_path_is_told_nothing(self):
        """A client and an agent look who listens, before they say a word."""
        os.mkdir(self.path("between"))
        os.chmod(self.path("between"), 0o1777)
        path = self.path("between", "coordinator.sock")
        impostor = subprocess.Popen([PYTHON, "-c", LISTENS, path], stdout=subprocess.PIPE, text=True, cwd="/", **as_account(OTHER))
        self.addCleanup(impostor.stdout.close)
        self.addCleanup(impostor.wait)
        self.addCleanup(impostor.kill)
        self.assertEqual(impostor.stdout.readline(), "listens\n")
        environment = self.environment("second") | {"HOME": "/nonexistent"}
        asked = subprocess.run([self.launcher, "ps", "--address", f"unix:{path}"], env=environment, capture_output=True, text=True,
                               timeout=LIMIT_S, check=False, cwd="/", **as_account(SECOND))
        self.assertEqual(asked.returncode, 3)
        self.assertIn("listens there, and only this account and root are trusted", asked.stderr)
        self.assertEqual(impostor.stdout.readline(), "b''\n")

    def test_everything_on_one_machine_is_found_without_an_option(self):
        """By an ordinary account that has not run `init`: its jobs and nobody else's."""
        home = self.path("home")
        os.mkdir(home, 0o700)
        account = pwd.getpwnam(SECOND)
        os.chown(home, account.pw_uid, account.pw_gid)
        environment = {"PATH": os.environ["PATH"], "HOME": home, "XDG_RUNTIME_DIR": home, "TMPDIR": home}
        for words in (["coordinator"], ["agent", "--slots", "1", "--name", "n1"]):
            with open(self.path(words[0] + ".second.log"), "wb") as log:
                self.daemons.append(subprocess.Popen([self.launcher, *words], env=environment, cwd=home, stdin=subprocess.DEVNULL,
                                                     stdout=log, stderr=log, **as_account(SECOND)))
            wait_for(lambda said=self.path("coordinator.second.log"): b"listening on unix:" in read_file(said), LIMIT_S, "it to listen")
        wait_for(lambda: b"node n1: connected" in read_file(self.path("coordinator.second.log")), LIMIT_S, "the agent")

        def say(*words):
            return subprocess.run([self.launcher, *words], env=environment, cwd=home, capture_output=True, text=True, timeout=LIMIT_S, check=False,
                                  **as_account(SECOND))
        done = say("-n", "1", "--address", "auto", "--", "id", "-un")
        self.assertEqual((done.returncode, done.stdout), (0, f"0: {SECOND}\n"), done.stderr)
        # A run that is named and not here is the coordinator's; the newest of a cluster is nobody's "latest".
        run = re.search(r"run (\S+)", done.stderr).group(1).rstrip(":")
        shown = say("status", run)
        self.assertEqual((shown.returncode, run in shown.stdout), (0, True), shown.stderr)
        for words, told in (["status"], "; a coordinator runs here: --address auto\n"), (["stop", "no-such"], "; nor has the coordinator that runs here such a run\n"):
            refused = say(*words)
            self.assertEqual((refused.returncode, refused.stderr.endswith(told)), (4, True), refused.stderr)
        audit = os.path.join(home, ".local", "state", "sgd-launch", "coordinator", "audit.jsonl")
        self.assertEqual([(line["who"], line["uid"]) for line in wait_for_lines(audit, 1)], [(SECOND, account.pw_uid)])


class ForgottenRunsTest(TlsCluster):
    """A node with a good certificate, and runs that it never held: also when the coordinator's machine has forgotten them."""

    def setUp(self):
        super().setUp()
        self.metrics_port = free_port()
        self.start_coordinator("--metrics-port", self.metrics_port)
        for name in ("n1", "n2"):
            self.join(self.token("--name", name), self.path(name, "identity"))
        agent = self.start("n1", *AGENT, "--join", self.address, "--state-dir", self.path("n1"), "--slots", 1)
        self.wait_for_words("coordinator", "node n1: connected")
        script = "mkdir -p $SGD_RUN_DIR/checkpoints; echo a secret line"
        done = self.run_verb("-n", 1, "--address", self.address, "--", "sh", "-c", script)
        self.run = re.search(r"run (\S+):", done.stderr).group(1)
        self.kill(agent)

    def restart(self):
        self.daemons[0].terminate()
        self.assertEqual(self.daemons[0].wait(LIMIT_S), 0)
        self.daemons.pop(0)
        self.start_coordinator("--metrics-port", self.metrics_port)
        self.daemons.insert(0, self.daemons.pop())

    def refused(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=LIMIT_S) as answer:
            found = re.search(r'frames_refused_total\{reason="file_foreign_run"\} (\d+)', answer.read().decode())
        return int(found.group(1)) if found else 0

    def files_of(self, node, *said):
        """What the coordinator answers to the first thing that `node` says of files."""
        with Wire(self.address, self.path(node, "identity", "identity.pem")) as wire:
            wire.send(HELLO, {"type": "files", "node": node, "incarnation": 7}, *said)
            while True:
                message = wire.read()
                if message["type"] not in ("hello", "keep"):
                    return message

    def put(self, file, content):
        return ({"type": "put", "run": self.run, "file": file, "offset": 0, "bytes": len(content), "last": True,
                 "crc32c": checksum(self.run, file, 0, content)}, frame(content, CHUNK))

    def test_a_node_neither_reads_nor_forges_what_it_never_held(self):
        folder = self.path("state", "runs", self.run)
        log = "logs/gen-0001/rank-0000.log"
        planted = "checkpoints/step-000000000900-gen-0009"
        attacks = {
            "puts a log": self.put("logs/gen-0002/rank-0000.log", b"forged"),
            "appends to a log": self.put(log, b"forged"),
            "plants a newer checkpoint": self.put(planted + "/model.safetensors", b"x"),
            "says that it is whole": ({"type": "checkpoint_done", "run": self.run, "path": planted},),
            "reads a checkpoint": ({"type": "get", "run": self.run, "path": planted},),
            "reads a file": ({"type": "get", "run": self.run, "path": planted, "file": "model.safetensors", "offset": 0, "bytes": 9},),
            "asks how much is there": ({"type": "query", "run": self.run, "file": log},),
            "says that all is sent": ({"type": "all_sent", "run": self.run},)}
        before = tree_of(folder)
        for life in range(4):
            held = self.refused()
            for name, said in attacks.items():
                with self.subTest(name, life=life):
                    answer = self.files_of("n2", *said)
                    self.assertEqual((answer["type"], answer["run"]), ("refused", self.run))
                    self.assertIn("no rank on this node", answer["reason"])
            self.assertEqual(self.refused(), held + len(attacks))
            self.assertEqual(tree_of(folder), before)
            self.restart()
        # The node that held it is known as long: what it still has is taken.
        self.assertEqual(self.files_of("n1", *self.put("logs/gen-0001/late.log", b"late"))["type"], "have")
        self.assertEqual(read_file(os.path.join(folder, "logs", "gen-0001", "late.log")), b"late")


@unittest.skipIf(not can_install(), "accounts as they are installed are needed")
class InstalledUnitsTest(TlsCluster):
    """The daemons as scripts/systemd starts them; and a job."""

    def setUp(self):
        super().setUp()
        self.units = InstalledUnits(self.folder)
        self.launcher = self.units.launcher

    def start_unit(self, name, folder, **variables):
        self.daemons.append(self.units.start(name, folder, self.path(name + ".log"), **variables))
        return self.daemons[-1]

    def test_a_job_opens_no_key(self):
        self.run_verb("init", "--state-dir", self.state)
        coordinator = self.start_unit("coordinator", self.state, SGD_LISTEN="127.0.0.1:0", SGD_METRICS_PORT="0")
        found = wait_for(lambda: re.search(r"listening on (127\.0\.0\.1:\d+)", self.said("coordinator")), LIMIT_S, "the port")
        self.address = found.group(1)
        self.join(self.token("--name", "n1"), self.path("agent-state", "identity"))
        agent = self.start_unit("agent", self.path("agent-state"), SGD_COORDINATOR=self.address)
        self.wait_for_words("coordinator", "node n1: connected")
        wanted = [self.path("state", *parts) for parts in (("ca", "ca.key"), ("identity", "identity.pem"), ("coordinator.db",),
                                                           ("tokens.json",), ("issued.jsonl",), ("audit.jsonl",))]
        wanted += [self.path("agent-state", *parts) for parts in (("identity", "identity.pem"), ("agent.journal",))]
        wait_for(lambda: all(os.path.exists(path) for path in wanted), LIMIT_S, lambda: f"all files: {[*filter(os.path.exists, wanted)]}")
        wanted += [f"/proc/{daemon.pid}/{what}" for daemon in (coordinator, agent) for what in ("environ", "mem", "maps")]
        script = "id -un; for f; do if head -c 1 $f > /dev/null 2>&1; then echo read $f; else echo closed; fi; done;" \
                 f" for p in {coordinator.pid} {agent.pid}; do kill -0 $p 2> /dev/null && echo may signal $p; done;" \
                 " echo x > $SGD_RUN_DIR/own && cat $SGD_RUN_DIR/own"
        done = self.run_verb("-n", 1, "--no-prefix", "--address", self.address, "--", "sh", "-c", script, "sh", *wanted)
        self.assertEqual(done.stdout.split("\n")[:-1], ["sgd-launch-jobs", *["closed"] * len(wanted), "x"])


@unittest.skipIf(os.geteuid() != 0, "several accounts are needed")
class KeysTest(TlsCluster):
    """An agent starts no job under an account that owns its key."""

    def test_it_refuses_and_says_how_to_mend_it(self):
        self.start_coordinator()
        os.chmod(self.folder, 0o755)
        os.mkdir(self.path("bin"))
        self.launcher = shutil.copy(LAUNCHER, self.path("bin"))
        state = self.path("agent")
        self.join(self.token("--name", "n1"), os.path.join(state, "identity"))
        account = pwd.getpwnam(SECOND)
        for place, _, names in os.walk(state):
            for each in (place, *(os.path.join(place, one) for one in names)):
                os.chown(each, account.pw_uid, account.pw_gid)
        refused = self.run_verb("agent", "--join", self.address, "--state-dir", state, "--run-as", SECOND, code=2)
        self.assertIn(f"--run-as: {SECOND} owns this node's key", refused.stderr)
        words = [self.launcher, "agent", "--join", self.address, "--state-dir", state]
        environment = {"PATH": os.environ["PATH"], "HOME": state, "XDG_RUNTIME_DIR": state}
        done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd="/", **as_account(SECOND))
        self.assertEqual(done.returncode, 2)
        self.assertIn("any job could speak as this node", done.stderr)
        # Nor is it another matter where the coordinator is reached without certificates.
        done = subprocess.run([self.launcher, "agent", "--join", f"unix:{state}/x.sock", "--state-dir", state], env=environment,
                              capture_output=True, text=True, timeout=LIMIT_S, check=False, cwd="/", **as_account(SECOND))
        self.assertEqual(done.returncode, 2)
        self.assertIn("owns this node's key", done.stderr)
        self.assertIn("--jobs-share-account", done.stderr)
        agent = subprocess.Popen([*words, "--jobs-share-account"], env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                 stderr=subprocess.DEVNULL, cwd="/", **as_account(SECOND))
        self.daemons.append(agent)
        self.wait_for_words("coordinator", "node n1: connected")


def wait_for_lines(path, count):
    """All lines, as soon as there are `count`: who asked has its answer before the line is in the audit log."""
    wait_for(lambda: len(read_lines(path)) >= count, LIMIT_S, f"{count} lines of {path}")
    return read_lines(path)


def tree_of(folder):
    """Every file below it, with its bytes."""
    return {os.path.join(place, name): read_file(os.path.join(place, name)) for place, _, names in os.walk(folder) for name in names}


if __name__ == "__main__":
    unittest.main()
