"""`sgd-launch warm`: an interpreter that is kept between runs serves those that it fits, and what a run sees, and loses, is the same as
without it. Whatever does not fit starts its own, with a reason."""

import contextlib
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import time
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from attacker import CHUNK, frame
from harness import LAUNCHER, LIMIT_S, MARK, LaunchTest, marked, parent_of, process_state, read_file, wait_for
from installed_units import ORDINARY

# What a rank can see of how it was started. The keeper is the parent of a rank; whose child that is tells who started it.
SHOW = """
import sys
forked = "decimal" in sys.modules
import decimal, json, os
print(json.dumps({"forked": forked, "keeper": os.getppid(), "argv": sys.argv, "cwd": os.getcwd(), "path": sys.path,
                  "environment": dict(os.environ), "fds": sorted(map(int, os.listdir("/proc/self/fd")))[:3]}))
"""

ECHO = "import decimal, sys\nprint(sys.stdin.read().upper(), end='')\nsys.exit(int(sys.argv[1]))\n"

WAITS = """
import decimal, os, sys, time
open(sys.argv[1] + os.environ["RANK"], "w").close()
while not os.path.exists(sys.argv[2]):
    time.sleep(0.01)
"""

# Variables that each run has of its own.
OWN = {"SGD_LINK", "SGD_TOKEN", "SGD_RUN_ID", "SGD_RUN_DIR", "SGD_CHECKPOINT_DIR", "SGD_KEEPER", "TORCHELASTIC_RUN_ID", "MASTER_PORT",
       "TORCHELASTIC_ERROR_FILE"}
NOT_USED = "the interpreter that is held ready is not used: "


def python_minor():
    said = subprocess.run(["/usr/bin/python3", "-c", "import sys; print(sys.version_info[1])"], capture_output=True, check=True)
    return int(said.stdout)


