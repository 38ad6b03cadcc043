"""Schedulers of ray[tune] and optuna behind one interface: play(event, ours) says what they decide, in the words of ours.

Where launcher/tune/README.md lists a difference, `amendments` holds its name and the class here makes that one answer ours;
everything else is theirs. `ours` is looked at only for what chance decides (a donor, a factor), which is handed to the other side's
generator; that it is one of the possible ones is checked there.
"""

import logging
import math
import types
import warnings

import numpy
import optuna
from ray.tune.schedulers import async_hyperband, pbt

warnings.simplefilter("ignore", RuntimeWarning)  # Of what is no number, on purpose.
logging.disable(logging.WARNING)
optuna.logging.disable_default_handler()

PARAMETERS = {"batch": {"qrandint": [16, 256, 16]}, "kind": {"choice": ["a", "b", "c"]}, "lr": {"loguniform": [0.001, 1.0]},
              "width": {"randint": [1, 10]}}
# What a stream may have beyond ordinary reports.
ODDITIES = {"asha": ("not_a_number", "infinite", "skipped", "repeated"), "median": ("not_a_number", "infinite", "skipped", "repeated"),
            "pbt": ("not_a_number", "infinite", "skipped", "repeated")}
# Differences that no oddity of a stream brings out.
ALWAYS = {"asha": set(), "median": set(), "pbt": {"checkpoints", "domains", "turns"}}


def rules(name, rng):
    if name == "asha":
        first, factor, last = rng.randint(1, 3), rng.randint(2, 5), rng.choice([8, 9, 16, 27, 40, 81])
        count, at = 0, first
        while at <= last:
            count, at = count + 1, at * factor
        return {"type": "asha", "max_epochs": last, "grace_epochs": first, "reduction_factor": factor, "brackets": rng.randint(1, min(3, count))}
    if name == "median":
        return {"type": "median", "startup_trials": rng.randint(0, 3), "warmup_epochs": rng.randint(0, 4), "interval_epochs": rng.randint(1, 3),
                "least_trials": rng.randint(1, 3)}
    return {"type": "pbt", "interval_epochs": rng.randint(1, 3), "burn_in_epochs": rng.choice([0, 0, 2]), "quantile": rng.choice([0.1, 0.25, 0.5]),
            "factors": rng.choice([[0.8, 1.2], [0.5, 2.0], [0.9, 1.0, 30.0]])}


def summary(decision):
    """What of our decision is compared."""
    text = f"{decision['trial']} {decision['action']}"
    if decision["action"] == "exploit":
        text += f" {decision['donor']}@{decision['donor_iteration']} {sorted(decision['values'].items())}"
    return text + (" waits" if decision.get("waits") else "")


class Peer:
    """What is the same for all: which trials run, and how far they are."""

    def __init__(self, stream, amendments):
        self.amendments = amendments
        self.running = set(range(stream.trials))
        self.epoch = dict.fromkeys(range(stream.trials), 0)

    def play(self, event, ours):
        if event[0] == "next":
            return self.next()
        trial = event[1]
        if trial not in self.running:
            return []
        if event[0] == "end":
            self.running.discard(trial)
            self.end(trial, event[2])
            return []
        epoch = self.epoch[trial] + event[2]
        value = math.nan if event[3] is None else event[3]
        if epoch <= self.epoch[trial] and "repeated" in self.amendments:
            return [f"{trial} continue"]
        self.epoch[trial] = max(epoch, self.epoch[trial])
        if math.isinf(value) and "infinite" in self.amendments:
            value = math.nan
        action = self.report(trial, epoch, value, event[4], ours)
        if action in ("stop", "pause") or action.endswith(" waits"):
            self.running.discard(trial)
        return [f"{trial} {action}"]


class AmendedBracket(async_hyperband._Bracket):
    amendments = frozenset()

    def on_result(self, trial, cur_iter, cur_rew):
        passed = next((recorded for milestone, recorded in self._rungs if cur_iter >= milestone), None)
        if "skipped" in self.amendments and (passed is None or trial.trial_id in passed):
            return "CONTINUE"  # A lower rung that was passed is never compared at.
        if {"not_a_number", "infinite"} & self.amendments and not math.isfinite(cur_rew):
            return "CONTINUE" if passed is None or trial.trial_id in passed else "STOP"
        return super().on_result(trial, cur_iter, cur_rew)


