"""One rank of the tests of the backend "sgd": ddp_rank.py BACKEND CASE FOLDER. Prints a line of JSON; PyTorch is needed.

BACKEND: gloo; sgd; hosts (sgd; each two ranks say that they are on a host of their own); instead (sgd_launch_ddp.install(), and then a script that says nothing). The ranks meet by files in
FOLDER, or by the environment where the script says nothing.
"""
import atexit
import functools
import hashlib
import json
import os
import signal
import sys
import tempfile
import time
import warnings

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import distributed_c10d as c10d
from torch.nn.parallel import DistributedDataParallel

warnings.filterwarnings("ignore")


def say(value):
    os.write(1, (json.dumps(value) + "\n").encode())


def digest(state):
    state = [tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor for tensor in state.values()]
    return hashlib.sha256(b"".join(tensor.detach().numpy().tobytes() for tensor in state)).hexdigest()[:16]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.Linear(144, 10)
        self.sometimes = nn.Linear(4, 4)

    def forward(self, x, is_used):
        y = self.head(torch.relu(self.norm(self.conv(x))).flatten(1))
        return y + self.sometimes(x[:, 0, 0, :4]).sum() if is_used else y


def trained(rank, used=lambda step: True, hook=None, **options):
    torch.manual_seed(0)
    module = Net()
    model = DistributedDataParallel(module, **options)
    if hook:
        model.register_comm_hook(None, hook)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    generator = torch.Generator().manual_seed(rank)
    for step in range(4):
        optimizer.zero_grad()
        model(torch.randn(8, 1, 8, 8, generator=generator), used(step)).square().mean().backward()
        optimizer.step()
    return digest(module.state_dict())


def joined(rank):
    torch.manual_seed(0)
    module = nn.Linear(3, 3)
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with model.join():
        for step in range(2 + rank):
            optimizer.zero_grad()
            model(torch.full((2, 3), float(step + rank))).sum().backward()
            optimizer.step()
    return digest(module.state_dict())


def accumulated(rank):
    torch.manual_seed(0)
    module = nn.Linear(3, 3)
    model = DistributedDataParallel(module)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with model.no_sync():
        model(torch.full((2, 3), rank + 1.0)).sum().backward()
    model(torch.full((2, 3), rank + 2.0)).sum().backward()
    optimizer.step()
    return digest(module.state_dict())


