#!/usr/bin/env python3
"""examples/09_two_streams: labelled images and clips in one step. It learns, and any layout, any
resume and a kill in between give one hash.

usage: test_two_streams.py CLIPS LEVIN [test names]     registered in examples/CMakeLists.txt
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path

from today import OfToday
from ucx import HAS_UCX

CLIPS, LEVIN = os.path.abspath(sys.argv.pop(1)), os.path.abspath(sys.argv.pop(1))
# epochs of 5 steps, of 13 images and the last of 12, and of 8 clips, in 4 micro-batches
SHORT = ["micro_batches=4", "wgrad_threads=1", "batch_size=13", "quiet=true", "max_epochs=-1"]
STEPS = 13
SIM = {"LEVIN_SIM_DEVICES": "2", "LEVIN_SIM_MEMORY": "256MiB"}


class TwoStreams(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.cwd = Path(folder.name)

    def run_it(self, program, *arguments, code=0, env=None):
        done = subprocess.run(
            [program, *arguments],
            cwd=self.cwd,
            capture_output=True,
            text=True,
            timeout=200,
            env=dict(os.environ, **(env or {})),
        )
        self.assertEqual(done.returncode, code, f"{arguments}\n{done.stdout}{done.stderr}")
        return done

    def train(self, out, *arguments, **how):
        return self.run_it(CLIPS, f"out={out}", *SHORT, *arguments, **how)

    def hash(self, out):
        return self.run_it(LEVIN, "ckpt", "hash", f"{out}/checkpoints/last.safetensors").stdout

    def metrics(self, out):
        text = (self.cwd / out / "metrics.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def test_it_learns_from_both(self):
        start = self.run_it(CLIPS, "out=run", "wgrad_threads=1").stdout
        self.assertIn(
            "stream clips: 8 samples in a step, 8 in a micro-batch, of 800, shuffled; "
            "pass after pass (100 steps)\n",
            start,
        )
        lines = self.metrics("run")
        val = [line["val/pixels"] for line in lines if "val/pixels" in line]
        temporal = [line["train/temporal"] for line in lines if "train/temporal" in line]
        self.assertLess(min(val), 0.9)
        self.assertGreater(val[0], 2.0)
        self.assertEqual(len(temporal), 60)
        self.assertTrue(all(value > 0.0 for value in temporal))
        self.assertFalse([line for line in lines if "val/temporal" in line])

    def test_every_layout_gives_one_hash(self):
        steps = f"max_steps={STEPS}"
        self.train("alone", steps, "lanes=1", "num_workers=0")
        want = self.hash("alone")
        layouts = {
            "lanes": ["lanes=2", "num_workers=3"],
            "many": ["lanes=4", "num_workers=1"],
            "ddp": ["devices=2", "accelerator=cpu", "strategy=ddp", "lanes=1"],
            "dp": ["devices=3", "accelerator=cpu", "strategy=dp", "num_workers=2"],
            "sim": ["accelerator=sim", "devices=1", "lanes=2"],
            "sims": ["accelerator=sim", "devices=2", "strategy=dp", "num_workers=2"],
        }
        for name, arguments in layouts.items():
            with self.subTest(name):
                self.train(name, steps, "group=4", *arguments, env=SIM)
                self.assertEqual(self.hash(name), want)
        for transport in "shm", "net", *(["ucx"] if HAS_UCX else []):
            with self.subTest(transport):
                launch = ["launch", "-n", "2", "--", CLIPS, f"out={transport}", *SHORT, steps]
                self.run_it(LEVIN, *launch, "group=4", f"transport={transport}")
                self.assertEqual(self.hash(transport), want)

    def test_it_resumes_within_an_epoch(self):
        self.train("whole", f"max_steps={STEPS}")
        for stop, arguments in {
            3: ["num_workers=0"],
            5: ["devices=2", "accelerator=cpu"],
            7: ["accelerator=sim", "devices=1"],
        }.items():
            with self.subTest(stop):
                out = f"stop{stop}"
                self.train(out, f"max_steps={stop}", "group=4", env=SIM)
                self.train(out, "resume=true", f"max_steps={STEPS}", "group=4", *arguments, env=SIM)
                self.assertEqual(self.hash(out), self.hash("whole"))

    def test_a_given_length_of_the_epoch(self):
        """Shorter and longer than a pass through the images, which is 5 steps."""
        self.train("pass", f"max_steps={STEPS}")
        for steps in 3, 9:
            with self.subTest(steps):
                given = [f"steps_per_epoch={steps}", "group=4"]
                self.train(f"whole{steps}", *given, f"max_steps={STEPS}")
                ends = [m["step"] for m in self.metrics(f"whole{steps}") if "val/loss" in m]
                self.assertEqual(ends, list(range(steps, STEPS + 1, steps)))
                self.assertNotEqual(self.hash(f"whole{steps}"), self.hash("pass"))
                self.train(f"part{steps}", *given, "max_steps=7", "lanes=2")
                self.train(
                    f"part{steps}",
                    "resume=true",
                    f"max_steps={STEPS}",
                    "devices=2",
                    "accelerator=cpu",
                )
                self.assertEqual(self.hash(f"part{steps}"), self.hash(f"whole{steps}"))

    def test_it_resumes_after_a_kill(self):
        long = ["max_steps=900", "checkpoint.every_n_steps=7"]
        self.train("whole", *long)
        for _ in range(20):  # the run may be quicker than this test on a busy machine
            with subprocess.Popen(
                [CLIPS, "out=killed", *SHORT, *long, "overwrite=true"],
                cwd=self.cwd,
                stdout=subprocess.DEVNULL,
            ) as process:
                metrics = self.cwd / "killed/checkpoints/last.safetensors"
                end = time.monotonic() + 60
                while not metrics.exists() and time.monotonic() < end and process.poll() is None:
                    time.sleep(0.002)
                process.send_signal(signal.SIGKILL)
            if process.returncode != 0:
                break
        self.assertEqual(process.returncode, -signal.SIGKILL)
        self.train("killed", "resume=true", "num_workers=2", *long)
        self.assertEqual(self.hash("killed"), self.hash("whole"))

    def test_a_batch_smaller_than_the_micro_batches(self):
        done = self.run_it(CLIPS, "out=run", "micro_batches=9", "quiet=true", code=64)
        self.assertIn(
            "the stream clips has 8 samples in a step, which cannot be cut into 9 micro-batches",
            done.stderr,
        )
        self.assertFalse((self.cwd / "run").exists())


if __name__ == "__main__":
    unittest.main(testLoader=OfToday(2))
