#!/usr/bin/env python3
"""sgd-worker against a fake agent: real processes, real data, no launcher.

    worker_alone.py build/bin/sgd-worker [unittest arguments]
"""
import hashlib
import json
import math
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "..", "support"))
from fake_agent import FakeAgent, ForkServer  # noqa: E402

WORKER = ""
FASHION = "/usr/share/datasets/fashion-mnist"

# Epoch 1 and epoch 3 of the straight line: (workers, batch per worker) -> batch count, losses (train, validation).
LINEAR_TABLE = {
    (1, 32): (32, (13.30967, 4.36208), (1.64378, 2.89575)),
    (2, 16): (32, (13.30967, 4.36208), (1.64378, 2.89575)),
    (2, 32): (16, (22.76095, 5.26804), (2.73219, 4.11989)),
    (1, 4): (250, (2.64580, 0.98009), (0.07361, 0.18220)),
}


def resolve(job):
    """The resolved form of a job, as the launcher would send it."""
    return job


def linear_job(workers, batch, epochs=3, **training):
    return resolve({
        "name": "linear", "num_workers": workers, "heartbeat": {"interval": "50ms", "stall_timeout": "20s"},
        "checkpoint": {"every": "epoch", "keep": 2},
        "training": {"seed": 1, "epochs": epochs, "batch_size_per_worker": batch, "shuffle": False,
                     "model": {"type": "linear", "init": "zeros"}, "loss": "mse", "dataset": {"type": "linear"},
                     "optimizer": {"type": "sgd", "lr": 0.01}, **training}})


def image_job(workers=2, model="mlp", path=FASHION, epochs=1, batch=128, **top):
    return resolve({
        "name": "images", "num_workers": workers, "heartbeat": {"interval": "50ms", "stall_timeout": "20s"},
        "checkpoint": {"every": "epoch", "keep": 2},
        "training": {"seed": 7, "epochs": epochs, "batch_size": batch, "model": {"type": model},
                     "loss": "cross_entropy", "dataset": {"type": "idx", "path": path},
                     "optimizer": {"type": "sgd", "lr": 0.05, "momentum": 0.9}}, **top})


def read_tensors(path):
    with open(path, "rb") as file:
        data = file.read()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    return {name: (entry["shape"], data[8 + size + entry["data_offsets"][0]:8 + size + entry["data_offsets"][1]])
            for name, entry in header.items()}


def write_images(directory, count, bad_sample=None):
    """A small IDX data set; one label may be out of range."""
    for prefix, rows in (("train", count), ("t10k", 64)):
        with open(f"{directory}/{prefix}-images-idx3-ubyte", "wb") as file:
            file.write(struct.pack(">IIII", 0x803, rows, 28, 28) + os.urandom(rows * 784))
        labels = bytearray(i % 10 for i in range(rows))
        if bad_sample is not None and prefix == "train":
            labels[bad_sample] = 77
        with open(f"{directory}/{prefix}-labels-idx1-ubyte", "wb") as file:
            file.write(struct.pack(">II", 0x801, rows) + labels)


class WorkerTest(unittest.TestCase):
    FORKED = False  # Whether ranks come from a fork server, as by default, or begin anew as without one.
    fork_server = None  # One for all tests: LibTorch is loaded once.

    def setUp(self):
        self.dir = tempfile.mkdtemp(prefix="sgd-worker-test-")
        self.addCleanup(shutil.rmtree, self.dir)
        self.agents = 0

    def forks(self):
        if not WorkerTest.fork_server:
            WorkerTest.fork_server = ForkServer(WORKER)
            unittest.addModuleCleanup(WorkerTest.fork_server.close)
        return WorkerTest.fork_server

    def agent(self, job, ranks, **options):
        self.agents += 1
        if self.FORKED:
            options.setdefault("forks", self.forks())
        agent = FakeAgent(WORKER, job, ranks, options.pop("run_dir", f"{self.dir}/run-{self.agents}"), **options)
        self.addCleanup(agent.close)
        return agent

    def train(self, job, ranks, timeout=60, **options):
        agent = self.agent(job, ranks, **options)
        agent.start()
        self.assertEqual(agent.run(timeout=timeout), [0] * ranks, agent.of_type("failed"))
        return agent

    def checkpoint(self, agent):
        return os.path.join(agent.run_dir, agent.of_type("checkpoint")[-1]["path"])

    def weights(self, agent):
        with open(self.checkpoint(agent) + "/model.safetensors", "rb") as model, \
                open(self.checkpoint(agent) + "/optimizer.safetensors", "rb") as optimizer:
            return hashlib.sha256(model.read() + optimizer.read()).hexdigest()

    def metric(self, agent, epoch, phase, name):
        values = [m["metrics"][name] for m in agent.of_type("report")
                  if m["key"]["epoch"] == epoch and m["key"]["phase"] == phase]
        self.assertEqual(len(values), agent.world_size)
        return math.fsum(values) / len(values)  # Whichever rank tells first.


