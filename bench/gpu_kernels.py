#!/usr/bin/env python3
"""The kernels of one training step on a GPU: how often each runs, its time, the bytes it moves, and
their share of what the device copies at most; of convolutions, products and attention by NVIDIA's
libraries, operations per second as a share of a large product's. Copy and product are measured
before, without the counters, and several times on end; kernels here begin with empty caches.

usage: gpu_kernels.py GPU_STEP NET/PRECISION/BATCH/SIZE [--device cuda:0] [--rows 30]
                      [--csv FILE] [--ncu ncu]
       GPU_STEP: build/bench/gpu_step; Nsight Compute reads the counters; torch measures the copy

Kernels run one by one here, so their times add up to less than a step has gaps, and to more than
one that overlaps them.
"""

import argparse
import collections
import csv
import os
import re
import shutil
import subprocess
from pathlib import Path

TIME, BYTES = "gpu__time_duration.sum", "dram__bytes.sum"
# kernels of cuBLASLt and cuDNN that multiply matrices, by what the libraries call them
PRODUCTS = re.compile(r"gemm|nvjet|cutlass|xmma|[fd]prop|grad_?w|[dw]grad|implicit|sdpa|sm\d\d_")
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "nsecond": 1e-9, "usecond": 1e-6}
UNITS |= {"byte": 1, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "msecond": 1e-3, "second": 1.0}


def copy_rate():
    """Bytes per second, read and written, of a large copy; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    a = torch.empty(1 << 30, dtype=torch.float32, device="cuda")
    b = torch.empty_like(a)
    times = []
    for _ in range(8):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        b.copy_(a)
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return 2 * 4 * a.numel() / sorted(times)[len(times) // 2]


def product_rate(precision, side=8192):
    """Operations per second of a large product in the type of a run; None without torch."""
    try:
        import torch
    except ImportError:
        return None
    types = {"bf16": torch.bfloat16, "16": torch.float16}
    dtype = types.get(precision.split("-")[0], torch.float32)
    a, b = (torch.randn(side, side, device="cuda", dtype=dtype) for _ in range(2))
    times = []
    for _ in range(12):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        a @ b
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end) * 1e-3)
    return 2 * side**3 / sorted(times)[len(times) // 2]


def launches(text):
    """(name, seconds, bytes) of each kernel, in order, from ncu's CSV."""
    lines = text.splitlines()
    first = next(i for i, line in enumerate(lines) if line.startswith('"ID"'))
    rows = list(csv.DictReader(lines[first:]))
    units, rows = rows[0], rows[1:]

    def number(row, key):
        return float(row[key].replace(",", "") or 0) * UNITS.get(units[key], 1)

    return [(row["Kernel Name"], number(row, TIME), number(row, BYTES)) for row in rows]


def last_step(all_launches):
    """The last launches of which as many, of the same names, come before."""
    names = [name for name, _, _ in all_launches]
    for n in range(8, len(names) // 2 + 1):
        if names[-n:] == names[-2 * n : -n]:
            return all_launches[-n:]
    return all_launches


def flops(text):
    """Of the products of a step, as gpu_step counts them; 0: not known."""
    found = re.search(r"^ready \S+ (\d+)$", text, re.M)
    return float(found[1]) if found else 0.0


def short(name):
    name = re.sub(r"^void ", "", name)
    name = re.sub(r"\(anonymous namespace\)::|<unnamed>::", "", name)
    name = re.sub(r"\((int|bool|unsigned int|long)\)", "", name)  # of template arguments
    return name.split("(")[0][:72]


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gpu_step")
    parser.add_argument("run")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--csv", default="")
    parser.add_argument("--ncu", default="ncu")
    options = parser.parse_args()
    if shutil.which(options.ncu) is None:
        raise SystemExit(f"there is no {options.ncu} here: --ncu names Nsight Compute")
    beside = Path(options.gpu_step).resolve().parent.parent  # the build folder
    os.environ.setdefault("LEVIN_BACKEND_PATH", str(beside))
    rate, products = copy_rate(), product_rate(options.run.split("/")[1])
    step = [options.gpu_step, *options.run.split("/"), options.device, "off"]
    counters = ["--metrics", f"{TIME},{BYTES}", "--csv", "--page", "raw", "--clock-control", "none"]
    done = subprocess.run(
        [options.ncu, *counters, *step], input="2\n", capture_output=True, text=True
    )
    if options.csv:
        Path(options.csv).write_text(done.stdout)
    if done.returncode != 0 or '"ID"' not in done.stdout:
        raise SystemExit(f"{options.ncu} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    step = last_step(launches(done.stdout))
    sums = collections.defaultdict(lambda: [0, 0.0, 0.0])
    for name, seconds, moved in step:
        for i, x in enumerate((1, seconds, moved)):
            sums[short(name)][i] += x
    total = sum(seconds for _, seconds, _ in step)
    print(f"{options.run}: {len(step)} launches, {total * 1e3:.2f} ms of kernels")
    if rate:
        print(f"copy: {rate / 1e12:.2f} TB/s, read and written")
    if products:
        print(f"product of two 8192 x 8192 matrices: {products / 1e12:.0f} TFLOP/s")
    work = flops(done.stdout)
    libraries = [seconds for name, seconds, _ in step if PRODUCTS.search(name)]
    if work and libraries:
        rest = f", {work / sum(libraries) / products:.2f} of that" if products else ""
        print(
            f"{len(libraries)} launches of libraries' products, {sum(libraries) * 1e3:.2f} ms; if"
            f" they are all of the step's {work / 1e12:.2f} TFLOP (own kernels are below):"
            f" {work / sum(libraries) / 1e12:.0f} TFLOP/s{rest}"
        )
    for name, (n, seconds, moved) in sorted(sums.items(), key=lambda s: -s[1][1])[: options.rows]:
        share = f"{moved / seconds / rate:5.2f}" if rate and seconds else "    -"
        print(
            f"{n:5d} {seconds * 1e3:8.3f} ms {seconds / total:6.1%}"
            f" {moved / 1e9:7.2f} GB {share} of a copy  {name}"
        )


main()
