#!/usr/bin/env python3
"""Writes golden_values.h: inputs and results of PyTorch's functions in double precision, where a
definition could be misread: order of equal elements and of NaN, halves, corrections, reductions.

usage: golden_values.py >golden_values.h     needs torch; the test needs it not

All inputs are floats without rounding. Equal elements have no order in torch.topk: its places are
the first ones of a stable sort.
"""

import torch
import torch.nn.functional as F

torch.set_default_dtype(torch.float64)
INF, NAN = float("inf"), float("nan")

ORDER = torch.tensor(
    [[2, 1, 2, -0.0, 0, NAN, 1, -INF], [INF, 3, 3, NAN, NAN, -1, 3, 0.5], [7, 6, 5, 4, 3, 2, 1, 0]]
)
STEPS = torch.tensor([-2.5, -1.5, -0.5, -0.25, 0.5, 1.5, 2.5, 3.75, 8388609, -INF, INF, NAN])
ANGLES = torch.tensor(
    [0, 2**-20, -0.75, 3.140625, 100, -12345.5, 2.0**40, 3 * 2.0**60, -(2.0**100)]
)
SPREAD = torch.tensor([[1, 4, -2, 0.5, 3], [2, 2, 2, 2, 2]])
LOGITS = torch.tensor([[1.5, -0.5, 2, 0.25], [-1, 3, 0.75, -2.5], [0, 0, 0, 40]])
SHARES = torch.tensor([[0.25, 0.5, 0, 0.25], [0, 0, 1, 0], [0.125, 0.125, 0.25, 0.5]])
WEIGHTS = torch.tensor([0.5, 2, 1, 0.25])
EDGES = torch.tensor([[1, -INF, 2], [-INF, -INF, -INF], [INF, 1, 0], [500, 1000, 1000.5]])
PLACES = torch.tensor([[1, 1, 0], [3, 0, 3]])
UNIQUE = torch.tensor([[1, 3, 0], [2, 0, 3]])
ADDED = torch.tensor([[10, 20, 30], [40, 50, 60]], dtype=torch.float64)
QUERIES = torch.arange(12.0).reshape(1, 2, 3, 2) / 4 - 1
KEYS = torch.arange(16.0).reshape(1, 2, 4, 2) / 8 - 0.25
VALUES = torch.arange(24.0).reshape(1, 2, 4, 3) / 5 - 2
SEEN = torch.tensor([[1, 0, 1, 0], [0, 0, 0, 0], [0, 1, 1, 1]], dtype=torch.float64)


def attended(q):
    """(N, H, T, E); position 1 sees no key."""
    return F.scaled_dot_product_attention(q, KEYS, VALUES, attn_mask=SEEN > 0.5)


def slope(f, x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(f(x), x)[0]


def order(descending):
    return torch.sort(ORDER, dim=1, descending=descending, stable=True)


LOGS = LOGITS.log_softmax(1)
ARRAYS = {
    "order": ORDER,
    "sorted_up": order(False).values,
    "sorted_up_places": order(False).indices,
    "sorted_down": order(True).values,
    "sorted_down_places": order(True).indices,
    "columns_up_places": torch.sort(ORDER, dim=0, stable=True).indices,
    "top": torch.topk(ORDER, 3, dim=1).values,
    "top_places": order(True).indices[:, :3],
    "least": torch.topk(ORDER, 3, dim=1, largest=False).values,
    "steps": STEPS,
    "rounded": torch.round(STEPS),
    "floors": torch.floor(STEPS),
    "ceilings": torch.ceil(STEPS),
    "angles": ANGLES,
    "sines": torch.sin(ANGLES),
    "cosines": torch.cos(ANGLES),
    "spread": SPREAD,
    "std_0": SPREAD.std(1, correction=0),
    "std_1": SPREAD.std(1),
    "std_2": SPREAD.std(1, correction=2),
    "std_all": SPREAD.std(),
    "std_slopes": slope(lambda x: x.std(1).sum(), SPREAD),
    "logits": LOGITS,
    "shares": SHARES,
    "weights": WEIGHTS,
    "soft": F.cross_entropy(LOGITS, SHARES),
    "soft_weighted": F.cross_entropy(LOGITS, SHARES, weight=WEIGHTS),
    "soft_sum": F.cross_entropy(LOGITS, SHARES, weight=WEIGHTS, reduction="sum"),
    "soft_slopes": slope(lambda x: F.cross_entropy(x, SHARES, weight=WEIGHTS), LOGITS),
    "logs": LOGS,
    "kl_sum": F.kl_div(LOGS, SHARES, reduction="sum"),
    "kl_batch": F.kl_div(LOGS, SHARES, reduction="batchmean"),
    "kl_logs": F.kl_div(LOGS, LOGS.flip(0), reduction="batchmean", log_target=True),
    "kl_slopes": slope(lambda x: F.kl_div(x, SHARES, reduction="batchmean"), LOGS),
    "edges": EDGES,
    "lse_rows": EDGES.logsumexp(1),
    "lse_columns": LOGITS.logsumexp(0),
    "sums_rows": LOGITS.cumsum(1),
    "sums_columns": LOGITS.cumsum(0),
    "places": PLACES,
    "added": ADDED,
    "scattered_rows": LOGITS[:2].scatter_add(1, PLACES, ADDED),
    "unique": UNIQUE,
    "overwritten_rows": LOGITS[:2].scatter(1, UNIQUE, ADDED),
    "overwritten_columns": LOGITS.scatter(0, torch.tensor([[2, 0, 1, 2]]), WEIGHTS[None]),
    "overwritten_slopes": slope(
        lambda x: LOGITS[:2].scatter(1, UNIQUE, x.square()).square().sum(), ADDED
    ),
    "left_slopes": slope(lambda x: x.scatter(1, UNIQUE, ADDED).square().sum(), LOGITS[:2]),
    "one_hot": F.one_hot(PLACES, 5),
    "queries": QUERIES,
    "keys": KEYS,
    "carried": VALUES,
    "seen": SEEN,
    "attended": attended(QUERIES),
    "attended_slopes": slope(lambda q: attended(q).square().sum(), QUERIES),
    "filled": LOGITS.masked_fill(WEIGHTS > 0.75, -INF),
}


def number(v):
    if v != v:
        return "(double)NAN"
    return "INFINITY" if v == INF else "-INFINITY" if v == -INF else repr(v)


print("/* Written by golden_values.py. */\n/* clang-format off */\n#include <math.h>\n")
for name, y in ARRAYS.items():
    values = y.double().flatten().tolist()
    lines = [", ".join(map(number, values[i : i + 4])) for i in range(0, len(values), 4)]
    print(f"static const double {name}[] = {{\n    " + ",\n    ".join(lines) + "};")
