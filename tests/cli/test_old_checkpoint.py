#!/usr/bin/env python3
"""A run that an old program has saved (tests/golden/make_old_checkpoint.py) is one of today's: it
resumes in the middle of its epoch, under every spelling of its keys and on any layout, to the same
bits; a change of what its bits follow from is noticed; its models predict and evaluate.

usage: test_old_checkpoint.py SOURCE LEVIN [test names]
"""

import csv
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import unittest
from pathlib import Path

SOURCE, LEVIN = Path(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
OLD, NEW = "shards", "micro_batches"  # one key; the archive knows the old name only
SMALL = ["data=builtin:shapes", "data.count=60"]
USAGE, WAIT_S = 64, 120


def levin(*arguments, code=0):
    done = subprocess.run([LEVIN, *arguments], capture_output=True, text=True, timeout=WAIT_S)
    what = f"levin {' '.join(arguments)}: exit code {done.returncode}, not {code}"
    assert done.returncode == code, f"{what}\n{done.stderr}"
    return done.stdout + done.stderr


class OldCheckpoint(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        accepted = subprocess.run([LEVIN, "help", "train.classify", NEW], capture_output=True)
        cls.names = [OLD, NEW] if accepted.returncode == 0 else [OLD]

    def setUp(self):
        self.dir = Path(tempfile.mkdtemp(prefix="levin-old-"))
        self.addCleanup(shutil.rmtree, self.dir)

    def old(self, name):
        with tarfile.open(SOURCE / "tests/golden/old_checkpoint.tar.xz") as tar:
            tar.extractall(self.dir / name)
        return self.dir / name / "run"

    def resume(self, run, *arguments, **how):
        return levin("train", "classify", f"out={run}", "resume=true", *arguments, **how)

    def test_it_resumes_to_the_same_bits(self):
        """With its key under each name and without it, on other layouts, and in two parts."""
        layouts = {
            "plain": [],
            "lanes": ["lanes=2", "num_workers=0"],
            "ranks": ["devices=2", "accelerator=cpu"],
            **{name: [f"{name}=4"] for name in self.names},
        }
        hashes = {}
        for name, arguments in layouts.items():
            run = self.old(name)
            printed = self.resume(run, *arguments, "max_steps=12")
            self.assertIn("step 6, epoch 2", printed)
            for line in printed.splitlines():  # another processor may have made the archive
                self.assertFalse(line.startswith("warning:") and "machine" not in line, line)
            hashes[name] = levin("ckpt", "hash", str(run))
        parts = self.old("parts")
        self.resume(parts, "max_steps=9")
        self.resume(parts, "max_steps=12")
        hashes["parts"] = levin("ckpt", "hash", str(parts))
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        self.assertNotEqual(hashes["plain"], levin("ckpt", "hash", str(self.old("before"))))

    def test_another_run_is_refused_within_an_epoch(self):
        """The number is read from the entry `run`, under the name that it has there."""
        for name in self.names:
            printed = self.resume(
                self.old(name), f"{name}=2", "group=2", "max_steps=12", code=USAGE
            )
            self.assertRegex(printed, rf"({OLD}|{NEW})=4\b")
            self.assertRegex(printed, rf"({OLD}|{NEW})=2\b")
        for arguments in (["seed=1"], ["batch_size=6"], ["wgrad_threads=2"]):
            printed = self.resume(
                self.old("x" + arguments[0]), *arguments, "max_steps=12", code=USAGE
            )
            self.assertNotIn("exists", printed)

    def test_another_run_is_announced_between_epochs(self):
        """The value before is found in the stored configuration, under its old name."""
        for name in self.names:
            run = self.old(name)
            os.replace(run / "checkpoints/best.safetensors", run / "checkpoints/last.safetensors")
            printed = self.resume(run, f"{name}=2", "max_steps=8")
            self.assertIn("step 4, epoch 2", printed)
            changes = re.findall(rf"^warning: (?:{OLD}|{NEW})\b.*", printed, re.M)
            self.assertEqual(len(changes), 1, printed)  # once, although the entry `run` has it, too
            self.assertRegex(changes[0], r"\b2\b.*\b4\b")

    def test_its_configuration_is_repeated(self):
        """config= reads the old name, and an argument under either name wins over it."""
        config = f"config={self.old('run')}/config.yaml"
        hashes = {}
        for arguments in ([], *([f"{name}=4"] for name in self.names)):
            out = self.dir / ("again" + "".join(arguments))
            levin("train", "classify", config, "~weights", f"out={out}", *arguments)
            hashes[out.name] = levin("ckpt", "hash", str(out))
        self.assertEqual(len(set(hashes.values())), 1, hashes)
        for name in self.names:
            out = self.dir / f"other-{name}"
            levin("train", "classify", config, "~weights", f"out={out}", f"{name}=2")
            self.assertNotIn(levin("ckpt", "hash", str(out)), hashes.values())
            text = (out / "config.yaml").read_text()
            self.assertEqual(len(re.findall(rf"^(?:{OLD}|{NEW}): 2$", text, re.M)), 1, text)

    def test_its_models_are_used(self):
        run = self.old("run")
        for model in (
            run,
            run / "exported_models/exported_last.safetensors",
            run / "checkpoints/last.safetensors",
        ):
            levin("predict", f"model={model}", *SMALL, f"output={self.dir}/p.csv")
            with open(self.dir / "p.csv", encoding="utf-8") as f:
                rows = list(csv.DictReader(f))
            self.assertEqual(len(rows), 60)
            self.assertLessEqual(
                {r["class"] for r in rows},
                {"circle", "square", "triangle", "star", "cross", "ring"},
            )
            levin("eval", f"model={model}", *SMALL)
            levin("export", f"model={model}", f"output={self.dir}/w.safetensors")
        printed = levin(
            "train",
            "classify",
            *SMALL,
            f"out={self.dir}/next",
            "model=mlp",
            "image_size=4",
            f"weights={run}",
            "max_steps=1",
        )
        self.assertRegex(printed, r"\b6 of the model's 6\b")


if __name__ == "__main__":
    if not os.access(LEVIN, os.X_OK):
        sys.exit(f"usage: {sys.argv[0]} SOURCE LEVIN [test names]")
    unittest.main(verbosity=1)
