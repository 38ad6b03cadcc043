"""A run that ended goes on in its own folder: equal in every bit to one that nothing happened to, whatever ended it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from data import image_job, small_fashion, write_job
from harness import LAUNCHER, Launch, LaunchTest, read_file, wait_for

EXACT = ("phase", "epoch", "step", "batch_count", "num_samples", "train_loss", "last_train_loss", "val_loss",
         "last_val_loss", "val_accuracy", "last_val_accuracy", "_training_iteration")
EVERY = 50
EPOCHS = 4
LONG = 16000   # Images: 250 steps an epoch, so that a signal surely comes before the end.
SHORT = 4000   # 63 steps an epoch.


class ResumeCase(LaunchTest):
    def job(self, name="job.json", images=LONG, **changes):
        data = self.path(f"data-{images}")
        if not os.path.isdir(data):
            small_fashion(data, images, 500)
        return self.job_file(self.folder, data, name, **changes)

    @staticmethod
    def job_file(folder, data, name="job.json", every=EVERY, epochs=EPOCHS, **changes):
        job = image_job(data, epochs=epochs, **changes)
        job["checkpoint"] = {"every": every if isinstance(every, str) else {"steps": every}, "keep": 10}
        return write_job(os.path.join(folder, name), job)

    def ask(self, *arguments, expect=0):
        """Output and errors of a verb that ends by itself."""
        ended = subprocess.run([LAUNCHER, *map(str, arguments)], capture_output=True, text=True, timeout=60,
                               cwd=self.folder, stdin=subprocess.DEVNULL)
        self.assertEqual(ended.returncode, expect, f"{arguments}: {ended.stdout}{ended.stderr}")
        return ended.stdout + ended.stderr

    def resume(self, *options, run_dir="run", expect=0):
        launch = self.start("resume", *options, self.path(run_dir), run_dir=None)
        launch.run_dir = self.path(run_dir)
        self.assertEqual(launch.wait(), expect, launch.said())
        launch.wait_until_gone()
        return launch

    def interrupted(self, number=signal.SIGINT, after=EVERY, code=130, **changes):
        """A run that gets a signal in the middle of an epoch, some steps after a checkpoint."""
        launch = self.start("--num-workers", 2, self.job(**changes))
        self.wait_for_step(launch, after)
        os.kill(launch.process.pid, number)
        self.assertEqual(launch.wait(), code, launch.said())
        launch.wait_until_gone()
        return launch

    def wait_for_step(self, launch, step, generation=1):
        def saved():
            self.assertIsNone(launch.process.poll(), launch.said())
            return [e for e in launch.events("checkpoint_saved") if e["step"] >= step and e["generation"] == generation]

        wait_for(saved, 60, f"a checkpoint of step {step}")

    def finished(self):
        """A run of one epoch that succeeded, with a checkpoint at its end and some before."""
        return self.run_to_end("--num-workers", 2, self.job(every=20, epochs=1, images=SHORT))

    def weights(self, launch):
        return read_file(os.path.join(launch.checkpoints()[-1], "model.safetensors"))

    def newest(self, launch):
        """By generation, then step."""
        return max(launch.checkpoints(), key=lambda path: (path[-4:], path))

    def facts(self, launch):
        return [{key: line[key] for key in EXACT if key in line} for line in launch.metrics()]

    def check_equal(self, resumed, straight):
        self.assertEqual(self.facts(resumed), self.facts(straight))
        with open(os.path.join(self.newest(resumed), "model.safetensors"), "rb") as file:
            self.assertTrue(file.read() == self.weights(straight), "the weights differ")
        for key in ("state", "epochs", "steps"):
            self.assertEqual(resumed.summary()[key], straight.summary()[key])
        self.assertEqual([e["epoch"] for e in resumed.events("epoch_finished")], list(range(1, EPOCHS + 1)))


class ExactTest(ResumeCase):
    @classmethod
    def setUpClass(cls):
        cls.shared = tempfile.mkdtemp(prefix="sgd-test-")
        cls.addClassCleanup(shutil.rmtree, cls.shared, ignore_errors=True)
        cls.data = small_fashion(os.path.join(cls.shared, "data"), LONG, 500)
        run_dir = os.path.join(cls.shared, "straight")
        launch = Launch(["--num-workers", "2", "--run-dir", run_dir, cls.job_file(cls.shared, cls.data)], cls.shared, run_dir)
        if launch.wait() != 0:
            raise AssertionError(launch.said())
        cls.straight = launch

    def test_interrupted_run_is_bit_equal(self):
        self.interrupted()
        resumed = self.resume()
        self.check_equal(resumed, self.straight)
        (event,) = resumed.events("run_resumed")
        self.assertEqual((event["run"], event["from_generation"]), ("run", 1))
        self.assertTrue(event["checkpoint"].startswith(f"checkpoints/step-{event['step']:012}-gen-0001"), event)
        self.assertGreaterEqual(event["step"], EVERY)
        self.assertEqual(len(resumed.events("run_started")), 1)
        self.assertEqual({e["generation"] for e in resumed.events("worker_started")}, {1, 2})
        self.assertEqual({e["step"] for e in resumed.events("worker_ready") if e["generation"] == 2}, {event["step"]})
        self.assertIn(f"goes on from step {event['step']}", resumed.stderr())
        self.assertTrue(os.path.isdir(self.path("run", "logs", "gen-0002")))
        said = resumed.stdout().decode()
        self.assertIn(f"epoch {EPOCHS}/{EPOCHS}  train_loss", said)
        self.assertEqual(said.count("  train_loss "), len([line for line in resumed.metrics("train") if line["generation"] == 2]))

    def test_killed_launcher(self):
        self.interrupted(signal.SIGKILL, after=300, code=-signal.SIGKILL)
        self.assertFalse(os.path.exists(self.path("run", "summary.json")))
        self.check_equal(self.resume(), self.straight)

    def test_twice(self):
        self.interrupted()
        second = self.start("resume", self.path("run"), run_dir=None)
        second.run_dir = self.path("run")
        self.wait_for_step(second, EVERY, generation=2)
        os.kill(second.process.pid, signal.SIGTERM)
        self.assertEqual(second.wait(), 143, second.said())
        second.wait_until_gone()
        third = self.resume()
        self.check_equal(third, self.straight)
        self.assertEqual([e["from_generation"] for e in third.events("run_resumed")], [1, 2])

    def test_moved_directory(self):
        self.interrupted()
        os.rename(self.path("run"), self.path("elsewhere"))
        resumed = self.resume(run_dir="elsewhere")
        self.check_equal(resumed, self.straight)
        self.assertEqual(resumed.events("run_resumed")[0]["run"], "run")

    def test_finished_run_with_more_epochs(self):
        straight = self.run_to_end("--num-workers", 2, self.job("straight.json", epochs=2, images=SHORT), run_dir="straight")
        self.finished()
        resumed = self.resume("--set", "training.epochs=2")
        self.assertEqual(self.facts(resumed), self.facts(straight))
        with open(os.path.join(self.newest(resumed), "model.safetensors"), "rb") as file:
            self.assertTrue(file.read() == self.weights(straight), "the weights differ")
        self.assertEqual(json.loads(read_file(self.path("run", "job.json")))["training"]["epochs"], 2)
        self.assertIn("epoch 2/2  train_loss", resumed.stdout().decode())

    def test_end_that_was_not_recorded(self):
        finished = self.finished()
        before = finished.summary()
        events = read_file(self.path("run", "events.jsonl")).splitlines(keepends=True)
        with open(self.path("run", "events.jsonl"), "wb") as file:
            file.write(b"".join(line for line in events if b"run_finished" not in line))
        os.remove(self.path("run", "summary.json"))
        resumed = self.resume()
        for key in ("state", "exit_code", "epochs", "steps", "metrics"):
            self.assertEqual(resumed.summary()[key], before[key])
        self.assertEqual(len(resumed.metrics()), 2)

    def test_damaged_newest_checkpoint(self):
        straight = self.run_to_end("--num-workers", 2, self.job("straight.json", epochs=2, images=SHORT), run_dir="straight")
        finished = self.finished()
        damaged = self.newest(finished)
        weights = os.path.join(damaged, "model.safetensors")
        content = bytearray(read_file(weights))
        content[len(content) // 2] ^= 1
        with open(weights, "wb") as file:
            file.write(content)
        resumed = self.resume("--set", "training.epochs=2")
        (rejected,) = resumed.events("checkpoint_rejected")
        self.assertEqual(rejected["path"], "checkpoints/" + os.path.basename(damaged))
        self.assertIn("model.safetensors is damaged", rejected["reason"])
        self.assertIn("model.safetensors is damaged", resumed.stderr())
        # On a slow disk one that is due is left out.
        before = [event["step"] for event in finished.events("checkpoint_saved") if event["generation"] == 1][-2]
        self.assertEqual(resumed.events("run_resumed")[0]["step"], before)
        self.assertEqual(self.facts(resumed), self.facts(straight))
        with open(os.path.join(self.newest(resumed), "model.safetensors"), "rb") as file:
            self.assertTrue(file.read() == self.weights(straight), "the weights differ")

    def test_torn_last_lines(self):
        self.interrupted(signal.SIGKILL, after=300, code=-signal.SIGKILL)
        for name in ("events.jsonl", "metrics.jsonl"):
            with open(self.path("run", name), "ab") as file:
                file.write(b'{"time":17000')
        resumed = self.resume()
        for name in ("events.jsonl", "metrics.jsonl"):
            self.assertIn(f"{name}: its last line was cut short", resumed.stderr())
        self.check_equal(resumed, self.straight)

    def test_lost_lines_of_metrics_are_made_again(self):
        self.interrupted(signal.SIGKILL, after=300, code=-signal.SIGKILL)
        lines = read_file(self.path("run", "metrics.jsonl")).splitlines(keepends=True)
        self.assertGreaterEqual(len(lines), 2)
        with open(self.path("run", "metrics.jsonl"), "wb") as file:
            file.write(b"".join(lines[:1]))
        resumed = self.resume()
        self.assertIn("metrics.jsonl has no line of", resumed.stderr())
        self.assertEqual(self.facts(resumed), self.facts(self.straight))


    def test_what_workers_save_while_their_launcher_is_suspended_stays_until_the_run_has_passed_it(self):
        """The launcher is killed before it has read what they say: the epochs have no lines."""
        launch = self.start("--num-workers", 2, self.job(every="epoch"))
        self.wait_for_step(launch, 1)
        os.kill(launch.process.pid, signal.SIGSTOP)
        covered = {line["epoch"] for line in launch.metrics("validate")}
        wait_for(lambda: len(launch.checkpoints()) == EPOCHS, 60, "the last epoch's checkpoint")
        os.kill(launch.process.pid, signal.SIGKILL)
        launch.wait()
        launch.wait_until_gone()
        ahead = [os.path.basename(path) for path in launch.checkpoints()][max(covered):]
        self.assertTrue(ahead, covered)
        self.assertEqual(self.ask("checkpoints", self.path("run")).count("ahead of metrics.jsonl"), len(ahead))
        measured = self.ask("validate", self.path("run", "checkpoints", ahead[-1]))
        self.assertRegex(measured, r"measured in \S+ s, val_loss \S+\n")
        self.assertNotIn("model:", measured)
        resumed = self.start("resume", self.path("run"), run_dir=None)
        resumed.run_dir = self.path("run")
        aside = self.path("run", "checkpoints", "ahead")
        wait_for(lambda: resumed.events("run_resumed"), 60, "the run to go on")
        kept = os.path.join(aside, ahead[-1])
        self.assertTrue(os.path.exists(os.path.join(kept, "manifest.json")) or resumed.process.poll() is not None, resumed.said())
        self.assertEqual(resumed.wait(), 0, resumed.said())
        resumed.wait_until_gone()
        self.assertEqual(resumed.stderr().count("metrics.jsonl has no line of"), 1)
        self.assertFalse(os.path.exists(aside))
        self.check_equal(resumed, self.straight)


class RefusalTest(ResumeCase):
    def kept(self):
        """Every file of the run with its content."""
        found = {}
        for folder, _, names in os.walk(self.path("run")):
            for name in names:
                path = os.path.join(folder, name)
                found[path] = os.readlink(path) if os.path.islink(path) else read_file(path)
        return found

    def refused(self, *arguments, words, expect=2):
        before = self.kept()
        said = self.ask("resume", *arguments, self.path("run"), expect=expect)
        for word in words:
            self.assertIn(word, said)
        self.assertEqual(self.kept(), before)

    def test_nothing_to_train(self):
        self.finished()
        self.refused(words=["all 1 epochs are trained", "--set training.epochs=4 trains more"])
        self.refused("--timeout", "10s", words=["nothing to train"])

    def test_wrong_values_all_at_once(self):
        self.finished()
        self.refused("--set", "training.epochs=two", "--set", "training.optimiser.lr=1", "-n", "0",
                     words=["--set training.epochs: error", "optimizer", "--num-workers", "at least 1"])
        self.refused("--set", "training.epochs=9", "--set", "training.dataset.path=/nowhere", words=["/nowhere"])
        self.refused("--run-dir", "x", words=["unknown option"])

    def test_a_model_of_another_width_is_told_with_both_shapes(self):
        self.run_to_end("--num-workers", 2, self.job(every=20, epochs=1, images=SHORT, model={"type": "mlp", "hidden": [32]}))
        resumed = self.resume("--set", "training.epochs=2", "--set", 'training.model={"type":"mlp","hidden":[16]}', expect=1)
        self.assertRegex(resumed.said(), r"tensor \S+ is F32 \[32, 784\] here and F32 \[16, 784\] in the job's model: "
                                         "resume with the model that was trained, or start a new run")

    def test_another_optimizer_or_kind_of_model_has_no_state_in_the_checkpoint(self):
        self.finished()
        more = ("--set", "training.epochs=2")
        adam = ("--set", 'training.optimizer={"type":"adam"}')
        self.refused(*more, *adam, words=["training.optimizer.type was sgd and is adam", "--set training.optimizer.type=sgd"])
        self.refused(*more, "--set", 'training.model={"type":"cnn"}', words=["training.model.type was mlp and is cnn"])
        said = self.ask("validate", *adam, self.path("run"), expect=2)
        self.assertIn("training.optimizer.type was sgd and is adam", said)
        self.assertEqual(self.resume(*more).summary()["state"], "succeeded")

    def test_settings_that_the_workers_refuse_are_taken_back(self):
        """How large the model's tensors are is known to them alone."""
        launch = self.finished()
        before = read_file(self.path("run", "job.json"))
        more = ("--set", "training.epochs=2")
        failed = self.resume(*more, "--set", "training.model.hidden=[7]", expect=1)
        self.assertTrue(failed.summary()["cause"]["is_final"], failed.summary())
        self.assertEqual(read_file(self.path("run", "job.json")), before)
        self.assertNotIn("next ", self.ask("status", launch.run_dir))
        resumed = self.resume(*more)
        self.assertEqual((resumed.summary()["state"], resumed.summary()["epochs"]), ("succeeded", 2))
        self.assertEqual([name for name in os.listdir(self.path("run")) if name.startswith("job")], ["job.json"])

    def test_it_is_not_detached_from_a_launcher(self):
        self.finished()
        self.refused("--detach", "--set", "training.epochs=2", words=["--detach", "needs a coordinator"])

    def test_live_run(self):
        launch = self.start("-n", 1, "--", "sleep", "100")
        launch.wait_for_event("worker_started")
        said = self.ask("resume", self.path("run"), expect=2)
        self.assertIn("still running", said)

    def test_missing_or_broken_job(self):
        self.run_to_end("-n", 1, "--", "true")
        with open(self.path("run", "job.json"), "w") as file:
            file.write('{"name": ')
        self.refused(words=["job.json:1:", "error"])
        os.remove(self.path("run", "job.json"))
        self.refused(words=["job.json: error: cannot open"])

    def test_unknown_run(self):
        self.assertIn("no-such-run", self.ask("resume", "no-such-run", expect=4))
        self.ask("resume", expect=4)

    def test_folder_in_use_without_socket(self):
        launch = self.start("-n", 1, "--", "sleep", "100")
        launch.wait_for_event("worker_started")
        os.remove(self.path("run", "control.sock"))
        self.assertIn("in use by another sgd-launch", self.ask("resume", self.path("run"), expect=2))


