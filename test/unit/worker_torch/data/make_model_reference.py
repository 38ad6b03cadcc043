#!/usr/bin/env python3
"""Writes model_reference.json: what PyTorch's models and losses do in some steps, for model_parity_test.cpp.

    scripts/setup --peers && PEERS/bin/python3 test/unit/worker_torch/data/make_model_reference.py

Weights and data are functions of a name's place and an index, exact in float: the same on both sides, without files. What
is trained is in double, so that a difference is one of the formulas and not of the order of a sum. Of each tensor four
numbers are kept: its first, middle and last, and its product with a vector of chance, which sees every element.
"""
import json
import math
import os

import numpy
import torch
from torch import nn
from torch.nn import functional

LR, MOMENTUM = 0.01, 0.9
IMAGES, TARGETS = 1000, 2000  # Where the data of the first step begins among the numbers of chance.


def chance(place, count):
    """Numbers from -1 to below 1."""
    x = (numpy.arange(count, dtype=numpy.uint64) * 2654435761 + place * 40503 + 12345) % 2**32
    x ^= x >> numpy.uint64(15)
    x = x * 2246822519 % 2**32
    x ^= x >> numpy.uint64(13)
    return x.astype(numpy.float64) / 2**31 - 1


def start_of(name, place, tensor):
    u = chance(place, tensor.numel())
    if name.endswith("num_batches_tracked"):
        u = u * 0
    elif tensor.dim() >= 2:
        u = u * math.sqrt(3 * tensor.shape[0] / tensor.numel())
    elif name.endswith(("running_var", "weight")):
        u = 1 + 0.1 * u
    else:
        u = 0.1 * u
    return torch.from_numpy(u.astype(numpy.float32)).double().reshape(tensor.shape)


def fill(model):
    with torch.no_grad():
        for place, (name, tensor) in enumerate(sorted(model.state_dict().items())):
            tensor.copy_(start_of(name, place, tensor))


def numbers(place, shape):
    u = chance(place, math.prod(shape)).astype(numpy.float32).astype(numpy.float64)
    return torch.from_numpy(u).reshape(shape)


def classes(place, shape, count):
    u = chance(place, math.prod(shape))
    return torch.from_numpy(numpy.floor((u + 1) / 2 * count).astype(numpy.int64)).reshape(shape)


