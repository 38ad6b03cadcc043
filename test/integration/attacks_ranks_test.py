"""Attacks of a rank on its agent, over the link that every rank has: each ends that link, or changes nothing. The agent, the coordinator
and the job beside it notice none.
"""

import json
import os
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import rank_attacker
from attacked import FRAMES, Attacked
from harness import read_file, read_lines, resident_bytes, wait_for

NAMES = list(rank_attacker.ATTACKS)
MUST_END = NAMES[: NAMES.index("hello with lines from before its birth")] + [name for name in NAMES if "checkpoint" in name and "not there" not in name]
GROWN_MAX = 64 << 20
LIMIT_S = 120.0


class RankAttacksTest(Attacked):
    slots = 2 + len(rank_attacker.ATTACKS)

    def test_a_hostile_rank(self):
        agent, coordinator = self.daemons[1], self.daemons[0]
        before = {process.pid: resident_bytes(process.pid) for process in (agent, coordinator)}
        attacker = os.path.abspath(rank_attacker.__file__)
        runs = {name: self.verb("submit", "--detach", "--address", self.address, "-n", 1, "--max-failures", 0, "--", "/usr/bin/python3", "-S",
                                attacker, number).strip() for number, name in enumerate(rank_attacker.ATTACKS)}
        wait_for(lambda: len(json.loads(self.verb("ps", "--address", self.address, "--json"))["runs"]) == 1, LIMIT_S, "the end of all attacks")
        for name, run in runs.items():
            with self.subTest(attack=name):
                log = os.path.join(self.state, "runs", run, "logs", "gen-0001", "rank-0000.log")
                events = read_lines(os.path.join(self.state, "runs", run, "events.jsonl"))
                if events[-1]["state"] == "succeeded":  # Else its own run has failed for it.
                    how = wait_for(lambda log=log: read_file(log).decode(), LIMIT_S, f"how it ended: {name}").split()[0]
                    self.assertIn(how, ("closed", "reset") if name in MUST_END else ("closed", "reset", "open"))
                claims = {event["path"] for event in events if event["event"] in ("checkpoint_saved", "checkpoint_rejected")}
                self.assertLessEqual(claims, {rank_attacker.NOT_THERE})
                type(self).attacks += 1
        for process in (agent, coordinator):
            self.assertIsNone(process.poll(), self.said("n1"))
            wait_for(lambda pid=process.pid: resident_bytes(pid) < before[pid] + GROWN_MAX, 20,
                     f"memory of {process.args[1]} to come back: {before[process.pid]} bytes before, {resident_bytes(process.pid)} now")
        self.assertEqual(self.said("coordinator").count("node n1: disconnected"), 0, self.said("coordinator") + self.said("n1"))
        self.assertEqual(self.count(FRAMES, "file_missing"), 0)  # Nothing that no run may go on from was asked for.
        self.assertNotIn(b"\x1b", read_file(self.path("coordinator.log")) + read_file(self.path("n1.log")) + read_file(self.path("hostile.log")))

    def test_a_rank_that_reports_far_ahead_of_the_other(self):
        """What waits for the slower one is kept, up to a limit, and no longer than the run."""
        coordinator = self.daemons[0]
        before = resident_bytes(coordinator.pid)
        code = f"import sys, time; sys.path.insert(0, {os.path.dirname(rank_attacker.__file__)!r}); import os, rank_attacker as it\n" \
               "if os.environ['RANK'] == '1': time.sleep(1000)\n" \
               "link = it.Link().assigned()\n" \
               "link.socket.settimeout(None)\n" \
               "for number in range(1, 4000): link.say(it.report(number, {'text': 'x' * 60_000}))\n" \
               "link.end()\n"
        run = self.verb("submit", "--detach", "--address", self.address, "-n", 2, "--max-failures", 0, "--", "/usr/bin/python3", "-S", "-c", code).strip()

        def state():
            return json.loads(self.verb("status", "--address", self.address, run, "--json"))
        most = 0

        def is_over():
            nonlocal most
            most = max(most, resident_bytes(coordinator.pid))
            return state()["state"] == "failed"
        wait_for(is_over, LIMIT_S, "the run to fail")
        self.assertIn("ahead of the slowest rank", json.dumps(state()))
        self.assertLess(most, before + 2 * GROWN_MAX)
        type(self).attacks += 1


if __name__ == "__main__":
    unittest.main()
