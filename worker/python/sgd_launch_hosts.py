"""A group of torch.distributed that spans hosts with several ranks each: shared memory inside a host, Gloo between the
hosts' first ranks. Part of the backend "sgd" (sgd_launch_ddp.py), which makes one where the ranks of a group are so placed.

    all_reduce:  the host's tensors into its first rank's -> those of the hosts among each other -> back to the host

A failure goes all ways: a rank that finds one aborts its host's group, and a first rank its connections to other hosts,
so that nobody waits for a rank that is gone. What it was is left in the store, for the others to say.
"""
import datetime
import functools
import re
import time

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import sgd_launch_collective as collective
from sgd_launch_collective import CollectiveError
from sgd_launch_ddp import SgdBackend
from sgd_launch_engine import Work, milliseconds

TOLD = "the group has failed: "
REASON_WAIT_S = 0.25  # For the word of who has found the failure at first.

# What Gloo reduces as we do. Others are gathered by the first ranks, and reduced in the order of the hosts.
OF_GLOO = {torch.float32: (collective.SUM, collective.PRODUCT), torch.float64: (collective.SUM, collective.PRODUCT),
           **{one: (collective.SUM, collective.PRODUCT, collective.MIN, collective.MAX)
              for one in (torch.int8, torch.uint8, torch.int32, torch.int64)}}
GLOO_CODES = {collective.SUM: dist.ReduceOp.SUM, collective.PRODUCT: dist.ReduceOp.PRODUCT, collective.MIN: dist.ReduceOp.MIN,
              collective.MAX: dist.ReduceOp.MAX}
COMBINE = {collective.SUM: torch.add, collective.PRODUCT: torch.mul, collective.MIN: torch.minimum, collective.MAX: torch.maximum,
           collective.BIT_AND: torch.bitwise_and, collective.BIT_OR: torch.bitwise_or, collective.BIT_XOR: torch.bitwise_xor}
GATHER_BYTES_MAX = 1 << 20  # More of a type that Gloo has not is gathered in pieces of so many.


class Placement:
    """Which rank of a group is where. `hosts`: the ranks of each host in ascending order, the host of rank 0 first."""

    def __init__(self, hosts, rank):
        self.hosts, self.rank = hosts, rank
        self.host = next(at for at, ranks in enumerate(hosts) if rank in ranks)
        self.local = hosts[self.host].index(rank)
        self.is_first = self.local == 0

    def host_of(self, rank):
        return next(at for at, ranks in enumerate(self.hosts) if rank in ranks)


class Hosts:
    """This rank's end of both: the group of its host (None: it is alone there), and on a first rank that of the hosts. To an
    Engine it is a group whose operations are done when they are started."""

    def __init__(self, placement, size, inside, between, store):
        self.placement, self.rank, self.size = placement, placement.rank, size
        self.inside, self.between, self.store = inside, between, store
        self.timeout_ms, self.failure = 0, None

    def set_timeout(self, milliseconds):
        self.timeout_ms = milliseconds
        if self.inside is not None:
            self.inside.set_timeout(milliseconds)

    def start(self, action, _):
        if self.failure is not None:
            raise CollectiveError(self.failure)
        try:
            with torch.no_grad():
                action(self)
        except CollectiveError as error:
            self.abort(self.in_our_ranks(str(error)))
            raise CollectiveError(self.failure) from None
        except RuntimeError as error:  # Of Gloo: that a connection is gone, and seldom why.
            reason = self.reason() or f"rank {self.rank} has lost another host: {str(error).splitlines()[0]}"
            self.abort(reason)
            raise CollectiveError(reason) from None
        return True

    def in_our_ranks(self, text):
        """What the host's group says counts its ranks from 0; but what one of us has aborted it with does not."""
        _, is_told, told = text.partition(TOLD)
        ranks = self.placement.hosts[self.placement.host]
        return told if is_told else re.sub(r"\brank (\d+)", lambda found: f"rank {ranks[int(found[1])]}", text)

    def run(self, operation, **request):
        """An operation inside the host."""
        if self.inside is not None:
            self.inside.run(collective.make_request(operation, **request))

    def wait(self, begin, options):
        """An operation between hosts: begin(options) starts it."""
        options.timeout = datetime.timedelta(milliseconds=self.timeout_ms)
        begin(options).wait()

    def reason(self):
        """Why a rank that has found a failure has aborted the group; "" where none says it in time."""
        until = time.monotonic() + REASON_WAIT_S
        try:
            while time.monotonic() < until:
                if self.store.check(["failure"]):
                    return self.store.get("failure").decode()
                time.sleep(0.01)
        except RuntimeError:
            pass  # The store has gone with its rank.
        return ""

    def abort(self, reason):
        if self.failure is not None:
            return
        self.failure = reason
        if self.inside is not None:
            self.inside.abort(TOLD + reason)
        try:
            if not self.store.check(["failure"]):
                self.store.set("failure", reason)
        except RuntimeError:
            pass
        if self.between is not None:
            self.between.abort()

    def close(self):
        if self.inside is not None:
            self.inside.close()
        self.between = None


