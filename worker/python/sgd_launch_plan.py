"""What ranks decide alike from what all have told: which copy in memory to go on from, and how often to make one.

Pure: no memory is read here and nothing is waited for. A commit's key is (generation, call of commit()).
"""
import collections
import math

_COST_MAX = 0.01  # Of the wall time, for copies to memory.

Choice = collections.namedtuple("Choice", "key call step world is_own interval")


def _whole(records):
    """Of one node: commits that all its ranks of that time hold, as {(key, step, world): {rank: local rank}}."""
    found, sizes = collections.defaultdict(dict), {}
    for local, rank, world, local_world, generation, call, step, interval in records:
        commit = (generation, call), step, world, interval
        found[commit][rank] = local
        sizes[commit] = local_world
    return {commit: ranks for commit, ranks in found.items() if sorted(ranks.values()) == list(range(sizes[commit]))}


def choose(nodes, world):
    """The newest commit that all ranks can have, or None. `nodes`: for each rank (its node, its local rank, the records that
    lie in its node's memory). At first one of which every rank has its own part; else one of which every node has a whole
    group's parts: then each rank takes the lowest one's there."""
    by_node = {node: _whole(records) for node, local, records in nodes if local == 0}
    own, shared = [], []
    for commit in set().union(*by_node.values()):
        key, step, size, interval = commit
        if not all(commit in held for held in by_node.values()):
            continue
        parts = [by_node.get(node, {}).get(commit, {}).get(rank) == local for rank, (node, local, _) in enumerate(nodes)]
        (own if size == world and all(parts) else shared).append(Choice(key, key[1], step, size, False, interval))
    if own:
        return max(own)._replace(is_own=True)
    return max(shared, default=None)


class Plan:
    """Every how many calls of commit() a copy is made: a number on which all ranks agree, so that they copy in the same calls.

    After some copies (the first three, then each whose number is a power of two) every rank tells, one call later, the
    interval that keeps its own cost under 1 %; another call later all take the largest. `tell(call, interval)` must not
    wait; `hear(call)` waits for all ranks' intervals."""

    def __init__(self, tell, hear):
        self.tell, self.hear = tell, hear
        self.interval, self.last, self.asked = None, None, None
        self.copies = 0
        self.cost_s = self.calls_s = 0.0  # Of copies, and of the time between them, since the plan before.
        self.costs = self.calls = 0
        self.returned_at = None

    def go_on(self, call, interval):
        """The state is that of `call`, copied then; the interval was agreed before."""
        self.last, self.interval = call, interval or 1

    def is_due(self, call, now):
        """Told of every call, on all ranks alike."""
        if self.returned_at is not None:
            self.calls_s += now - self.returned_at
            self.calls += 1
        if self.asked is not None and call == self.asked + 1:
            self.tell(self.asked, self.wanted())
        elif self.asked is not None and call >= self.asked + 2:
            self.interval = max(1, *self.hear(self.asked))
            self.asked, self.cost_s, self.costs, self.calls_s, self.calls = None, 0.0, 0, 0.0, 0
        return self.last is None or (self.interval is not None and self.asked is None and call >= self.last + self.interval)

    def wanted(self):
        step_s = self.calls_s / max(1, self.calls)
        return min(1 << 30, max(1, math.ceil(self.cost_s / max(1, self.costs) / _COST_MAX / max(step_s, 1e-7))))

    def copied(self, call, cost_s):
        self.last, self.cost_s, self.costs, self.copies = call, self.cost_s + cost_s, self.costs + 1, self.copies + 1
        if self.asked is None and (self.copies <= 3 or self.copies & (self.copies - 1) == 0):
            self.asked = call

    def returned(self, now):
        self.returned_at = now