def sharded(rank):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    for part in (model[0], model[2], model):
        fully_shard(part, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(3):
        optimizer.zero_grad()
        model(torch.full((2, 16), float(step + rank))).square().mean().backward()
        optimizer.step()
    return digest(model.state_dict())


def checkpointed(rank):
    import torch.distributed.checkpoint as checkpoint

    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    state = {"model": nn.Linear(3, 3).state_dict()}
    dist.broadcast(state["model"]["weight"], 0)
    checkpoint.save(state, checkpoint_id=folder[0])
    loaded = {"model": nn.Linear(3, 3).state_dict()}
    checkpoint.load(loaded, checkpoint_id=folder[0])
    assert torch.equal(loaded["model"]["weight"], state["model"]["weight"])


def features(begin):
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    results = []
    for attempt in range(2):  # In one process, one after the other.
        begin(attempt)
        rank = dist.get_rank()
        results.append({
            "plain": trained(rank), "views": trained(rank, gradient_as_bucket_view=True),
            "unused": trained(rank, lambda step: (step + rank) % 2 == 0, find_unused_parameters=True),
            "static": trained(rank, static_graph=True), "buffers": trained(rank, broadcast_buffers=False),
            "many buckets": trained(rank, bucket_cap_mb=0.001),
            "16 bits": trained(rank, hook=default_hooks.fp16_compress_hook),
            "join": joined(rank), "no_sync": accumulated(rank), "fsdp2": sharded(rank)})
        checkpointed(rank)
        dist.barrier(device_ids=None)
        dist.monitored_barrier()
        dist.destroy_process_group()
    assert results[0] == results[1]
    say({"rank": rank, "results": results[0]})


def exchanges(rank, size):
    """all_to_all in parts of different sizes, and what of it is refused on each rank before anything is sent."""
    splits = [1 + (one + rank) % 2 for one in range(size)]
    output = torch.empty(sum(splits), 2)
    dist.all_to_all_single(output, torch.full((sum(splits), 2), float(rank)), splits, splits)
    assert output[:, 1].tolist() == [one for one in range(size) for _ in range(splits[one])]
    even, longer = [2] * size, [2 + (one == rank) for one in range(size)]
    whole, other, long = torch.zeros(2 * size), torch.zeros(2 * size), torch.zeros(2 * size + 1)
    for call, words in (
            (lambda: dist.all_to_all_single(long, whole, longer, even),
             (f"output_split_sizes[{rank}] = 3", f"input_split_sizes[{rank}] = 2")),
            (lambda: dist.all_to_all_single(whole, other, longer, even), ("output_split_sizes", f"the {2 * size} rows")),
            (lambda: dist.all_to_all_single(whole, long, even, None), ("input_split_sizes", f"the {2 * size + 1} rows")),
            (lambda: dist.all_to_all_single(whole, other, even, even[1:] + [1, 1]), (f"{size} ranks",)),
            (lambda: dist.all_to_all(list(long.split(longer)), list(whole.split(even))), ("12 bytes must be 8",))):
        try:
            call()
        except ValueError as error:
            assert all(word in str(error) for word in words), error
        else:
            raise AssertionError(words)


def left_to_gloo(backend, size):
    """Where it stands in Gloo's place, tensors of a device are Gloo's, also those with which DDP begins; "meta" plays the device, and Gloo
    refuses it in words of its own."""
    far = torch.empty(2, device="meta")
    whole = torch.empty(2 * size, device="meta")
    far_from_all = [[far] * size] if dist.get_rank() == 0 else []
    for call in (lambda: backend.broadcast([far], c10d.BroadcastOptions()),
                 lambda: backend.reduce([far], c10d.ReduceOptions()),
                 lambda: backend.allgather([[far] * size], [far], c10d.AllgatherOptions()),
                 lambda: backend.all_gather_single(whole, far, c10d.AllgatherOptions()),
                 lambda: backend.gather(far_from_all, [far], c10d.GatherOptions()),
                 lambda: backend.scatter([far], far_from_all, c10d.ScatterOptions()),
                 lambda: backend.reduce_scatter([far], [[far] * size], c10d.ReduceScatterOptions()),
                 lambda: backend.reduce_scatter_single(far, whole, c10d.ReduceScatterOptions()),
                 lambda: backend.alltoall([far] * size, [far] * size, c10d.AllToAllOptions()),
                 lambda: backend.all_to_all_single(whole, whole, [], [], c10d.AllToAllOptions())):
        try:
            call()
        except (RuntimeError, ValueError) as error:
            assert "for CUDA use nccl" not in str(error), error


def nothing(size):
    """Tensors without elements, as of parameters that are empty."""
    whole = torch.empty(size, 0)
    dist.all_gather_into_tensor(whole, torch.empty(0))
    dist.reduce_scatter_tensor(torch.empty(0), whole)
    dist.all_to_all_single(whole, torch.empty(size, 0))


def operations(begin):
    begin()
    rank, size = dist.get_rank(), dist.get_world_size()
    transposed = torch.arange(12.0).reshape(3, 4).t() * (rank + 1)
    dist.all_reduce(transposed)
    assert torch.equal(transposed, torch.arange(12.0).reshape(3, 4).t() * sum(range(1, size + 1)))
    imaginary = torch.full((5,), 1j)
    dist.all_reduce(imaginary)
    assert (imaginary == size * 1j).all()
    dist.all_reduce(torch.empty(0))
    nothing(size)
    message, received = torch.full((300_000,), float(rank)), torch.empty(300_000)
    works = dist.batch_isend_irecv([dist.P2POp(dist.isend, message, (rank + 1) % size),
                                    dist.P2POp(dist.irecv, received, (rank - 1) % size)])
    for work in works:
        work.wait()
    assert (received == (rank - 1) % size).all()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * 100_000})
    assert [one["rank"] for one in objects] == list(range(size))
    output = torch.empty(size * 3)
    dist.all_to_all_single(output, torch.arange(size * 3.0))
    assert torch.equal(output, torch.arange(3.0 * rank, 3.0 * rank + 3).repeat(size))
    exchanges(rank, size)
    # Two groups, their operations in another order on every other rank.
    first, second = dist.new_group(), dist.new_group()
    ones = torch.ones(100_000), torch.ones(100_000)
    order = [(ones[0], first), (ones[1], second)]
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in (order[::-1] if rank % 2 else order)]
    assert (works[0].get_future().wait()[0] == size).all()
    works[1].wait()
    assert (ones[0] == size).all() and (ones[1] == size).all()
    outer = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=outer)
        assert (tensor == 2).all()
    sparse = torch.eye(3).to_sparse()
    dist.all_reduce(sparse)
    assert torch.equal(sparse.to_dense(), size * torch.eye(3))
    try:
        dist.all_gather([torch.empty(2)] * size, torch.empty(3))
    except (dist.DistBackendError, ValueError) as error:
        assert "3" in str(error), error
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    name = type(backend).__name__
    if backend.getBackendName() == "gloo" and name != "ProcessGroupGloo":
        left_to_gloo(backend, size)
    # Of a group that calls itself Gloo's, the C++ part of DDP reads the object as one of Gloo's.
    assert "gloo_num_threads" not in DistributedDataParallel(nn.Linear(3, 3))._get_ddp_logging_data()
    child = os.fork()  # As a loader's worker: nothing of the group is its own.
    if child == 0:
        atexit._run_exitfuncs()
        os._exit(0)
    os.waitpid(child, 0)
    dist.barrier()
    dist.destroy_process_group()
    say({"rank": rank, "backend": name})


