"""Experiments whose trials a program makes, and those that run on a cluster."""

import json
import os
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from cluster import Cluster
from harness import ROOT, children_of, read_file, read_lines, wait_for
from tuning import SCORED, WAITS, TuneCase, linear

# A search program: halves the distance to what has been best so far. `fault`: after so many trials it does that.
SEARCHES = """
import json, os, sys, time
fault, after = sys.argv[1], int(sys.argv[2])
if os.path.exists(sys.argv[3] + ".mended"): fault = "none"
best, given = (None, 0.9), 0
for text in sys.stdin:
    line = json.loads(text)
    with open(sys.argv[3], "a") as file: file.write(text)
    if line["type"] == "end" and line["value"] is not None and (best[0] is None or line["value"] < best[0]):
        best = (line["value"], best[1])
    if line["type"] == "bye": break
    if line["type"] != "next": continue
    given += len(line.get("given", {}))
    for trial in line["trials"]:
        if str(trial) in line.get("given", {}): continue
        if fault == "dies" and given >= after: sys.exit(3)
        if fault == "quits" and given >= after: sys.exit(0)
        if fault == "mute" and given >= after:
            os.close(1)
            time.sleep(1000)
        if fault == "hangs" and given >= after: time.sleep(1000)
        if fault == "ends" and given >= after:
            print(json.dumps({"type": "no_more"}), flush=True)
            break
        number = trial + 100 if fault == "lies" and given >= after else trial
        value = 7.5 if fault == "errs" and given >= after else 0.9 / (1 + trial)
        for _ in range(2 if fault == "repeats" and given >= after else 1):
            print(json.dumps({"type": "trial", "trial": number, "parameters": {"lr": value}}), flush=True)
        given += 1
        if fault == "leaves" and given == 5: sys.exit(after)
"""


