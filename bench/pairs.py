#!/usr/bin/env python3
"""Speed of two builds against each other, in alternating pairs: which one is first changes from
pair to pair, so that what else the machine does meets both alike.

usage: bench/pairs.py BEFORE AFTER [--pairs N] [--only NAME,NAME]
  BEFORE, AFTER   build folders (with levin and bench/), of commits whose programs of bench/ take
                  the same arguments; make the first with
                    git worktree add --detach ../before COMMIT && make -C ../before
  --pairs N       30; an odd one too
  --only          some of: resnet18 resnet50 two_ranks gpt2 start version overhead

Prints for each the median times and, pair by pair, how many times as fast AFTER is: median, the
middle half, least and largest; the same in seconds of all cores, which mean something on a busy
machine, too. ResNets and ranks stay open and take steps in turns; the others start for every pair.
Writes out/bench/pairs.json. Judges nothing: exit 1 only when a program failed.
"""

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

CORES = len(os.sched_getaffinity(0))
TINY = [
    "train", "classify", "data=builtin:shapes", "model=cnn", "image_size=32", "batch_size=8",
    "max_steps=1", "val_split=0", "quiet=true", "overwrite=true",
]  # fmt: skip


class Ranks:
    """Processes of bench/ddp_rank.c: `world` ranks of a run, idle except in their turn."""

    ROOM = 1 << 16  # the memory in which they find each other, zeros; more than they need
    STEPS = 2

    def __init__(self, build, net, side, batch, world):
        cores = max(CORES // world, 1)
        fd = os.memfd_create("pairs", 0)
        os.ftruncate(fd, self.ROOM)
        self.ranks = [
            subprocess.Popen(
                [f"{build}/bench/ddp_rank", net]
                + [str(n) for n in (side, batch, world, rank, world, cores, 4 << 20, fd)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                pass_fds=[fd],
            )
            for rank in range(world)
        ]
        os.close(fd)
        self.losses = []
        for p in self.ranks:
            if p.stdout.readline() != "ready\n":
                raise SystemExit(f"{build}/bench/ddp_rank {net} did not start")
        self.turn()  # the first steps make kernels

    def turn(self):
        """Seconds per step of the slowest rank, and of all cores."""
        for p in self.ranks:
            p.stdin.write(f"{self.STEPS}\n")
            p.stdin.flush()
        answers = [p.stdout.readline().split() for p in self.ranks]
        if not all(answers):
            raise SystemExit("a rank ended")
        self.losses = answers[0][7:]
        return max(float(a[0]) for a in answers), sum(float(a[1]) for a in answers)

    def close(self):
        for p in self.ranks:
            p.stdin.close()
            p.wait()


def children_s():
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


class Program:
    """One that is started `times` times for every turn, in a folder of its own, and timed whole, or
    by what it writes into the file `read` below `keys`: wall, and of all cores."""

    losses = ()

    def __init__(self, build, arguments, times=1, read=None, keys=()):
        self.command = [f"{build}/{arguments[0]}", *arguments[1:]]
        self.times, self.read, self.keys = times, read, keys
        self.folder = tempfile.TemporaryDirectory(prefix="levin-pairs-")
        self.once()  # brings it into the page cache

    def once(self):
        used, start = children_s(), time.perf_counter()
        done = subprocess.run(
            self.command, cwd=self.folder.name, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        took, used = time.perf_counter() - start, children_s() - used
        if self.read is None:
            if done.returncode != 0:
                raise SystemExit(f"{' '.join(self.command)}: {done.stderr.decode()}")
            return took, used
        with open(f"{self.folder.name}/{self.read}") as f:  # it judges lines of its own: any code
            found = json.load(f)
        return tuple(found[key]["median"] for key in self.keys)

    def turn(self):
        return tuple(statistics.median(v) for v in zip(*(self.once() for _ in range(self.times))))

    def close(self):
        self.folder.cleanup()


def start(build, *arguments):
    return Program(build, ["levin", *arguments], times=5)


GPT2 = "gpt2/32-true/levin"
# name: what it is, unit, factor on seconds, how a side is opened
ITEMS = {
    "version": ("levin --version", "ms", 1e3, lambda b: start(b, "--version")),
    "start": ("a run of one step, exec to exit", "ms", 1e3, lambda b: start(b, *TINY, "out=o")),
    "overhead": (
        "a step of an empty model",
        "us",
        1,
        lambda b: Program(
            b, ["bench/bench_overhead"], 5, "out/bench/overhead.json", ["overhead_us"]
        ),
    ),
    "resnet18": (
        "ResNet-18, 64 of 64 x 64",
        "ms",
        1e3,
        lambda b: Ranks(b, "resnet18", 64, 64, 1),
    ),
    "two_ranks": (
        "the same as two ranks",
        "ms",
        1e3,
        lambda b: Ranks(b, "resnet18", 64, 64, 2),
    ),
    "resnet50": (
        "ResNet-50, 16 of 224 x 224",
        "ms",
        1e3,
        lambda b: Ranks(b, "resnet50", 224, 16, 1),
    ),
    "gpt2": (
        "GPT-2 124M, 4 texts of 64 tokens",
        "ms",
        1e3,
        lambda b: Program(
            b,
            ["bench/bench_gpt2_step", "gpt2", "32-true", "2"],
            1,
            "out/bench/gpt2_step.json",
            [GPT2, f"{GPT2}/cores"],
        ),
    ),
}


def all_cores_s():
    with open("/proc/stat") as f:
        return sum(int(n) for n in f.readline().split()[1:4]) / os.sysconf("SC_CLK_TCK")


def spread(ratios):
    """Median, quartiles, least and largest."""
    q = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 else ratios * 3
    return {"median": q[1], "quartiles": [q[0], q[2]], "least": min(ratios), "most": max(ratios)}


def print_ratio(what, s):
    print(
        f"  {what:<14} {s['median']:6.3f} times as fast  half within [{s['quartiles'][0]:.3f}, "
        f"{s['quartiles'][1]:.3f}], all within [{s['least']:.3f}, {s['most']:.3f}]"
    )


def measure(name, builds, pairs):
    """Runs the pairs of one item; its row in the file."""
    about, unit, factor, open_side = ITEMS[name]
    sides = [open_side(build) for build in builds]
    took = [[], []]
    equal = True
    for pair in range(pairs):
        for i in (0, 1) if pair % 2 == 0 else (1, 0):
            took[i].append(sides[i].turn())
        equal = equal and sides[0].losses == sides[1].losses
    for side in sides:
        side.close()
    same = "" if not sides[0].losses else ", equal losses" if equal else ", LOSSES DIFFER"
    print(f"{name}: {about}; {pairs} pairs{same}")
    row = {"pairs": pairs, "equal_losses": equal if sides[0].losses else None}
    for k, what in enumerate(("wall", "cores")):
        if len(took[0][0]) <= k:
            continue
        before, after = ([turn[k] for turn in side] for side in took)
        medians = [statistics.median(side) * factor for side in (before, after)]
        row[what] = {"before": medians[0], "after": medians[1], "unit": unit}
        row[what]["ratio"] = spread([b / a for b, a in zip(before, after)])
        print(f"  {what:<14} {medians[0]:.4g} {unit} before, {medians[1]:.4g} {unit} after")
        print_ratio("", row[what]["ratio"])
    sys.stdout.flush()
    return row


def main():
    parser = argparse.ArgumentParser(description="two builds in alternating pairs")
    parser.add_argument("before")
    parser.add_argument("after")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--only", default=",".join(ITEMS))
    args = parser.parse_args()
    builds = [os.path.abspath(args.before), os.path.abspath(args.after)]
    names = args.only.split(",")
    unknown = [name for name in names if name not in ITEMS]
    if unknown or args.pairs < 1:
        parser.error(f"unknown: {unknown}; {', '.join(ITEMS)}; --pairs is at least 1")
    rows, begin, used = {}, time.perf_counter(), all_cores_s()
    for name in names:
        rows[name] = measure(name, builds, args.pairs)
    t = os.times()
    ours = t.user + t.system + t.children_user + t.children_system
    others = (all_cores_s() - used - ours) / ((time.perf_counter() - begin) * CORES)
    print(f"{CORES} cores, other programs used {others * 100:.0f} % of them")
    os.makedirs("out/bench", exist_ok=True)
    with open("out/bench/pairs.json", "w") as f:
        json.dump({"builds": builds, "cores": CORES, "others": others, "items": rows}, f, indent=2)


if __name__ == "__main__":
    main()