def reductions(begin):
    """Every type and operation, by values whose result is exact, whoever is added first."""
    begin()
    rank, size = dist.get_rank(), dist.get_world_size()
    whole = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.PRODUCT: torch.mul, dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.MAX: torch.maximum}
    bits = {dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or, dist.ReduceOp.BXOR: torch.bitwise_xor}
    integers = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
    floats = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
    done = 0
    for dtype in [*integers, *floats, torch.bool, torch.complex64, torch.complex128]:
        ways = {dist.ReduceOp.SUM: torch.add} if dtype.is_complex else {**whole, **bits} if dtype in integers else dict(whole)
        if dtype.is_floating_point or dtype.is_complex:
            ways[dist.ReduceOp.AVG] = torch.add
        for op, combine in ways.items():
            for shape in ((), (5,), (0,), (3, 700_001)) if op == dist.ReduceOp.SUM else ((7, 5),):
                count = int(torch.tensor(shape).prod()) if shape else 1
                values = [((torch.arange(count) * (one + 2) + one) % 4).to(dtype).reshape(shape) for one in range(size)]
                expected = functools.reduce(combine, values)
                if op == dist.ReduceOp.AVG:
                    expected = torch.view_as_complex(torch.view_as_real(expected) / size) if dtype.is_complex else expected / size
                mine = values[rank].clone().t().contiguous().t() if len(shape) == 2 else values[rank].clone()
                dist.all_reduce(mine, op)
                assert torch.equal(mine, expected.to(dtype)), (dtype, op, shape)
                done += 1
        values = [torch.arange(6 * size).mul(one + 1).remainder(5).to(dtype) for one in range(size)]
        part = torch.empty(6, dtype=dtype)
        dist.reduce_scatter_single(part, values[rank]) if hasattr(dist, "reduce_scatter_single") else dist.reduce_scatter_tensor(part, values[rank])
        assert torch.equal(part, functools.reduce(torch.add, values).view(size, -1)[rank]), dtype
        gathered = [torch.empty(6 * size, dtype=dtype) for _ in range(size)]
        dist.all_gather(gathered, values[rank])
        assert all(map(torch.equal, gathered, values)), dtype
        for root in range(size):
            sent = values[rank].clone()
            dist.broadcast(sent, root)
            assert torch.equal(sent, values[root]), (dtype, root)
    for dtype in (torch.float32, torch.bfloat16):
        rounded = torch.randn(100_003, generator=torch.Generator().manual_seed(rank)).to(dtype)
        dist.all_reduce(rounded)
        gathered = [torch.empty_like(rounded) for _ in range(size)]
        dist.all_gather(gathered, rounded)
        assert all(torch.equal(one, rounded) for one in gathered), dtype  # To the bit.
    for op in (dist.ReduceOp.MIN, dist.ReduceOp.MAX):
        odd = torch.tensor([float("nan") if rank == size - 1 else 1.0, float(rank)])
        dist.all_reduce(odd, op)
        assert odd[0].isnan() and odd[1] == (0 if op == dist.ReduceOp.MIN else size - 1), odd
    for op, dtype in ((dist.ReduceOp.AVG, torch.int64), (dist.ReduceOp.BAND, torch.float32)):
        try:
            dist.all_reduce(torch.ones(2, dtype=dtype), op)
        except dist.DistBackendError as error:
            refused, _, known = str(error).partition("; it reduces ")
            assert f"does not reduce {dtype} by " in refused and known and str(dtype) not in known, error
        else:
            raise AssertionError(op)
    dist.destroy_process_group()
    say({"rank": rank, "done": done})