class Metrics(WorkerTest):
    def test_linear_regression_table(self):
        losses = {}
        for (workers, batch), (batches, first, third) in LINEAR_TABLE.items():
            agent = self.train(linear_job(workers, batch), workers)
            for epoch, (train, validation) in ((1, first), (3, third)):
                self.assertAlmostEqual(self.metric(agent, epoch, "train", "train_loss"), train, delta=1e-3)
                self.assertAlmostEqual(self.metric(agent, epoch, "validate", "val_loss"), validation, delta=1e-3)
                self.assertEqual(self.metric(agent, epoch, "train", "batch_count"), batches)
                self.assertEqual(self.metric(agent, epoch, "train", "num_samples"), 1000 / workers)
                self.assertEqual(self.metric(agent, epoch, "validate", "val_accuracy"), 0)
            losses[(workers, batch)] = [self.metric(agent, epoch, phase, name) for epoch in (1, 2, 3)
                                        for phase, name in (("train", "train_loss"), ("validate", "val_loss"))]
        for one, two in zip(losses[(1, 32)], losses[(2, 16)]):
            self.assertAlmostEqual(one, two, delta=1e-5)

    def test_keys_and_order_of_messages(self):
        agent = self.train(linear_job(2, 32, epochs=1), 2)
        train, validate = [m for m in agent.of_type("report") if m["rank"] == 0]
        self.assertEqual(set(train["metrics"]), {"epoch", "batch_count", "num_samples", "train_loss",
                                                 "last_train_loss", "lr", "samples_per_s", "step_ms"})
        self.assertEqual(set(validate["metrics"]), {"batch_count", "num_samples", "val_loss", "last_val_loss",
                                                    "val_accuracy", "last_val_accuracy"})
        order = [m["type"] for m in agent.messages if m["rank"] == 0 and m["type"] != "heartbeat"]
        self.assertEqual([kind for kind in order if kind != "exchange"],
                         ["hello", "ready", "first_step", "report", "report", "checkpoint"])
        self.assertEqual(agent.of_type("ready", 0)[0]["source"], "fresh")
        self.assertEqual(agent.of_type("first_step", 1)[0]["step"], 1)

    def test_scheduler_follows_epochs(self):
        slow = linear_job(1, 32, scheduler={"type": "step", "step_size": 1, "gamma": 1e-12, "frequency": "epoch"})
        agent = self.train(slow, 1)
        self.assertAlmostEqual(self.metric(agent, 1, "validate", "val_loss"), 4.36208, delta=1e-3)
        self.assertAlmostEqual(self.metric(agent, 3, "validate", "val_loss"),
                               self.metric(agent, 1, "validate", "val_loss"), delta=1e-6)

    def test_scheduler_follows_a_metric_of_validation(self):
        plateau = {"type": "reduce_on_plateau", "mode": "max", "patience": 0, "factor": 1e-9, "eps": 0}
        agent = self.train(linear_job(2, 32, epochs=3, scheduler=plateau), 2)
        first, second, third = [self.metric(agent, epoch, "validate", "val_loss") for epoch in (1, 2, 3)]
        self.assertLess(second, first)  # Not larger, as this scheduler wants it: the rate falls after epoch 2.
        self.assertAlmostEqual(second, third, delta=1e-6)

    def test_a_metric_that_validation_lacks_is_an_error_with_those_it_has(self):
        agent = self.agent(linear_job(1, 32, scheduler={"type": "reduce_on_plateau", "metric": "val_los"}), 1)
        agent.start()
        self.assertEqual(agent.run(), [1])
        self.assertIn('training.scheduler.metric is "val_los", which validation does not measure: set it to one of '
                      "val_loss, val_accuracy", agent.of_type("failed")[0]["message"])


