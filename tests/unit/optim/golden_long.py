#!/usr/bin/env python3
"""Writes golden_long.h: 60 steps of PyTorch's RMSprop and Adafactor in double precision.

usage: golden_long.py >golden_long.h     needs torch and numpy; the tests need neither

Five tensors: (5, 7), (5), a convolution (3, 3, 3, 2) that lies as (O, H, W, I) = (3, 3, 2, 3), (6),
(2, 3, 4). Weight k of a tensor of size n starts at ((29 k + n)
mod 48 - 23.5) / 32; its gradient of step t = 1, 2, ... is ((37 k + 101 t + n) mod 64 - 31.5) / 64:
all of them floats without rounding. In cases with idle tensors, tensor i has no gradient in the
steps t with (t + i) mod 5 = 0. The learning rate is halved after step 30.
"""

import numpy as np
import torch

SHAPES = [(5, 7), (5,), (3, 3, 2, 3), (6,), (2, 3, 4)]
STEPS = 60
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
    ("adafactor", "ADAFACTOR", {"lr": 0.01}, False),
    ("adafactor, decay", "ADAFACTOR", {"lr": 0.05, "weight_decay": 0.1}, True),
    (
        "adafactor, large",
        "ADAFACTOR",
        {"lr": 0.3, "beta2_decay": -0.5, "eps": 0.5, "eps2": 0.6, "d": 1.2},
        True,
    ),
]
CLASSES = {"RMSPROP": torch.optim.RMSprop, "ADAFACTOR": torch.optim.Adafactor}
DEFAULTS = {
    "RMSPROP": {"alpha": 0.99, "eps": 1e-8},
    "ADAFACTOR": {"beta2_decay": -0.8, "eps": 2.0**-23, "eps2": 1e-3, "d": 1.0},
}


def start(n):
    return np.array([((29 * k + n) % 48 - 23.5) / 32 for k in range(n)])


def gradient(n, t):
    return np.array([((37 * k + 101 * t + n) % 64 - 31.5) / 64 for k in range(n)])


def shaped(values, shape):
    """As PyTorch has it."""
    tensor = torch.tensor(values.reshape(shape))
    return tensor.permute(0, 3, 1, 2).contiguous() if len(shape) == 4 else tensor


def here(tensor):
    """The elements in the order in which they lie."""
    return (tensor.permute(0, 2, 3, 1) if tensor.ndim == 4 else tensor).reshape(-1).numpy()


def run(cls, options, idle):
    if "eps2" in options:
        options = {**options, "eps": (options["eps"], options["eps2"])}
        del options["eps2"]
    w = [torch.nn.Parameter(shaped(start(int(np.prod(s))), s)) for s in SHAPES]
    optim = cls(w, **options)
    for t in range(1, STEPS + 1):
        if t == 31:
            optim.param_groups[0]["lr"] *= 0.5
        for i, p in enumerate(w):
            none = idle and (t + i) % 5 == 0
            p.grad = None if none else shaped(gradient(p.numel(), t), SHAPES[i])
        optim.step()
    return np.concatenate([here(p.detach()) for p in w])


def filled(items, indent, after):
    """As many per line as fit in 100 columns, with what comes after the last one."""
    lines = [""]
    for item in items:
        if len(indent) + len(f"{lines[-1]}, {item}{after}") > 100:
            lines.append("")
        lines[-1] += f", {item}" if lines[-1] else item
    return f",\n{indent}".join(lines) + after


def fields(kind, options):
    all = {"kind": f"LVNI_OPTIM_{kind}", **options}
    return filled(
        [f".{k} = {str(v).lower() if k != 'kind' else v}" for k, v in all.items()], 6 * " ", "},"
    )


def numbers(values):
    return filled([f"{float(v):.12g}" for v in values], 6 * " ", "}},")


print(f"/* Written by golden_long.py, with PyTorch {torch.__version__.split('+')[0]}. */")
print("/* clang-format off */")
print(f"enum {{ LONG_STEPS = {STEPS}, LONG_N = {sum(int(np.prod(s)) for s in SHAPES)} }};")
print("typedef struct golden_long {\n    const char *name;\n    lvni_optim_options options;")
print("    bool idle;\n    double w[LONG_N];\n} golden_long;\n")
print("static const golden_long long_cases[] = {")
for name, kind, options, idle in CASES:
    options = {**DEFAULTS[kind], **options}
    print(f'    {{"{name}",\n     {{{fields(kind, options)}')
    print(f"     {str(idle).lower()},\n     {{{numbers(run(CLASSES[kind], options, idle))}")
print("};")
