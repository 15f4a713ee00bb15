#!/usr/bin/env python3
"""levin's training step on a GPU against PyTorch's, eager and compiled, in turns within one run.

usage: gpu_duel.py GPU_STEP [NET/PRECISION/BATCH/SIZE ...] [--device cuda:0] [--turns 5]
                   [--seconds 1.0] [--sides "levin,no graph,eager,compiled"] (and "graphs")
       GPU_STEP: build/bench/gpu_step; its backend lies in build, or in LEVIN_BACKEND_PATH

Each program warms up, then they take turns of about --seconds; printed are medians, the spread and
the ratio PyTorch / levin turn by turn. Losses are not compared here (the batches differ).
"""

import argparse
import os
import statistics
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUNS = ["resnet50/bf16-mixed/256/224", "resnet18/bf16-mixed/64/64", "gpt2/bf16-mixed/8/1024"]


class Side:
    def __init__(self, name, command):
        self.name, self.times, self.host, self.peak, self.loss = name, [], [], 0.0, 0.0
        self.child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.ready = self.child.stdout.readline().split()

    def steps(self, n):
        """Seconds per step, or None when the program has ended."""
        try:
            self.child.stdin.write(f"{n}\n")
            self.child.stdin.flush()
            line = self.child.stdout.readline().split()
        except BrokenPipeError:
            line = []
        if len(line) < 4:
            return None
        self.host.append(float(line[1]))
        self.peak, self.loss = float(line[2]), float(line[3])
        return float(line[0])

    def end(self):
        self.child.stdin.close()
        self.child.wait()


def duel(run, options):
    net, precision, batch, size = run.split("/")
    arguments = [net, precision, batch, size]
    script = [sys.executable, str(HERE / "gpu_step.py"), *arguments]
    step = [options.gpu_step, *arguments, options.device]
    commands = {
        "levin": [*step, "on"],
        "no graph": [*step, "off"],
        "eager": [*script, "eager"],
        "compiled": [*script, "compiled"],
        "graphs": [*script, "graphs"],  # compiled with CUDA graphs
    }
    sides = [Side(name, commands[name]) for name in options.sides.split(",")]
    print(f"{net} {precision} batch {batch}, {size}: {[' '.join(s.ready) for s in sides]}")
    sides = [s for s in sides if s.ready[:1] == ["ready"]]
    if not sides:
        raise SystemExit(f"{run}: none of the programs starts; what they printed is above")
    for side in list(sides):
        for n in (3, 12):
            once = side.steps(n)
        if once is None:
            print(f"  {side.name} ended")
            sides.remove(side)
            continue
        side.n = max(3, round(options.seconds / once))
        side.host.clear()
    for _ in range(options.turns):
        for side in sides:
            side.times.append(side.steps(side.n))
    for side in sides:
        times, host = sorted(side.times), statistics.median(side.host)
        ratio = sorted(t / own for t, own in zip(side.times, sides[0].times))
        print(
            f"  {side.name:9} {statistics.median(times) * 1e3:9.3f} ms"
            f" [{times[0] * 1e3:.3f}, {times[-1] * 1e3:.3f}]"
            f"  host {host * 1e3:7.3f} ms  {int(batch) / statistics.median(times):9.1f} samples/s"
            f"  / levin {statistics.median(ratio):.3f} [{ratio[0]:.3f}, {ratio[-1]:.3f}]"
            f"  {side.peak / 2**30:.1f} GiB  loss {side.loss:.4f}",
            flush=True,
        )
        side.end()


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("gpu_step")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--sides", default="levin,no graph,eager,compiled")
    parser.add_argument("runs", nargs="*", default=RUNS)
    options = parser.parse_intermixed_args()
    beside = Path(options.gpu_step).resolve().parent.parent  # the build folder
    os.environ.setdefault("LEVIN_BACKEND_PATH", str(beside))
    for run in options.runs or RUNS:
        duel(run, options)


main()
