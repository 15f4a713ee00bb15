#!/usr/bin/env python3
"""A run that was stopped, killed or broken off goes on as if nothing had been: state, best
checkpoint and metrics to the last digit.

usage: test_resume.py LEVIN [DATA]   needs no data: built-in shapes.
Every run: 500 shapes, 398 to train in 25 steps of 16 (the last of 14), 102 to validate, batch norm,
dropout, cosine schedule over 3 epochs.
"""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

from reproducibility_lines import first_difference, reproducibility_lines

LEVIN = os.path.abspath(sys.argv[1])
STEPS, EPOCHS, WAIT_S, TRIES = 25, 3, 120, 20
COMMON = [
    "train",
    "classify",
    "data=builtin:shapes",
    "data.count=500",
    "model=cnn",
    "image_size=16",
    "model.dropout=0.1",
    "batch_size=16",
    "micro_batches=4",
    "wgrad_threads=2",
    "eval_batch_size=16",
    "scheduler=cosine",
    "scheduler.warmup_steps=5",
    f"max_epochs={EPOCHS}",
    "log_every_n_steps=1",
    "seed=3",
]
work = tempfile.mkdtemp(prefix="levin-resume-")
failures = []


def check(good, what):
    print(("ok   " if good else "FAIL ") + what, flush=True)
    if not good:
        failures.append(what)


def levin(arguments, code=0, env=None):
    done = subprocess.run(
        [LEVIN] + arguments,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        env=dict(os.environ, **(env or {})),
    )
    if done.returncode != code:
        raise SystemExit(
            f"levin {' '.join(arguments)} left with {done.returncode}, not {code}:\n{done.stderr}"
        )
    return done.stdout + done.stderr


def resume(out, *arguments, code=0, env=None):
    return levin(
        ["train", "classify", "data=builtin:shapes", f"out={out}", "resume=true", *arguments],
        code,
        env,
    )


def hashes(out, which="last"):
    return levin(["ckpt", "hash", f"{out}/checkpoints/{which}.safetensors"]).split()[1:4:2]


def metadata(out):
    """Of the last checkpoint; {} when there is none."""
    try:
        with open(f"{out}/checkpoints/last.safetensors", "rb") as f:
            return json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))["__metadata__"]
    except OSError:
        return {}


def same(out, want, what):
    for which in ("last", "best"):
        check(
            hashes(out, which) == hashes(want, which),
            f"{what}: {which} has the undisturbed run's weights and state",
        )
    parts = first_difference(reproducibility_lines(out), reproducibility_lines(want))
    check(parts == "", f"{what}: metrics.jsonl as undisturbed {parts}")
    means = reproducibility_lines(out, only="train/loss")
    check(
        len(means) == EPOCHS and all("val/loss" in row for _, row in means),
        f"{what}: one line of means for each of {EPOCHS} epochs",
    )


def steps_logged(out):
    try:
        return open(f"{out}/metrics.jsonl").read().count('"lr":')
    except OSError:
        return 0


