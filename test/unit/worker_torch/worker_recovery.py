#!/usr/bin/env python3
"""sgd-worker through failures: what a generation leaves in memory and on disk, and what the next one makes of it.

    worker_recovery.py build/bin/sgd-worker [unittest arguments]
"""
import contextlib
import os
import resource
import shutil
import signal
import sys
import unittest

import worker_alone
from worker_alone import WorkerTest, image_job, linear_job


SLOTS = (4096, 2 * 4096)  # Of the memory checkpoint: stamp and step are at their front.


def beats_past(step):
    return lambda agent: any(m["step"] > step for m in agent.of_type("heartbeat"))


def has_copy(agent):
    """Whether each node's memory has a whole copy of this generation, which its slot's stamp tells."""
    def generations(memory):
        return [int.from_bytes(os.pread(memory, 8, slot), "little") >> 32 for slot in SLOTS]

    return all(agent.generation in generations(memory) for memory in agent.memories)


def kill_at_step(agent, step, rank=1, copied=False):
    """Serves until a heartbeat tells more than `step`, kills one rank, and clears the generation. `copied`: not before
    a copy of its own is in memory, too."""
    agent.run(until=beats_past(step))
    if copied:
        agent.run(until=has_copy)
    os.kill(agent.ranks[rank].pid, signal.SIGKILL)
    agent.send_all({"type": "abort", "generation": agent.generation})
    return agent.run(timeout=20)


class RecoveryTest(WorkerTest):
    FORKED = True

    def next_generation(self, job, before, ranks=None, **options):
        return self.agent(job, ranks or before.world_size, run_dir=before.run_dir, generation=before.generation + 1,
                          after=before, **options)

    def assert_same_epochs(self, clean, resumed, epochs):
        for epoch in epochs:
            for name in ("train_loss", "num_samples", "batch_count"):
                self.assertEqual(self.metric(clean, epoch, "train", name), self.metric(resumed, epoch, "train", name))
            self.assertEqual(self.metric(clean, epoch, "validate", "val_loss"),
                             self.metric(resumed, epoch, "validate", "val_loss"))


class Memory(RecoveryTest):
    def test_a_kill_costs_a_few_steps_and_changes_no_bit(self):
        job = image_job(epochs=2)
        clean = self.train(job, 2)
        agent = self.agent(job, 2)
        agent.start()
        for at_step in (100, 350, 600):
            self.assertEqual(sorted(kill_at_step(agent, at_step, copied=True)), [-9, 75])
            reached = max(m["step"] for m in agent.of_type("heartbeat"))
            agent = self.next_generation(job, agent)
            agent.start()
            agent.run(until=lambda a: len(a.of_type("ready")) == 2)
            for ready in agent.of_type("ready"):
                self.assertEqual((ready["source"], ready["path"]), ("memory", ""))
                # The counter is local rank 0's; the other rank may have been a step ahead.
                self.assertGreaterEqual(ready["step"] + ready["redone"], reached - 1)
                self.assertGreater(ready["step"], 0)
                self.assertGreater(ready["restore_s"], 0)
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(self.weights(clean), self.weights(agent))
        self.assert_same_epochs(clean, agent, [2])

    def test_the_newer_of_memory_and_disk(self):
        job = image_job(epochs=4)
        job["checkpoint"] = {"every": {"steps": 50}, "keep": 1000}
        agent = self.agent(job, 2)
        agent.start()
        agent.run(until=lambda a: a.of_type("checkpoint"))  # A busy disk saves fewer than are due.
        kill_at_step(agent, 300)
        paths = [os.path.join(agent.run_dir, m["path"]) for m in reversed(agent.of_type("checkpoint"))]
        second = self.next_generation(job, agent, resume_from=paths)
        second.start()
        second.run(until=lambda a: len(a.of_type("ready")) == 2)
        ready = second.of_type("ready")[0]
        newest = ready["step"]
        self.assertGreaterEqual(newest, agent.of_type("checkpoint")[-1]["step"])
        if ready["source"] == "disk":  # The copy before was older than the checkpoint.
            self.assertEqual(ready["path"], paths[0])
        # A copy of generation 2 wins over every checkpoint of generation 1.
        kill_at_step(second, newest + 60, copied=True)
        third = self.next_generation(job, second, resume_from=paths)
        third.start()
        third.run(until=lambda a: len(a.of_type("ready")) == 2)
        self.assertEqual(third.of_type("ready")[0]["source"], "memory")
        self.assertEqual(third.run(), [0, 0])

    def test_fewer_ranks_go_on_with_each_sample_once(self):
        job = image_job(workers=2, epochs=1)
        agent = self.agent(job, 2)
        agent.start()
        kill_at_step(agent, 200, copied=True)
        alone = self.next_generation(job, agent, ranks=1)
        alone.start()
        self.assertEqual(alone.run(), [0])
        self.assertEqual(alone.of_type("ready")[0]["source"], "memory")
        self.assertEqual(self.metric(alone, 1, "train", "num_samples"), 60000)

    def test_switched_off_or_not_given_there_is_none(self):
        off = image_job(epochs=2)
        off["checkpoint"]["memory"] = False
        for job, with_memory in ((off, True), (image_job(epochs=2), False)):
            agent = self.agent(job, 2, with_memory=with_memory)
            agent.start()
            kill_at_step(agent, 100)
            self.assertEqual(os.fstat(agent.memory).st_size, 0)
            second = self.next_generation(job, agent, with_memory=with_memory)
            second.start()
            second.run(until=lambda a: len(a.of_type("ready")) == 2)
            self.assertEqual({(m["source"], m["redone"]) for m in second.of_type("ready")}, {("fresh", -1)})
            second.send_all({"type": "abort", "generation": 2})
            second.run()

    def test_another_model_ignores_what_it_finds(self):
        job = image_job()
        agent = self.agent(job, 2)
        agent.start()
        kill_at_step(agent, 100)
        other = image_job()
        other["training"]["model"] = {"type": "mlp", "hidden": [64, 32]}
        second = self.next_generation(other, agent)
        second.start()
        self.assertEqual(second.run(), [0, 0])
        self.assertEqual(second.of_type("ready")[0]["source"], "fresh")

    def test_a_damaged_copy_gives_way_to_the_one_before(self):
        job = image_job(epochs=2)
        agent = self.agent(job, 2)
        agent.start()
        kill_at_step(agent, 300)
        stamps = [int.from_bytes(os.pread(agent.memory, 8, slot), "little") for slot in SLOTS]
        steps = [int.from_bytes(os.pread(agent.memory, 8, slot + 8), "little") for slot in SLOTS]
        newer = stamps.index(max(stamps))
        at = 3 * 4096 + newer * int.from_bytes(os.pread(agent.memory, 8, 16), "little") + 1000
        os.pwrite(agent.memory, bytes([os.pread(agent.memory, 1, at)[0] ^ 1]), at)
        second = self.next_generation(job, agent)
        second.start()
        self.assertEqual(second.run(), [0, 0])
        if min(stamps):  # The kill may have come while that one was written.
            self.assertEqual(second.of_type("ready")[0]["step"], steps[1 - newer])
        else:
            self.assertEqual(second.of_type("ready")[0]["source"], "fresh")
        self.assertEqual(self.weights(second), self.weights(self.train(job, 2)))


