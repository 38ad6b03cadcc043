#!/usr/bin/env python3
"""sgd-worker with training loops of a user's own: what is reported and saved, and what failures change of it.

    worker_loop.py build/bin/sgd-worker [unittest arguments]
"""
import itertools
import json
import os
import sys
import threading
import unittest

import worker_alone
from worker_alone import image_job, write_images
from worker_plugin import CONFIGURATION, USER_ERROR, library
from worker_recovery import RecoveryTest, kill_at_step


def loop_job(name, epochs=2, workers=2, **settings):
    job = image_job(workers=workers, epochs=epochs)
    for key in ("model", "optimizer", "scheduler"):
        job["training"].pop(key, None)
    job["plugins"] = [library("own_loop")]
    job["training"]["function"] = {"type": name, **settings}
    return job


def bare_job(**settings):
    """No data set, no batches."""
    job = loop_job("iterations", **settings)
    job["training"] = {"function": job["training"]["function"]}
    return job


class OwnLoop(RecoveryTest):
    def test_kills_change_no_bit_and_no_report(self):
        job = loop_job("epochs", report_inside=True)
        clean = self.train(job, 2)
        self.assertGreater(self.metric(clean, 2, "validate", "val_accuracy"), 0.6)
        self.assertIn("epoch 2", [m["metrics"].get("name") for m in clean.of_type("report")])
        agent = self.agent(job, 2)
        agent.start()
        for at_step in (60, 300, 600):
            self.assertEqual(sorted(kill_at_step(agent, at_step)), [-9, 75])
            agent = self.next_generation(job, agent)
            agent.start()
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(agent.of_type("ready")[0]["source"], "memory")
        self.assertEqual(self.weights(clean), self.weights(agent))
        self.assertEqual(self.metric(clean, 2, "validate", "val_accuracy"), self.metric(agent, 2, "validate", "val_accuracy"))

    def test_numbers_below_the_normal_ones_count_as_zero_unless_they_are_asked_for(self):
        for flush in (True, False):
            job = loop_job("small_products", workers=1)
            job["training"] = {"function": job["training"]["function"], **({} if flush else {"flush_denormal": False})}
            [report] = self.train(job, 1).of_type("report")
            self.assertEqual(report["metrics"]["zeros"], {"one": flush, "many": flush, "gradient": flush})

    def test_without_epochs_it_goes_on_from_what_it_saved(self):
        clean = self.train(bare_job(), 2)
        self.assertEqual([self.metric(clean, i + 1, "validate", "sum") for i in range(5)], [0, 1, 3, 6, 10])
        job = bare_job(mistake="dies")
        agent = self.agent(job, 2)
        agent.start()
        agent.run(until=lambda a: a.ranks[1].exit_code is not None)
        agent.send_all({"type": "abort", "generation": agent.generation})
        self.assertEqual(sorted(agent.run()), [-9, 75])
        agent = self.next_generation(job, agent)
        agent.start()
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual([self.metric(agent, i + 1, "validate", "sum") for i in (3, 4)], [6, 10])
        resumed = self.train(bare_job(count=7), 2, generation=9, resume_from=self.checkpoint(agent))
        self.assertEqual([self.metric(resumed, i + 1, "validate", "sum") for i in (5, 6)], [15, 21])

    def test_a_checkpoint_has_the_step_of_the_reports_before_it(self):
        """Also where an optimizer is prepared that makes no update, and over a failure."""
        def steps(agent, kind):
            return [message["step"] for message in agent.of_type(kind, 0)]
        for prepares, first in ((False, 1), (True, 0)):
            with self.subTest(prepares=prepares):
                clean = self.train(bare_job(prepares=prepares), 2)
                self.assertEqual(steps(clean, "report"), [first + i for i in range(5)])
                self.assertEqual(steps(clean, "checkpoint"), steps(clean, "report"))
                job = bare_job(prepares=prepares, mistake="dies")
                agent = self.agent(job, 2)
                agent.start()
                agent.run(until=lambda a: a.ranks[1].exit_code is not None)
                agent.send_all({"type": "abort", "generation": agent.generation})
                self.assertEqual(sorted(agent.run()), [-9, 75])
                agent = self.next_generation(job, agent)
                agent.start()
                self.assertEqual(agent.run(), [0, 0])
                self.assertEqual(steps(agent, "report"), [first + 3, first + 4])
                self.assertEqual(steps(agent, "checkpoint"), [first + 3, first + 4])

    def test_a_loop_that_only_saves_stops_behind_a_save(self):
        agent = self.agent(bare_job(count=1_000_000, reports=False), 2)
        agent.start()
        agent.run(until=lambda a: len(a.of_type("checkpoint")) >= 2 and len(a.of_type("first_step")) == 2)
        agent.send_all({"type": "stop", "deadline_s": 10, "checkpoint": True})
        self.assertEqual(agent.run(), [76, 76])
        with open(self.checkpoint(agent) + "/state.json", encoding="utf-8") as file:
            state = json.load(file)
        self.assertEqual(state["shared"]["saved"], {"next": state["step"]})

    def test_prepared_with_data_of_its_own(self):
        # So many steps that copies in memory are due between saves: none may be made there.
        def job(**settings):
            return {**bare_job(), "training": {"function": {"type": "own_data", "steps": 4000, "dies": False, **settings}}}
        clean = self.train(job(), 2)
        self.assertEqual(clean.of_type("checkpoint")[-1]["step"], 4000)
        agent = self.agent(job(dies=True), 2)
        agent.start()
        agent.run(until=lambda a: a.ranks[1].exit_code is not None)
        agent.send_all({"type": "abort", "generation": agent.generation})
        self.assertEqual(sorted(agent.run()), [-9, 75])
        agent = self.next_generation(job(dies=True), agent)
        agent.start()
        agent.run(until=lambda a: len(a.of_type("ready")) == 2)
        self.assertEqual((agent.of_type("ready")[0]["source"], agent.of_type("ready")[0]["step"]), ("memory", 2000))
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(self.weights(clean), self.weights(agent))

    def accumulating_job(self, epochs=6, **settings):
        write_images(self.dir, 1984)  # 62 batches: the last update is of two.
        job = loop_job("accumulating", epochs=epochs, **settings)
        job["training"].update({"dataset": {"type": "idx", "path": self.dir}, "batch_size": 32, "gradient_accumulation": 3})
        job["checkpoint"] = {"every": {"seconds": 1e-6}, "keep": 1000}
        return job

    def test_no_checkpoint_holds_a_part_of_an_accumulated_step(self):
        for epochs in (6, 18, 54):  # A slow disk saves few.
            job = self.accumulating_job(epochs)
            clean = self.train(job, 2, timeout=300)
            inside = []
            for path in [os.path.join(clean.run_dir, m["path"]) for m in clean.of_type("checkpoint")]:
                with open(path + "/state.json", encoding="utf-8") as file:
                    position = json.load(file)["position"]
                if position["phase"] == "train" and position["batches"] > 0:
                    inside.append(path)
                    self.assertTrue(position["batches"] % 3 == 0 or position["batches"] == 62, position)
            if len(inside) > 1:
                break
        self.assertGreater(len(inside), 1)
        for path in (inside[0], inside[-1]):
            resumed = self.train(job, 2, generation=9, resume_from=path)
            self.assertEqual(self.weights(clean), self.weights(resumed))

    def test_what_is_accumulated_is_not_saved_on_request_either(self):
        self.train(self.accumulating_job(save_at=3), 2)
        agent = self.agent(self.accumulating_job(save_at=4), 2)
        agent.start()
        self.assertTrue(set(agent.run()) <= {USER_ERROR, 75})
        self.assertIn("update before save_checkpoint()", agent.of_type("failed")[0]["message"])

    def lines(self, *agents):
        """What a coordinator makes of the reports of one generation after the other: (key, where it was made)."""
        lines = []
        for message in [message for agent in agents for message in agent.of_type("report", 0)]:
            key = message["key"]
            line = (key["epoch"], key["phase"] != "train", key["batch"], key["sequence"]), message["metrics"]["at"]
            if not lines or line[0] > lines[-1][0]:
                lines.append(line)
        return lines

    def test_reports_that_are_made_again_are_known_wherever_they_are_made(self):
        write_images(self.dir, 640)
        policies = {"steps": 12}, {"seconds": 1e-6}
        fifo = self.dir + "/fifo"
        os.mkfifo(fifo)
        for steps, every in itertools.product(({}, {"steps_per_epoch": 10}), policies):
            def job(every=every, steps=steps, **settings):
                made = loop_job("reporting", epochs=3, **settings)
                made["training"].update({"dataset": {"type": "idx", "path": self.dir}, "batch_size": 64, **steps})
                return {**made, "checkpoint": {"every": every, "keep": 1000, "memory": False}}
            clean = self.lines(self.train(job(), 2))
            self.assertEqual([at for _, at in clean],
                             ["the top", "the data", *["a batch", "a step's end"] * 10, "the end"] * 3)
            for settings in ({"die_in": 12}, {"die_in": 14}, {"die_behind": 2}):  # 12: right behind a checkpoint.
                with self.subTest(steps=steps, every=every, **settings):
                    before = self.agent(job(until=fifo, **settings), 2)
                    before.start()
                    if every == policies[0]:
                        before.run(until=lambda a: a.of_type("checkpoint"))
                    opener = threading.Thread(target=lambda: os.close(os.open(fifo, os.O_WRONLY)))
                    opener.start()
                    before.run(until=lambda a: a.ranks[1].exit_code is not None)
                    opener.join()
                    before.send_all({"type": "abort", "generation": before.generation})
                    self.assertEqual(sorted(before.run()), [-9, 75])
                    saved = [os.path.join(before.run_dir, m["path"]) for m in reversed(before.of_type("checkpoint"))]
                    after = self.next_generation(job(), before, resume_from=saved)
                    after.start()
                    self.assertEqual(after.run(), [0, 0])
                    if every == policies[0]:
                        self.assertEqual(after.of_type("ready")[0]["step"], 12)
                    self.assertEqual(self.lines(before, after), clean)

    def test_mistakes_are_named(self):
        for mistake, words in {
                "reports more": "rank 1 comes to report 3",
                "does not save": "rank 0 comes to save_checkpoint, rank 1 comes to report 3",
                "ends early": "rank 0 comes to save_checkpoint, rank 1 comes to the end of the function",
                "prepares late": "must be prepared before the first epoch",
                "throws": "the loop does not like this"}.items():
            with self.subTest(mistake):
                agent = self.agent(bare_job(mistake=mistake), 2)
                agent.start()
                self.assertTrue(set(agent.run()) <= {USER_ERROR, 75})
                self.assertIn(words, agent.of_type("failed")[0]["message"])

    def test_what_no_checkpoint_holds_may_be_a_tensor(self):
        agent = self.agent(bare_job(workers=1, mistake="saves NaN"), 1)
        agent.start()
        self.assertEqual(agent.run(), [USER_ERROR])
        self.assertIn("keep it in the tensors of save_checkpoint(), or in words of your own", agent.of_type("failed")[0]["message"])

    def test_a_scheduler_that_follows_a_metric_has_none(self):
        agent = self.agent(bare_job(mistake="follows a metric"), 2)
        agent.start()
        self.assertTrue(set(agent.run()) <= {CONFIGURATION, 75})
        self.assertIn('"reduce_on_plateau" has no metric to follow with "function"', agent.of_type("failed")[0]["message"])


if __name__ == "__main__":
    worker_alone.WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
