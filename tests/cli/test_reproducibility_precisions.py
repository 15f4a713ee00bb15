"""One hash on a network with residual blocks, in the precisions that change its kernels: two of
them each day (turns.py), or those that are named.

usage: test_reproducibility_precisions.py LEVIN [DATA [PRECISION...]]

An epoch of 48 images has 3 steps, the last one of 12 images; micro-batches then have one sample
less.
"""

import sys

from reproducibility_case import CORES, main, resume, same, train
from today import of_today, turn_line

SHAPES = ["data=builtin:shapes", "data.count=48"]


def precision(name, steps, stop):
    """stop 0: without a resume, and not on one core."""
    arguments = [
        "model=resnet18",
        f"precision={name}",
        "wgrad_threads=1",
        "batch_size=18",
        "eval_batch_size=18",
    ]
    whole = arguments + [f"max_steps={steps}"]
    first = train(whole + ["lanes=1", "num_workers=0"], SHAPES)
    same(
        train(whole + ["lanes=3", "num_workers=2"], SHAPES),
        first,
        f"resnet18, {name}: 3 lanes, 2 workers",
    )
    if stop > 0:
        same(
            train(whole + ["lanes=2", "num_workers=3"], SHAPES, cores=CORES[:1]),
            first,
            f"resnet18, {name}: 2 lanes, 3 workers, one core",
        )
    if stop > 0:
        stopped = train(arguments + [f"max_steps={stop}", "lanes=2"], SHAPES)
        resume(stopped, f"max_steps={steps}", "lanes=1")
        same(stopped, first, f"resnet18, {name}: resumed at step {stop}")


def precisions():
    """f16 is computed in f32, which is slow."""
    steps = {"32-true": (4, 2), "bf16-mixed": (4, 2), "16-mixed": (4, 2), "bf16-true": (4, 0)}
    print(turn_line(2))
    for name in sys.argv[3:] or of_today(steps, 2):
        precision(name, *steps[name])


main(precisions)
