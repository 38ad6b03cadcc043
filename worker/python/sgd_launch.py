"""Memory checkpoints, agreed stops and metrics for Python ranks of sgd-launch. README.md beside this file shows them.

    state = sgd_launch.State(model=model, optimizer=optimizer, step=0)
    state.restore()                        # "memory", "disk" or "fresh"
    ...; state.step += 1                   # in each step, on every rank
    report(loss=loss); state.commit()      # in this order: a step that is done again is reported again

Standard library only; torch and numpy are used where the caller has imported them. Importing starts nothing: the link to
the agent is made at the first call, once a process. Without the launcher nothing happens.
"""
import atexit
import collections
import math
import operator
import os
import random
import sys
import time

from sgd_launch_link import link as _link, warn as _warn
from sgd_launch_memory import Memory as _Memory
from sgd_launch_plan import Plan as _Plan, choose as _choose
from sgd_launch_saver import FILE as _FILE, Saver as _Saver, rank_file as _rank_file
from sgd_launch_values import Packed as _Packed, as_before as _as_before, read_file as _read_file, sync as _sync
from sgd_launch_values import verify as _verify, write_file as _write_file

__all__ = ["State", "report", "should_stop", "watch"]


def _rank():
    link = _link()
    return link.rank if link else int(os.environ.get("RANK") or 0)


def watch(on=True):
    """Lets the launcher judge this rank by its job's "heartbeat": silent for `timeout`, or at one step for `stall_timeout`,
    counts as failed. Off at first: a call into C that keeps the interpreter's lock silences every thread."""
    link = _link()
    if link:
        link.set_watched(bool(on))


def should_stop():
    """Whether the run is to stop, with the same answer in the same call on every rank. Call it once a step, after commit().
    The call that says so has saved the state that was made first in this process, to memory and to disk."""
    link = _link()
    if link is None:
        return False
    with link.changed:
        link.calls += 1
        if link.stop_before is None or link.calls < link.stop_before:
            if link.calls == 1:
                link._keep({"type": "stoppable"})
            return False
    try:
        left = max(1.0, (link.stop_by - time.monotonic()) / 2)
        last = max(link.take("stop", lambda: "the other ranks to agree on the step to stop at", left))
    except (TimeoutError, ConnectionError) as error:
        _warn(f"rank {link.rank} stops alone: {error}")
        return True
    if link.calls < last:
        return False
    if link.calls == last and State._first is not None:
        State._first._save_and_wait(max(1.0, link.stop_by - time.monotonic() - 1.0))
    return True


def _whole(value, name, bits):
    """A step or an epoch, of any kind of integer, as the agent holds it."""
    try:
        number = operator.index(value)
    except TypeError:
        number = int(value)
    if not -1 << bits - 1 <= number < 1 << bits - 1:
        raise ValueError(f"sgd_launch: {name} is out of range: give a number below 2**{bits - 1}")
    return number


def _text(value, name):
    """As UTF-8: a file's name may have bytes that are none, and an agent takes no line with them."""
    if not isinstance(value, str):
        raise TypeError(f"sgd_launch: report({name}=...): a {type(value).__name__} is no text: give a str")
    return value.encode("utf-8", "backslashreplace").decode()


def _number(value, name):
    """As the agent reads it: NaN is null, which a mean leaves out; what is infinite, or more than a double holds, is text."""
    if isinstance(value, str):
        return _text(value, name)
    if not isinstance(value, (bool, int, float, type(None))):
        raise TypeError(f"sgd_launch: report({name}=...): a {type(value).__name__} is no number, text, list or dict of them")
    if value is None or value != value:
        return None
    try:
        is_finite = math.isfinite(value)
    except OverflowError:
        is_finite = False
    return value if is_finite else "Infinity" if value > 0 else "-Infinity"


_DEEPEST = 16  # Of lists and dicts in a report.


