"""The backend "sgd" of torch.distributed: collectives through shared memory for the ranks of one host.

    import sgd_launch_ddp
    torch.distributed.init_process_group("sgd")

or install(replace="gloo") before a script that says "gloo". DistributedDataParallel and the rest of torch.distributed
stay as they are. Groups whose ranks cannot share memory, and operations that are not here, are left to Gloo, which is
said once. See ddp.md.
"""

import atexit
import os
import sys

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

import sgd_launch_collective as collective
from sgd_launch_collective import CollectiveError
from sgd_launch_engine import Engine, Task, Work, milliseconds

TYPES = {torch.uint8: collective.UINT8, torch.int8: collective.INT8, torch.int16: collective.INT16,
         torch.int32: collective.INT32, torch.int64: collective.INT64, torch.float16: collective.FLOAT16,
         torch.bfloat16: collective.BFLOAT16, torch.float32: collective.FLOAT32, torch.float64: collective.FLOAT64,
         torch.bool: collective.BOOL}
CHANNELS_MAX = 256
REDUCTIONS = 8  # c10d.ReduceOp and SgdcReduction count alike, up to here.

_said = set()
_backends = set()  # C++ objects that hold one know nothing of its Python part, which must not go before them.


def _say_once(text):
    if text not in _said:
        _said.add(text)
        print(f"sgd_launch_ddp: {text}", file=sys.stderr, flush=True)


def _is_reduced(dtype, code):
    """AVG is of floats, and operations on bits are of all others."""
    if dtype not in TYPES or code >= REDUCTIONS:
        return False
    return code != collective.AVERAGE if not dtype.is_floating_point else code < collective.BIT_AND


