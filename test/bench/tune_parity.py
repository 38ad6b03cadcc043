"""Plays the same random streams of reports against our schedulers and against those of ray[tune] and optuna.

    tune_parity.py REPLAY [--streams N] [--seed S] [--only asha,median,pbt]

REPLAY is the program tune_replay. A stream is a population of trials whose reports come in any order. Most streams are
ordinary: there every decision must be the same, number by number. Odd streams have one or more oddities (values that are no
numbers, reports that skip epochs or come again, ...); where launcher/tune/README.md lists an answer of ours that differs, the
other side is amended by exactly that answer, for streams with that oddity alone, and must then be the same, too. So every
difference is one of the list, and each is counted by how many streams differ without its amendment.
"""

import argparse
import json
import math
import random
import subprocess
import sys

import tune_peers

EPOCHS = 40


class Stream:
    """One stream for our side and theirs."""

    def __init__(self, name, number, seed):
        rng = random.Random(f"{seed} {name} {number}")
        self.name = name
        self.oddities = sorted(o for o in tune_peers.ODDITIES[name] if rng.random() < 0.35) if rng.random() < 0.4 else []
        self.mode = rng.choice(["min", "max"])
        self.trials = rng.randint(1, 9)
        self.tune = {"metric": "score", "mode": self.mode, "samples": 50, "seed": rng.randint(0, 3), "parameters": tune_peers.PARAMETERS,
                     "scheduler": tune_peers.rules(name, rng)}
        self.events = [self._event(rng) for _ in range(rng.randint(5, 70))]

    def _event(self, rng):
        trial = rng.randrange(self.trials)
        what = rng.random()
        if what < 0.04:
            return ["end", trial, rng.choice(["completed", "completed", "failed"])]
        if self.name == "pbt" and what < 0.10:
            return ["next"]
        further = 1
        if "skipped" in self.oddities and rng.random() < 0.3:
            further = rng.randint(2, 20)
        if "repeated" in self.oddities and rng.random() < 0.2:
            further = rng.randint(-3, 0)
        # Few different values, so that there are ties.
        value = rng.choice([rng.randint(0, 8) / 8, rng.random(), rng.gauss(0, 1e3)])
        if "not_a_number" in self.oddities and rng.random() < 0.2:
            value = None
        if "infinite" in self.oddities and rng.random() < 0.2:
            value = rng.choice([math.inf, -math.inf])
        return ["report", trial, further, value, self.name == "pbt" and rng.random() < 0.2]

    def line(self):
        # JSON has no infinity: a report's line has null for it, and so has this.
        events = [[None if isinstance(x, float) and not math.isfinite(x) else x for x in event] for event in self.events]
        return json.dumps({"tune": self.tune, "trials": self.trials, "events": events})


def first_difference(stream, answer, amendments):
    """The first event at which the other side decides something else, with both decisions; None: none."""
    peer = tune_peers.PEERS[stream.name](stream, answer, amendments)
    for number, (event, ours) in enumerate(zip(stream.events, answer["decisions"], strict=True)):
        theirs = peer.play(event, ours)
        mine = [tune_peers.summary(decision) for decision in ours]
        if mine != theirs:
            return f"event {number} {event}: ours {mine} {ours}, theirs {theirs}"
    return None


class Tally:
    def __init__(self, name):
        self.name = name
        self.streams = self.decisions = self.ordinary = self.unexplained = 0
        self.differing = {oddity: 0 for oddity in tune_peers.ODDITIES[name]}

    def take(self, stream, answer):
        self.streams += 1
        self.decisions += sum(map(len, answer["decisions"]))
        self.ordinary += not stream.oddities
        difference = first_difference(stream, answer, set(stream.oddities) | tune_peers.ALWAYS[self.name])
        if difference:
            self.unexplained += 1
            print(f"{self.name}: UNEXPLAINED: {difference}\n  {stream.line()}", flush=True)
        if len(stream.oddities) == 1 and first_difference(stream, answer, tune_peers.ALWAYS[self.name]):
            self.differing[stream.oddities[0]] += 1

    def text(self):
        differing = ", ".join(f"{oddity} {count}" for oddity, count in self.differing.items())
        return (f"{self.name}: {self.streams} streams ({self.ordinary} ordinary), {self.decisions} decisions, unexplained differences: "
                f"{self.unexplained}; streams of one oddity that differ without its amendment: {differing or 'none'}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("replay")
    parser.add_argument("--streams", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="asha,median,pbt")
    options = parser.parse_args()
    unexplained = 0
    for name in options.only.split(","):
        tally = Tally(name)
        with subprocess.Popen([options.replay], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as replay:
            for number in range(options.streams):
                stream = Stream(name, number, options.seed)
                replay.stdin.write(stream.line() + "\n")
                replay.stdin.flush()
                answer = replay.stdout.readline()
                if not answer:
                    sys.exit(f"tune_replay ended with {replay.wait()} at {stream.line()}")
                tally.take(stream, json.loads(answer))
            replay.stdin.close()
        print(tally.text(), flush=True)
        unexplained += tally.unexplained
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