class _Task:
    """One operation of several parts: `action(hosts)`, and what it holds until then."""

    blocks, is_started = True, False

    def __init__(self, action, timeout_ms, work):
        self.action, self.timeout_ms, self.work = action, timeout_ms, work

    def start(self, hosts, microseconds):
        hosts.set_timeout(self.timeout_ms)
        return hosts.start(self.action, microseconds)

    def end(self):
        pass


def _address(tensor):
    return [tensor.data_ptr()]


def _combine_gathered(hosts, tensor, code):
    """Of hosts in their order, in a type that holds what is between: 16-bit floats are rounded once."""
    like = torch.float32 if tensor.dtype in (torch.float16, torch.bfloat16) else tensor.dtype
    step = max(1, GATHER_BYTES_MAX // tensor.element_size())
    for part in tensor.split(step):
        parts = [torch.empty_like(part) for _ in hosts.placement.hosts]
        hosts.wait(lambda options, parts=parts, part=part: hosts.between.allgather(
            [[one.view(torch.uint8) for one in parts]], [part.view(torch.uint8)], options), c10d.AllgatherOptions())
        part.copy_(functools.reduce(COMBINE[code], (one.to(like) for one in parts)))


def _reduce_between(hosts, tensor, code):
    if code in OF_GLOO.get(tensor.dtype, ()):
        options = c10d.AllreduceOptions()
        options.reduceOp = GLOO_CODES[code]
        hosts.wait(lambda options: hosts.between.allreduce([tensor], options), options)
    else:
        _combine_gathered(hosts, tensor, code)


def _reduce_to_first(hosts, tensor, kind, code, count):
    """The reduction of all ranks, in the first rank's tensor of each host. `kind` and `count`: as the library counts."""
    is_average = code == collective.AVERAGE
    code = collective.SUM if is_average else code
    outputs = _address(tensor) if hosts.placement.is_first else ()
    hosts.run(collective.REDUCE, type=kind, reduction=code, count=count, inputs=_address(tensor), outputs=outputs)
    if hosts.placement.is_first:
        flat = tensor.view(-1)
        flat = torch.view_as_real(flat).view(-1) if flat.is_complex() else flat
        _reduce_between(hosts, flat, code)
        if is_average:
            flat.div_(hosts.size)


def _to_host(hosts, tensor):
    """What its first rank has."""
    is_first = hosts.placement.is_first
    size = tensor.numel() * tensor.element_size()
    hosts.run(collective.BROADCAST, count=size, inputs=_address(tensor) if is_first else (), outputs=() if is_first else _address(tensor))


class HostsBackend(SgdBackend):
    """What pays, composed; what does not, and messages between two ranks, by Gloo among all ranks."""

    def __init__(self, hosts, store, gloo, timeout, name):
        super().__init__(hosts, store, None, timeout, name)
        self._gloo = gloo

    def _gloo_for(self, tensor):
        return self._gloo if tensor.layout is not torch.strided or (not tensor.is_cpu and self._name == "gloo") else None

    def _compose(self, opts, results, action):
        timeout_ms = self._timeout_ms if opts is None else milliseconds(opts.timeout)
        work = Work(results)
        self._engine.run(_Task(action, timeout_ms if timeout_ms > 0 else self._timeout_ms, work), opts is None or opts.asyncOp)
        return work

    def allreduce(self, tensors, opts):
        if self._gloo_for(tensors[0]) is not None:
            return self._gloo.allreduce(tensors, opts)
        requests = []
        for tensor in tensors:
            self._check(tensor, tensor, None)
            requests.append((tensor, *self._reduction_of(tensor, opts.reduceOp, tensor.numel())))

        def action(hosts):
            for tensor, kind, code, count in requests:
                whole = tensor.contiguous()
                _reduce_to_first(hosts, whole, kind, code, count)
                _to_host(hosts, whole)
                if whole is not tensor:
                    tensor.copy_(whole)
        return self._compose(opts, tensors, action)

    allreduce_coalesced = allreduce

    def broadcast(self, tensors, opts):
        tensor, root = tensors[opts.rootTensor], opts.rootRank
        if self._gloo_for(tensor) is not None:
            return self._gloo.broadcast(tensors, opts)
        self._check(tensor, tensor, None)

        def action(hosts):
            place, whole = hosts.placement, tensor.contiguous()
            raw, source = whole.view(-1).view(torch.uint8), place.host_of(root)
            if place.host == source:
                has = place.rank == root
                hosts.run(collective.BROADCAST, count=raw.numel(), root=place.hosts[source].index(root),
                          inputs=_address(raw) if has else (), outputs=() if has else _address(raw))
            if place.is_first:
                options = c10d.BroadcastOptions()
                options.rootRank, options.rootTensor = source, 0
                hosts.wait(lambda options: hosts.between.broadcast([raw], options), options)
            if place.host != source:
                _to_host(hosts, raw)
            if whole is not tensor:
                tensor.copy_(whole)
        return self._compose(opts, tensors, action)

    def _gather_all(self, hosts, tensor):
        """(size, bytes) of all ranks' tensors."""
        place, raw = hosts.placement, tensor.contiguous().view(-1).view(torch.uint8)
        everyones = raw.new_empty(hosts.size, raw.numel())
        widest = max(len(ranks) for ranks in place.hosts)
        mine = raw.new_empty(widest, raw.numel()) if place.is_first else None
        if hosts.inside is None:
            mine[0] = raw
        else:
            outputs = [row.data_ptr() for row in mine[:len(place.hosts[place.host])]] if place.is_first else ()
            hosts.run(collective.GATHER, count=raw.numel(), inputs=_address(raw), outputs=outputs)
        if place.is_first:
            parts = [torch.empty_like(mine) for _ in place.hosts]
            hosts.wait(lambda options: hosts.between.allgather([parts], [mine], options), c10d.AllgatherOptions())
            for ranks, part in zip(place.hosts, parts):
                everyones[ranks] = part[:len(ranks)]
        _to_host(hosts, everyones)
        return everyones

    def allgather(self, output_lists, inputs, opts):
        if self._gloo_for(inputs[0]) is not None:
            return self._gloo.allgather(output_lists, inputs, opts)
        for outputs, tensor in zip(output_lists, inputs):
            for output in [*self._check_number(outputs, "outputs"), tensor]:
                self._check(output, tensor, None)

        def action(hosts):
            for outputs, tensor in zip(output_lists, inputs):
                for output, row in zip(outputs, self._gather_all(hosts, tensor)):
                    output.copy_(row.view(tensor.dtype).view(tensor.shape))
        return self._compose(opts, output_lists, action)

    def all_gather_single(self, output, tensor, opts):
        if self._gloo_for(output) is not None:
            return self._gloo._allgather_base(output, tensor, opts)
        self._check(tensor, tensor, None)
        self._check(self._parts(output)[0], tensor, None)

        def action(hosts):
            output.view(-1).view(torch.uint8).copy_(self._gather_all(hosts, tensor).view(-1))
        return self._compose(opts, [output], action)

    def _scatter_reduced(self, opts, results, output, stack):
        """`stack()`: a new tensor of one row for each rank."""
        kind, code, count = self._reduction_of(output, opts.reduceOp, output.numel())

        def action(hosts):
            place, rows = hosts.placement, stack()
            _reduce_to_first(hosts, rows, kind, code, count * hosts.size)
            whole = output if output.is_contiguous() else torch.empty_like(output, memory_format=torch.contiguous_format)
            if hosts.inside is None:
                whole.view(-1).copy_(rows[place.rank])
            else:
                inputs = [rows[rank].data_ptr() for rank in place.hosts[place.host]] if place.is_first else ()
                hosts.run(collective.SCATTER, count=whole.numel() * whole.element_size(), inputs=inputs, outputs=_address(whole))
            if whole is not output:
                output.copy_(whole)
        return self._compose(opts, results, action)

    def reduce_scatter(self, outputs, input_lists, opts):
        if self._gloo_for(outputs[0]) is not None:
            return self._gloo.reduce_scatter(outputs, input_lists, opts)
        for output, inputs in zip(outputs, input_lists):
            for tensor in [*self._check_number(inputs, "inputs"), output]:
                self._check(tensor, output, None)
            work = self._scatter_reduced(opts, outputs, output, lambda inputs=inputs: torch.stack([one.reshape(-1) for one in inputs]))
        return work

    def reduce_scatter_single(self, output, tensor, opts):
        if self._gloo_for(output) is not None:
            return self._gloo._reduce_scatter_base(output, tensor, opts)
        self._check(output, output, None)
        self._check(self._parts(tensor.contiguous())[0], output, None)
        return self._scatter_reduced(opts, [output], output, lambda: tensor.reshape(self._size, output.numel()).clone())

    _allgather_base, _reduce_scatter_base = all_gather_single, reduce_scatter_single

    def barrier(self, opts):
        def action(hosts):
            hosts.run(collective.BARRIER)
            if hosts.placement.is_first:
                hosts.wait(hosts.between.barrier, c10d.BarrierOptions())
            hosts.run(collective.BARRIER)
        return self._compose(opts, [], action)

    # By Gloo among all ranks.

    def reduce(self, tensors, opts):
        return self._gloo.reduce(tensors, opts)

    def gather(self, output_lists, inputs, opts):
        return self._gloo.gather(output_lists, inputs, opts)

    def scatter(self, outputs, input_lists, opts):
        return self._gloo.scatter(outputs, input_lists, opts)

    def alltoall(self, outputs, inputs, opts):
        self._counts(outputs, inputs)  # For the error of a group on one host.
        return self._gloo.alltoall(outputs, inputs, opts)

    def all_to_all_single(self, output, tensor, output_splits, input_splits, opts):
        self._split(output, tensor, output_splits, input_splits)
        return self._gloo.alltoall_base(output, tensor, output_splits, input_splits, opts)

    alltoall_base = all_to_all_single

    def monitored_barrier(self, opts, wait_all_ranks=False):
        self._gloo.monitored_barrier(opts.timeout, wait_all_ranks)

    def send(self, tensors, target, tag):
        return self._gloo.send(tensors, target, tag)

    def recv(self, tensors, source, tag):
        return self._gloo.recv(tensors, source, tag)

    def recv_anysource(self, tensors, tag):
        return self._gloo.recv_anysource(tensors, tag)


def compose(options, hosts, timeout, name):
    """The backend of a group on `hosts`, a Spread; a text that says why it cannot be."""
    store, rank, size = dist.PrefixStore(f"hosts/{hosts.word}", options.store), options.group_rank, options.group_size
    placement = Placement(hosts, rank)
    ranks, seconds = hosts[placement.host], timeout.total_seconds()
    inside = None
    if len(ranks) > 1:
        inside = collective.form(dist.PrefixStore(f"host/{placement.host}", store), placement.local, len(ranks), seconds)
    problem = inside if isinstance(inside, str) else ""
    if placement.is_first:
        store.set(f"composed/{placement.host}", problem or collective.OPENED)
    deadline = time.monotonic() + seconds
    said = [collective._get(store, f"composed/{at}", ranks[0], deadline) for at, ranks in enumerate(hosts)]
    problem = next((text for text in said if text != collective.OPENED), "")
    if problem:
        if inside is not None and not isinstance(inside, str):
            inside.close()
        return problem

    def gloo(word, rank, size):
        options.store, options.group_rank, options.group_size = dist.PrefixStore(word, store), rank, size
        return c10d._create_gloo_process_group(options, None)
    between = gloo("between", placement.host, len(hosts)) if placement.is_first else None
    everyone = gloo("everyone", rank, size)
    return HostsBackend(Hosts(placement, size, inside, between, dist.PrefixStore("composed", store)), store, everyone, timeout, name)
