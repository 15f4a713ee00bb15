"""One hash on a network with residual blocks, in the precisions that change its kernels.

usage: test_reproducibility_precisions.py LEVIN [DATA [PRECISION...]]
"""

import sys

from reproducibility_case import CORES, main, resume, same, train


def precision(name, steps, stop):
    """stop 0: without a resume; one core only where there is time for it."""
    arguments = [
        "model=resnet18",
        f"precision={name}",
        "wgrad_threads=1",
        "batch_size=32",
        "eval_batch_size=32",
    ]
    whole = arguments + [f"max_steps={steps}"]
    first = train(whole + ["lanes=1", "num_workers=0"])
    same(
        train(whole + ["lanes=3", "num_workers=2"]), first, f"resnet18, {name}: 3 lanes, 2 workers"
    )
    if steps > 4:
        same(
            train(whole + ["lanes=2", "num_workers=3"], cores=CORES[:1]),
            first,
            f"resnet18, {name}: 2 lanes, 3 workers, one core",
        )
    if stop > 0:
        stopped = train(arguments + [f"max_steps={stop}", "lanes=2"])
        resume(stopped, f"max_steps={steps}", "lanes=1")
        same(stopped, first, f"resnet18, {name}: resumed at step {stop}")


def precisions():
    """f16 is computed in f32, which is slow: few steps."""
    steps = {"32-true": (12, 7), "bf16-mixed": (12, 7), "16-mixed": (4, 2), "bf16-true": (4, 0)}
    for name in sys.argv[3:] or steps:
        precision(name, *steps[name])


main(precisions)