class Asha(Peer):
    def __init__(self, stream, answer, amendments):
        super().__init__(stream, amendments)
        given = stream.tune["scheduler"]
        self.theirs = async_hyperband.AsyncHyperBandScheduler(
            time_attr="epoch", metric="score", mode=stream.mode, max_t=given["max_epochs"], grace_period=given["grace_epochs"],
            reduction_factor=given["reduction_factor"], brackets=given["brackets"])
        for bracket in self.theirs._brackets:
            bracket.__class__ = AmendedBracket
            bracket.amendments = amendments
        self.trials = [types.SimpleNamespace(trial_id=number) for number in range(stream.trials)]
        self.last = {}
        chosen = {trial: bracket for trial, bracket, _ in answer["runners"]}
        for trial in self.trials:
            # Which bracket is chance: ours. The weights are compared in the unit test.
            self.theirs._trial_info[trial.trial_id] = self.theirs._brackets[chosen[trial.trial_id]]

    def report(self, trial, epoch, value, _others_wait, _ours):
        result = {"epoch": epoch, "score": value}
        self.last[trial] = result
        action = self.theirs.on_trial_result(None, self.trials[trial], result)
        if action == "STOP":
            self.theirs.on_trial_complete(None, self.trials[trial], result)  # As its controller does.
        return action.lower()

    def end(self, trial, outcome):
        if outcome == "completed" and trial in self.last:
            self.theirs.on_trial_complete(None, self.trials[trial], self.last[trial])


class Median(Peer):
    def __init__(self, stream, _answer, amendments):
        super().__init__(stream, amendments)
        given = stream.tune["scheduler"]
        self.theirs = optuna.pruners.MedianPruner(given["startup_trials"], given["warmup_epochs"], given["interval_epochs"],
                                                  n_min_trials=given["least_trials"])
        direction = optuna.study.StudyDirection.MINIMIZE if stream.mode == "min" else optuna.study.StudyDirection.MAXIMIZE
        self.values = [{} for _ in range(stream.trials)]
        self.complete = []
        self.study = types.SimpleNamespace(direction=direction, get_trials=lambda deepcopy, states: self.complete)

    def _trial(self, trial):
        values = self.values[trial]
        return types.SimpleNamespace(intermediate_values=values, last_step=max(values, default=None))

    def report(self, trial, epoch, value, _others_wait, _ours):
        if epoch < 0:  # Optuna's steps begin at 0.
            return "continue"
        self.values[trial].setdefault(epoch, value)  # A step that was reported before is ignored.
        return "stop" if self.theirs.prune(self.study, self._trial(trial)) else "continue"

    def end(self, trial, outcome):
        if outcome == "completed":
            self.complete.append(self._trial(trial))


class Given:
    """In place of Python's generator: what ours drew."""

    def __init__(self, peer):
        self.peer = peer
        self.key = None

    def random(self):  # One for each parameter, in their order.
        self.key = next(self.peer.keys)
        self.drawn = "drawn anew" in self.peer.changes[self.key]
        return 0.0 if self.drawn else 1.0

    def choice(self, options):
        if options and isinstance(options[0], FakeTrial):
            return next(trial for trial in options if trial.trial_id == self.peer.donor)
        if options == [-1, 1]:
            return -1 if self.peer.changes[self.key].endswith("left") else 1
        wanted = self.peer.drawn_value(self.key) if self.drawn else float(self.peer.changes[self.key].rsplit(" ", 1)[1])
        return next(option for option in options if option == wanted)


class FakeTrial:
    def __init__(self, number, config):
        self.trial_id, self.config, self.status = number, dict(config), "RUNNING"
        checkpoints = types.SimpleNamespace(checkpoint_config=types.SimpleNamespace(num_to_keep=None), _latest_checkpoint_result=None)
        self.run_metadata = types.SimpleNamespace(checkpoint_manager=checkpoints)
        self.experiment_tag = str(number)
        self.last_result = {}

    def is_finished(self):
        return self.status in ("TERMINATED", "ERROR")

    def set_experiment_tag(self, tag):
        self.experiment_tag = tag

    def set_config(self, config):
        self.config = config


