#!/usr/bin/env python3
"""Writes golden_gan.h: metrics of images by scikit-image, SciPy and NumPy, and a CFID by the
formula with SciPy's matrix root, all in double precision.

usage: golden_gan.py >golden_gan.h     needs numpy, scipy and scikit-image; the test needs them not

Element e of a truth is ((37 e + 11) mod 101 - 30) / 64, of its image that plus
((53 e + 7) mod 29 - 14) / 128: float32 holds them all. The mask has the elements with e mod 3 != 1.
Sample k of 5 is the image plus ((31 e + 17 k) mod 23 - 11) / 64. Embeddings: element e of matrix m
of the CFID is ((7919 e + 104729 m) mod 1009) / 1009, of the samples 0.7 of that plus 0.3 of the
condition's.
"""

import numpy as np
import scipy.linalg
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

HEIGHT, WIDTH, SAMPLES = 12, 17, 5
e = np.arange(HEIGHT * WIDTH)
truth = (((37 * e + 11) % 101 - 30) / 64).reshape(HEIGHT, WIDTH)
image = truth + (((53 * e + 7) % 29 - 14) / 128).reshape(HEIGHT, WIDTH)
mask = (e % 3 != 1).reshape(HEIGHT, WIDTH)
samples = np.stack(
    [image + (((31 * e + 17 * k) % 23 - 11) / 64).reshape(HEIGHT, WIDTH) for k in range(SAMPLES)]
)


def number(name, value):
    print(f"static const double {name} = {float(value)!r};")


def numbers(name, values):
    texts = [repr(float(v)) for v in np.ravel(values)]
    lines = [", ".join(texts[i : i + 4]) for i in range(0, len(texts), 4)]
    print(f"static const double {name}[] = {{\n    " + ",\n    ".join(lines) + "};")


print("/* Written by golden_gan.py. */\n/* clang-format off */")
print(f"enum {{ HEIGHT = {HEIGHT}, WIDTH = {WIDTH}, SAMPLES = {SAMPLES} }};")
number("want_psnr", peak_signal_noise_ratio(truth, image, data_range=truth.max()))
number("want_ssim", structural_similarity(truth, image, data_range=truth.max()))
a, b = truth[mask], image[mask]
mse = np.mean((a - b) ** 2)
number("want_rmse", np.sqrt(mse))
number("want_pearson", np.corrcoef(a, b)[0, 1])
number("want_snr", 10 * np.log10(np.mean(a**2) / mse))
number("want_masked_psnr", 10 * np.log10(a.max() ** 2 / mse))
number("want_psnr_legacy", 10 * np.log10(a.max() / mse))
number("want_apsd", samples.std(axis=0).mean())
mean = samples.mean(axis=0).astype(np.float32).astype(float)[mask]
std = samples.std(axis=0).astype(np.float32).astype(float)[mask]
error = np.abs(mean - a)
ratio = (mean - a) / std
numbers(
    "want_uncertainty",
    [
        np.corrcoef(std, error)[0, 1],
        np.corrcoef(error, a)[0, 1],
        np.corrcoef(std, a)[0, 1],
        ratio.mean(),
        ratio.std(),
        np.mean(np.abs(ratio - ratio.mean()) <= ratio.std()),
    ],
)
levels = np.array([0.137, 0.5, 0.66])
low, high = (
    np.quantile(samples, (1 + s * levels) / 2, axis=0, method="weibull") for s in (-1, 1)
)
numbers("want_coverage", ((truth >= low) & (truth <= high))[:, mask].mean(axis=1))

N, D, K = 40, 6, 4


def matrix(m, columns):
    return ((7919 * np.arange(N * columns) + 104729 * m) % 1009 / 1009).reshape(N, columns)


y = matrix(2, K)
x, s = matrix(0, D), 0.7 * matrix(1, D)
s[:, :K] += 0.3 * y


def covariance(p, q):
    return (p - p.mean(0)).T @ (q - q.mean(0)) / N


xy, sy, inverse = covariance(x, y), covariance(s, y), np.linalg.pinv(covariance(y, y))
x_y = covariance(x, x) - xy @ inverse @ xy.T
s_y = covariance(s, s) - sy @ inverse @ sy.T
root = scipy.linalg.sqrtm(s_y)
part = np.sum((x.mean(0) - s.mean(0)) ** 2)
rest = np.trace((xy - sy) @ inverse @ (xy - sy).T) + np.trace(
    x_y + s_y - 2 * scipy.linalg.sqrtm(root @ x_y @ root)
)
print(f"enum {{ CFID_N = {N}, CFID_D = {D}, CFID_K = {K} }};")
numbers("want_cfid", [part + rest, part, rest])
