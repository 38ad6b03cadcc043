"""Slots of Python ranks in the memory file: what a kill in the middle of a commit leaves, which commit all ranks hold,
and which ones are written to disk; what a rank reports to its agent."""
import array
import contextlib
import io
import json
import math
import os
import random
import signal
import socket
import sys
import tempfile
import threading
import time
import types
import unittest
from unittest import mock

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../worker/python"))
import sgd_launch
import sgd_launch_link
import sgd_launch_saver
from sgd_launch_memory import Memory
from sgd_launch_values import Packed, write_file

KILLS = 40
KILLS_MOST = 50 * KILLS  # Where the machine is busy, few come inside a commit.


def commit(memory, call, numbers, generation=1, rank=0, world=1):
    info = {"call": call, "step": call, "epoch": 0, "world": world, "rank": rank}
    memory.write(memory.free_slot(), Packed({"numbers": array.array("q", [call] * numbers), "step": call}, info), generation, 1)


class Slots(unittest.TestCase):
    def setUp(self):
        self.fd = os.memfd_create("memory")
        self.addCleanup(os.close, self.fd)

    def test_killed_at_any_moment(self):
        """Every life of a writer goes on from the newest commit; none is torn, and none is older than what a life began with."""
        draw, newest, torn = random.Random(1), 0, 0
        for kills in range(KILLS_MOST):
            if kills >= KILLS and torn:
                break
            pid = os.fork()
            if pid == 0:
                memory = Memory(self.fd, 0, 1)
                for call in range(newest + 1, 1 << 30):
                    commit(memory, call, 20000 + call % 7 * 3000)  # Sizes differ, and grow.
            time.sleep(draw.random() * 0.02)  # Where in a commit it is killed is chance.
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            memory = Memory(self.fd, 0, 1)
            held = memory.headers(0)
            torn += len(held) < 2
            self.assertTrue(held or newest == 0)
            for key, (_, header) in held.items():
                record = memory.read(0, key)
                value = record.unpack(record.values["numbers"])
                self.assertEqual(set(value), {header.call})
                self.assertEqual(record.unpack(record.values["step"]), header.call)
            if held:
                self.assertGreaterEqual(max(held)[1], newest)
                newest = max(held)[1]
        self.assertGreater(newest, 0)
        self.assertGreater(torn, 0)  # Else no kill came inside a commit, and nothing was tried.

    def test_the_newest_commit_of_all_stays(self):
        """However far one rank is ahead of another, there is a commit that both hold."""
        ranks, draw, calls = [Memory(self.fd, local, 2) for local in (0, 1)], random.Random(2), [0, 0]
        for local in (0, 1):
            commit(ranks[local], 1, 10, rank=local, world=2)
            calls[local] = 1
        newest = (1, 1)
        for _ in range(300):
            local = draw.choice((0, 1))
            calls[local] += 1
            commit(ranks[local], calls[local], 10, rank=local, world=2)
            common = ranks[0].common()
            self.assertIsNotNone(common)
            self.assertGreaterEqual(common, newest)
            newest = common

    def drift(self, ranks, every, seed, calls_most=200):
        """Ranks call at random, without a word to each other. How many calls, at worst, the commit of all was behind the last rank."""
        fd, draw, calls, worst = os.memfd_create("memory"), random.Random(seed), [0] * ranks, 0
        memories = [Memory(fd, local, ranks) for local in range(ranks)]
        while min(calls) < calls_most:
            local = draw.choice([one for one in range(ranks) if calls[one] < calls_most])
            calls[local] += 1
            memory = memories[local]
            memory.live.value = calls[local]
            if calls[local] % every == 1 % every and not memory.is_one_awaited((1, calls[local])):
                commit(memory, calls[local], 1, rank=local, world=ranks)
            worst = max(worst, min(calls) - (memories[0].common() or (0, 0))[1])
        del memories, memory
        os.close(fd)
        return worst

    def test_ranks_that_drift_come_to_common_commits(self):
        """Where the one that is ahead wrote over its newest again and again, some had none but that of their first call at the end."""
        for ranks, every, calls_most in ((2, 1, 30), (4, 1, 60), (8, 1, 60), (4, 5, 60), (8, 5, 60), (8, 20, 80)):
            for seed in (0, 1):
                self.assertLess(self.drift(ranks, every, seed), calls_most, (ranks, every, seed))

    def test_ranks_in_step_leave_no_commit_out(self):
        ranks, draw = [Memory(self.fd, local, 4) for local in range(4)], random.Random(3)
        for call in range(1, 50):
            for memory in draw.sample(ranks, 4):
                memory.live.value = call
                self.assertFalse(memory.is_one_awaited((1, call)))
                commit(memory, call, 1, rank=memory.local, world=4)
            self.assertEqual(ranks[0].common(), (1, call))

    def test_nobody_waits_for_a_commit_that_not_all_can_have(self):
        ranks = [Memory(self.fd, local, 2) for local in (0, 1)]
        ahead, behind = ranks
        for memory in ranks:
            memory.live.value = 1
            commit(memory, 1, 10, rank=memory.local, world=2)
        ahead.live.value = 5
        commit(ahead, 5, 10, world=2)
        ahead.live.value, behind.live.value = 9, 3
        self.assertTrue(ahead.is_one_awaited((1, 9)))
        self.assertTrue(behind.is_one_awaited((1, 3)))
        behind.live.value = 5
        self.assertFalse(behind.is_one_awaited((1, 5)))
        behind.live.value = 6  # There was no memory for its copy of call 5.
        self.assertFalse(ahead.is_one_awaited((1, 9)))
        behind.live.value = 3
        self.assertFalse(ahead.is_one_awaited((2, 9)))  # The rank that was to come to it has been killed.

    def test_what_was_restored_stays_until_all_have_a_newer_one(self):
        first = Memory(self.fd, 0, 1)
        commit(first, 100, 10)
        grown = [Memory(self.fd, local, 2) for local in (0, 1)]
        grown[0].restored = (1, 100)
        for call in (110, 120, 130):
            commit(grown[0], call, 10, generation=2, world=2)
            self.assertIn((1, 100), grown[0].headers(0))
        commit(grown[1], 130, 10, generation=2, rank=1, world=2)
        commit(grown[0], 140, 10, generation=2, world=2)
        self.assertEqual(set(grown[0].headers(0)), {(2, 130), (2, 140)})

    def test_what_was_restored_stays_also_where_the_node_has_a_newer_one(self):
        """Another node, or a rank that is no more, did not come to call 10: all have gone on from call 5, and must be able to once more."""
        for memory in [Memory(self.fd, local, 2) for local in (0, 1)]:
            for call in (5, 10):
                commit(memory, call, 10, rank=memory.local, world=4)
        ranks = [Memory(self.fd, local, 2) for local in (0, 1)]
        for memory in ranks:
            memory.restored, memory.former = (1, 5), memory.common()
        commit(ranks[0], 10, 10, generation=2, world=4)
        self.assertEqual(set(ranks[0].headers(0)), {(1, 5), (2, 10)})
        commit(ranks[1], 10, 10, generation=2, rank=1, world=4)
        commit(ranks[0], 15, 10, generation=2, world=4)
        self.assertEqual(set(ranks[0].headers(0)), {(2, 10), (2, 15)})

    def test_what_lies_on_a_gpu_counts_at_once(self):
        """A commit may be the last one, so no later call may be needed for it, however late the device says that it is done."""
        torch, tensor, data, memory = mock.MagicMock(), mock.MagicMock(), bytes(range(64)), Memory(self.fd, 0, 1)
        torch.cuda.Event.return_value.query.return_value = False
        torch.frombuffer = lambda mapped, dtype, count, offset: types.SimpleNamespace(
            copy_=lambda flat, **_: mapped.__setitem__(slice(offset, offset + count), flat))
        tensor.device.type, tensor.as_strided.return_value.view.return_value = "cuda", data
        packed = Packed({"x": bytes(64)}, {"call": 7, "step": 7, "epoch": 0, "world": 1, "rank": 0})
        packed.sources = [tensor]
        with mock.patch.dict(sys.modules, torch=torch):
            memory.write(0, packed, 1, 1)
        self.assertEqual(list(memory.headers(0)), [(1, 7)])
        record = memory.read(0, (1, 7))
        self.assertEqual(record.unpack(record.values["x"]), data)
        torch.cuda.Stream.assert_not_called()  # It would be one of the current device, which need not be the tensor's.

    def test_no_memory_is_an_error_and_leaves_the_commit_before(self):
        import resource
        memory = Memory(self.fd, 0, 1)
        commit(memory, 1, 10)
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (memory.area(0, 2) + 8192, before[1]))
        try:
            with self.assertRaises(OSError):
                commit(memory, 2, 100000)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            signal.signal(signal.SIGXFSZ, old)
        self.assertEqual(list(memory.headers(0)), [(1, 1)])
        commit(memory, 3, 100000)
        self.assertEqual(max(memory.headers(0)), (1, 3))