class Repeatability(WorkerTest):
    FORKED = True

    def test_two_runs_are_bit_equal(self):
        for model in ("mlp", "cnn"):
            os.makedirs(f"{self.dir}/{model}")
            write_images(f"{self.dir}/{model}", 640)
            job = image_job(model=model, path=f"{self.dir}/{model}", epochs=2)
            self.assertEqual(self.weights(self.train(job, 2)), self.weights(self.train(job, 2)))

    def test_a_forked_rank_trains_what_a_spawned_one_does(self):
        job = image_job()
        spawned = self.train(job, 2, forks=None)
        forks = ForkServer(WORKER)
        self.assertEqual(forks.prepare(job), {"type": "prepared", "threads": 1, "reason": ""})
        forked = self.train(job, 2, forks=forks)
        self.assertEqual(self.weights(spawned), self.weights(forked))
        # The server is ready for the next generation, and ends with its keeper.
        self.assertEqual(forks.close(), 0)

    def test_stop_and_resume_is_bit_equal_in_any_phase(self):
        job = image_job(epochs=2, batch=512)
        clean = self.train(job, 2)

        def stop_at(kind):
            def condition(agent, message):
                if message["type"] == kind:
                    agent.send_all({"type": "stop", "deadline_s": 10, "checkpoint": True})
            return condition

        for kind in ("first_step", "report"):  # A stop in the training and, mostly, in the validation phase.
            stopped = self.agent(job, 2)
            stopped.hooks.append(stop_at(kind))
            stopped.start()
            self.assertEqual(stopped.run(), [76, 76])
            saved = self.checkpoint(stopped)
            with open(saved + "/state.json") as file:
                state = json.load(file)
            self.assertEqual(len(state["records"]), 2)
            resumed = self.train(job, 2, run_dir=stopped.run_dir, generation=2, resume_from=saved)
            self.assertEqual(self.weights(clean), self.weights(resumed))
            self.assertEqual(resumed.of_type("ready")[0]["source"], "disk")
            self.assertEqual(resumed.of_type("ready")[0]["step"], state["step"])
            for last in ("train_loss", "num_samples", "batch_count"):
                self.assertEqual(self.metric(clean, 2, "train", last), self.metric(resumed, 2, "train", last))

    def test_resume_is_bit_equal_with_each_optimizer_and_scheduler(self):
        cycle = {"type": "one_cycle", "max_lr": 0.02, "total_steps": 80, "frequency": "batch"}
        chain = [{"type": "linear", "total_iters": 20, "frequency": "batch"},
                 {"type": "cosine", "t_max": 60, "frequency": "batch"}]
        plateau = {"type": "reduce_on_plateau", "mode": "max", "patience": 0, "factor": 0.5}
        for optimizer, scheduler in (({"type": "rmsprop", "centered": True, "momentum": 0.5}, chain),
                                     ({"type": "adagrad", "lr_decay": 0.01, "initial_accumulator_value": 0.1}, plateau),
                                     ({"type": "adam", "amsgrad": True}, cycle)):
            job = linear_job(2, 32, epochs=5, optimizer=optimizer, scheduler=scheduler)
            clean = self.train(job, 2)
            middle = os.path.join(clean.run_dir, clean.of_type("checkpoint")[2]["path"])
            resumed = self.train(job, 2, generation=2, resume_from=middle)
            self.assertEqual(resumed.of_type("ready")[0]["step"], 48)
            self.assertEqual(self.weights(clean), self.weights(resumed))

    def test_resume_without_the_scheduler_has_the_rate_and_the_momentum_of_the_job(self):
        cycle = {"type": "one_cycle", "max_lr": 0.02, "total_steps": 80, "frequency": "batch"}
        for optimizer in ({"type": "sgd", "lr": 0.01}, {"type": "adam", "lr": 0.003}):  # The first has no momentum of its own.
            cycled = self.train(linear_job(2, 32, epochs=1, optimizer=optimizer, scheduler=cycle), 2)
            self.assertNotEqual(self.metric(cycled, 1, "train", "lr"), optimizer["lr"])
            resumed = self.train(linear_job(2, 32, epochs=2, optimizer=optimizer), 2, generation=2, resume_from=self.checkpoint(cycled))
            self.assertEqual(resumed.of_type("ready")[0]["source"], "disk")
            self.assertEqual(self.metric(resumed, 2, "train", "lr"), optimizer["lr"])

    def test_resume_with_fewer_ranks_uses_each_sample_once(self):
        write_images(self.dir, 6400)
        job = image_job(path=self.dir)
        del job["training"]["batch_size"]
        job["training"]["batch_size_per_worker"] = 32
        job["checkpoint"] = {"every": {"steps": 10}, "keep": 50}
        whole = self.train(job, 2)
        paths = [m["path"] for m in whole.of_type("checkpoint")]
        # A save that would begin before the last one has ended is left out.
        middle = paths[0]
        steps = int(os.path.basename(middle).split("-")[1])
        self.assertLess(steps, 100)
        job["num_workers"] = 1
        resumed = self.train(job, 1, generation=2, resume_from=os.path.join(whole.run_dir, middle))
        # That many steps of 2 x 32 are done; what is left of 6,400 samples takes one rank twice as many steps.
        self.assertEqual(resumed.of_type("ready")[0]["step"], steps)
        self.assertEqual(self.metric(resumed, 1, "train", "num_samples"), 6400)
        self.assertEqual(resumed.of_type("report")[0]["step"], steps + 2 * (100 - steps))


