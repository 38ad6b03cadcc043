"""Programs that train: SgdLaunch::client of the installed package, driven through every call (test/client/driver.cpp)."""

import glob
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import uuid

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import BIN_DIR, LAUNCHER, MARK, LaunchTest, marked, process_state, read_file, read_lines, wait_for

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
LOOP = os.path.join(BIN_DIR, "..", "lib", "own_loop.so")
INACTIVE = "This Trainer is not active. It is either shutdown already or never started in the first place. Either create a new Trainer or start this one."


def command(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


class Program:
    """A running driver."""

    def __init__(self, path, folder, env):
        self.mark = uuid.uuid4().hex
        self.errors = open(os.path.join(folder, "driver-errors-" + self.mark[:8]), "wb")
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PET_", "SGD_", "OMP_"))}
        environment.update({MARK: self.mark, **env})
        self.process = subprocess.Popen([path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, cwd=folder, env=environment,
                                        start_new_session=True)

    def begin(self, name, with_=None, trainer="a"):
        self.process.stdin.write((json.dumps({"trainer": trainer, "call": name, "with": with_}) + "\n").encode())
        self.process.stdin.flush()

    def answer(self):
        line = self.process.stdout.readline()
        return json.loads(line) if line else None

    def ask(self, name, with_=None, trainer="a"):
        self.begin(name, with_, trainer)
        return self.answer()

    def do(self, name, with_=None, trainer="a"):
        told = self.ask(name, with_, trainer)
        if told is None or "ok" not in told:
            raise AssertionError(f"{name}: {told}")
        return told["ok"]

    def others(self):
        return [pid for pid in marked(self.mark) if pid != self.process.pid]

    def end(self):
        self.process.kill()
        self.process.wait(10)
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            stream.close()
        for pid in marked(self.mark):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass


class ClientTest(LaunchTest):
    @classmethod
    def setUpClass(cls):
        cls.built = tempfile.mkdtemp(prefix="sgd-test-client-")
        cls.addClassCleanup(shutil.rmtree, cls.built, ignore_errors=True)
        cls.prefix = os.path.join(cls.built, "prefix")
        command("cmake", "--install", os.path.dirname(BIN_DIR), "--prefix", cls.prefix)

    @classmethod
    def build(cls, *source, options=()):
        """A program that is no part of our tree, against the package."""
        build = os.path.join(cls.built, source[-1])
        command("cmake", "-S", os.path.join(ROOT, *source), "-B", build, f"-DCMAKE_PREFIX_PATH={cls.prefix}", "-DCMAKE_CXX_COMPILER_LAUNCHER=ccache", *options)
        command("cmake", "--build", build)
        return build


class TrainerTest(ClientTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.driver = os.path.join(cls.build("test", "client"), "driver")

    def program(self, **env):
        program = Program(self.driver, self.folder, env)
        self.addCleanup(program.end)
        return program

    def trainer(self, program, job, trainer="a", **options):
        program.do("make", {"job": job, "logdir": self.path("logs-" + trainer), **options}, trainer)
        program.do("start", trainer=trainer)
        return trainer

    def line(self, epochs=3, **training):
        """Its numbers are known: test/integration/training_test.py."""
        return {"name": "line", "num_workers": 2,
                "training": {"epochs": epochs, "batch_size": 32, "shuffle": False, "model": {"type": "linear", "init": "zeros"}, "loss": "mse",
                             "dataset": {"type": "linear", "samples": 1000, "validation_samples": 400}, "optimizer": {"type": "sgd", "lr": 0.01}, **training}}

    def slow(self, **training):
        """Long enough to be in the middle of it, whatever the machine."""
        job = self.line(**training)
        job["training"]["dataset"]["samples"] = 20_000_000
        return job

    def turns(self, **settings):
        return {"name": "turns", "num_workers": 2, "plugins": [LOOP], "training": {"function": {"type": "turns", **settings}}}

    def weights(self, folder):
        return read_file(os.path.join(folder, "model.safetensors"))

    def wait_for_worker(self, program, event, run="run_001", count=1):
        """The first `count` events of a run that the program has begun."""

        def seen():
            found = [one for one in read_lines(self.path("logs-a", run, "events.jsonl")) if one["event"] == event]
            return found[:count] if len(found) >= count else None

        return wait_for(seen, 60, event)

    def test_epoch_by_epoch(self):
        program = self.program()
        self.trainer(program, self.line())
        trained = [program.do("train") for _ in range(3)]
        self.assertEqual([line["epoch"] for line in trained], [1, 2, 3])
        for line, expected in zip(trained, (13.30967, 2.01749, 1.64378)):
            self.assertAlmostEqual(line["train_loss"], expected, delta=1e-3)
            self.assertEqual((line["num_samples"], line["batch_count"]), (1000, 32))
        validated = program.do("validate")
        self.assertAlmostEqual(validated["val_loss"], 2.89575, delta=1e-3)
        self.assertEqual(validated["num_samples"], 400)
        self.assertEqual(program.others(), [], "a process is left between two calls")
        places = program.do("places")
        self.assertEqual(places["run_dir"], self.path("logs-a", "run_001"))
        self.assertEqual(places["dir"], self.path("logs-a", "run_001", "checkpoints"))
        # One run of three epochs ends with the same bits.
        self.trainer(program, self.line(), "b")
        self.assertEqual(program.do("run", trainer="b"), [])
        self.assertEqual(self.weights(program.do("places", trainer="b")["path"]), self.weights(places["path"]))

    def test_save_and_load(self):
        program = self.program()
        self.trainer(program, self.line())
        self.assertIn("there is no checkpoint yet", program.ask("save", self.path("best"))["words"])
        for _ in range(2):
            program.do("train")
        self.assertEqual(program.do("save", self.path("best")), self.path("best"))
        two = self.weights(self.path("best"))
        program.do("train")
        three = self.weights(program.do("places")["path"])
        self.assertNotEqual(two, three)
        # Loaded, by another program with another number of workers, too.
        program.do("load", self.path("best"))
        self.assertAlmostEqual(program.do("validate")["val_loss"], 3.55408, delta=1e-3)
        self.assertEqual(program.do("train")["epoch"], 3)
        self.assertEqual(self.weights(program.do("places")["path"]), three)
        other = self.program()
        self.trainer(other, {**self.line(), "num_workers": 1}, "b")
        other.do("load", self.path("best"), "b")
        self.assertEqual(self.weights(other.do("places", trainer="b")["path"]), two)
        self.assertAlmostEqual(other.do("train", trainer="b")["train_loss"], 1.64378, delta=1e-3)
        # In place of a checkpoint, but of nothing else.
        program.do("save", self.path("best"))
        self.assertEqual(self.weights(self.path("best")), three)
        os.mkdir(self.path("mine"))
        self.assertIn("it is there already, and no checkpoint", program.ask("save", self.path("mine"))["words"])
        self.assertEqual(program.ask("load", self.path("mine"))["words"], self.path("mine") + ": it is no checkpoint")
        self.assertEqual([name for name in os.listdir(self.folder) if name.startswith(".saving")], [])

    def test_a_run_begins_with_what_was_loaded(self):
        program = self.program()
        self.trainer(program, self.line())
        self.assertEqual([program.do("train")["epoch"] for _ in range(2)], [1, 2])
        program.do("save", self.path("two"))
        program.do("train")
        three = self.weights(program.do("places")["path"])
        self.trainer(program, self.line(), "b")
        program.do("load", self.path("two"), "b")
        self.assertAlmostEqual(program.do("validate", trainer="b")["val_loss"], 3.55408, delta=1e-3)
        program.do("run_iterator", trainer="b")
        self.assertEqual(program.do("next", trainer="b")["epoch"], 3)
        program.do("get_final_results", True, "b")
        places = program.do("places", trainer="b")
        # Each kind of folder has numbers of its own, which go on behind those of an earlier trainer.
        self.assertEqual((places["run_dir"], self.weights(places["path"])), (self.path("logs-b", "run_001"), three))
        self.trainer(program, self.line(), "b")
        self.assertEqual(program.do("train", trainer="b")["epoch"], 1)
        self.assertEqual(program.do("places", trainer="b")["run_dir"], self.path("logs-b", "run_002"))

    def test_a_job_that_begins_with_a_checkpoint(self):
        program = self.program()
        self.trainer(program, self.line())
        self.assertEqual([program.do("train")["epoch"] for _ in range(2)], [1, 2])
        program.do("save", self.path("two"))
        for name, origin in (("b", self.path("logs-a", "run_001")), ("c", "two")):
            self.trainer(program, {**self.line(), "resume_from": origin}, name)
            self.assertAlmostEqual(program.do("validate", trainer=name)["val_loss"], 3.55408, delta=1e-3)
            self.assertAlmostEqual(program.do("train", trainer=name)["train_loss"], 1.64378, delta=1e-3)
            self.assertEqual(program.do("train", trainer=name)["epoch"], 4)
        self.assertEqual(program.do("train", {"resume_from": "./two"}, "c")["epoch"], 3)
        self.trainer(program, {**self.line(), "resume_from": "none"}, "d")
        self.assertEqual(program.ask("train", trainer="d")["error"], "JobError")

    def test_epochs_of_a_job_that_saves_nothing(self):
        program = self.program()
        self.trainer(program, {**self.line(), "checkpoint": {"every": "never"}})
        self.assertEqual([program.do("train", changes)["epoch"] for changes in (None, {"checkpoint.every": "never"})], [1, 2])
        self.assertAlmostEqual(program.do("validate")["val_loss"], 3.55408, delta=1e-3)
        # The other way round: a job that needs checkpoints is validated, which saves none.
        self.trainer(program, self.line(on_nan="rollback"), "b")
        program.do("train", trainer="b")
        self.assertAlmostEqual(program.do("validate", trainer="b")["val_loss"], 4.36208, delta=1e-3)

    def test_epochs_without_a_report(self):
        program = self.program()
        self.trainer(program, self.line(early_stop={"metric": "val_loss", "mode": "min", "patience": 1, "min_delta": 100}))
        self.assertEqual([program.do("train")["epoch"] for _ in range(2)], [1, 2])
        why = "training has stopped early after epoch 2: val_loss has not got better than 4.36"
        for changes in (None, {"training.optimizer.lr": 0.02}):
            told = program.ask("train", changes)
            self.assertEqual((told.get("error"), why in told.get("words", "")), ("TrainerError", True), told)
        self.assertEqual(program.do("train", {"training.early_stop.patience": 9})["epoch"], 3)
        self.assertIn('"training.validate_only" trains nothing', program.ask("train", {"training.validate_only": True})["words"])
        self.trainer(program, self.turns(), "b")
        told = program.ask("train", trainer="b")
        self.assertEqual((told.get("error"), 'nothing of phase "train" in epoch 1' in told.get("words", "")), ("TrainerError", True), told)

    def test_changes_of_one_call(self):
        program = self.program()
        self.trainer(program, self.line())
        self.assertEqual(program.do("train", {"training.optimizer.lr": 0.001, "training.dataset.samples": 64})["num_samples"], 64)
        told = program.ask("train", {"training.optimizer.lrr": 1})
        self.assertEqual(told["error"], "JobError")
        self.assertIn('unknown key "lrr"', told["words"])
        self.assertEqual(program.ask("train", [1])["words"], "changes are a JSON object of dotted paths and their values, got [1]")
        self.assertEqual(program.do("train")["num_samples"], 1000, "the change of one call holds for another")
        # Of a call that fails, too: what was trained before it is still there.
        self.assertEqual(program.ask("train", {"training.optimizer.lr": 1e30})["error"], "TrainingFailed")
        self.assertEqual(program.do("train")["epoch"], 3)

    def test_run_returns_what_the_function_returns(self):
        program = self.program()
        self.trainer(program, self.turns(count=2))
        self.assertEqual(program.do("run"), [{"rank": 0, "turns": 2}, {"rank": 1, "turns": 2}])
        self.assertEqual(program.do("run", {"training.function.count": 3}), [{"rank": 0, "turns": 3}, {"rank": 1, "turns": 3}])
        self.assertTrue(program.do("places")["run_dir"].endswith("run_002"))

    def test_apply(self):
        """A registered function on every worker, beside a job that trains by other means."""
        program = self.program()
        self.trainer(program, {**self.line(), "plugins": [LOOP]})
        program.do("train")
        self.assertEqual(program.do("apply", {"type": "turns", "count": 1}), [{"rank": 0, "turns": 1}, {"rank": 1, "turns": 1}])
        self.assertEqual(program.do("train")["epoch"], 2)
        # What a function may not have beside it is no concern of this one.
        rest = {"metrics": ["mae"], "profile": True, "validate_every": 2, "validate_only": True, "scheduler": [{"type": "reduce_on_plateau"}],
                "early_stop": {"metric": "val_loss", "mode": "min", "patience": 1}}
        self.trainer(program, {**self.line(**rest), "plugins": [LOOP], "resume_from": program.do("places")["path"]}, "b")
        self.assertEqual(program.do("apply", {"type": "turns", "count": 1}, "b"), [{"rank": 0, "turns": 1}, {"rank": 1, "turns": 1}])

    def test_reports_one_by_one(self):
        program = self.program()
        os.mkfifo(self.path("go on"))
        self.trainer(program, self.turns(pause_at=2, until=self.path("go on")))
        program.do("run_iterator")
        self.assertEqual([program.do("next")["index"] for _ in range(2)], [0, 1])
        self.assertIsNone(program.do("get_final_results"))
        self.assertIn("a run of this Trainer goes on", program.ask("train")["words"])
        self.addCleanup(os.close, os.open(self.path("go on"), os.O_RDWR))
        rest = []
        while (report := program.do("next")) is not None:
            rest.append(report["index"])
        self.assertEqual(rest, [2])
        self.assertEqual(program.do("get_final_results"), [{"rank": 0, "turns": 3}, {"rank": 1, "turns": 3}])
        self.assertIsNone(program.do("next"))
        # Forced: the rest of the reports is left out.
        program.do("run_iterator")
        self.assertEqual(program.do("get_final_results", True), [{"rank": 0, "turns": 3}, {"rank": 1, "turns": 3}])
        self.assertIsNone(program.do("next"))

    def test_an_iterator_that_is_dropped_ends_its_run(self):
        program = self.program()
        os.mkfifo(self.path("never"))
        self.trainer(program, self.turns(pause_at=1, until=self.path("never")))
        program.do("run_iterator")
        program.do("next")
        self.assertNotEqual(program.others(), [])
        program.do("drop")
        self.assertEqual(program.others(), [])
        program.do("places")

    def test_a_killed_worker_changes_nothing(self):
        program = self.program()
        job = self.line()
        job["training"]["dataset"]["samples"] = 2_000_000
        self.trainer(program, job)
        program.begin("train")
        self.wait_for_worker(program, "first_step")
        os.kill([one for one in self.wait_for_worker(program, "worker_started", count=2) if one["rank"] == 1][0]["pid"], signal.SIGKILL)
        told = program.answer()
        self.assertEqual(told["ok"]["num_samples"], 2_000_000, told)
        self.wait_for_worker(program, "failure")
        self.trainer(program, job, "b")
        self.assertEqual(program.do("train", trainer="b")["train_loss"], told["ok"]["train_loss"])

    def test_nothing_is_left_of_a_killed_program(self):
        program = self.program()
        self.trainer(program, self.slow())
        program.begin("train")
        self.wait_for_worker(program, "first_step")
        program.process.kill()
        program.process.wait(10)
        wait_for(lambda: not marked(program.mark), 30, "the end of what the program has started")
        # What was trained until then is not lost.
        self.assertEqual(len(glob.glob(self.path("logs-a", "run_001", "checkpoints", "step-*"))), 1)
        self.assertEqual(json.loads(read_file(self.path("logs-a", "run_001", "summary.json")))["state"], "interrupted")

    def test_a_killed_launcher(self):
        program = self.program()
        self.trainer(program, self.slow())
        program.begin("train")
        self.wait_for_worker(program, "first_step")
        launchers = [pid for pid in program.others() if b"--lifeline" in read_file(f"/proc/{pid}/cmdline").split(b"\0")]
        os.kill(launchers[0], signal.SIGKILL)
        told = program.answer()
        self.assertEqual(told["error"], "LauncherLost")
        self.assertIn("ended by signal 9", told["words"])
        wait_for(lambda: not program.others(), 30, "the end of what the launcher has started")
        self.assertEqual(program.do("train", {"training.dataset.samples": 1000})["epoch"], 1)

    def test_failures_are_told_in_the_launchers_words(self):
        program = self.program()
        self.trainer(program, self.line())
        told = program.ask("train", {"training.optimizer.lr": 1e30})
        self.assertEqual((told["error"], told["exit_code"]), ("TrainingFailed", 1))
        self.assertEqual(told["summary"]["state"], "failed")
        self.assertRegex(told["words"], r"not finite|NaN|nan")
        self.assertEqual(program.do("train")["epoch"], 1)

    def test_bad_jobs(self):
        program = self.program()
        bad = self.line(epoch=3)
        program.do("make", {"job": bad, "logdir": self.path("logs-a")})
        told = program.ask("start")
        self.assertEqual(told["error"], "JobError")
        self.assertIn('unknown key "epoch" in "training"', told["words"])
        self.assertEqual(program.ask("train")["words"], INACTIVE)
        program.do("make", {"job": self.path("none.json"), "logdir": self.path("logs-b")}, "b")
        self.assertIn("none.json", program.ask("start", trainer="b")["words"])
        # What is wrong with the data is found where it is needed.
        program.do("make", {"job": self.line(dataset={"type": "idx", "path": "nowhere"}, loss="cross_entropy", model={"type": "mlp"}), "logdir": self.path("logs-c")}, "c")
        told = program.ask("start", trainer="c")
        told = program.ask("train", trainer="c") if "ok" in told else told
        self.assertEqual(told["error"], "JobError")
        self.assertIn("nowhere", told["words"])
        program.do("make", {"job": self.line(), "logdir": self.path("logs-d"), "launcher": self.path("no-launcher")}, "d")
        told = program.ask("start", trainer="d")
        self.assertEqual(told["error"], "LauncherLost")
        self.assertIn("cannot start " + self.path("no-launcher") + ": No such file or directory", told["words"])

    def test_calls_before_the_start_and_after_the_shutdown(self):
        program = self.program()
        program.do("make", {"job": self.line(), "logdir": self.path("logs-a")})
        calls = (("train", None), ("validate", None), ("run", None), ("run_iterator", None), ("apply", {"type": "turns"}), ("save", "x"), ("load", "x"))
        for name, with_ in calls:
            self.assertEqual(program.ask(name, with_), {"error": "TrainerInactive", "words": INACTIVE}, name)
        program.do("start")
        program.do("train")
        program.do("shutdown")
        for name, with_ in calls:
            self.assertEqual(program.ask(name, with_), {"error": "TrainerInactive", "words": INACTIVE}, name)
        # What was trained is still told, as theirs does.
        self.assertTrue(os.path.exists(program.do("places")["path"] + "/manifest.json"))
        program.do("shutdown")
        program.do("start")
        self.assertEqual(program.do("train")["epoch"], 2)

    def test_shutdown_ends_a_run(self):
        program = self.program()
        self.trainer(program, self.slow())
        program.do("run_iterator")
        self.wait_for_worker(program, "first_step")
        program.do("shutdown")
        self.assertEqual(program.others(), [])
        told = program.ask("next")
        self.assertEqual(told["error"], "TrainingStopped")
        self.assertEqual(told["summary"]["state"], "interrupted")
        self.assertTrue(program.do("places")["path"], "it has no checkpoint")

    def test_stopped_from_outside(self):
        program = self.program()
        self.trainer(program, self.slow())
        program.begin("run")
        self.wait_for_worker(program, "first_step")
        subprocess.run([LAUNCHER, "stop", self.path("logs-a", "run_001")], check=True, timeout=60, stdout=subprocess.DEVNULL)
        told = program.answer()
        self.assertEqual((told["error"], told["exit_code"]), ("TrainingStopped", 6))

    def test_several_in_threads(self):
        program = self.program()
        for name in "abc":
            self.trainer(program, {**self.line(), "num_workers": 1}, name)
        together = program.do("together", ["a", "b", "c"])
        self.assertEqual([line["epoch"] for line in together], [1, 1, 1])
        self.assertEqual(len({line["train_loss"] for line in together}), 1)
        self.assertEqual(program.others(), [])

    def test_reports_of_any_shape(self):
        """What ranks report under names of ours is no reason to end the program."""
        program = self.program()
        self.trainer(program, self.line())
        self.assertEqual(program.do("train")["epoch"], 1)
        with open(self.path("logs-a", "run_001", "metrics.jsonl"), "a", encoding="utf-8") as file:
            file.write('{"phase": 3, "epoch": "one"}\n{"phase": "train", "epoch": [2]}\n')
        self.assertEqual(program.do("train")["epoch"], 2)

    def test_in_a_program_that_ignores_its_children(self):
        program = self.program()
        program.do("ignore_children")
        self.trainer(program, self.line())
        self.assertEqual(program.do("train")["epoch"], 1)
        told = program.ask("train", {"training.optimizer.lr": 1e30})
        self.assertEqual((told["error"], told["exit_code"]), ("TrainingFailed", 1))

    def test_no_zombie_and_no_descriptor_is_left(self):
        program = self.program()
        self.trainer(program, self.line())

        def descriptors():
            return sorted(os.listdir(f"/proc/{program.process.pid}/fd"))

        before = descriptors()
        for _ in range(3):
            program.do("train")
        self.assertEqual(descriptors(), before)
        children = [pid for pid in os.listdir("/proc") if pid.isdigit() and process_state(pid) == "Z"
                    and re.search(rb"^PPid:\t%d$" % program.process.pid, read_file(f"/proc/{pid}/status"), re.MULTILINE)]
        self.assertEqual(children, [])

    def test_a_path_of_a_job_file(self):
        """From another working directory; what the job names lies beside it."""
        os.mkdir(self.path("jobs"))
        shutil.copy(LOOP, self.path("jobs", "own.so"))
        with open(self.path("jobs", "job.json"), "w", encoding="utf-8") as file:
            json.dump({**self.turns(count=1), "plugins": ["own.so"]}, file)
        program = self.program()
        self.trainer(program, "jobs/job.json")
        self.assertEqual(program.do("run"), [{"rank": 0, "turns": 1}, {"rank": 1, "turns": 1}])


class ModelTest(ClientTest):
    """The trained model as a module of LibTorch's."""

    def test_example(self):
        build = self.build("worker", "examples", "trainer")
        said = subprocess.run([os.path.join(build, "drive"), os.path.join(ROOT, "worker", "examples", "trainer", "job.json")], capture_output=True, text=True,
                              cwd=self.folder, timeout=300, check=True).stdout
        value = float(re.search(r"^f\(3\) = (\S+)$", said, re.MULTILINE).group(1))
        self.assertAlmostEqual(value, 11, delta=0.7)
        self.assertTrue(os.path.exists(self.path("line", "manifest.json")))

    def test_weights_that_do_not_fit(self):
        program = os.path.join(self.build("test", "client", options=("-DMODEL=ON",)), "weights")

        def said(header, data=b""):
            text = json.dumps(header).encode() if isinstance(header, dict) else header
            self.write("model.safetensors", struct.pack("<Q", len(text)) + text + data)
            done = subprocess.run([program, self.folder], capture_output=True, text=True, timeout=60, check=False)
            return done.stdout.strip()

        def tensor(shape, begin, end, type_="F32"):
            return {"dtype": type_, "shape": shape, "data_offsets": [begin, end]}

        whole = {"linear.weight": tensor([1, 1], 0, 4), "linear.bias": tensor([1], 4, 8)}
        self.assertEqual(said(whole, struct.pack("<ff", 2, 5)), "2 5")
        self.assertIn('it has no tensor "linear.bias": it is of another model', said({"linear.weight": whole["linear.weight"]}, b"1234"))
        self.assertIn('"linear.weight" has another shape', said({**whole, "linear.weight": tensor([2, 1], 0, 8)}, b"12345678"))
        self.assertIn("it cannot be read", said(whole, b"12"))
        self.assertIn("its header is no JSON", said(b"{"))
        self.assertIn("a tensor of type F7 has no counterpart", said({**whole, "linear.weight": tensor([1, 1], 0, 4, "F7")}, b"12345678"))
        self.write("model.safetensors", struct.pack("<Q", 1 << 40))
        self.assertIn("its header is too long", subprocess.run([program, self.folder], capture_output=True, text=True, timeout=60, check=False).stdout)


if __name__ == "__main__":
    unittest.main()
