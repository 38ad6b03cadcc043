"""Attacks from the machine itself: ranks, other accounts, and a shell that leaves everything open. Each is refused, and shows at the attacker."""

import contextlib
import glob
import json
import os
import pwd
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cgroup import may_make_groups
from harness import LAUNCHER, LIMIT_S, LaunchTest, command_of, parent_of, read_file, read_lines, wait_for
from root_agent import RootAgent

PERSON = "nobody"   # Who owns the runs.
STRANGER = 54321    # Who has nothing to do with them.
MASK = (1 << 64) - 1
PYTHON = "/usr/bin/python3"  # Which everybody may execute.
SAY_HELLO = """
import json, socket, sys
link = socket.socket(socket.AF_UNIX)
link.settimeout(20)
try:
    link.connect(sys.argv[1])
    link.sendall(json.dumps({"type": "hello", "token": sys.argv[2], "pid": int(sys.argv[3]), "protocol": 1, "version": "x"}).encode() + b"\\n")
    print(link.recv(1 << 16)[:100])
except OSError as error:
    print(type(error).__name__)
"""
# Leaves a process that has left its session and its parents and emptied its environment; a second start looks for the first one's.
LEAVE_A_STRAY = """
import glob, os, sys, time
name = sys.argv[1]
def living():
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            with open(path, "rb") as file:
                yield file.read().split(b"\\0")[0].decode(errors="replace")
        except OSError:
            pass
if name in living():
    print("beside a stray", flush=True)
elif os.path.exists(sys.argv[2]):
    print("alone", flush=True)
if not os.path.exists(sys.argv[2]):
    open(sys.argv[2], "w").close()
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.closerange(0, 100)
            os.execve("/bin/sleep", [name, "1000"], {})
        os._exit(0)
    os.wait()
    while name not in living():
        time.sleep(0.01)
    print("left one", flush=True)
while not os.path.exists(sys.argv[2] + "-end"):
    time.sleep(0.02)
"""
HOLD = "echo link=$SGD_LINK token=$SGD_TOKEN pid=$$; until [ -e $SGD_RUN_DIR/end ]; do sleep 0.05; done"
HELD = r"link=(\S+) token=(\S+) pid=(\S+)\n"


def rotl(value, count):
    return (value << count | value >> (64 - count)) & MASK


def next_of_xoshiro(tokens):
    """The token that follows two of a xoshiro256** generator: four outputs are its whole state."""
    unscrambled = []
    for word in (int(token[at : at + 16], 16) for token in tokens for at in (0, 16)):
        unscrambled.append(rotl(word * pow(9, -1, 1 << 64) & MASK, 64 - 7) * pow(5, -1, 1 << 64) & MASK)
    b0, b1, b2, b3 = unscrambled
    ac, cd = b1 ^ b0, b2 ^ b1 ^ b0 ^ (b0 << 17 & MASK)
    d0 = rotl(b3 ^ b2 ^ ac ^ b1 ^ (b0 << 17 & MASK) ^ (b1 << 17 & MASK), 64 - 45) ^ b0
    state = [ac ^ cd ^ d0, b0, cd ^ d0, d0]
    words = []
    for _ in range(6):
        words.append(rotl(state[1] * 5 & MASK, 7) * 9 & MASK)
        shifted = state[1] << 17 & MASK
        state[2] ^= state[0]
        state[3] ^= state[1]
        state[1] ^= state[2]
        state[0] ^= state[3]
        state[2] ^= shifted
        state[3] = rotl(state[3], 45)
    return f"{words[4]:016x}{words[5]:016x}"