class Nodes(RecoveryTest):
    def test_a_node_without_the_copy_gets_it_from_one_that_has_it(self):
        job = image_job(epochs=1, batch=256)
        clean = self.train(job, 2, nodes=2)
        agent = self.agent(job, 2, nodes=2)
        agent.start()
        kill_at_step(agent, 90, copied=True)
        second = self.next_generation(job, agent, nodes=2)
        os.ftruncate(second.memories[0], 0)  # As on a node that has just joined.
        second.start()
        kill_at_step(second, 160)
        self.assertEqual({m["source"] for m in second.of_type("ready")}, {"memory"})
        self.assertGreater(second.of_type("ready")[0]["step"], 0)
        self.assertGreater(os.fstat(second.memories[0]).st_size, 0)
        third = self.next_generation(job, second, nodes=2)  # Now each node reads its own.
        third.start()
        self.assertEqual(third.run(), [0, 0])
        self.assertEqual({m["source"] for m in third.of_type("ready")}, {"memory"})
        self.assertEqual(self.weights(clean), self.weights(third))
        self.assertEqual(self.metric(third, 1, "train", "num_samples"), 30000)


class Fetching(RecoveryTest):
    """Rank 0 is on a node that has not got the checkpoint."""

    def generation_before(self, job, until=300, memory=True):
        """A killed generation of two ranks, and its checkpoints moved away, the newest first."""
        agent = self.agent(job, 2, with_memory=memory)
        agent.start()
        agent.run(until=lambda a: len(a.of_type("checkpoint")) >= 2)  # A busy disk saves fewer than are due.
        kill_at_step(agent, until)
        names = [m["path"] for m in reversed(agent.of_type("checkpoint"))]
        elsewhere = agent.run_dir + "/elsewhere"
        shutil.move(agent.run_dir + "/checkpoints", elsewhere)
        return agent, [os.path.join(agent.run_dir, name) for name in names], elsewhere

    def job(self, epochs=20):
        """Not at its end where a busy disk takes long for two checkpoints."""
        job = image_job(epochs=epochs)
        job["checkpoint"] = {"every": {"steps": 50}, "keep": 1000}
        return job

    def test_it_is_fetched_while_heartbeats_tell_how_far(self):
        job = self.job(epochs=2)
        job["heartbeat"] = {"interval": "100ms", "timeout": "5s", "stall_timeout": "20s"}
        before, paths, elsewhere = self.generation_before(job, memory=False)
        asked = []
        agent = self.next_generation(job, before, resume_from=paths, with_memory=False)
        agent.fetch = lambda _, message: asked.append(message["path"])
        agent.start()
        agent.run(until=lambda a: asked)
        self.assertEqual(asked, paths[:1])
        agent.send(0, {"type": "fetching", "path": paths[0], "bytes": 1000})
        agent.run(until=lambda a: {m["rank"] for m in a.of_type("heartbeat") if m["fetched"] == 1000} == {0, 1})
        self.assertEqual({m["phase"] for m in agent.of_type("heartbeat") if m["fetched"] == 1000}, {"fetch"})
        os.makedirs(os.path.dirname(paths[0]))
        shutil.move(os.path.join(elsewhere, os.path.basename(paths[0])), paths[0])
        agent.send(0, {"type": "fetched", "path": paths[0], "error": ""})
        agent.run(until=lambda a: len(a.of_type("ready")) == 2)
        self.assertEqual({(m["source"], m["path"]) for m in agent.of_type("ready")}, {("disk", paths[0])})
        self.assertEqual(agent.of_type("checkpoint_rejected"), [])
        self.assertEqual(agent.run(), [0, 0])
        self.assertEqual(self.weights(agent), self.weights(self.train(job, 2)))

    def test_memory_that_is_newer_asks_nobody(self):
        job = self.job()
        before, paths, _ = self.generation_before(job)
        agent = self.next_generation(job, before, resume_from=paths)
        agent.start()  # Its memory may be older than the newest checkpoint: generation 2 makes a newer one.
        agent.run(until=lambda a: len(a.of_type("ready")) == 2)
        kill_at_step(agent, agent.of_type("ready")[0]["step"] + 60)
        third = self.next_generation(job, agent, resume_from=paths)
        third.start()
        third.run(until=lambda a: len(a.of_type("ready")) == 2)
        self.assertEqual({m["source"] for m in third.of_type("ready")}, {"memory"})
        self.assertEqual(third.of_type("fetch"), [])

    def test_what_nobody_has_is_rejected_and_the_next_one_tried(self):
        job = self.job()
        before, paths, elsewhere = self.generation_before(job, memory=False)
        os.makedirs(os.path.dirname(paths[1]))
        shutil.move(os.path.join(elsewhere, os.path.basename(paths[1])), paths[1])
        agent = self.next_generation(job, before, resume_from=paths, with_memory=False)
        agent.start()
        agent.run(until=lambda a: len(a.of_type("ready")) == 2)
        rejected, = agent.of_type("checkpoint_rejected")
        self.assertEqual((rejected["path"], rejected["reason"]), (paths[0], "no such checkpoint"))
        self.assertEqual({(m["source"], m["path"]) for m in agent.of_type("ready")}, {("disk", paths[1])})

    def test_a_node_in_trouble_rejects_nothing(self):
        job = self.job()
        before, paths, _ = self.generation_before(job, memory=False)
        agent = self.next_generation(job, before, resume_from=paths, with_memory=False)
        agent.fetch = lambda a, m: a.send(m["rank"], {"type": "fetched", "path": m["path"], "error": "disk full"})
        agent.start()
        agent.run(until=lambda a: a.ranks[0].exit_code is not None)
        agent.send_all({"type": "abort", "generation": agent.generation})
        self.assertEqual(agent.run(), [70, 75])
        self.assertEqual(agent.of_type("checkpoint_rejected"), [])


