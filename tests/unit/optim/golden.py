#!/usr/bin/env python3
"""Writes golden.h: steps of PyTorch's optimizers, its schedules and its weight averages, and of
LARS in numpy, in double precision.

usage: golden.py >golden.h     needs torch and numpy; the tests need neither

Three tensors: weight (5, 7), bias (5), norm (6). Weight k of a tensor of size n starts at ((29 k +
n) mod 48 - 23.5) / 32; its gradient of step t = 1, 2, ... is ((37 k + 101 t + n) mod 64 - 31.5) /
64: all of them floats without rounding.
"""

import numpy as np
import torch
from torch.optim import lr_scheduler as sched
from torch.optim.swa_utils import AveragedModel

SHAPES = [(5, 7), (5,), (6,)]
STEPS = 8
IDLE = [
    (1, 5),
    (2, 3, 4),
    (8,),
]  # of cases with idle tensors: the steps in which a tensor has no gradient


def start(n):
    return np.array([((29 * k + n) % 48 - 23.5) / 32 for k in range(n)])


def gradient(n, t):
    return np.array([((37 * k + 101 * t + n) % 64 - 31.5) / 64 for k in range(n)])


def torch_run(cls, decay_1d, idle, **options):
    w = [torch.nn.Parameter(torch.tensor(start(int(np.prod(s))).reshape(s))) for s in SHAPES]
    groups = [{"params": [w[0]]}, {"params": w[1:], **({} if decay_1d else {"weight_decay": 0.0})}]
    optim = cls(groups, **options)
    for t in range(1, STEPS + 1):
        for p, without in zip(w, IDLE):
            p.grad = (
                None
                if idle and t in without
                else torch.tensor(gradient(p.numel(), t).reshape(p.shape))
            )
        optim.step()
    return np.concatenate([p.detach().numpy().ravel() for p in w])


def lars_run(idle, lr, weight_decay, momentum, trust_coefficient, eps, nesterov=False):
    out = []
    for shape, without in zip(SHAPES, IDLE):
        w = start(int(np.prod(shape)))
        buffer = None
        for t in range(1, STEPS + 1):
            if idle and t in without:
                continue
            g = gradient(w.size, t)
            trust = 1.0
            if len(shape) > 1 and weight_decay > 0.0:
                w_norm, g_norm = np.linalg.norm(w), np.linalg.norm(g)
                trust = trust_coefficient * w_norm / (g_norm + weight_decay * w_norm + eps)
            d = trust * (g + weight_decay * w)
            buffer = d if buffer is None else momentum * buffer + d
            w = w - lr * (d + momentum * buffer if nesterov else buffer)
        out.append(w)
    return np.concatenate(out)


def arguments(options):
    return ", ".join(
        f".{name} = {str(value).lower() if isinstance(value, bool) else value}"
        for name, value in options.items()
    )


def numbers(values, per_line=6):
    lines = [
        ", ".join(f"{float(v):.12g}" for v in values[i : i + per_line])
        for i in range(0, len(values), per_line)
    ]
    return ",\n      ".join(lines)


def print_steps():
    sgd, adam, adamw = torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW
    names = {sgd: "SGD", adam: "ADAM", adamw: "ADAMW", None: "LARS"}
    cases = [
        ("plain", sgd, {"lr": 0.1}, True),
        ("decay", sgd, {"lr": 0.1, "weight_decay": 0.05}, True),
        ("momentum", sgd, {"lr": 0.1, "weight_decay": 0.05, "momentum": 0.9}, True),
        (
            "dampening",
            sgd,
            {"lr": 0.1, "weight_decay": 0.05, "momentum": 0.9, "dampening": 0.25},
            True,
        ),
        (
            "nesterov",
            sgd,
            {"lr": 0.1, "weight_decay": 0.05, "momentum": 0.9, "nesterov": True},
            True,
        ),
        ("no decay of one axis", sgd, {"lr": 0.1, "weight_decay": 0.05, "momentum": 0.9}, False),
        (
            "adam",
            adam,
            {"lr": 0.02, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},
            True,
        ),
        (
            "adam, no decay of one axis",
            adam,
            {"lr": 0.02, "weight_decay": 0.1, "beta1": 0.8, "beta2": 0.95, "eps": 1e-3},
            False,
        ),
        (
            "adamw",
            adamw,
            {"lr": 0.02, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8},
            True,
        ),
        (
            "adamw, no decay of one axis",
            adamw,
            {"lr": 0.02, "weight_decay": 0.3, "beta1": 0.9, "beta2": 0.99, "eps": 1e-8},
            False,
        ),
        (
            "lars",
            None,
            {
                "lr": 2.0,
                "weight_decay": 0.01,
                "momentum": 0.9,
                "trust_coefficient": 0.02,
                "eps": 1e-8,
            },
            True,
        ),
        (
            "lars without momentum",
            None,
            {
                "lr": 2.0,
                "weight_decay": 0.02,
                "momentum": 0.0,
                "trust_coefficient": 0.02,
                "eps": 0.1,
            },
            True,
        ),
        (
            "lars without decay",
            None,
            {
                "lr": 0.1,
                "weight_decay": 0.0,
                "momentum": 0.9,
                "trust_coefficient": 0.02,
                "eps": 1e-8,
            },
            True,
        ),
        (
            "lars nesterov",
            None,
            {
                "lr": 2.0,
                "weight_decay": 0.01,
                "momentum": 0.5,
                "trust_coefficient": 0.02,
                "eps": 1e-8,
                "nesterov": True,
            },
            True,
        ),
    ]
    with_idle = ("decay", "momentum", "dampening", "nesterov", "adam", "adamw", "lars")
    rows = [(*case, False) for case in cases] + [
        (f"{case[0]}, idle", *case[1:], True) for case in cases if case[0] in with_idle
    ]
    print("static const golden_steps steps_cases[] = {")
    for name, cls, options, decay_1d, idle in rows:
        given = dict(options)
        if "beta1" in given:
            given["betas"] = (given.pop("beta1"), given.pop("beta2"))
        values = lars_run(idle, **given) if cls is None else torch_run(cls, decay_1d, idle, **given)
        print(
            f'    {{"{name}", {{.kind = LVNI_OPTIM_{names[cls]}, '
            f"{arguments(options)}}}, {str(not decay_1d).lower()}, "
            f"{str(idle).lower()},\n"
            f"     {{{numbers(values)}}}}},"
        )
    print("};\n")