def kept(tensor):
    flat = tensor.detach().double().reshape(-1)
    seen = float(flat @ torch.from_numpy(chance(7777, flat.numel()))) / math.sqrt(flat.numel())
    return [float(flat[0]), float(flat[flat.numel() // 2]), float(flat[-1]), seen]


class LeNet(nn.Module):
    def __init__(self, shape, channels=(6, 16), hidden=(120, 84), outputs=10, dropout=0.0):
        super().__init__()
        self.conv1 = nn.Conv2d(shape[0], channels[0], 5)
        self.conv2 = nn.Conv2d(channels[0], channels[1], 5)
        side = [((s - 4) // 2 - 4) // 2 for s in shape[1:]]
        widths = [channels[1] * side[0] * side[1], *hidden, outputs]
        self.count = len(widths) - 1
        for i in range(self.count):
            setattr(self, f"fc{i + 1}", nn.Linear(widths[i], widths[i + 1]))

    def forward(self, x):
        x = functional.max_pool2d(functional.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(functional.relu(self.conv2(x)), 2).flatten(1)
        for i in range(1, self.count):
            x = functional.relu(getattr(self, f"fc{i}")(x))
        return getattr(self, f"fc{self.count}")(x)


def conv(inputs, outputs, kernel, stride=1):
    return nn.Conv2d(inputs, outputs, kernel, stride=stride, padding=kernel // 2, bias=False)


class Block(nn.Module):
    """As torchvision's BasicBlock and Bottleneck."""

    def __init__(self, inputs, planes, stride, expansion):
        downsample = None
        super().__init__()
        if stride != 1 or inputs != planes * expansion:
            downsample = nn.Sequential(conv(inputs, planes * expansion, 1, stride), nn.BatchNorm2d(planes * expansion))
        shapes = [(inputs, planes, 3, stride), (planes, planes, 3, 1)]
        if expansion > 1:
            shapes = [(inputs, planes, 1, 1), (planes, planes, 3, stride), (planes, planes * expansion, 1, 1)]
        self.count = len(shapes)
        for i, shape in enumerate(shapes, 1):
            setattr(self, f"conv{i}", conv(*shape))
            setattr(self, f"bn{i}", nn.BatchNorm2d(shape[1]))
        self.downsample = downsample

    def forward(self, x):
        out = x
        for i in range(1, self.count + 1):
            out = getattr(self, f"bn{i}")(getattr(self, f"conv{i}")(out))
            if i < self.count:
                out = functional.relu(out)
        return functional.relu(out + (self.downsample(x) if self.downsample else x))


class ResNet(nn.Module):
    def __init__(self, shape, type, stem="imagenet", width=64, outputs=10):
        super().__init__()
        self.stem = stem
        self.conv1 = conv(shape[0], width, 3) if stem == "cifar" else conv(shape[0], width, 7, 2)
        self.bn1 = nn.BatchNorm2d(width)
        expansion = 4 if type == "resnet50" else 1
        inputs = width
        for stage, count in enumerate([2, 2, 2, 2] if type == "resnet18" else [3, 4, 6, 3]):
            planes, blocks = width * 2**stage, []
            for i in range(count):
                blocks.append(Block(inputs, planes, 2 if i == 0 and stage > 0 else 1, expansion))
                inputs = planes * expansion
            setattr(self, f"layer{stage + 1}", nn.Sequential(*blocks))
        self.fc = nn.Linear(inputs, outputs)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, x):
        x = functional.relu(self.bn1(self.conv1(x)))
        if self.stem != "cifar":
            x = functional.max_pool2d(x, 3, stride=2, padding=1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Stage(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv1, self.bn1 = conv(inputs, outputs, 3, 2), nn.BatchNorm2d(outputs)
        self.conv2, self.bn2 = conv(outputs, outputs, 3), nn.BatchNorm2d(outputs)

    def forward(self, x):
        return functional.relu(self.bn2(self.conv2(functional.relu(self.bn1(self.conv1(x))))))


class Fcn(nn.Module):
    """The head is torchvision's FCNHead."""

    def __init__(self, shape, channels=(32, 64, 128), outputs=10, dropout=0.1):
        super().__init__()
        widths = [shape[0], *channels]
        self.backbone = nn.Sequential(*[Stage(*pair) for pair in zip(widths, widths[1:])])
        head = widths[-1] // 4
        self.classifier = nn.Sequential(conv(widths[-1], head, 3), nn.BatchNorm2d(head), nn.ReLU(), nn.Dropout(dropout),
                                        nn.Conv2d(head, outputs, 1))

    def forward(self, x):
        out = self.classifier(self.backbone(x))
        return functional.interpolate(out, size=x.shape[-2:], mode="bilinear", align_corners=False)


class Transformer(nn.Module):
    def __init__(self, shape, task="language_model", vocabulary=256, embedding=128, layers=2, heads=4, feedforward=512, dropout=0.1,
                 tied=False, pooling="mean", outputs=None):
        super().__init__()
        self.task, self.pooling = task, pooling
        self.embedding, self.positions = nn.Embedding(vocabulary, embedding), nn.Embedding(shape[0], embedding)
        layer = nn.TransformerEncoderLayer(embedding, heads, feedforward, dropout, activation="gelu", batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, layers, norm=nn.LayerNorm(embedding), enable_nested_tensor=False)
        self.head = nn.Linear(embedding, outputs or vocabulary, bias=task == "classification")
        if tied:
            self.head.weight = self.embedding.weight

    def forward(self, x):
        causal = self.task == "language_model"
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=torch.float64) if causal else None
        x = self.embedding(x) + self.positions.weight[: x.shape[1]]
        x = self.encoder(x, mask=mask, is_causal=causal)
        if causal:
            return self.head(x).transpose(1, 2)
        return self.head(x[:, 0] if self.pooling == "first" else x.mean(1))


KINDS = {"lenet": LeNet, "fcn": Fcn, "transformer": Transformer}
TOKENS = {"type": "transformer", "vocabulary": 11, "embedding": 16, "layers": 2, "heads": 2, "feedforward": 32, "dropout": 0}
TEXT = {**TOKENS, "task": "classification", "outputs": 3}

# Settings of the model, shape of a sample, samples a batch, steps. In a deep network BatchNorm over a small batch magnifies
# each step what CPUs round differently, so those have few.
MODEL_CASES = [
    ({"type": "lenet", "outputs": 4}, [1, 20, 20], 4, 50),
    ({"type": "lenet", "channels": [10, 20], "hidden": [50], "outputs": 10}, [1, 28, 28], 4, 10),
    ({"type": "resnet18", "stem": "cifar", "width": 8, "outputs": 5}, [3, 16, 16], 8, 50),
    ({"type": "resnet18", "stem": "imagenet", "width": 8, "outputs": 5}, [3, 32, 32], 8, 20),
    ({"type": "resnet34", "stem": "cifar", "width": 4, "outputs": 5}, [1, 16, 16], 8, 10),
    ({"type": "resnet50", "stem": "imagenet", "width": 4, "outputs": 5}, [3, 64, 64], 4, 2),
    ({"type": "fcn", "channels": [4, 8], "outputs": 3, "dropout": 0}, [3, 12, 10], 4, 50),
    (TOKENS, [8], 4, 50),
    ({**TOKENS, "tied": True}, [8], 4, 50),
    (TEXT, [8], 4, 50),
    ({**TEXT, "pooling": "first"}, [8], 4, 50),
]

# Settings of the model, shape of a sample: what a seed draws.
START_CASES = [
    ({"type": "lenet", "outputs": 4}, [1, 20, 20]),
    ({"type": "resnet18", "stem": "cifar", "width": 8, "outputs": 5}, [3, 16, 16]),
    ({"type": "resnet50", "stem": "imagenet", "width": 4, "outputs": 5}, [3, 32, 32]),
    *[({"type": "lenet", "outputs": 4, "init": init}, [1, 20, 20]) for init in
      ("xavier_uniform", "xavier_normal", "kaiming_uniform", "kaiming_normal", "normal", {"type": "normal", "std": 0.5})],
]

FLAT, MAP = [6, 5], [2, 5, 3, 2]
LOSS_CASES = [
    ({"type": "cross_entropy"}, FLAT), ({"type": "cross_entropy"}, MAP),
    ({"type": "cross_entropy", "label_smoothing": 0.2, "ignore_index": 3, "weight": [1, 2, 0.5, 1, 3]}, FLAT),
    ({"type": "cross_entropy", "label_smoothing": 0.1, "ignore_index": 1, "weight": [1, 2, 0.5, 1, 3]}, MAP),
    ({"type": "nll"}, FLAT), ({"type": "nll", "ignore_index": 2, "weight": [1, 2, 0.5, 1, 3]}, MAP),
    ({"type": "mse"}, FLAT), ({"type": "l1"}, FLAT),
    ({"type": "smooth_l1"}, FLAT), ({"type": "smooth_l1", "beta": 0.3}, FLAT),
    ({"type": "huber"}, FLAT), ({"type": "huber", "delta": 0.3}, FLAT),
    ({"type": "bce_with_logits"}, FLAT), ({"type": "bce_with_logits", "pos_weight": [3, 1, 0.5, 2, 1]}, FLAT),
    ({"type": "bce_with_logits", "pos_weight": [4]}, FLAT),
]
LOSSES = {"cross_entropy": nn.CrossEntropyLoss, "nll": nn.NLLLoss, "mse": nn.MSELoss, "l1": nn.L1Loss,
          "smooth_l1": nn.SmoothL1Loss, "huber": nn.HuberLoss, "bce_with_logits": nn.BCEWithLogitsLoss}
LOSS_STEPS, LOSS_LR = 50, 0.5


def made(settings, shape):
    options = {key: value for key, value in settings.items() if key not in ("type", "init")}
    if settings["type"].startswith("resnet"):
        return ResNet(shape, settings["type"], **options)
    return KINDS[settings["type"]](shape, **options)


def model_case(settings, shape, batch, steps):
    model = made(settings, shape).double()
    fill(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=LR, momentum=MOMENTUM)
    case = {"model": settings, "shape": shape, "batch": batch, "steps": steps, "losses": []}
    takes_tokens = settings["type"] == "transformer"
    for step in range(steps):
        features = (classes(IMAGES + step, [batch, *shape], settings["vocabulary"]) if takes_tokens
                    else numbers(IMAGES + step, [batch, *shape]))
        output = model(features)
        targets = classes(TARGETS + step, [output.shape[0], *output.shape[2:]], output.shape[1])
        loss = functional.cross_entropy(output, targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step == 0:
            case["output"] = [list(output.shape), kept(output)]
        case["losses"].append(loss.item())
    case["tensors"] = {name: kept(tensor) for name, tensor in sorted(model.state_dict().items())}
    return case


def drawn(model, init):
    for module in model.modules():
        if not isinstance(module, (nn.Linear, nn.Conv2d)):
            continue
        if isinstance(init, dict) or init == "normal":
            nn.init.normal_(module.weight, 0, init["std"] if isinstance(init, dict) else 0.02)
        elif init.startswith("kaiming"):
            getattr(nn.init, init + "_")(module.weight, nonlinearity="relu")
        else:
            getattr(nn.init, init + "_")(module.weight)


def start_case(settings, shape):
    torch.manual_seed(5)
    model = made(settings, shape)
    if "init" in settings:
        drawn(model, settings["init"])
    return {"model": settings, "shape": shape,
            "tensors": {name: kept(tensor) for name, tensor in sorted(model.state_dict().items())}}


def loss_case(settings, shape):
    options = {key: torch.tensor(value, dtype=torch.float64) if isinstance(value, list) else value
               for key, value in settings.items() if key != "type"}
    loss_of = LOSSES[settings["type"]](**options)
    output = numbers(IMAGES, shape).requires_grad_()
    if settings["type"] in ("cross_entropy", "nll"):
        target = classes(TARGETS, [shape[0], *shape[2:]], shape[1])
    else:
        target = numbers(TARGETS, shape)
        if settings["type"] == "bce_with_logits":
            target = (target + 1) / 2
    values = []
    for _ in range(LOSS_STEPS):
        loss = loss_of(output, target)
        output.grad = None
        loss.backward()
        with torch.no_grad():
            output -= LOSS_LR * output.grad
        values.append(loss.item())
    return {"loss": settings, "shape": shape, "values": values, "output": output.reshape(-1).tolist()}


def main():
    torch.set_num_threads(1)
    out = {"models": [model_case(*case) for case in MODEL_CASES], "starts": [start_case(*case) for case in START_CASES],
           "losses": [loss_case(*case) for case in LOSS_CASES]}
    lines = [f' "made_by": {json.dumps(os.path.basename(__file__) + " with torch " + torch.__version__.split("+")[0])}']
    for key, cases in out.items():
        lines.append(f' "{key}": [\n' + ",\n".join("  " + json.dumps(case) for case in cases) + "\n ]")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "model_reference.json"), "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
