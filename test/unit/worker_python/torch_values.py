"""Tensors that Python ranks keep come back to the bit, from memory and from files. Needs torch: test/integration/python_state_test.py
runs it where there is one."""
import collections
import os
import sys
import tempfile

import torch

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../../worker/python"))
import sgd_launch
from sgd_launch_memory import Memory
from sgd_launch_values import Packed, read_file, write_file

INFO = {"call": 7, "step": 5, "epoch": 1, "world": 1, "rank": 0}


def bits(tensor):
    size = tensor.numel() * tensor.element_size()
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8) if size else tensor


def check_tensors():
    wide = torch.randn(6, 8)
    values = {str(dtype): torch.arange(7).to(dtype) for dtype in
              (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool,
               torch.complex64, torch.float8_e4m3fn)}
    values.update(odd=torch.tensor([float("nan"), float("inf"), -0.0]), scalar=torch.tensor(3.5), none=torch.empty(0, 4),
                  holes=wide[:, ::2], transposed=wide.t(), last=torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
                  grad=torch.nn.Parameter(torch.randn(3)), nested={0: [(torch.ones(2), 1)]}, expanded=torch.ones(1, 3).expand(4, 3))
    memory = Memory(os.memfd_create("memory"), 0, 1)
    memory.write(0, Packed(values, INFO), 1, 1)
    with tempfile.TemporaryDirectory() as folder:
        write_file(folder + "/f", Packed(values, INFO))
        for record in (memory.read(0, (1, 7)), read_file(folder + "/f")):
            for name, value in values.items():
                again = record.unpack(record.values[name])
                if name == "nested":
                    value, again = value[0][0][0], again[0][0][0]
                assert again.dtype == value.dtype and again.shape == value.shape, name
                if name in ("transposed", "last"):
                    assert again.stride() == value.stride(), name
                assert torch.equal(bits(again.contiguous()), bits(value.detach().contiguous())), name
    for bad in (torch.ones(2).to_sparse(), torch.empty(2, device="meta")):
        try:
            Packed({"a": [bad]}, INFO)
        except TypeError as error:
            assert "a.0 is a Tensor" in str(error), error
        else:
            raise AssertionError(bad)


def check_a_default_device_is_not_where_copies_are_read():
    """A script that makes its tensors on a GPU for want of another word; "meta" plays it."""
    values = {"whole": torch.randn(3, 4), "transposed": torch.randn(3, 4).t()}
    memory = Memory(os.memfd_create("memory"), 0, 1)
    memory.write(0, Packed(values, INFO), 1, 1)
    record = memory.read(0, (1, 7))
    torch.set_default_device("meta")
    try:
        again = {name: record.unpack(record.values[name]) for name in values}
    finally:
        torch.set_default_device(None)
    for name, value in values.items():
        assert again[name].device.type == "cpu" and torch.equal(again[name], value), name


def train(state, steps):
    losses = []
    while state.step < steps:
        loss = state.model(torch.randn(8, 16)).square().mean()
        state.optimizer.zero_grad()
        loss.backward()
        state.optimizer.step()
        state.schedule.step()
        state.step += 1
        losses.append(loss.item())
    return losses


def made():
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.5), torch.nn.Linear(32, 4))
    optimizer = torch.optim.AdamW(model.parameters())
    return sgd_launch.State(model=model, optimizer=optimizer, schedule=torch.optim.lr_scheduler.StepLR(optimizer, 3), step=0)


def check_saved_and_restored():
    """A run that goes on from save() draws and learns what the one that went on did."""
    with tempfile.TemporaryDirectory() as folder:
        assert made().restore(folder) == "fresh"
        torch.manual_seed(1)
        state = made()
        train(state, 5)
        state.save(folder)
        went_on = train(state, 12)
        torch.manual_seed(9)
        again = made()
        assert again.restore(folder) == "disk" and again.step == 5
        assert train(again, 12) == went_on
        for name, value in state.model.state_dict().items():
            assert torch.equal(value, again.model.state_dict()[name]), name


def plain(fill, device):
    """A state of plain values alone; another device is played by "meta", whose tensors have no numbers."""
    weight = torch.full((3,), fill, requires_grad=True)
    nested = {"a": [torch.full((2,), fill, requires_grad=True), (torch.full((2,), fill, device=device),)], 3: [fill]}
    count = int(fill)
    return sgd_launch.State(weight=weight, optimizer=torch.optim.SGD([weight], 0.5), nested=nested,
                            far=torch.full((2,), fill, device=device), whole=torch.full((2,), count),
                            grown=torch.full((count,), fill, requires_grad=True), rows=[torch.full((1,), fill)] * count,
                            none=None if count == 1 else torch.ones(1), counted=collections.Counter({"a": count}))


def check_plain_tensors_are_where_they_were():
    """On their device, with their gradient, and still the ones that an optimizer holds."""
    with tempfile.TemporaryDirectory() as folder:
        plain(2.0, "cpu").save(folder)
        again = plain(1.0, "meta")
        weight = again.weight
        assert again.restore(folder) == "disk"
    assert again.weight is weight and weight.tolist() == [2, 2, 2]
    again.weight.sum().backward()
    again.optimizer.step()
    assert again.weight.tolist() == [1.5, 1.5, 1.5]
    first, (second,) = again.nested["a"]
    assert first.requires_grad and first.tolist() == [2, 2] and again.nested[3] == [2.0]
    assert again.far.device.type == second.device.type == "meta" and not again.far.requires_grad
    assert again.grown.requires_grad and again.grown.tolist() == [2, 2] and again.whole.tolist() == [2, 2]
    assert [row.tolist() for row in again.rows] == [[2], [2]] and again.none.tolist() == [1]
    assert again.counted == collections.Counter({"a": 2})


check_tensors()
check_a_default_device_is_not_where_copies_are_read()
check_saved_and_restored()
check_plain_tensors_are_where_they_were()