def factors(make, n):
    """The first n learning rates with a base of 1."""
    optim = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule, out = make(optim), []
    for _ in range(n):
        out.append(optim.param_groups[0]["lr"])
        optim.step()
        schedule.step()
    return out


def rise(o, n):
    return sched.LinearLR(o, start_factor=1 / n, end_factor=1.0, total_iters=n - 1)


def print_schedules():
    n = 16
    step = lambda o: sched.StepLR(o, step_size=3, gamma=0.1)
    multi = lambda o: sched.MultiStepLR(o, milestones=[2, 5, 9], gamma=0.5)
    cases = [
        ("step", "STEP", {"step_size": 3, "gamma": 0.1}, factors(step, n)),
        (
            "multistep",
            "MULTISTEP",
            {"milestone": "{2, 5, 9}", "n_milestones": 3, "gamma": 0.5},
            factors(multi, n),
        ),
        (
            "cosine",
            "COSINE",
            {"total_steps": 16, "end_factor": 0.05},
            factors(lambda o: sched.CosineAnnealingLR(o, T_max=15, eta_min=0.05), n),
        ),
        (
            "linear",
            "LINEAR",
            {"total_steps": 12, "end_factor": 0.2},
            factors(lambda o: sched.LinearLR(o, 1.0, 0.2, total_iters=12), n),
        ),
        ("warm-up", "CONSTANT", {"warmup_steps": 4}, factors(lambda o: rise(o, 4), n)),
        (
            "warm-up and step",
            "STEP",
            {"step_size": 3, "gamma": 0.1, "warmup_steps": 4},
            np.multiply(factors(lambda o: rise(o, 4), n), factors(step, n)),
        ),
        (
            "warm-up and multistep",
            "MULTISTEP",
            {"milestone": "{2, 5, 9}", "n_milestones": 3, "gamma": 0.5, "warmup_steps": 4},
            np.multiply(factors(lambda o: rise(o, 4), n), factors(multi, n)),
        ),
        (
            "warm-up, then cosine",
            "COSINE",
            {"warmup_steps": 4, "total_steps": 16, "end_factor": 0.05},
            factors(lambda o: rise(o, 4), 4)
            + factors(lambda o: sched.CosineAnnealingLR(o, T_max=11, eta_min=0.05), 12),
        ),
        (
            "warm-up, then linear",
            "LINEAR",
            {"warmup_steps": 4, "total_steps": 12, "end_factor": 0.0},
            factors(lambda o: rise(o, 4), 4)
            + factors(lambda o: sched.LinearLR(o, 1.0, 0.0, total_iters=8), 12),
        ),
    ]
    print("static const golden_schedule schedule_cases[] = {")
    for name, kind, options, values in cases:
        print(
            f'    {{"{name}", {{.kind = LVNI_SCHEDULE_{kind}, '
            f"{arguments(options)}}},\n     {{{numbers(values)}}}}},"
        )
    print("};\n")


def print_average():
    model = torch.nn.Module()
    model.w = torch.nn.Parameter(torch.zeros(7, dtype=torch.float64))
    averages = [
        AveragedModel(model, avg_fn=lambda a, w, t: 0.9 * a + 0.1 * w),
        AveragedModel(
            model, avg_fn=lambda a, w, t: a + (1 - min(0.9, (1 + int(t)) / (10 + int(t)))) * (w - a)
        ),
    ]
    for t in range(1, STEPS + 1):
        model.w.data = torch.tensor(gradient(7, t))
        for average in averages:
            average.update_parameters(model)
    for name, average in zip(("plain", "warm"), averages):
        print(
            f"static const double average_{name}[7] = {{\n      "
            f"{numbers(average.module.w.detach().numpy())}}};"
        )


print("/* Written by golden.py. */")
print("/* clang-format off */")
print(
    "enum { GOLDEN_STEPS = %d, GOLDEN_N = %d, GOLDEN_FACTORS = 16 };"
    % (STEPS, sum(int(np.prod(s)) for s in SHAPES))
)
print(
    "typedef struct golden_steps {\n    const char *name;\n    lvni_optim_options "
    "options;\n    bool no_decay_1d, idle;\n    double w[GOLDEN_N];\n} golden_steps;"
)
print(
    "typedef struct golden_schedule {\n    const char *name;\n    lvni_optim_schedule "
    "schedule;\n    double factor[GOLDEN_FACTORS];\n} golden_schedule;\n"
)
print_steps()
print_schedules()
print_average()
