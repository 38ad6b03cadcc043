#!/usr/bin/env python3
"""Writes torch_reference.json: what PyTorch's optimizers and schedulers do in 50 steps, for torch_parity_test.cpp.

    scripts/setup --peers && PEERS/bin/python3 test/unit/worker/data/make_torch_reference.py

Settings are written as a job file has them. What a case leaves out has its default on both sides, so that defaults are
compared, too. Numbers are in decimal with all their digits: doubles come back bit for bit.
"""
import json
import os

import torch

STEPS = 50
SIZES = (3, 4)  # Two parameters: a case may have a group for each, and steps without the second one's gradient.

OPTIMIZERS = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW,
              "rmsprop": torch.optim.RMSprop, "adagrad": torch.optim.Adagrad}
SCHEDULERS = {"step": "StepLR", "multi_step": "MultiStepLR", "exponential": "ExponentialLR", "linear": "LinearLR",
              "cosine": "CosineAnnealingLR", "cosine_warm_restarts": "CosineAnnealingWarmRestarts",
              "one_cycle": "OneCycleLR", "reduce_on_plateau": "ReduceLROnPlateau"}
NAMES = {"t_max": "T_max", "t_0": "T_0", "t_mult": "T_mult"}

ONE_CYCLE = {"type": "one_cycle", "max_lr": 0.3, "total_steps": 50}

# Optimizer, scheduler or none, settings by which the second parameter's group differs, or none. SGD's rate is always
# given: ours is 0.01 without one, as in PyTorch's C++, and 0.001 in Python's.
OPTIMIZER_CASES = [
    ({"type": "sgd", "lr": 0.01}, None, None),
    ({"type": "sgd", "lr": 0.1, "momentum": 0.9, "dampening": 0.3, "weight_decay": 0.01}, None, None),
    ({"type": "sgd", "lr": 0.1, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}, None,
     {"lr": 0.02, "momentum": 0.5, "weight_decay": 0}),
    ({"type": "adam"}, None, None),
    ({"type": "adam", "lr": 0.05, "betas": [0.8, 0.99], "eps": 1e-6, "weight_decay": 0.1}, None, {"weight_decay": 0}),
    ({"type": "adam", "lr": 0.05, "amsgrad": True, "weight_decay": 0.01}, None, None),
    ({"type": "adamw"}, None, None),
    ({"type": "adamw", "lr": 0.05, "amsgrad": True, "weight_decay": 0.1}, None, {"lr": 0.01}),
    ({"type": "rmsprop"}, None, None),
    ({"type": "rmsprop", "lr": 0.02, "alpha": 0.9, "eps": 1e-6, "weight_decay": 0.01}, None, None),
    ({"type": "rmsprop", "lr": 0.01, "momentum": 0.9}, None, None),
    ({"type": "rmsprop", "lr": 0.01, "centered": True}, None, None),
    ({"type": "rmsprop", "lr": 0.01, "centered": True, "momentum": 0.5, "weight_decay": 0.01}, None, {"lr": 0.03}),
    ({"type": "adagrad"}, None, None),
    ({"type": "adagrad", "lr": 0.1, "lr_decay": 0.05, "initial_accumulator_value": 0.2, "weight_decay": 0.01}, None,
     {"lr": 0.2}),
    ({"type": "sgd", "lr": 0.01, "momentum": 0.9}, ONE_CYCLE, None),
    ({"type": "sgd", "lr": 0.01}, ONE_CYCLE, None),  # Momentum comes from the schedule alone.
    ({"type": "adamw"}, ONE_CYCLE, None),
    ({"type": "rmsprop"}, {**ONE_CYCLE, "max_lr": 0.03}, None),
    ({"type": "adam", "lr": 0.1}, [{"type": "linear", "total_iters": 10}, {"type": "cosine", "t_max": 50}], None),
]

SCHEDULE_CASES = [
    {"type": "step", "step_size": 1},
    {"type": "step", "step_size": 7, "gamma": 0.3},
    {"type": "multi_step", "milestones": [4, 30, 12, 30]},
    {"type": "multi_step", "milestones": [1, 49], "gamma": 0.7},
    {"type": "exponential", "gamma": 0.93},
    {"type": "linear"},
    {"type": "linear", "start_factor": 0.01, "end_factor": 0.9, "total_iters": 37},
    {"type": "linear", "start_factor": 1, "end_factor": 0.1, "total_iters": 45},
    {"type": "cosine", "t_max": 50},
    {"type": "cosine", "t_max": 7, "eta_min": 0.003},
    {"type": "cosine", "t_max": 1},
    {"type": "cosine_warm_restarts", "t_0": 8},
    {"type": "cosine_warm_restarts", "t_0": 3, "t_mult": 2, "eta_min": 0.002},
    {"type": "one_cycle", "max_lr": 0.7, "total_steps": 51},
    {"type": "one_cycle", "max_lr": 0.7, "total_steps": 51, "pct_start": 0.45, "anneal_strategy": "linear",
     "base_momentum": 0.5, "max_momentum": 0.99, "div_factor": 10, "final_div_factor": 100},
    {"type": "one_cycle", "max_lr": 0.7, "total_steps": 60, "three_phase": True},
    {"type": "one_cycle", "max_lr": 0.7, "total_steps": 51, "cycle_momentum": False, "pct_start": 0.0},
    [{"type": "linear", "start_factor": 0.1, "total_iters": 8}, {"type": "exponential", "gamma": 0.95}],
    [{"type": "linear", "total_iters": 8}, {"type": "cosine", "t_max": 42, "eta_min": 0.001},
     {"type": "step", "step_size": 20, "gamma": 0.5}],
    [{"type": "cosine_warm_restarts", "t_0": 10}, {"type": "exponential", "gamma": 0.9}],
]

