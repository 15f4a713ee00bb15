"""What the makers of golden files share: the rule by which both sides fill weights, images and
noise (golden_support.c has the same), and the files.

A gradient jumps where the input of a relu changes its sign. Among hundreds of thousands some inputs
are within f32's rounding of zero; choose_seed() finds a seed for which none is, or the fewest are.
"""

import json
import struct

import numpy as np
import torch

M32 = np.uint64(0xFFFFFFFF)
M64 = 2**64
GOLDEN_RATIO = 0x9E3779B97F4A7C15

seed = 1


def hash_of(name):
    h = 0xCBF29CE484222325
    for byte in name.encode():
        h = (h ^ byte) * 0x100000001B3 % M64
    return h


def key_of(purpose):
    z = (seed + GOLDEN_RATIO * purpose) % M64
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % M64
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % M64
    z ^= z >> 31
    return z & 0xFFFFFFFF, z >> 32


def words(purpose, n, call=0, step=0, at=0):
    """n words of the stream of a purpose: Philox 4x32-10, as src/core/rng.h packs it; of this step,
    call and, at, micro-batch."""
    k0, k1 = key_of(purpose)
    c = [np.arange((n + 3) // 4, dtype=np.uint64)] + [np.zeros((n + 3) // 4, np.uint64)] * 3
    c[1], c[2], c[3] = c[1] + np.uint64(call), c[2] + np.uint64(at), c[3] + np.uint64(step)
    for r in range(10):
        p0, p1 = np.uint64(0xD2511F53) * c[0], np.uint64(0xCD9E8D57) * c[2]
        r0, r1 = np.uint64((k0 + r * 0x9E3779B9) % 2**32), np.uint64((k1 + r * 0xBB67AE85) % 2**32)
        c = [p1 >> np.uint64(32) ^ c[1] ^ r0, p1 & M32, p0 >> np.uint64(32) ^ c[3] ^ r1, p0 & M32]
    return np.stack(c, axis=1).reshape(-1)[:n]


def uniform(name, n):
    """n numbers in [-1, 1)"""
    return (words(hash_of(name), n) >> np.uint64(8)).astype(np.float64) * 2.0**-23 - 1.0


def draw_purpose(name):
    """Of a draw with a name in the model's root, whose path is empty (src/ops/op_random.c)."""
    return (hash_of("") + GOLDEN_RATIO * hash_of(name)) % M64


def draw_uniform(name, n, call, step=0):
    """lvn_random_uniform: the f32 numbers, exactly"""
    return (words(draw_purpose(name), n, call, step) >> np.uint64(8)).astype(np.float64) * 2.0**-24


def draw_normal(name, n, call, step=0):
    """lvn_random_normal, Box-Muller: the f32 numbers, except where NumPy's logarithm and cosine
    round another way"""
    w = words(draw_purpose(name), 2 * n, call, step).astype(np.float64)
    radius, turn = (w[0::2] + 0.5) * 2.0**-32, w[1::2] * 2.0**-32
    z = np.sqrt(-2.0 * np.log(radius)) * np.cos(2.0 * np.pi * turn)
    return z.astype(np.float32).astype(np.float64)


def value(name, shape, last):
    """last: what the last norm of a residual block is called, "bn3". Branches are smaller than what
    they are added to: sums of many equal ones would double what rounding does in each block."""
    n = int(np.prod(shape))
    u = uniform(name, n)
    if name.endswith("running_var"):
        u = 1.0 + 0.3 * u
    elif name.endswith("weight") and len(shape) == 1:
        u = (1.0 + 0.2 * u) * (0.25 if name.endswith(f"{last}.weight") else 1.0)
    elif len(shape) == 1:
        u = 0.1 * u
    elif shape[0] == 1:  # embeddings
        u = 0.2 * u
    else:
        u = u * np.sqrt((6.0 if len(shape) == 4 else 3.0) / (n // shape[0]))
    return u.astype(np.float32).reshape(shape)


def fill(model, last, ours=str):
    state = model.state_dict()
    for name, t in state.items():
        if not name.endswith("num_batches_tracked"):
            t.copy_(torch.from_numpy(value(ours(name), tuple(t.shape), last)))


def places(n):
    return [(2 * j + 1) * n // 16 for j in range(8)]


def gradient_row(gradient):
    """Largest magnitude, norm and eight elements."""
    g = gradient.reshape(-1).numpy()
    norm = np.sqrt((g.astype(np.float64) ** 2).sum())
    return np.concatenate([[np.abs(g).max(), norm], g[places(len(g))]])


def difference(name, a, b):
    """Largest relative difference, as the test counts it."""
    if "/grad/" in name:
        return (
            max(
                abs(a[0] - b[0]) / b[0], abs(a[1] - b[1]) / b[1], np.abs(a[2:] - b[2:]).max() / b[0]
            )
            if b[0] > 1e-9
            else 0.0
        )
    return np.abs(a - b).max() / np.abs(b).max()


def count_kinks(wide, narrow):
    """Inputs, in f64 and in f32, that are not much further from zero than the one is from the other
    in their channel (axis 1)."""
    return sum(
        int(
            (
                x.abs() < 2 * (x - y).abs().amax([i for i in range(x.ndim) if i != 1], keepdim=True)
            ).sum()
        )
        for x, y in zip(wide, narrow)
    )


def choose_seed(what, kinks):
    """The first of 30 seeds with the fewest inputs near a kink, which kinks() counts; returns how
    many they are."""
    global seed
    counts = {}
    for seed in range(1, 31):
        counts[seed] = kinks()
        if counts[seed] == 0:
            break
    seed = min(counts, key=counts.get)
    print(what, "seed", seed, counts[seed], "near a kink", flush=True)
    return counts[seed]


def write(path, arrays, meta):
    """Safetensors, f64, names in order."""
    header, at = {"__metadata__": meta}, 0
    for name in sorted(arrays):
        a = np.asarray(arrays[name])
        header[name] = {
            "dtype": "F64",
            "shape": list(a.shape),
            "data_offsets": [at, at + 8 * a.size],
        }
        at += 8 * a.size
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in sorted(arrays):
            f.write(np.ascontiguousarray(arrays[name], "<f8").tobytes())
