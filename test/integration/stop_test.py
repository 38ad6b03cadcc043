"""Stopping: whoever ends a run, and however roughly, nothing of it is left two seconds later, and what the launcher
lived to write is right.
"""

import contextlib
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, small_fashion, write_job
from harness import GONE_LIMIT_S, LAUNCHER, LaunchTest, command_of, parent_of, process_state, read_file, wait_for

STUBBORN = """
import os, signal, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
    signal.signal(number, signal.SIG_IGN)
if os.environ["RANK"] == "0" and os.fork() == 0:
    os.setsid()
    os.execvp("sleep", ["sleep", "1001"])
print("ignoring", flush=True)
while True:
    time.sleep(1000)
"""


class TrainingStopTest(LaunchTest):
    def training(self, *options):
        data = small_fashion(self.path("data"), 2000, 500)
        job = image_job(data, epochs=1_000_000)
        job["stop"] = {"grace": "10s"}
        launch = self.start("--num-workers", 2, *options, write_job(self.path("job.json"), job))
        launch.wait_for_event("first_step")
        return launch

    def check_readable(self, launch):
        """Whatever happened, events, metrics and job are whole lines and whole files."""
        self.assertEqual(launch.events()[0]["event"], "run_started")
        launch.metrics()
        json.loads(read_file(os.path.join(launch.run_dir, "job.json")))

    def check_asked_to_stop(self, number, expect):
        launch = self.training()
        os.kill(launch.process.pid, number)
        self.assertEqual(launch.wait(), expect, launch.said())
        launch.wait_until_gone()
        self.check_readable(launch)
        self.assertEqual(launch.events()[-1]["event"], "run_finished")
        self.assertEqual(launch.summary()["state"], "interrupted")
        self.assertEqual(launch.summary()["exit_code"], expect)
        self.assertEqual({e["rank"]: e.get("exit_code") for e in launch.events("worker_exited")}, {0: 76, 1: 76})
        # One checkpoint of one step: all ranks acted at the same step, or none would be complete.
        state = json.loads(read_file(os.path.join(launch.checkpoints()[-1], "state.json")))
        saved = launch.events("checkpoint_saved")[-1]
        self.assertIn(f"{saved['step']:012}", launch.checkpoints()[-1])
        self.assertEqual(state["world_size"], 2)
        self.assertEqual(launch.summary()["steps"], saved["step"])

    def test_interrupt(self):
        self.check_asked_to_stop(signal.SIGINT, 130)

    def test_terminate(self):
        self.check_asked_to_stop(signal.SIGTERM, 143)

    def test_hang_up(self):
        self.check_asked_to_stop(signal.SIGHUP, 129)

    def test_interrupt_from_a_terminal_reaches_the_whole_group(self):
        launch = self.training()
        os.killpg(launch.process.pid, signal.SIGINT)
        self.assertEqual(launch.wait(), 130, launch.said())
        launch.wait_until_gone()
        self.assertEqual({e["rank"]: e.get("exit_code") for e in launch.events("worker_exited")}, {0: 76, 1: 76})

    def check_killed(self, victim, *options):
        launch = self.training(*options)
        os.kill(victim(launch), signal.SIGKILL)
        code = launch.wait(20)
        launch.wait_until_gone()
        self.check_readable(launch)
        return launch, code

    def keeper_of(self, launch):
        return parent_of(launch.rank_pids()[0])

    def fork_server_of(self, launch):
        return next(pid for pid in launch.pids() if "--fork-server" in command_of(pid)
                    and pid not in launch.rank_pids().values())

    def test_launcher_is_killed(self):
        _, code = self.check_killed(lambda launch: launch.process.pid)
        self.assertEqual(code, -signal.SIGKILL)

    def test_keeper_is_killed(self):
        launch, code = self.check_killed(self.keeper_of, "--max-failures", 0)
        self.assertEqual(code, 1, launch.said())
        self.assertIn("keeper", launch.stderr())
        self.assertEqual(launch.summary()["state"], "failed")

    def test_fork_server_is_killed(self):
        """Ranks are the keeper's children: training goes on, and a stop finds everything."""
        launch = self.training()
        os.kill(self.fork_server_of(launch), signal.SIGKILL)
        wait_for(lambda: "started anew" in launch.stderr(), 10, "the launcher's reaction")
        os.kill(launch.process.pid, signal.SIGTERM)
        self.assertEqual(launch.wait(20), 143, launch.said())
        launch.wait_until_gone()
        self.check_readable(launch)
        self.assertEqual(launch.events()[-1]["event"], "run_finished")

    def test_signal_before_the_first_step(self):
        data = small_fashion(self.path("data"), 2000, 500)
        launch = self.start("--num-workers", 2, write_job(self.path("job.json"), image_job(data, epochs=1_000_000)))
        launch.wait_for_event("run_started")
        os.kill(launch.process.pid, signal.SIGTERM)
        self.assertEqual(launch.wait(), 143, launch.said())
        launch.wait_until_gone()
        self.assertEqual(launch.summary()["state"], "interrupted")