class OwnMachineTest(LaunchTest):
    def test_two_tokens_do_not_give_the_third(self):
        launch = self.run_to_end("-n", 3, "--", "sh", "-c", "echo $SGD_TOKEN")
        tokens = [launch.log(rank).decode().strip() for rank in range(3)]
        self.assertRegex(tokens[0], "^[0-9a-f]{32}$")
        self.assertNotEqual(next_of_xoshiro(tokens[:2]), tokens[2])

    def test_a_token_is_of_no_use_outside_its_run(self):
        """Not even to the same account: only processes below the run's keeper are its ranks."""
        launch = self.start("-n", 1, "--", "sh", "-c", HOLD)
        found = wait_for(lambda: re.search(HELD, launch.log(0).decode()), LIMIT_S, "the token").groups()
        done = subprocess.run([PYTHON, "-c", SAY_HELLO, *found], capture_output=True, text=True, timeout=LIMIT_S, check=False)
        self.assertEqual(done.stdout.strip(), "b''")
        with open(self.path("run", "end"), "w", encoding="ascii"):
            pass
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertIn("it is no process of its run", launch.stderr())

    def test_nothing_of_a_run_is_open_to_others_whatever_the_umask(self):
        before = os.umask(0)
        self.addCleanup(os.umask, before)
        self.run_to_end("-n", 1, "--", "true")
        self.assertEqual(stat.S_IMODE(os.stat(self.path("run")).st_mode), 0o700)
        self.run_to_end("-n", 1, "--", "true", run_dir=None)
        for name in os.listdir(self.path("runs")):
            self.assertEqual(stat.S_IMODE(os.stat(self.path("runs", name)).st_mode), 0o700, name)
        self.assertEqual(stat.S_IMODE(os.stat(self.path("runs")).st_mode), 0o700)

    def test_what_is_refused_does_not_speak_to_the_terminal(self):
        """Names that somebody else may have made up, for a script to pass on."""
        evil = "\x1b]0;owned\x07\x1b[2Jx"
        for words in (("status", evil), ("stop", evil), ("resume", evil), ("logs", evil), ("metrics", evil), ("checkpoints", "get", evil, "to"), (f"{evil}.json",),
                      ("run", f"./{evil}"), ("--nnodes", "2", "--node-rank", "0", "--master-addr", "h", "--rdzv-secret-file", evil, "--", "true")):
            with self.subTest(words=words):
                launch = self.start(*words, run_dir=None)
                self.assertNotEqual(launch.wait(), 0, launch.said())
                self.assertNotIn("\x1b", launch.said())
                self.assertIn("\\x1b]0;owned", launch.stderr())

    def test_what_ranks_write_does_not_speak_to_the_terminal(self):
        """In blocks of our own and on a terminal; a file and a pipe get every byte."""
        evil = "\\r\\033]0;owned\\007\\033[2J\\233evil"
        launch = self.run_to_end("-n", 1, "--", "sh", "-c", f"printf '{evil}\\n'; exit 3", expect=1)
        self.assertIn(b"\x1b]0;owned\x07", launch.log(0))
        self.assertIn(b"\x1b]0;owned\x07", launch.stdout())  # A pipe's or a file's.
        block = launch.stderr()
        self.assertIn("\\x1b]0;owned", block)
        self.assertNotIn("\x1b", block)
        self.assertNotIn("\x9b", block)
        for arguments in (["logs", self.path("run")], ["-n", "1", "--", "sh", "-c", f"printf '{evil}\\n'"]):
            shown = self.on_terminal(*arguments)
            self.assertIn(b"evil", shown, arguments)
            self.assertNotIn(b"\x1b]0;owned", shown, arguments)
            self.assertNotIn(b"\x1b[2J", shown, arguments)

    def on_terminal(self, *arguments):
        """What sgd-launch writes where stdout is a terminal."""
        import pty

        pid, terminal = pty.fork()
        if pid == 0:
            os.chdir(self.folder)
            os.execv(LAUNCHER, [LAUNCHER, *arguments])
        shown = b""
        while True:
            try:
                part = os.read(terminal, 1 << 16)
            except OSError:
                break
            if not part:
                break
            shown += part
        os.close(terminal)
        os.waitpid(pid, 0)
        return shown


