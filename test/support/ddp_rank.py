"""One rank of the tests of the backend "sgd": ddp_rank.py BACKEND CASE FOLDER. Prints a line of JSON; PyTorch is needed.

BACKEND: gloo; sgd; instead (sgd_launch_ddp.install(), and then a script that says nothing). The ranks meet by files in
FOLDER, or by the environment where the script says nothing.
"""
import atexit
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
    name = type(dist.group.WORLD._get_backend(torch.device("cpu"))).__name__
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


def death(begin):
    begin()
    rank = dist.get_rank()
    model = DistributedDataParallel(nn.Linear(512, 512))
    for step in range(1000):
        if rank == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        start = time.monotonic()
        try:
            model(torch.ones(2, 512)).sum().backward()
        except RuntimeError as error:
            say({"rank": rank, "error": str(error), "seconds": time.monotonic() - start})
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
    if name == "instead":
        sgd_launch_ddp.install(replace="gloo")
    globals()[case](beginning(name, folder))


if __name__ == "__main__":
    main()
