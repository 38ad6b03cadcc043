"""A run seen from another terminal: status, logs and stop over its control socket, however the run is named."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import LAUNCHER, LaunchTest, wait_for

SPEAK = """
import os, time
print("hello from", os.environ["RANK"], flush=True)
time.sleep(1000)
"""


class ConfigTest(LaunchTest):
    def ask(self, *arguments, expect=0, **environment):
        clean = {key: value for key, value in os.environ.items() if key != "SGD_ADDRESS"}
        ended = subprocess.run([LAUNCHER, "config", *arguments], capture_output=True, text=True, timeout=20, cwd=self.folder,
                               env={**clean, "XDG_CONFIG_HOME": self.folder, **environment})
        self.assertEqual(ended.returncode, expect, ended.stdout + ended.stderr)
        return ended.stdout + ended.stderr

    def test_each_value_says_where_it_comes_from(self):
        with open(self.path("job.json"), "w") as file:
            file.write('{"command": ["true"],\n "num_workers": 2,\n "stop": {"grace": "9s"}}\n')
        shown = json.loads(self.ask("show", "--origin", "--json", "-n", "3", "job.json", "--set", 'heartbeat={"timeout":"7s"}'))
        origins = {one["key"]: (one["value"], one["origin"]) for one in shown}
        for key, expected in {"num_workers": (3, "--num-workers"), "command": (["true"], "job.json:1"), "stop.grace": ("9s", "job.json:3"),
                              "heartbeat.timeout": ("7s", "--set heartbeat"), "heartbeat.interval": ("500ms", "default"),
                              "address": ("local", "default")}.items():
            with self.subTest(key):
                self.assertEqual(origins[key], expected)
        self.assertNotIn("job.json:", self.ask("show", "job.json"))
        self.assertRegex(self.ask("show", "--", "true", "--json"), r'command +\["true","--json"\]')

    def test_the_coordinator_that_runs_go_to(self):
        self.assertIn('"node1:7070"  SGD_ADDRESS', self.ask("show", "--origin", SGD_ADDRESS="node1"))
        os.mkdir(self.path("sgd-launch"))
        with open(self.path("sgd-launch", "config.json"), "w") as file:
            file.write('{"address": "node2:9"}')
        self.assertIn('"node2:9"  ' + self.path("sgd-launch", "config.json"), self.ask("show", "--origin"))
        self.assertRegex(self.ask("show", "--origin", "--address", "node3:8", "--", "true"), '"node3:8" +--address')

    def test_verbs_without_an_address_ask_the_coordinator_of_the_file(self):
        os.mkdir(self.path("sgd-launch"))
        with open(self.path("sgd-launch", "config.json"), "w") as file:
            file.write('{"address": "127.0.0.1:1"}')
        clean = {key: value for key, value in os.environ.items() if key != "SGD_ADDRESS"}
        for verb in (["plan", "--", "true"], ["submit", "--", "true"], ["ps"]):
            with self.subTest(verb=verb):
                ended = subprocess.run([LAUNCHER, *verb], capture_output=True, text=True, timeout=20, cwd=self.folder,
                                       env={**clean, "XDG_CONFIG_HOME": self.folder})
                self.assertEqual(ended.returncode, 3, ended.stdout + ended.stderr)
                self.assertIn("no coordinator at 127.0.0.1:1: ", ended.stderr)

    def test_what_is_wrong(self):
        self.assertIn("config show", self.ask(expect=2))
        self.assertIn("no-such.json", self.ask("show", "no-such.json", expect=2))
        self.assertIn("unknown option", self.ask("show", "--orign", "job.json", expect=2))


class ControlTest(LaunchTest):
    def ask(self, *arguments, expect=0):
        ended = subprocess.run([LAUNCHER, *arguments], capture_output=True, text=True, timeout=20, cwd=self.folder,
                               stdin=subprocess.DEVNULL)
        self.assertEqual(ended.returncode, expect, f"{arguments}: {ended.stdout}{ended.stderr}")
        return ended.stdout

    def speaking(self, **keywords):
        """A run in the test's folder that waits; without a run directory of its own it lies in runs/."""
        launch = self.start("-n", 2, "--", *self.script("speak.py", SPEAK), **keywords)
        wait_for(lambda: launch.stdout().count(b"hello") == 2, 20, "both ranks")
        return launch

    def run_id(self):
        return os.path.basename(os.path.realpath(self.path("runs", "latest")))

    def test_options_before_the_verb_and_help_behind_it(self):
        self.speaking()
        self.assertEqual(json.loads(self.ask("--json", "status", self.path("run")))["state"], "running")
        self.assertIn("Usage: sgd-launch status", self.ask("help", "status"))
        self.assertIn("Usage: sgd-launch nodes", self.ask("help", "nodes"))
        ended = subprocess.run([LAUNCHER, "stauts"], capture_output=True, text=True, timeout=20, cwd=self.folder)
        self.assertEqual(ended.returncode, 2)
        self.assertIn('"stauts" is no verb; did you mean status?', ended.stderr)
        ended = subprocess.run([LAUNCHER, "xyzzy"], capture_output=True, text=True, timeout=20, cwd=self.folder)
        self.assertEqual(ended.returncode, 2)
        for verb in ("submit", "ps", "coordinator", "token"):
            self.assertIn(verb, ended.stderr)
        ended = subprocess.run([LAUNCHER, "-n", "2", "run", "job.json"], capture_output=True, text=True, timeout=20, cwd=self.folder)
        self.assertEqual(ended.returncode, 2)
        self.assertIn('error: "run" is a verb, which comes first: sgd-launch run ...', ended.stderr)

    def test_runs_of_this_machine(self):
        launch = self.speaking()
        rows = {row["run_dir"]: row for row in json.loads(self.ask("ps", "--address", "local", "--json"))["runs"]}
        self.assertEqual((rows[self.path("run")]["state"], rows[self.path("run")]["world_size"]), ("running", 2))
        self.assertIn("running", self.ask("ps", "--address", "local"))
        self.ask("stop", self.path("run"))
        launch.wait()
        rows = json.loads(self.ask("ps", "--address", "local", "--json"))["runs"]
        self.assertNotIn(self.path("run"), [row.get("run_dir") for row in rows])

    def test_a_run_that_is_over_and_whose_launcher_is_still_there_is_not_listed(self):
        """As the first of several machines is while it prints what is left: of a run that is over its coordinator tells the summary alone."""
        os.makedirs(self.path("sgd-launch", "0123abcd"), mode=0o700)
        os.chmod(self.path("sgd-launch"), 0o700)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path("sgd-launch", "0123abcd", "control.sock"))
            listener.listen()
            listener.settimeout(20)

            def answer():
                with listener.accept()[0] as client, client.makefile() as lines:
                    lines.readline()
                    client.sendall(b'{"ok": true, "run_dir": "/x", "is_settled": true, "summary": {}}\n')
            coordinator = threading.Thread(target=answer)
            coordinator.start()
            self.addCleanup(coordinator.join)
            ended = subprocess.run([LAUNCHER, "ps", "--address", "local", "--json"], capture_output=True, text=True, timeout=20, cwd=self.folder,
                                   env={**os.environ, "XDG_RUNTIME_DIR": self.folder})
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        self.assertEqual(json.loads(ended.stdout)["runs"], [])

    def test_plan_for_this_machine(self):
        plan = json.loads(self.ask("plan", "--json", "--address", "local", "-n", "3", "--", "true"))
        self.assertEqual((plan["starts_now"], plan["nodes"][0]["ranks"]), (True, [0, 1, 2]))
        self.assertIn("waits: ", self.ask("plan", "--address", "local", "-n", "3", "--slots", "1", "--", "true"))
        self.assertIn("starts now: ", self.ask("plan", "--address", "local", "--", "true", "--json"), "the option is the program's")

    def test_every_object_says_which_version_of_its_form_it_has(self):
        self.assertEqual(self.start("-n", 1, "--", "true").wait(), 0)
        run = self.path("run")
        for verb in (["status", run], ["checkpoints", run], ["ps", "--all", "--address", "local"], ["warm"], ["doctor"],
                     ["plan", "--address", "local", "--", "true"]):
            with self.subTest(verb=verb):
                shown = subprocess.run([LAUNCHER, verb[0], "--json", *verb[1:]], capture_output=True, text=True, timeout=60, cwd=self.folder,
                                       stdin=subprocess.DEVNULL)
                self.assertEqual(list(json.loads(shown.stdout).items())[0], ("schema_version", 1), shown.stderr)

    def test_verbs_without_an_address_where_no_coordinator_is(self):
        clean = {key: value for key, value in os.environ.items() if key != "SGD_ADDRESS"}
        clean.update({name: self.folder for name in ("HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR")})
        for verb, code, words in ((["plan", "-n", "3", "--", "true"], 0, "starts now: 3 of 3 workers"),
                                  (["ps"], 0, "no run of yours is live on this machine"),
                                  (["submit", "--", "true"], 2, "submit: error: no cluster is named, and no coordinator runs on this machine: name one "
                                                                "with --address HOST:PORT or SGD_ADDRESS, or start one: sgd-launch coordinator"),
                                  (["ps", "--all"], 0, "those in runs/ that have ended: sgd-launch runs")):
            with self.subTest(verb=verb):
                ended = subprocess.run([LAUNCHER, *verb], capture_output=True, text=True, timeout=20, cwd=self.folder, env=clean)
                self.assertEqual(ended.returncode, code, ended.stdout + ended.stderr)
                self.assertIn(words, ended.stdout + ended.stderr)
        ended = subprocess.run([LAUNCHER, "ps", "--json"], capture_output=True, text=True, timeout=20, cwd=self.folder, env=clean)
        self.assertEqual((ended.returncode, json.loads(ended.stdout)["runs"]), (0, []), ended.stderr)

    def test_a_full_disk_behind_stdout(self):
        self.run_to_end("-n", 1, "--", "echo", "line")
        for verb in ("status", "events", "logs", "checkpoints"):
            with self.subTest(verb=verb), open("/dev/full", "wb") as full:
                ended = subprocess.run([LAUNCHER, verb, self.path("run")], stdout=full, stderr=subprocess.PIPE, text=True, timeout=20)
                self.assertEqual(ended.returncode, 1, ended.stderr)
                self.assertIn("No space left on device", ended.stderr)

    def test_a_launcher_that_is_suspended(self):
        launch = self.speaking()
        launch.process.send_signal(signal.SIGSTOP)
        try:
            ended = subprocess.run([LAUNCHER, "status", self.path("run")], capture_output=True, text=True, timeout=20)
            rows = {row["run_dir"]: row for row in json.loads(self.ask("ps", "--address", "local", "--json"))["runs"]}
            listed = self.ask("ps", "--address", "local")
        finally:
            launch.process.send_signal(signal.SIGCONT)
        self.assertEqual(ended.returncode, 3, ended.stdout)
        why = "has not answered within 5s; one that is suspended (Ctrl-Z) does so after fg"
        self.assertIn(why, ended.stderr)
        row = rows[self.path("run")]
        self.assertEqual((row["run"], row["state"], row["where"]), ("run", "not answering", "this machine"))
        self.assertIn(why, row["reason"])
        self.assertRegex(listed, r"run +not answering ")

    def test_an_unknown_option_leads_to_the_help_that_has_the_known_ones(self):
        for verb in (["logs"], ["ps"], ["runs"], ["tune"], ["doctor"], ["token", "create"]):
            with self.subTest(verb=verb):
                ended = subprocess.run([LAUNCHER, *verb, "--xyzzy"], capture_output=True, text=True, timeout=20, cwd=self.folder)
                self.assertEqual(ended.returncode, 2)
                self.assertIn(f"--xyzzy: error: unknown option; see sgd-launch {' '.join(verb)} --help", ended.stderr)

    def test_following_the_logs_of_workers_that_say_nothing(self):
        self.start("--", "sleep", "1000").wait_for_event("worker_started")
        with subprocess.Popen([LAUNCHER, "logs", "-f", self.path("run")], stderr=subprocess.PIPE, cwd=self.folder) as follow:
            self.assertIn(b"written nothing yet", follow.stderr.readline())
            follow.terminate()

    def test_logs_without_a_line(self):
        self.run_to_end("-n", 2, "--", "true")
        for options, code, words in (([], 0, "its logs are empty"), (["--rank", "1"], 0, "its logs of rank 1 are empty"),
                                     (["--rank", "2"], 4, "run run has no log of rank 2; it has ranks 0 to 1"),
                                     (["-f", "--rank", "2"], 4, "run run has no log of rank 2; it has ranks 0 to 1"),
                                     (["--rank", "1", "--generation", "7"], 0, "it has no log of rank 1 of generation 7")):
            with self.subTest(options=options):
                ended = subprocess.run([LAUNCHER, "logs", *options, self.path("run")], capture_output=True, text=True, timeout=20)
                self.assertEqual((ended.returncode, ended.stdout), (code, ""))
                self.assertIn(words, ended.stderr)
                self.assertNotIn("training loop", ended.stderr)
        with open(self.path("run", "job.json"), "w", encoding="utf-8") as file:
            file.write('{"training": {}}')
        ended = subprocess.run([LAUNCHER, "logs", self.path("run")], capture_output=True, text=True, timeout=20)
        self.assertIn("its logs are empty; the built-in training loop prints nothing", ended.stderr)

    def test_status_by_every_name(self):
        self.speaking(run_dir=None)
        run = self.run_id()
        for name in ([], [run], [run[:-2]], [os.path.join("runs", run)], [self.path("runs", "latest")]):
            with self.subTest(name=name):
                status = json.loads(self.ask("status", "--json", *name))
                self.assertEqual(status["run"], run)
                self.assertEqual(len(status["ranks"]), 2)
        text = self.ask("status")
        self.assertIn(run, text)

    def test_logs_of_a_living_and_of_a_finished_run(self):
        launch = self.speaking(run_dir=None)
        said = self.ask("logs")
        self.assertIn("hello from 0", said)
        self.assertIn("hello from 1", said)
        self.ask("stop")
        self.assertEqual(launch.wait(20), 6, launch.said())
        self.assertIn("hello from 1", self.ask("logs"))

    def test_a_log_that_cannot_be_read_is_said(self):
        self.run_to_end("-n", 1, "--", "echo", "line")
        os.mkdir(self.path("run", "logs", "gen-0001", "rank-0001.log"))
        asked = self.run_to_end("logs", self.path("run"), run_dir=None, expect=1)
        self.assertEqual(asked.stdout(), b"0: line\n")
        self.assertIn("rank-0001.log: Is a directory", asked.stderr())

    def test_logs_without_a_newline(self):
        """Their cost is their length: what is held of a line has a limit."""
        size = 48 << 20
        launch = self.start("-n", 1, "--", "sh", "-c", f"head -c {size} /dev/zero | tr '\\0' x", run_dir=None)
        self.assertEqual(launch.wait(60), 0, launch.said())
        plain = subprocess.run([LAUNCHER, "logs", "--no-prefix"], capture_output=True, timeout=60, cwd=self.folder)
        self.assertEqual((plain.returncode, len(plain.stdout)), (0, size))
        with_prefix = subprocess.run([LAUNCHER, "logs"], capture_output=True, timeout=60, cwd=self.folder).stdout.splitlines()
        self.assertEqual(len(with_prefix), size >> 16)
        self.assertEqual(with_prefix[1], b"0: " + b"x" * (1 << 16) + b" [line goes on]")
        self.assertEqual(with_prefix[-1], b"0: " + b"x" * (1 << 16))

    def test_stop_cancels_the_run(self):
        launch = self.speaking()
        self.ask("stop", self.path("run"))
        self.assertEqual(launch.wait(20), 6, launch.said())
        launch.wait_until_gone()
        self.assertEqual(launch.summary()["state"], "cancelled")
        status = json.loads(self.ask("status", "--json", self.path("run")))
        self.assertIn("cancelled", json.dumps(status))

    def test_unknown_run_is_four(self):
        self.ask("status", "no-such-run", expect=4)
        self.ask("stop", "no-such-run", expect=4)
        self.ask("status", expect=4)

    def test_an_empty_name_is_not_the_latest_run(self):
        """It is a variable that a script has not set."""
        self.run_to_end("-n", 1, "--", "true", run_dir=None)
        for verb in (["runs", "remove"], ["runs", "pin"], ["stop"], ["status"], ["resume"], ["tune", "status"], ["checkpoints", "get", self.run_id()]):
            with self.subTest(verb=verb):
                self.ask(*verb, "", expect=2)
        self.assertIn("succeeded", self.ask("status"))

    def test_folders_of_runs_are_listed_with_their_ends(self):
        self.assertIn(f"no runs in {self.path('runs')}", self.ask("runs"))
        self.run_to_end("-n", 1, "--", "true", run_dir=None)
        self.run_to_end("-n", 1, "--", "false", run_dir=None, expect=1)
        lines = self.ask("runs").splitlines()
        self.assertEqual(lines[0].split(), ["run", "state", "bytes", "pinned"])
        self.assertEqual({line.split()[1] for line in lines[1:]}, {"succeeded", "failed"})
        self.assertLessEqual(max(map(len, lines)), 80)

    def test_the_latest_run_that_is_removed_leaves_another_one_or_none(self):
        self.run_to_end("-n", 1, "--", "true", run_dir=None)
        first = os.readlink(self.path("runs", "latest"))
        self.run_to_end("-n", 1, "--", "false", run_dir=None, expect=1)
        self.ask("runs", "remove", "latest")
        self.assertEqual(os.readlink(self.path("runs", "latest")), first)
        self.assertIn("succeeded", self.ask("status"))
        self.ask("runs", "remove", "latest")
        self.assertFalse(os.path.lexists(self.path("runs", "latest")))
        self.ask("status", expect=4)

    def test_the_end_of_a_run_without_a_summary_is_that_of_its_events(self):
        """The disk was full, as far as files can tell."""
        launch = self.run_to_end("-n", 1, "--", "false", expect=1)
        os.remove(self.path("run", "summary.json"))
        said = self.ask("status", self.path("run"))
        self.assertRegex(said, r"state +failed \(exit code 1\)")
        self.assertIn("exit code 1, rank 0; its launcher left no summary.json: the disk was full, or it was killed at its end", said)
        lines = open(self.path("run", "events.jsonl"), encoding="utf-8").read().splitlines(keepends=True)
        with open(self.path("run", "events.jsonl"), "w", encoding="utf-8") as file:
            file.writelines(line for line in lines if '"run_finished"' not in line)
        self.assertIn("its launcher left no summary: it was killed, or the disk was full", self.ask("status", launch.run_dir))

    def test_a_verb_within_a_run_or_among_runs_says_where_it_is(self):
        self.run_to_end("-n", 1, "--", "true", run_dir=None)
        for folder, words in ((self.path("runs", "latest"), "this folder is a run itself: sgd-launch status ."),
                              (self.path("runs"), "this folder has runs itself: sgd-launch status latest")):
            with self.subTest(folder):
                ended = subprocess.run([LAUNCHER, "status"], capture_output=True, text=True, timeout=20, cwd=folder)
                self.assertEqual(ended.returncode, 4)
                self.assertIn(words, ended.stderr)
                named = subprocess.run([LAUNCHER, "status", words.split()[-1]], capture_output=True, text=True, timeout=20, cwd=folder)
                self.assertIn("succeeded", named.stdout)

    def test_stop_of_a_finished_run_says_so(self):
        self.run_to_end("-n", 1, "--", "true")
        ended = subprocess.run([LAUNCHER, "stop", self.path("run")], capture_output=True, text=True, timeout=20)
        self.assertEqual(ended.returncode, 3)
        self.assertIn("not running", ended.stdout + ended.stderr)

    def test_socket_is_the_owners_alone(self):
        self.speaking()
        path = os.path.realpath(self.path("run", "control.sock"))
        self.assertEqual(os.stat(path).st_uid, os.getuid())
        self.assertEqual(os.stat(os.path.dirname(path)).st_mode & 0o077, 0)

    def test_requests_that_make_no_sense_are_answered_and_harm_nothing(self):
        launch = self.speaking()
        path = os.path.realpath(self.path("run", "control.sock"))
        for request in ('{"request":5}', '{"request":"stop","grace_s":"long"}', '{"request":"stop","at_once":[1]}',
                        '{"request":"set_slots"}', '{"request":"set_slots","slots":1.5}', '{"request":"fly"}', "5", "{",
                        '{"request":"set_slots","slots":99999999999999999999}', '{"request":"set_slots","slots":1,"node":7}',
                        '{"request":"set_slots","slots":1048577}'):
            with self.subTest(request=request), socket.socket(socket.AF_UNIX) as client:
                client.settimeout(20)
                client.connect(path)
                client.sendall(request.encode() + b"\n")
                with client.makefile() as answers:
                    answer = json.loads(answers.readline())
                self.assertFalse(answer["ok"])
                self.assertTrue(answer["error"])
        self.assertEqual(answer["error"], "slots must be a number from 0 to 1048576, got 1048577")
        self.assertEqual(len(json.loads(self.ask("status", "--json", self.path("run")))["ranks"]), 2)
        self.assertIsNone(launch.process.poll())

    def test_an_answer_without_an_end_is_given_up(self):
        self.run_to_end("-n", 1, "--", "true")
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(self.path("endless"))
            listener.listen()
            os.symlink(self.path("endless"), self.path("run", "control.sock"))

            def answer():
                with listener.accept()[0] as client, contextlib.suppress(OSError):
                    client.settimeout(20)
                    for _ in range(32):
                        client.sendall(b"x" * (1 << 20))
            endless = threading.Thread(target=answer)
            endless.start()
            self.addCleanup(endless.join)
            asked = self.run_to_end("status", self.path("run"), expect=3, run_dir=None)
            self.assertIn("is too long", asked.stderr())

    def test_latest_points_to_the_newest(self):
        self.run_to_end("-n", 1, "--", "true", run_dir=None)
        first = self.run_id()
        self.run_to_end("-n", 1, "--", "true", run_dir=None)
        self.assertNotEqual(self.run_id(), first)
        self.assertEqual(len(os.listdir(self.path("runs"))), 3)


if __name__ == "__main__":
    unittest.main()