class Saving(unittest.TestCase):
    def setUp(self):
        fd, folder = os.memfd_create("memory"), tempfile.TemporaryDirectory()
        self.addCleanup(os.close, fd)
        self.addCleanup(folder.cleanup)
        self.memory, self.told = Memory(fd, 0, 1), []
        link = types.SimpleNamespace(pid=os.getpid(), assignment={"run_dir": folder.name}, put=self.put)
        self.saver = sgd_launch_saver.Saver(link, self.memory, set())

    def put(self, message):
        self.told.append(message["type"])
        if len(self.told) == 2:
            raise TimeoutError("the agent has read nothing")

    def test_no_error_stops_later_checkpoints(self):
        errors, said = iter([IndexError("leaf 7"), RuntimeError("device"), None]), io.StringIO()

        def write(*arguments, **options):
            error = next(errors)
            if error:
                raise error
            return write_file(*arguments, **options)

        with mock.patch.object(sgd_launch_saver, "write_file", write), contextlib.redirect_stderr(said):
            for call in (1, 2, 3):
                commit(self.memory, call, 10)
                self.saver.save((1, call), 0.0)
                self.assertTrue(self.saver.wait(10), f"the copy of call {call} is never done")
                pinned = os.pread(self.memory.fd, 8, self.memory.area(0, 0) + 8)
                self.assertEqual(pinned, bytes(8))  # No slot is held for it.
        self.assertEqual(self.told, ["checkpoint_failed", "checkpoint_failed", "checkpoint"])
        self.assertEqual(said.getvalue().count("a checkpoint has failed"), 1, said.getvalue())
        self.assertIn("IndexError: leaf 7", said.getvalue())

    def test_a_commit_that_is_written_over_is_no_checkpoint(self):
        """By a rank that had looked for a free slot before the commit was pinned: before it is read, or while it is."""
        def fill(call):
            info = {"call": call, "step": call, "epoch": 0, "world": 1, "rank": 0}
            self.memory.write(0, Packed({"numbers": array.array("q", [call] * 10)}, info), 1, 1)

        def over(function):
            def first(*arguments, **options):
                fill(2)
                return function(*arguments, **options)
            return first

        for owner, name in ((self.memory, "read"), (sgd_launch_saver, "write_file")):
            said, self.told[:] = io.StringIO(), []
            fill(1)
            with mock.patch.object(owner, name, over(getattr(owner, name))), contextlib.redirect_stderr(said):
                self.saver.save((1, 1), 0.0)
                self.assertTrue(self.saver.wait(10), "the copy is never done")
            self.assertEqual((self.told, said.getvalue()), (["checkpoint_failed"], ""))
            written = os.listdir(self.saver.folder) if os.path.isdir(self.saver.folder) else []
            self.assertEqual([one for one in written if one[0] != "."], [])

    def epochs_saved(self, restores, commits, begins_with=0):
        """Those of the checkpoints of a State alone on its node: three epochs of so many commits each."""
        saved, values, fd = [], {}, os.memfd_create("memory")
        self.addCleanup(os.close, fd)
        about = {"local_rank": 0, "local_world_size": 1, "node_rank": 0, "generation": 1, **self.saver.link.assignment,
                 "config": {"checkpoint": {"every": "epoch"}}}
        link = types.SimpleNamespace(
            pid=os.getpid(), assignment=about, memory_fd=fd, rank=0, world=1, beat={}, give=values.__setitem__,
            take=lambda key, whom: [values[key]], hand_over=lambda: None,
            put=lambda message: message["type"] == "checkpoint" and saved.append(message["epoch"]))
        with mock.patch.object(sgd_launch, "_link", lambda: link), mock.patch.object(sgd_launch.State, "_first", None):
            state = sgd_launch.State(epoch=begins_with)
            if restores:
                self.assertEqual(state.restore(), "fresh")
            for _ in range(3):
                for _ in range(commits - 1):
                    state.commit()
                state.epoch += 1
                state.commit()
                self.assertTrue(state._saver.wait(10))
        return saved

    def test_what_was_reported_is_with_the_agent_before_a_copy_counts(self):
        held, fd = [], os.memfd_create("memory")
        self.addCleanup(os.close, fd)
        about = {"local_rank": 0, "local_world_size": 1, "node_rank": 0, "generation": 1, **self.saver.link.assignment, "config": {}}
        link = types.SimpleNamespace(pid=os.getpid(), assignment=about, memory_fd=fd, rank=1, world=1, beat={}, give=None, take=None,
                                     put=lambda message: None, hand_over=lambda: held.append(len(state._memory.records())))
        with mock.patch.object(sgd_launch, "_link", lambda: link), mock.patch.object(sgd_launch.State, "_first", None):
            state = sgd_launch.State(step=0)
            for _ in range(2):
                self.assertTrue(state.commit(force=True))
            self.assertEqual(len(state._memory.records()), 2)
        self.assertEqual(held, [0, 1])

    def test_a_rank_that_is_ahead_copies_where_all_ranks_are_asked_to(self):
        fd = os.memfd_create("memory")
        self.addCleanup(os.close, fd)
        behind = Memory(fd, 1, 2)
        about = {"local_rank": 0, "local_world_size": 2, "node_rank": 0, "generation": 1, **self.saver.link.assignment,
                 "config": {"checkpoint": {"every": {"steps": 10}}}}
        link = types.SimpleNamespace(pid=os.getpid(), assignment=about, memory_fd=fd, rank=1, world=1, beat={}, give=None, take=None,
                                     put=lambda message: None, hand_over=lambda: None)
        with mock.patch.object(sgd_launch, "_link", lambda: link), mock.patch.object(sgd_launch.State, "_first", None):
            state = sgd_launch.State(step=0)
            state.commit()
            behind.live.value = 1
            commit(behind, 1, 10, rank=1, world=2)
            held = []
            for force in (True, False, True):
                state.step += 1
                state._plan.last = None  # It is due.
                state.commit(force=force)
                held.append(max(state._memory.headers(0))[1])
            state.step = 10
            state.commit()
            held.append(max(state._memory.headers(0))[1])
        self.assertEqual(held, [2, 2, 4, 5])

    def test_a_line_is_with_the_agent_when_its_socket_has_it(self):
        link = sgd_launch_link.Link.__new__(sgd_launch_link.Link)
        link.socket, agent = socket.socketpair()
        self.addCleanup(link.socket.close)
        self.addCleanup(agent.close)
        link.socket.setblocking(False)
        link.changed, link.closed, link.greeting, link.outbox = threading.Condition(), "", False, bytearray(8 << 20)
        with link.changed:
            link._flush()
        waits = threading.Thread(target=link.hand_over)
        waits.start()
        left = len(link.outbox)
        self.assertGreater(left, 0)
        while link.outbox:
            self.assertTrue(waits.is_alive())
            agent.recv(1 << 20)
            with link.changed:
                link._flush()
        waits.join(10)
        self.assertFalse(waits.is_alive())

    def test_each_epoch_is_on_disk_also_the_first(self):
        for restores in (True, False):
            for commits in (1, 3):
                self.assertEqual(self.epochs_saved(restores, commits), [1, 2, 3], (restores, commits))
                self.assertEqual(self.epochs_saved(restores, commits, begins_with=5), [6, 7, 8], (restores, commits))


