"""examples/13_autoencoder: images without classes, codes of them as predictions.

Has one hash with 1 and 2 ranks and when resumed; its codes are the same from a run and from an
exported file, a row for each image; what it learned is measured again by eval.

usage: test_autoencoder.py LEVIN SOURCE     registered in tests/cli/CMakeLists.txt
"""

import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from patterns import draw_patterns
from rank_processes import drop_identity

LEVIN, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
del sys.argv[1:3]
drop_identity()
CODE = 16
SMALL = ("image_size=16", f"code={CODE}", "width=8", "wgrad_threads=1", "quiet=true")


def levin(*arguments, status=0):
    done = subprocess.run(
        [LEVIN, *arguments], cwd=FOLDER, capture_output=True, text=True, timeout=200
    )
    if done.returncode != status:
        raise AssertionError(
            f"{arguments} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


def train(out, *arguments, data="patterns"):
    levin("train", MINE, f"data={data}", f"out={out}", *SMALL, *arguments)
    return levin("ckpt", "hash", out)


def curve(out, name):
    lines = map(json.loads, Path(FOLDER, out, "metrics.jsonl").read_text().splitlines())
    return [line[name] for line in lines if name in line]


class Autoencoder(unittest.TestCase):
    def test_layouts_and_resume(self):
        steps = ("max_epochs=2", "micro_batches=2", "batch_size=8", "scheduler=constant")
        # 5 steps in an epoch
        layouts = {"one": (), "ddp": ("devices=2", "strategy=ddp"), "parts": ("max_steps=7",)}
        for name, layout in layouts.items():
            train(name, *steps, *layout)
        self.assertEqual(len(curve("parts", "val/explained")), 1)
        levin("train", MINE, "resume=true", "out=parts", "max_steps=-1", "quiet=true")
        hashes = {name: levin("ckpt", "hash", name) for name in layouts}
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        metrics = {tuple(curve(name, "val/explained")) for name in layouts}
        self.assertEqual(len(metrics), 1, metrics)

    def test_shapes_are_learned_measured_and_exported(self):
        train("shapes", "max_epochs=2", "batch_size=16", "optim.lr=5e-3", data="builtin:shapes")
        explained = curve("shapes", "val/explained")
        self.assertGreater(explained[-1], 0.4)  # 0: the mean colour
        shown = json.loads(levin("eval", MINE, "model=shapes", "--json").splitlines()[0])
        self.assertEqual(shown["samples"], 400)
        self.assertEqual(shown["metrics"]["explained"], explained[-1])
        self.codes(levin("predict", MINE, "model=shapes", "output=-"), 2000)

    def codes(self, shown, count):
        """name: code of a table."""
        rows = list(csv.reader(line for line in shown.splitlines() if "," in line))
        start = rows.index(["sample", *map(str, range(CODE))])
        table = {row[0]: row[1:] for row in rows[start + 1 :] if len(row) == CODE + 1}
        self.assertEqual(len(table), count)
        self.assertEqual(len({tuple(code) for code in table.values()}), count)
        return table

    def test_codes(self):
        train("coded", "max_epochs=1")
        levin("export", MINE, "model=coded", "output=net.safetensors")
        all_codes = levin("predict", MINE, "model=coded", "output=-")
        codes = self.codes(all_codes, 48)  # those kept for validation, too
        again = levin("predict", MINE, "model=net.safetensors", "data=patterns", "output=-")
        self.assertEqual(self.codes(again, 48), codes)
        one = levin("predict", MINE, "model=coded", "data=patterns/rings/3.png", "output=-")
        self.assertEqual(self.codes(one, 1), {"3.png": codes["rings/3.png"]})

    def test_mistakes(self):
        out = ("out=wrong", "data=patterns")
        self.assertIn("data= is missing", levin("train", MINE, "out=wrong", status=64))
        self.assertIn("a multiple of 8", levin("train", MINE, "image_size=20", *out, status=64))
        self.assertIn("1 to 4096 numbers", levin("train", MINE, "code=0", *out, status=64))
        missing = levin("train", MINE, "data=nowhere", "out=wrong", status=1)
        self.assertIn("give a folder of images, or one image", missing)
        self.assertFalse(Path(FOLDER, "wrong").exists())


with tempfile.TemporaryDirectory() as FOLDER:
    draw_patterns(Path(FOLDER, "patterns"), 12)
    shutil.copy(SOURCE, os.path.join(FOLDER, "autoencoder.c"))
    levin("cc", "autoencoder.c")
    MINE = "./autoencoder.so"
    unittest.main()