class Checkpoints(WorkerTest):
    FORKED = True

    def test_format_and_names(self):
        agent = self.train(image_job(epochs=3, batch=2048), 2)
        names = sorted(os.listdir(agent.run_dir + "/checkpoints"))
        self.assertEqual(names, [f"step-0000000000{step}-gen-0001" for step in (30, 60, 90)])
        tensors = read_tensors(self.checkpoint(agent) + "/model.safetensors")
        self.assertEqual({name: shape for name, (shape, _) in tensors.items()},
                         {"fc1.weight": [256, 784], "fc1.bias": [256], "fc2.weight": [128, 256], "fc2.bias": [128],
                          "fc3.weight": [10, 128], "fc3.bias": [10]})
        momenta = read_tensors(self.checkpoint(agent) + "/optimizer.safetensors")
        self.assertEqual(momenta["fc3.bias.momentum_buffer"][0], [10])
        message = agent.of_type("checkpoint")[-1]
        size = sum(entry.stat().st_size for entry in os.scandir(self.checkpoint(agent)))
        self.assertEqual(message["bytes"], size)
        self.assertEqual((message["step"], message["epoch"]), (90, 3))

    def test_a_damaged_checkpoint_is_reported_and_the_next_one_is_used(self):
        whole = self.train(linear_job(1, 32), 1)
        older, newer = [os.path.join(whole.run_dir, m["path"]) for m in whole.of_type("checkpoint")[-2:]]
        for name in ("model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"):
            for damage in ("flip", "tear", "remove"):
                copy = f"{self.dir}/copy-{name}-{damage}"
                shutil.copytree(newer, copy)
                path = f"{copy}/{name}"
                with open(path, "rb") as file:
                    data = bytearray(file.read())
                data[len(data) // 2] ^= 0x10
                if damage == "remove":
                    os.remove(path)
                else:
                    with open(path, "wb") as file:
                        file.write(data if damage == "flip" else data[:len(data) // 2])
                agent = self.train(linear_job(1, 32), 1, generation=2, resume_from=[copy, older])
                rejected = agent.of_type("checkpoint_rejected")
                if not rejected:  # Only a flip inside white space or a digit that proves nothing may pass.
                    self.assertEqual((name, damage), ("manifest.json", "flip"))
                    continue
                self.assertEqual([m["path"] for m in rejected], [copy])
                self.assertIn(copy, rejected[0]["reason"])
                ready, = agent.of_type("ready")
                self.assertEqual((ready["source"], ready["path"], ready["step"]), ("disk", older, 64))

    def test_nothing_usable_begins_anew_and_another_model_is_an_error(self):
        agent = self.train(linear_job(2, 32, epochs=1), 2, resume_from=[f"{self.dir}/none", f"{self.dir}/nothing"])
        self.assertEqual(len(agent.of_type("checkpoint_rejected", 0)), 2)
        self.assertEqual(agent.of_type("checkpoint_rejected", 1), [])
        self.assertEqual(agent.of_type("ready", 1)[0]["source"], "fresh")
        other = self.agent(linear_job(1, 32, optimizer={"type": "sgd", "lr": 0.01, "momentum": 0.9}), 1,
                           resume_from=self.checkpoint(agent))
        other.start()
        self.assertEqual(other.run(), [1])
        self.assertIn("optimizer.safetensors", other.of_type("failed")[0]["message"])

    def test_a_full_disk_keeps_the_old_checkpoint_and_training_goes_on(self):
        """[40]"""
        agent = self.check_goes_on_when(lambda agent: resource.prlimit(agent.ranks[0].pid, resource.RLIMIT_FSIZE, (100, 100)))
        self.assertFalse([name for name in os.listdir(agent.run_dir + "/checkpoints") if name.endswith(".part")])

    def test_a_folder_that_is_read_only_keeps_the_old_checkpoint_and_training_goes_on(self):
        """[42] Root writes where others may not, so the folder is made immutable."""
        def protect(agent):
            folder = agent.run_dir + "/checkpoints"
            if os.geteuid() == 0:
                self.addCleanup(subprocess.run, ["chattr", "-i", folder], check=True)
                subprocess.run(["chattr", "+i", folder], check=True)
            else:
                self.addCleanup(os.chmod, folder, 0o755)
                os.chmod(folder, 0o555)
        if os.geteuid() == 0:
            probe = tempfile.mkdtemp()
            self.addCleanup(os.rmdir, probe)
            if subprocess.run(["chattr", "+i", probe], capture_output=True, check=False).returncode != 0:
                self.skipTest("this file system knows no immutable folders")
            subprocess.run(["chattr", "-i", probe], check=True)
        self.check_goes_on_when(protect)

    def check_goes_on_when(self, spoil):
        agent = self.agent(linear_job(1, 4, epochs=4), 1)
        saved = []

        def spoil_after_the_first(agent, message):
            if message["type"] == "checkpoint" and not saved:
                saved.append(message["path"])
                spoil(agent)

        agent.hooks.append(spoil_after_the_first)
        agent.start()
        self.assertEqual(agent.run(), [0])
        self.assertEqual(len([m for m in agent.of_type("report") if m["key"]["phase"] == "train"]), 4)
        self.assertIn(os.path.basename(saved[0]), os.listdir(agent.run_dir + "/checkpoints"))
        return agent

    def test_seconds_and_never(self):
        job = linear_job(2, 4, epochs=1_000_000)
        job["checkpoint"] = {"every": {"seconds": 0.001}, "keep": 3}
        often = self.agent(job, 2)

        def stop_at_the_fourth(agent, message):
            if message["type"] == "checkpoint" and len(agent.of_type("checkpoint")) == 4:
                agent.send_all({"type": "stop", "deadline_s": 10, "checkpoint": True})

        often.hooks.append(stop_at_the_fourth)
        often.start()
        self.assertEqual(often.run(), [76, 76])
        job = linear_job(2, 4)
        job["checkpoint"] = {"every": "never", "keep": 3}
        self.assertEqual(self.train(job, 2).of_type("checkpoint"), [])

    def test_steps_are_never_written_two_at_once(self):
        """[41]"""
        job = linear_job(2, 4, epochs=3)
        job["checkpoint"] = {"every": {"steps": 7}, "keep": 2}
        agent = self.train(job, 2)
        steps = [m["step"] for m in agent.of_type("checkpoint")]
        self.assertEqual(steps[-1], 375)
        self.assertTrue(all(step % 7 == 0 for step in steps[:-1]), steps)
        # What a slow disk has no time for is left out and counted.
        left_out = sum(m.get("skipped", 0) for m in agent.of_type("checkpoint"))
        self.assertEqual(len(steps) + left_out, len([*range(7, 375, 7), 375]))
        for before, after in zip(agent.of_type("checkpoint"), agent.of_type("checkpoint")[1:]):
            self.assertLess(before["time"], after["time"])


class Failures(WorkerTest):
    def test_a_killed_rank_makes_the_other_leave_with_75(self):
        agent = self.agent(image_job(epochs=100), 2)
        agent.start()
        agent.run(until=lambda a: len(a.of_type("first_step")) == 2)
        os.kill(agent.ranks[1].pid, signal.SIGKILL)
        agent.send_all({"type": "abort", "generation": 1})
        self.assertEqual(agent.run(timeout=10), [75, -9])
        self.assertEqual(agent.of_type("failed"), [])

    def test_a_closed_link_ends_the_process(self):
        agent = self.agent(image_job(epochs=100), 2)
        agent.start()
        agent.run(until=lambda a: len(a.of_type("first_step")) == 2)
        for rank in agent.ranks:
            agent.selector.unregister(rank.sock)
            rank.sock.close()
            rank.sock = None
        self.assertEqual(agent.run(timeout=10), [70, 70])

    def test_a_loss_that_is_not_finite_stops_all_ranks(self):
        """[52]"""
        job = linear_job(2, 32, optimizer={"type": "sgd", "lr": 1e30})
        agent = self.agent(job, 2)
        agent.start()
        self.assertEqual(agent.run(), [1, 1])
        for failed in agent.of_type("failed"):
            self.assertRegex(failed["message"], r"^the loss is not finite at step \d+ on ranks 0, 1: lower the learning rate \(1e\+30\), or ")
        with open(agent.run_dir + "/errors/rank-0001.json") as file:
            error = json.load(file)["message"]
        self.assertIn("not finite", error["message"])
        self.assertTrue(error["extraInfo"]["timestamp"].isdigit())

    def test_a_rank_that_makes_fewer_steps_is_named_by_all(self):
        for nodes in (1, 2):
            agent = self.agent(linear_job(2, 32), 2, nodes=nodes, job_of=lambda rank: linear_job(2, 32 if rank == 0 else 64))
            agent.start()
            agent.run(until=lambda a: len(a.of_type("first_step")) == 2)
            self.assertEqual(agent.run(timeout=15), [1, 1])  # Not the time-out of 20 s.
            for failed in agent.of_type("failed"):
                self.assertIn("rank 0 to all_reduce (average of gradients), rank 1 to agree", failed["message"])
            self.assertEqual(len(agent.of_type("failed")), 2)

    def test_a_bad_label_is_found_before_a_step_by_file_and_sample(self):
        data = f"{self.dir}/data"
        os.makedirs(data)
        write_images(data, 640, bad_sample=321)
        words = f"data file {data}/train-labels-idx1-ubyte: label 77 of sample 321 (the first is 0) is outside 0..9"
        answer = self.forks().prepare(image_job(path=data))
        self.assertEqual(answer["type"], "prepare_failed")
        self.assertIn(words, answer["message"])
        agent = self.agent(image_job(path=data), 2, forks=None)
        agent.start()
        self.assertEqual(agent.run(timeout=20), [1, 1])
        for failed in agent.of_type("failed"):
            self.assertIn(words, failed["message"])
        self.assertEqual(agent.of_type("first_step"), [])

    def test_data_that_is_missing_fails_the_preparation(self):
        answer = self.forks().prepare(image_job(path="/nonexistent"))
        self.assertEqual(answer["type"], "prepare_failed")
        self.assertIn("/nonexistent", answer["message"])

    def test_started_by_hand(self):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SGD_")}
        alone = subprocess.run([WORKER], env=clean, capture_output=True, text=True, timeout=60)
        self.assertEqual(alone.returncode, 2)
        self.assertIn("sgd-launch", alone.stderr)
        version = subprocess.run([WORKER, "--version"], capture_output=True, text=True, timeout=60)
        self.assertRegex(version.stdout, r"^sgd-worker \d")
        self.assertEqual(subprocess.run([WORKER, "--fork"], capture_output=True, timeout=60).returncode, 2)


if __name__ == "__main__":
    WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