class Leaving(RecoveryTest):
    def test_at_the_next_checkpoint(self):
        job = linear_job(2, 4, epochs=2000)
        job["checkpoint"] = {"every": {"steps": 50}, "keep": 2}
        agent = self.agent(job, 2)
        agent.start()
        agent.run(until=lambda a: len(a.of_type("first_step")) == 2)
        agent.send_all({"type": "stop_at_epoch", "at_checkpoint": True})
        self.assertEqual(agent.run(), [76, 76])
        last = agent.of_type("checkpoint")[-1]
        self.assertEqual(last["step"] % 50, 0)
        self.assertLess(last["step"], 2000 * 125)
        # It is in memory, too, unless that was not populated yet: the next generation reads no disk.
        second = self.next_generation(job, agent, resume_from=os.path.join(agent.run_dir, last["path"]))
        second.start()
        second.run(until=lambda a: len(a.of_type("first_step")) == 2)
        ready = second.of_type("ready")[0]
        self.assertEqual((ready["step"], ready["redone"]), (last["step"], 0))
        self.assertIn(ready["source"], ("memory", "disk"))
        second.send_all({"type": "stop_at_epoch"})
        self.assertEqual(second.run(), [76, 76])
        self.assertEqual(second.of_type("checkpoint")[-1]["step"] % 125, 0)

    def test_without_checkpoints_of_its_own_a_group_leaves_at_an_epoch(self):
        for request in ({"type": "stop_at_epoch", "at_checkpoint": True}, {"type": "stop_at_epoch"},
                        {"type": "stop", "deadline_s": 10, "checkpoint": True}):
            job = linear_job(2, 4, epochs=2000)
            job["checkpoint"] = {"every": "never", "keep": 2}
            agent = self.agent(job, 2)
            agent.start()
            agent.run(until=lambda a: len(a.of_type("first_step")) == 2)
            agent.send_all(request)
            self.assertEqual(agent.run(), [76, 76])
            saved, = agent.of_type("checkpoint")
            if request["type"] == "stop_at_epoch":
                self.assertEqual(saved["step"] % 125, 0)

    def test_a_full_disk_does_not_make_a_group_leave_without_its_checkpoint(self):
        job = linear_job(2, 4, epochs=2000)
        job["checkpoint"] = {"every": {"steps": 50}, "keep": 2}
        agent = self.agent(job, 2)
        agent.start()
        agent.run(until=lambda a: len(a.of_type("first_step")) == 2)
        before = resource.prlimit(agent.ranks[0].pid, resource.RLIMIT_FSIZE, (100, resource.RLIM_INFINITY))
        agent.run(until=lambda a: len(a.of_type("report")) >= 2)
        agent.send_all({"type": "stop_at_epoch", "at_checkpoint": True})
        seen = len(agent.of_type("report"))
        agent.run(until=lambda a: len(a.of_type("report")) >= seen + 6)
        self.assertFalse(agent.all_exited())
        resource.prlimit(agent.ranks[0].pid, resource.RLIMIT_FSIZE, before)
        self.assertEqual(agent.run(), [76, 76])
        self.assertTrue(os.path.isdir(self.checkpoint(agent)))