class SgdBackend(torch._C._distributed_c10d.Backend):
    """Operations on tensors as requests on addresses. What each does is what torch.distributed documents."""

    def __init__(self, group, store, make_gloo, timeout, name):
        super().__init__(group.rank, group.size)
        self._engine = Engine(group)
        self._rank, self._size = group.rank, group.size
        self._store = store
        self._make_gloo, self._gloo = make_gloo, None
        self._timeout_ms = milliseconds(timeout)
        self._name = name
        self._channels = {}  # By source, target and tag.
        self._options = self.Options(name, timeout)
        self._pid = os.getpid()
        atexit.register(self._close_at_exit)

    def getBackendName(self):
        return self._name

    # What all operations share.

    def _submit(self, operation, opts, results, inputs=(), outputs=(), count_of=None, reduction=None, root=0, counts=None,
                engine=None):
        """`inputs` and `outputs` are tensors, each of the size and type of `count_of`, or of `counts`."""
        tensors, after, given, taken = [], [], [], []
        for tensor in outputs:
            self._check(tensor, count_of, counts)
            if not tensor.is_contiguous():
                target, tensor = tensor, torch.empty_like(tensor, memory_format=torch.contiguous_format)
                after.append((target, tensor))
            tensors.append(tensor)
            taken.append(tensor.data_ptr())
        for tensor in inputs:
            self._check(tensor, count_of, counts)
            tensor = tensor.contiguous()
            tensors.append(tensor)
            given.append(tensor.data_ptr())
        kind, code, count = collective.UINT8, 0, 0
        if count_of is not None:
            count = count_of.numel()
            if reduction is None:
                count *= count_of.element_size()
            else:
                kind, code, count = self._reduction_of(count_of, reduction, count)
        request = collective.make_request(operation, kind, code, root, count, given, taken, *(counts or ()))
        timeout_ms = self._timeout_ms if opts is None else milliseconds(opts.timeout)
        work = Work(results)
        task = Task(request, tensors, after, timeout_ms if timeout_ms > 0 else self._timeout_ms, work)
        (engine or self._engine).run(task, opts is None or opts.asyncOp)
        return work

    def _check(self, tensor, like, counts):
        if not tensor.is_cpu or tensor.layout is not torch.strided:
            raise dist.DistBackendError(
                f"backend {self._name}: a {tensor.layout} tensor on {tensor.device}, where dense tensors in the host's "
                "memory are needed; for CUDA use nccl, for example init_process_group(\"cpu:sgd,cuda:nccl\")")
        if counts is None and (tensor.numel() != like.numel() or tensor.dtype != like.dtype):
            raise dist.DistBackendError(
                f"backend {self._name}: a tensor of {tensor.numel()} elements of {tensor.dtype} beside one of "
                f"{like.numel()} of {like.dtype}: they must be alike")

    def _check_number(self, tensors, what):
        if len(tensors) != self._size:
            raise dist.DistBackendError(f"backend {self._name}: {len(tensors)} {what} for {self._size} ranks")
        return tensors

    def _parts(self, tensor):
        """Equal pieces of a contiguous tensor, one for each rank."""
        if tensor.numel() % self._size or not tensor.is_contiguous():
            raise dist.DistBackendError(f"backend {self._name}: a contiguous tensor that can be divided among "
                                        f"{self._size} ranks is needed, not one of {tuple(tensor.shape)}")
        return tensor.view(self._size, tensor.numel() // self._size).unbind()

    def _reduction_of(self, tensor, reduction, count):
        """The type, the code and the count of a reduction of this tensor."""
        code, dtype = int(reduction.op), tensor.dtype
        if dtype in (torch.complex64, torch.complex128) and code in (collective.SUM, collective.AVERAGE):
            dtype, count = torch.float32 if dtype is torch.complex64 else torch.float64, 2 * count
        if not _is_reduced(dtype, code):
            known = ", ".join(str(one) for one in TYPES if _is_reduced(one, code))
            raise dist.DistBackendError(f"backend {self._name} does not reduce {tensor.dtype} by {reduction.op}"
                                        f"{known and '; it reduces ' + known}")
        return TYPES[dtype], code, count

    def _gloo_for(self, tensor):
        """A group of Gloo for what is not here, formed by its first use on all ranks; None for a tensor that is."""
        if tensor.is_cpu and tensor.layout is torch.strided:
            return None
        if not tensor.is_cpu and self._name != "gloo":
            return None  # To be refused.
        if self._gloo is None:
            if self._rank == 0:
                _say_once(f"{tensor.layout} tensors on {tensor.device.type} go through Gloo")
            self._gloo = self._make_gloo()
        return self._gloo

    # Operations.

    def allreduce(self, tensors, opts):
        if (gloo := self._gloo_for(tensors[0])) is not None:
            return gloo.allreduce(tensors, opts)
        for tensor in tensors:
            work = self._submit(collective.ALL_REDUCE, opts, tensors, [tensor], [tensor], tensor, opts.reduceOp)
        return work

    allreduce_coalesced = allreduce

    def reduce(self, tensors, opts):
        tensor = tensors[opts.rootTensor]
        if (gloo := self._gloo_for(tensor)) is not None:
            return gloo.reduce(tensors, opts)
        outputs = [tensor] if opts.rootRank == self._rank else ()
        return self._submit(collective.REDUCE, opts, tensors, [tensor], outputs, tensor, opts.reduceOp, opts.rootRank)

    def broadcast(self, tensors, opts):
        tensor = tensors[opts.rootTensor]
        if (gloo := self._gloo_for(tensor)) is not None:
            return gloo.broadcast(tensors, opts)
        is_root = opts.rootRank == self._rank
        return self._submit(collective.BROADCAST, opts, tensors, [tensor] if is_root else (),
                            () if is_root else [tensor], tensor, root=opts.rootRank)

    def allgather(self, output_lists, inputs, opts):
        if (gloo := self._gloo_for(inputs[0])) is not None:
            return gloo.allgather(output_lists, inputs, opts)
        for outputs, tensor in zip(output_lists, inputs):
            work = self._submit(collective.ALL_GATHER, opts, output_lists, [tensor],
                                self._check_number(outputs, "outputs"), tensor)
        return work

    def allgather_coalesced(self, output_lists, inputs, opts):
        """Unlike that of allgather, a list of outputs belongs to a rank."""
        return self.allgather([[outputs[i] for outputs in output_lists] for i in range(len(inputs))], inputs, opts)

    def all_gather_single(self, output, tensor, opts):
        if (gloo := self._gloo_for(output)) is not None:
            return gloo._allgather_base(output, tensor, opts)
        return self._submit(collective.ALL_GATHER, opts, [output], [tensor.reshape(-1)], self._parts(output), tensor)

    def all_gather_single_coalesced(self, outputs, inputs, opts):
        return [self.all_gather_single(output, tensor, opts) for output, tensor in zip(outputs, inputs)][-1]

    def gather(self, output_lists, inputs, opts):
        if (gloo := self._gloo_for(inputs[0])) is not None:
            return gloo.gather(output_lists, inputs, opts)
        is_root = opts.rootRank == self._rank
        return self._submit(collective.GATHER, opts, output_lists, inputs,
                            self._check_number(output_lists[0], "outputs") if is_root else (), inputs[0],
                            root=opts.rootRank)

    def scatter(self, outputs, input_lists, opts):
        if (gloo := self._gloo_for(outputs[0])) is not None:
            return gloo.scatter(outputs, input_lists, opts)
        is_root = opts.rootRank == self._rank
        return self._submit(collective.SCATTER, opts, outputs,
                            self._check_number(input_lists[0], "inputs") if is_root else (), outputs, outputs[0],
                            root=opts.rootRank)

    def reduce_scatter(self, outputs, input_lists, opts):
        if (gloo := self._gloo_for(outputs[0])) is not None:
            return gloo.reduce_scatter(outputs, input_lists, opts)
        for output, inputs in zip(outputs, input_lists):
            work = self._submit(collective.REDUCE_SCATTER, opts, outputs, self._check_number(inputs, "inputs"), [output],
                                output, opts.reduceOp)
        return work

    def reduce_scatter_single(self, output, tensor, opts):
        if (gloo := self._gloo_for(output)) is not None:
            return gloo._reduce_scatter_base(output, tensor, opts)
        return self._submit(collective.REDUCE_SCATTER, opts, [output], self._parts(tensor.contiguous()), [output], output,
                            opts.reduceOp)

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts):
        return [self.reduce_scatter_single(output, tensor, opts) for output, tensor in zip(outputs, inputs)][-1]

    # Their names before torch 2.15.
    _allgather_base, _reduce_scatter_base = all_gather_single, reduce_scatter_single
    allgather_into_tensor_coalesced, reduce_scatter_tensor_coalesced = (all_gather_single_coalesced,
                                                                        reduce_scatter_single_coalesced)

    def alltoall(self, outputs, inputs, opts):
        if (gloo := self._gloo_for(outputs[0])) is not None:
            return gloo.alltoall(outputs, inputs, opts)
        return self._submit(collective.ALL_TO_ALL, opts, outputs, inputs, outputs, counts=self._counts(outputs, inputs))

    def _counts(self, outputs, inputs):
        """In bytes. A rank copies its own part, so both sides have as many."""
        self._check_number(outputs, "outputs"), self._check_number(inputs, "inputs")
        counts = [[tensor.numel() * tensor.element_size() for tensor in tensors] for tensors in (inputs, outputs)]
        sent, taken = counts[0][self._rank], counts[1][self._rank]
        if sent != taken:
            raise ValueError(f"rank {self._rank} takes what it sends itself: {taken} bytes must be {sent}")
        return counts

    def _split(self, output, tensor, output_splits, input_splits):
        rank, taken = self._rank, collective.divide(len(output), output_splits, self._size, "output")
        sent = collective.divide(len(tensor), input_splits, self._size, "input")
        if taken[rank] != sent[rank]:
            raise ValueError(f"rank {rank} takes what it sends itself, so output_split_sizes[{rank}] = {taken[rank]} must "
                             f"be input_split_sizes[{rank}] = {sent[rank]}")
        return output.split(taken), tensor.split(sent)

    def all_to_all_single(self, output, tensor, output_splits, input_splits, opts):
        if (gloo := self._gloo_for(output)) is not None:
            return gloo.alltoall_base(output, tensor, output_splits, input_splits, opts)
        if not output.is_contiguous():
            raise dist.DistBackendError(f"backend {self._name}: all_to_all needs a contiguous output")
        return self.alltoall(*self._split(output, tensor.contiguous(), output_splits, input_splits), opts)

    alltoall_base = all_to_all_single

    def barrier(self, opts):
        return self._submit(collective.BARRIER, opts, [])

    def monitored_barrier(self, opts, wait_all_ranks=False):
        """A barrier whose error names all ranks that are missing, whatever `wait_all_ranks`."""
        opts.asyncOp = False
        self._submit(collective.BARRIER, opts, [])

    def send(self, tensors, target, tag):
        tensor = tensors[0]
        return self._submit(collective.BROADCAST, None, tensors, [tensor], (), tensor,
                            engine=self._channel(self._rank, target, tag))

    def recv(self, tensors, source, tag):
        tensor = tensors[0]
        return self._submit(collective.BROADCAST, None, tensors, (), [tensor], tensor,
                            engine=self._channel(source, self._rank, tag))

    def _channel(self, source, target, tag):
        """A group of two, for messages of one direction and one tag: they are received in the order of sending."""
        if source == target:
            raise dist.DistBackendError(f"backend {self._name}: rank {source} sends to itself")
        key = source, target, tag
        if key not in self._channels:
            if len(self._channels) >= CHANNELS_MAX:
                raise dist.DistBackendError(f"backend {self._name}: more than {CHANNELS_MAX} pairs of ranks and tags: use "
                                            "fewer tags")
            store = dist.PrefixStore(f"channel/{source}/{target}/{tag}", self._store)

            def make_group():
                group = collective.form(store, int(target == self._rank), 2, self._timeout_ms / 1000)
                if isinstance(group, str):
                    raise CollectiveError(group)
                return group

            self._channels[key] = Engine(None, make_group)
        return self._channels[key]

    # Life.

    # Whatever is not said here would ask itself without end.
    supports_splitting = supports_coalescing = supports_shrinking = supports_reconfigure = supports_window = False
    _supports_time_estimate = False

    @property
    def options(self):
        return self._options

    def _set_sequence_number_for_group(self):
        pass  # Numbers are counted where the ranks meet.

    def _get_sequence_number_for_group(self):
        return 0

    def set_timeout(self, timeout):
        self._timeout_ms = milliseconds(timeout)

    def abort(self):
        for engine in [self._engine, *self._channels.values()]:
            engine.abort(f"rank {self._rank} has aborted it")

    def close(self):
        for engine in [self._engine, *self._channels.values()]:
            engine.close()

    def _close_at_exit(self):
        """A thread that is inside C++ when the interpreter goes ends the process by std::terminate."""
        if os.getpid() == self._pid:  # Of a process that this one has forked, nothing of the group is its own.
            self.close()

    def shutdown(self):
        self.close()
        atexit.unregister(self._close_at_exit)
        self._gloo = None
        _backends.discard(self)


