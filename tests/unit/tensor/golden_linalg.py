#!/usr/bin/env python3
"""Writes golden_linalg.h: eigenvalues, singular values and their vectors of torch.linalg in double
precision, with the signs that linalg.h chooses.

usage: golden_linalg.py >golden_linalg.h     needs torch; the test needs it not

Element e of a matrix of n elements is ((29 e + n) mod 48 - 23.5) / 16; a symmetric one is that plus
its transpose.
"""

import torch


def given(m, n):
    numel = m * n
    return torch.tensor(
        [((29 * e + numel) % 48 - 23.5) / 16 for e in range(numel)], dtype=torch.float64
    ).reshape(m, n)


def signs(rows):
    """Of each row: of the element of the largest size, the first of several."""
    size = rows.abs()
    first = (size >= (1 - 1e-6) * size.amax(1, keepdim=True)).double().argmax(1, keepdim=True)
    return rows.gather(1, first).sign()


def emit(name, x):
    values = [repr(v) for v in x.flatten().tolist()]
    lines = [", ".join(values[i : i + 4]) for i in range(0, len(values), 4)]
    print(f"static const double {name}[] = {{\n    " + ",\n    ".join(lines) + "};")


print("/* Written by golden_linalg.py. */\n/* clang-format off */")
a = given(6, 6)
values, vectors = torch.linalg.eigh(a + a.T)
rows = vectors.T.flip(0)
emit("eigen_values", values.flip(0))
emit("eigen_vectors", rows * signs(rows))
for name, m, n in (("tall", 7, 4), ("wide", 3, 8)):
    u, s, vt = torch.linalg.svd(given(m, n), full_matrices=False)
    sign = signs(vt)
    emit(name + "_u", u * sign.T)
    emit(name + "_s", s)
    emit(name + "_vt", vt * sign)
print("/* clang-format on */")
