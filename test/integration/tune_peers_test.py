"""Our schedulers beside those of ray[tune] and optuna on random streams, a short form of `scripts/bench tune_parity`; and
scripts/optuna_search.py with the real Optuna. Needs $SGD_TUNE_PYTHON or the Python of scripts/setup --tuners; is skipped without one."""

import json
import os
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from harness import BIN_DIR, CACHE, ROOT

PYTHON = os.environ.get("SGD_TUNE_PYTHON") or os.path.join(CACHE, "tune", "bin", "python3")
HELLO = {"type": "hello", "version": 1, "metric": "score", "mode": "max", "seed": 7, "trials": 30,
         "parameters": {"x": {"uniform": [-5, 5]}, "y": {"loguniform": [0.001, 10]}}}


def has_peers():
    return os.access(PYTHON, os.X_OK) and subprocess.run([PYTHON, "-c", "import optuna, ray.tune"], capture_output=True).returncode == 0


class Program:
    """scripts/optuna_search.py, and the launcher's side of the talk."""

    def __init__(self, hello, *options):
        self.process = subprocess.Popen([PYTHON, os.path.join(ROOT, "scripts", "optuna_search.py"), *options],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.say(hello)

    def say(self, message):
        self.process.stdin.write(json.dumps(message) + "\n")
        self.process.stdin.flush()

    def next(self, numbers, given=None):
        self.say({"type": "next", "trials": numbers, **({"given": given} if given else {})})
        return [] if given else [json.loads(self.process.stdout.readline()) for _ in numbers]

    def leave(self):
        self.say({"type": "bye"})
        self.process.stdin.close()
        rest = self.process.stdout.read()
        self.process.stdout.close()
        return rest, self.process.wait(60)

    def kill(self):
        self.process.kill()
        self.process.wait(60)
        self.process.stdin.close()
        self.process.stdout.close()


def score(values):
    return -(values["x"] - 2) ** 2 - abs(values["y"] - 0.1)


def search(sampler, trials, killed_after=None):
    """The values of all trials, two at a time; at `killed_after` the program is killed and another told everything."""
    program = Program(HELLO, "--sampler", sampler)
    said, all_values = [], []
    for number in range(0, trials, 2):
        if number == killed_after:
            program.kill()
            program = Program(HELLO, "--sampler", sampler)
            for message in said:
                program.say(message)
        answers = program.next([number, number + 1])
        assert [answer["trial"] for answer in answers] == [number, number + 1], answers
        said.append({"type": "next", "trials": [number, number + 1],
                     "given": {str(answer["trial"]): answer["parameters"] for answer in answers}})
        for answer in answers:
            values, trial = answer["parameters"], answer["trial"]
            all_values.append(values)
            value = None if trial % 10 == 9 else score(values)
            for message in ({"type": "report", "trial": trial, "iteration": 1, "value": value},
                            {"type": "end", "trial": trial, "outcome": ("completed", "completed", "stopped", "failed")[trial % 4],
                             "iteration": 1, "value": value}):
                said.append(message)
                program.say(message)
    rest, status = program.leave()
    assert (rest, status) == ("", 0), (rest, status)
    return all_values


@unittest.skipUnless(has_peers(), "no Python with ray[tune] and optuna: scripts/setup --tuners installs one")
class PeersTest(unittest.TestCase):
    def test_decisions_are_those_of_ray_and_optuna(self):
        done = subprocess.run([PYTHON, os.path.join(ROOT, "test", "bench", "tune_parity.py"), os.path.join(BIN_DIR, "tune_replay"),
                               "--streams", "400", "--seed", "20"], capture_output=True, text=True, timeout=300)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("unexplained differences: 0"), 3, done.stdout)

    def test_optuna_searches(self):
        for sampler in ("tpe", "cmaes"):
            with self.subTest(sampler):
                found = search(sampler, 60)
                self.assertTrue(all(-5 <= values["x"] <= 5 and 0.001 <= values["y"] <= 10 for values in found))
                by_chance = search("random", 60)
                # The last third is where the good ones are, and chance is not.
                self.assertGreater(sum(map(score, found[40:])), sum(map(score, by_chance[40:])) / 2)

    def test_a_program_that_is_killed_goes_on_as_if_it_had_not_been(self):
        for sampler in ("tpe", "cmaes", "random"):
            with self.subTest(sampler):
                self.assertEqual(search(sampler, 30, killed_after=24), search(sampler, 30))

    def test_every_domain(self):
        domains = {"a": {"grid": [1, "two"]}, "b": {"choice": [True, False]}, "c": {"uniform": [0, 1]}, "d": {"loguniform": [0.1, 10]},
                   "e": {"quniform": [0, 1, 0.25]}, "f": {"qloguniform": [0.5, 8, 0.5]}, "g": {"randint": [0, 3]},
                   "h": {"qrandint": [16, 64, 16]}, "i": {"normal": [5, 1]}}
        program = Program({**HELLO, "parameters": domains})
        seen = {path: set() for path in domains}
        for answer in program.next(list(range(60))):
            for path, value in answer["parameters"].items():
                seen[path].add(value)
        self.assertEqual(program.leave(), ("", 0))
        self.assertEqual((seen["a"], seen["b"], seen["g"], seen["h"]), ({1, "two"}, {True, False}, {0, 1, 2}, {16, 32, 48, 64}))
        self.assertEqual(seen["e"], {0, 0.25, 0.5, 0.75, 1})
        self.assertTrue(all(0.5 <= value <= 8 and value % 0.5 == 0 for value in seen["f"]))

    def test_what_another_version_gave_is_taken(self):
        program = Program(HELLO)
        program.next([0], given={"0": {"x": 1.5, "y": 0.5}})
        program.say({"type": "end", "trial": 0, "outcome": "completed", "iteration": 1, "value": 1.0})
        self.assertEqual([answer["trial"] for answer in program.next([1])], [1])
        self.assertEqual(program.leave(), ("", 0))


if __name__ == "__main__":
    unittest.main()