def _create(options, backend_options, name):
    """torch.distributed calls this for each group, on its members."""
    store, rank, size = options.store, options.group_rank, options.group_size

    def make_gloo():
        options.store = dist.PrefixStore("gloo", store)
        return c10d._create_gloo_process_group(options, None)

    group = collective.form(store, rank, size, options.timeout.total_seconds())
    if isinstance(group, collective.Spread):
        from sgd_launch_hosts import compose
        group = compose(options, group, options.timeout, name)
    if isinstance(group, str):
        if rank == 0:
            _say_once(f"a group of {size} ranks uses Gloo: {group}")
        return make_gloo()
    backend = group if isinstance(group, SgdBackend) else SgdBackend(group, store, make_gloo, options.timeout, name)
    _backends.add(backend)
    return backend


def register():
    """Makes "sgd" known to torch.distributed."""
    dist.Backend.register_backend("sgd", lambda options, more: _create(options, more, "sgd"), extended_api=True,
                                  devices=["cpu", "cuda"])


def install(replace="gloo"):
    """Lets every group that asks for the backend `replace`, or gets it for want of a name, have this one instead."""
    if replace != "gloo":
        raise ValueError(f"install(replace={replace!r}): only gloo can be replaced")
    # Of the type CUSTOM: a group of the type GLOO is taken for a C++ object of Gloo's by the logger of DDP.
    dist.Backend.register_backend("gloo", lambda options, more: _create(options, more, "gloo"), extended_api=True,
                                  devices=dist.Backend.backend_capability["gloo"])


register()
