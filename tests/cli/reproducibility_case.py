"""What the tests of reproducibility share: one configuration, many layouts, one hash.

Photos: DATA/clothing/ (341 photos in 10 classes); absent, or without DATA, the built-in shapes
serve.
Every run: 341 images, E = 32 (last step 21), S = 6, CNN with batch norm, dropout, flips, colour
jitter, AdamW, clipping.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

from reproducibility_lines import first_difference, reproducibility_lines
from today import of_today, turn_line

LEVIN = os.path.abspath(sys.argv[1])
PHOTOS = os.path.join(sys.argv[2], "clothing") if len(sys.argv) > 2 else ""
HAVE_PHOTOS = os.path.isdir(PHOTOS)
CORES = sorted(os.sched_getaffinity(0))
SHAPES = ["data=builtin:shapes", "data.count=341", "data.classes=10"]
DATA = [f"data={PHOTOS}"] if HAVE_PHOTOS else SHAPES
COMMON = [
    "train",
    "classify",
    "model=cnn",
    "image_size=32",
    "val_split=0",
    "micro_batches=6",
    "augment.hflip=0.5",
    "augment.brightness=0.4",
    "augment.contrast=0.4",
    "augment.saturation=0.4",
    "augment.hue=0.1",
    "model.dropout=0.1",
    "optim=adamw",
    "gradient_clip_val=1",
    "quiet=true",
    "seed=7",
    "log_every_n_steps=1",
]
work = tempfile.mkdtemp(prefix="levin-reproducibility-")
failures = []
runs = 0


def check(good, what):
    print(("ok   " if good else "FAIL ") + what, flush=True)
    if not good:
        failures.append(what)


def levin(arguments, cores=None, env=None):
    pin = (lambda: os.sched_setaffinity(0, cores)) if cores else None
    done = subprocess.run(
        [LEVIN] + arguments,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=pin,
        env=dict(os.environ, **(env or {})),
        timeout=600,
    )
    if done.returncode != 0:
        raise SystemExit(f"levin {' '.join(arguments)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def hashes(out, which="last"):
    lines = levin(["ckpt", "hash", f"{out}/checkpoints/{which}.safetensors"]).split()
    return lines[1], lines[3]  # weights, state


def train(arguments, data=None, common=None, **how):
    global runs
    runs += 1
    out = f"{work}/run{runs}"
    levin((common or COMMON) + (data or DATA) + arguments + [f"out={out}"], **how)
    return out


def resume(out, *arguments, **how):
    levin(["train", "classify", f"out={out}", "resume=true", "quiet=true", *arguments], **how)


def same(run, first, what):
    """State, and every number of metrics.jsonl except times, rates and memory."""
    check(hashes(run) == hashes(first), what)
    parts = first_difference(reproducibility_lines(run), reproducibility_lines(first))
    check(parts == "", f"{what}: metrics.jsonl {parts}")


def main(*parts, turns=1):
    """Runs those of this turn (turns.py) in order; exit code 1 if a check failed."""
    if turns > 1:
        print(turn_line(turns))
    try:
        print(f"data: {'341 photos' if HAVE_PHOTOS else 'built-in shapes'}")
        for part in of_today(parts, turns):
            start = time.monotonic()
            part()
            print(f"{part.__name__}: {time.monotonic() - start:.0f} s", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"{len(failures)} failures")
    if PHOTOS and not HAVE_PHOTOS:
        print(
            "skipped part: real photos (LEVIN_TEST_DATA names no folder with clothing/); the "
            "built-in shapes stood in for them"
        )
    sys.exit(1 if failures else 0)
