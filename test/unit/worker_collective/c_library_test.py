#!/usr/bin/env python3
"""libsgd-collective.so by way of its Python side, without torch: all operations and types against plain Python sums,
ranks that die, freeze, leave, differ or fork, and that nothing is left behind.

    c_library_test.py build/release/lib/sgd-launch/libsgd-collective.so [unittest arguments]
"""
import array
import ctypes
import math
import os
import platform
import signal
import struct
import sys
import threading
import time
import unittest

from c_library_ranks import (CODES, DEADLINE_S, FolderStore, Rank, RanksTest, address, collective, run, values_of,
                             zeros)

# One piece by one meeting, one piece in slices, several pieces; around the borders of lines and pieces.
COUNTS = 0, 1, 17, 8193, 270001


class CLibraryTest(RanksTest):
    def test_all_reduce_of_every_type_and_size(self):
        def work(group):
            for kind in CODES:
                for count in COUNTS if kind == collective.FLOAT32 else (17, 9001):
                    given = values_of(kind, group.rank, count)
                    everyone = [values_of(kind, rank, count) for rank in range(group.size)]
                    for reduction, combined in ((collective.SUM, sum), (collective.PRODUCT, math.prod),
                                                (collective.MIN, min), (collective.MAX, max)):
                        if count > 100 and reduction != collective.SUM:
                            continue
                        taken = zeros(kind, count)
                        run(group, collective.ALL_REDUCE, kind, [given], [taken], reduction=reduction)
                        expected = array.array(CODES[kind], map(combined, zip(*everyone)))
                        assert taken == expected, (kind, count, reduction)
                    in_place = given[:]
                    run(group, collective.ALL_REDUCE, kind, [in_place], [in_place])
                    assert list(in_place) == [sum(column) for column in zip(*everyone)], (kind, count, "in place")

        for size in (1, 2, 3, 4):
            with self.subTest(size):
                self.values(self.start(size, work))

    def test_bits_and_flags_and_averages(self):
        def work(group):
            flags = array.array("B", [group.rank == 0, 1, 0])
            for reduction, expected in ((collective.SUM, [1, 1, 0]), (collective.MAX, [1, 1, 0]),
                                        (collective.PRODUCT, [0, 1, 0]), (collective.MIN, [0, 1, 0])):
                taken = zeros(collective.UINT8, 3)
                run(group, collective.ALL_REDUCE, collective.BOOL, [flags], [taken], reduction=reduction)
                assert list(taken) == expected, (reduction, taken)
            for reduction, expected in ((collective.BIT_AND, 4), (collective.BIT_OR, 7), (collective.BIT_XOR, 3)):
                taken = zeros(collective.INT32, 1)
                run(group, collective.ALL_REDUCE, collective.INT32, [array.array("i", [5 + group.rank])], [taken],
                    reduction=reduction)
                assert taken[0] == expected, (reduction, taken)
            taken = zeros(collective.FLOAT32, 1)
            run(group, collective.ALL_REDUCE, collective.FLOAT32, [array.array("f", [group.rank])], [taken],
                reduction=collective.AVERAGE)
            assert taken[0] == 0.5
            for reduction in (collective.MIN, collective.MAX):
                run(group, collective.ALL_REDUCE, collective.FLOAT32, [array.array("f", [math.nan if group.rank else 1])],
                    [taken], reduction=reduction)
                assert math.isnan(taken[0])

        self.values(self.start(2, work))

    def test_16_bit_floats_are_added_as_32_bit_ones(self):
        """Every value of half precision against Python's own conversion, and rounding to even of both."""
        def work(group):
            every = array.array("H", range(1 << 16))
            zero = array.array("H", bytes(2 << 16))
            taken = array.array("H", bytes(2 << 16))
            run(group, collective.ALL_REDUCE, collective.FLOAT16, [every if group.rank else zero], [taken])
            half = struct.Struct("<e")
            for bits, sum_bits in zip(every, taken):
                value, got = (half.unpack(struct.pack("<H", one))[0] for one in (bits, sum_bits))
                assert got == value or (math.isnan(got) and math.isnan(value)), (bits, sum_bits)
            cases = [(1.0, 2.0**-11), (1.0, 3 * 2.0**-11), (65504.0, 15.0), (65504.0, 16.0), (2.0**-24, 2.0**-24),
                     (2.0**-14, -(2.0**-24)), (0.1, 0.2), (-3.0, 1000.0)]
            given = array.array("H", b"".join(half.pack(case[group.rank]) for case in cases))
            taken = array.array("H", bytes(2 * len(cases)))
            run(group, collective.ALL_REDUCE, collective.FLOAT16, [given], [taken])
            for (a, b), bits in zip(cases, taken):
                exact = sum(half.unpack(half.pack(one))[0] for one in (a, b))
                expected = math.inf if exact >= 65520 else half.unpack(half.pack(exact))[0]
                assert half.unpack(struct.pack("<H", bits))[0] == expected, (a, b)
            brain = array.array("H", [[0x3F80, 0x3F80, 0x3F80, 0x7F80][i] if group.rank else [0x3B80, 0x3C00, 0x3C40, 0x3F80][i]
                                      for i in range(4)])  # 1 + 2^-8, 1 + 2^-7, 1 + 3 * 2^-8, inf + 1
            run(group, collective.ALL_REDUCE, collective.BFLOAT16, [brain], [brain])
            assert list(brain) == [0x3F80, 0x3F81, 0x3F82, 0x7F80], [hex(one) for one in brain]

        self.values(self.start(2, work))

    @unittest.skipUnless(platform.machine() == "x86_64", "sets a register of this CPU")
    def test_small_halves_count_where_small_floats_are_zeros(self):
        """As after torch.set_flush_denormal(True): a half below the normal ones is a float like any other."""
        def work(group):
            libm, environment, mxcsr = ctypes.CDLL("libm.so.6"), (ctypes.c_uint32 * 16)(), 7
            assert libm.fegetenv(environment) == 0
            environment[mxcsr] |= 0x8040  # Results and operands.
            assert libm.fesetenv(environment) == 0
            assert 5e-324 * (group.size - 1) == 0, "the register has no effect"
            small = array.array("H", [*range(0x0400), *range(0x8000, 0x8400)])
            taken, zero = zeros_of_halves(len(small)), zeros_of_halves(len(small))
            run(group, collective.ALL_REDUCE, collective.FLOAT16, [small if group.rank else zero], [taken])
            return [bits for bits, got in zip(small, taken) if got != bits & (0x7fff if bits == 0x8000 else 0xffff)]

        def zeros_of_halves(count):
            return array.array("H", bytes(2 * count))

        self.assertEqual(self.values(self.start(2, work)), [[], []])

    def test_operations_that_move_data(self):
        def work(group):
            kind = collective.FLOAT32
            ranks = range(group.size)
            for count in COUNTS:
                own = values_of(kind, group.rank, count)
                outputs = [zeros(kind, count) for _ in ranks]
                run(group, collective.ALL_GATHER, kind, [own], outputs)
                assert outputs == [values_of(kind, rank, count) for rank in ranks], count
                for root in ranks:
                    is_root = group.rank == root
                    copy = own[:] if is_root else zeros(kind, count)
                    run(group, collective.BROADCAST, kind, [copy] if is_root else [], [] if is_root else [copy], root=root)
                    assert copy == values_of(kind, root, count), count
                    gathered = [zeros(kind, count) for _ in ranks]
                    run(group, collective.GATHER, kind, [own], gathered if is_root else [], root=root)
                    assert not is_root or gathered == [values_of(kind, rank, count) for rank in ranks]
                    taken = zeros(kind, count)
                    run(group, collective.SCATTER, kind, [values_of(kind, rank, count) for rank in ranks] if is_root else [],
                        [taken], root=root, count=count)
                    assert taken == own, count
                    taken = zeros(kind, count)
                    run(group, collective.REDUCE, kind, [own], [taken] if is_root else [], root=root)
                    sums = array.array("f", map(sum, zip(*(values_of(kind, rank, count) for rank in ranks))))
                    assert taken == (sums if is_root else zeros(kind, count))
                taken = zeros(kind, count)
                run(group, collective.REDUCE_SCATTER, kind, [own] * group.size, [taken], count=count)
                assert taken == sums, count
                inputs = [values_of(kind, group.rank, count // (1 + to)) for to in ranks]
                outputs = [zeros(kind, count // (1 + group.rank)) for _ in ranks]
                run(group, collective.ALL_TO_ALL, kind, inputs, outputs, input_counts=list(map(len, inputs)),
                    output_counts=list(map(len, outputs)))
                assert outputs == [values_of(kind, rank, count // (1 + group.rank)) for rank in ranks], count
                run(group, collective.BARRIER, kind)

        for size in (2, 3):
            with self.subTest(size):
                self.values(self.start(size, work))

    def test_a_killed_rank_ends_the_wait_of_the_others(self):
        def work(group):
            run(group, collective.BARRIER, collective.UINT8)
            if group.rank == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            begin = time.monotonic()
            try:
                run(group, collective.ALL_REDUCE, collective.FLOAT32, [zeros(collective.FLOAT32, 70000)] * 1,
                    [zeros(collective.FLOAT32, 70000)])
            except collective.CollectiveError as error:
                again = None
                try:
                    run(group, collective.BARRIER, collective.UINT8)
                except collective.CollectiveError as second:
                    again = str(second)
                return time.monotonic() - begin, str(error), again
            return None

        ranks = self.start(4, work)
        for index, (error, value) in enumerate(rank.outcome() for rank in ranks):
            if index == 1:
                continue
            self.assertIsNone(error)
            seconds, text, again = value
            self.assertIn(f"rank 1 (process {ranks[1].pid}) has ended", text)
            self.assertIn("rank 1", again)
            self.assertLess(seconds, DEADLINE_S / 2)

    def test_a_rank_that_leaves_a_time_out_and_an_abort_are_named(self):
        def work(group, harm):
            run(group, collective.BARRIER, collective.UINT8)
            if group.rank == 1:
                if harm == "leave":
                    group.close()
                    group = None
                elif harm == "abort":
                    group.abort("enough of it")
                os.read(pipe[0], 1)  # Lives on until the other is done.
                return None
            if harm == "time out":
                group.set_timeout(50)
            try:
                run(group, collective.BARRIER, collective.UINT8)
            except collective.CollectiveError as error:
                return str(error)
            finally:
                os.write(pipe[1], b"x")
            return None

        pipe = os.pipe()
        for harm, expected in (("leave", "has left the group"), ("abort", "enough of it"),
                               ("time out", "waited 50 ms for rank 1 (process ")):
            with self.subTest(harm):
                self.assertIn(expected, self.values(self.start(2, work, harm=harm))[0])

    def test_two_aborts_at_once_give_the_whole_words_of_the_first(self):
        """Whoever is second goes on while the first still writes, who is held up here, or has been killed."""
        state_at, words_at, begun, whole = 196, 200, 1, 2  # Of the reason, in page 0 of the memory.

        def barrier(group):
            try:
                run(group, collective.BARRIER, collective.UINT8)
            except collective.CollectiveError as error:
                errors.append(str(error))

        for words in ("the first one's words", None):
            fd, errors = collective.create(2, 7), []
            groups = [collective.Group(fd, 7, rank, [os.getpid()] * 2) for rank in (0, 1)]
            os.pwrite(fd, struct.pack("=I", begun), state_at)
            groups[0].abort("the second one's words")
            waiting = threading.Thread(target=barrier, args=(groups[1],))
            waiting.start()
            if words:
                os.pwrite(fd, words.encode(), words_at)
                os.pwrite(fd, struct.pack("=I", whole), state_at)
            waiting.join()
            self.assertEqual(errors, ["barrier of rank 1 ended: " + (words or "a rank has aborted the group, and has not said why")])
            for group in groups:
                group.close()
            os.close(fd)

    def test_different_calls_are_named_on_every_rank(self):
        def work(group):
            kind = collective.FLOAT32
            operation = collective.BARRIER if group.rank == 2 else collective.ALL_REDUCE
            try:
                run(group, operation, kind, [zeros(kind, 4)], [zeros(kind, 4)])
            except collective.CollectiveError as error:
                return str(error)
            return None

        for text in self.values(self.start(3, work)):
            self.assertIn("rank 1 to all_reduce, rank 2 to barrier", text)

    def test_different_sizes_and_types_are_named(self):
        def work(group):
            try:
                run(group, collective.ALL_REDUCE, (collective.FLOAT32, collective.FLOAT64)[group.rank],
                    [zeros(collective.FLOAT64, 4)], [zeros(collective.FLOAT64, 4)], count=4 - group.rank,
                    reduction=collective.MAX)
            except collective.CollectiveError as error:
                return str(error)
            return None

        for text in self.values(self.start(2, work)):
            self.assertIn("rank 0 to all_reduce (4 float32, max, root 0), rank 1 to all_reduce (3 float64, max, root 0)", text)

    def test_bad_requests_are_refused_by_name(self):
        def work(group):
            texts = []
            for request in (collective.make_request(99), collective.make_request(collective.ALL_REDUCE, 77),
                            collective.make_request(collective.BROADCAST, root=5),
                            collective.make_request(collective.ALL_REDUCE, collective.INT32, collective.AVERAGE),
                            collective.make_request(collective.ALL_REDUCE, collective.FLOAT32, collective.BIT_OR)):
                try:
                    group.run(request)
                except collective.CollectiveError as error:
                    texts.append(str(error))
            return texts

        texts = self.values(self.start(1, work))[0]
        self.assertEqual(len(texts), 5)
        self.assertIn("operation 99", texts[0])
        self.assertIn("root 5", texts[2])

    def test_a_call_that_waits_can_be_left_and_finished_later(self):
        def work(group):
            taken = zeros(collective.FLOAT32, 1)
            request = collective.make_request(collective.ALL_REDUCE, collective.FLOAT32, count=1,
                                              inputs=[address(own := array.array("f", [1]))], outputs=[address(taken)])
            if group.rank == 0:
                was_done = group.start(request, 1000)
                os.write(pipe[1], b"x")
                group.finish()
                return was_done, taken[0], own[0]
            os.read(pipe[0], 1)
            group.run(request)
            return None, taken[0], own[0]

        pipe = os.pipe()
        self.assertEqual(self.values(self.start(2, work)), [(False, 2, 1), (None, 2, 1)])

    def test_a_time_out_that_a_clock_cannot_count_is_a_long_one(self):
        def work(group):
            group.set_timeout(1 << 62)
            request = collective.make_request(collective.BARRIER)
            if group.rank == 0:
                was_done = group.start(request, 1000)
                os.write(pipe[1], b"x")
                group.finish()
                return was_done
            os.read(pipe[0], 1)
            return group.run(request)

        pipe = os.pipe()
        self.assertEqual(self.values(self.start(2, work)), [False, None])

    def test_an_all_to_all_counts_by_its_own_sizes_whatever_others_have_gone_on_to(self):
        fd, kind = collective.create(2, 7), collective.FLOAT32
        groups = [collective.Group(fd, 7, rank, [os.getpid()] * 2) for rank in (0, 1)]
        os.close(fd)
        calls = []

        def call(rank, count):
            inputs = [values_of(kind, rank, count), values_of(kind, rank + 2, count)]
            outputs = [zeros(kind, count), zeros(kind, count)]
            calls.append((rank, inputs, outputs))
            return collective.make_request(collective.ALL_TO_ALL, kind, inputs=list(map(address, inputs)), outputs=list(
                map(address, outputs)), input_counts=[count] * 2, output_counts=[count] * 2)

        self.assertFalse(groups[0].start(call(0, 1), 0))
        self.assertTrue(groups[1].start(call(1, 1), 0))
        self.assertFalse(groups[1].start(call(1, 270001), 0))  # Rank 0 has not looked at the first one's sizes yet.
        groups[0].finish()
        self.assertFalse(groups[0].start(call(0, 270001), 0))
        ends = [threading.Thread(target=group.finish) for group in groups]
        for end in ends:
            end.start()
        for end in ends:
            end.join()
        for first, second in ((calls[0], calls[1]), (calls[3], calls[2])):
            for rank, _, outputs in (first, second):
                self.assertEqual(outputs[1 - rank], (first, second)[1 - rank][1][rank])
        for group in groups:
            group.close()

    def test_sizes_of_an_all_to_all_that_do_not_fit_are_named(self):
        def work(group, given, taken):
            kind = collective.FLOAT32
            inputs, outputs = ([zeros(kind, count) for count in counts[group.rank]] for counts in (given, taken))
            try:
                run(group, collective.ALL_TO_ALL, kind, inputs, outputs, input_counts=list(map(len, inputs)),
                    output_counts=list(map(len, outputs)))
                run(group, collective.BARRIER, kind)
            except collective.CollectiveError as error:
                return str(error)
            return None

        for more in (3, 1):
            for text in self.values(self.start(2, work, given=[[1, 2], [1, 1]], taken=[[1, 1], [more, 1]])):
                self.assertIn(f"all_to_all: rank 0 gives rank 1 2 elements, and that one takes {more}", text)
        texts = self.values(self.start(1, work, given=[[2]], taken=[[3]]))
        self.assertIn("all_to_all: this rank gives itself 2 elements, and takes 3", texts[0])

    def test_a_child_is_refused_and_harms_nothing(self):
        def work(group):
            def child():
                run(group, collective.BARRIER, collective.UINT8)

            error, _ = Rank(child).outcome()
            run(group, collective.BARRIER, collective.UINT8)
            return error

        for error in self.values(self.start(2, work)):
            self.assertIn("a child must form a group of its own", error)

    def test_ctrl_c_ends_a_wait(self):
        def work(group):
            if group.rank == 1:
                os.read(pipe[0], 1)
                return None
            signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
            signal.setitimer(signal.ITIMER_REAL, 0.05)
            try:
                run(group, collective.BARRIER, collective.UINT8)
            except KeyboardInterrupt:
                return "interrupted"
            finally:
                os.write(pipe[1], b"x")
            return None

        pipe = os.pipe()
        self.assertEqual(self.values(self.start(2, work))[0], "interrupted")

    def test_groups_one_after_the_other_share_a_store_and_leave_nothing(self):
        before = set(os.listdir("/dev/shm"))

        def work(group):
            taken = zeros(collective.INT64, 1)
            for _ in range(3):
                run(group, collective.ALL_REDUCE, collective.INT64, [array.array("q", [1])], [taken])
                group.close()
                group = collective.form(FolderStore(self.folder.name), group.rank, group.size, DEADLINE_S)
            return taken[0], sum("sgd-collective" in os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd")
                                 if os.path.lexists(f"/proc/self/fd/{fd}"))

        self.assertEqual(self.values(self.start(2, work)), [(2, 0)] * 2)
        self.assertEqual(set(os.listdir("/dev/shm")) - before, set())

    def test_ranks_that_cannot_share_memory_are_told_why(self):
        def rank_main(rank):
            if rank == 1:
                record = collective._host_record()
                collective._host_record = lambda: {**record, "host": ["elsewhere"]}
            return collective.form(FolderStore(self.folder.name), rank, 2, DEADLINE_S)

        for text in self.values([Rank(rank_main, rank) for rank in range(2)]):
            self.assertEqual(text, "each rank is on a host, in a container or under an account of its own")

    def test_a_rank_that_does_not_come_is_named(self):
        def rank_main():
            return collective.form(FolderStore(self.folder.name), 0, 2, 0.05)

        error, _ = Rank(rank_main).outcome()
        self.assertIn("nothing from rank 1", error)

    def test_more_ranks_than_a_group_may_have_are_refused(self):
        def rank_main():
            os.close(collective.create(1024, 1))
            collective.create(1025, 1)

        error, _ = Rank(rank_main).outcome()
        self.assertIn("a group of 1025 ranks on one host: 1 to 1024 can share memory", error)

    def test_a_missing_library_is_named(self):
        def rank_main():
            os.environ["SGD_COLLECTIVE_LIBRARY"] = "/nowhere/libsgd-collective.so"
            collective.library.cache_clear()
            collective.library()

        error, _ = Rank(rank_main).outcome()
        self.assertIn("/nowhere/libsgd-collective.so", error)


if __name__ == "__main__":
    os.environ["SGD_COLLECTIVE_LIBRARY"] = os.path.abspath(sys.argv.pop(1))
    unittest.main()
