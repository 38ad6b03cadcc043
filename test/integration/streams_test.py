"""Data sets of the user's own without a known size: every rank's place in its stream is part of every checkpoint."""

import glob
import json
import os
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import BIN_DIR, LAUNCHER, LaunchTest, read_file, wait_for

PLUGIN = os.path.join(BIN_DIR, "..", "lib", "own_stream.so")


class StreamsTest(LaunchTest):
    def job(self, name="plain", stream="divided_stream", workers=2, checkpoint=None, recovery=None, loop=False, data=None, **training):
        """`data`: settings of the stream. Which samples were trained on is written into a folder called `name`."""
        os.makedirs(self.path(name), exist_ok=True)
        data = {**(data or {}), **({"marks": self.path(name)} if "dies_at" in (data or {}) else {})}
        job = {"num_workers": workers, "plugins": [PLUGIN],
               "training": {"epochs": 3, "batch_size": 20, "loss": "mse", "optimizer": {"type": "sgd", "lr": 0.1, "momentum": 0.9},
                            "dataset": {"type": stream, **data}}}
        job["training"].update({"function": {"type": "stream_loop"}} if loop else {"operator": {"type": "ledger", "folder": self.path(name)}})
        job["training"].update(training)
        if loop:
            for key in ("loss", "optimizer"):
                job["training"].pop(key)
        if checkpoint:
            job["checkpoint"] = checkpoint
        job["recovery"] = {"max_failures": "unlimited", "cooldown": "100ms", **(recovery or {})}
        return self.write(name + ".json", json.dumps(job))

    def run_job(self, name="plain", expect=0, options=(), **settings):
        return self.run_to_end(*options, self.job(name, **settings), run_dir="run-" + name, expect=expect)

    def weights(self, launch):
        return read_file(os.path.join(launch.checkpoints()[-1], "model.safetensors"))

    def trained(self, name, epoch):
        """Numbers of the samples of an epoch, of all ranks."""
        numbers = []
        for path in glob.glob(self.path(name, f"epoch-{epoch}-rank-*")):
            with open(path, encoding="utf-8") as file:
                numbers += json.load(file)
        return sorted(numbers)

    def losses(self, launch):
        return [(line["phase"], line["epoch"], line.get("train_loss"), line.get("val_loss"), line["num_samples"]) for line in launch.metrics()]

    def test_kills_change_no_bit(self):
        plain = self.run_job()
        for epoch in (1, 2, 3):
            self.assertEqual(self.trained("plain", epoch), list(range(1000)))
        self.assertEqual([line["num_samples"] for line in plain.metrics("validate")], [100] * 3)
        for name, changes in (("memory", {}), ("disk", {"checkpoint": {"every": {"steps": 7}, "memory": False}})):
            with self.subTest(name):
                killed = self.run_job(name, data={"dies_at": 30, "bad_rank": 0}, **changes)
                self.assertEqual(len(killed.events("failure")), 3)
                self.assertEqual(self.weights(killed), self.weights(plain))
                self.assertEqual(self.losses(killed), self.losses(plain))
                self.assertEqual(self.trained(name, 2), list(range(1000)))

    def test_kills_from_outside(self):
        """Where a run is killed is chance; also in validation, and in the batch that was read ahead."""
        settings = {"epochs": 4, "data": {"samples": 6_000, "validation_samples": 1_000}}
        plain = self.run_job(**settings)
        launch = self.start(self.job("killed", **settings), run_dir="run-killed")
        for count in range(1, 4):
            launch.wait_for_event("first_step", count=count)
            pid = launch.events("worker_started")[-1]["pid"]
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                break  # The run is over.
            wait_for(lambda count=count: len(launch.events("first_step")) > count or launch.process.poll() is not None, 30, "another start")
            if len(launch.events("first_step")) == count:
                break  # It was killed at its end.
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertGreater(len(launch.events("failure")), 0)
        self.assertEqual(self.weights(launch), self.weights(plain))

    def test_a_loop_of_ones_own(self):
        plain = self.run_job(loop=True)
        killed = self.run_job("killed", loop=True, data={"dies_at": 30})
        self.assertEqual(len(killed.events("failure")), 3)
        self.assertEqual(self.weights(killed), self.weights(plain))
        self.assertEqual([line["validated"] for line in killed.metrics()], [50.0] * 3)  # The mean of both ranks.

    def test_it_is_read_ahead_without_losing_its_place(self):
        settings = {"loader": {"threads": 1, "prefetch": 5}, "data": {"noise": False}}
        plain = self.run_job(data={"noise": False})
        ahead = self.run_job("ahead", **settings)
        killed = self.run_job("killed", loader=settings["loader"], data={"noise": False, "dies_at": 30})
        self.assertEqual(len(killed.events("failure")), 3)
        self.assertEqual(self.weights(ahead), self.weights(plain))
        self.assertEqual(self.weights(killed), self.weights(plain))

    def test_passes_go_on_over_epochs_of_a_number_of_steps(self):
        """A pass is 50 batches of a rank; epochs of 30 end in it, and the next goes on."""
        settings = {"epochs": 5, "steps_per_epoch": 30}
        plain = self.run_job(**settings)
        numbers = sum((self.trained("plain", epoch) for epoch in range(1, 6)), [])
        self.assertEqual(sorted(numbers), sorted(list(range(1000)) * 3))
        killed = self.run_job("killed", data={"dies_at": 17}, **settings)
        self.assertEqual(len(killed.events("failure")), 3)
        self.assertEqual(self.weights(killed), self.weights(plain))
        short = self.run_job("short", **{**settings, "epochs": 2})
        resumed = self.run_to_end("resume", short.run_dir, "--set", "training.epochs=5", run_dir=None)
        del resumed
        self.assertEqual(self.weights(short), self.weights(plain))

    def test_what_comes_after_the_last_step_is_not_waited_for(self):
        """A stream that would throw where nobody reads any more."""
        launch = self.run_job(epochs=2, steps_per_epoch=10, data={"throws_at": 21})
        self.assertEqual(launch.summary()["state"], "succeeded")

    def test_resumed_from_disk_inside_an_epoch(self):
        settings = {"checkpoint": {"every": {"steps": 10}, "keep": 100}}
        plain = self.run_job(**settings)
        launch = self.start(self.job("stopped", data={"samples": 400_000}, epochs=1, **settings), run_dir="run-stopped")
        launch.wait_for_event("checkpoint_saved")
        subprocess.run([LAUNCHER, "stop", launch.run_dir], check=True, timeout=20, stdout=subprocess.DEVNULL)
        self.assertEqual(launch.wait(), 6, launch.said())
        with open(os.path.join(launch.checkpoints()[-1], "state.json"), encoding="utf-8") as file:
            state = json.load(file)
        turns = state["position"]["consumed"]
        self.assertGreater(turns, 0)
        self.assertEqual([record["sums"]["streams"]["train"]["batches"] for record in state["records"]], [turns, turns])
        # An epoch is 50 steps. Which of those that are due are written depends on the disk; some are.
        path = next(path for path in plain.checkpoints() if int(os.path.basename(path)[5:17]) % 50 != 0)
        again = self.run_job("again", options=("--set", "resume_from=" + path), **settings)
        self.assertEqual(self.weights(again), self.weights(plain))
        # Other data is not read from that place.
        refused = self.run_job("other", options=("--set", "resume_from=" + path), data={"samples": 2000}, expect=2, **settings)
        self.assertIn("training.dataset was", refused.stderr())

    def test_fewer_and_more_ranks_inside_a_pass(self):
        launch = self.start(self.job(epochs=1, data={"samples": 60_000}, checkpoint={"every": {"steps": 20}},
                                     recovery={"scale_up": "checkpoint"}), run_dir="run-resized")
        launch.wait_for_event("first_step")
        for count, slots in ((1, 1), (2, 2)):
            subprocess.run([LAUNCHER, "nodes", launch.run_dir, "set-slots", str(slots)], check=True, timeout=20, stdout=subprocess.DEVNULL)
            launch.wait_for_event("resized", count=count)
        self.assertEqual(launch.wait(), 0, launch.said())
        self.assertEqual([(event["from"], event["to"]) for event in launch.events("resized")], [(2, 1), (1, 2)])
        self.assertEqual(self.trained("plain", 1), list(range(60_000)))

    def test_a_stream_that_cannot_be_divided_says_so(self):
        launch = self.start(self.job(stream="fixed_stream", epochs=1, data={"samples": 400_000}), run_dir="run-resized")
        launch.wait_for_event("first_step")
        subprocess.run([LAUNCHER, "nodes", launch.run_dir, "set-slots", "1"], check=True, timeout=20, stdout=subprocess.DEVNULL)
        self.assertEqual(launch.wait(), 1, launch.said())
        self.assertRegex(launch.stderr(), r'the data set "fixed_stream" cannot go on in the middle of pass 1, which 2 ranks have started, with 1: it does not override load_states\(\)')
        self.assertIn('With "min_workers": 2', launch.stderr())

    def test_ranks_that_end_at_different_times_end_together(self):
        launch = self.run_job(epochs=2, data={"ends_after": 30})
        self.assertEqual([line["num_samples"] for line in launch.metrics("train")], [600, 600])
        self.assertIn('pass 1 over the data set "divided_stream" ends with rank 1, which has no batch 31: 10 samples', launch.stderr())
        killed = self.run_job("killed", epochs=2, data={"ends_after": 30, "dies_at": 30})
        self.assertEqual(self.weights(killed), self.weights(launch))

    def test_each_rank_validates_on_all_that_it_has(self):
        """31 samples in rounds of 30: in the last one two of three ranks have nothing; with one sample in all of it."""
        launch = self.run_job(epochs=1, workers=3, batch_size=30, data={"validation_samples": 31})
        self.assertEqual(launch.metrics("validate")[0]["num_samples"], 31)
        lonely = self.run_job("lonely", epochs=1, workers=3, batch_size=30, data={"validation_samples": 1})
        self.assertEqual(lonely.metrics("validate")[0]["num_samples"], 1)

    def test_accumulated_gradients_of_the_last_batches_count(self):
        """The last batch is known when it is trained on: 50 batches are 17 updates of 3."""
        launch = self.run_job(epochs=1, gradient_accumulation=3)
        self.assertNotIn("are dropped", launch.stderr())
        with open(os.path.join(launch.checkpoints()[-1], "state.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file)["step"], 17)

    def test_mistakes_of_a_stream(self):
        for name, settings, words in (
                ("throws", {"data": {"throws_at": 5}}, "the line is cut"),
                ("empty", {"data": {"samples": 0}}, 'the data set "divided_stream" gives ranks 0, 1 no batch to train on in pass 1'),
                ("half", {"data": {"samples": 1}}, 'the data set "divided_stream" gives rank 0 no batch to train on in pass 1'),
                ("blind", {"data": {"validation_samples": 0}}, "gives ranks 0, 1 no batch to validate on in pass 1"),
                ("rows", {"data": {"wrong": "rows"}}, r"next\(\) gives target with the shape \[9, 1\], and features with \[10, 4\]"),
                ("nan", {"data": {"wrong": "state"}, "checkpoint": {"every": {"steps": 3}}},
                 r'state\(\) of the data set "divided_stream" of rank \d holds a number that is not finite at "/place"'),
                ("long", {"data": {"wrong": "long"}, "checkpoint": {"every": {"steps": 3}}}, "and the limit is 1048576"),
                ("lost", {"data": {"wrong": "load", "dies_at": 30}, "checkpoint": {"every": {"steps": 3}}},
                 'the data set "divided_stream" cannot go on in the middle of pass 1: place 7 is gone')):
            with self.subTest(name):
                launch = self.run_job(name, expect=1, **settings)
                self.assertRegex(launch.stderr(), words)
                self.assertLessEqual(len(launch.events("failure")), 2, "it is not tried again")
        throws = self.path("run-throws")
        self.assertRegex(read_file(os.path.join(throws, "summary.json")).decode(), "rank 1")

    def test_it_is_listed_and_checked_as_a_data_set(self):
        listed = subprocess.run([os.path.join(BIN_DIR, "sgd-worker"), "--list", "datasets", "--plugin", PLUGIN], capture_output=True, text=True, timeout=60, check=True).stdout
        self.assertIn("divided_stream", listed)
        refused = self.run_to_end(self.job(data={"samles": 3}), expect=2)
        self.assertIn('unknown key "samles" in "training.dataset" of type "divided_stream"; did you mean "samples"?', refused.stderr())


if __name__ == "__main__":
    unittest.main()