class AmendedPbt(pbt.PopulationBasedTraining):
    amendments = frozenset()
    reporter = None

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.turns = {}  # Of those that were ranked: the larger, the later.

    def _quantiles(self):
        lower, upper = super()._quantiles()
        if not {"not_a_number", "infinite"} & self.amendments or math.isfinite(self._trial_state[self.reporter].last_score):
            return lower, upper
        ranked = sorted((t for t, s in self._trial_state.items() if s.last_score is not None and math.isfinite(s.last_score) and not t.is_finished()),
                        key=lambda t: self._trial_state[t].last_score)
        part = min(math.ceil(len(ranked) * self._quantile_fraction), max(len(ranked) // 2, min(len(ranked), 1)))
        return ([self.reporter], ranked[len(ranked) - part:]) if part else ([], [])

    def choose_trial_to_run(self, controller):
        if "turns" not in self.amendments:
            return super().choose_trial_to_run(controller)
        waiting = [trial for trial in controller.get_trials() if trial.status in ("PENDING", "PAUSED")]
        return min(waiting, key=lambda trial: (self._trial_state[trial].last_train_time, self.turns.get(trial, 0)), default=None)

    def _checkpoint_or_exploit(self, trial, controller, upper, lower):
        self.turns[trial] = 1 + max(self.turns.values(), default=0)
        if "checkpoints" in self.amendments:  # Every trial has one, not only those that were best when they were looked at last.
            for one in upper:
                self._trial_state[one].last_checkpoint = self._trial_state[one].last_checkpoint or "a checkpoint"
        super()._checkpoint_or_exploit(trial, controller, upper, lower)


class Pbt(Peer):
    def __init__(self, stream, answer, amendments):
        super().__init__(stream, amendments)
        given = stream.tune["scheduler"]
        self.keys, self.changes, self.donor, self.drawn = iter(()), {}, None, {}
        mutations = {name: (list(domain["choice"]) if "choice" in domain else lambda name=name: self.drawn_value(name))
                     for name, domain in sorted(PARAMETERS.items())}
        self.theirs = AmendedPbt(time_attr="epoch", metric="score", mode=stream.mode, perturbation_interval=given["interval_epochs"],
                                 burn_in_period=given["burn_in_epochs"], hyperparam_mutations=mutations, quantile_fraction=given["quantile"],
                                 perturbation_factors=tuple(given["factors"]), log_config=False)
        self.theirs.amendments = amendments
        self.trials = [FakeTrial(number, answer["values"][number]) for number in range(stream.trials)]
        self.waiting = []
        self.search_alg = None
        for trial in self.trials:
            self.theirs.on_trial_add(self, trial)

    # What the scheduler wants of its controller.
    def get_trials(self):
        return self.trials + self.waiting

    def _schedule_trial_save(self, trial, result):
        return "a checkpoint"

    def pause_trial(self, trial, should_checkpoint):
        trial.status = "PAUSED"

    def drawn_value(self, name):
        return self.drawn[name]

    def report(self, trial, epoch, value, others_wait, ours):
        one = self.trials[trial]
        self.theirs.reporter = one
        decision = ours[0] if ours else {}
        self.donor = decision.get("donor")
        self.changes = {change.split(" ", 1)[0]: change for change in decision.get("changes", [])}
        self.drawn = decision.get("values") or {}
        self.keys = iter(sorted(PARAMETERS))
        self.waiting = [types.SimpleNamespace(status="PENDING")] if others_wait else []
        others_pause = others_wait or any(other.status == "PAUSED" for other in self.trials)
        before, copies = pbt.random, self.theirs._num_perturbations
        pbt.random = Given(self)
        try:
            action = self.theirs.on_trial_result(self, one, {"epoch": epoch, "score": value})
        except (StopIteration, KeyError):
            return "cannot choose as ours"
        finally:
            pbt.random = before
        if self.theirs._num_perturbations > copies:
            return self._copied(one, decision, others_pause)
        if action == "PAUSE":
            one.status = "PAUSED"
        return action.lower() + (" waits" if action == "PAUSE" else "")

    def _copied(self, one, decision, others_pause):
        state = self.theirs._trial_state[one]
        self.epoch[one.trial_id] = state.last_train_time
        one.status = "PAUSED" if others_pause else "RUNNING"
        if "domains" in self.amendments:
            one.config = {name: in_domain(PARAMETERS[name], value) for name, value in one.config.items()}
        return (f"exploit {self.donor}@{state.last_train_time} {sorted(one.config.items())}" + (" waits" if others_pause else ""))

    def next(self):
        self.waiting = []
        one = self.theirs.choose_trial_to_run(self)
        if one is None:
            return []
        one.status = "RUNNING"
        self.running.add(one.trial_id)
        return [f"{one.trial_id} resume"]

    def end(self, trial, outcome):
        self.trials[trial].status = "TERMINATED" if outcome == "completed" else "ERROR"


def in_domain(domain, value):
    """The nearest value of the domain."""
    (kind, numbers), = domain.items()
    if kind == "choice":
        return value
    low, high = numbers[0], numbers[1]
    if kind == "qrandint":
        # Halves away from zero, as C rounds.
        multiple = math.floor(value / numbers[2] + 0.5)
        return min(max(multiple * numbers[2], low), high)
    return min(max(value, low), high - 1 if kind == "randint" else high)


PEERS = {"asha": Asha, "median": Median, "pbt": Pbt}
assert numpy.nanpercentile([1.0, 2.0], 50) == 1.5