class Reports(unittest.TestCase):
    """What an agent takes, whatever a script reports: it closes the link of a rank that sends anything else."""

    def report(self, *arguments, state=None, **metrics):
        lines, beat = [], {}
        link = types.SimpleNamespace(beat=beat, put=lambda message: lines.append(json.loads(sgd_launch_link.line_of(message).decode())))
        with mock.patch.object(sgd_launch, "_link", lambda: link), mock.patch.object(sgd_launch.State, "_first", state):
            sgd_launch.report(*arguments, **metrics)
        return lines[0], beat

    def test_text_that_is_no_utf_8(self):
        line, _ = self.report("va\udcffl", step=1, name="shard-\udcff.bin", **{"\udcfe": 1})
        self.assertEqual(line["metrics"], {"name": "shard-\\udcff.bin", "\\udcfe": 1})
        self.assertEqual(line["key"]["phase"], "va\\udcffl")
        self.assertEqual(sgd_launch_link.line_of({"path": "/tmp/\udcff\u00fc"}), b'{"path": "/tmp/?\xc3\xbc"}\n')
        with self.assertRaisesRegex(TypeError, "phase"):
            self.report(3, step=1)

    def test_numbers_that_no_double_holds(self):
        line, beat = self.report(step=1, loss=10 ** 400, big=10 ** 30, small=-10 ** 400, nan=math.nan, none=None, least=-math.inf)
        self.assertEqual(line["metrics"], {"loss": "Infinity", "big": 10 ** 30, "small": "-Infinity", "nan": None, "none": None, "least": "-Infinity"})
        self.assertEqual(beat, {})
        self.assertIs(type(self.report(step=1, loss=True)[1]["loss"]), float)

    def test_lists_and_dicts(self):
        class Array:
            def __init__(self, *values):
                self.values = values

            def item(self):
                if len(self.values) != 1:
                    raise ValueError("can only convert an array of size 1")
                return self.values[0]

            def tolist(self):
                return list(self.values)

        line, _ = self.report(step=1, one=Array(2.5), many=Array(1, 2), nested={"a": [1, (2, math.inf)], 3: Array(4)}, none=[])
        self.assertEqual(line["metrics"], {"one": 2.5, "many": [1, 2], "nested": {"a": [1, [2, None]], "3": 4}, "none": []})
        endless = []
        endless.append(endless)
        with self.assertRaisesRegex(ValueError, "x=.*nested more than 16 deep"):
            self.report(step=1, x=endless)
        with self.assertRaisesRegex(TypeError, "x=.*a set is no number, text, list or dict"):
            self.report(step=1, x=[{1}])

    def test_steps_and_epochs_in_range_of_any_kind(self):
        class Number:
            def __init__(self, value):
                self.value = value

            def __index__(self):
                return self.value

        line, _ = self.report(step=Number((1 << 63) - 1), epoch=Number((1 << 31) - 1))
        self.assertEqual((line["step"], line["key"]["batch"], line["key"]["epoch"]), ((1 << 63) - 1, (1 << 63) - 1, (1 << 31) - 1))
        for name, value in (("step", 1 << 63), ("step", 1 << 64), ("step", 10 ** 400), ("step", -(1 << 63) - 1), ("epoch", 1 << 31)):
            with self.assertRaisesRegex(ValueError, f"{name} is out of range: give a number below 2"):
                self.report(x=1, **{name: value})
            with self.assertRaisesRegex(ValueError, f"{name} is out of range"), mock.patch.object(sgd_launch.State, "_first", None):
                sgd_launch.State(**{name: value})
        with mock.patch.object(sgd_launch.State, "_first", None):
            state = sgd_launch.State(step=Number(7), epoch=Number(2))
        self.assertEqual(state._place(), (7, 2))
        line, _ = self.report(state=state, x=1)
        self.assertEqual((line["step"], line["key"]["epoch"]), (7, 2))
        with mock.patch.object(sgd_launch.State, "_first", None):
            self.assertEqual(sgd_launch.State(step="first", epoch=1.5)._place(), (0, 0))


