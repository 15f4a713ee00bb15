#!/usr/bin/env python3
"""Writes golden_long.h: 50 steps of PyTorch's RMSprop in double precision.

usage: golden_long.py >golden_long.h     needs torch and numpy; the tests need neither

Four tensors: (5, 7), (5), (3, 2, 3, 3), (6). Weight k of a tensor of size n starts at ((29 k + n)
mod 48 - 23.5) / 32; its gradient of step t = 1, 2, ... is ((37 k + 101 t + n) mod 64 - 31.5) / 64:
all of them floats without rounding. In cases with idle tensors, tensor i has no gradient in the
steps t with (t + i) mod 5 = 0. The learning rate is halved after step 30.
"""

import numpy as np
import torch

SHAPES = [(5, 7), (5,), (3, 2, 3, 3), (6,)]
STEPS = 50
CASES = [
    ("rmsprop", "RMSPROP", {"lr": 0.01}, False),
    ("rmsprop, decay", "RMSPROP", {"lr": 0.01, "weight_decay": 0.1, "alpha": 0.9}, True),
    ("rmsprop, momentum", "RMSPROP", {"lr": 0.005, "momentum": 0.9, "weight_decay": 0.05}, True),
    ("rmsprop, centered", "RMSPROP", {"lr": 0.01, "centered": True, "eps": 1e-3}, False),
    (
        "rmsprop, centered, momentum",
        "RMSPROP",
        {"lr": 0.005, "centered": True, "momentum": 0.8, "alpha": 0.95, "weight_decay": 0.02},
        True,
    ),
]
CLASSES = {"RMSPROP": torch.optim.RMSprop}
DEFAULTS = {"RMSPROP": {"alpha": 0.99, "eps": 1e-8}}


def start(n):
    return np.array([((29 * k + n) % 48 - 23.5) / 32 for k in range(n)])


def gradient(n, t):
    return np.array([((37 * k + 101 * t + n) % 64 - 31.5) / 64 for k in range(n)])


def run(cls, options, idle):
    w = [torch.nn.Parameter(torch.tensor(start(int(np.prod(s))).reshape(s))) for s in SHAPES]
    optim = cls(w, **options)
    for t in range(1, STEPS + 1):
        if t == 31:
            optim.param_groups[0]["lr"] *= 0.5
        for i, p in enumerate(w):
            none = idle and (t + i) % 5 == 0
            p.grad = None if none else torch.tensor(gradient(p.numel(), t).reshape(p.shape))
        optim.step()
    return np.concatenate([p.detach().numpy().ravel() for p in w])


def fields(options):
    return ", ".join(f".{k} = {str(v).lower()}" for k, v in options.items())


def numbers(values, per_line=6):
    text = [f"{float(v):.12g}" for v in values]
    lines = (", ".join(text[i : i + per_line]) for i in range(0, len(text), per_line))
    return ",\n      ".join(lines)


print(f"/* Written by golden_long.py, with PyTorch {torch.__version__.split('+')[0]}. */")
print("/* clang-format off */")
print(f"enum {{ LONG_STEPS = {STEPS}, LONG_N = {sum(int(np.prod(s)) for s in SHAPES)} }};")
print("typedef struct golden_long {\n    const char *name;\n    lvni_optim_options options;")
print("    bool idle;\n    double w[LONG_N];\n} golden_long;\n")
print("static const golden_long long_cases[] = {")
for name, kind, options, idle in CASES:
    options = {**DEFAULTS[kind], **options}
    print(f'    {{"{name}",\n     {{.kind = LVNI_OPTIM_{kind}, {fields(options)}}},')
    print(f"     {str(idle).lower()},\n     {{{numbers(run(CLASSES[kind], options, idle))}}}}},")
print("};")