class WarmTest(LaunchTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("sockets"), 0o700)
        self.mark = uuid.uuid4().hex
        self.addCleanup(self.end_server)

    def environment(self, **more):
        return {"XDG_RUNTIME_DIR": self.path("sockets"), "XDG_CACHE_HOME": self.path("cache"), MARK: self.mark, **more}

    def warm(self, *arguments, expect=0, folder=None, **more):
        """(stdout, stderr) of `sgd-launch warm`."""
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "SGD_", "OMP_"))}
        done = subprocess.run([LAUNCHER, "warm", *map(str, arguments)], capture_output=True, text=True, timeout=LIMIT_S, check=False,
                              env={**environment, **self.environment(**more)}, cwd=folder or self.folder)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def held(self):
        return json.loads(self.warm("--json")[0])

    def end_server(self):
        pids = [self.held()["pid"]]
        self.warm("--stop")
        wait_for(lambda: all(pid == 0 or process_state(pid) in ("", "Z") for pid in pids), LIMIT_S, "the warm server to end")
        wait_for(lambda: not marked(self.mark), LIMIT_S, "what it has held to end")

    def command(self, name, text, *arguments):
        return ["/usr/bin/python3", "-u", self.write(name, text), *arguments]

    def run_warm(self, *arguments, expect=0, run_dir="run", **more):
        launch = self.start(*arguments, run_dir=run_dir, env=self.environment(**more))
        self.assertEqual(launch.wait(), expect, launch.said())
        return launch

    def wait_ready(self):
        return wait_for(lambda: [one for one in self.held()["held"] if one["state"] == "ready"], LIMIT_S, "an interpreter to be ready")[0]

    def test_a_run_takes_it_and_sees_what_it_would_see_without(self):
        command = self.command("show.py", SHOW, "--lr", "0.1 x")
        said, _ = self.warm("-n", 2, "--", *command)
        self.assertRegex(said, r"show\.py --lr 0\.1 x: ready after [0-9.]+ s, [0-9]+ MiB; kept until 30m have passed without a run")
        held = self.held()
        keeper = held["held"][0]["pid"]
        self.assertEqual(parent_of(keeper), held["pid"])
        one = self.run_warm("-n", 2, "--", *command, run_dir="warm")
        self.warm("--stop")
        other = self.run_warm("-n", 2, "--", *command, run_dir="cold")
        for rank in (0, 1):
            seen, expected = json.loads(one.log(rank)), json.loads(other.log(rank))
            self.assertEqual(seen.pop("keeper"), keeper)
            self.assertNotEqual(expected.pop("keeper"), keeper)
            self.assertTrue(seen["forked"])
            for what in (seen, expected):
                what["environment"] = {name: value for name, value in what["environment"].items() if name not in OWN}
            self.assertEqual(seen, expected)
        self.assertNotIn(NOT_USED, one.stderr())

    def test_variables_that_modules_set_when_they_are_imported_are_there(self):
        folder = self.path("user", "lib", "python3.%d" % python_minor(), "site-packages")
        os.makedirs(folder)
        with open(os.path.join(folder, "sets_variable.py"), "w") as file:
            file.write("import os\nos.environ['OF_MODULE'] = os.environ.pop('OF_USER')\n")
        user = {"PYTHONUSERBASE": self.path("user"), "OF_USER": "given"}
        text = "import sys\nforked = 'sets_variable' in sys.modules\nimport os, sets_variable\n" \
               "print(forked, os.environ.get('OF_MODULE'), 'OF_USER' in os.environ)\n"
        command = self.command("sets.py", text)
        self.warm("-n", 1, "--", *command, **user)
        launch = self.run_warm("-n", 1, "--", *command, **user)
        self.assertNotIn(NOT_USED, launch.stderr())
        self.assertEqual(launch.log(0), b"True given False\n")

    def test_the_next_one_is_made_when_its_run_has_ended(self):
        command = self.command("waits.py", WAITS, self.path("up"), self.path("go"))
        self.warm("-n", 1, "--", *command)
        first = self.start("-n", 1, "--", *command, run_dir="first", env=self.environment())
        wait_for(lambda: os.path.exists(self.path("up0")), LIMIT_S, "the rank to run")
        self.assertEqual([one["state"] for one in self.held()["held"]], ["resting"])
        second = self.start("-n", 1, "--", *command, run_dir="second", env=self.environment())
        wait_for(lambda: NOT_USED + "another run has it" in second.stderr(), LIMIT_S, "the second run to say that it starts its own")
        self.write("go", "")
        self.assertEqual((first.wait(), second.wait()), (0, 0))
        self.assertEqual(self.wait_ready()["runs"], 1)
        third = self.run_warm("-n", 1, "--", *command, run_dir="third")
        self.assertNotIn(NOT_USED, third.stderr())

    def test_times_count_from_a_rank_s_own_start(self):
        text = "import logging, time\nlogging.basicConfig(format='%(relativeCreated)d')\nlogging.warning('')\n"
        command = self.command("logs.py", text)
        self.warm("-n", 1, "--", *command)
        wait_for(lambda: time.time() - os.stat(self.path("sockets", "sgd-launch", "warm.log")).st_mtime > 1, LIMIT_S, "a second to pass")
        begin = time.monotonic()
        launch = self.run_warm("-n", 1, "--", *command)
        self.assertLess(int(launch.log(0)), (time.monotonic() - begin) * 1e3)

    def test_input_output_and_exit_codes_pass(self):
        command = self.command("echo.py", ECHO, "3")
        self.warm("-n", 1, "--", *command)
        with open(self.write("input", "two\nlines\n"), "rb") as stdin:
            launch = self.start("-n", 1, "--no-prefix", "--", *command, env=self.environment(), stdin=stdin)
            self.assertEqual(launch.wait(), 1, launch.said())
        self.assertEqual(launch.stdout(), b"TWO\nLINES\n")
        self.assertEqual([event["exit_code"] for event in launch.events("worker_exited")], [3])
        self.assertNotIn(NOT_USED, launch.stderr())

    def test_another_script_and_folder_are_served_and_restarts_too(self):
        self.warm("-n", 2, "--", *self.command("one.py", "import decimal\n"))
        os.mkdir(self.path("elsewhere"))
        text = SHOW + "os.kill(os.getpid(), 9) if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.environ['RANK'] == '1' else None\n"
        command = self.command("two.py", text)
        launch = self.start("-n", 2, "--max-failures", 1, "--", *command, env=self.environment(), cwd=self.path("elsewhere"))
        self.assertEqual(launch.wait(), 0, launch.said())
        seen = json.loads(launch.log(1, 2))
        self.assertEqual((seen["forked"], seen["cwd"]), (True, self.path("elsewhere")))
        self.assertNotIn(NOT_USED, launch.stderr())
        self.assertEqual(self.wait_ready()["runs"], 1)

    def test_the_one_of_the_same_script_goes_first(self):
        for name in ("one", "two"):
            self.warm("-n", 1, "--", *self.command(f"{name}.py", "import decimal\n"))
        self.run_warm("-n", 1, "--", *self.command("two.py", "import decimal\n", "20"), run_dir="other")
        self.run_warm("-n", 1, "--", *self.command("two.py", "import decimal\n"))
        wait_for(lambda: [one["runs"] for one in self.held()["held"]] == [1, 1], LIMIT_S, f"both to have had a run: {self.held()}")

    def test_what_differs_is_said_and_started_anew(self):
        command = self.command("show.py", SHOW)
        self.warm("-n", 2, "--", *command)
        for number, (options, more, reason) in enumerate([
                (("-n", 2), {"MKL_DEBUG": "1"}, "the variable MKL_DEBUG differs"), (("-n", 1), {}, "the variable OMP_NUM_THREADS differs"),
                (("-n", 2, "--preload", "json"), {}, "--preload differs")]):
            launch = self.run_warm(*options, "--", *command, run_dir=f"run{number}", **more)
            self.assertIn(NOT_USED + reason, launch.stderr())
        files = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (files[0] - 1, files[1]))
        self.addCleanup(resource.setrlimit, resource.RLIMIT_NOFILE, files)
        launch = self.run_warm("-n", 2, "--", *command, run_dir="limits")
        self.assertIn(NOT_USED + "a limit (ulimit) differs from where it was started", launch.stderr())
        resource.setrlimit(resource.RLIMIT_NOFILE, files)
        self.assertNotIn(NOT_USED, self.run_warm("-n", 2, "--", *command, run_dir="same").stderr())

    def test_a_package_that_has_changed_is_not_served_stale(self):
        packages = subprocess.run(["/usr/bin/python3", "-m", "site", "--user-site"], env={"PYTHONUSERBASE": self.path("user")},
                                  capture_output=True, text=True, check=True).stdout.strip()
        os.makedirs(packages)
        package = os.path.join(packages, "packaged.py")
        with open(package, "w") as file:
            file.write("VALUE = 1\n")
        command = self.command("uses.py", "import sys\nforked = 'packaged' in sys.modules\nimport packaged\nprint(packaged.VALUE, forked)\n")
        more = {"PYTHONUSERBASE": self.path("user")}
        self.warm("-n", 1, "--", *command, **more)
        with open(package, "w") as file:
            file.write("VALUE = 22\n")
        launch = self.run_warm("-n", 1, "--", *command, **more)
        self.assertEqual(launch.log(0), b"22 True\n")
        self.assertIn(NOT_USED + package + " has changed since it was imported", launch.stderr())

    def test_a_module_that_was_added_is_not_missed(self):
        """What does without it has been imported."""
        packages = self.path("user", "lib", "python3.%d" % python_minor(), "site-packages")
        os.makedirs(packages)
        with open(os.path.join(packages, "does_without.py"), "w") as file:
            file.write("try:\n    import optional_extra\n    HAS = True\nexcept ImportError:\n    HAS = False\n")
        command = self.command("uses.py", "import does_without\nprint(does_without.HAS)\n")
        more = {"PYTHONUSERBASE": self.path("user")}
        self.warm("-n", 1, "--", *command, **more)
        with open(os.path.join(packages, "data.txt"), "w"):
            pass
        self.assertNotIn(NOT_USED, self.run_warm("-n", 1, "--", *command, run_dir="same", **more).stderr())
        self.wait_ready()
        with open(os.path.join(packages, "optional_extra.py"), "w"):
            pass
        launch = self.run_warm("-n", 1, "--", *command, run_dir="more", **more)
        self.assertEqual(launch.log(0), b"True\n")
        self.assertIn(NOT_USED + "modules were added to " + packages, launch.stderr())

    def check_of_its_folder(self, program, part, **more):
        """program: as it is named in both folders. It runs what lies in the one where it is started."""
        for name in ("one", "other"):
            self.write(os.path.join(name, "show.py"), "import which\nprint(which.ONE)\n")
        command = [program, "show.py"]
        self.warm("-n", 1, "--", *command, folder=self.path("one"), **more)
        for name in ("other", "one"):
            launch = self.start("-n", 1, "--", *command, env=self.environment(**more), cwd=self.path(name), run_dir="of-" + name)
            self.assertEqual(launch.wait(), 0, launch.said())
            self.assertEqual(launch.log(0).decode(), name + "\n")
            is_said = f"{NOT_USED}it was started in another folder, and {part} is relative to it: give whole paths" in launch.stderr()
            self.assertEqual((is_said, NOT_USED in launch.stderr()), (name == "other",) * 2, launch.stderr())

    def test_an_environment_of_one_folder_serves_no_other(self):
        for name in ("one", "other"):
            subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", self.path(name, ".venv")], check=True)
            packages = self.path(name, ".venv", "lib", "python3.%d" % python_minor(), "site-packages")
            self.write(os.path.join(packages, "which.py"), f"ONE = {name!r}\n")
        self.check_of_its_folder(".venv/bin/python3", ".venv/bin/python3")

    def test_modules_of_one_folder_serve_no_other(self):
        for name in ("one", "other"):
            os.makedirs(self.path(name, "src"))
            self.write(os.path.join(name, "src", "which.py"), f"ONE = {name!r}\n")
        self.check_of_its_folder("/usr/bin/python3", "PYTHONPATH", PYTHONPATH="src")

    def test_what_a_module_has_read_in_one_folder_serves_no_other(self):
        packages = self.path("user", "lib", "python3.%d" % python_minor(), "site-packages")
        os.makedirs(packages)
        self.write(os.path.join(packages, "reads_settings.py"), "import multiprocessing, os, pathlib\n"
                   "SETTINGS = pathlib.Path('settings').read_text() if os.path.exists('settings') else 'none'\n")
        text = "import sys\nforked = 'reads_settings' in sys.modules\nimport reads_settings, multiprocessing.process, os\n" \
               "print(reads_settings.SETTINGS, forked, multiprocessing.process.ORIGINAL_DIR == os.getcwd())\n"
        for name in ("with", "without", "other"):
            os.mkdir(self.path(name))
        self.write("with/settings", "own")
        more = {"PYTHONUSERBASE": self.path("user")}
        for number, (began, other, said) in enumerate((("without", "other", ""), ("with", "other", self.path("with", "settings")), ("with", "with", ""))):
            command = self.command("reads.py", text)
            self.warm("-n", 1, "--", *command, folder=self.path(began), **more)
            launch = self.start("-n", 1, "--", *command, env=self.environment(**more), cwd=self.path(other), run_dir=f"run{number}")
            self.assertEqual(launch.wait(), 0, launch.said())
            self.assertEqual(launch.log(0).decode(), "own True True\n" if other == "with" else "none True True\n")
            why = f"{NOT_USED}it was started in another folder, and a module has read {said} there"
            self.assertEqual((why in launch.stderr(), NOT_USED in launch.stderr()), (bool(said),) * 2, launch.stderr())
            self.warm("--stop")

    def test_what_imports_have_written_is_the_run_s(self):
        packages = self.path("user", "lib", "python3.%d" % python_minor(), "site-packages")
        os.makedirs(packages)
        self.write(os.path.join(packages, "writes.py"), "print('imported')\n")
        more = {"PYTHONUSERBASE": self.path("user")}
        command = self.command("uses.py", "import sys\nprint('writes' in sys.modules)\nimport writes\n")
        self.warm("-n", 2, "--", *command, **more)
        launch = self.run_warm("-n", 2, "--", *command, **more)
        self.assertNotIn(NOT_USED, launch.stderr())
        self.assertEqual((sorted(launch.log(0).split()), launch.log(1)), ([b"True", b"imported"], b"True\n"))

    def test_nothing_is_left_of_a_run_whose_launcher_or_keeper_is_killed(self):
        command = self.command("waits.py", WAITS, self.path("up"), self.path("never"))
        self.warm("-n", 2, "--", *command)
        for number, name in enumerate(("launcher", "keeper")):
            with self.subTest(name):
                keeper = self.wait_ready()["pid"]
                launch = self.start("-n", 2, "--", *command, env=self.environment(), run_dir=name)
                wait_for(lambda: all(os.path.exists(self.path(f"up{rank}")) for rank in (0, 1)), LIMIT_S, "the ranks to run")
                started = wait_for(lambda: len(launch.events("worker_started")) == 2 and launch.events("worker_started"), LIMIT_S, "both to be told of")
                ranks = [event["pid"] for event in started]
                self.assertEqual([parent_of(rank) for rank in ranks], [keeper, keeper])
                os.kill(launch.process.pid if name == "launcher" else keeper, signal.SIGKILL)
                wait_for(lambda: all(process_state(pid) in ("", "Z") for pid in [*ranks, keeper]), LIMIT_S, "the run's processes to end")
                launch.wait()
                for rank in (0, 1):
                    os.remove(self.path(f"up{rank}"))
                self.assertEqual(self.wait_ready()["runs"], number + 1)

    def test_the_server_may_be_killed_under_a_run(self):
        command = self.command("waits.py", WAITS, self.path("up"), self.path("go"))
        self.warm("-n", 1, "--", *command)
        launch = self.start("-n", 1, "--", *command, env=self.environment())
        wait_for(lambda: os.path.exists(self.path("up0")), LIMIT_S, "the rank to run")
        os.kill(self.held()["pid"], signal.SIGKILL)
        self.write("go", "")
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual(self.warm()[0], "no Python is kept ready\n")
        self.assertNotIn(NOT_USED, self.run_warm("-n", 1, "--", *command, run_dir="next").stderr())

    def test_who_stands_still_holds_no_output_open(self):
        """The server, and the keeper that it would hand over: a run starts its own, and whoever reads its output sees the end."""
        command = self.command("show.py", SHOW)
        self.warm("-n", 1, "--", *command)
        held = self.held()
        for number, pid in enumerate((held["pid"], held["held"][0]["pid"])):
            with self.subTest(number=number):
                os.kill(pid, signal.SIGSTOP)
                self.addCleanup(self.go_on, pid)
                environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "SGD_", "OMP_"))} | self.environment()
                ended = subprocess.run([LAUNCHER, "--run-dir", self.path(f"run{number}"), "-n", "1", "--", *command], stdin=subprocess.DEVNULL,
                                       capture_output=True, timeout=LIMIT_S, env=environment, cwd=self.folder, check=False)
                self.assertEqual(ended.returncode, 0, ended.stderr)
                self.assertIn(NOT_USED + "it has not answered within 2s", ended.stderr.decode())
                self.go_on(pid)

    @staticmethod
    def go_on(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)

    def test_it_ends_by_itself(self):
        command = self.command("one.py", "import decimal\n")
        self.warm("-n", 1, "--", *command)
        pid = self.held()["pid"]
        self.assertGreater(pid, 0)
        with contextlib.suppress(AssertionError):  # A verb that is held up for a second finds that the server has ended.
            self.warm("--idle", "1s", "-n", 1, "--", *command)
        wait_for(lambda: process_state(pid) in ("", "Z"), LIMIT_S, "the warm server to end by itself")
        self.assertEqual(os.listdir(self.path("sockets", "sgd-launch")).count("warm.sock"), 0)

    def test_limits(self):
        for number in range(8):
            self.warm("-n", 1, "--", *self.command(f"script{number}.py", "import decimal\n"))
        self.assertIn("8 interpreters are held already", self.warm("-n", 1, "--", *self.command("more.py", "import decimal\n"), expect=3)[1])

        def connect():
            connection = socket.socket(socket.AF_UNIX)
            self.addCleanup(connection.close)
            connection.settimeout(LIMIT_S)
            connection.connect(self.path("sockets", "sgd-launch", "warm.sock"))
            return connection

        with open(os.devnull, "rb") as file:
            one = connect()
            socket.send_fds(one, [b"\0"], [file.fileno()] * 5)
            self.assertEqual(one.recv(1), b"")
        crowd = [connect() for _ in range(64)]
        one = connect()
        self.assertEqual(one.recv(1), b"")
        for connection in crowd:
            connection.close()

        def answers():
            """Until it has noticed that the crowd is gone it turns others away."""
            with contextlib.suppress(AssertionError):
                return self.held()
            return None
        self.assertEqual(len(wait_for(answers, LIMIT_S, "the server to answer again")["held"]), 8)

    def test_what_no_launcher_would_say_ends_a_connection_or_is_refused(self):
        self.warm("-n", 1, "--", *self.command("one.py", "import decimal\n"))
        keeper = self.wait_ready()["pid"]
        odd = {"environment": {"A=B": "\0"}, "workdir": "/nowhere", "server": {"type": "start_fork_server", "argv": ["/bin/sh", "-c", "id"], "job": []}}
        for name, said in (("zeros", bytes(64)), ("noise", os.urandom(4096)), ("4 GiB", frame(b"", length=0xFFFFFFFF)), ("a chunk", frame(b"x", CHUNK)),
                           ("nothing", frame(b"")), ("half a JSON", frame(b'{"type":')), ("nested 100,000 deep", frame(b"[" * 100_000)), ("an array", frame([1])),
                           ("no type", frame({})), ("an unknown type", frame({"type": "exec"})), ("no setting", frame({"type": "take"})),
                           ("a setting of nothing", frame({"type": "keep", "name": "x", "setting": {}})),
                           ("a server that is a word", frame({"type": "keep", "name": "x", "setting": odd | {"server": "sh"}})),
                           ("a variable that is none", frame({"type": "keep", "name": "x", "setting": odd})),
                           ("an idle time beyond all times", frame({"type": "keep", "name": "x", "setting": odd, "idle_s": -1e300})),
                           ("a take of another program", frame({"type": "take", "setting": odd})),
                           ("what the server says", frame({"type": "held", "spares": []})), ("a spare's words", frame({"type": "ready"}))):
            with self.subTest(attack=name), socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(LIMIT_S)
                connection.connect(self.path("sockets", "sgd-launch", "warm.sock"))
                connection.sendall(said)
                connection.shutdown(socket.SHUT_WR)
                try:
                    answer = b"".join(iter(lambda c=connection: c.recv(65536), b""))
                except ConnectionResetError:
                    answer = b""
                self.assertNotIn(b'"taken"', answer)
        held = [one for one in self.held()["held"] if one["pid"] == keeper]
        self.assertEqual([one["state"] for one in held], ["ready"])

    @unittest.skipUnless(os.geteuid() == 0, "takes a second account")
    def test_another_account_is_told_nothing(self):
        """Whatever its folders let through."""
        self.warm("-n", 1, "--", *self.command("one.py", "import decimal\n"))
        path = self.path("sockets", "sgd-launch", "warm.sock")
        for place, mode in ((path, 0o666), (os.path.dirname(path), 0o711), (self.path("sockets"), 0o711), (self.folder, 0o711)):
            os.chmod(place, mode)
        ask = "import socket, sys; one = socket.socket(socket.AF_UNIX); one.settimeout(20); one.connect(sys.argv[1])\n" \
              "try: one.sendall(bytes.fromhex(sys.argv[2])); print(one.recv(100))\n" \
              "except (BrokenPipeError, ConnectionResetError): print(b'')\n"
        for who, expected in ((ORDINARY, "b''"), ("root", "idle_s")):
            done = subprocess.run(["/usr/bin/python3", "-S", "-c", ask, path, frame({"type": "look"}).hex()], capture_output=True, text=True, timeout=LIMIT_S,
                                  user=who, check=False)
            self.assertIn(expected, done.stdout, done.stderr)
        os.chmod(os.path.dirname(path), 0o700)

    def test_what_cannot_be_kept_is_refused(self):
        script = self.write("one.py", "import decimal\n")
        for words, said in [((script.replace("one", "none"),), "none.py"), (("--", "/bin/true"), "only `python3 script.py`"),
                            (("--preload", "none", script), "only `python3 script.py`"), (("--idle", "x", script), "expected a time as 30m"),
                            (("--stop", script), "takes no script"), (("--nnodes", "2", script), "--nnodes"),
                            ((os.path.join(os.path.dirname(LAUNCHER), "no.json"),), "no.json")]:
            self.assertIn(said, self.warm(*words, expect=2)[1])
        self.assertIn("nothing_like_it", self.warm("--preload", "nothing_like_it", script, expect=1)[1])


if __name__ == "__main__":
    unittest.main()