COUNT = """
import os, sys
sys.exit(0 if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1" else 3)
"""


class CommandTest(ResumeCase):
    def test_command_is_started_again(self):
        self.run_to_end("-n", 2, "--", *self.script("count.py", COUNT), expect=1)
        resumed = self.resume("--quiet")
        self.assertEqual(resumed.summary()["state"], "succeeded")
        self.assertEqual([(e["generation"], e["rank"]) for e in resumed.events("worker_started")].count((2, 1)), 1)
        self.assertEqual(resumed.summary()["failures"], 1)

    def test_as_many_workers_as_there_are_cores(self):
        self.run_to_end("-n", 1, "--", "true")
        self.assertEqual(self.resume("-n", "cpu").summary()["world_size"], len(os.sched_getaffinity(0)))
        said = self.ask("resume", "-n", "xpu", self.path("run"), expect=2)
        self.assertIn("there is no way to count XPUs", said)
        self.assertEqual(said.count("error:"), 1, said)

    def test_latest_by_default_and_run_that_was_never_placed(self):
        self.run_to_end("-n", 2, "--slots", 1, "--set", "placement_timeout=100ms", "--", "true", run_dir=None, expect=5)
        launch = self.start("resume", run_dir=None)
        self.assertEqual(launch.wait(), 0, launch.said())
        launch.run_dir = os.path.realpath(self.path("runs", "latest"))
        self.assertEqual([e["event"] for e in launch.events()][:3], ["run_finished", "run_resumed", "run_started"])


