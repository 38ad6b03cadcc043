"""What Python ranks decide alike: which copy to go on from, and how often to make one."""
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../worker/python"))
from sgd_launch_plan import Plan, choose


def records(local, rank, world, local_world, *commits):
    return [[local, rank, world, local_world, generation, call, call, 4] for generation, call in commits]


class Choosing(unittest.TestCase):
    def test_nothing_is_there(self):
        self.assertIsNone(choose([[0, 0, []], [0, 1, []]], 2))

    def test_the_newest_that_all_hold(self):
        held = records(0, 0, 2, 2, (1, 20), (1, 30)) + records(1, 1, 2, 2, (1, 10), (1, 20))
        found = choose([[0, 0, held], [0, 1, []]], 2)
        self.assertEqual((found.key, found.is_own, found.interval), ((1, 20), True, 4))

    def test_the_same_call_of_another_generation_is_another_commit(self):
        held = records(0, 0, 2, 2, (1, 20), (2, 30)) + records(1, 1, 2, 2, (1, 30), (1, 20))
        self.assertEqual(choose([[0, 0, held], [0, 1, []]], 2).key, (1, 20))

    def test_a_rank_has_none(self):
        self.assertIsNone(choose([[0, 0, records(0, 0, 2, 2, (1, 20))], [0, 1, []]], 2))

    def test_smaller_and_larger(self):
        held = records(0, 0, 2, 2, (1, 20)) + records(1, 1, 2, 2, (1, 20))
        for world in (1, 3):
            found = choose([[0, 0, held]] + [[0, local, []] for local in range(1, world)], world)
            self.assertEqual((found.key, found.is_own, found.world), ((1, 20), False, 2))

    def test_two_nodes(self):
        there = [[0, 0, records(0, 0, 2, 1, (1, 20), (1, 30))], [1, 0, records(0, 1, 2, 1, (1, 20))]]
        self.assertEqual(choose(there, 2).key, (1, 20))
        self.assertIsNone(choose([there[0], [1, 0, []]], 2))  # A new node has nothing: the disk.
        moved = [[1, 0, there[1][2]], [0, 0, there[0][2]]]
        self.assertFalse(choose(moved, 2).is_own)  # The ranks have changed places.


class Planning(unittest.TestCase):
    def ranks(self, steps_s, costs_s, calls=2000):
        """Calls in which each rank copies; all wait for each other where they hear."""
        told, copies, plans, now = {}, [[] for _ in steps_s], [], [0.0] * len(steps_s)
        for rank in range(len(steps_s)):
            plans.append(Plan(lambda call, wanted, rank=rank: told.setdefault(call, {}).__setitem__(rank, wanted),
                              lambda call: [told[call][rank] for rank in range(len(steps_s))]))
        for call in range(1, calls):
            for rank, plan in enumerate(plans):
                now[rank] += steps_s[rank]
                if plan.is_due(call, now[rank]):
                    copies[rank].append(call)
                    now[rank] += costs_s[rank]
                    plan.copied(call, costs_s[rank])
                plan.returned(now[rank])
        return copies, now, plans

    def test_all_copy_in_the_same_calls_and_under_one_percent(self):
        copies, now, _ = self.ranks([0.010, 0.011, 0.009], [0.002, 0.001, 0.003])
        self.assertEqual(copies[0], copies[1])
        self.assertEqual(copies[0], copies[2])
        self.assertEqual(copies[0][0], 1)
        self.assertLess(len(copies[2]) * 0.003 / now[2], 0.0101)
        self.assertGreater(len(copies[2]) * 0.003 / now[2], 0.008)  # And not much rarer than it may be.

    def test_a_cheap_copy_is_made_in_almost_every_call(self):
        copies, _, _ = self.ranks([1.0], [0.001], calls=100)
        self.assertGreater(len(copies[0]), 90)

    def test_it_goes_on_with_the_interval_of_before(self):
        plan = Plan(None, None)
        plan.go_on(100, 8)
        self.assertEqual([call for call in range(101, 110) if plan.is_due(call, 0.0)][0], 108)


if __name__ == "__main__":
    unittest.main()
