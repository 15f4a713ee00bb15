#!/usr/bin/env python3
"""A resnet18 from random weights learns 341 photos as well as it should: best validation accuracy
of 20 epochs at least 0.45.

usage: test_clothing.py LEVIN DATA   DATA: folder with clothing/. Takes one to two minutes of two
idle cores, so it runs only where LEVIN_TEST_SLOW is
set, and reports it; LEVIN_TEST_SLOW=1 ctest --preset default -R test_clothing -V shows the figures.
"""

import json
import os
import subprocess
import sys
import tempfile
import time

LINE, MAJORITY = 0.45, 0.24
LEVIN, PHOTOS = os.path.abspath(sys.argv[1]), os.path.join(sys.argv[2], "clothing")
WORDS = [
    "model=resnet18",
    "image_size=64",
    "optim=adamw",
    "optim.lr=0.001",
    "batch_size=32",
    "max_epochs=20",
]
if not os.environ.get("LEVIN_TEST_SLOW"):
    print("skipped: it takes minutes, set LEVIN_TEST_SLOW=1 to run it")
    sys.exit(77)
if not os.path.isdir(PHOTOS):
    print(f"skipped: there are no photos in {PHOTOS} (LEVIN_TEST_DATA names another folder)")
    sys.exit(77)

with tempfile.TemporaryDirectory(prefix="levin-clothing-") as work:
    print(f"levin train classify data={PHOTOS} {' '.join(WORDS)}", flush=True)
    begin = time.monotonic()
    subprocess.run(
        [LEVIN, "train", "classify", f"data={PHOTOS}", f"out={work}/run", "quiet=true", *WORDS],
        check=True,
    )
    seconds, used = time.monotonic() - begin, os.times()
    rows = [json.loads(line) for line in open(f"{work}/run/metrics.jsonl")]
accuracies = [row["val/acc"] for row in rows if "val/acc" in row]
best = max(accuracies)
print(
    f"best validation accuracy {best:.3f} after epoch {accuracies.index(best) + 1} of "
    f"{len(accuracies)} (majority class: {MAJORITY}), "
    f"last {accuracies[-1]:.3f}; {seconds:.0f} s, of all cores "
    f"{used.children_user + used.children_system:.0f} s"
)
if len(accuracies) != 20 or best < LINE:
    sys.exit(f"FAIL: wanted are 20 epochs and at least {LINE}")