class ListsTest(ResumeCase):
    def test_checkpoints(self):
        finished = self.finished()
        listed = json.loads(self.ask("checkpoints", "--json", self.path("run")))["checkpoints"]
        # A save whose time comes while the last one is still being written is left out.
        saved = [event["step"] for event in finished.events("checkpoint_saved")]
        self.assertEqual([one["step"] for one in listed], saved[::-1])
        self.assertEqual((saved[0], saved[-1]), (20, 63))
        self.assertTrue(set(saved) <= {20, 40, 60, 63}, saved)
        for one in listed:
            self.assertEqual((one["generation"], one["world_size"], one["whole"], one["damage"]), (1, 2, True, None))
            self.assertGreater(one["bytes"], 100_000)
            self.assertGreaterEqual(one["age_s"], 0)
        self.assertEqual([one["epoch"] for one in listed], [1] + [0] * (len(saved) - 1))
        text = self.ask("checkpoints", self.path("run"))
        self.assertEqual(text.count("whole"), len(saved))
        newest = os.path.join(self.newest(finished), "optimizer.safetensors")
        content = bytearray(read_file(newest))
        content[-1] ^= 1
        with open(newest, "wb") as file:
            file.write(content)
        self.assertIn("optimizer.safetensors is damaged", self.ask("checkpoints", self.path("run")))
        self.assertEqual(self.ask("checkpoints", "--quick", self.path("run")).count("whole"), len(saved))

    def test_checkpoints_of_a_living_run(self):
        launch = self.start("--num-workers", 2, self.job(epochs=1_000_000, every=10))
        self.wait_for_step(launch, 20)
        listed = json.loads(self.ask("checkpoints", "--json", self.path("run")))["checkpoints"]
        self.assertGreaterEqual(len(listed), 1)
        self.assertTrue(all(one["whole"] for one in listed), listed)

    def test_nodes(self):
        launch = self.start("-n", 2, "--slots", 3, "--", "sleep", "100")
        launch.wait_for_event("worker_started", count=2)
        run = self.path("run")
        self.assertEqual(json.loads(self.ask("nodes", "--json", run))["nodes"], [{"node": "localhost", "slots": 3, "used": 2}])
        text = self.ask("nodes", run, "set-slots", 5)
        self.assertEqual(text.splitlines()[-1].split(), ["localhost", "5", "2"])
        self.assertIn("no node \"other\"", self.ask("nodes", run, "set-slots", 1, "--node", "other", expect=4))
        self.assertIn("expected a number from 0", self.ask("nodes", run, "set-slots", "many", expect=2))
        self.ask("nodes", run, "set-slots", expect=2)
        self.ask("nodes", run, "--node", "localhost", expect=2)
        self.ask("stop", run)
        self.assertEqual(launch.wait(20), 6, launch.said())
        self.assertIn("not running", self.ask("nodes", run, expect=3))

    def test_slots_that_come_let_a_waiting_run_begin(self):
        launch = self.start("-n", 2, "--slots", 1, "--local-nodes", 2, "--", "true")
        wait_for(lambda: os.path.islink(self.path("run", "control.sock")), 20, "the control socket")
        self.assertIn("name one with --node", self.ask("nodes", self.path("run"), "set-slots", 1, expect=2))
        self.ask("nodes", self.path("run"), "set-slots", 1, "--node", "node-1")
        self.assertEqual(launch.wait(20), 0, launch.said())


if __name__ == "__main__":
    unittest.main()
