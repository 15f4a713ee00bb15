#!/usr/bin/env python3
"""What `levin tune lr` suggests, beside the best of a grid of learning rates: five sets of data
(two of builtin:shapes, photos, a folder of drawn images, digits in IDX files), several optimizers
and networks, eight seeds each.

usage: bench/lr_finder.py LEVIN [DATA] [--seeds N] [--keep DIR]
  DATA    a folder with clothing/ (classes of photos); without it four sets
  --keep  the curves of all runs, as CSV and PNG

The best of the grid is the rate with the least loss of the last third of a short training. Exit 1
where a suggestion is not within a factor of 10 of it, where more than a tenth of the runs have no
answer, or where one on builtin:shapes has none.
"""

import argparse
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests/cli"))
import small_png  # noqa: E402  pylint: disable=wrong-import-position

GRID = [10 ** (k / 2) for k in range(-10, 2)]  # 1e-5 to 3
STEPS, FACTOR, NO_ANSWER = 90, 10, 69
SEGMENTS = (0x77, 0x24, 0x5D, 0x6D, 0x2E, 0x6B, 0x7B, 0x25, 0x7F, 0x6F)  # of the digits 0 to 9


def draw_stripes(folder, draw):
    """Three classes: stripes of three directions, each image with its own colours and noise. One in
    six lies in the folder of another class, so that no rate ends with a loss of 0."""
    side = 24
    for kind, (dx, dy) in enumerate(((1, 0), (0, 1), (1, 1))):
        for i in range(200):
            colour, phase = [draw.uniform(20, 90) for _ in range(3)], draw.uniform(0, 6.3)
            pixels = bytearray()
            for y in range(side):
                for x in range(side):
                    wave = math.sin(0.9 * (dx * x + dy * y) + phase)
                    for c in colour:
                        pixels.append(max(0, min(255, int(128 + c * wave + draw.gauss(0, 40)))))
            labelled = (kind + (i % 6 == 0)) % 3
            small_png.write_pixels(
                folder / f"kind{labelled}" / f"{kind}-{i}.png", side, bytes(pixels)
            )


def draw_digits(folder, draw):
    """Digits of seven segments, moved and with noise, in two IDX files as MNIST has them."""
    n, side = 600, 28
    images, labels = bytearray(), bytearray()
    for _ in range(n):
        digit, left, top = draw.randrange(10), draw.randrange(3, 13), draw.randrange(2, 8)
        image = [[draw.uniform(0, 90) for _ in range(side)] for _ in range(side)]
        for segment, (x, y, w, h) in enumerate(
            ((0, 0, 10, 2), (0, 0, 2, 9), (8, 0, 2, 9), (0, 8, 10, 2))
            + ((0, 9, 2, 9), (8, 9, 2, 9), (0, 17, 10, 2))
        ):
            if SEGMENTS[digit] >> segment & 1:
                for row in range(top + y, top + y + h):
                    for column in range(left + x, left + x + w):
                        image[row][column] = draw.uniform(120, 255)
        images += bytes(int(v) for row in image for v in row)
        labels.append(digit)
    folder.mkdir()
    (folder / "train-images-idx3-ubyte").write_bytes(
        struct.pack(">IIII", 0x803, n, side, side) + images
    )
    (folder / "train-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, n) + labels)


def make_sets(folder, photos):
    draw = random.Random(1)
    draw_stripes(folder / "stripes", draw)
    draw_digits(folder / "digits", draw)
    sets = {
        "shapes": ["data=builtin:shapes"],
        "shapes, sgd": ["data=builtin:shapes", "data.count=600", "data.seed=3", "optim=sgd"]
        + ["image_size=24", "batch_size=16"],
        "stripes": [f"data={folder}/stripes", "image_size=24", "augment.crop=false"],
        "digits, mlp": [f"data={folder}/digits", "image_size=28", "model=mlp", "optim=adam"],
    }
    if photos is not None and (photos / "clothing").is_dir():
        sets["photos"] = [f"data={photos}/clothing", "image_size=48"]
    return sets


def best_of_grid(levin, arguments, folder):
    """The rates with their losses, and the best."""
    losses = []
    for lr in GRID:
        subprocess.run(
            [levin, "train", "classify", *arguments, f"optim.lr={lr}", f"max_steps={STEPS}"]
            + ["log_every_n_steps=1", "quiet=true", f"out={folder}", "overwrite=true"]
            + ["val_split=0", "detect_anomaly=false"],
            check=False,
            stderr=subprocess.DEVNULL,
        )
        loss = []
        for line in (folder / "metrics.jsonl").read_text().splitlines():
            loss.append(json.loads(line).get("train/loss_step"))
        last = [x for x in loss if x is not None][-STEPS // 3 :]
        whole = len(loss) >= STEPS and all(isinstance(x, float) for x in last)
        losses.append(sum(last) / len(last) if whole else math.inf)
    return GRID[losses.index(min(losses))], losses


def suggest(levin, arguments, seed, curve):
    """The suggested rate; None: no clear descent."""
    end = subprocess.run(
        [levin, "tune", "lr", "classify", *arguments, f"seed={seed}", "tune.json=true"]
        + [f"tune.csv={curve}.csv", f"tune.plot={curve}.png"],
        check=False,
        capture_output=True,
        text=True,
    )
    if end.returncode not in (0, NO_ANSWER):
        sys.exit(f"levin tune lr ended with {end.returncode}: {end.stderr}")
    return json.loads(end.stdout)["optim.lr"] if end.returncode == 0 else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("levin", type=os.path.abspath)
    parser.add_argument("data", nargs="?", type=pathlib.Path)
    parser.add_argument("--seeds", type=int, default=8)
    parser.add_argument("--keep", type=pathlib.Path)
    o = parser.parse_args()
    runs = far = none = none_of_shapes = 0
    with tempfile.TemporaryDirectory() as text:
        folder = pathlib.Path(text)
        keep = o.keep or folder
        keep.mkdir(exist_ok=True)
        for name, arguments in make_sets(folder, o.data and o.data.resolve()).items():
            best, losses = best_of_grid(o.levin, arguments, folder / "run")
            print(f"{name}: best of the grid {best:.3g}", flush=True)
            print("  " + " ".join(f"{lr:.0e}:{x:.3f}" for lr, x in zip(GRID, losses)), flush=True)
            for seed in range(o.seeds):
                curve = keep / f"{name.replace(', ', '-')}-{seed}"
                found = suggest(o.levin, arguments, seed, curve)
                runs += 1
                none += found is None
                none_of_shapes += found is None and name.startswith("shapes")
                wrong = found is not None and not best / FACTOR <= found <= best * FACTOR
                far += wrong
                text = "none" if found is None else f"{found:.3g} ({found / best:.2g} times)"
                print(f"  seed {seed}: {text}{', too far' if wrong else ''}", flush=True)
    print(f"{runs} runs: {far} too far from the best, {none} without an answer")
    return 1 if far > 0 or none > runs // 10 or none_of_shapes > 0 else 0


if __name__ == "__main__":
    sys.exit(main())
