#!/usr/bin/env python3
"""A search program for `sgd-launch tune` on Optuna's ask and tell.

    "search": {"type": "exec", "command": ["python3", "scripts/optuna_search.py", "--sampler", "tpe"]}

Samplers: tpe (default), cmaes (needs `pip install cmaes`), random. What is said over standard input and output is described in
launcher/tune/search_protocol.hpp. The n-th trial is drawn with a generator of (seed, n), so that a program that is started again,
and told everything once more, proposes what this one would have proposed.
"""

import argparse
import json
import sys

import optuna
from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution


def distribution(kind, numbers):
    low, high = numbers[0], numbers[1] if len(numbers) > 1 else None
    if kind in ("grid", "choice"):  # By index: values may be anything.
        return CategoricalDistribution(range(len(numbers)))
    if kind == "randint":
        return IntDistribution(low, high - 1)
    if kind == "qrandint":
        return IntDistribution(low, high, step=numbers[2])
    if kind == "quniform":
        return FloatDistribution(low, high, step=numbers[2])
    if kind == "normal":  # Optuna has none: four deviations to each side.
        return FloatDistribution(low - 4 * high, low + 4 * high)
    return FloatDistribution(low, high, log=kind in ("loguniform", "qloguniform"))


class Search:
    def __init__(self, sampler, hello):
        self.make = lambda n: {"tpe": optuna.samplers.TPESampler, "cmaes": optuna.samplers.CmaEsSampler,
                               "random": optuna.samplers.RandomSampler}[sampler](seed=(hello["seed"] * 1_000_003 + n) % 2**32)
        self.domains = {path: next(iter(domain.items())) for path, domain in hello["parameters"].items()}
        self.distributions = {path: distribution(*domain) for path, domain in self.domains.items()}
        self.study = optuna.create_study(direction={"min": "minimize", "max": "maximize"}[hello["mode"]], sampler=self.make(0))
        self.trials = {}

    def values(self, trial):
        return {path: self.value(*self.domains[path], drawn) for path, drawn in trial.params.items()}

    @staticmethod
    def value(kind, numbers, drawn):
        if kind in ("grid", "choice"):
            return numbers[drawn]
        if kind == "qloguniform":
            return min(max(round(drawn / numbers[2]) * numbers[2], numbers[0]), numbers[1])
        return drawn

    def ask(self, number, given):
        self.study.sampler = self.make(number)
        trial = self.study.ask(self.distributions)
        if given is not None and self.values(trial) != given:  # Of another version of Optuna, or of this program.
            self.study.tell(trial, state=optuna.trial.TrialState.FAIL)
            drawn = {path: given[path] if kind not in ("grid", "choice") else numbers.index(given[path])
                     for path, (kind, numbers) in self.domains.items()}
            self.study.enqueue_trial(drawn)
            trial = self.study.ask(self.distributions)
        self.trials[number] = trial
        return self.values(trial)

    def report(self, number, iteration, value):
        if number in self.trials and value is not None:
            self.trials[number].report(value, iteration)

    def end(self, number, outcome, value):
        """What is said of a trial after its end is left out: Optuna takes nothing more of one that has finished."""
        trial = self.trials.pop(number, None)
        if trial is None:
            return
        states = {"completed": "COMPLETE", "stopped": "PRUNED"}
        state = optuna.trial.TrialState[states.get(outcome, "FAIL")]
        if value is None and state == optuna.trial.TrialState.COMPLETE:
            state = optuna.trial.TrialState.FAIL
        self.study.tell(trial, value if state == optuna.trial.TrialState.COMPLETE else None, state=state)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sampler", choices=("tpe", "cmaes", "random"), default="tpe")
    options = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    search = None
    for line in sys.stdin:
        message = json.loads(line)
        if message["type"] == "hello":
            search = Search(options.sampler, message)
        elif message["type"] == "next":
            given = message.get("given", {})
            for number in message["trials"]:
                values = search.ask(number, given.get(str(number)))
                if str(number) not in given:
                    print(json.dumps({"type": "trial", "trial": number, "parameters": values}), flush=True)
        elif message["type"] == "report":
            search.report(message["trial"], message["iteration"], message["value"])
        elif message["type"] == "end":
            search.end(message["trial"], message["outcome"], message["value"])
        elif message["type"] == "bye":
            return


if __name__ == "__main__":
    main()