class Searches(TuneCase):
    """Trials that a program makes: what it is told, and what becomes of the experiment when it does not do its part."""

    def searching(self, fault="none", after=0, text=SCORED, arguments=(), timeout="50s", **tune):
        program = self.script("search.py", SEARCHES)
        search = {"type": "exec", "command": [*program, fault, str(after), self.path("told")], "timeout": timeout}
        return self.command(text, *arguments, parameters={"lr": {"uniform": [0, 1]}}, samples=5, search=search, **tune)

    def told(self, kind):
        return [line for line in read_lines(self.path("told")) if line["type"] == kind]

    def test_a_program_makes_the_trials_and_hears_how_they_end(self):
        launch = self.tune_to_end(self.searching())
        rows = self.table()
        self.assertEqual([rows[n]["parameters"]["lr"] for n in range(5)], [0.9 / (1 + n) for n in range(5)])
        ends = {line["trial"]: line for line in self.told("end")}
        self.assertEqual({n: line["outcome"] for n, line in ends.items()}, {n: "completed" for n in range(5)})
        self.assertEqual({n: line["value"] for n, line in ends.items()}, {n: rows[n]["value"] for n in range(5)})
        self.assertEqual(len(self.told("hello")), 1)
        self.assertEqual(len(self.told("bye")), 1)
        self.assertEqual(launch.summary()["tune"]["ended"], 5)

    def test_no_more_trials_than_the_program_gives(self):
        self.tune_to_end(self.searching("ends", 3))
        self.assertEqual(sorted(self.table()), [0, 1, 2])

    def failed(self, fault, words, trials, **tune):
        launch = self.tune_to_end(self.searching(fault, 2, concurrent=1, **tune), expect=1)
        self.assertIn(words, launch.summary()["error"])
        self.assertIn(words, launch.stderr())
        self.assertEqual({n: row["state"] for n, row in self.table().items()}, {n: "completed" for n in range(trials)})
        self.assertIsNotNone(self.best()["value"])

    def test_a_program_that_dies(self):
        self.failed("dies", "the search program has ended with exit code 3", 2)

    def test_a_program_that_ends_before_it_has_given_all(self):
        self.failed("quits", "the search program has ended with exit code 0", 2)
        self.assertIn("it owes trial 2, and has not said \"no_more\"", json.loads(read_file(self.path("x/summary.json")))["error"])

    def test_a_program_that_closes_its_standard_output(self):
        self.failed("mute", "the search program has closed its standard output, and goes on", 2)

    def test_a_program_that_leaves_somebody_behind_who_writes_on(self):
        """What comes behind its end is not its word, and holds up nobody. Several times: its end may be seen before its first line, or behind it."""
        search = {"type": "exec", "command": ["/bin/sh", "-c", "yes '{\"type\":\"odd\"}' & exit 0"]}
        job = self.command(SCORED, parameters={"lr": {"uniform": [0, 1]}}, samples=5, search=search)
        for attempt in range(6):
            launch = self.tune("--run-dir", self.path("x"), job)
            launch.wait()
            launch.wait_until_gone()
            self.assertEqual(len(launch.events("search_failed")), 1)
            os.rename(self.path("x"), self.path(f"x-{attempt}"))

    def test_a_program_that_ends_when_it_has_given_all(self):
        for exit_code in (0, 3):
            with self.subTest(exit_code=exit_code):
                launch = self.tune_to_end(self.searching("leaves", exit_code))
                (ended,) = launch.events("search_ended")
                self.assertIn(f"has ended with exit code {exit_code}", ended["why"])
                self.assertEqual({row["state"] for row in self.table().values()}, {"completed"})
                self.assertEqual(launch.summary()["state"], "succeeded")
                os.rename(self.path("x"), self.path(f"x-{exit_code}"))

    def test_what_a_program_that_has_died_owed_another_one_gives_later(self):
        self.failed("dies", "the search program has ended with exit code 3", 2)
        with open(self.path("told.mended"), "w"):
            pass
        self.resume()
        rows = self.table()
        self.assertEqual({n: row["parameters"]["lr"] for n, row in rows.items()}, {n: 0.9 / (1 + n) for n in range(5)})
        self.assertEqual(json.loads(read_file(self.path("x/summary.json")))["state"], "succeeded")

    def test_another_program_is_heard_after_a_kill_of_an_experiment_that_has_given_the_first_one_up(self):
        job = self.searching("dies", 2, text=WAITS, arguments=[self.folder], concurrent=3)
        launch = self.tune("--run-dir", self.path("x"), job)
        launch.wait_for_event("search_failed")
        wait_for(lambda: len([n for n in os.listdir(self.folder) if n.startswith("started-")]) >= 2, 60, "two trials")
        launch.process.kill()
        launch.wait(60)
        launch.wait_until_gone(10)
        for name in ("go", "told.mended"):
            self.write(name, "")
        self.resume()
        self.assertEqual({n: row["parameters"]["lr"] for n, row in self.table().items()}, {n: 0.9 / (1 + n) for n in range(5)})
        self.assertEqual({row["state"] for row in self.table().values()}, {"completed"})

    def test_a_program_that_is_killed_goes_on_as_another_one(self):
        launch = self.tune("--run-dir", self.path("x"), self.searching(text=WAITS, arguments=[self.folder]))
        wait_for(lambda: len([n for n in os.listdir(self.folder) if n.startswith("started-")]) >= 2, 60, "two trials")
        os.rename(self.path("told"), self.path("told-before"))
        (search,) = children_of(launch.process.pid, "search.py")
        os.kill(search, signal.SIGKILL)
        wait_for(lambda: os.path.exists(self.path("told")), 60, "another program")
        self.write("go", "")
        self.assertEqual(launch.wait(120), 0, launch.said())
        self.assertEqual(self.told("next")[0]["given"], {"0": {"lr": 0.9}, "1": {"lr": 0.45}})
        self.assertEqual(sorted(self.table()), [0, 1, 2, 3, 4])
        self.assertIn("signal 9", launch.stderr())

    def test_a_program_that_is_killed_again_and_again_is_given_up(self):
        search = {"type": "exec", "command": [*self.script("dies.py", "import os\nos.kill(os.getpid(), 9)\n")]}
        job = self.command(SCORED, parameters={"lr": {"uniform": [0, 1]}}, samples=5, search=search)
        launch = self.tune_to_end(job, expect=1)
        self.assertIn("4 times without output", launch.summary()["error"])

    def test_a_program_that_hangs(self):
        self.failed("hangs", "the search program has said nothing for 5s, and owes trial 2", 2, timeout="5s")

    def test_a_program_that_gives_what_was_not_asked_for(self):
        self.failed("lies", "gave trial 102, which was not asked for", 2)

    def test_a_program_that_gives_values_out_of_their_domain(self):
        self.failed("errs", "gave trial 2 wrong values", 2)

    def test_a_program_that_is_not_there(self):
        search = {"type": "exec", "command": ["no-such-search"]}
        job = self.command(SCORED, parameters={"lr": {"uniform": [0, 1]}}, samples=5, search=search)
        said = self.ask("tune", "--run-dir", self.path("x"), job, expect=2)
        self.assertIn("no-such-search", said)
        self.assertFalse(os.path.exists(self.path("x")))

    def test_a_new_program_after_a_kill_is_told_what_was_given(self):
        launch = self.tune("--run-dir", self.path("x"), self.searching(text=WAITS, arguments=[self.folder]))
        wait_for(lambda: len([n for n in os.listdir(self.folder) if n.startswith("started-")]) >= 2, 60, "two trials")
        os.kill(launch.process.pid, signal.SIGKILL)
        launch.wait_until_gone(10)
        self.write("go", "")
        os.rename(self.path("told"), self.path("told-before"))
        self.resume()
        first = self.told("next")[0]
        self.assertEqual(first["given"], {"0": {"lr": 0.9}, "1": {"lr": 0.45}})
        self.assertEqual(sorted(self.table()), [0, 1, 2, 3, 4])