PLATEAU_CASES = [
    {"type": "reduce_on_plateau"},
    {"type": "reduce_on_plateau", "patience": 2, "factor": 0.5, "cooldown": 3, "min_lr": 0.004},
    {"type": "reduce_on_plateau", "patience": 1, "mode": "max", "threshold": 0.05},
    {"type": "reduce_on_plateau", "patience": 1, "threshold": 0.2, "threshold_mode": "abs", "eps": 0.0001},
    {"type": "reduce_on_plateau", "patience": 0, "mode": "max", "threshold": 0.1, "threshold_mode": "abs"},
]


def started(size, which):
    return torch.tensor([((which * 7 + i * 5) % 11 - 5) / 8 for i in range(size)], dtype=torch.float32)


def gradient(size, which, step):
    """Exact in float: the same everywhere."""
    return torch.tensor([((which * 3 + i * 7 + step * 13) % 29 - 13) / 16 for i in range(size)], dtype=torch.float32)


def has_gradient(which, step):
    return which == 0 or step % 4 != 1


def make_optimizer(settings, parameters, second=None):
    options = {key: value for key, value in settings.items() if key != "type"}
    groups = [{"params": [parameters[0]]}, {"params": [parameters[1]], **(second or {})}]
    if "betas" in options:
        options["betas"] = tuple(options["betas"])
    return OPTIMIZERS[settings["type"]](groups, **options)


def make_schedulers(settings, optimizer):
    """In PyTorch's ChainedScheduler where there are several."""
    made = []
    for one in settings if isinstance(settings, list) else [settings]:
        cls = getattr(torch.optim.lr_scheduler, SCHEDULERS[one["type"]])
        made.append(cls(optimizer, **{NAMES.get(key, key): value for key, value in one.items() if key != "type"}))
    return made[0] if len(made) == 1 else torch.optim.lr_scheduler.ChainedScheduler(made)


def optimizer_case(settings, scheduler, second):
    parameters = [torch.nn.Parameter(started(size, which)) for which, size in enumerate(SIZES)]
    optimizer = make_optimizer(settings, parameters, second)
    schedule = make_schedulers(scheduler, optimizer) if scheduler else None
    after = []
    for step in range(STEPS):
        for which, parameter in enumerate(parameters):
            parameter.grad = gradient(SIZES[which], which, step) if has_gradient(which, step) else None
        optimizer.step()
        if schedule:
            schedule.step()
        if step % 10 == 9:
            after.append([value for parameter in parameters for value in parameter.tolist()])
    case = {"optimizer": settings, "parameters": after}
    if scheduler:
        case["scheduler"] = scheduler
    if second:
        case["second_group"] = second
    return case


def schedule_case(settings):
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    schedule = make_schedulers(settings, optimizer)
    cycles = isinstance(settings, dict) and settings["type"] == "one_cycle" and settings.get("cycle_momentum", True)
    case = {"scheduler": settings, "lr": []}
    if cycles:
        case["momentum"] = []
    for count in range(STEPS + 1):
        if count:
            optimizer.step()
            schedule.step()
        case["lr"].append(optimizer.param_groups[0]["lr"])
        if cycles:
            case["momentum"].append(optimizer.param_groups[0]["momentum"])
    return case


def plateau_case(settings):
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    schedule = make_schedulers(settings, optimizer)
    metrics, rates = [], []
    for epoch in range(STEPS):
        metrics.append(4 / (1 + min(epoch, 30) // 6) + epoch * 7 % 5 / 8)
        schedule.step(metrics[-1])
        rates.append(optimizer.param_groups[0]["lr"])
    return {"scheduler": settings, "metrics": metrics, "lr": rates}


def main():
    torch.set_num_threads(1)
    out = {"made_by": f"{os.path.basename(__file__)} with torch {torch.__version__.split('+')[0]}",
           "optimizers": [optimizer_case(*case) for case in OPTIMIZER_CASES],
           "schedules": [schedule_case(case) for case in SCHEDULE_CASES],
           "plateaus": [plateau_case(case) for case in PLATEAU_CASES]}
    lines = [f' "made_by": {json.dumps(out.pop("made_by"))}']
    for key, cases in out.items():
        lines.append(f' "{key}": [\n' + ",\n".join("  " + json.dumps(case) for case in cases) + "\n ]")
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_reference.json"), "w") as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