class CommandStopTest(LaunchTest):
    def stubborn(self, grace="1s"):
        launch = self.start("-n", 2, "--set", f"stop.grace={grace}", "--", *self.script("stubborn.py", STUBBORN))
        wait_for(lambda: all(b"ignoring" in launch.log(rank) for rank in (0, 1)), 20, "both ranks")
        wait_for(lambda: any("1001" in command_of(pid) for pid in launch.pids()), 20, "the grandchild")
        return launch

    def test_grace_ends_who_ignores_the_request(self):
        launch = self.stubborn()
        begin = time.monotonic()
        os.kill(launch.process.pid, signal.SIGINT)
        self.assertEqual(launch.wait(20), 130, launch.said())
        self.assertGreater(time.monotonic() - begin, 0.9)
        launch.wait_until_gone()

    def test_second_signal_kills_at_once(self):
        launch = self.stubborn(grace="10m")
        os.kill(launch.process.pid, signal.SIGINT)
        wait_for(lambda: "stop" in launch.stderr().lower(), 10, "the answer to the first signal")
        os.kill(launch.process.pid, signal.SIGINT)
        self.assertEqual(launch.wait(10), 130, launch.said())
        launch.wait_until_gone()

    def test_quit_kills_at_once(self):
        launch = self.stubborn(grace="60s")
        os.kill(launch.process.pid, signal.SIGQUIT)
        self.assertEqual(launch.wait(10), 128 + signal.SIGQUIT, launch.said())
        launch.wait_until_gone()

    def test_grandchild_dies_with_a_killed_launcher(self):
        launch = self.stubborn(grace="1s")
        os.kill(launch.process.pid, signal.SIGKILL)
        launch.wait(10)
        launch.wait_until_gone(GONE_LIMIT_S + 1)

    def test_willing_command_ends_within_the_grace(self):
        # Nothing of print() in a handler: the signal may come inside another print(). One just before it sleeps is seen when it wakes.
        text = "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, lambda *_: (os.write(1, b'saved\\n'), sys.exit(0)))\n" \
               "os.write(1, b'up\\n')\nwhile True:\n    time.sleep(0.1)\n"
        launch = self.start("-n", 2, "--", *self.script("willing.py", text))
        wait_for(lambda: all(b"up" in launch.log(rank) for rank in (0, 1)), 20, "both ranks")
        os.kill(launch.process.pid, signal.SIGTERM)
        self.assertEqual(launch.wait(10), 143, launch.said())
        self.assertEqual(launch.log(0), b"up\nsaved\n")
        launch.wait_until_gone()

    def test_interrupt_reaches_a_command_as_one(self):
        """As from a terminal: `except KeyboardInterrupt` and `finally` run, in its children, too."""
        text = "import os, time\ndef say(what):\n    os.write(1, f'{name} {what}\\n'.encode())\nif os.fork() == 0:\n    name = 'child'\nelse:\n    name = 'rank'\ntry:\n" \
               "    say('up')\n    while True:\n        time.sleep(0.1)\n" \
               "except KeyboardInterrupt:\n    say('interrupted')\nfinally:\n    say('closed')\n" \
               "if name == 'rank':\n    os.wait()\n"
        launch = self.start("-n", 2, "--", *self.script("interrupted.py", text))
        wait_for(lambda: all(launch.log(rank).count(b"up") == 2 for rank in (0, 1)), 20, "both ranks and their children")
        os.kill(launch.process.pid, signal.SIGINT)
        self.assertEqual(launch.wait(20), 130, launch.said())
        for rank in (0, 1):
            self.assertEqual(sorted(launch.log(rank).splitlines()[2:]),
                             [b"child closed", b"child interrupted", b"rank closed", b"rank interrupted"])

    def test_hang_up_and_terminate_reach_a_command_as_they_are(self):
        text = "import os, signal, sys, time\ndef end(number, frame):\n    os.write(1, (signal.Signals(number).name + '\\n').encode())\n    sys.exit(0)\n" \
               "for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):\n    signal.signal(number, end)\n" \
               "os.write(1, b'up\\n')\nwhile True:\n    time.sleep(0.1)\n"
        for number, options, said in ((signal.SIGHUP, (), b"SIGHUP"), (signal.SIGTERM, (), b"SIGTERM"),
                                      (signal.SIGINT, ("--set", 'process.signals=["SIGHUP"]'), b"SIGTERM")):
            launch = self.start("-n", 1, *options, "--", *self.script("told.py", text), run_dir=f"run-{number}")
            wait_for(lambda: b"up\n" in launch.log(0), 20, "the rank")
            os.kill(launch.process.pid, number)
            self.assertEqual(launch.wait(20), 128 + number, launch.said())
            self.assertEqual(launch.log(0), b"up\n" + said + b"\n")

    def test_user_signals_are_passed_on_and_end_nothing(self):
        text = "import signal, time\nseen = []\nfor number in (signal.SIGUSR1, signal.SIGUSR2):\n    signal.signal(number, lambda n, f: seen.append(n))\n" \
               "print('up', flush=True)\nwhile len(seen) < 2:\n    time.sleep(0.01)\nprint(sorted(signal.Signals(n).name for n in seen))\n"
        launch = self.start("-n", 2, "--", *self.script("user.py", text))
        wait_for(lambda: all(b"up" in launch.log(rank) for rank in (0, 1)), 20, "both ranks")
        os.kill(launch.process.pid, signal.SIGUSR1)
        os.kill(launch.process.pid, signal.SIGUSR2)
        self.assertEqual(launch.wait(20), 0, launch.said())
        self.assertEqual(launch.log(1), b"up\n['SIGUSR1', 'SIGUSR2']\n")
        launch = self.start("-n", 1, "--set", "process.signals=[]", "--", "sleep", 1000, run_dir="deaf")
        launch.wait_for_event("worker_started")
        os.kill(launch.process.pid, signal.SIGUSR1)
        wait_for(lambda: "SIGUSR1) is not passed on" in launch.stderr(), 20, "what becomes of it")
        os.kill(launch.process.pid, signal.SIGTERM)
        self.assertEqual(launch.wait(20), 143, launch.said())

    def test_siblings_of_a_failed_rank_have_their_time(self):
        """Their handlers run and their buffers are written; one that ignores it costs the time-out and no more."""
        text = "import os, signal, sys, time\nrank = int(os.environ['RANK'])\n" \
               "if rank == 1:\n    while len(os.listdir(sys.argv[1])) < 2:\n        time.sleep(0.01)\n    sys.exit(3)\n" \
               "if rank == 2:\n    signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" \
               "if rank == 0:\n    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))\n    sys.stdout = os.fdopen(1, 'w', 1 << 16)\n" \
               "    print('in a buffer')\n" \
               "open(os.path.join(sys.argv[1], str(rank)), 'w').close()\nwhile True:\n    time.sleep(0.1)\n"
        os.mkdir(self.path("ready"))
        launch = self.start("-n", 3, "--set", "process.shutdown_timeout=1s", "--", *self.script("sibling.py", text), self.path("ready"))
        self.assertEqual(launch.wait(30), 1, launch.said())
        self.assertIn("exit code 3, rank 1", launch.stderr())
        self.assertIn(b"in a buffer", launch.log(0))
        ends = {event["rank"]: event.get("signal") for event in launch.events("worker_exited")}
        self.assertEqual(ends[2], signal.SIGKILL)
        launch.wait_until_gone()

    def test_what_a_wrapper_has_started_has_its_time(self):
        """A shell dies of SIGTERM before the trainer that it waits for: the whole group is told, and waited for."""
        text = "import os, signal, sys, time\ndef save(*_):\n    time.sleep(0.5)\n    os.write(1, b'saved\\n')\n    sys.exit(0)\n" \
               "signal.signal(signal.SIGTERM, save)\nos.write(1, b'up\\n')\nopen(sys.argv[1], 'w').close()\nwhile True:\n    time.sleep(0.1)\n"
        python = shlex.join(self.script("saving.py", text))
        launch = self.start("-n", 2, "--", "bash", "-c", f"{python} /dev/null; true", run_dir="stop")
        wait_for(lambda: all(b"up" in launch.log(rank) for rank in (0, 1)), 20, "both ranks")
        os.kill(launch.process.pid, signal.SIGTERM)
        self.assertEqual(launch.wait(20), 143, launch.said())
        self.assertEqual([launch.log(rank) for rank in (0, 1)], [b"up\nsaved\n"] * 2)
        launch.wait_until_gone()
        up = shlex.quote(self.path("up"))
        fail = f'if [ "$RANK" = 1 ]; then while [ ! -e {up} ]; do sleep 0.01; done; exit 3; fi; '
        launch = self.start("-n", 2, "--", "bash", "-c", f"{fail}{python} {up}; true", run_dir="failure")
        self.assertEqual(launch.wait(20), 1, launch.said())
        self.assertEqual(launch.log(0), b"up\nsaved\n")
        launch.wait_until_gone()

    def test_a_wrappers_child_that_ignores_the_request_costs_the_time_out_and_no_more(self):
        text = "import os, signal, sys, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nopen(sys.argv[1], 'w').close()\ntime.sleep(1000)\n"
        python, up = shlex.join(self.script("deaf.py", text)), shlex.quote(self.path("up"))
        fail = f'if [ "$RANK" = 1 ]; then while [ ! -e {up} ]; do sleep 0.01; done; exit 3; fi; '
        launch = self.start("-n", 2, "--set", "process.shutdown_timeout=1s", "--", "bash", "-c", f"{fail}{python} {up}; true")
        self.assertEqual(launch.wait(20), 1, launch.said())
        failed, ended = (launch.events(what)[0]["time"] for what in ("failure", "run_finished"))
        self.assertLess(ended - failed, 5)
        launch.wait_until_gone()

    def test_timeout_option(self):
        launch = self.start("-n", 2, "--timeout", "500ms", "--", "sleep", 1000)
        self.assertEqual(launch.wait(20), 124, launch.said())
        launch.wait_until_gone()

    def test_a_signal_ends_a_finished_launcher_whose_output_nobody_reads(self):
        launcher = subprocess.Popen([LAUNCHER, "--run-dir", self.path("run"), "-n", "1", "--", "seq", "1", "60000"],
                                    stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        self.addCleanup(launcher.stdout.close)
        self.addCleanup(launcher.kill)
        wait_for(lambda: os.path.exists(self.path("run", "summary.json")), 30, "the end of the run")
        self.assertIsNone(launcher.poll())  # It would like to print the rest.
        os.kill(launcher.pid, signal.SIGTERM)
        self.assertEqual(launcher.wait(20), 0)

    def started(self, text, options=(), **more):
        """A launcher of one rank that runs the script `text`, once that has said "up"; and what its log says."""
        launcher = subprocess.Popen([LAUNCHER, "--run-dir", self.path("run"), *options, "-n", "1", "--",
                                     *self.script("one.py", text), self.path("go")], stdin=subprocess.DEVNULL, **more)
        self.addCleanup(launcher.kill)
        log = self.path("run", "logs", "gen-0001", "rank-0000.log")
        wait_for(lambda: os.path.exists(log) and b"up\n" in read_file(log), 20, "the rank")
        return launcher, log

    def test_a_coordinator_whose_log_nobody_reads_goes_on_and_ends(self):
        """A pipe behind which somebody has paused."""
        out, log = os.pipe()
        for end in (out, log):
            self.addCleanup(os.close, end)
        daemon = subprocess.Popen([LAUNCHER, "coordinator", "--state-dir", self.path("state")], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        self.addCleanup(daemon.wait)
        self.addCleanup(daemon.kill)
        wait_for(lambda: select.select([out], [], [], 0)[0] and b"listening on" in os.read(out, 4096), 20, "the coordinator")
        full = os.open(f"/proc/self/fd/{log}", os.O_WRONLY | os.O_NONBLOCK)  # What waits is the daemon's end alone.
        self.addCleanup(os.close, full)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(full, b"x")
        daemon.terminate()
        self.assertEqual(daemon.wait(20), 0)

    def test_nohup_and_the_background_of_a_script_keep_signals_of_the_terminal_away(self):
        numbers = signal.SIGHUP, signal.SIGINT, signal.SIGQUIT
        launcher, _ = self.started("import os, sys, time\nprint('up', flush=True)\n"
                                   "while not os.path.exists(sys.argv[1]):\n    time.sleep(0.01)\n",
                                   preexec_fn=lambda: [signal.signal(number, signal.SIG_IGN) for number in numbers])
        for number in numbers:
            os.kill(launcher.pid, number)
        open(self.path("go"), "w").close()
        self.assertEqual(launcher.wait(20), 0)

    def test_a_signal_that_also_ends_the_other_end_of_the_lifeline_is_one_request(self):
        text = "import os, sys, time\ntry:\n    print('up', flush=True)\n    time.sleep(1000)\nexcept KeyboardInterrupt:\n" \
               "    print('asked', flush=True)\n    while not os.path.exists(sys.argv[1]):\n        time.sleep(0.01)\n" \
               "    print('saved', flush=True)\n"
        heard, held = os.pipe()
        launcher, log = self.started(text, ["--lifeline", str(heard)], pass_fds=[heard])
        os.close(heard)
        os.kill(launcher.pid, signal.SIGINT)
        wait_for(lambda: b"asked" in read_file(log), 20, "the request")
        os.close(held)
        open(self.path("go"), "w").close()
        self.assertEqual(launcher.wait(20), 130)
        self.assertEqual(read_file(log), b"up\nasked\nsaved\n")

    def test_a_reader_that_closes_our_output_does_not_change_the_exit_code(self):
        ended = subprocess.run(f"{LAUNCHER} --run-dir {self.path('run')} -n 1 -- seq 1 200000 2>/dev/null | head -n 1;"
                               " exit ${PIPESTATUS[0]}", shell=True, executable="/bin/bash", capture_output=True, timeout=60)
        self.assertEqual(ended.returncode, 0)
        lines = read_file(self.path("run", "logs", "gen-0001", "rank-0000.log")).splitlines()
        self.assertEqual(len(lines), 200_000)


if __name__ == "__main__":
    unittest.main()
