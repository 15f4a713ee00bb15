"""What a module makes of each validation (`validated` of its class), and numbers with a value for
each range of epochs (LVN_CURVE_STAIRS): when they change, that every layout and a resumed run have
the same hash, and how mistakes in them end a run.

usage: test_after_validation.py LEVIN SOURCE     registered in tests/cli/CMakeLists.txt
"""

import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

from rank_processes import drop_identity

LEVIN, SOURCE = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
del sys.argv[1:3]
drop_identity()
ON_SIM = {**os.environ, "LEVIN_SIM_DEVICES": "2"}
RECIPE = "./after_validation.so"
EPOCHS = 5
STEPS = 5  # of an epoch: 46 samples, 10 at a time
PULL = (0.5, 0.25, 0.25, 2.0, 2.0)  # of each epoch
PINNED = (
    "quiet=true",
    "batch_size=10",
    "micro_batches=4",
    "wgrad_threads=1",
    "eval_batch_size=4",
    "log_every_n_steps=1",
    "optim=sgd",
    "optim.lr=0.05",
)


def levin(*arguments, status=0):
    done = subprocess.run(
        [LEVIN, *arguments], cwd=FOLDER, env=ON_SIM, capture_output=True, text=True, timeout=200
    )
    if done.returncode != status:
        raise AssertionError(
            f"{arguments} ended with {done.returncode}, not {status}:\n{done.stdout}{done.stderr}"
        )
    return done.stdout + done.stderr


def train(out, *arguments, status=0):
    return levin("train", RECIPE, f"out={out}", *PINNED, *arguments, status=status)


def curve(out, name):
    lines = map(json.loads, Path(FOLDER, out, "metrics.jsonl").read_text().splitlines())
    return [line[name] for line in lines if name in line]


def as_f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


class AfterValidation(unittest.TestCase):
    def test_what_changes_and_when(self):
        train("whole", f"max_epochs={EPOCHS}", "num_sanity_val_steps=-1")
        # once after each epoch, and not after the check before the first step
        self.assertEqual(curve("whole", "val/calls"), [1, 2, 3, 4, 5])
        self.assertEqual(curve("whole", "val/unknown"), [1] * EPOCHS)
        margin = 1.0
        now, gap = curve("whole", "val/margin"), curve("whole", "val/gap")
        of_steps = curve("whole", "train/margin_step")
        self.assertEqual(len(of_steps), EPOCHS * STEPS)
        for epoch in range(EPOCHS):
            seen = of_steps[STEPS * epoch : STEPS * (epoch + 1)]
            for value in seen:
                self.assertAlmostEqual(value, margin, delta=1e-6)
            margin = as_f32(margin + as_f32(0.25 * gap[epoch]))
            self.assertAlmostEqual(now[epoch], margin, delta=1e-6)
        self.assertEqual(len(set(now)), EPOCHS)
        self.assertEqual(
            curve("whole", "train/pull_step"), [value for value in PULL for _ in range(STEPS)]
        )

    def test_layouts_and_resume(self):
        layouts = {
            "one": ("lanes=1",),
            "lanes": ("lanes=3", "num_workers=2"),
            "two": ("devices=2", "strategy=ddp"),
            "four": ("devices=4", "strategy=ddp"),
            "threads": ("devices=4", "strategy=dp"),
            "sim": ("devices=2", "strategy=dp", "accelerator=sim"),
            "parts": (f"max_steps={3 * STEPS + 2}",),  # within the fourth epoch
        }
        for name, layout in layouts.items():
            train(name, f"max_epochs={EPOCHS}", *layout)
        for devices in (2, 1):
            shutil.copytree(Path(FOLDER, "parts"), Path(FOLDER, f"parts{devices}"))
            arguments = (f"out=parts{devices}", "max_steps=-1", f"devices={devices}")
            levin("train", RECIPE, "resume=true", "quiet=true", *arguments)
        names = [*layouts, "parts1", "parts2"]
        names.remove("parts")
        hashes = {name: levin("ckpt", "hash", name) for name in names}
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        for metric in ("val/margin", "val/calls", "train/pull_step", "train/loss_step"):
            values = {name: curve(name, metric) for name in names}
            for name in names:
                self.assertEqual(values[name], values["one"], (name, metric))

    def test_mistakes_end_the_run(self):
        for layout in ((), ("devices=2", "strategy=ddp")):
            out = f"fails{len(layout)}"
            text = train(out, f"max_epochs={EPOCHS}", "fails_at=2", *layout, status=1)
            self.assertEqual(text.count("validation 2 of the test has no margin"), 1, text)
            self.assertEqual(curve(out, "val/calls"), [1])
        text = train("size", "max_epochs=1", "trouble=size", status=1)
        self.assertIn("lvn_buffer_write: 2 values for the buffer margin of 1", text)
        text = train("name", "max_epochs=1", "trouble=name", status=1)
        name = "a_name_of_more_than_39_characters_in_all"
        self.assertIn(f"lvn_log_number of {name}: names have at most 39", text)


with tempfile.TemporaryDirectory() as FOLDER:
    shutil.copy(SOURCE, FOLDER)
    levin("cc", "after_validation.c")
    unittest.main()