@unittest.skipIf(os.geteuid() != 0, "of other accounts, which root alone can be")
class SquattedFolderTest(LaunchTest):
    def test_a_folder_that_somebody_else_made_first_locks_nobody_out(self):
        """/tmp/sgd-UID of a person belongs to another one: a run finds another place, and its owner's other terminals find it there."""
        person = 10_000_000 + os.getpid()  # Nobody else's meanwhile, whose folder would be another test's.
        squatted = f"/tmp/sgd-{person}"
        os.mkdir(squatted, 0o777)
        self.addCleanup(lambda: [shutil.rmtree(path, ignore_errors=True) for path in (squatted, *glob.glob(squatted + "-*"))])
        os.chown(squatted, STRANGER, STRANGER)
        os.chmod(self.folder, 0o755)
        launcher = shutil.copy(LAUNCHER, self.path("sgd-launch"))
        home = self.path("home")
        os.mkdir(home)
        os.chown(home, person, person)
        environment = {"PATH": os.environ["PATH"], "HOME": home}

        def start(*arguments):
            return subprocess.Popen([launcher, *arguments], env=environment, cwd=home, user=person, group=person, extra_groups=[],
                                    stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

        run = start("-n", "1", "--", "sh", "-c", HOLD)
        self.addCleanup(run.kill)
        wait_for(lambda: run.poll() is not None or b"token=" in read_file(os.path.join(home, "runs", "latest", "logs", "gen-0001", "rank-0000.log")),
                 LIMIT_S, "the run's rank")
        self.assertIsNone(run.poll(), run.communicate() if run.poll() is not None else "")

        def state():
            asked = start("status", "--json")
            said, errors = asked.communicate(timeout=LIMIT_S)
            self.assertEqual(asked.returncode, 0, errors)
            return json.loads(said)["state"]
        wait_for(lambda: state() == "running", LIMIT_S, "the run to be seen by another terminal")
        with open(os.path.join(home, "runs", "latest", "end"), "w", encoding="ascii"):
            pass
        said, errors = run.communicate(timeout=LIMIT_S)
        self.assertEqual(run.returncode, 0, errors)
        self.assertEqual(os.listdir(squatted), [])


@unittest.skipIf(os.geteuid() != 0, "of other accounts, which root alone can be")
class ExchangedFolderTest(LaunchTest):
    def test_a_link_in_place_of_a_run_folder_leads_root_nowhere(self):
        """Root runs in a folder of somebody else's, who renames the run's folder and puts a link there."""
        os.mkdir(self.path("home"))
        os.chown(self.path("home"), STRANGER, STRANGER)
        os.mkdir(self.path("of-root"))
        launch = self.start("-n", 1, "--max-failures", 2, "--", "sh", "-c", "echo begun; until [ -e $SGD_RUN_DIR/end ]; do sleep 0.05; done; exit 3",
                            run_dir="home/run")
        launch.wait_for_event("worker_started")
        os.rename(self.path("home", "run"), self.path("home", "moved"))
        os.symlink(self.path("of-root"), self.path("home", "run"))
        os.lchown(self.path("home", "run"), STRANGER, STRANGER)
        with open(self.path("home", "moved", "end"), "w", encoding="ascii"):
            pass
        self.assertNotEqual(launch.wait(), 0)  # After three generations, with their logs, and a summary.
        self.assertEqual(os.listdir(self.path("of-root")), [])
        self.assertIn("summary.json", os.listdir(self.path("home", "moved")))
        self.assertEqual(sorted(os.listdir(self.path("home", "moved", "logs"))), ["gen-0001", "gen-0002", "gen-0003"])

    def test_a_folder_that_somebody_else_has_put_there_is_not_roots_to_fill(self):
        os.mkdir(self.path("home"))
        os.mkdir(self.path("home", "run"))
        for name in ("home", "home/run"):
            os.chown(self.path(name), STRANGER, STRANGER)
        launch = self.start("-n", 1, "--", "true", run_dir="home/run")
        self.assertNotEqual(launch.wait(), 0)
        self.assertIn("and root would write into it", launch.stderr())


    def links_of_a_stranger(self):
        """A stranger's folder, with links in it to one of root's."""
        for name in ("home", "of-root"):
            os.mkdir(self.path(name))
        for name in ("link", "logs"):
            os.symlink(self.path("of-root"), self.path("home", name))
            os.lchown(self.path("home", name), STRANGER, STRANGER)
        os.chown(self.path("home"), STRANGER, STRANGER)

    def refused(self, launch):
        self.assertEqual(launch.wait(), 1, launch.said())
        self.assertIn(f"is a link of user {STRANGER}, and root would write where it leads to", launch.stderr())
        self.assertEqual(os.listdir(self.path("of-root")), [])

    def test_a_link_in_place_of_a_folder_for_logs_leads_root_nowhere(self):
        self.links_of_a_stranger()
        self.refused(self.start("-n", 1, "--max-failures", 0, "--log-dir", self.path("home", "link"), "--redirects", 3, "--", "echo", "x"))
        os.symlink("of-root", self.path("own"))
        self.run_to_end("-n", 1, "--log-dir", self.path("own"), "--redirects", 3, "--", "echo", "x", run_dir="again")
        self.assertEqual(len(os.listdir(self.path("of-root"))), 1)

    def test_a_link_in_place_of_copied_logs_leads_root_nowhere(self):
        self.run_to_end("-n", 1, "--", "echo", "x")
        self.run_to_end("logs", self.path("run"), "--to", self.path("copy"), run_dir=None)  # Which says whose logs it has.
        self.assertEqual(read_file(self.path("copy", "logs", "gen-0001", "rank-0000.log")), b"x\n")
        self.links_of_a_stranger()
        shutil.copy(self.path("copy", "run.json"), self.path("home"))
        self.refused(self.start("logs", self.path("run"), "--to", self.path("home"), run_dir=None))
        self.refused(self.start("logs", self.path("run"), "--to", self.path("home", "link", "deep"), run_dir=None))


@unittest.skipIf(os.geteuid() != 0, "of an agent that root has started")
class OtherAccountsTest(RootAgent):
    def setUp(self):
        super().setUp()
        self.make_person(PERSON)
        os.environ["SGD_SECRET_OF_AGENT"] = "x"
        self.addCleanup(os.environ.pop, "SGD_SECRET_OF_AGENT")

    def hello_as(self, uid, *found):
        done = subprocess.run([PYTHON, "-c", SAY_HELLO, *found], capture_output=True, text=True, timeout=LIMIT_S, user=uid, group=uid,
                              extra_groups=[], cwd="/", check=False)
        return done.stdout.strip()

    def test_a_runs_socket_is_its_accounts_and_speaks_to_its_processes_alone(self):
        self.start_agent()
        account = pwd.getpwnam(PERSON)
        self.start("client", "-n", 1, "--address", self.address, "--", "sh", "-c", HOLD, person=PERSON)
        found = wait_for(lambda: re.search(HELD, self.said("client")), LIMIT_S, "the token").groups()
        mine = os.stat(found[0])
        self.assertEqual((mine.st_uid, stat.S_IMODE(mine.st_mode)), (account.pw_uid, 0o600))
        folder = os.path.dirname(found[0])
        for name in os.listdir(folder):
            self.assertFalse(os.lstat(os.path.join(folder, name)).st_mode & 0o007 and not os.path.islink(os.path.join(folder, name)), name)
        self.assertEqual(self.hello_as(STRANGER, *found), "PermissionError")
        self.assertEqual(self.hello_as(account.pw_uid, *found), "b''")
        self.wait_for_words("agent", "it is no process of its run")
        run, = os.listdir(self.path("agent", "runs"))
        with open(self.path("agent", "runs", run, "end"), "w", encoding="ascii"):
            pass
        wait_for(lambda: "finished in" in self.said("client"), LIMIT_S, "the run's end")

    def test_a_keeper_has_nothing_of_the_agents_descriptors(self):
        """Its run's processes have its account, and may take what it has (pidfd_getfd)."""
        self.start_agent()
        self.start("client", "-n", 1, "--address", self.address, "--", "sh", "-c", HOLD, person=PERSON)
        rank = int(wait_for(lambda: re.search(HELD, self.said("client")), LIMIT_S, "the rank").group(3))
        keeper = parent_of(rank)
        self.assertEqual(command_of(keeper)[1], "keeper")

        def descriptors(pid):
            return {int(name): os.readlink(f"/proc/{pid}/fd/{name}") for name in os.listdir(f"/proc/{pid}/fd")}
        its = descriptors(keeper)
        agents = descriptors(self.agent.pid)
        self.assertEqual(agents[1], self.path("agent.log"))
        self.assertEqual(its[0], "/dev/null")
        for number in (1, 2):
            self.assertTrue(its[number].startswith("/memfd:"), its)
        for what in its.values():
            self.assertNotIn(what, {agents[number] for number in (0, 1, 2)} - {"/dev/null"}, its)
            self.assertFalse(what.startswith(("/dev/pts/", "/dev/tty", "/dev/console")), its)
        run, = os.listdir(self.path("agent", "runs"))
        with open(self.path("agent", "runs", run, "end"), "w", encoding="ascii"):
            pass
        wait_for(lambda: "finished in" in self.said("client"), LIMIT_S, "the run's end")

    def test_who_takes_a_reserved_port_is_named(self):
        """Nothing keeps another account from listening there before rank 0 does: the run fails, and says for whom."""
        self.start_agent()
        script = "import os, socket, time\nprint('port', os.environ['MASTER_PORT'], flush=True)\n" \
                 f"while not os.path.exists({self.path('go')!r}): time.sleep(0.02)\nsocket.create_server(('', int(os.environ['MASTER_PORT'])))\n"
        run = self.start("client", "-n", 1, "--max-failures", 0, "--address", self.address, "--", PYTHON, "-c", script, person=PERSON)
        port = wait_for(lambda: re.search(r"port (\d+)", self.said("client")), LIMIT_S, "the port").group(1)
        take = "import socket, sys\nwith socket.create_server(('', int(sys.argv[1]))): print('taken', flush=True); sys.stdin.read()\n"
        taker = subprocess.Popen([PYTHON, "-c", take, port], user=STRANGER, group=STRANGER, extra_groups=[], cwd="/", stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        self.addCleanup(taker.communicate)
        self.assertEqual(taker.stdout.readline(), "taken\n")
        with open(self.path("go"), "w", encoding="ascii"):
            pass
        self.assertEqual(run.wait(LIMIT_S), 1, self.said("client"))
        self.assertIn("Address already in use", self.said("client"))
        self.assertIn(f"user {STRANGER} of this node has taken port {port}, which was reserved for its run (MASTER_PORT)", self.said("client"))

    def test_a_job_knows_nothing_of_the_agents_environment_under_the_agents_own_account(self):
        self.start_agent("--allow-root")
        said = self.submit("sh", "-c", "env; tr '\\0' '\\n' < /proc/$PPID/environ", person="operator").stdout
        self.assertIn("RANK=0", said)
        self.assertIn("PATH=", said)
        self.assertNotIn("SGD_SECRET_OF_AGENT", said)
        self.assertNotIn("XDG_CONFIG_HOME", said)


@unittest.skipIf(os.geteuid() != 0, "of other accounts, which root alone can be")
class StrayTest(RootAgent):
    """A keeper is killed, and what its rank had hidden does not run beside the next generation."""

    def setUp(self):
        super().setUp()
        self.name = f"sgd-stray-{os.getpid()}-{id(self)}"
        self.addCleanup(self.end_strays)
        self.script = self.path("stray.py")
        with open(self.script, "w", encoding="ascii") as file:
            file.write(LEAVE_A_STRAY)
        self.user = 0

    def strays(self):
        return [int(pid) for pid in os.listdir("/proc") if pid.isdigit() and command_of(pid)[:1] == [self.name]]

    def end_strays(self):
        for pid in self.strays():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, 9)

    def start_agent(self):
        """As root, or as a user of no rights at all."""
        options = ["--allow-root" if self.user == 0 else "--jobs-share-account"]
        for folder, _, files in os.walk(self.path("agent")):
            for path in [folder, *(os.path.join(folder, name) for name in files)]:
                with contextlib.suppress(FileNotFoundError):  # A keeper may be at work in it.
                    os.lchown(path, self.user, self.user)
        with open(self.path("agent.log"), "ab") as log:
            agent = subprocess.Popen([self.launcher, "agent", "--join", self.address, "--state-dir", self.path("agent"), "--slots", "2", *options],
                                     env=self.environment("daemon") | {"XDG_RUNTIME_DIR": ""}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                     cwd=self.folder, user=self.user, group=self.user, extra_groups=[])
        self.daemons.append(agent)
        self.wait_for_words("coordinator", "node n1: connected")
        return agent

    def leave_one(self):
        mark = os.path.join("/tmp", self.name)
        self.addCleanup(lambda: [os.unlink(path) for path in (mark, mark + "-end") if os.path.exists(path)])
        self.mark = mark
        self.start("client", "-n", 1, "--max-failures", 3, "--address", self.address, "--", PYTHON, self.script, self.name, mark,
                   person="operator")
        self.wait_for_words("client", "left one")
        started = wait_for(lambda: [event for event in self.events() if event["event"] == "worker_started"], LIMIT_S, "the rank's start")
        return parent_of(started[0]["pid"])

    def events(self):
        return [event for folder, _, _ in os.walk(self.path("state", "runs")) for event in read_lines(os.path.join(folder, "events.jsonl"))]

    def end(self):
        with open(self.mark + "-end", "w", encoding="ascii"):
            pass
        wait_for(lambda: "finished in" in self.said("client"), LIMIT_S, f"the run's end: {self.said('client')}")

    def check_alone(self):
        wait_for(lambda: re.search("alone|beside", self.said("client")), LIMIT_S, "the second start")
        self.assertIn("alone", self.said("client"))
        self.assertEqual(self.strays(), [])

    def test_what_a_keeper_of_this_agent_leaves_is_killed_without_control_groups(self):
        self.user = STRANGER
        self.start_agent()
        os.kill(self.leave_one(), 9)
        self.check_alone()
        self.end()
        self.wait_for_words("agent", "nothing of it is left here")

    def test_what_cannot_be_seen_after_a_takeover_is_said(self):
        self.user = STRANGER
        agent = self.start_agent()
        keeper = self.leave_one()
        self.kill(agent)
        self.start_agent()
        self.wait_for_words("agent", "this one takes over")
        os.kill(keeper, 9)
        wait_for(lambda: re.search("alone|beside", self.said("client")), LIMIT_S, "the second start")
        self.end()
        self.wait_for_words("agent", "cannot be seen")
        self.wait_for_words("agent", "may be left")
        self.assertNotIn("nothing of it is left", self.said("agent"))

    def test_what_cannot_be_seen_is_not_forgotten_when_a_run_leaves_and_comes_back(self):
        """A node that was silent for too long, and is drained, gives its run up; later it gets it again."""
        self.user = STRANGER
        agent = self.start_agent()
        keeper = self.leave_one()
        self.kill(agent)
        agent = self.start_agent()
        self.wait_for_words("agent", "this one takes over")
        os.kill(keeper, 9)
        wait_for(lambda: re.search("alone|beside", self.said("client")), LIMIT_S, "the second start")
        agent.send_signal(signal.SIGSTOP)
        self.addCleanup(agent.send_signal, signal.SIGCONT)
        wait_for(lambda: any(event["event"] == "node_lost" for event in self.events()), LIMIT_S, "the node to be lost")
        self.run_verb("nodes", "drain", "n1", "--address", self.address)
        agent.send_signal(signal.SIGCONT)
        self.wait_for_words("agent", "may be left")
        self.run_verb("nodes", "undrain", "n1", "--address", self.address)
        self.end()
        wait_for(lambda: len(re.findall("may be left|nothing of it is left", self.said("agent"))) > 1, LIMIT_S, "the run's second end here")
        self.assertNotIn("nothing of it is left", self.said("agent"))

    @unittest.skipUnless(may_make_groups(), "no control groups can be made here")
    def test_a_control_group_shows_all_even_after_a_takeover(self):
        agent = self.start_agent()
        keeper = self.leave_one()
        self.kill(agent)
        self.start_agent()
        self.wait_for_words("agent", "this one takes over")
        os.kill(keeper, 9)
        self.check_alone()
        self.end()
        self.wait_for_words("agent", "nothing of it is left here")
        self.assertNotIn("cannot be seen", self.said("agent"))


if __name__ == "__main__":
    unittest.main()
