"""Surroundings that nobody thinks of: streams that are closed, folders that cannot be written to, variables that are missing, names and
arguments of every kind, limits, launchers in launchers. A script that runs by `python3 train.py` runs here, too.
"""

import json
import os
import pwd
import resource
import shutil
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LAUNCHER, LaunchTest, read_file, read_lines

SHOW = """
import json, os, sys
said = {"argv": sys.argv[1:], "cwd": os.getcwd(), "umask": os.umask(0), "stdin": sys.stdin and sys.stdin.read(), "path": sys.path[:2],
        "env": dict(os.environ)}
with open(os.environ["SHOWN"] + os.environ["RANK"], "w") as file:
    json.dump(said, file)
print("rank", os.environ["RANK"])
"""


def limited(kind, value):
    return lambda: resource.setrlimit(kind, (value, value))


class SignalsAway:
    """A caller that waits for its own signals and children in a way of its own."""

    def enter(self):
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)


class OddEnvironmentsTest(LaunchTest):
    def run_odd(self, words, cwd=None, expect=0, closed=(), env=None, unset=(), limit_s=60, **keywords):
        """The launcher as a shell would start it; without --run-dir, in a folder of its own. Returns what it wrote."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("PET_", "SGD_", "OMP_"))}
        environment.update({"SHOWN": self.path("shown-"), "HOME": self.path("home"), **(env or {})})
        for name in unset:
            environment.pop(name, None)
        before = keywords.pop("before", None)

        def prepare():
            for descriptor in closed:
                os.close(descriptor)
            if before:
                before()

        keywords = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **keywords}
        process = subprocess.Popen([LAUNCHER, *map(str, words)], cwd=cwd or self.folder, env=environment, preexec_fn=prepare, **keywords)
        try:
            out, err = process.communicate(timeout=limit_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            self.fail("still runs after %g s: %s" % (limit_s, words))
        said = (out or b"").decode(errors="replace") + (err or b"").decode(errors="replace")
        self.assertEqual(process.returncode, expect, said)
        return said

    def shown(self, ranks=2):
        """What the ranks have seen; taken away, so that the next run cannot be mistaken for it."""
        found = [object_of(self.path(f"shown-{rank}")) for rank in range(ranks)]
        for rank in range(ranks):
            os.unlink(self.path(f"shown-{rank}"))
        return found

    def test_streams_that_are_closed(self):
        script = self.write("show.py", SHOW)
        for closed in ((0,), (1,), (2,), (0, 1), (1, 2), (0, 1, 2)):
            with self.subTest(closed):
                # A pipe would take the place of what is closed: it is opened before.
                keywords = {name: None for number, name in enumerate(("stdin", "stdout", "stderr")) if number in closed}
                self.run_odd(["-n", 2, "--run-dir", self.path("run-" + "".join(map(str, closed))), script], closed=closed, **keywords)
                self.assertEqual([rank["stdin"] or "" for rank in self.shown()], ["", ""])
                # Lines for people must not come into files that happen to have their number.
                events = read_lines(self.path("run-" + "".join(map(str, closed)), "events.jsonl"))
                self.assertEqual(events[-1]["event"], "run_finished")

    def test_streams_that_take_nothing(self):
        """What workers have written and nobody can get is no success; a reader that has seen enough is no loss."""
        script = self.write("show.py", SHOW)
        for name, words, expect in (("stdout", [script], 1), ("stderr", [script], 0), ("stderr", ["--", "sh", "-c", "echo lost >&2"], 1),
                                    ("stdout", ["--", "sh", "-c", "exit 3"], 1), ("stdout", ["--", "true"], 0)):
            with self.subTest(name=name, words=words), open("/dev/full", "wb") as full:
                said = self.run_odd(["-n", 2, *words], expect=expect, **{name: full})
                is_told = "sgd-launch: warning: cannot write to stdout: No space left on device; no more is written there" in said
                self.assertEqual(is_told, name == "stdout" and words == [script], said)
        self.shown()
        reader, writer = os.pipe()
        os.close(reader)
        try:
            said = self.run_odd(["-n", 1, "--", "seq", 100_000], stdout=writer)
        finally:
            os.close(writer)
        self.assertNotIn("cannot write", said)

    def test_a_working_directory_that_cannot_be_written_to(self):
        """As another account where this one is root, which may write everywhere."""
        script = self.write("show.py", SHOW)
        for folder in ("home", "state", "closed"):
            os.mkdir(self.path(folder))
        as_nobody = None
        if os.geteuid() == 0:
            nobody = pwd.getpwnam("nobody")
            for folder in ("home", "state"):
                os.chown(self.path(folder), nobody.pw_uid, nobody.pw_gid)
            os.chmod(self.folder, 0o755)

            def as_nobody():
                os.setgroups([])
                os.setgid(nobody.pw_gid)
                os.setuid(nobody.pw_uid)

        os.chmod(self.path("closed"), 0o555)
        for env, unset, place in (({}, ("XDG_STATE_HOME",), self.path("home", ".local", "state", "sgd-launch", "runs")),
                                  ({"XDG_STATE_HOME": self.path("state")}, (), self.path("state", "sgd-launch", "runs")),
                                  ({}, ("HOME", "XDG_STATE_HOME"), "/tmp/sgd-"), ({"HOME": "/nonexistent"}, ("XDG_STATE_HOME",), "/tmp/sgd-")):
            with self.subTest(place):
                said = self.run_odd(["-n", 2, script], cwd=self.path("closed"), before=as_nobody, unset=unset,
                                    env={"SHOWN": self.path("home", "shown-"), **env})
                self.assertIn(f"sgd-launch: warning: cannot write to {self.path('closed')}: Permission denied; files are in {place}", said)
                folder = said.split("files in ")[1].split("\n")[0]
                self.assertTrue(folder.startswith(place), said)
                self.assertEqual(read_lines(os.path.join(folder, "events.jsonl"))[-1]["event"], "run_finished")
                for name in ((), (os.path.basename(folder),)):
                    status = subprocess.run([LAUNCHER, "status", *name], cwd=self.path("closed"), preexec_fn=as_nobody, capture_output=True, text=True, check=False,
                                            env={key: value for key, value in {**os.environ, "HOME": self.path("home"), **env}.items() if key not in unset})
                    self.assertIn(os.path.basename(folder), status.stdout, status.stderr)
                environment = {key: value for key, value in {**os.environ, "HOME": self.path("home"), **env}.items() if key not in unset}
                listed = subprocess.run([LAUNCHER, "runs"], cwd=self.path("closed"), preexec_fn=as_nobody, capture_output=True, text=True, check=False,
                                        env=environment)
                self.assertIn(os.path.basename(folder), listed.stdout)
                self.assertIn(f"runs in {os.path.dirname(folder)}\n", listed.stderr)
                if place == "/tmp/sgd-":
                    shutil.rmtree(folder)
        if as_nobody:
            os.makedirs(self.path("roots", "runs", "latest"), mode=0o700)
            os.chmod(self.path("roots"), 0o700)
            status = subprocess.run([LAUNCHER, "status", self.path("roots", "runs", "latest")], cwd=self.path("closed"), preexec_fn=as_nobody,
                                    capture_output=True, text=True, check=False)
            self.assertIn(f"cannot look into {self.path('roots')}: Permission denied (it belongs to root)", status.stderr)
        said = self.run_odd(["-n", 2, "--run-dir", self.path("closed", "run"), script], before=as_nobody, expect=2)
        self.assertIn("cannot write to", said)

    def test_variables_that_are_missing(self):
        script = self.write("show.py", SHOW)
        for unset in (("PATH",), ("HOME",), ("LANG", "LC_ALL", "LC_CTYPE"), ("TERM",), tuple(os.environ)):
            with self.subTest(unset[:3]):
                self.run_odd(["-n", 2, script], unset=[name for name in unset if name != "SHOWN"])
                self.shown()

    def test_variables_of_the_interpreter(self):
        script = self.write("show.py", SHOW)
        os.mkdir(self.path("more"))
        self.write("startup.py", "raise SystemExit(9)\n")
        self.run_odd(["-n", 2, script], env={"PYTHONPATH": self.path("more"), "PYTHONSTARTUP": self.path("startup.py"), "TERM": "dumb"})
        for rank in self.shown():
            self.assertEqual(rank["path"][:2], [self.folder, self.path("more")])

    def test_names_of_every_kind(self):
        for folder, name, word in (("ü ñ 日本 $(x) 'q\"", "ein skript ü.py", "ä b"), ("plain", "random.py", ""), ("plain", "json.py", "-n"),
                                   ("plain", "no_ending", "*"), ("a" * 250, "b" * 250 + ".py", "c" * 20000)):
            with self.subTest(name[:20]):
                os.makedirs(self.path(folder), exist_ok=True)
                text = SHOW.replace("import json, os, sys", "import os, sys\nsys.path, path = sys.path[1:], sys.path\nimport json\nsys.path = path")
                script = self.write(os.path.join(folder, name), text)
                self.run_odd(["-n", 2, script, word], env={"LC_ALL": "C"})
                self.assertEqual([rank["argv"] for rank in self.shown()], [[word]] * 2)
                os.unlink(script)

    def test_paths_that_json_cannot_carry(self):
        """They would be others in job.json and in messages: checkpoints would go elsewhere, and a resume begin from nothing."""
        odd = os.fsdecode(os.fsencode(self.path("odd-")) + b"\xff")
        os.mkdir(odd)
        for words, cwd in ((["-n", 2, "--", "true"], odd), (["-n", 2, "--run-dir", os.path.join(odd, "run"), "--", "true"], None),
                           (["coordinator", "--state-dir", odd], None), (["agent", "--state-dir", odd], None)):
            with self.subTest(words[:3]):
                self.assertIn("its name is not UTF-8", self.run_odd(words, cwd=cwd, expect=2))
        self.assertEqual(os.listdir(odd), [])
        self.run_odd(["-n", 1, "--run-dir", self.path("run"), "--", "true"], cwd=odd)

    def test_a_path_as_long_as_paths_may_be(self):
        folder = self.folder
        while len(folder) < 3800:
            folder = os.path.join(folder, "d" * 200)
        os.makedirs(folder)
        with open(os.path.join(folder, "show.py"), "w") as file:
            file.write(SHOW)
        self.run_odd(["-n", 2, "show.py"], cwd=folder)
        self.assertEqual([rank["cwd"] for rank in self.shown()], [folder] * 2)
        self.run_odd(["-n", 2, os.path.join(folder, "show.py")])
        self.shown()
        said = self.run_odd(["-n", 2, "x" * 5000 + ".py"], expect=2)
        self.assertIn("there is no script", said)

    def test_limits_of_the_shell(self):
        script = self.write("show.py", SHOW)
        self.run_odd(["-n", 2, script], before=lambda: os.umask(0o077))
        self.assertEqual([rank["umask"] for rank in self.shown()], [0o077] * 2)
        self.run_odd(["-n", 2, script], before=limited(resource.RLIMIT_AS, 1 << 30))
        self.shown()
        self.run_odd(["-n", 2, script], before=limited(resource.RLIMIT_CORE, 0))
        self.shown()
        self.run_odd(["-n", 2, script], before=limited(resource.RLIMIT_NOFILE, 128))
        self.shown()
        said = self.run_odd(["-n", 2, script], before=limited(resource.RLIMIT_NOFILE, 64), expect=2)
        self.assertIn("only 64 files may be open (ulimit -n)", said)

    def test_signals_that_the_caller_has_blocked_or_ignored(self):
        """A blocked SIGTERM was never heard, and a keeper whose exit status is gone was taken for one that could not start."""
        launch = self.start("-n", 2, "--", "sleep", "1000", group=SignalsAway())
        launch.wait_for_event("worker_started", count=2)
        launch.process.terminate()
        self.assertEqual(launch.wait(), 128 + signal.SIGTERM, launch.said())
        launch.wait_until_gone()
        once = '[ -e "$0" ] || { touch "$0"; kill -9 $PPID; sleep 1000; }'
        again = self.run_to_end("-n", 1, "--max-failures", 1, "--", "sh", "-c", once, self.path("mark"), run_dir="again", group=SignalsAway())
        self.assertEqual([event["message"] for event in again.events("failure")], ["signal 9 (SIGKILL), keeper"])

    def test_a_launcher_in_a_rank_of_a_launcher(self):
        script = self.write("show.py", SHOW)
        inner = self.write("inner.py", "import os, subprocess, sys\nos.environ['SHOWN'] += os.environ['RANK'] + '-'\n"
                           "sys.exit(subprocess.call([%r, '-n', '2', '--run-dir', 'inner-' + os.environ['RANK'], %r, 'word']))\n" % (LAUNCHER, script))
        self.run_odd(["-n", 2, inner])
        for outer in range(2):
            for rank in range(2):
                said = object_of(self.path(f"shown-{outer}-{rank}"))
                env = said["env"]
                self.assertEqual((env["RANK"], env["LOCAL_RANK"], env["WORLD_SIZE"], said["argv"]), (str(rank), str(rank), "2", ["word"]))
        failing = self.write("raises.py", "raise ValueError('of the innermost')\n")
        self.write("inner.py", "import subprocess, sys\nsys.exit(subprocess.call([%r, '-n', '2', '--run-dir', 'failed', %r]))\n" % (LAUNCHER, failing))
        said = self.run_odd(["-n", 1, inner], expect=1)
        self.assertIn("ValueError: of the innermost", said.split("run failed")[-1])


def object_of(path):
    """The JSON object that a rank has written."""
    return json.loads(read_file(path))


if __name__ == "__main__":
    unittest.main()
