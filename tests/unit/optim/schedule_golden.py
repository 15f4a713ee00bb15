#!/usr/bin/env python3
"""Writes schedule_golden.h: 60 steps of PyTorch's schedules, with the momentum of OneCycleLR, and
60 validations of ReduceLROnPlateau.

usage: schedule_golden.py >schedule_golden.h     needs torch; the test does not
"""

import torch
from torch.optim import lr_scheduler as sched

STEPS = 60
WARM = 6


def run(make, steps=STEPS, **options):
    """Rates by the optimizer's, and beta1 of each step."""
    p = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    optim = torch.optim.AdamW([p], lr=1.0, **options)
    schedule = make(optim)
    rates, betas = [], []
    for _ in range(steps):
        rates.append(optim.param_groups[0]["lr"])
        betas.append(optim.param_groups[0]["betas"][0])
        optim.step()
        if len(rates) < steps:
            schedule.step()
    return rates, betas


def warm(start):
    return [start * (t + 1) / WARM for t in range(WARM)]


def numbers(values, per_line=5):
    lines = [
        ", ".join(f"{float(v):.17g}" for v in values[i : i + per_line])
        for i in range(0, len(values), per_line)
    ]
    return ",\n      ".join(lines)


def cycle(options):
    c = {"rise": 0.3, "start": 1 / 25, "end": 1 / 25 / 1e4, **options}
    return "{" + ", ".join(f".{k} = {v}" for k, v in c.items()) + "}"


def schedules():
    once = lambda n, **o: run(lambda x: sched.OneCycleLR(x, max_lr=1.0, total_steps=n, **o), n)
    moves = {"moves_momentum": "true", "base_momentum": 0.85, "max_momentum": 0.95}
    none = [-1.0] * STEPS
    rows = [
        (
            "exponential",
            "EXPONENTIAL, .gamma = 0.9, .step_size = 1",
            run(lambda o: sched.ExponentialLR(o, 0.9))[0],
            none,
        ),
        (
            "polynomial",
            "POLYNOMIAL, .total_steps = 60, .power = 0.9",
            run(lambda o: sched.PolynomialLR(o, total_iters=60, power=0.9))[0],
            none,
        ),
        (
            "polynomial that ends early",
            "POLYNOMIAL, .total_steps = 40, .power = 2.0",
            run(lambda o: sched.PolynomialLR(o, total_iters=40, power=2.0))[0],
            none,
        ),
        (
            "restarts",
            "RESTARTS, .step_size = 7, .period_factor = 1, .end_factor = 0.05",
            run(lambda o: sched.CosineAnnealingWarmRestarts(o, T_0=7, eta_min=0.05))[0],
            none,
        ),
        (
            "restarts of growing periods",
            "RESTARTS, .step_size = 5, .period_factor = 2",
            run(lambda o: sched.CosineAnnealingWarmRestarts(o, T_0=5, T_mult=2))[0],
            none,
        ),
        (
            "warm-up, then restarts",
            "RESTARTS, .warmup_steps = 6, .step_size = 5, .period_factor = 3",
            warm(1.0)
            + run(lambda o: sched.CosineAnnealingWarmRestarts(o, T_0=5, T_mult=3))[0][
                : STEPS - WARM
            ],
            none,
        ),
        ("one cycle", f"ONECYCLE, .total_steps = 60, .cycle = {cycle(moves)}", *once(60)),
        (
            "one linear cycle",
            "ONECYCLE, .total_steps = 60, .cycle = "
            + cycle({"linear": "true", "rise": 0.45, "start": 0.1, "end": 0.001, **moves}),
            *once(
                60, anneal_strategy="linear", pct_start=0.45, div_factor=10, final_div_factor=100
            ),
        ),
        (
            "one cycle of three phases",
            "ONECYCLE, .total_steps = 60, .cycle = " + cycle({"three_phases": "true", **moves}),
            *once(60, three_phase=True),
        ),
        (
            "one cycle with its momentum",
            f"ONECYCLE, .total_steps = 60, .cycle = {cycle({})}",
            once(60)[0],
            none,
        ),
        (
            "warm-up, then one cycle",
            f"ONECYCLE, .warmup_steps = 6, .total_steps = 60, .cycle = {cycle(moves)}",
            warm(1 / 25) + once(54)[0],
            [0.95] * WARM + once(54)[1],
        ),
    ]
    print("static const schedule_case schedule_cases[] = {")
    for name, given, rates, momentum in rows:
        print(
            f'    {{"{name}", {{.kind = LVNI_SCHEDULE_{given}}},\n     {{{numbers(rates)}}},'
            f"\n     {{{numbers(momentum)}}}}},"
        )
    print("};\n")


def metrics():
    """Falls, then noise on a plateau, then a fall again."""
    return [
        2.0 / (1 + t) if t < 12 else 0.16 + (37 * t % 11) / 500 - (0.08 if t > 45 else 0)
        for t in range(STEPS)
    ]


def plateaus():
    rows = [
        ("min", {"factor": 0.5, "patience": 3}, 1.0),
        ("cooldown", {"factor": 0.5, "patience": 2, "cooldown": 4}, 1.0),
        ("max", {"mode": "max", "factor": 0.5, "patience": 4, "threshold": 0.01}, 1.0),
        ("abs", {"factor": 0.3, "patience": 2, "threshold": 0.02, "threshold_mode": "abs"}, 1.0),
        (
            "max abs",
            {
                "mode": "max",
                "factor": 0.3,
                "patience": 2,
                "threshold": 0.02,
                "threshold_mode": "abs",
            },
            1.0,
        ),
        ("min_lr", {"factor": 0.1, "patience": 1, "min_lr": 0.003}, 0.1),
        ("every time", {"factor": 0.9, "patience": 0}, 0.1),
    ]
    print(f"static const double metrics[] = {{\n      {numbers(metrics())}}};\n")
    print("static const plateau_case plateau_cases[] = {")
    for name, options, lr in rows:
        p = torch.nn.Parameter(torch.zeros(1))
        optim = torch.optim.SGD([p], lr=lr)
        schedule = sched.ReduceLROnPlateau(optim, **options)
        rates = []
        for value in metrics():
            schedule.step(value)
            rates.append(optim.param_groups[0]["lr"])
        o = {
            "patience": 10,
            "cooldown": 0,
            "factor": 0.1,
            "threshold": 1e-4,
            "min_lr": 0,
            **options,
        }
        given = ", ".join(
            f".{k} = {o[k]}" for k in ("patience", "cooldown", "factor", "threshold", "min_lr")
        )
        given += f", .larger_is_better = {str(o.get('mode') == 'max').lower()}"
        given += f", .absolute = {str(o.get('threshold_mode') == 'abs').lower()}"
        print(f'    {{"{name}", {{{given}}}, {lr},\n     {{{numbers(rates)}}}}},')
    print("};")


print("/* Written by schedule_golden.py. */\n/* clang-format off */")
print("enum { GOLDEN_STEPS = %d };" % STEPS)
print(
    "typedef struct schedule_case {\n    const char *name;\n    lvni_optim_schedule schedule;\n"
    "    double factor[GOLDEN_STEPS], momentum[GOLDEN_STEPS];\n} schedule_case;"
)
print(
    "typedef struct plateau_case {\n    const char *name;\n"
    "    lvni_optim_plateau_options options;\n"
    "    double lr, rate[GOLDEN_STEPS];\n} plateau_case;\n"
)
schedules()
plateaus()