class PlayedCuda:
    """torch.cuda with a generator for each of several devices."""

    def __init__(self, states, current):
        self.states, self.current = [types.SimpleNamespace(name=name, cpu=lambda name=name: name) for name in states], current
        self.is_available = self.is_initialized = lambda: True
        self.device_count = lambda: len(self.states)
        self.get_rng_state_all = lambda: list(self.states)
        self.get_rng_state = lambda: self.states[self.current]

    def set_rng_state_all(self, states):
        self.states[:len(states)] = states

    def set_rng_state(self, state):
        self.states[self.current] = state


class RandomStates(unittest.TestCase):
    def played(self, states, current):
        cuda = PlayedCuda(states, current)
        return cuda, mock.patch.dict(sys.modules, torch=types.SimpleNamespace(cuda=cuda, get_rng_state=bytes, set_rng_state=lambda _: None))

    def test_a_rank_on_another_gpu_goes_on_with_its_own_numbers(self):
        before = random.getstate()
        self.addCleanup(random.setstate, before)
        _, patched = self.played(["first", "second"], 1)
        with patched:
            states = sgd_launch._random_states()
        for others, current, restored in ((["a", "b"], 0, ["second", "second"]), (["a", "b"], 1, ["first", "second"]), (["a"], 0, ["second"])):
            with self.subTest(others=others, current=current):
                cuda, patched = self.played(others, current)
                with patched:
                    sgd_launch._set_random_states(states)
                self.assertEqual(cuda.states, restored)


class Folders(unittest.TestCase):
    def test_a_save_that_was_cut_off_mixes_no_ranks(self):
        said = io.StringIO()
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(said):
            for step, ranks in ((5, (0, 1)), (10, (0,))):  # Rank 1 is killed before its second one.
                for rank in ranks:
                    with mock.patch.dict(os.environ, RANK=str(rank), WORLD_SIZE="2"):
                        random.seed(step)
                        sgd_launch.State(seen=step, per_rank={"seen"}, step=step).save(folder)
            with mock.patch.dict(os.environ, RANK="1", WORLD_SIZE="2"):
                before, again = random.getstate(), sgd_launch.State(step=0)
                self.assertEqual(again.restore(folder), "disk")
                self.assertEqual((again.step, random.getstate()), (10, before))
                with self.assertRaisesRegex(ValueError, "seen is each rank's own"):
                    sgd_launch.State(seen=0, per_rank={"seen"}, step=0).restore(folder)
        self.assertIn("rank-0001.safetensors is left out", said.getvalue())


if __name__ == "__main__":
    unittest.main()