def death(begin):
    begin()
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(512, 512))
    for step in range(1000):
        if rank == int(os.environ.get("SGD_TEST_DIES", 1)) and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        start = time.monotonic()
        try:
            model(torch.ones(2, 512)).sum().backward()
        except RuntimeError as error:
            say({"rank": rank, "error": str(error), "at": time.time(), "seconds": time.monotonic() - start})
            dist.destroy_process_group()
            return


def elsewhere(begin):
    """Rank 1 says that it is on another host."""
    import sgd_launch_collective

    if os.environ["RANK"] == "1":
        record = sgd_launch_collective._host_record()
        sgd_launch_collective._host_record = lambda: {**record, "host": ["elsewhere"]}
    begin()
    tensor = torch.ones(3)
    dist.all_reduce(tensor)
    say({"rank": dist.get_rank(), "sum": tensor.tolist()})
    dist.destroy_process_group()


def beginning(name, folder):
    """A function that forms the process group; each `attempt` of one process meets in a place of its own."""
    def by_files(attempt=0):
        dist.init_process_group(name, init_method=f"file://{folder}/meeting-{attempt}", rank=int(os.environ["RANK"]),
                                world_size=int(os.environ["WORLD_SIZE"]))
    return dist.init_process_group if name == "instead" else by_files


def main():
    name, case, folder = sys.argv[1:]
    torch.set_num_threads(1)
    if name != "gloo":
        import sgd_launch_ddp
    if name == "hosts":
        import sgd_launch_collective

        record = sgd_launch_collective._host_record()
        sgd_launch_collective._host_record = lambda: {**record, "host": ["host", int(os.environ["RANK"]) // 2]}
        name = "sgd"
    if name == "instead":
        sgd_launch_ddp.install(replace="gloo")
    globals()[case](beginning(name, folder))
    if name == "gloo":  # A thread of Gloo's that is inside C++ when the interpreter goes ends the process by std::terminate.
        os._exit(0)


if __name__ == "__main__":
    main()