def _value(value, name, depth=0):
    """A number or a text, or lists and dicts of them: of these the line has rank 0's. Arrays and tensors are lists."""
    if not isinstance(value, (bool, int, float, str, type(None), list, tuple, dict)) and hasattr(value, "item"):
        try:
            value = value.item()
        except (ValueError, RuntimeError):  # It has not one element.
            value = value.tolist()
    if depth == _DEEPEST and isinstance(value, (list, tuple, dict)):
        raise ValueError(f"sgd_launch: report({name}=...): nested more than {_DEEPEST} deep")
    if isinstance(value, (list, tuple)):
        return [_value(one, name, depth + 1) for one in value]
    if isinstance(value, dict):
        return {_text(key if isinstance(key, str) else str(key), name): _value(one, name, depth + 1) for key, one in value.items()}
    number = _number(value, name)
    return number if depth == 0 or isinstance(value, str) or not isinstance(number, str) else None  # No mean is made of it.


_reported = [None, 0]  # The last report's place, and how many there were at that place.


def report(phase="train", *, step=None, epoch=None, **metrics):
    """One line of metrics.jsonl once every rank has reported it: means over ranks, num_samples summed. The line's place is
    (epoch, phase, step); they default to the first State's values. A place that is not behind the last line's counts as
    done again after a restart, and is left out. So report a step before its commit(): a rank that is killed in between
    reports it again, and one that goes on from the commit does not. report("validate", epoch=E, ...) without `step` ends
    epoch E."""
    link = _link()
    if link is None:
        return
    values = State._first._values if State._first is not None else {}
    now = values.get("step", State._first._calls if State._first is not None else 0)
    batch = step if step is not None else 0 if epoch is not None and phase == "validate" else now
    place = (_whole(values.get("epoch", 1) if epoch is None else epoch, "epoch", 32), _text(phase, "phase"), _whole(batch, "step", 64))
    at = _whole(now if step is None else step, "step", 64)
    line = {_text(name, name): _value(value, name) for name, value in metrics.items()}
    _reported[:] = [place, _reported[1] + 1 if _reported[0] == place else 0]
    if "loss" in line and isinstance(line["loss"], (int, float)):
        link.beat["loss"] = float(line["loss"])
    if State._first is not None:
        State._first._tell_first_step(link)
    link.put({"type": "report", "key": {"epoch": place[0], "phase": place[1], "batch": place[2], "sequence": _reported[1]},
              "step": at, "metrics": line})


# ---- The state ----

_RNG = "(rng)"  # No name that a caller can give.
_EVERY_S = 60.0  # Checkpoints on disk for a job of "epoch" and a state without one.