class Kills(unittest.TestCase):
    def test_kills_of_everything_in_turn_change_no_decision(self):
        """A short form of `scripts/bench tune_kills`."""
        program = os.path.join(ROOT, "test", "bench", "tune_kills.py")
        done = subprocess.run([sys.executable, program, "--quick"], capture_output=True, text=True, timeout=280, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class OnACluster(unittest.TestCase):
    """The same machine in a daemon: its trials run on any node, and a new coordinator goes on with them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="sgd-tune-test-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.cluster = Cluster({"n1": 1, "n2": 1})
        self.cluster.__enter__()
        self.addCleanup(self.cluster.__exit__)

    def experiment(self, text, samples):
        script = os.path.join(self.folder, "trial.py")
        with open(script, "w") as file:
            file.write(text)
        job = {"name": "search", "command": ["/usr/bin/python3", "-S", script, "{lr}", self.folder],
               "tune": {"parameters": {"lr": {"uniform": [0, 1]}}, "samples": samples, "concurrent": 2, "metric": "loss", "mode": "min"}}
        path = os.path.join(self.folder, "job.json")
        with open(path, "w") as file:
            json.dump(job, file)
        return self.cluster.run("tune", path)

    def started(self, count):
        wait_for(lambda: len([n for n in os.listdir(self.folder) if n.startswith("started-")]) >= count, 60, f"{count} trials")

    def test_trials_run_on_all_nodes_and_survive_the_coordinator(self):
        client = self.experiment(WAITS, 4)
        run = client.run_id()
        self.started(2)
        self.cluster.kill("coordinator")
        with open(os.path.join(self.folder, "go"), "w"):
            pass
        self.cluster.start_coordinator()
        self.assertEqual(client.wait(120), 0, client.said())
        self.assertIn("4/4 trials", client.said()[0])
        ends = self.cluster.events(run, "trial_ended")
        self.assertEqual(sorted(event["trial"] for event in ends), [0, 1, 2, 3])
        self.assertEqual([event["trial"] for event in self.cluster.events(run, "trial_started")], [0, 1, 2, 3])
        best = json.loads(read_file(os.path.join(self.cluster.run_dir(run), "best.json")))
        self.assertEqual(best["value"], min(event["best"] for event in ends))
        nodes = {event["node"] for trial in range(4) for event in self.cluster.lines(f"{run}/trials/{trial:04}")
                 if event["event"] == "worker_started"}
        self.assertEqual(nodes, {"n1", "n2"})
        self.assertEqual([row["run"] for row in self.cluster.ask("ps", "--all")["runs"]], [run])

    def test_stop_ends_all_trials(self):
        client = self.experiment(WAITS, 4)
        run = client.run_id()
        self.started(2)
        self.assertEqual(self.cluster.run("stop", run).wait(), 0)
        self.assertEqual(client.wait(120), 6, client.said())
        self.assertEqual({event["state"] for event in self.cluster.events(run, "trial_ended")}, {"cancelled"})
        self.assertEqual(len(self.cluster.events(run, "trial_ended")), 2)

    def searched(self, *options, text=SCORED, fault="none", timeout="20s"):
        """A client that submits an experiment whose trials search.py makes, beside it."""
        search = os.path.join(self.folder, "search.py")
        script = os.path.join(self.folder, "trial.py")
        for path, content in ((search, SEARCHES), (script, text)):
            with open(path, "w") as file:
                file.write(content)
        command = ["/usr/bin/python3", search, fault, "2", os.path.join(self.folder, "told")]
        job = {"name": "searched", "command": ["/usr/bin/python3", "-S", script, "{lr}", self.folder],
               "tune": {"parameters": {"lr": {"uniform": [0, 1]}}, "metric": "loss", "mode": "min", "samples": 5, "concurrent": 2,
                        "search": {"type": "exec", "command": command, "timeout": timeout}}}
        path = os.path.join(self.folder, "job.json")
        with open(path, "w") as file:
            json.dump(job, file)
        return self.cluster.run("tune", path, *options)

    def values(self, run):
        return {event["trial"]: event["parameters"]["lr"] for event in self.cluster.events(run, "trial_started")}

    def test_a_program_beside_the_client_makes_the_trials(self):
        client = self.searched()
        run = client.run_id()
        self.assertEqual(client.wait(60), 0, client.said())
        self.assertEqual(self.values(run), {n: 0.9 / (1 + n) for n in range(5)})
        told = read_lines(os.path.join(self.folder, "told"))
        self.assertEqual({line["trial"]: line["outcome"] for line in told if line["type"] == "end"}, {n: "completed" for n in range(5)})
        self.assertEqual(told[-1]["type"], "bye")
        self.assertIn(f"{run}.search.log", client.said()[0])
        self.assertTrue(os.path.exists(os.path.join(self.cluster.folder, f"{run}.search.log")))

    def test_neither_its_death_nor_the_coordinators_loses_or_doubles_a_trial(self):
        client = self.searched(text=WAITS)
        run = client.run_id()
        self.started(2)
        (search,) = children_of(client.process.pid, "search.py")
        os.kill(search, signal.SIGKILL)
        self.cluster.kill("coordinator")
        self.cluster.start_coordinator()
        with open(os.path.join(self.folder, "go"), "w"):
            pass
        self.assertEqual(client.wait(120), 0, client.said())
        self.assertIn("another one goes on from there", client.said()[0])
        self.assertEqual(self.values(run), {n: 0.9 / (1 + n) for n in range(5)})
        self.assertEqual(len(self.cluster.events(run, "trial_started")), 5)

    def go(self):
        with open(os.path.join(self.folder, "go"), "w"):
            pass

    def check_all_given_once(self, run):
        self.assertEqual(self.values(run), {n: 0.9 / (1 + n) for n in range(5)})
        self.assertEqual(len(self.cluster.events(run, "trial_started")), 5)
        self.assertEqual({event["state"] for event in self.cluster.events(run, "trial_ended")}, {"completed"})

    def test_another_command_goes_on_where_one_was_killed(self):
        client = self.searched(text=WAITS)
        run = client.run_id()
        self.started(2)
        client.process.kill()
        client.wait()
        self.cluster.kill("coordinator")
        self.cluster.start_coordinator()
        status = self.cluster.run("tune", "status", run)
        self.assertEqual(status.wait(60), 0, status.said())
        self.assertNotIn("owes", status.said()[1])  # Both that it was asked for are at work.
        other = self.cluster.run("tune", "--resume", run[:-1])
        wait_for(lambda: "2 at work" in other.said()[0] or other.process.poll() is not None and self.fail(other.said()), 60, "the other command to join")
        self.go()
        self.assertEqual(other.wait(120), 0, other.said())
        self.check_all_given_once(run)
        self.assertIn(f"experiment {run} goes on", other.said()[0])

    def test_a_program_that_nobody_hears_is_followed_by_another_one(self):
        """Its experiment has given it up meanwhile."""
        client = self.searched(text=WAITS, timeout="5s")
        run = client.run_id()
        self.started(2)
        client.process.kill()
        client.wait()
        self.go()
        wait_for(lambda: self.cluster.events(run, "run_finished"), 60, "the experiment to be given up")
        self.assertEqual(len(self.cluster.events(run, "search_failed")), 1)
        other = self.cluster.run("tune", "--resume", run)
        self.assertEqual(other.wait(120), 0, other.said())
        self.check_all_given_once(run)

    def test_a_command_that_joins_makes_the_trials_from_then_on(self):
        client = self.searched(text=WAITS)
        run = client.run_id()
        self.started(2)
        other = self.cluster.run("tune", "--resume", run)
        wait_for(lambda: "makes the trials" in other.said()[0], 60, "the other command to join")
        (search,) = wait_for(lambda: children_of(other.process.pid, "search.py"), 60, "its search program")
        os.kill(search, signal.SIGSTOP)  # The first command may be the last to hear of a trial, and then has nothing to say.
        self.go()
        wait_for(lambda: f"the search program of another command makes the trials of {run} now" in client.said()[0], 60,
                 lambda: f"the first command to be refused: {client.said()}")
        os.kill(search, signal.SIGCONT)
        self.assertEqual(other.wait(120), 0, other.said())
        self.assertEqual(client.wait(60), 0, client.said())
        self.check_all_given_once(run)

    def test_a_trial_that_is_given_twice_ends_the_search(self):
        """As on one machine; what a lost connection repeats is not meant."""
        client = self.searched(fault="repeats")
        self.assertEqual(client.wait(60), 1)
        self.assertIn("the search program gave trial 2 twice", client.said()[0])

    def test_detached_nobody_would_make_the_trials(self):
        client = self.searched("--detach")
        self.assertEqual(client.wait(60), 2)
        self.assertIn("the job's search program runs beside this command", client.said()[0])


if __name__ == "__main__":
    unittest.main()
