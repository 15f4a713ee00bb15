"""examples/11_simclr: two views of each image, negatives of all micro-batches, and neighbours that
vote.

Learns from images of four patterns, and from real photos; has one hash on every layout and when
resumed; what it learned is measured by eval and taken by classify.

usage: test_simclr.py LEVIN SOURCE DATA     registered in tests/cli/CMakeLists.txt; DATA: folder
with clothing/, or the photos are left out
"""

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
from today import OfToday

LEVIN, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
PHOTOS = Path(os.path.abspath(sys.argv[3]), "clothing")
del sys.argv[1:4]
drop_identity()


def levin(*arguments, status=0, **environment):
    done = subprocess.run(
        [LEVIN, *arguments],
        cwd=FOLDER,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=250,
    )
    if done.returncode != status:
        raise AssertionError(
            f"{arguments} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


def curve(out, name):
    """What the lines of epochs have, or those of steps."""
    lines = map(json.loads, Path(FOLDER, out, "metrics.jsonl").read_text().splitlines())
    return [line[name] for line in lines if name in line]


def mean(values):
    return sum(values) / len(values)


def train(out, *arguments, data="patterns", **environment):
    pinned = ("wgrad_threads=1", "quiet=true", "image_size=32", "batch_size=32")
    levin("train", MINE, f"data={data}", f"out={out}", *pinned, *arguments, **environment)


class SimCLR(unittest.TestCase):
    def test_neighbours_are_of_the_same_class(self):
        """Which eval measures again, and classify takes the backbone."""
        train("learned", "max_epochs=10", "min_scale=0.4", "micro_batches=1")
        losses, right = curve("learned", "train/loss"), curve("learned", "val/knn")
        self.assertEqual(len(right), 10)
        self.assertLess(mean(losses[-3:]), 0.8 * losses[0], losses)
        self.assertGreater(mean(right[-3:]), 0.9, right)  # a quarter by chance
        shown = levin("eval", MINE, "model=learned", "data=patterns")
        self.assertIn(f"knn {right[-1]:.6g}\n", shown)
        levin("export", MINE, "model=learned", "output=learned.safetensors")
        for file in ("learned/checkpoints/last.safetensors", "learned.safetensors"):
            given = ("model=cnn", f"weights={file}", "reset_head=true", "image_size=32")
            out = f"out={file.replace('/', '_')}_taken"
            shown = levin("train", "classify", "data=patterns", *given, "max_steps=1", out)
            self.assertIn(f"weights={file}: 15 of the model's 17 tensors are from it", shown)
            self.assertIn("project.hidden.weight", shown)  # among those that are not used

    def test_photos(self):
        if not PHOTOS.is_dir():
            self.skipTest(f"there are no photos in {PHOTOS} (LEVIN_TEST_DATA names another folder)")
        train("photos", "max_epochs=10", "micro_batches=1", data=PHOTOS)
        losses, right = curve("photos", "train/loss"), curve("photos", "val/knn")
        self.assertLess(mean(losses[-3:]), 0.9 * losses[0], losses)
        # 10 classes, of which the largest has 0.24 of the photos
        self.assertGreater(mean(right[-6:]), 0.27, right)

    def test_layouts_and_resume(self):
        layouts = {
            "one": ("lanes=1",),
            "lanes": ("lanes=4", "num_workers=2"),
            "ddp": ("devices=2", "strategy=ddp"),
            "dp": ("devices=3", "strategy=dp"),
            "sim": ("devices=2", "strategy=dp", "accelerator=sim"),
            "parts": ("max_steps=8",),  # in the second epoch
        }
        steps = ("max_epochs=2", "micro_batches=4", "scheduler=constant")
        for name, layout in layouts.items():
            train(name, *steps, *layout, LEVIN_SIM_DEVICES="2")
        levin("train", MINE, "resume=true", "out=parts", "max_steps=-1", "quiet=true")
        hashes = {name: levin("ckpt", "hash", name) for name in layouts}
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        for name in ("train/loss", "val/knn"):
            values = {name: tuple(curve(out, name)) for out in layouts}
            self.assertEqual(len(set(values.values())), 1, values)
        train("alone", *steps, "group=1")  # negatives of the micro-batch alone: another run
        self.assertNotIn(levin("ckpt", "hash", "alone"), hashes.values())

    def test_negatives_are_those_of_the_group(self):
        """The first step's loss is that of one large micro-batch; alone a micro-batch has fewer
        negatives, so it is smaller by about log(63 / 15)."""
        losses = []
        for cut in (("micro_batches=1",), ("micro_batches=4",), ("micro_batches=4", "group=1")):
            train("step_" + "_".join(cut), "max_steps=1", *cut)
            losses += curve("step_" + "_".join(cut), "train/loss_step")
        self.assertAlmostEqual(losses[0], losses[1], delta=1e-4)
        self.assertLess(losses[2], losses[0] - 1.0)

    def test_built_in_images(self):
        """Whose name is not a path: a resume finds them from any folder."""
        train("shapes", "image_size=16", "max_steps=2", data="builtin:shapes")
        with open(os.path.join(FOLDER, "shapes", "config.yaml")) as f:
            self.assertIn('data: "builtin:shapes"\n', f.read())
        shown = levin("train", MINE, "resume=true", "out=shapes", "max_steps=3")
        self.assertIn("done after 3 steps", shown)

    def test_low_precision(self):
        steps = ("max_epochs=1", "micro_batches=2", "precision=bf16-mixed")
        train("low", *steps)
        train("low_ddp", *steps, "devices=2", "strategy=ddp")
        self.assertEqual(levin("ckpt", "hash", "low"), levin("ckpt", "hash", "low_ddp"))

    def test_keys_change_the_run(self):
        def trained(*keys):
            out = "keys_" + "_".join(keys).replace("=", "")
            train(out, "max_steps=6", "micro_batches=1", *keys)
            return levin("ckpt", "hash", out), curve(out, "val/knn"), curve(out, "val/loss")

        trains = ("min_scale=0.5", "strength=1", "projection=16", "temperature=0.5", "bank=128")
        runs = [trained(), *map(trained, trains)]
        self.assertEqual(len({run[0] for run in runs}), len(runs), runs)
        for key in ("neighbours=1", "knn_temperature=0.01"):  # of the validation alone
            weights, right, _ = trained(key)
            self.assertEqual(weights, runs[0][0])
            self.assertNotEqual(right, runs[0][1], key)

    def test_mistakes(self):
        out = ("out=wrong", "data=patterns")
        self.assertIn("data= is missing", levin("train", MINE, "out=wrong", status=64))
        self.assertIn("no more neighbours", levin("train", MINE, "neighbours=999", *out, status=64))
        self.assertIn("must be above 0", levin("train", MINE, "temperature=0", *out, status=64))
        self.assertIn("nowhere", levin("train", MINE, "data=nowhere", "out=wrong", status=1))


with tempfile.TemporaryDirectory() as FOLDER:
    draw_patterns(Path(FOLDER, "patterns"), 60)
    shutil.copy(SOURCE, os.path.join(FOLDER, "simclr.c"))
    levin("cc", "simclr.c")
    MINE = "./simclr.so"
    unittest.main(testLoader=OfToday(3))