def _random_states():
    """Of Python, numpy and torch, as far as they are used."""
    version, words, gauss = random.getstate()
    states = {"python": [version, b"".join(word.to_bytes(4, "little") for word in words), gauss]}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        states["numpy"] = numpy.random.get_state()
    if torch is not None:
        states["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            states["cuda"] = [one.cpu() for one in torch.cuda.get_rng_state_all()]
            states["cuda_own"] = torch.cuda.get_rng_state().cpu()
    return states


def _set_random_states(states):
    version, words, gauss = states["python"]
    random.setstate((version, tuple(int.from_bytes(words[at:at + 4], "little") for at in range(0, len(words), 4)), gauss))
    if "numpy" in states:
        __import__("numpy").random.set_state(states["numpy"])
    if "torch" in states:
        torch = __import__("torch")
        torch.set_rng_state(states["torch"])
        if "cuda" in states and torch.cuda.is_available():
            torch.cuda.set_rng_state_all(states["cuda"][:torch.cuda.device_count()])
            if "cuda_own" in states:  # The rank may have another of the devices than before.
                torch.cuda.set_rng_state(states["cuda_own"])


def _is_object(value):
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


class State:
    """What a training script goes on from: objects with state_dict() and load_state_dict(), and plain values, which are
    attributes (`state.step += 1`). `step` and `epoch`, where given, are what status shows. `per_rank`: names of values that
    differ between ranks; all others count as equal. `rng`: the random states of Python, numpy and torch, each rank's own."""

    _first = None

    def __init__(self, *, per_rank=(), rng=True, **values):
        for name in values:
            if hasattr(State, name) or name.startswith("_"):
                raise ValueError(f"sgd_launch: State({name}=...): the name is taken; give another one")
        unknown = set(per_rank) - set(values)
        if unknown:
            raise ValueError(f"sgd_launch: per_rank names {sorted(unknown)[0]!r}, which is no value of this state")
        self.__dict__.update(_values=values, _per_rank={*per_rank, *([_RNG] if rng else [])}, _calls=0, _memory=None,
                             _plan=None, _saver=None, _ready=None, _spent_s=0.0, _since=None, _saved=None, _last=None, _is_behind=False)
        self._last = self._place()  # Of a script that never calls restore().
        if State._first is None or State._first._plan is None:
            State._first = self

    def __getattr__(self, name):
        try:
            return self.__dict__["_values"][name]
        except KeyError:
            raise AttributeError(f"sgd_launch: the state has no value {name!r}") from None

    def __setattr__(self, name, value):
        if name in self._values:
            self._values[name] = value
        elif name in self.__dict__:
            self.__dict__[name] = value
        else:
            raise AttributeError(f"sgd_launch: the state has no value {name!r}; give it to State(...) first")

    @property
    def commit_cost(self):
        """The part of the wall time, since the first commit, that copies to memory have taken."""
        return self._spent_s / max(1e-9, time.perf_counter() - self._since) if self._since else 0.0

    # What is kept, and back ------------------------------------------------------------------

    def _place(self):
        return self._counted("step", self._calls, 64), self._counted("epoch", 0, 32)

    def _counted(self, name, otherwise, bits):
        """Of a value of the script's that may be anything."""
        try:
            number = operator.index(self._values.get(name))
        except TypeError:
            return otherwise
        return _whole(number, name, bits)

    def _packed(self, world, rank):
        values = {name: value.state_dict() if _is_object(value) else value for name, value in self._values.items()}
        if _RNG in self._per_rank:
            values[_RNG] = _random_states()
        step, epoch = self._place()
        return _Packed(values, {"call": self._calls, "step": step, "epoch": epoch, "world": world, "rank": rank})

    def _apply(self, shared, own):
        """Takes what is each rank's own from `own`, where there is one, the rest from `shared`."""
        missing = set(self._values) - set(shared.values)
        if missing:
            raise ValueError(f"sgd_launch: the copy has no value {sorted(missing)[0]!r}; it has {', '.join(shared.values)}")
        for name in [*self._values, *([_RNG] if _RNG in self._per_rank and _RNG in shared.values else [])]:
            source = own if name in self._per_rank else shared
            if source is None and name != _RNG:
                raise ValueError(f"sgd_launch: {name} is each rank's own, and of rank {_rank()} there is none: start with as many "
                                 "workers as before, or leave it out of per_rank")
            if source is None:
                continue  # A rank that was not there draws as its script has seeded it.
            value = source.unpack(source.values[name])
            if name == _RNG:
                _set_random_states(value)
            elif _is_object(self._values[name]):
                if isinstance(value, collections.OrderedDict) and hasattr(kept := self._values[name].state_dict(), "_metadata"):
                    value._metadata = kept._metadata
                self._values[name].load_state_dict(value)
            else:
                self._values[name] = _as_before(value, self._values[name])
        self._calls = shared.info["call"]

    # Restoring -------------------------------------------------------------------------------

    def restore(self, folder=None):
        """Takes the newest state that all ranks can have: "memory", "disk" or "fresh". Call it once, on every rank. `folder`:
        what save() has made, for a run that has nothing newer."""
        began, link = time.monotonic(), _link()
        if link is None:
            found = folder is not None and os.path.exists(os.path.join(folder, _FILE))
            if found:
                self._apply_folder(folder, _rank())
            return "disk" if found else "fresh"
        self._connect(link)
        self._last = self._place()  # What is behind it is new to the disk, also in the first commit.
        source, path = self._restore(link)
        if source == "fresh" and folder is not None and os.path.exists(os.path.join(folder, _FILE)):
            self._apply_folder(folder, link.rank)
            source, path = "disk", os.path.abspath(folder)
        step, epoch = self._place()
        live = self._memory.live.value if self._memory else 0
        link.beat.update(step=step, epoch=epoch, phase="train")
        link.put({"type": "ready", "step": step, "epoch": epoch, "source": source, "path": path,
                  "restore_s": time.monotonic() - began, "redone": max(0, live - self._calls) if source == "memory" else -1})
        self._ready = False  # Until the first step is told.
        return source

    def _connect(self, link):
        if self._plan is not None:
            return
        if State._first is not self:
            raise RuntimeError("sgd_launch: this process has a State already, and a rank's memory is one State's: put all values in it")
        about = link.assignment
        if link.memory_fd is not None:
            self._memory = _Memory(link.memory_fd, about["local_rank"], about["local_world_size"])
        if link.world == 1:
            mine = {}
            self._plan = _Plan(mine.__setitem__, lambda call: [mine[call]])
        else:
            self._plan = _Plan(lambda call, interval: link.give(f"interval/{call}", interval),
                               lambda call: link.take(f"interval/{call}", lambda: self._behind(f"call {call + 1} of commit()")))
        if link.rank == 0 and self._memory:
            self._saver = _Saver(link, self._memory, self._per_rank)
            atexit.register(self._saver.end)

    def _behind(self, what):
        """Whom this rank waits for, in words."""
        behind = [local for local in range(self._memory.local_world if self._memory else 0)
                  if self._memory.live_of(local) < self._calls]
        if behind:
            return f"local rank {behind[0]}, which has called commit() {self._memory.live_of(behind[0])} times, to reach {what}"
        return f"all {_link().world} ranks to reach {what}; `sgd-launch status` names those that have not"

    def _restore(self, link):
        about = link.assignment
        has_memory = self._memory is not None and about["config"].get("checkpoint", {}).get("memory", True)
        records = self._memory.records() if has_memory and about["local_rank"] == 0 else []
        paths = about.get("resume_from") or []
        link.give("copies", [about["node_rank"], about["local_rank"], records])
        told = link.take("copies", lambda: self._behind("restore()"))
        choice = _choose(told, link.world)
        if choice is None and any(records for _, _, records in told) and link.rank == 0:
            _warn("the copies in memory are not used: no commit is there of all ranks")
        newest = _name_of(paths[0], about["run_dir"]) if paths else (0, 0)
        if choice is not None and (choice.key[0], choice.step) >= newest:
            self._apply_memory(link, choice)
            return "memory", ""
        if link.rank == 0:
            link.give("disk", self._whole_checkpoint(link, paths))
        else:
            link.give("disk", "")
        path = link.take("disk", lambda: "rank 0 to read the checkpoints on disk")[0]
        if not path:
            return "fresh", ""
        self._fetch(link, path)
        self._apply_folder(path, link.rank)
        return "disk", path

    def _apply_memory(self, link, choice):
        memory = self._memory
        held = {header.rank: local for local in range(4096) if local < choice.world
                for _, header in [memory.headers(local).get(choice.key, (0, None))] if header}
        own = memory.read(held[link.rank], choice.key) if link.rank in held else None
        shared = own if choice.is_own else memory.read(held[min(held)], choice.key)
        self._apply(shared, own)
        memory.restored, memory.former = choice.key, memory.common()
        self._last = self._place()
        self._plan.go_on(choice.call, choice.interval)

    def _apply_folder(self, folder, rank):
        shared = _read_file(os.path.join(folder, _FILE))
        self._apply(shared, self._own_beside(shared, os.path.join(folder, _rank_file(rank))))
        self._last = self._place()

    def _own_beside(self, shared, path):
        """A save() that was cut off, or one of fewer ranks, leaves files of the one before, which would be mixed."""
        own = _read_file(path) if os.path.exists(path) else None
        if own is None or all(own.info[name] == shared.info[name] for name in {"call", "step", "epoch", "world"} - self._per_rank):
            return own
        _warn(f"{path} is left out: it is of another save() (step {own.info['step']}, {own.info['world']} ranks) than {_FILE} beside it "
              f"(step {shared.info['step']}, {shared.info['world']} ranks)")
        return None

    def _fetch(self, link, path):
        if not os.path.isdir(path):
            reason = link.fetch(path)
            if reason:
                raise OSError(f"sgd_launch: checkpoint {path} cannot be brought here: {reason}")

    def _whole_checkpoint(self, link, paths):
        """The newest whole one; those that are damaged are told."""
        for path in paths:
            try:
                self._fetch(link, path)
                _verify(path)
                return path
            except (OSError, ValueError, KeyError) as error:
                link.put({"type": "checkpoint_rejected", "path": path, "reason": str(error)})
        return ""

    # Keeping ---------------------------------------------------------------------------------

    def commit(self, force=False):
        """After a step, on every rank: copies the state to memory in some calls, so that it takes less than 1 % of the time;
        the first call always does, `force` does in this one (then on every rank). Whether it has."""
        link = _link()
        if link is None:
            return False
        now = time.perf_counter()
        self._connect(link)
        self._calls += 1
        self._tell_first_step(link)
        step, epoch = self._place()
        link.beat.update(step=step, epoch=epoch, phase="train")
        if self._memory is None:
            return False
        self._memory.live.value = self._calls
        due = self._plan.is_due(self._calls, now) and link.assignment["config"].get("checkpoint", {}).get("memory", True)
        save = self._is_save_due(link, step, epoch)
        if due or save or force:
            self._copy(link, save, save or force)
        self._plan.returned(time.perf_counter())
        return due or save or force

    def _tell_first_step(self, link):
        if self._ready is False:
            self._ready = True
            link.put({"type": "first_step", "step": self._place()[0]})

    def _is_save_due(self, link, step, epoch):
        """Whether all ranks copy in this call, because rank 0 is to write it to disk."""
        every = link.assignment["config"].get("checkpoint", {}).get("every", "epoch")
        before, self._last = self._last, (step, epoch)
        if isinstance(every, dict) and "steps" in every:
            return step // every["steps"] > before[0] // every["steps"]
        return every == "epoch" and "epoch" in self._values and epoch > before[1]

    def _copy(self, link, save, is_asked_for):
        """What is asked for in this call is so on all ranks: its copy is the newest that they can all come to."""
        began = time.perf_counter()
        self._since = self._since or began
        memory, key = self._memory, (link.assignment["generation"], self._calls)
        slot = memory.free_slot() if is_asked_for or not memory.is_one_awaited(key) else None
        try:
            if slot is not None:
                link.hand_over()  # What goes on from this copy reports no step before it.
                memory.write(slot, self._packed(link.world, link.rank), key[0], self._plan.interval or 1)
                save = save or self._is_time(link)
                if save and self._saver is not None:
                    self._saved = time.monotonic()
                    self._saver.save(key, time.perf_counter() - began)
            elif save and self._saver is not None and not self._is_behind:
                self._is_behind = True
                _warn(f"the checkpoint of step {self._place()[0]} is left out: the one before is still being written")
        except OSError as error:
            _warn(f"rank {link.rank}: no copy in memory of call {self._calls}: {error}")
        cost = time.perf_counter() - began
        self._spent_s += cost
        self._plan.copied(self._calls, cost)

    def _is_time(self, link):
        every = link.assignment["config"].get("checkpoint", {}).get("every", "epoch")
        if self._saved is None:
            self._saved = time.monotonic()
        if every == "epoch" and "epoch" not in self._values:
            return time.monotonic() - self._saved >= _EVERY_S
        return isinstance(every, dict) and "seconds" in every and time.monotonic() - self._saved >= every["seconds"]

    def _save_and_wait(self, deadline_s):
        """To memory and, by rank 0, to disk: the ranks are about to stop."""
        link = _link()
        if link is None or self._memory is None or self._calls == 0:
            return
        if self._saver is not None:
            self._saver.wait(deadline_s)
        self._copy(link, True, True)
        if self._saver is not None and not self._saver.wait(deadline_s):
            _warn(f"the checkpoint of step {self._place()[0]} is not on disk after {deadline_s:.0f} s")

    def save(self, folder):
        """Writes safetensors to `folder`: rank 0 the whole state, other ranks what is each rank's own. Each file is there whole
        or as it was before; restore(folder) reads them, where nothing newer is there."""
        os.makedirs(folder, exist_ok=True)
        rank, link = _rank(), _link()
        packed = self._packed(link.world if link else int(os.environ.get("WORLD_SIZE") or 1), rank)
        _write_file(os.path.join(folder, _rank_file(rank)), packed, None if rank == 0 else self._per_rank)
        _sync(folder)


def _name_of(path, run_dir):
    """(generation, step) of a checkpoint of this run; of another run's, generation 0."""
    name = os.path.basename(path).split("-")
    if len(name) < 4 or not (name[1].isdigit() and name[3].isdigit()):
        return 0, 0
    step, generation = name[1], name[3]
    is_own = os.path.dirname(os.path.dirname(os.path.abspath(path))) == os.path.abspath(run_dir)
    return int(generation) if is_own else 0, int(step)
