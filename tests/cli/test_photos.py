#!/usr/bin/env python3
"""A folder of photos in, a trained network out: train, predict, eval, as in the README.

usage: test_photos.py LEVIN DATA   DATA: folder with clothing/ (341 photos in 10 classes); skipped
without it.
"""

import csv
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile

LEVIN, PHOTOS = os.path.abspath(sys.argv[1]), os.path.join(sys.argv[2], "clothing")
if not os.path.isdir(PHOTOS):
    print(f"skipped: there are no photos in {PHOTOS} (LEVIN_TEST_DATA names another folder)")
    sys.exit(77)
work = tempfile.mkdtemp(prefix="levin-photos-")
failures = []


def check(good, what):
    print(("ok   " if good else "FAIL ") + what, flush=True)
    if not good:
        failures.append(what)


def levin(*arguments):
    done = subprocess.run(
        [LEVIN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=400
    )
    if done.returncode != 0:
        raise SystemExit(f"levin {' '.join(arguments)} left with {done.returncode}:\n{done.stderr}")
    return done


try:
    out = f"{work}/run"
    levin(
        *("train", "classify", f"data={PHOTOS}", "model=cnn", "image_size=48", "max_epochs=6"),
        f"out={out}",
    )
    rows = [json.loads(line) for line in open(f"{out}/metrics.jsonl")]
    accuracies = [r["val/acc"] for r in rows if "val/acc" in r]
    check(len(accuracies) == 6, "6 epochs were validated")
    check(
        max(accuracies) >= 0.3,
        f"best validation accuracy {max(accuracies):.3f} >= 0.3 (majority class: 0.24)",
    )
    for name in (
        "config.yaml",
        "train.log",
        "checkpoints/last.safetensors",
        "checkpoints/best.safetensors",
        "exported_models/exported_last.safetensors",
    ):
        check(os.path.getsize(f"{out}/{name}") > 0, f"{name} is there")

    # The exported file is what others read: OIHW, plain names.
    raw = open(f"{out}/exported_models/exported_last.safetensors", "rb").read()
    header = json.loads(raw[8 : 8 + struct.unpack("<Q", raw[:8])[0]])
    check(
        header["conv2.weight"]["shape"] == [64, 32, 3, 3], "exported convolution weights are OIHW"
    )
    check(header["norm1.running_mean"]["shape"] == [32], "running statistics are exported")

    # eval over everything, and predict over the same images, agree.
    printed = levin("eval", f"model={out}", f"data={PHOTOS}", f"sheet={work}/sheet.png").stdout
    right = int(printed.split("(")[1].split()[0])
    lines = printed.splitlines()
    check(
        lines[0].startswith("acc ")
        and lines[0].endswith(f"({right} of 341 right)")
        and lines[-1] == f"sheet in {work}/sheet.png",
        "eval prints acc first and the page last",
    )
    counts = [line.split()[1].split("/") for line in lines[2:12]]
    check(
        len(counts) == 10
        and sum(int(a) for a, _ in counts) == right
        and sum(int(b) for _, b in counts) == 341,
        "eval counts each class",
    )
    parts = {}
    for part in ("train", "val"):
        parts[part] = int(
            levin("eval", f"model={out}", f"data={PHOTOS}", "checkpoint=last", f"split={part}")
            .stdout.split("(")[1]
            .split()[0]
        )
    check(
        abs(parts["val"] / 68 - accuracies[-1]) < 1e-6,
        "split=val of the last model is what the training measured",
    )
    last = levin("eval", f"model={out}", f"data={PHOTOS}", "checkpoint=last")
    check(
        int(last.stdout.split("(")[1].split()[0]) == sum(parts.values()),
        "split=train and split=val are all",
    )
    check(
        "273 of these 341 images were trained on; split=val" in last.stderr,
        "eval reports what was trained on",
    )
    levin("predict", f"model={out}", f"data={PHOTOS}", f"output={work}/pred.csv")
    table = list(csv.DictReader(open(f"{work}/pred.csv")))
    check(
        list(table[0]) == ["file", "class", "probability"],
        "the table has the columns file, class, probability",
    )
    check(
        len(table) == 341 and [r["file"] for r in table] == sorted(r["file"] for r in table),
        "one row a photo, in sorted order",
    )
    check(
        sum(r["file"].split("/")[-2] == r["class"] for r in table) == right,
        f"predict and eval agree on {right} right ones",
    )
    check(
        all(0.0999 <= float(r["probability"]) <= 1 for r in table),
        "probabilities of the first of ten classes are 0.1 or more",
    )
    check(
        open(f"{work}/sheet.png", "rb").read(8) == b"\x89PNG\r\n\x1a\n",
        "the page of predictions is a PNG",
    )

    one = levin(
        "predict",
        f"model={out}",
        f"data={PHOTOS}/hat",
        "lanes=1",
        "num_workers=0",
        "eval_batch_size=64",
        f"output={work}/a.csv",
    )
    two = levin(
        "predict",
        f"model={out}",
        f"data={PHOTOS}/hat",
        "lanes=2",
        "num_workers=3",
        "eval_batch_size=64",
        f"output={work}/b.csv",
    )
    check(
        open(f"{work}/a.csv").read() == open(f"{work}/b.csv").read(),
        "predictions do not depend on lanes and workers",
    )

    # Weights of one run start another.
    levin(
        "train",
        "classify",
        f"data={PHOTOS}",
        "model=cnn",
        "image_size=48",
        "max_steps=1",
        "optim.lr=0",
        "optim=sgd",
        f"out={work}/second",
        f"weights={out}/exported_models/exported_last.safetensors",
        "quiet=true",
    )
    second = open(f"{work}/second/exported_models/exported_last.safetensors", "rb").read()
    begin, end = header["conv2.weight"]["data_offsets"]
    at = 8 + struct.unpack("<Q", raw[:8])[0]
    at2 = 8 + struct.unpack("<Q", second[:8])[0]
    check(
        raw[at + begin : at + end] == second[at2 + begin : at2 + end],
        "weights= starts from these weights",
    )
finally:
    shutil.rmtree(work, ignore_errors=True)
print(f"{len(failures)} failures")
sys.exit(1 if failures else 0)