class Watching(RecoveryTest):
    def test_heartbeats_tell_who_waits_and_how_far(self):
        job = image_job(epochs=100)
        job["heartbeat"] = {"interval": "190ms", "timeout": "200ms", "stall_timeout": "20s"}  # So every 50 ms.
        agent = self.agent(job, 2)
        agent.start()
        agent.run(until=beats_past(100))
        os.kill(agent.ranks[1].pid, signal.SIGSTOP)
        frozen = len(agent.messages)

        def waits(agent):
            """It may have had the rest of a step to do."""
            beats = [m for m in agent.messages[frozen:] if m["type"] == "heartbeat" and m["rank"] == 0]
            return len(beats) > 10 and all(m["waiting"] and m["samples"] == beats[-1]["samples"] for m in beats[-2:])

        agent.run(until=waits)
        beats = agent.of_type("heartbeat", 0)
        self.assertGreaterEqual(beats[-1]["samples"], 100 * 64)
        self.assertLess(min(after["time"] - before["time"] for before, after in zip(beats, beats[1:])), 0.15)
        os.kill(agent.ranks[1].pid, signal.SIGCONT)
        agent.send_all({"type": "abort", "generation": 1})
        self.assertEqual(agent.run(), [75, 75])

    def test_a_stack_is_written_on_request_and_training_goes_on(self):
        job = image_job(epochs=2)
        clean = self.train(job, 2)
        agent = self.agent(job, 2)
        agent.start()
        agent.run(until=beats_past(50))
        path = agent.run_dir + "/errors/gen-0001-rank-0001.stack"

        def stacks():
            with contextlib.suppress(FileNotFoundError), open(path) as file:
                return file.read()
            return ""

        for past in range(100, 600, 50):
            agent.run(until=beats_past(past))
            before = stacks()
            os.kill(agent.ranks[1].pid, signal.SIGUSR2)  # Two that are not heard yet are one.
            agent.run(until=lambda a, before=before: len(stacks()) > len(before) or a.all_exited())
        self.assertEqual(agent.run(), [0, 0])
        text = stacks()
        self.assertRegex(text.splitlines()[0],
                         r"^time \d+\.\d{6} step \d+ phase (train|validate|saving)( in a collective)?$")
        self.assertIn("sgd-worker", text)
        self.assertGreater(text.count("\n\n"), 5)
        self.assertEqual(self.weights(clean), self.weights(agent))
        self.assertFalse(os.path.exists(agent.run_dir + "/errors/gen-0001-rank-0000.stack"))


if __name__ == "__main__":
    worker_alone.WORKER = os.path.abspath(sys.argv.pop(1))
    unittest.main()
