#!/usr/bin/env python3
"""levin pretrain against lightly-train, in turns, on the same photos.

usage: bench/pretrain_step.py BUILD PHOTOS LIGHTLY [--KEY VALUE ...]
  BUILD    build folder, with levin
  PHOTOS   folder with at least a batch of images
  LIGHTLY  the program lightly-train, of an environment that has it
  --side 64 --batch 32 --steps 20 --pairs 3 --model torchvision/resnet18 --method simclr
  --local 32       side of the small views of dino and dinov2
  --teacher FILE   weights of the same network, for distillation

Both log every step; whenever a program's metrics.jsonl has grown, the processor time of its
processes is read. Prints medians with the least and largest value: images per second of a core
between the first step and the last, seconds and processor time from the start to the first step,
and the largest memory of all its processes (PSS); then the ratios, pair by pair. Processor time
means something on a busy machine, too; seconds do not. Judges nothing.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

TICK = os.sysconf("SC_CLK_TCK")


def children(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as f:
            direct = [int(n) for n in f.read().split()]
    except OSError:
        return []
    return [q for p in direct for q in [p, *children(p)]]


def cpu_s(pids, seen):
    """Of processes that are there, and as they were last seen, of those that ended."""
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as f:
                fields = f.read().rpartition(")")[2].split()
        except OSError:
            continue
        seen[pid] = (int(fields[11]) + int(fields[12])) / TICK
    return sum(seen.values())


def pss_mib(pids):
    kib = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/smaps_rollup") as f:
                kib += next(int(line.split()[1]) for line in f if line.startswith("Pss:"))
        except (OSError, StopIteration):
            continue
    return kib / 1024


def steps_done(path):
    """Lines that a program writes of its epochs count as the step that they stand behind."""
    try:
        with open(path, encoding="utf-8") as f:
            lines = [json.loads(line) for line in f if line.endswith("\n")]
    except OSError:
        return 0
    return len({line["step"] for line in lines if any("train" in key for key in line)})


def measure(command, out, batch):
    """(images per core-second, s to the first step, core-s to it, MiB)"""
    env = dict(os.environ, LIGHTLY_TRAIN_EVENTS_DISABLED="1", OMP_WAIT_POLICY="passive")
    started, seen, marks, most, watched = time.perf_counter(), {}, [], 0.0, 0.0
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=env)
        while process.poll() is None:
            pids = [process.pid, *children(process.pid)]
            used, now = cpu_s(pids, seen), time.perf_counter() - started
            n = steps_done(f"{out}/metrics.jsonl")
            if n > 0 and (not marks or n > marks[-1][0]):
                marks.append((n, now, used))
            if now - watched > 0.5 or not most:
                most, watched = max(most, pss_mib(pids)), now
            time.sleep(0.02)
        if process.returncode != 0 or len(marks) < 2:
            log.seek(0)
            raise SystemExit(f"{' '.join(command)}:\n{log.read().decode()[-3000:]}")
    first, last = marks[0], marks[-1]
    return (last[0] - first[0]) * batch / (last[2] - first[2]), first[1], first[2], most


def text(values):
    return f"{statistics.median(values):.4g} [{min(values):.4g}, {max(values):.4g}]"


def main():
    parser = argparse.ArgumentParser(description="levin pretrain against lightly-train")
    parser.add_argument("build")
    parser.add_argument("photos")
    parser.add_argument("lightly")
    for name, usual in (("side", 64), ("batch", 32), ("steps", 20), ("pairs", 3)):
        parser.add_argument(f"--{name}", type=int, default=usual)
    parser.add_argument("--model", default="torchvision/resnet18")
    parser.add_argument("--method", default="simclr")
    parser.add_argument("--local", type=int)
    parser.add_argument("--teacher")
    a = parser.parse_args()
    found = [[], []]
    with tempfile.TemporaryDirectory(prefix="levin-pretrain-") as folder:
        same = [f"data={a.photos}", f"model={a.model}", f"method={a.method}"]
        same += [f"batch_size={a.batch}", "accelerator=cpu", "num_workers=2"]
        if a.local:
            same += [f"transform_args.local_view.view_size=[{a.local},{a.local}]"]
        if a.teacher:
            same += [f"method_args.teacher={a.model}", f"method_args.teacher_weights={a.teacher}"]
        size = f"transform_args.image_size=[{a.side},{a.side}]"
        levin = [f"{a.build}/levin", "pretrain", *same, f"image_size={a.side}", "quiet=true"]
        levin += [f"max_steps={a.steps}", "log_every_n_steps=1", "wgrad_threads=1"]
        theirs = [a.lightly, "pretrain", *same, size, "epochs=1000", "precision=32-true"]
        theirs += [f"trainer_args={{max_steps: {a.steps}, log_every_n_steps: 1}}"]
        sides = (("levin", levin), ("lightly-train", theirs))
        for pair in range(a.pairs):
            for i in (0, 1) if pair % 2 == 0 else (1, 0):
                out = f"{folder}/{pair}{i}"
                found[i].append(measure([*sides[i][1], f"out={out}"], out, a.batch))
                print(sides[i][0], *(f"{x:.4g}" for x in found[i][-1]), file=sys.stderr, flush=True)
    print(f"{a.method}, {a.model}, batch {a.batch} of {a.side} x {a.side}, {a.pairs} pairs")
    what = ("images per core-second", "s to the first step", "core-s to it", "MiB at most")
    for k, name in enumerate(what):
        ours, other = ([row[k] for row in side] for side in found)
        print(f"  {name}: levin {text(ours)}, lightly-train {text(other)}")
        print(f"    levin / lightly-train {text([x / y for x, y in zip(ours, other)])}")


if __name__ == "__main__":
    main()