def break_off(name, number, at_step, *arguments):
    """A run ended by a signal once so many steps are logged; None when it was too fast for us."""
    out = f"{work}/{name}"
    shutil.rmtree(out, ignore_errors=True)
    p = subprocess.Popen(
        [LEVIN, *COMMON, f"out={out}", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    end = time.monotonic() + WAIT_S
    while p.poll() is None and steps_logged(out) < at_step and time.monotonic() < end:
        time.sleep(0.001)
    p.send_signal(number)
    code = p.wait(timeout=WAIT_S)
    return out if code == (143 if number == signal.SIGTERM else -number) else None


def stopped_within_an_epoch(name, number, at_step, *arguments):
    """Until the signal hit the middle of an epoch, as the checkpoint has it."""
    for _ in range(TRIES):
        out = break_off(name, number, at_step, *arguments)
        saved = {} if out is None else metadata(out)
        if int(saved.get("levin.step_in_epoch", 0)) > 0:
            return out, int(saved["levin.step"])
    raise SystemExit(
        f"{TRIES} runs were over before signal {number} could reach them within an epoch"
    )


def signals(whole):
    for at in (3, STEPS + 5):
        out, step = stopped_within_an_epoch("sigterm", signal.SIGTERM, at, "lanes=1")
        printed = resume(out, "lanes=2", "num_workers=1")
        check(
            f"step {step}, epoch {step // STEPS + 1}" in printed,
            f"stopped by SIGTERM after step {step}, and resumed from it",
        )
        check(
            "not reproducible" not in printed and "another run" not in printed,
            "on the same machine without a warning",
        )
        same(out, whole, f"SIGTERM after step {step}")
    out, step = stopped_within_an_epoch(
        "kill", signal.SIGKILL, STEPS + 8, "checkpoint.every_n_steps=3", "lanes=2"
    )
    resume(out, "lanes=1", "num_workers=0")
    same(out, whole, f"kill -9, going on from step {step}")
    out, step = stopped_within_an_epoch(
        "twice", signal.SIGKILL, 6, "checkpoint.every_n_steps=2", "lanes=3"
    )
    p = subprocess.Popen(
        [LEVIN, "train", "classify", "data=builtin:shapes", f"out={out}", "resume=true"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while p.poll() is None and steps_logged(out) < step + 12:
        time.sleep(0.001)
    p.kill()
    p.wait()
    resume(out)
    same(out, whole, f"kill -9 twice, first going on from step {step}")


def other_values(whole):
    out = f"{work}/changed"
    levin(COMMON + [f"out={out}", "max_steps=5", "scheduler=constant", "scheduler.warmup_steps=0"])
    before = hashes(out)
    for argument, expects in (
        (
            "batch_size=20",
            "effective_batch=16 (samples of an optimizer step), and this one has "
            "effective_batch=20",
        ),
        ("micro_batches=2 group=2", "give micro_batches=4"),
        ("wgrad_threads=1", "give wgrad_threads=2"),
        ("seed=4", "give seed=3"),
        ("drop_last=true", "give drop_last=false"),
        ("val_split=0.5", "n_samples=398"),
        ("data.count=600", "n_samples=398"),
        ("optim=sgd", "give optim.name (and its momentum)"),
        ("model=mlp", "another model"),
    ):
        printed = resume(out, *argument.split(), "max_steps=-1", code=64)
        check(
            expects in printed and "start a new run from its weights" in printed,
            f"within an epoch {argument} is refused, with what to do",
        )
    check(hashes(out) == before, "and the checkpoint stays as it was")
    resume(out, f"max_steps={STEPS}")
    printed = resume(out, "batch_size=20", "seed=4", f"max_steps={STEPS + 5}")
    reported = [
        line.split("=")[0]
        for line in printed.splitlines()
        if "from epoch 2 on this is another run" in line
    ]
    check(
        reported
        == [
            "warning: effective_batch",
            "warning: seed",
            "warning: data",
        ],  # the seed also cuts val_split
        "between two epochs batch_size and seed may change, with a warning each",
    )
    check("from here on" not in printed, "and without a second one that reports the same")
    printed = resume(out, f"max_steps={STEPS + 20}")
    check(
        "another run" not in printed and reproducibility_lines(out)[-1][0] == STEPS + 20,
        "an epoch of 20 steps comes to its end",
    )
    for isa in ("v2", "v3"):
        copy = f"{work}/{isa}"
        shutil.copytree(whole, copy)
        printed = resume(
            copy,
            "max_epochs=4",
            f"max_steps={EPOCHS * STEPS + 1}",
            "scheduler=constant",
            "scheduler.warmup_steps=0",
            env={"LEVIN_CPU_ISA": isa},
        )
        other = metadata(copy)["machine"] != metadata(whole)["machine"]
        check(
            ("not reproducible: this checkpoint was written on levin" in printed) == other,
            f"LEVIN_CPU_ISA={isa}: a checkpoint of another machine is reported",
        )


try:
    undisturbed = f"{work}/whole"
    levin(COMMON + [f"out={undisturbed}"])
    check(
        len(reproducibility_lines(undisturbed)) == EPOCHS * (STEPS + 1),
        "the undisturbed run has a line for each step and each epoch",
    )
    signals(undisturbed)
    other_values(undisturbed)
finally:
    shutil.rmtree(work, ignore_errors=True)
print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)
